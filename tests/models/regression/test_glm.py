"""Regressions from formula to predictions, beside the same models written by hand."""

import jax
import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.core.names import Names
from sgmcmc.models.regression.building import build_design, core_of
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.priors import draw_prior, log_prior
from sgmcmc.models.regression.report import reported
from sgmcmc.models.regression.storing import in_memory

N = 3000
RUN = {"draws": 500, "seed": 1, "progress": False}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {"age": rng.uniform(20, 80, N), "region": rng.choice(["North", "South", "West"], N), "years": rng.uniform(0.1, 1, N)}
    )
    south = made.region == "South"
    made["claims"] = rng.poisson(made.years * np.exp(-1 + 0.02 * made.age + 0.5 * south))
    made["cost"] = 1000 + 30 * made.age + 200 * south + rng.normal(0, 100, N)
    made["lapsed"] = np.where(rng.random(N) < 1 / (1 + np.exp(-(made.age - 50) / 20)), "yes", "no")
    return made


@pytest.fixture(scope="module")
def gaussian(frame):
    return sgmcmc.glm("cost ~ age + region", frame, **RUN)


@pytest.fixture(scope="module")
def poisson(frame):
    return sgmcmc.glm("claims ~ age * region + offset(log(years))", frame, family="poisson", **RUN)


def least_squares(frame):
    X = np.column_stack([np.ones(N), frame.age, frame.region == "South", frame.region == "West"]).astype(float)
    beta, rest, _, _ = np.linalg.lstsq(X, frame.cost, rcond=None)
    return beta, np.sqrt(rest[0] / (N - 4) * np.diag(np.linalg.inv(X.T @ X)))


def test_coefficients_are_those_of_least_squares_on_the_users_scale(gaussian, frame):
    """With 3,000 rows the priors, an sd of the outcome and a half wide and more, move nothing by a tenth of an sd."""
    beta, sd = least_squares(frame)
    summary = gaussian.summary()
    assert list(summary.index) == ["Intercept", "age", "region[South]", "region[West]", "sigma"]
    found = summary.iloc[:4]
    assert np.abs((found["mean"] - beta) / sd).max() < 0.2
    np.testing.assert_allclose(found["sd"], sd, rtol=0.12)
    assert gaussian.health().ok


def test_draws_have_names_terms_and_levels(poisson):
    assert list(poisson) == ["Intercept", "age", "region", "age:region"]
    assert poisson["region"].shape == (4, 500, 2)
    assert isinstance(poisson.names, Names)
    assert list(poisson.to_arviz().posterior["age:region level"].values) == ["South", "West"]
    assert poisson.pairs.names == ["Intercept", *list(poisson.summary().index)[1:]]


def test_what_is_inside_and_outside_gives_the_same_predictions(poisson, frame):
    """Draws on the user's scale, put into the formula by hand, beside the model's own mean."""
    few = frame.iloc[:50]
    draws = {name: np.asarray(poisson[name], float).reshape(-1, *poisson[name].shape[2:]) for name in poisson}
    eta = draws["Intercept"][:, None] + draws["age"][:, None] * few.age.to_numpy() + np.log(few.years.to_numpy())
    for place, level in enumerate(["South", "West"]):
        here = (few.region == level).to_numpy()
        eta += here * (draws["region"][:, place, None] + draws["age:region"][:, place, None] * few.age.to_numpy())
    found = poisson.predict(few, draws=2000)
    np.testing.assert_allclose(found, np.exp(eta).mean(axis=0), rtol=1e-4)


def test_predictions_of_outcomes_and_means(gaussian, frame):
    few = frame.iloc[:200]
    lower, upper = gaussian.predict(few, "interval")
    inside = ((few.cost >= lower) & (few.cost <= upper)).mean()
    assert 0.82 < inside < 0.97  # 90%, of 200 rows
    narrow = gaussian.predict(few, "interval", of="mean")
    assert (narrow.upper - narrow.lower).max() < 0.2 * (upper - lower).min()
    assert gaussian.predict(few, "draws", draws=20).shape == (20, 200)
    assert gaussian.posterior_predictive(few, draws=20)["y"].shape == (20, 200)


def test_levels_are_compared_on_the_scale_of_the_outcome(gaussian, poisson, frame):
    table = gaussian.compare_levels("region")
    np.testing.assert_allclose(table["mean"], [0, *gaussian["region"].mean(axis=(0, 1))], rtol=0.02, atol=0.5)
    effects = gaussian.average_effects()
    assert list(effects.index) == ["age", "region[South]", "region[West]"]
    np.testing.assert_allclose(effects.loc["age", "mean"], gaussian["age"].mean(), rtol=1e-2)
    rates = poisson.compare_levels("region", ["South", "North"])
    assert rates.loc["North", "mean"] < 0 < rates.loc["South", "expected"]
    dependence = poisson.dependence("age", points=5)
    assert dependence["mean"].is_monotonic_increasing
    assert (dependence["lower"] < dependence["mean"]).all()


def test_pictures(poisson):
    figure = poisson.plot_dependence("age", "region")
    assert [axes.get_xlabel() for axes in figure.axes] == ["age", "region"]
    with pytest.raises(sgmcmc.InputError, match=r"no groups; give it some, such as \(1 | region\)"):
        poisson.plot_groups()


def test_two_levels_of_text_are_an_outcome(frame):
    design, source = build_design("lapsed ~ age", frame, *find_family("bernoulli"))
    assert design.response.said == "1 stands for lapsed = 'yes', 0 for 'no'."
    np.testing.assert_array_equal(in_memory(design, source)["y"], frame.lapsed == "yes")


@pytest.mark.usefixtures("x64")
def test_priors_are_of_what_is_reported(frame):
    """Parameters drawn from the priors, their density beside that of the reported numbers under the laws that were told."""
    law = sgmcmc.distributions
    told = {"Intercept": law.Normal(900.0, 300.0), "age": law.Normal(7.0, 2.0), "region": law.Normal(0.0, 100.0)}
    told |= {"sigma": law.LogNormal(5.0, 0.5), "sd(region)": law.HalfNormal(50.0), "age:region": law.Normal(0.0, 3.0)}
    family, link = find_family("gaussian")
    design, _ = build_design("cost ~ age * region + (0 + age | region)", frame, family, link)
    core = core_of(design, family, link)
    priors = core.priors(told)
    for seed in range(3):
        params = draw_prior(priors, jax.random.key(seed))
        assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, core.start())
        shown, _ = reported(core, jax.tree.map(lambda x: np.asarray(x)[None], params))
        effects = law.Normal(0, params["sd of region"]).log_prob(params["effects of region"]).sum()
        by_hand = sum(told[name].log_prob(shown[name][0]).sum() for name in told if name in shown)
        by_hand += told["sd(region)"].log_prob(shown["sd(age|region)"][0]) + effects
        np.testing.assert_allclose(log_prior(priors, params), by_hand, rtol=1e-10)
    assert "age ~ Normal(7, 2)" in priors.said


@pytest.mark.usefixtures("x64")
def test_likelihoods_are_those_of_what_is_reported(frame):
    """With the numbers as reported and the columns as they came, the density of the outcome is the same."""
    family, link = find_family("gaussian")
    design, source = build_design("cost ~ age + region + (1 + age | region)", frame, family, link)
    core, rows = core_of(design, family, link), in_memory(design, source)
    params = draw_prior(core.priors(), jax.random.key(0))
    shown, _ = reported(core, jax.tree.map(lambda x: np.asarray(x)[None], params))
    at = design.varying[0].levels.codes(frame)
    eta = shown["Intercept"][0] + shown["age"][0] * frame.age + np.concatenate([[0], shown["region"][0]])[at]
    eta = eta + shown["1|region"][0][at] + shown["age|region"][0][at] * frame.age
    expected = sgmcmc.distributions.Normal(eta.to_numpy(), shown["sigma"][0]).log_prob(frame.cost.to_numpy())
    np.testing.assert_allclose(core.model(rows, core.priors()).log_lik(params, rows), expected, rtol=1e-8)
    assert -1 <= shown["corr(1,age|region)"][0] <= 1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("formula", ["cost ~ 0 + age", "cost ~ 0 + age + region"])
def test_without_an_intercept_nothing_stands_in_for_it(frame, formula):
    """No coefficients, no mean, whatever that of the outcome."""
    family, link = find_family("gaussian")
    design, source = build_design(formula, frame, family, link)
    core, rows = core_of(design, family, link), in_memory(design, source)
    params = draw_prior(core.priors(), jax.random.key(0))
    shown, _ = reported(core, jax.tree.map(lambda x: np.asarray(x)[None], params))
    eta = shown["age"][0] * frame.age.to_numpy()
    if "region" in formula:
        eta = eta + shown["region"][0] @ [frame.region == level for level in ("North", "South", "West")]
    expected = sgmcmc.distributions.Normal(eta, shown["sigma"][0]).log_prob(frame.cost.to_numpy())
    np.testing.assert_allclose(core.model(rows, core.priors()).log_lik(params, rows), expected, rtol=1e-8)


@pytest.fixture(scope="module")
def dated():
    rng = np.random.default_rng(3)
    day, smoker = rng.integers(0, 400, 500), rng.random(500) < 0.4
    made = pd.DataFrame({"start": pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D"), "smoker": smoker})
    made["y"] = 0.01 * day + 2.0 * smoker + rng.normal(0, 0.5, 500)
    return sgmcmc.glm("y ~ days(start) + smoker", made, **RUN)


def test_checks_by_columns_of_the_frame(gaussian, frame, dated):
    found = gaussian.check(by=["region", "age"], progress=False)
    assert {"y: by region", "y: by age"} <= set(found.table.index)
    assert [text.get_text() for text in found.figure.axes[2].get_xticklabels()] == ["North", "South", "West"]
    assert found.ok
    left_out = sgmcmc.glm("cost ~ region + offset(age)", frame, **RUN)
    assert any("by age" in name for name in left_out.check(by="age", progress=False).surprises.index)
    assert dated.check(by="start", progress=False).ok
    with pytest.raises(sgmcmc.InputError, match="column is 'year'; expected one that the formula uses: age, region"):
        gaussian.check(by="year")


def test_along_dates(dated):
    found = dated.dependence("start")
    slope = np.polyfit((found.index - found.index[0]).days, found["mean"], 1)[0]
    assert len(found) == 20
    assert abs(slope - 0.01) < 0.001
    assert len(dated.plot_dependence("start").axes) == 1
    with pytest.raises(sgmcmc.InputError, match="'start' has dates in the fit, and here what is none: 'someday' in row 2"):
        dated.predict({"start": ["2024-02-01", "someday"], "smoker": [True, False]})
    with pytest.raises(sgmcmc.InputError, match=r"'start' is a date; expected a column of levels, or dependence\(\)"):
        dated.compare_levels("start")


def test_truth_values_are_levels_too(dated):
    assert list(dated.compare_levels("smoker").index) == [0, 1]
    assert abs(dated.compare_levels("smoker", [True, False]).loc[0, "mean"] + 2) < 0.2
    assert list(dated.dependence("smoker").index) == [0, 1]
    ticks = dated.plot_dependence("smoker").axes[0].get_xticklabels()
    assert [text.get_text() for text in ticks] == ["0", "1"]
    assert list(dated.average_effects(["smoker"]).index) == ["smoker[1]"]
    with pytest.raises(sgmcmc.InputError, match="'smoker' has no level 'yes'; it has 0, 1"):
        dated.compare_levels("smoker", ["yes"])


@pytest.fixture(scope="module")
def hierarchy():
    """Few rows of each group, so that effects are written as multiples of their scale."""
    rng = np.random.default_rng(2)
    shop, x = rng.integers(0, 30, 500), rng.normal(10, 2, 500)
    effects = rng.normal(0, 2.0, 30)
    made = pd.DataFrame({"shop": [f"s{i:02}" for i in shop], "x": x, "y": 1 + 0.5 * x + effects[shop] + rng.normal(0, 1.0, 500)})
    return made, sgmcmc.glm("y ~ x + (1 | shop)", made, priors={"sd(shop)": sgmcmc.distributions.HalfNormal(3.0)}, **RUN)


def test_effects_of_groups_are_drawn_together(hierarchy):
    frame, fit = hierarchy
    assert list(fit) == ["Intercept", "x", "sigma", "sd(1|shop)", "1|shop"]
    assert fit.names.labels("1|shop", (30,))[:2] == ["1|shop[s00]", "1|shop[s01]"]
    rests = frame.y - fit["Intercept"].mean() - fit["x"].mean() * frame.x
    alone = rests.groupby(frame["shop"]).mean()
    together = fit["1|shop"].mean(axis=(0, 1))
    assert np.corrcoef(together, alone)[0, 1] > 0.98
    assert abs(together - together.mean()).sum() < abs(alone - alone.mean()).sum()
    figure = fit.plot_groups()
    assert len(figure.axes[0].get_yticks()) == 30


def test_new_groups_come_from_the_population(hierarchy):
    _, fit = hierarchy
    new = pd.DataFrame({"shop": ["s00", "new", "new", "other"], "x": 10.0})
    draws = fit.predict(new, "draws", of="mean", draws=2000)
    np.testing.assert_array_equal(draws[:, 1], draws[:, 2])  # one shop, one effect
    assert abs(np.corrcoef(draws[:, 1], draws[:, 3])[0, 1]) < 0.2
    expected = np.sqrt((fit["sd(1|shop)"] ** 2).mean())
    assert draws[:, 0].std() < 0.5 < 0.8 * expected < draws[:, 1].std() < 1.3 * expected
