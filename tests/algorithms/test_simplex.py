"""SCIR and SGRLD: the laws of their steps and of their chains, in closed form, by enumeration and by quadrature."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import mean_and_variance, over_chains
from scipy.integrate import solve_ivp
from scipy.special import digamma, ndtr, polygamma
from scipy.stats import gamma, kstest, ncx2

import sgmcmc
from sgmcmc import constraints
from sgmcmc.algorithms import SCIR, SGRLD, Motion, PreconditionedLangevin
from sgmcmc.algorithms.dynamics.gamma import log_gamma_number
from sgmcmc.algorithms.dynamics.scir import drawn, transition

EXACT = 1e-10


# The step: its parameters are those of the diffusion's transition, and its draws have the law of these.


def laplace_of_step(x, gradient, rate, time, s):
    """E exp(-s ω'), from the parameters of the code, summed over the Poisson number."""
    shape, mean, scale = (float(part) for part in transition(x, gradient, jnp.asarray(rate), jnp.asarray(time)))
    k = np.arange(2000)
    log_chance = k * np.log(mean) - mean - np.cumsum(np.log(np.maximum(k, 1)))
    return np.exp(log_chance - (shape + k) * np.log1p(s * scale)).sum()


def laplace_of_diffusion(omega, a, rate, time, s):
    """The same for dω = (a - r ω) dt + √(2ω) dW, from its Riccati equations."""
    solved = solve_ivp(lambda t, y: [-rate * y[0] - y[0] ** 2, a * y[0]], (0, time), [s, 0.0], rtol=1e-13, atol=1e-15)
    slope, level = solved.y[:, -1]
    return np.exp(-level - slope * omega)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("omega", "a", "rate", "time"), [(0.3, 0.1, 1.0, 0.2), (7.0, 12.0, 1.0, 0.05), (2.0, 0.6, 5.0, 3.0)])
def test_a_step_has_the_law_of_the_diffusion(omega, a, rate, time):
    x, gradient = jnp.log(omega), jnp.asarray(a - rate * omega)
    for s in (0.01, 1.0, 10.0):
        law = laplace_of_diffusion(omega, a, rate, time, s)
        assert laplace_of_step(x, gradient, rate, time, s) == pytest.approx(law, rel=EXACT, abs=0)
        assert laplace_of_step(x, gradient + 0.01, rate, time, s) != pytest.approx(law, rel=1000 * EXACT, abs=0)
    shape, mean, scale = transition(x, gradient, rate, time)
    stays = np.exp(-rate * time)
    assert float(scale * (shape + mean)) == pytest.approx(stays * omega + (1 - stays) * a / rate, rel=EXACT)
    variance = 2 * stays * (1 - stays) / rate * omega + (1 - stays) ** 2 * a / rate**2
    assert float(scale**2 * (shape + 2 * mean)) == pytest.approx(variance, rel=EXACT)


DRAWS = 200_000


def test_draws_of_a_step_have_that_law():
    """Ten comparisons of a false alarm of 1e-4 each; in float32, shapes below and above 1, and means of a million."""
    cases = np.array([(0.05, 0.3), (0.1, 5.0), (0.6, 2.0), (3.0, 100.0), (0.1, 1e6)], np.float32)
    shape, mean = (jnp.repeat(jnp.asarray(cases[:, i : i + 1]), DRAWS, axis=1) for i in range(2))
    omega = np.exp(np.asarray(jax.jit(drawn)(jax.random.key(3), shape, mean, jnp.ones(())), np.float64))
    for (a, m), numbers in zip(np.asarray(cases, np.float64), omega, strict=True):
        few = 2 * numbers[:5000]
        assert kstest(few, ncx2(2 * a, 2 * m).cdf).pvalue > 1e-4
        assert kstest(few, ncx2(2 * (a + 0.1), 2 * (m + 0.2 * np.sqrt(m))).cdf).pvalue < 1e-4
        z = (numbers.mean() - a - m) / np.sqrt((a + 2 * m) / DRAWS)
        assert abs(z) < 4


def test_logarithms_of_gamma_numbers():
    """Of a shape of 0.001 too, where the number itself is below what float32 has."""
    shapes = np.array([0.001, 0.3, 1.0, 20.0, 1e6], np.float32)
    numbers = jax.jit(log_gamma_number)(jax.random.key(5), jnp.repeat(jnp.asarray(shapes)[:, None], DRAWS, axis=1))
    for a, one in zip(np.asarray(shapes, np.float64), np.asarray(numbers, np.float64), strict=True):
        assert abs(one.mean() - digamma(a)) < 4 * np.sqrt(polygamma(1, a) / DRAWS)
        assert kstest(np.exp(one), gamma(a).cdf).pvalue > 1e-4 or a < 0.01
        assert np.isfinite(one).all()


@pytest.mark.usefixtures("x64")
def test_the_step_of_sgrld_is_that_of_a_metric_reflected():
    rng = np.random.default_rng(0)
    x, gradient, z = (jnp.asarray(part) for part in rng.normal(size=(3, 50)))
    omega, eps = jnp.exp(x), jnp.full(50, 0.3)
    reached = SGRLD().move(Motion(x, gradient, {}), eps, z).position
    in_omega = Motion(omega, (gradient - 1) / omega, {})  # without the volume change of the logarithm
    other = PreconditionedLangevin(lambda numbers: numbers).move(in_omega, eps, z).position
    assert (other < 0).any()
    np.testing.assert_allclose(jnp.exp(reached), jnp.abs(other), rtol=1e-10)


def test_shapes_below_zero_have_no_law_and_those_by_rounding_have():
    x = jnp.log(jnp.array([1e6, 1e6, 1.0]))
    shape, _, _ = transition(x, jnp.array([-1e6 - 0.25, -1e6 - 1e3, -1.5]), jnp.asarray(1.0), jnp.asarray(0.1))
    np.testing.assert_array_equal(np.isnan(shape), [False, True, True])
    assert float(shape[0]) > 0


# Minibatches: all of them enumerated.

ROWS = np.array([0, 0, 0, 1, 1, 2])
ALPHA, K, N, n = 0.4, 4, len(ROWS), 2
EPS = 0.8


def log_lik(params, batch):
    return jnp.log(params["theta"])[batch["z"]].sum()


def log_prior(params):
    return (ALPHA - 1) * jnp.log(params["theta"]).sum()


def sampler(dynamics, eps, rows=ROWS, categories=K, prior=log_prior, minibatch_size=n):
    return sgmcmc.sampler_setup(
        log_lik, {"z": rows}, {"theta": np.full(categories, 1 / categories)}, eps, dynamics=dynamics, log_prior=prior,
        constraints={"theta": constraints.simplex}, minibatch_size=minibatch_size, progress=False,
    )  # fmt: skip


def estimates(category):
    """â of a category from every minibatch."""
    return np.array([ALPHA + N / n * np.sum(ROWS[list(pair)] == category) for pair in itertools.combinations(range(N), n)])


def laplace(shapes, eps, s):
    """E exp(-s ω) where every step has one of the shapes: with ω' = (1-e) Gamma(â + K), E exp(-s ω') is
    E (1 + (1-e) s)^-â E exp(-s' ω), s' = e s/(1 + (1-e) s).
    """
    stays, product = np.exp(-eps / 2), 1.0
    while s > 1e-18:
        goes = 1 + (1 - stays) * s
        product *= np.mean(goes**-shapes)
        s *= stays / goes
    return product


def test_the_law_with_minibatches_in_closed_form():
    """Gamma(a) with all rows; with some the mean is unbiased, the variance larger by Var(â) (1-e)/(1+e)."""
    for category in range(K):
        shapes = estimates(category)
        a = ALPHA + np.sum(category == ROWS)
        for s in (0.1, 1.0, 10.0):
            assert laplace(np.array([a]), EPS, s) == pytest.approx((1 + s) ** -a, rel=EXACT)
        h = 1e-4
        first, second = (np.log(laplace(shapes, EPS, k * h)) for k in (1, 2))
        third = np.log(laplace(shapes, EPS, 3 * h))
        mean = -(3 * first - 1.5 * second + third / 3) / h
        stays = np.exp(-EPS / 2)
        variance = a + shapes.var() * (1 - stays) / (1 + stays)
        assert shapes.mean() == pytest.approx(a, rel=EXACT)
        assert mean == pytest.approx(a, rel=1e-6)
        assert (-5 * first + 4 * second - third) / h**2 == pytest.approx(variance, rel=5e-3)


@pytest.fixture(scope="module")
def minibatch_draws():
    """ω of 4,000 chains: axes chain, draw, category."""
    scir = sampler(SCIR(), EPS)
    states, state = [], scir.init(seed=3, n_chains=4000, progress=False)
    for one in scir.iterate(state, 60, every=6, progress=False):
        states.append(np.exp(np.asarray(one.position["theta"], np.float64)))
    return np.stack(states[4:], axis=1)


@pytest.mark.parametrize("category", [0, 2, 3])
def test_chains_with_minibatches_have_that_law(minibatch_draws, category):
    omega, shapes = minibatch_draws[..., category], estimates(category)
    a, stays = shapes.mean(), np.exp(-EPS / 2)
    mean, variance = mean_and_variance(omega, a)
    law = a + shapes.var() * (1 - stays) / (1 + stays)
    assert abs(mean.z(a)) < 4
    assert abs(variance.z(law)) < 4
    for s in (0.3, 3.0, 100.0):
        assert abs(over_chains(np.exp(-s * omega).mean(axis=1)).z(laplace(shapes, EPS, s))) < 4
    if category < 3:  # the control: without what minibatches add
        assert abs(variance.z(a)) > 4


# SGRLD near zero: by quadrature of its reflected step.


def sgrld_law(a, eps, cells=1500, reach=8.0):
    """Points and probabilities: cells even in √ω, steps from the middle of each."""
    edges = np.linspace(0, np.sqrt(reach), cells + 1) ** 2
    middles = (np.diff(edges**1.5) / np.diff(edges) / 1.5) ** 2
    centre, sd = middles + eps / 2 * (a - middles), np.sqrt(eps * middles)
    below = ndtr((edges[:, None] - centre) / sd) - ndtr((-edges[:, None] - centre) / sd)
    step = np.diff(below, axis=0)
    step /= step.sum(axis=0)
    system = step - np.eye(cells)
    system[-1] = 1.0
    return middles, np.linalg.solve(system, np.eye(cells)[-1])


def gamma_model(a):
    """A positive number of law Gamma(a, 1), without rows to speak of."""
    return (
        lambda params, batch: -params["omega"].sum() * batch["one"].sum(),
        {"one": np.ones(1)},
        {"omega": np.ones(20)},
        lambda params: (a - 1) * jnp.log(params["omega"]).sum(),
    )


def test_sgrld_is_biased_near_zero_as_its_reflected_step_says_and_scir_is_not():
    a, eps = 0.1, 0.2
    lik, rows, start, prior = gamma_model(a)
    points, chances = sgrld_law(a, eps)
    coarse = np.dot(*sgrld_law(a, eps, cells=750))
    law = points @ chances
    assert law > 1.2 * a
    assert coarse == pytest.approx(law, rel=2e-3)
    for dynamics, truth, other in ((SGRLD(), law, a), (SCIR(), a, law)):
        setup = sgmcmc.sampler_setup(
            lik, rows, start, eps, dynamics=dynamics, log_prior=prior, minibatch_size=1, progress=False,
            constraints={"omega": constraints.positive},
        )  # fmt: skip
        result = setup.run(setup.init(seed=5, n_chains=400, progress=False), 400, burn_in=100, thin=20, progress=False)
        omega = np.asarray(result["omega"], np.float64).mean(axis=(1, 2))
        mean = over_chains(omega)
        assert abs(mean.z(truth)) < 4
        assert abs(mean.z(other)) > 4


# A sparse Dirichlet-multinomial posterior: exactly Dirichlet(α + counts).


class Sparse(NamedTuple):
    counts: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    rows: np.ndarray


@pytest.fixture(scope="module")
def sparse():
    counts = np.array([800, 150, 40, 8, 2, 0, 0, 0, 0, 0])
    shapes = ALPHA / 4 + counts
    mean = shapes / shapes.sum()
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(10), counts))
    return Sparse(counts, mean, mean * (1 - mean) / (shapes.sum() + 1), rows)


def sparse_prior(params):
    return (ALPHA / 4 - 1) * jnp.log(params["theta"]).sum()


@pytest.mark.parametrize("dynamics", [SCIR(), SGRLD()], ids=["SCIR", "SGRLD"])
def test_sparse_counts(dynamics, sparse):
    """Right in all ten categories. The control, with the same steps, is so in none of those without an observation."""
    made = sampler(dynamics, 0.2, sparse.rows, 10, sparse_prior, 1000)
    begun = made.init(seed=1, n_chains=400, progress=False)
    result = made.run(begun, 400, burn_in=100, thin=10, progress=False)
    sums = [np.exp(state.position["theta"]).sum(axis=1) for state in (begun, result.final_state)]
    np.testing.assert_allclose(sums[0], 1.0, rtol=1e-5)  # on their way ω grow to the number of observations
    np.testing.assert_allclose(sums[1], 1000, rtol=0.25)
    mean, variance = mean_and_variance(np.asarray(result["theta"]), sparse.mean)
    z = np.abs([mean.z(sparse.mean), variance.z(sparse.variance)])
    if isinstance(dynamics, SCIR):
        assert z.max() < 4
    else:
        assert z[0, sparse.counts == 0].min() > 4


@pytest.mark.slow  # thousands of chains, to see hundredths of a standard deviation
@pytest.mark.parametrize("N", [16, 64])
def test_simplices_that_share_observations(N):
    """A mixture in known proportions, exact gradients, small steps: the bias is there, and small. Truth by quadrature."""
    rng = np.random.default_rng(1)
    share = np.where(rng.random(N) < 0.5, rng.uniform(0.5, 1, N), rng.uniform(0, 0.5, N))
    rows = {"share": share, "second": rng.random(N) < share * 0.8 + (1 - share) * 0.3}
    prior = 0.7

    def mixture(params, batch):
        first, other = params["theta"]
        second = batch["second"].astype(int)
        return jnp.log(batch["share"] * first[second] + (1 - batch["share"]) * other[second]).sum()

    grid = np.sin((np.arange(1000) + 0.5) / 1000 * np.pi / 2) ** 2  # even in the angle: dθ is √(θ (1-θ)) of it
    each = (prior - 0.5) * np.log(grid * (1 - grid))
    log_density = each[:, None] + each
    for p, second in zip(share, rows["second"], strict=True):
        chance = p * grid[:, None] + (1 - p) * grid
        log_density += np.log(chance if second else 1 - chance)
    law = np.exp(log_density - log_density.max())
    ones = [law.sum(axis=1) / law.sum(), law.sum(axis=0) / law.sum()]
    mean = np.array([one @ grid for one in ones])
    sd = np.sqrt([one @ grid**2 for one in ones] - mean**2)
    made = sgmcmc.sampler_setup(
        mixture, rows, {"theta": np.full((2, 2), 0.5)}, 0.1, dynamics="scir", minibatch_size=N, progress=False,
        log_prior=lambda params: (prior - 1) * jnp.log(params["theta"]).sum(), constraints={"theta": constraints.simplex},
    )  # fmt: skip
    result = made.run(made.init(seed=1, n_chains=2000, progress=False), 800, burn_in=200, thin=20, progress=False)
    found = over_chains(np.asarray(result["theta"], np.float64)[..., 1].mean(axis=1))
    assert np.abs((found.value - mean) / sd).max() < 0.1
    assert np.abs(found.z(mean)).max() > 4
