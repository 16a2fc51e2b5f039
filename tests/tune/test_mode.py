"""The automatic centre: found, measured, honest about failure."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.run.request import Problem
from sgmcmc.tune import mode
from sgmcmc.tune.mode import Metric, QuasiNewton, endless_ascent, find_mode, next_part, without_kinks


def logistic_data(N, beta, scales=1.0):
    rng = np.random.default_rng(2)
    x = (rng.normal(size=(N, len(beta))) * scales).astype(np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ (np.asarray(beta) / scales)))).astype(np.float32)
    return {"x": x, "y": y}


def logistic(params, batch):
    z = batch["x"] @ params["beta"]
    return batch["y"] * z - jnp.logaddexp(0.0, z)


def laplace(params):
    return -jnp.abs(params["beta"]).sum()


def reference(data, log_prior, beta):
    """Newton's method with the full Hessian, in double precision."""
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(array, float) for name, array in data.items()}

        def objective(b):
            return logistic({"beta": b}, wide).sum() + log_prior({"beta": b})

        x = jnp.asarray(beta, float)
        for _ in range(30):
            x = x - jnp.linalg.solve(jax.hessian(objective)(x), jax.grad(objective)(x))
        return np.asarray(x), np.sqrt(np.diag(np.linalg.inv(-jax.hessian(objective)(x))))


def centre(data, d, log_prior=None, start=None, **options):
    sampler = sgmcmc.sgldcv_setup(
        logistic, data, {"beta": np.zeros(d) if start is None else start}, 1e-6, log_prior=log_prior, minibatch_size=50, **options
    )
    state = sampler.init(seed=1, progress=False)
    return state.estimator


@pytest.mark.parametrize("scales", [1.0, np.array([1e-3, 1.0, 1e3])])
@pytest.mark.parametrize("N", [2_000, 60_000])
def test_logistic_regression_whatever_the_units(N, scales):
    beta = np.array([1.0, -2.0, 0.5])
    data = logistic_data(N, beta, scales)
    found = centre(data, 3, lambda p: -0.5 * (p["beta"] ** 2).sum() * 1e-6)
    mode, sd = reference(data, lambda p: -0.5 * (p["beta"] ** 2).sum() * 1e-6, beta / scales)
    assert bool(found.converged)
    assert np.sqrt(np.mean(((found.position["beta"] - mode) / sd) ** 2)) < 0.35


@pytest.mark.parametrize("tau", [0.1, 1e-2, 1e-3, 1e-5])
def test_priors_of_any_scale(tau):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(10_000, 5)).astype(np.float32)
    data = {"x": x, "y": (x @ np.full(5, 0.05) + rng.normal(size=10_000)).astype(np.float32)}
    sampler = sgmcmc.sgldcv_setup(
        lambda p, b: -0.5 * ((b["y"] - b["x"] @ p) ** 2).sum(), data, np.full(5, 3 * tau), 1e-6, minibatch_size=50,
        log_prior=lambda p: -0.5 * ((p / tau) ** 2).sum(),
    )  # fmt: skip
    found = sampler.init(seed=1, progress=False).estimator
    H = x.T.astype(float) @ x + np.eye(5) / tau**2
    off = np.asarray(found.position, float) - np.linalg.solve(H, x.T.astype(float) @ data["y"])
    assert bool(found.converged)
    assert off @ H @ off / 5 < 0.1


def test_far_start():
    data = logistic_data(20_000, [1.0, -1.0])
    found = centre(data, 2, start=np.array([30.0, 40.0]))
    mode, sd = reference(data, lambda p: 0.0, [1.0, -1.0])
    assert bool(found.converged)
    assert np.max(np.abs(found.position["beta"] - mode) / sd) < 0.5


def test_laplace_prior_with_the_mode_at_the_kink():
    """Forty coefficients of 0 under the paper's prior, little data: most modes are exactly 0, where gradients jump by 2."""
    data = logistic_data(200, np.zeros(40))
    found = centre(data, 40, laplace)
    assert bool(found.converged)

    def loss(b):
        return -float(logistic({"beta": b}, data).sum() + laplace({"beta": b}))

    beta = np.zeros(40)
    for _ in range(3000):  # proximal gradient: the textbook answer, slowly
        gradient = data["x"].T @ (data["y"] - 1 / (1 + np.exp(-data["x"] @ beta)))
        moved = beta + 0.005 * gradient
        beta = np.sign(moved) * np.maximum(np.abs(moved) - 0.005, 0)
    assert (beta == 0).sum() >= 3
    assert loss(found.position["beta"]) - loss(beta) < 0.05 * 40 / 2


def test_more_parameters_than_rows():
    x = np.random.default_rng(2).normal(size=(30, 200)).astype(np.float32)
    sampler = sgmcmc.sgldcv_setup(
        lambda p, b: -0.5 * ((b["x"] - p["mu"]) ** 2).sum(), {"x": x}, {"mu": np.zeros(200)}, 1e-3, minibatch_size=5
    )
    found = sampler.init(seed=1, progress=False).estimator
    assert bool(found.converged)
    assert np.sqrt(30 * np.mean((found.position["mu"] - x.mean(axis=0)) ** 2)) < 0.35


def test_a_network_ends_in_bounded_work_and_says_how_well():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    data = {"x": x, "y": np.sin(x[:, 0]).astype(np.float32)}

    def network(params, batch):
        hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
        return -5.0 * (batch["y"] - hidden @ params["v"]) ** 2

    params = {"w": rng.normal(size=(5, 300)), "b": np.zeros(300), "v": rng.normal(size=300) / 20}
    sampler = sgmcmc.sgldcv_setup(
        network, data, params, 1e-6, minibatch_size=20, log_prior=lambda p: -0.5 * sum((leaf**2).sum() for leaf in p.values())
    )
    before = float(sampler._full_log_posterior(sampler.like))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        state = sampler.init(seed=1, progress=False)
    assert ["search for the centre" in str(warning.message) for warning in told] == [True] * (not state.estimator.converged)
    assert float(sampler.log_posterior(state, full=True)) > before


def test_indicator_columns_that_sum_to_one():
    """Two groups of indicators and an intercept: the likelihood leaves two directions open, and the prior has no Hessian."""
    rng = np.random.default_rng(2)
    soil, area = rng.choice(12, 30_000, p=np.arange(1, 13) / 78), rng.integers(0, 4, 30_000)
    x = np.concatenate([np.ones((30_000, 1)), np.eye(12)[soil], np.eye(4)[area]], axis=1).astype(np.float32)
    data = {"x": x, "y": (rng.random(30_000) < 1 / (1 + np.exp(-0.3 * soil + 1.5))).astype(np.float32)}
    for start in (np.zeros(17), np.full(17, 0.1)):
        assert bool(centre(data, 17, laplace, start).converged)


def test_a_flat_likelihood_is_reported_not_hidden():
    """Separable data with a flat prior have no mode."""
    x = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    data = {"x": x, "y": (x[:, 0] > 0).astype(np.float32)}
    with pytest.warns(sgmcmc.SgmcmcWarning, match="search for the centre"):
        found = centre(data, 1)
    assert not bool(found.converged)


def test_the_papers_search():
    data = logistic_data(5_000, [1.0, -1.0])
    sampler = sgmcmc.sgldcv_setup(logistic, data, {"beta": np.zeros(2)}, 1e-5, 1e-4, n_iters_opt=2000, minibatch_size=100)
    found = sampler.init(seed=1, progress=False).estimator
    mode, sd = reference(data, lambda p: 0.0, [1.0, -1.0])
    assert np.max(np.abs(found.position["beta"] - mode) / sd) < 3


def test_the_full_gradient_is_that_of_all_rows():
    data = logistic_data(33_000, [1.0, -1.0, 0.3])
    found = centre(data, 3)
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(array, float) for name, array in data.items()}
        exact = jax.grad(lambda b: logistic({"beta": b}, wide).sum())(jnp.asarray(np.asarray(found.position["beta"]), float))
    np.testing.assert_allclose(found.gradient["beta"], exact, atol=1e-2)


def test_metric_and_quasi_newton_on_a_quadratic():
    A = np.diag([1.0, 100.0, 1e4])
    metric = Metric.of(A, np.zeros((3, 3)))
    np.testing.assert_allclose(metric.solve(A @ np.ones(3)), np.ones(3))
    assert metric.distance(A @ np.full(3, 2.0)) == pytest.approx(4 * np.trace(A) / 3)
    memory, x = QuasiNewton(Metric(np.ones(3))), np.ones(3)
    for _ in range(25):
        gradient = -A @ x
        direction = memory.direction(gradient)
        length = (gradient @ direction) / (direction @ A @ direction) if np.any(direction) else 0.0
        new = x + length * direction
        memory.learn(new - x, gradient + A @ new)
        x = new
    np.testing.assert_allclose(x, 0, atol=1e-8)


def test_without_kinks():
    gradient, prior = np.array([0.5, 3.0, -0.2]), np.array([1.0, 1.0, -1.0])
    below, above = np.array([1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0])
    np.testing.assert_allclose(without_kinks(gradient, prior, below, above), [0.0, 3.0, 0.0])


# Starts at kinks, searches that do not end, posteriors that are none.


def bernoulli(params, batch):
    return sgmcmc.distributions.BernoulliLogits(params["a"] + params["b"] * batch["x"]).log_prob(batch["y"]).sum()


def rare_events(N):
    rng = np.random.default_rng(4)
    x = rng.normal(size=N).astype(np.float32)
    return {"x": x, "y": (rng.random(N) < 1 / (1 + np.exp(2.8 - 0.5 * x))).astype(np.int32)}


def wide(params):
    return -0.5 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params)) / 25


@pytest.mark.parametrize("N", [3_000, 60_000])
def test_a_start_of_zeros_where_every_row_has_a_kink(N):
    """At a logit of exactly 0 the derivatives of NumPyro's law are 0 and 1: they point away from the mode."""
    data, zeros = rare_events(N), {"a": jnp.zeros(()), "b": jnp.zeros(())}
    with jax.enable_x64(False):
        slope = jax.grad(bernoulli)(zeros, data)["a"]
    assert slope == data["y"].sum() > 0 > data["y"].sum() - N / 2, "the control: where this is mended, the test shows nothing"
    found, beside = (found_from(data, start) for start in (0.0, 0.01))
    assert found.converged
    assert found.position["a"] == pytest.approx(float(beside.position["a"]), abs=0.3 / np.sqrt(0.06 * N))


def found_from(data, a):
    problem = Problem.of(bernoulli, data, {"a": a, "b": 0.0}, wide)
    return find_mode(problem.posterior, problem.table, problem.position, 0, False)


def test_a_search_that_runs_out_of_work_keeps_what_it_climbed(monkeypatch):
    monkeypatch.setattr(mode, "MOST_PASSES", 3)
    data = logistic_data(2_000, [1.0, -2.0, 0.5])
    problem = Problem.of(logistic, data, {"beta": np.full(3, 5.0)})
    found = find_mode(problem.posterior, problem.table, problem.position, 0, False)
    assert not found.converged
    assert found.passes >= 4
    before, after = (float(logistic(p, data).sum()) for p in (problem.position, found.position))
    assert after > before + 100
    assert any(np.abs(found.heading["beta"]) > 0)


def ascent(log_lik, data, start, log_prior=None, **options):
    problem = Problem.of(log_lik, data, start, log_prior, **options)
    found = find_mode(problem.posterior, problem.table, problem.position, 0, False)
    return endless_ascent(problem.posterior, problem.table, problem.position, found)


SEPARATED = {"x": np.linspace(-1, 1, 200, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32)}
SEPARATED["x"][:, 1] = np.random.default_rng(1).normal(size=200)
SEPARATED["y"] = (SEPARATED["x"][:, 0] > 0).astype(np.float32)


def test_improper_is_said_with_evidence():
    found = ascent(logistic, SEPARATED, {"beta": np.zeros(2)})
    assert found.parameters[0] == "beta[0]"
    assert found.risen == pytest.approx(200 * np.log(2), rel=0.05), "from chance to a perfect fit"
    assert found.moved > 10
    half = ascent(logistic, SEPARATED, {"beta": np.zeros(2)}, lambda p: -0.5 * p["beta"][1] ** 2)
    assert half is not None
    assert half.parameters == ["beta[0]"], "a prior on the other coefficient does not help"


@pytest.mark.parametrize("sd", [1.0, 1e3])
def test_never_with_a_prior_that_would_stop_it(sd):
    assert ascent(logistic, SEPARATED, {"beta": np.zeros(2)}, lambda p: -0.5 * ((p["beta"] / sd) ** 2).sum()) is None


def test_a_hierarchy_whose_joint_density_rises_without_end_is_not_called_improper():
    rng = np.random.default_rng(3)
    data = {"g": np.repeat(np.arange(8), 5).astype(np.int32), "y": rng.normal(size=40).astype(np.float32)}

    def log_lik(params, batch):
        return -0.5 * (batch["y"] - params["u"][batch["g"]]) ** 2

    def log_prior(params):
        return (-0.5 * (params["u"] / params["tau"]) ** 2 - jnp.log(params["tau"])).sum() - params["tau"]

    start, support = {"u": np.zeros(8), "tau": 1.0}, {"tau": sgmcmc.constraints.positive}
    assert ascent(log_lik, data, start, log_prior, constraints=support) is None


def test_the_next_part_of_a_step():
    assert next_part(-1.0, 1.0) == 0.25, "the parabola t - 2t² is highest there"
    assert next_part(0.0, 1.0) == 0.5
    assert next_part(-1e12, 1.0) == 0.05
    assert next_part(np.nan, 1.0) == next_part(-np.inf, 1.0) == 0.1


def naive(params, batch):
    """1 - p is 0 in float32 from a logit of 17 on."""
    p = 1 / (1 + jnp.exp(-params["beta"] * batch["x"]))
    return batch["y"] * jnp.log(p) + (1 - batch["y"]) * jnp.log(1 - p)


def stable(params, batch):
    eta = params["beta"] * batch["x"]
    return batch["y"] * eta - jnp.logaddexp(0.0, eta)


def test_a_search_that_rounding_stops_names_the_row():
    """The mode is beyond a slope of 17/200, at which the row of the largest column has log(0) times 0."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000).astype(np.float32)
    x[700] = 200.0
    data = {"x": x, "y": (rng.random(2000) < 1 / (1 + np.exp(-np.clip(x, -30, 30)))).astype(np.float32)}
    data["y"][700] = 1.0
    problem = Problem.of(stable, data, {"beta": 0.0}, lambda params: -0.5 * params["beta"] ** 2)
    assert find_mode(problem.posterior, problem.table, problem.position, 1, False).converged
    problem = Problem.of(naive, data, {"beta": 0.0}, lambda params: -0.5 * params["beta"] ** 2)
    with pytest.raises(sgmcmc.InputError, match=r"search for the mode .*row 700.*log_sigmoid") as refused:
        find_mode(problem.posterior, problem.table, problem.position, 1, False)
    assert "float64" in str(refused.value)


def test_a_limit_that_stops_a_search_is_no_rounding():
    """Uniform from 0 to θ: the mode is at the largest number, beyond which the likelihood is 0 by definition."""

    def uniform(params, batch):
        return jnp.where(batch["x"] <= params["theta"], -jnp.log(params["theta"]), -jnp.inf)

    data = {"x": np.linspace(0.01, 1.0, 100, dtype=np.float32)}
    problem = Problem.of(uniform, data, {"theta": 2.0})
    found = find_mode(problem.posterior, problem.table, problem.position, 1, False)
    assert float(found.position["theta"]) > 0.99
