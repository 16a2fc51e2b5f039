"""Whitening: the change of variables itself, every sampler behind it, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints
from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState, whitened_centre
from sgmcmc.core.trees import Batch, flat
from sgmcmc.problem.posterior import Posterior, make_transform
from sgmcmc.problem.whitening import Whitening, whitened
from sgmcmc.tune.curvatures import dense_whitening, whitening_of

RNG = np.random.default_rng(5)
N = 300
X = RNG.normal(size=(N, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
DATA = {"x": X.astype(np.float32), "y": (X @ [0.5, -1.0] + RNG.normal(0, 0.7, N)).astype(np.float32)}
PARAMS = {"beta": np.zeros(2), "nest": {"sigma": 1.0}}
POSITIVE = {"nest": {"sigma": constraints.positive}}
MODEST = {"log_prior": lambda p: -0.5 * (p["beta"] ** 2).sum() - p["nest"]["sigma"], "constraints": POSITIVE}


def log_lik(params, batch):
    sigma = params["nest"]["sigma"]
    return -0.5 * ((batch["y"] - batch["x"] @ params["beta"]) / sigma) ** 2 - jnp.log(sigma)


# The change of variables.

ORIGIN = {"a": np.array([1.0, -2.0]), "b": np.array(3.0)}
FACTOR = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [-1.0, 0.3, 1e-3]])


def whitenings():
    scales = {"a": jnp.array([0.1, 5.0]), "b": jnp.array(2.0)}
    return dense_whitening(FACTOR, ORIGIN), Whitening(ORIGIN, scales, dense=False)


@pytest.mark.usefixtures("x64")
def test_enter_undoes_leave():
    for whitening in whitenings():
        z = jax.tree.map(lambda x: jnp.asarray(RNG.normal(size=x.shape)), whitening.zero())
        there = whitening.leave(z)
        assert jax.tree.structure(there) == jax.tree.structure(ORIGIN)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), whitening.enter(there), z)
        jax.tree.map(np.testing.assert_array_equal, whitening.leave(whitening.zero()), ORIGIN)


@pytest.mark.usefixtures("x64")
def test_the_whitening_of_a_precision_makes_it_the_identity():
    precision = np.diag([1e6, 1.0, 1e-6]) @ (np.eye(3) + 0.4) @ np.diag([1e6, 1.0, 1e-6])
    L = np.asarray(whitening_of(precision, ORIGIN).factor)
    np.testing.assert_allclose(L.T @ precision @ L, np.eye(3), atol=1e-10)
    by_scales = whitening_of(np.diag(precision), ORIGIN)
    np.testing.assert_allclose(flat(by_scales.factor), 1 / np.sqrt(np.diag(precision)), rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("centred", [False, True])
def test_gradients_of_z_are_those_of_the_position_pulled_back(centred):
    start = jax.tree.map(jnp.asarray, PARAMS)
    posterior = Posterior(log_lik, MODEST["log_prior"], N, make_transform(POSITIVE, start), per_row=True)
    origin = posterior.transform.to_position(start)
    whitening = dense_whitening(FACTOR, origin)
    rows = {name: jnp.asarray(array[:20], float) for name, array in DATA.items()}
    batch = Batch(rows, jnp.asarray(N / 20), jnp.arange(20))
    centre = Centre(origin, jax.grad(posterior.sum_of_rows)(origin, rows), 0.0, True)
    inner, plain, moved = Minibatch(), (), ()
    if centred:
        inner, plain, moved = ControlVariate(), centre, whitened_centre(centre, whitening)
    z = jnp.array([0.3, -0.2, 0.1])
    there = inner.estimate(posterior, whitening.leave(z), batch, plain)[0]
    here, state, _ = Whitened(inner).estimate(posterior, z, batch, WhitenedState(whitening, moved))
    np.testing.assert_allclose(here, FACTOR.T @ flat(there), rtol=1e-12, atol=1e-12)
    assert state.whitening is whitening
    value = whitened(posterior, whitening).log_posterior(z, batch)
    np.testing.assert_allclose(value, posterior.log_posterior(whitening.leave(z), batch), rtol=1e-12)


# Every sampler behind it, under a constraint.

SETUPS = {
    "sgld": (sgmcmc.sgld_setup, {}),
    "sghmc": (sgmcmc.sghmc_setup, {"L": 3}),
    "sgnht": (sgmcmc.sgnht_setup, {}),
    "baoa": (sgmcmc.baoa_setup, {}),
    "sgldcv": (sgmcmc.sgldcv_setup, {}),
    "sghmccv": (sgmcmc.sghmccv_setup, {"L": 3}),
    "sgnhtcv": (sgmcmc.sgnhtcv_setup, {}),
    "baoacv": (sgmcmc.baoacv_setup, {}),
}
QUICK = ("sghmc", "sgnht", "baoacv")
ALL = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SETUPS]


def make(name, stepsize=0.01, **options):
    setup, own = SETUPS[name]
    return setup(log_lik, DATA, PARAMS, stepsize, minibatch_size=30, progress=False, **MODEST, **own, **options)


def log_posterior(beta, sigma):
    """Of the position, on all data, in double precision: the constraint's log σ included."""
    residuals = DATA["y"].astype(float) - DATA["x"].astype(float) @ beta
    return -0.5 * (residuals**2).sum() / sigma**2 - (N - 1) * np.log(sigma) - 0.5 * (beta**2).sum() - sigma


@pytest.mark.parametrize("name", ALL)
def test_every_sampler_runs_from_the_mode_in_the_users_parameters(name):
    sampler = make(name, precondition="laplace")
    state = sampler.init(seed=3, n_chains=2, progress=False)
    assert jax.tree.structure(state.params) == jax.tree.structure(PARAMS)
    assert state.position.shape == (2, 3)
    assert not np.asarray(state.position).any()
    mode = float(log_posterior(np.asarray(state.params["beta"][0], float), float(state.params["nest"]["sigma"][0])))
    assert mode > log_posterior(np.linalg.lstsq(DATA["x"], DATA["y"])[0], 0.7) - 0.5
    out = sampler.run(state, 20, progress=False)
    assert out["beta"].shape == (2, 20, 2)
    assert np.all(out["nest"]["sigma"] > 0)
    assert out.settings["precondition"] == "laplace"
    there = {"beta": np.array([[0.1, 0.2], [0.3, 0.4]]), "nest": {"sigma": np.array([0.5, 2.0])}}
    moved = sampler.replace(state, there)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), moved.params, there)
    full = [log_posterior(there["beta"][c], there["nest"]["sigma"][c]) for c in range(2)]
    np.testing.assert_allclose(sampler.log_posterior(moved, full=True), full, rtol=1e-5)


def test_log_posteriors_agree_with_those_of_the_unwhitened_sampler():
    both = make("sgld", precondition="laplace"), make("sgld")
    states = [sampler.init(seed=3) for sampler in both]
    there = {"beta": np.array([0.4, -0.8]), "nest": {"sigma": 0.8}}
    states = [sampler.replace(state, there) for sampler, state in zip(both, states, strict=True)]
    for full in (False, True):
        values = [sampler.log_posterior(state, full=full) for sampler, state in zip(both, states, strict=True)]
        assert values[0] == pytest.approx(values[1], rel=1e-5)
    pulled = states[0].estimator.whitening.pull_back(states[1].gradient)
    np.testing.assert_allclose(states[0].gradient, pulled, rtol=1e-3, atol=1e-3)


COVARIANCE = np.array([[4e-3, -3e-3, 0.0], [-3e-3, 6e-3, 1e-4], [0.0, 1e-4, 2e-3]])
OWN = {
    "diagonal": "diagonal",
    "a covariance": COVARIANCE,
    "an inverse": np.linalg.inv(np.linalg.inv(COVARIANCE)),  # symmetric up to rounding, its zero included
    "standard deviations": {"beta": np.array([0.06, 0.08]), "nest": {"sigma": 0.04}},
}


@pytest.mark.parametrize("precondition", OWN.values(), ids=OWN)
def test_other_preconditions(precondition):
    sampler = make("sgldcv", 0.05, precondition=precondition)
    state = sampler.init(seed=3, progress=False)
    assert state.params["nest"]["sigma"] == pytest.approx(0.7, abs=0.15)
    whitening = state.estimator.whitening
    if isinstance(precondition, np.ndarray):
        np.testing.assert_allclose(whitening.factor @ whitening.factor.T, COVARIANCE, rtol=1e-4, atol=1e-8)
    elif isinstance(precondition, dict):
        np.testing.assert_allclose(flat(whitening.factor), [0.06, 0.08, 0.04], rtol=1e-6)
    else:
        np.testing.assert_allclose(flat(whitening.factor)[2], 1 / np.sqrt(2 * N), rtol=0.3)
    assert np.isfinite(sampler.run(state, 10, progress=False)["beta"]).all()


def test_too_many_parameters_for_a_matrix_are_divided_by_their_scales():
    def location(params, batch):
        return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum(axis=1)

    data = {"x": np.random.default_rng(0).normal(size=(40, 3001)).astype(np.float32)}
    sampler = sgmcmc.sgld_setup(
        location, data, {"mu": np.zeros(3001)}, 0.01, minibatch_size=10, precondition="laplace", progress=False
    )
    assert sampler.run(sampler.init(seed=1), 5, progress=False)["mu"].shape == (5, 3001)


def test_a_step_may_change_with_time():
    sampler = make("sgld", lambda t: 0.01 / t, precondition="laplace")
    out = sampler.run(sampler.init(seed=1), 4, progress=False)
    np.testing.assert_allclose(out.weights, 0.01 / np.arange(1, 5), rtol=1e-5)


# Refusals, before anything is compiled.


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("sgld", {"precondition": "whiten"}, "expected 'laplace', 'diagonal'"),
        ("sgld", {"precondition": np.array([[1.0, 0.2, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 1.0]])}, "not symmetric"),
        ("sgld", {"precondition": np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])}, "not positive definite"),
        ("sgld", {"precondition": np.diag([1.0, 1.0, 0.0])}, "not positive definite"),
        ("sgld", {"precondition": np.eye(2)}, "for 3 numbers in params"),
        ("sgld", {"precondition": {"beta": 1.0}}, "a tree like params of standard deviations"),
        ("sgld", {"precondition": {"beta": -1.0, "nest": {"sigma": 1.0}}}, "expected a positive number"),
        ("sgld", {"precondition": "laplace", "stepsize": {"beta": 0.1, "nest": {"sigma": 0.1}}}, "share a step size"),
        ("sgld", {"precondition": np.eye(3), "stepsize": {"beta": 0.1, "nest": {"sigma": 0.1}}}, "share a step size"),
        ("sgldcv", {"precondition": "laplace", "opt_stepsize": 1e-4}, "leave opt_stepsize and start out"),
        ("sgldcv", {"rows": "importance", "opt_stepsize": 1e-4}, "leave opt_stepsize and start out"),
        ("sgld", {"rows": "importance"}, "no control variates"),
        ("sgld", {"stepsize": "automatic"}, "'auto'"),
    ],
)
def test_refusals(name, options, says):
    with pytest.raises(sgmcmc.InputError, match=says):
        make(name, **options)


def test_an_automatic_minibatch_needs_an_automatic_step():
    with pytest.raises(sgmcmc.InputError, match="together with stepsize='auto'"):
        sgmcmc.sgld_setup(log_lik, DATA, PARAMS, 0.1, minibatch_size="auto", **MODEST)


# Units.

UNITS = np.array([1e3, 1e-3])


def regression(params, batch):
    return -0.5 * (batch["y"] - batch["x"] @ params["beta"]) ** 2


@pytest.mark.parametrize(("precondition", "stepsize", "same"), [("laplace", 0.1, True), (None, 1e-4, False)])
def test_draws_do_not_depend_on_the_units_once_whitened(precondition, stepsize, same):
    draws = []
    for units in (np.ones(2), UNITS):
        data = {"x": (X * units).astype(np.float32), "y": DATA["y"]}
        out = sgmcmc.sgldcv(
            regression, data, {"beta": np.zeros(2)}, stepsize if same else stepsize / units.max() ** 2, minibatch_size=30,
            precondition=precondition, n_iters=100, seed=1, progress=False,
        )  # fmt: skip
        draws.append(out["beta"] * units)
    sd = 1 / np.sqrt(N)
    apart = np.max(np.abs(draws[0] - draws[1])) / sd
    assert apart < 1e-3 if same else apart > 1
