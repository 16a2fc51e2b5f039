"""`sample` on easy, hard and impossible posteriors: it ends, says what it did, and speaks where the draws are not to be trusted.

How accurate it is against long reference runs is for `test_references`.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sgmcmc
from sgmcmc import constraints
from sgmcmc.samplers.sample import RETRIES, _Sampling
from sgmcmc.tune.adaptation import ROUNDS, Adaptation, ChainsLeftError, Complaint
from sgmcmc.tune.design import STEP, TOO_STEEP

LIMIT = 4.0


def quiet(*problem, seed=1, **options):
    return sgmcmc.sample(*problem, seed=seed, progress=False, **options)


# Few rows, a constraint, outliers: a robust regression with Student's t of 3 degrees of freedom.

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 2))
FEW = {"x": X, "y": X @ [1.0, -1.0] + RNG.standard_t(3, 50)}


def robust(params, batch):
    residual = (batch["y"] - batch["x"] @ params["beta"]) / params["sigma"]
    return -2 * jnp.log1p(residual**2 / 3) - jnp.log(params["sigma"])


def few(draws=100, **options):
    start = {"beta": np.zeros(2), "sigma": 1.0}
    return quiet(robust, FEW, start, constraints={"sigma": constraints.positive}, draws=draws, chains=2, **options)


@cache
def robust_fit():
    return few(target_ess=400)


def test_few_rows_are_all_used_and_it_says_so():
    fit = robust_fit()
    assert fit.decisions["minibatch_size"] == fit.settings["minibatch_size"] == 50
    assert "uses all 50 rows" in str(fit.decisions)
    assert fit.settings["rows"] == "all"
    assert fit.decisions["engine"] == fit.settings["engine"] == "nuts"
    assert all(line.startswith("- ") and line.endswith(".") for line in str(fit.decisions).splitlines())


def test_constraints_hold_and_the_robust_fit_is_that_of_a_grid():
    fit = robust_fit()
    assert np.all(fit["sigma"] > 0)
    assert fit.health().ok, str(fit.health())
    summary = fit.summary()
    axes = [np.linspace(row["mean"] - 5 * row["sd"], row["mean"] + 6 * row["sd"], 40) for _, row in summary.iterrows()]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")])
    residuals = (FEW["y"][:, None] - X @ grid[:2]) / grid[2]
    log_density = np.where(grid[2] > 0, (-2 * np.log1p(residuals**2 / 3) - np.log(np.abs(grid[2]))).sum(axis=0), -np.inf)
    weight = np.exp(log_density - log_density.max())
    mean = grid @ weight / weight.sum()
    sd = np.sqrt((grid - mean[:, None]) ** 2 @ weight / weight.sum())
    assert np.max(np.abs(summary["mean"] - mean) / summary["mcse"]) < LIMIT
    assert np.max(np.abs(summary["sd"] / sd - 1)) < LIMIT * np.sqrt(0.5 / 400)


def test_the_effective_sample_size_that_was_asked_for_is_reached():
    fit = robust_fit()
    assert fit.summary()["ess"].min() >= 400
    assert fit.decisions["target_ess"] >= 400
    chains, draws = fit["sigma"].shape
    assert chains == 2
    assert draws > 100
    assert fit["beta"].shape == (2, draws, 2)
    assert fit.pairs.positions.shape == (2, draws, 3)
    assert fit.settings["n_iters"] == draws * fit.settings["thin"]


def test_same_seed_same_draws_and_another_seed_others():
    again, other = few(target_ess=400), few(target_ess=400, seed=2)
    np.testing.assert_array_equal(again["beta"], robust_fit()["beta"])
    assert again.settings["seed"] == 1
    assert not np.allclose(again["beta"][:, :50], other["beta"][:, :50], atol=1e-3)


def test_the_draws_that_were_asked_for_and_a_warning_where_they_are_few():
    with pytest.warns(sgmcmc.SgmcmcWarning, match="ask for target_ess=400|Ask for target_ess=400"):
        fit = few(draws=30)
    assert fit["beta"].shape == (2, 30, 2)
    np.testing.assert_array_equal(fit["beta"], robust_fit()["beta"][:, :30])
    assert "short" in fit.health().kinds
    assert re.search("independent ones; 400 would take .* Ask for target_ess=400", str(fit.health()))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"draws": 19}, "draws"),
        ({"chains": 0}, "chains"),
        ({"target_ess": 0}, "target_ess"),
        ({"progress": 3}, "progress"),
        ({"engine": "hmc"}, "engine is 'hmc'; expected one of 'auto', 'nuts', 'sgmcmc'"),
    ],
)
def test_refusals(options, says):
    with pytest.raises(sgmcmc.InputError, match=says):
        sgmcmc.sample(robust, FEW, {"beta": np.zeros(2), "sigma": 1.0}, **options)


# Posteriors that are none.


def logistic(params, batch):
    eta = batch["x"] @ params["beta"]
    return batch["y"] * eta - jnp.logaddexp(0.0, eta)


CLASSES = (RNG.random(50) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)


def test_impossible_posteriors_are_refused():
    with pytest.raises(sgmcmc.SgmcmcError, match="keeps rising without end"):
        quiet(logistic, {"x": X, "y": (X[:, 0] > 0).astype(float)}, {"beta": np.zeros(2)})
    with pytest.raises(sgmcmc.SgmcmcError, match=r"some combination of beta\[\d\], beta\[\d\]"):
        quiet(logistic, {"x": X[:, [0, 1, 0]], "y": CLASSES}, {"beta": np.zeros(3)})
    with pytest.raises(sgmcmc.SgmcmcError, match="determine spare:"):
        quiet(logistic, {"x": X, "y": CLASSES}, {"beta": np.zeros(2), "spare": 0.3})


# Posteriors that are no Gaussians. The prior alone makes them, so they are known exactly.


def nothing(params, batch):
    return 0.0 * batch["x"][:, 0] * params["theta"][0]


def from_prior(log_prior, start, **options):
    return quiet(nothing, FEW, {"theta": np.asarray(start)}, log_prior=log_prior, **options)


def test_heavy_tails():
    """Student's t of 3 degrees of freedom: right, or not silent."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = from_prior(lambda p: -2 * jnp.log1p(p["theta"] ** 2 / 3).sum(), [0.3, -0.3])
    assert bool(said) != fit.health().ok
    assert str(fit.health())
    points = scipy.stats.t(3).ppf([0.1, 0.25, 0.75, 0.9])
    below = (fit["theta"][..., None] < points).mean(axis=(0, 1))
    share = np.array([0.1, 0.25, 0.75, 0.9])
    error = np.sqrt(share * (1 - share) / fit.summary()["ess"].min())
    assert np.max(np.abs(below - share) / error) < LIMIT or not fit.health().ok


def located(params, batch):
    return -0.5 * (batch["x"] - params["mu"]) ** 2


def above_zero(params):
    return jnp.where(params["mu"] > 0, 0.0, -jnp.inf)


def test_draws_beyond_a_limit_without_a_gradient_are_counted():
    """The mean of 20,000 numbers, 1.5 standard deviations above a limit: chains do not feel it."""
    x = np.random.default_rng(0).normal(size=20_000)
    data = {"x": (x - x.mean() + 1.5 / np.sqrt(len(x))).astype(np.float32)}
    told = {"log_prior": above_zero, "engine": "sgmcmc"}
    with pytest.warns(sgmcmc.SgmcmcWarning, match="not finite"):
        fit = quiet(located, data, {"mu": 0.1}, **told)
    outside = int((fit["mu"] <= 0).sum())
    share, error = scipy.stats.norm.cdf(-1.5), 0.5 / np.sqrt(fit.summary()["ess"].min())
    assert abs(outside / fit["mu"].size - share) < LIMIT * error
    assert "limits" in fit.health().kinds
    assert f"{outside:,} of {fit['mu'].size:,} draws" in str(fit.health())
    assert "constraints" in str(fit.health())
    assert "limits" not in robust_fit().health().kinds


def walls(params):
    """Of the fourth power, ten times as near as the curvature at the mode makes believe."""
    return -(10 * params["theta"] ** 4 + 0.5 * params["theta"] ** 2).sum()


def between_walls(quietly=True, **options):
    with warnings.catch_warnings():
        if quietly:
            warnings.simplefilter("ignore", sgmcmc.SgmcmcWarning)
        fit = from_prior(walls, np.full(4, 0.5), engine="sgmcmc", **options)
    assert fit.decisions["stepsize"] == pytest.approx(fit.settings["stepsize"])
    return fit


def test_the_step_fits_where_the_chains_go():
    fit = between_walls()
    assert fit.decisions["steepest"] > 10
    assert fit.settings["stepsize"] * fit.decisions["steepest"] <= TOO_STEEP
    assert "halvings" not in fit.decisions
    grid = np.linspace(-2, 2, 4001)
    density = np.exp(-10 * grid**4 - 0.5 * grid**2)
    second, fourth = ((grid**power * density).sum() / density.sum() for power in (2, 4))
    square = fit["theta"].astype(float) ** 2
    error = np.sqrt((fourth - second**2) / fit.summary()["ess"].min())
    assert np.max(np.abs(square.mean(axis=(0, 1)) - second) / error) < LIMIT


def test_chains_that_leave_start_again_with_a_smaller_step_and_it_says_so(monkeypatch):
    """With the step that the mode alone would allow."""
    monkeypatch.setattr("sgmcmc.tune.design.step_for", lambda *_: STEP)
    fit = between_walls(draws=300)
    assert fit.decisions["halvings"] >= 1
    assert "started again" in str(fit.decisions)
    assert fit.settings["stepsize"] < STEP
    assert np.isfinite(fit["theta"]).all()


def test_a_run_that_chains_leave_is_tried_again_a_few_times(monkeypatch):
    tried = []

    def left(_self, trial, *_):
        tried.append(trial.round)
        raise sgmcmc.DivergenceError("gone", parameter="theta", step=1, chain=0, result=None)

    monkeypatch.setattr("sgmcmc.samplers.sample._Sampling._drawn", left)
    monkeypatch.setattr(Adaptation, "slower", lambda _, trial: replace(trial, round=trial.round + 1))
    with pytest.raises(sgmcmc.DivergenceError, match="gone"):
        between_walls(draws=300)
    assert tried == list(range(tried[0], ROUNDS + RETRIES + 1))


def longer_run_that_chains_leave(monkeypatch, leaving):
    """A run asked for more effective draws than it makes, whose longer runs fail as often as `leaving`; and their rounds."""
    made, failed = _Sampling._drawn, []

    def drawn(self, trial, place, draws):
        if draws > self.draws and len(failed) < leaving:
            failed.append(trial.round)
            raise sgmcmc.DivergenceError("gone", parameter="theta", step=draws, chain=0, result=None)
        return made(self, trial, place, draws)

    monkeypatch.setattr(_Sampling, "_drawn", drawn)
    monkeypatch.setattr(Adaptation, "slower", lambda _, trial: replace(trial, round=trial.round + 1))
    return failed


def test_a_longer_run_that_a_chain_leaves_is_made_again_with_half_the_step(monkeypatch):
    failed = longer_run_that_chains_leave(monkeypatch, leaving=2)
    fit = between_walls(draws=200, target_ess=1500)
    assert failed == [0, 1]
    assert fit.summary()["ess"].min() >= 1500
    assert "unsettled" not in fit.decisions


def test_draws_are_kept_where_every_longer_run_is_left(monkeypatch):
    failed = longer_run_that_chains_leave(monkeypatch, leaving=100)
    fit = between_walls(draws=200, target_ess=1500)
    assert failed == list(range(ROUNDS + RETRIES + 1))
    assert fit["theta"].shape[1] == 200
    assert "a chain left at iteration" in str(fit.health())


def test_a_round_in_which_chains_leave_leaves_what_there_was_before(monkeypatch):
    def leave(*_):
        raise ChainsLeftError("gone")

    monkeypatch.setattr("sgmcmc.tune.adaptation.complaint_about", lambda _: Complaint("shape", "a direction was off"))
    monkeypatch.setattr(Adaptation, "again", leave)
    with pytest.warns(sgmcmc.SgmcmcWarning, match="did not settle: a direction was off"):
        fit = between_walls(draws=300, quietly=False)
    assert np.isfinite(fit["theta"]).all()
    assert "and still a direction was off" in str(fit.decisions)


def network(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["inner"] + params["bias"])
    return -0.5 * ((batch["y"] - hidden @ params["outer"]) / 0.1) ** 2


def weak_prior(params):
    return sum(-0.5 * (weights**2).sum() for weights in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("inputs", "hidden", "rows"), [(10, 25, 200), pytest.param(48, 100, 5000, marks=pytest.mark.slow)], ids=["300", "5000"]
)
def test_networks_fall_back_and_say_so(inputs, hidden, rows):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, inputs)).astype(np.float32)
    y = (np.sin(x[:, 0]) + 0.1 * rng.normal(size=rows)).astype(np.float32)
    shapes = {"inner": (inputs, hidden), "bias": (hidden,), "outer": (hidden,)}
    start = {name: 0.3 * rng.normal(size=shape) for name, shape in shapes.items()}
    with pytest.warns(sgmcmc.SgmcmcWarning, match=r"See health\(\)"):
        fit = quiet(network, {"x": x, "y": y}, start, log_prior=weak_prior, draws=30, chains=2, engine="sgmcmc")
    assert "plain minibatch gradients" in str(fit.decisions)
    assert "fallback" in fit.decisions
    assert not fit.health().ok
    assert f"R-hat is {fit.decisions['predictions']:.3g} in the middle" in str(fit.health())
    assert np.isfinite(fit["inner"]).all()


# A column that hardly any row has: the posterior of its coefficient is wide and skewed, all others' narrow.


def rare(n_rows):
    rng = np.random.default_rng(2)
    x = np.stack([np.ones(n_rows), rng.normal(size=n_rows), np.zeros(n_rows)], axis=1).astype(np.float32)
    y = (rng.random(n_rows) < 1 / (1 + np.exp(0.5 - 0.5 * x[:, 1]))).astype(np.float32)
    chosen = [10, n_rows // 2, n_rows - 1]
    x[chosen, 2], y[chosen] = 1.0, 1.0
    return x, y, chosen


PRIOR_SD = 2.5


@cache
def rare_fit(n_rows, units):
    x, y, _ = rare(n_rows)
    u = np.asarray(units)
    return quiet(
        logistic, {"x": (x * u).astype(np.float32), "y": y}, {"beta": np.zeros(3)},
        log_prior=lambda p: -0.5 * ((p["beta"] * u / PRIOR_SD) ** 2).sum(), draws=2000,
    )  # fmt: skip


def quadrature(n_rows, intercept, slope):
    """Mean and standard deviation of the third coefficient, the others being known as well as exactly."""
    x, _, chosen = rare(n_rows)
    grid = np.linspace(-10, 20, 30_001)
    eta = intercept + slope * x[chosen, 1].astype(float)[:, None] + grid
    log_density = -np.logaddexp(0, -eta).sum(axis=0) - 0.5 * (grid / PRIOR_SD) ** 2
    density = np.exp(log_density - log_density.max())
    mean = (grid * density).sum() / density.sum()
    return mean, np.sqrt(((grid - mean) ** 2 * density).sum() / density.sum())


@pytest.mark.parametrize("n_rows", [50_000, pytest.param(500_000, marks=pytest.mark.slow)])
def test_a_column_of_three_rows(n_rows):
    fit = rare_fit(n_rows, (1.0, 1.0, 1.0))
    row = fit.summary().loc["beta[2]"]
    draws = fit["beta"].reshape(-1, 3).astype(float)
    mean, sd = quadrature(n_rows, *draws[:, :2].mean(axis=0))
    assert fit.health().ok, str(fit.health())
    assert fit.decisions["minibatch_size"] < n_rows / 100
    assert abs(row["mean"] - mean) < LIMIT * row["mcse"] + 0.02 * sd
    assert row["sd"] == pytest.approx(sd, rel=0.08)
    assert scipy.stats.skew(draws[:, 2]) > 0.2  # which an approximation by a normal law has not


def test_control_the_laplace_approximation_is_not_the_posterior():
    """Its mean is the mode."""
    fit = rare_fit(50_000, (1.0, 1.0, 1.0))
    row, others = fit.summary().loc["beta[2]"], fit["beta"].mean(axis=(0, 1))[:2]
    x, _, chosen = rare(50_000)
    grid = np.linspace(0, 6, 6001)
    eta = (x[chosen, :2] @ others)[:, None] + grid
    mode = grid[np.argmax(-np.logaddexp(0, -eta).sum(axis=0) - 0.5 * (grid / PRIOR_SD) ** 2)]
    assert abs(row["mean"] - mode) > LIMIT * row["mcse"] + 0.02 * row["sd"]


def test_units_change_nothing():
    units = (1e3, 1e-3, 1e3)
    ours, theirs = (rare_fit(50_000, u).summary() for u in ((1.0, 1.0, 1.0), units))
    for column in ("mean", "sd"):
        apart = theirs[column] * np.asarray(units) - ours[column]
        error = np.sqrt((theirs["mcse"] * np.asarray(units)) ** 2 + ours["mcse"] ** 2)
        assert np.max(np.abs(apart) / error) < LIMIT
    assert ours["ess"].min() == pytest.approx(theirs["ess"].min(), rel=0.2)
