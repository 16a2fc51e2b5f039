"""Control variates of second order against enumeration of every minibatch."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints
from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.gradients.control_variate import ControlVariate
from sgmcmc.algorithms.gradients.second_order import BesidePrior, CurvedCentre, Matrix, SecondOrder
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState, whitened_centre
from sgmcmc.core.trees import Batch, flat, size, split
from sgmcmc.problem.arrow import Arrow, ArrowWhitening, Layout
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.posterior import Posterior, make_transform
from sgmcmc.problem.whitening import Whitening
from sgmcmc.rows.table import as_table
from sgmcmc.tune.curvatures import beside_prior, in_whitened, likelihood_curvature, whitening_of

pytestmark = pytest.mark.usefixtures("x64")

N, SIZE = 6, 2
RNG = np.random.default_rng(3)
ROWS = {"x": RNG.normal(size=(N, 2)), "y": RNG.integers(0, 2, N).astype(float), "group": np.array([0, 1, 2, 0, 1, 2])}
PARAMS = {"beta": np.array([0.3, -0.7]), "scale": np.array(1.3), "u": np.array([0.1, -0.2, 0.4])}
TRANSFORM = make_transform({"scale": constraints.positive}, PARAMS)
POSITION = {**PARAMS, "scale": np.log(PARAMS["scale"])}
ELSEWHERE = jax.tree.map(lambda x: x + 0.25, POSITION)


def rowwise(params, rows):
    z = rows["x"] @ params["beta"] / params["scale"] + params["u"][rows["group"]]
    return rows["y"] * z - jnp.logaddexp(0.0, z)


def log_lik(params, rows):
    return rowwise(params, rows).sum()


def log_prior(params):
    return -jnp.abs(params["beta"]).sum() - params["scale"] - 0.5 * (params["u"] ** 2).sum()


def posterior(per_row=False):
    return Posterior(rowwise if per_row else log_lik, log_prior, N, TRANSFORM, per_row)


def batches(rows=ROWS, weighted=False):
    for index in itertools.combinations(range(N), SIZE):
        some = {name: jnp.asarray(array[list(index)]) for name, array in rows.items()}
        yield Batch(some, jnp.full((SIZE,) if weighted else (), N / SIZE), jnp.array(index))


def exact_gradient(position):
    everything = Batch({name: jnp.asarray(array) for name, array in ROWS.items()}, jnp.array(1.0), jnp.arange(N))
    return jax.grad(posterior().log_posterior)(position, everything)


def centre(position, model=None):
    return SecondOrder().init(posterior() if model is None else model, position, FullPasses(ROWS))


def average(trees):
    trees = list(trees)
    return jax.tree.map(lambda *leaves: sum(leaves) / len(trees), *trees)


def assert_equal(left, right, tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance, rtol=0), left, right)


def estimates(state, estimator=None, position=POSITION, **how):
    estimator = SecondOrder() if estimator is None else estimator
    return [estimator.estimate(posterior(), position, batch, state)[0] for batch in batches(**how)]


@pytest.mark.parametrize("with_variance", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_unbiased(per_row, weighted, with_variance):
    model, state = posterior(per_row), centre(ELSEWHERE)
    estimator = SecondOrder(with_variance)
    found = [estimator.estimate(model, POSITION, batch, state)[0] for batch in batches(weighted=weighted)]
    assert_equal(average(found), exact_gradient(POSITION), 1e-12)
    assert np.var([flat(one) for one in found], axis=0).max() > 1e-6, "there is noise to average"


def test_silent_at_the_centre():
    for gradient in estimates(centre(POSITION)):
        assert_equal(gradient, exact_gradient(POSITION), 1e-12)


def test_the_hessian_of_the_centre_is_that_of_all_rows():
    rows = {name: jnp.asarray(array) for name, array in ROWS.items()}
    along = jax.grad(lambda x: posterior().sum_of_rows(x, rows))
    numeric = []
    for i in range(size(ELSEWHERE)):
        away = split(1e-6 * jnp.eye(size(ELSEWHERE))[i], jax.tree.map(jnp.asarray, ELSEWHERE))
        ahead, behind = (flat(along(jax.tree.map(move, ELSEWHERE, away))) for move in (jnp.add, jnp.subtract))
        numeric.append((ahead - behind) / 2e-6)
    np.testing.assert_allclose(centre(ELSEWHERE).hessian.values, np.stack(numeric), atol=1e-8)


@pytest.mark.parametrize("wrong", ["sign", "weight", "asymmetric"])
def test_a_wrong_hessian_is_caught(wrong):
    state = centre(ELSEWHERE)
    values = {"sign": lambda H: -H, "weight": lambda H: 1.001 * H, "asymmetric": jnp.triu}[wrong](state.hessian.values)
    with pytest.raises(AssertionError):
        assert_equal(average(estimates(replace(state, hessian=Matrix(values)))), exact_gradient(POSITION), 1e-12)


def test_its_variance_is_estimated_without_bias():
    """The average over minibatches of the estimated variance is the variance over minibatches of the estimate."""
    estimator = SecondOrder().measuring_noise()
    results = [estimator.estimate(posterior(), POSITION, batch, centre(ELSEWHERE)) for batch in batches()]
    seen = average(stats["variance"] for _, _, stats in results)
    truth = jax.tree.map(lambda *g: np.var(np.stack(g), axis=0), *[gradient for gradient, _, _ in results])
    assert_equal(seen, truth, 1e-12)


def test_no_noise_where_the_log_likelihood_is_quadratic():
    """Linear regression with known sigma: rows differ in their Hessians, so that of first order there is noise."""
    y = RNG.normal(size=N)

    def regression(params, rows):
        return -0.5 / 0.7 * ((rows["y"] - rows["x"] @ params) ** 2).sum()

    model = Posterior(regression, lambda p: -jnp.cosh(p).sum(), N, make_transform(None, jnp.zeros(2)), False)
    rows, there, here = {"x": ROWS["x"], "y": y}, jnp.array([0.2, -0.1]), jnp.array([1.4, 0.9])
    truth = ROWS["x"].T @ (y - ROWS["x"] @ np.asarray(here)) / 0.7 - np.sinh(here)
    noise = {}
    for estimator in (ControlVariate(), SecondOrder()):
        state = estimator.init(model, there, FullPasses(rows))
        found = np.stack([estimator.estimate(model, here, batch, state)[0] for batch in batches(rows)])
        np.testing.assert_allclose(found.mean(axis=0), truth, atol=1e-12)
        noise[type(estimator)] = np.abs(found - truth).max()
    assert noise[SecondOrder] < 1e-12
    assert noise[ControlVariate] > 0.1


def test_noise_falls_with_the_fourth_power_of_the_distance():
    """On Poisson rows, of whose terms x (exp(x θ) - exp(x θ̂) (1 + x δ)) the variance is written out."""
    x, y, there = ROWS["x"][:, 0], RNG.poisson(1.0, N).astype(float), 0.3

    def counts(theta, rows):
        return (rows["y"] * rows["x"] * theta - jnp.exp(rows["x"] * theta)).sum()

    model, rows = Posterior(counts, None, N, make_transform(None, jnp.zeros(())), False), {"x": x, "y": y}
    variances = {1: [], 2: []}
    for delta in (0.02, 0.01):
        for order, estimator in ((1, ControlVariate()), (2, SecondOrder())):
            state = estimator.init(model, jnp.array(there), FullPasses(rows))
            found = [estimator.estimate(model, jnp.array(there + delta), batch, state)[0] for batch in batches(rows)]
            line = np.exp(x * there) * (1 + x * delta * (order == 2))
            terms = x * (np.exp(x * (there + delta)) - line)
            assert np.var(found) == pytest.approx(N * (N - SIZE) / SIZE * np.var(terms, ddof=1), rel=1e-8)
            variances[order].append(np.var(found))
    assert variances[1][0] / variances[1][1] == pytest.approx(4, rel=0.03)
    assert variances[2][0] / variances[2][1] == pytest.approx(16, rel=0.03)


# In whitened variables.

LAYOUT = Layout((None, None, 0), ((2,), (), (3,)))


def a_whitening(kind):
    origin = jax.tree.map(jnp.asarray, ELSEWHERE)
    if kind == "dense":
        return Whitening(origin, jnp.asarray(np.random.default_rng(0).normal(size=(6, 6))), dense=True)
    rng = np.random.default_rng(1)
    precision = Arrow(5 * np.eye(3) + 0.3, rng.normal(size=(3, 1, 3)), 4.0 + np.arange(3.0)[:, None, None])
    return ArrowWhitening.of(precision, origin, LAYOUT)


@pytest.mark.parametrize("kind", ["dense", "arrow"])
def test_unbiased_in_whitened_variables(kind):
    whitening, model = a_whitening(kind), posterior()
    plain = ControlVariate().init(model, whitening.origin, FullPasses(ROWS))
    curvature = likelihood_curvature(model, as_table(ROWS), whitening.origin, LAYOUT if kind == "arrow" else None)
    moved = whitened_centre(plain, whitening)

    def mean(hessian):
        state = WhitenedState(whitening, CurvedCentre(moved.position, moved.gradient, 0.0, True, hessian))
        estimator = Whitened(SecondOrder())
        z = jnp.asarray([0.3, -0.2, 0.1, 0.2, -0.1, 0.25])
        return z, average(estimator.estimate(model, z, batch, state)[0] for batch in batches())

    bend = in_whitened(curvature, whitening)
    z, found = mean(jax.tree.map(jnp.negative, bend))
    truth = whitening.pull_back(exact_gradient(whitening.leave(z)))
    assert_equal(found, truth, 1e-12)
    assert np.abs(mean(bend)[1] - truth).max() > 1e-3, "a control: minus the curvature is the Hessian"


def test_unbiased_where_the_identity_stands_for_a_matrix():
    model = posterior()
    origin, curvature = jax.tree.map(jnp.asarray, ELSEWHERE), likelihood_curvature(model, as_table(ROWS), ELSEWHERE, None)
    prior = np.array([30.0, 20.0, 40.0, 25.0, 35.0, 50.0])
    whitening = whitening_of(curvature + np.diag(prior), origin)
    centre = whitened_centre(ControlVariate().init(model, origin, FullPasses(ROWS)), whitening)
    z = jnp.asarray([0.3, -0.2, 0.1, 0.2, -0.1, 0.25])

    def mean(hessian, with_variance=False):
        state = WhitenedState(whitening, CurvedCentre(centre.position, centre.gradient, 0.0, True, hessian))
        estimator = Whitened(SecondOrder(with_variance=with_variance))
        return average(estimator.estimate(posterior(per_row=with_variance), z, batch, state)[0] for batch in batches())

    found, truth = beside_prior(curvature, prior, whitening), whitening.pull_back(exact_gradient(whitening.leave(z)))
    assert_equal(mean(found), truth, 1e-12)
    assert_equal(mean(found, with_variance=True), truth, 1e-12)
    assert np.abs(mean(BesidePrior(jax.tree.map(jnp.zeros_like, found.prior))) - truth).max() > 1e-3, "a control: no prior"
    assert beside_prior(curvature, 1.01 * prior, whitening) is None
    assert beside_prior(curvature, prior, a_whitening("arrow")) is None


# Samplers.

SETUPS = {
    "plain": {},
    "whitened": {"precondition": "laplace"},
    "scales": {"precondition": "diagonal"},
    "importance": {"rows": "importance"},
    "learning": {"dynamics": BAOA(warmup=5)},
}


@pytest.mark.parametrize("name", SETUPS)
def test_samplers_of_it_run(name):
    data = {key: np.concatenate([array] * 10) for key, array in ROWS.items()}
    sampler = sgmcmc.sampler_setup(
        log_lik, data, PARAMS, 1e-3, log_prior=log_prior, constraints={"scale": constraints.positive}, minibatch_size=20,
        gradient=SecondOrder(), progress=False, **SETUPS[name],
    )  # fmt: skip
    state = sampler.init(seed=1, progress=False)
    held = state.estimator.inner if isinstance(state.estimator, WhitenedState) else state.estimator
    assert isinstance(held, CurvedCentre)
    rows = {key: jnp.asarray(array) for key, array in data.items()}
    model = sampler.kernel.estimator.posterior_at(sampler.kernel.posterior, state.estimator)
    whole = jax.hessian(lambda x: model.sum_of_rows(split(x, held.position), rows))(flat(held.position))
    np.testing.assert_allclose(held.hessian.values, whole, atol=1e-10 * np.abs(whole).max())
    assert np.isfinite(sampler.run(state, 10, burn_in=5, progress=False)["beta"]).all()
