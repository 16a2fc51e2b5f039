"""Which engine `sample` takes, that it says so, and that exact chains are kept, resumed and made longer as all others are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints, distributions
from sgmcmc.checkpoints.places import Nowhere
from sgmcmc.rows.table import Table
from sgmcmc.run.request import Problem
from sgmcmc.samplers import sample as sampling
from sgmcmc.tune import exact
from sgmcmc.tune.exact import Prediction, exact_chains
from sgmcmc.tune.survey import take_survey

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 2)).astype(np.float32)
DATA = {"x": X, "y": (X @ [1.0, -1.0] + RNG.standard_t(3, 60)).astype(np.float32)}
START = {"beta": np.zeros(2), "sigma": 1.0}


def log_lik(params, batch):
    residual = (batch["y"] - batch["x"] @ params["beta"]) / params["sigma"]
    return -2 * jnp.log1p(residual**2 / 3) - jnp.log(params["sigma"])


def log_prior(params):
    return -0.5 * (params["beta"] ** 2).sum() - params["sigma"]


MODEL = {"log_prior": log_prior, "constraints": {"sigma": constraints.positive}}
USUAL = MODEL | {"chains": 2, "draws": 300, "seed": 1, "progress": False}


def sampled(data=None, **options):
    return sgmcmc.sample(log_lik, DATA if data is None else data, START, **(USUAL | options))


def problem(n_rows, dimension=5):
    def logistic(params, batch):
        eta = batch["x"] @ params["beta"]
        return batch["y"] * eta - jnp.logaddexp(0.0, eta)

    rows = {"x": np.zeros((n_rows, dimension), np.float32), "y": np.zeros(n_rows, np.float32)}
    return Problem.of(logistic, rows, {"beta": np.zeros(dimension)})


@cache
def fitted():
    return sampled()


def test_few_rows_are_for_nuts_and_many_for_minibatches():
    few, many = (Prediction.of(problem(rows), 4, 2500, mode=True) for rows in (300, 300_000))
    assert few.affordable
    assert not many.affordable
    assert few.gradients == many.gradients
    assert many.seconds > 100 * few.seconds


def test_the_prediction_counts_operations_and_no_seconds():
    """Three transcendental functions for a logistic row; two products and two sums for a coefficient, there and back."""
    flops, transcendentals = exact.operations(problem(1000, 50))
    assert transcendentals == 3 * 1000
    assert flops == pytest.approx(4 * 50 * 1000, rel=0.1)


def test_without_a_mode_trajectories_are_long():
    with_mode, without = (Prediction.of(problem(3000), 4, 2500, mode) for mode in (True, False))
    assert without.gradients > 10 * with_mode.gradients
    assert f"{without.gradients:,} gradients" in str(without)


def test_it_says_which_engine_and_why():
    said = fitted().decisions
    assert fitted().settings["engine"] == said["engine"] == "nuts"
    assert "NUTS on all 60 rows" in str(said)
    assert "6,400 gradients per chain" in str(said)
    assert fitted().settings["burn_in"] == said["warm_up"] == 500
    assert fitted().health().ok


@pytest.mark.slow
def test_minibatches_for_who_asks():
    fit = sampled(engine="sgmcmc")
    assert fit.settings["engine"] == fit.decisions["engine"] == "sgmcmc"
    assert "The chains run on minibatches: as asked for." in str(fit.decisions)
    assert "momentum" in fit.final_state.auxiliary


def test_designs_that_would_use_all_rows_are_for_nuts(monkeypatch):
    monkeypatch.setattr(exact, "PRICE", 0.0)
    fit = sampled()
    assert fit.settings["engine"] == "nuts"
    assert "minibatches would need most of them" in str(fit.decisions)
    np.testing.assert_array_equal(fit["beta"], fitted()["beta"])


def test_interrupted_in_the_warm_up_and_resumed_it_is_the_same_run(tmp_path):
    def interrupt(figures):
        if figures["stage"] == "sample" and figures["done"] > 20:
            raise KeyboardInterrupt

    with pytest.warns(sgmcmc.SgmcmcWarning, match="interrupted"):
        stopped = sampled(checkpoint=tmp_path / "run", progress=interrupt)
    assert stopped["beta"].shape[1] == 0
    again = sampled(checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again["beta"], fitted()["beta"])
    np.testing.assert_array_equal(again.pairs.gradients, fitted().pairs.gradients)
    jax.tree.map(np.testing.assert_array_equal, again.final_state.auxiliary, fitted().final_state.auxiliary)
    loaded = sgmcmc.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded["beta"], again["beta"])
    assert loaded.settings["engine"] == "nuts"
    assert str(loaded.decisions) == str(again.decisions)
    assert loaded.health().ok
    with pytest.raises(sgmcmc.InputError, match="engine"):
        sampled(checkpoint=tmp_path / "run", engine="sgmcmc")


def test_it_goes_on_until_the_effective_sample_size_is_reached(tmp_path):
    fit = sampled(target_ess=900, checkpoint=tmp_path / "run")
    assert fit.summary()["ess"].min() >= 900
    np.testing.assert_array_equal(fit["beta"][:, :300], fitted()["beta"])
    again = sampled(target_ess=900, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(fit["sigma"], again["sigma"])


def test_pictures_and_tables():
    fit = fitted()
    assert np.all(fit["sigma"] > 0)
    assert list(fit.summary().index) == ["beta[0]", "beta[1]", "sigma"]
    assert fit.plot().axes
    assert list(fit.zero_variance_means().index) == ["beta[0]", "beta[1]", "sigma"]
    assert fit.to_arviz().posterior.sizes["draw"] == 300


def test_a_folder_of_rows_is_for_minibatches_unless_asked(tmp_path, monkeypatch):
    folder = tmp_path / "rows"
    sgmcmc.data.convert(DATA, folder, progress=False)
    held = Problem.of(log_lik, folder, START, **MODEL)
    chosen = sampling._Sampling(held, 300, 2, None, "auto", Nowhere(), False)
    assert chosen._why_exact() is None
    assert "not in memory" in str(chosen._why_minibatches())
    monkeypatch.setattr(Table, "large", True)
    with pytest.raises(sgmcmc.InputError, match="do not fit into memory; expected engine='sgmcmc'"):
        sampled(folder, engine="nuts")


def test_without_a_mode_chains_start_about_the_starting_values():
    def centred(params, batch):
        return distributions.Normal(params["mu"], 1.0).log_prob(batch["x"]) + 0.0 * params["tau"]

    def hierarchy(params):
        location = distributions.Normal(0.0, params["tau"]).log_prob(params["mu"])
        return location + distributions.HalfCauchy(1.0).log_prob(params["tau"])

    one = Problem.of(centred, {"x": np.ones(4)}, {"mu": 0.0, "tau": 1.0}, hierarchy, {"tau": constraints.positive})
    survey = take_survey(one, 1, False)
    lost = replace(survey, centre=replace(survey.centre, converged=jnp.asarray(False)))
    chosen = exact_chains(one, lost, "why")
    assert chosen.warm_up == 1000
    assert chosen.whitening.origin["mu"] == 0.0
    assert chosen.whitening.factor["mu"] == pytest.approx(1 / np.sqrt(4 + 1), rel=1e-3)
    assert "without one" in str(chosen.decisions)


def test_what_loops_repeat_is_counted_as_often():
    """The same recursion over 40 columns, by a loop and written out."""

    def recursion(params, batch, unrolled):
        def after(before, now):
            return jnp.tanh(params["a"] * before + now), None

        first = jnp.zeros(len(batch["x"]))
        if unrolled:
            for column in batch["x"].T:
                first, _ = after(first, column)
        else:
            first, _ = jax.lax.scan(after, first, batch["x"].T)
        return -0.5 * (batch["y"] - first) ** 2

    rows = {"x": np.zeros((200, 40), np.float32), "y": np.zeros(200, np.float32)}
    by_loop, written_out = (
        exact.operations(Problem.of(partial(recursion, unrolled=unrolled), rows, {"a": 0.5})) for unrolled in (False, True)
    )
    assert by_loop[1] == written_out[1] == 40 * 200
    assert 0.5 < by_loop[0] / written_out[0] < 2


def square(params):
    return params["beta"] ** 2


@pytest.mark.parametrize("engine", ["nuts", pytest.param("sgmcmc", marks=pytest.mark.slow)])
def test_what_is_asked_for_is_kept_beside_the_draws(engine, tmp_path):
    keep = {"moments": sgmcmc.Moments(), "square": sgmcmc.Expectation(square)}
    told = {"engine": engine, "keep": keep, "checkpoint": tmp_path / "run"}
    fit, again = sampled(**told), sampled(**told)
    assert set(fit.kept) == set(again.kept) == set(keep)
    np.testing.assert_allclose(fit.kept["moments"].mean["beta"], fit["beta"].mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(fit.kept["square"], (fit["beta"] ** 2).mean(axis=1), rtol=1e-4)
    np.testing.assert_array_equal(again["beta"], fit["beta"])
    np.testing.assert_array_equal(again.kept["square"], fit.kept["square"])
    loaded = sgmcmc.load(tmp_path / "run")
    assert set(loaded.kept) == set(keep)
    assert again.health() == fit.health()
    with pytest.raises(sgmcmc.SgmcmcError, match="another run"):
        sampled(**(told | {"keep": sgmcmc.Moments()}))


def test_one_object_is_kept_alone_and_what_cannot_be_is_refused_at_once():
    fit = sampled(keep=sgmcmc.Moments())
    np.testing.assert_allclose(fit.kept.sd["beta"], fit["beta"].std(axis=1), rtol=1e-3)
    assert fitted().kept == {}
    np.testing.assert_array_equal(fit["beta"], fitted()["beta"])
    with pytest.raises(sgmcmc.InputError, match="Moments"):
        sampled(keep={"a": 3})
    with pytest.raises(sgmcmc.InputError, match="gamma"):
        sampled(keep=sgmcmc.Expectation(lambda params: params["gamma"]))


# Fifty coefficients, a scale for each, one for all, and the noise.

EFFECTS = np.array([1.0, -0.8, 0.6, -0.4, 0.3])


@pytest.mark.slow
def test_a_horseshoe():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 50)).astype(np.float32)
    y = (x[:, :5] @ EFFECTS + rng.normal(size=5000)).astype(np.float32)

    def regression(params, batch):
        beta = params["unit"] * params["local"] * params["tau"]
        return distributions.Normal(batch["x"] @ beta, params["sigma"]).log_prob(batch["y"])

    def horseshoe(params):
        scales = distributions.HalfCauchy(1.0).log_prob(params["local"]).sum()
        scales += distributions.HalfCauchy(0.1).log_prob(params["tau"]) - params["sigma"]
        return scales + distributions.Normal(0.0, 1.0).log_prob(params["unit"]).sum()

    start = {"unit": np.zeros(50), "local": np.ones(50), "tau": 0.1, "sigma": 1.0}
    positive = dict.fromkeys(("local", "tau", "sigma"), constraints.positive)
    told = {"log_prior": horseshoe, "constraints": positive, "draws": 500, "seed": 1, "progress": False}
    fit = sgmcmc.sample(regression, {"x": x, "y": y}, start, **told)
    assert fit.settings["engine"] == "nuts"
    assert fit.summary()["r_hat"].max() < 1.02
    beta = (fit["unit"] * fit["local"] * fit["tau"][..., None]).astype(float)
    mean, sd = beta.mean(axis=(0, 1)), beta.std(axis=(0, 1))
    free, free_sd = np.linalg.lstsq(x, y, rcond=None)[0], np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
    assert np.max(np.abs(mean - free)[:5] / free_sd[:5]) < 0.5
    assert np.median(sd[5:] / free_sd[5:]) < 0.8  # and what is nothing is drawn to nothing
