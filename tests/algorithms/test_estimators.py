"""Gradient estimators against enumeration of every minibatch."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints
from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.core.trees import Batch
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.posterior import Posterior, make_transform

pytestmark = pytest.mark.usefixtures("x64")

N, SIZE = 6, 2
RNG = np.random.default_rng(3)
ROWS = {"x": RNG.normal(size=(N, 2)), "y": RNG.integers(0, 2, N).astype(float), "group": np.array([0, 1, 2, 0, 1, 2])}
PARAMS = {"beta": np.array([0.3, -0.7]), "scale": np.array(1.3), "u": np.array([0.1, -0.2, 0.4])}


def log_lik(params, rows):
    z = rows["x"] @ params["beta"] / params["scale"] + params["u"][rows["group"]]
    return (rows["y"] * z - jnp.logaddexp(0.0, z)).sum()


def log_prior(params):
    return -jnp.abs(params["beta"]).sum() - params["scale"] - 0.5 * (params["u"] ** 2).sum()


TRANSFORM = make_transform({"scale": constraints.positive}, PARAMS)
POSITION = {**PARAMS, "scale": np.log(PARAMS["scale"])}
ELSEWHERE = jax.tree.map(lambda x: x + 0.25, POSITION)


def test_the_position_is_the_unconstrained_parameter():
    assert_equal(TRANSFORM.to_params(POSITION), PARAMS, 1e-12)


def posterior(per_row=False):
    def rowwise(params, rows):
        z = rows["x"] @ params["beta"] / params["scale"] + params["u"][rows["group"]]
        return rows["y"] * z - jnp.logaddexp(0.0, z)

    return Posterior(rowwise if per_row else log_lik, log_prior, N, TRANSFORM, per_row)


def batches(weighted=False):
    for index in itertools.combinations(range(N), SIZE):
        rows = {name: jnp.asarray(array[list(index)]) for name, array in ROWS.items()}
        yield Batch(rows, jnp.full((SIZE,) if weighted else (), N / SIZE), jnp.array(index))


def exact_gradient(position):
    everything = Batch({name: jnp.asarray(array) for name, array in ROWS.items()}, jnp.array(1.0), jnp.arange(N))
    return jax.grad(posterior().log_posterior)(position, everything)


def centre(position):
    return ControlVariate().init(posterior(), position, FullPasses(ROWS))


def average(trees):
    trees = list(trees)
    return jax.tree.map(lambda *leaves: sum(leaves) / len(trees), *trees)


def assert_equal(left, right, tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance, rtol=0), left, right)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize(("weighted", "with_variance"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("kind", [Minibatch, ControlVariate])
def test_unbiased(kind, per_row, weighted, with_variance):
    estimator, model = kind(with_variance), posterior(per_row)
    state = centre(ELSEWHERE) if kind is ControlVariate else ()
    estimates = [estimator.estimate(model, POSITION, batch, state)[0] for batch in batches(weighted)]
    assert_equal(average(estimates), exact_gradient(POSITION), 1e-12)


def test_control_variates_are_silent_at_their_centre():
    state = centre(POSITION)
    for batch in batches():
        gradient = ControlVariate().estimate(posterior(), POSITION, batch, state)[0]
        assert_equal(gradient, exact_gradient(POSITION), 1e-12)


@pytest.mark.parametrize("kind", [Minibatch, ControlVariate])
def test_variance_estimate_is_unbiased(kind):
    """The average over minibatches of the estimated variance is the variance over minibatches of the estimate."""
    estimator = kind(with_variance=True)
    state = centre(ELSEWHERE) if kind is ControlVariate else ()
    results = [estimator.estimate(posterior(), POSITION, batch, state) for batch in batches()]
    seen = average(stats["variance"] for _, _, stats in results)
    truth = jax.tree.map(lambda *g: np.var(np.stack(g), axis=0), *[gradient for gradient, _, _ in results])
    assert_equal(seen, truth, 1e-12)


def test_linear_regression_leaves_multiplicative_noise_under_control_variates():
    """W = N(N-n)/n Var(x²)/σ⁴: control variates are not noiseless on every Gaussian posterior."""
    x, y, sigma2, offset = RNG.normal(size=N), RNG.normal(size=N), 0.7, 0.9
    model = Posterior(
        lambda t, rows: -0.5 / sigma2 * ((rows["y"] - rows["x"] * t) ** 2).sum(),
        None,
        N,
        make_transform(None, jnp.zeros(())),
        False,
    )
    anchor = ControlVariate().init(model, jnp.array(0.2), FullPasses({"x": x, "y": y}))
    estimates = []
    for index in itertools.combinations(range(N), SIZE):
        rows = {"x": jnp.asarray(x[list(index)]), "y": jnp.asarray(y[list(index)])}
        batch = Batch(rows, jnp.array(N / SIZE), jnp.array(index))
        estimates.append(ControlVariate().estimate(model, jnp.array(0.2 + offset), batch, anchor)[0])
    W = N * (N - SIZE) / SIZE * np.var(x**2, ddof=1) / sigma2**2
    assert np.var(estimates) == pytest.approx(W * offset**2, rel=1e-12)


def test_a_wrong_centre_gradient_is_caught():
    state = centre(ELSEWHERE)
    wrong = Centre(state.position, jax.tree.map(lambda g: g * 1.001, state.gradient), 0.0, True)
    estimates = [ControlVariate().estimate(posterior(), POSITION, batch, wrong)[0] for batch in batches()]
    with pytest.raises(AssertionError):
        assert_equal(average(estimates), exact_gradient(POSITION), 1e-12)


@pytest.mark.parametrize("name", ["sgldcv", "sghmccv", "sgnhtcv"])
def test_on_a_location_model_control_variates_follow_the_full_gradient_path_by_path(name):
    """All rows have the same Hessian, so the differences have no noise: minibatches of 2 or of all give the same chain."""
    x = np.random.default_rng(4).normal(size=(40, 3))
    paths = [
        getattr(sgmcmc, name)(
            lambda theta, rows: -0.5 * ((rows["x"] - theta) ** 2).sum(), {"x": x}, np.zeros(3), 1e-3, minibatch_size=n,
            n_iters=200, seed=1, progress=False,
        )["params"]
        for n in (2, 40)
    ]  # fmt: skip
    assert paths[0].dtype == np.float64
    np.testing.assert_allclose(*paths, atol=1e-10, rtol=0)
    assert paths[0].std() > 0.01
