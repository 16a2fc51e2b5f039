"""The table of models: its targets are the users' posteriors, its Gibbs steps draw from them, and it says what it found."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from posteriors import in_doubles, log_posterior

from benchmarks.everyday import judge, reference
from benchmarks.models import gibbs, hierarchies, report, rotations
from benchmarks.models import hierarchy_targets as targets
from benchmarks.models.__main__ import PAGE
from benchmarks.models.everything import MODELS, SMALL, build, names
from benchmarks.models.regressions import horseshoe_seen

ALWAYS = ("kidiq: linear with a product", "radon: varying intercepts")
LATER = [pytest.param(name, marks=pytest.mark.slow) for name in names(small=True) if name not in ALWAYS]


@pytest.mark.parametrize("name", [*ALWAYS, *LATER])
def test_the_target_is_the_posterior_of_the_model(name, x64):
    case = in_doubles(build(name, 1))
    one, other = (jnp.asarray(0.2 * np.random.default_rng(i).normal(size=case.target.size)) for i in (1, 2))
    theirs = log_posterior(case, one) - log_posterior(case, other)
    ours = case.target.density(one, case.target.rows) - case.target.density(other, case.target.rows)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)


def by_grid(scale, log_lik):
    """Means of beta, log lam and log tau, for one coefficient and no intercept: beta on a grid of its own for every scale."""
    logs, part = np.linspace(-12, 12, 241), np.linspace(-1, 1, 1_001)
    sums = np.linspace(-24, 24, 481)
    width = np.minimum(9 * np.exp(sums), 60.0)[:, None]
    beta = width * part
    density = np.exp(log_lik(beta.ravel()).reshape(beta.shape) - (beta * np.exp(-sums)[:, None]) ** 2 / 2 - sums[:, None]) * width
    mass, first = density.sum(axis=1), (density * beta).sum(axis=1)
    local, total = np.meshgrid(logs, logs, indexing="ij")
    cauchy = local - np.log1p(np.exp(2 * local)) + total - np.log1p(np.exp(2 * total) / scale**2)
    at = np.add.outer(np.arange(241), np.arange(241))
    weight = np.exp(cauchy) * mass[at]
    mean = np.divide(first, mass, out=np.zeros_like(mass), where=mass > 0)[at]
    return [(weight * value).sum() / weight.sum() for value in (mean, local, total)]


def test_gibbs_draws_are_those_of_the_logistic_horseshoe():
    """Few rows, so that the parabola is a poor one; a narrow prior keeps the intercept at 0."""
    rng, scale = np.random.default_rng(0), 0.5
    x = rng.normal(size=25)
    rows = {"X": np.column_stack([np.ones(25), x]), "y": (rng.random(25) < 1 / (1 + np.exp(-2.5 * x))).astype(float)}
    blocks = gibbs.horseshoe_logistic(rows, 1e-3, scale)
    draws = [next(blocks) for _ in range(6)]
    seen = horseshoe_seen({name: np.concatenate([block[name] for block in draws], axis=1) for name in draws[0]})
    found = reference.moments(np.stack([seen["beta"][..., 0], seen["log lam"][..., 0], seen["log tau"]], axis=-1))

    def away(log_lik):
        return np.abs(np.subtract(found["mean"], by_grid(scale, log_lik)) / found["sd"] * np.sqrt(found["ess"])).max()

    assert away(lambda beta: gibbs.log_likelihood(rows, np.column_stack([np.zeros_like(beta), beta]))) < 4
    bowl = gibbs.parabola(rows)
    assert away(lambda beta: bowl["Xy"][1] * beta - bowl["XX"][1, 1] * beta**2 / 2) > 6  # the control: nothing is tested


def test_rotations_with_kicks_draw_from_the_posterior(monkeypatch):
    """Few rows and a poor Gaussian, so that what it leaves out is large; against a grid."""
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(12, 1))) + 0.5
    rows = {"X": X, "events": X.T @ (rng.random(12) < 0.9)}
    beta = np.linspace(-3, 9, 4_001)
    log_density = rows["events"][0] * beta - np.logaddexp(0.0, X * beta).sum(axis=0) - beta**2 / 2
    weight = np.exp(log_density - log_density.max())
    mean = (weight * beta).sum() / weight.sum()
    truth = np.array([mean, (weight * (beta - mean) ** 2).sum() / weight.sum()])

    def away():
        blocks = rotations.wide_logistic(rows, np.array([0.5]), np.array([[0.6]]))
        draws = np.concatenate([next(blocks)["beta"] for _ in range(50)], axis=1)
        found = reference.moments(np.concatenate([draws, (draws - mean) ** 2], axis=2))
        return np.abs((np.array(found["mean"]) - truth) / found["sd"] * np.sqrt(found["ess"])).max()

    assert away() < 4
    monkeypatch.setattr(rotations.LeftOut, "__call__", lambda self, z: (np.zeros(len(z)), np.zeros_like(z)))
    assert away() > 6  # the control: the Gaussian itself


def test_counts_in_cells_are_the_rows():
    case = hierarchies.poisson_slopes(1, rows=2_000, groups=7)
    rows = case.target.rows
    assert rows["rows"].shape == (7, len(hierarchies.VALUES), len(rows["X"]))
    assert rows["rows"].sum() == case.rows
    assert (rows["rows"].sum(axis=(1, 2)) == np.bincount(case.data["region"], minlength=7)).all()
    assert rows["events"].sum() == case.data["y"].sum()
    assert case.data["X"].shape[1] == 13


def test_the_bowl_of_a_hierarchy_has_its_scale_in_the_mass(x64):
    """At the mode of the joint density it would be 0; here it is near the true 0.305."""
    case = hierarchies.poisson_intercepts(1, rows=40_000, groups=60)
    centre, _ = reference.scales(case.target)
    assert 0.2 < float(case.target.parameters(centre)["tau"]) < 0.45


def test_effects_that_are_not_centred_are_in_units_of_their_scale():
    split = {"a": 0.0, "beta": np.zeros(3), "tau": np.log(np.array([0.5, 2.0])), "z": np.ones((2, 4))}
    assert targets.not_centred(split)["z"][:, 0].tolist() == pytest.approx([2.0, 0.5])


def test_the_table_has_what_it_promises():
    sizes = {name: model.sizes for name, model in MODELS.items()}
    assert len(MODELS) >= 15
    assert sizes["Poisson, varying intercepts and slopes"] == {"rows": 300_000, "groups": 300}
    assert sizes["Poisson, intercepts and slopes of 10,000 groups"] == {"rows": 1_000_000, "groups": 10_000}
    assert (build("item response", 1).rows, build("item response", 1).numbers) == (20_000, 580)
    assert len(names(small=True)) == len(MODELS)
    assert [build(f"ordinal{small}", 1).rows for small in ("", SMALL)] == [50_000, 4_000]
    assert [build(f"logistic, intercepts not centred{small}", 1).most_seconds for small in ("", SMALL)] == [60.0, None]
    groups = hierarchies.some_groups({"tau": np.zeros((4, 5)), "u": np.zeros((4, 5, 10_000)), "v": np.zeros((4, 5, 10_000))})
    assert groups["u"].shape == (4, 5, 500)


def moments(mean, ess=1e4):
    spread = {"sd": [1.0], "kurtosis": [3.0], "ess": [ess], "ess_of_squares": [ess], "names": ["a"]}
    return {"outcome": "draws", "kinds": [], "seconds": 2.0, "mean": [mean], **spread}


def line(mean, kinds=(), nuts=None, rows=30_000):
    case = replace(build("kidiq: linear with a product", 1), data={"x": np.zeros(rows)})
    fit = moments(mean) | {"kinds": list(kinds)}
    return report.Line("one number", case, fit, judge.judge(case, fit, moments(0.0)), nuts, moments(0.0))


def test_both_counts_are_printed_and_the_bars_are_kept():
    slower, endless = moments(0.0) | {"seconds": 20.0}, {"outcome": "endless", "seconds": 600.0}
    faster = moments(0.1) | {"seconds": 1.0}
    lines = [line(0.0, nuts=slower), line(1.0, nuts=endless), line(0.0, ["short"]), line(0.0, nuts=faster)]
    said = report.report(lines, 4)
    assert "Silently wrong: 1. False alarms: 1." in said
    assert "more than 600" in said
    assert [one.bar() for one in lines] == ["met", "met", "", "MISSED 1"]
    assert line(0.0, nuts=faster, rows=1_000).bar() == ""
    assert lines[3].errors_of_nuts() == "0.10, 0.00"
    assert len(report.bad(lines)) == 1
    assert report.figure(lines).axes[0].get_xscale() == "log"


def test_the_page_says_what_the_command_says():
    assert PAGE.read_text().startswith(report.page([], 0))
