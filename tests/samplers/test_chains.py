"""Real chains of all six samplers on posteriors that are known exactly.

Where the target is Gaussian the chains are compared with the exact law of the discrete chain at its step size, noise of
the minibatches included (`exact`), within 4 standard errors. Elsewhere they are compared with the exact posterior at a
small step; the slow tests show that halving that step moves nothing by more than one of these standard errors.
One false alarm in about 10⁴ for each number compared; seeds are fixed.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from chains import mean_and_variance
from exact import from_rows, stationary_moments

import sgmcmc
from sgmcmc import constraints
from sgmcmc.algorithms.dynamics.hamiltonian import PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.langevin import Langevin

LIMIT = 4.0
CHAINS = 32
RNG = np.random.default_rng(11)


def sample(function, *problem, n_iters, burn_in, seed=2, **options):
    return function(*problem, n_chains=CHAINS, n_iters=n_iters, burn_in=burn_in, seed=seed, progress=False, **options)


def some_of(names, *quick):
    """Parameters of a test: a few at every change, all with the slow tests."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


# Gaussian targets, against the exact law of the discrete chain.

N, SIZE = 60, 6
LOCATION = RNG.normal(0.7, 1.3, N)
SIGMA2, PRIOR = 1.69, 0.5


def location_log_lik(params, batch):
    return -0.5 / SIGMA2 * ((batch["x"] - params["mu"]) ** 2).sum()


def location_prior(params):
    return -0.5 * PRIOR * params["mu"] ** 2


def location_law(dynamics, eps, control_variates):
    rows = from_rows(
        np.full((N, 1, 1), 1 / SIGMA2),
        (LOCATION / SIGMA2)[:, None],
        SIZE,
        np.array([[PRIOR]]),
        np.zeros(1) if control_variates else None,
    )
    mean, covariance = stationary_moments(dynamics, rows, eps)
    return mean[0], covariance[0, 0]


GAUSSIAN = {
    "sgld": (sgmcmc.sgld, {}, Langevin(), 0.02),
    "sgldcv": (sgmcmc.sgldcv, {}, Langevin(), 0.02),
    "sghmc": (sgmcmc.sghmc, {"alpha": 0.1, "L": 4}, SymmetricHamiltonian(0.1, 4), 0.01),
    "sghmc-paper": (sgmcmc.sghmc, {"alpha": 0.1, "L": 4, "scheme": "paper"}, PaperHamiltonian(0.1, 4), 0.01),
    "sghmc-persistent": (sgmcmc.sghmc, {"alpha": 0.1, "L": None}, PersistentHamiltonian(0.1), 0.002),
    "sghmccv": (sgmcmc.sghmccv, {"alpha": 0.1, "L": 4}, SymmetricHamiltonian(0.1, 4), 0.02),
}


@cache
def location_draws(name):
    function, options, _, eps = GAUSSIAN[name]
    return sample(
        function, location_log_lik, {"x": LOCATION}, {"mu": 0.0}, eps, log_prior=location_prior, minibatch_size=SIZE,
        n_iters=2000, burn_in=300, **options,
    )["mu"]  # fmt: skip


@pytest.mark.parametrize("name", some_of(GAUSSIAN, "sgld", "sgldcv"))
def test_normal_mean(name):
    _, _, dynamics, eps = GAUSSIAN[name]
    mean, variance = location_law(dynamics, eps, name.endswith("cv"))
    first, second = mean_and_variance(location_draws(name), mean)
    assert abs(first.z(mean)) < LIMIT
    assert abs(second.z(variance)) < LIMIT


def test_control_the_posterior_itself_is_not_the_law_of_a_coarse_chain():
    """SGLD inflates the variance by its gradient noise; comparing with the posterior instead must fail."""
    _, _, dynamics, eps = GAUSSIAN["sgld"]
    mean, _ = location_law(dynamics, eps, False)
    second = mean_and_variance(location_draws("sgld"), mean)[1]
    assert abs(second.z(1 / (N / SIGMA2 + PRIOR))) > 3 * LIMIT


COVARIATES = np.stack([np.ones(N), RNG.normal(size=N)], axis=1)
RESPONSE = COVARIATES @ [0.5, -1.0] + RNG.normal(0, 1.3, N)
RIDGE = np.diag([0.5, 2.0])


def regression_log_lik(params, batch):
    return -0.5 / SIGMA2 * (batch["y"] - batch["x"] @ params["beta"]) ** 2


def regression_prior(params):
    return -0.5 * params["beta"] @ RIDGE @ params["beta"]


def regression_law(dynamics, eps, control_variates):
    H = COVARIATES[:, :, None] * COVARIATES[:, None, :] / SIGMA2
    b = COVARIATES * RESPONSE[:, None] / SIGMA2
    mode = np.linalg.solve(H.sum(0) + RIDGE, b.sum(0))
    rows = from_rows(H, b, SIZE, RIDGE, mode if control_variates else None)
    mean, covariance = stationary_moments(dynamics, rows, eps)
    return mean, np.diag(covariance)


@pytest.mark.parametrize("name", list(GAUSSIAN))
def test_linear_regression(name):
    function, options, dynamics, eps = GAUSSIAN[name]
    mean, variance = regression_law(dynamics, eps, name.endswith("cv"))
    out = sample(
        function, regression_log_lik, {"x": COVARIATES, "y": RESPONSE}, {"beta": np.zeros(2)}, eps, log_prior=regression_prior,
        minibatch_size=SIZE, n_iters=2000, burn_in=300, **options,
    )  # fmt: skip
    first, second = mean_and_variance(out["beta"], mean)
    assert np.max(np.abs(first.z(mean))) < LIMIT
    assert np.max(np.abs(second.z(variance))) < LIMIT


# A tensor of 1000 numbers: every sampler pools over the entries, and SGNHT has a closed form there.

TENSOR = RNG.normal(size=(40, 10, 10, 10)).astype(np.float32)


def tensor_log_lik(params, batch):
    return -0.5 * ((batch["x"] - params["t"]) ** 2).sum(axis=(1, 2, 3))


def tensor_law(dynamics, eps, control_variates):
    """Each entry is a location model of its own; their variances under the stationary law."""
    variances = []
    for scale in (0.0, 1.0):
        b = np.array([1.0, -1.0] * 20) * np.sqrt(scale * 39 / 40)
        rows = from_rows(np.ones((40, 1, 1)), b[:, None], 8, np.zeros((1, 1)), np.zeros(1) if control_variates else None)
        variances.append(stationary_moments(dynamics, rows, eps)[1][0, 0])
    entry = TENSOR.reshape(40, -1).var(axis=0, ddof=1).mean()
    return variances[0] + (variances[1] - variances[0]) * entry


def tensor_variance(function, eps, n_iters, burn_in, **options):
    out = function(
        tensor_log_lik, {"x": TENSOR}, {"t": np.zeros((10, 10, 10))}, eps, minibatch_size=8, n_iters=n_iters,
        burn_in=burn_in, seed=3, n_chains=8, progress=False, keep=sgmcmc.Moments(), **options,
    )  # fmt: skip
    assert out.kept.sd["t"].shape == (8, 10, 10, 10)
    centre = TENSOR.mean(axis=0, dtype=np.float64)
    second = out.kept.sd["t"].astype(np.float64) ** 2 + (out.kept.mean["t"] - centre) ** 2
    entries = second.mean(axis=0).ravel()
    return entries.mean(), entries.std(ddof=1) / np.sqrt(entries.size)


@pytest.mark.parametrize("name", some_of(GAUSSIAN, "sgld", "sghmc", "sgldcv"))
def test_tensor(name):
    function, options, dynamics, eps = GAUSSIAN[name]
    value, error = tensor_variance(function, eps, 400, 200, **options)
    assert abs(value - tensor_law(dynamics, eps, name.endswith("cv"))) / error < LIMIT


@pytest.mark.parametrize("function", [sgmcmc.sgnht, sgmcmc.sgnhtcv])
def test_tensor_with_a_thermostat(function):
    """α* and Var θ = (1 - α*/2)/A as d → ∞; at d = 1000 the closed form itself is good to 0.2 %."""
    eps, a, A = 1e-3, 0.05, 40.0
    V = 0.0 if function is sgmcmc.sgnhtcv else 40 * 32 / 8 * TENSOR.reshape(40, -1).var(axis=0, ddof=1).mean()
    alpha = ((4 - eps * A) - np.sqrt((4 - eps * A) ** 2 - 16 * (2 * a + eps * V))) / 4
    value, error = tensor_variance(function, eps, 2000, 1000, a=a)
    assert abs(value - (1 - alpha / 2) / A) < LIMIT * error + 0.002 / A


@pytest.mark.parametrize(("a", "eps"), [(0.05, 2e-4), (0.2, 1e-3)])
def test_thermostat_temperature_is_exact(a, eps):
    """E[ν·ν/p] = ε at stationarity, within 3 standard errors, whatever the target: here a skewed one, with minibatch noise."""

    def log_lik(params, batch):
        return (batch["x"] * params["t"] - jnp.exp(params["t"])).sum(axis=1)

    data = {"x": np.random.default_rng(8).poisson(2.0, (50, 20)).astype(np.float32)}
    sampler = sgmcmc.sgnht_setup(log_lik, data, {"t": np.full(20, 0.7)}, eps, a=a, minibatch_size=10)
    state = sampler.init(seed=1, n_chains=CHAINS)
    state = sampler.run(state, 1, burn_in=10_000, progress=False).final_state
    before, steps = np.asarray(state.auxiliary["thermostat"]["t"]), 20_000
    after = np.asarray(sampler.run(state, steps, progress=False, thin=steps).final_state.auxiliary["thermostat"]["t"])
    # The thermostat adds up ν·ν/p - ε, so its change over the run is that average times the number of steps.
    excess = (after - before) / steps
    assert abs(excess.mean() / (excess.std(ddof=1) / np.sqrt(CHAINS))) < 3
    assert abs(excess.mean()) < 1e-3 * eps


# Posteriors that are not Gaussian in the space where the chain moves: conjugate, so known exactly.

WAITS = RNG.exponential(0.5, 80).astype(np.float32)
PAIRS = RNG.multivariate_normal([0, 0], [[1.0, 0.6], [0.6, 2.0]], 80).astype(np.float32)
DEGREES, SCALE = 6.0, np.array([[2.0, 0.3], [0.3, 1.0]])


def rate_log_lik(params, batch):
    return jnp.log(params["rate"]) - params["rate"] * batch["wait"]


def rate_prior(params):
    return 2.0 * jnp.log(params["rate"]) - 1.5 * params["rate"]


def determinant_and_inverse(S):
    """Of a 2 × 2 matrix, written out: much faster than LAPACK for many small ones."""
    determinant = S[0, 0] * S[1, 1] - S[0, 1] * S[1, 0]
    return determinant, jnp.array([[S[1, 1], -S[0, 1]], [-S[1, 0], S[0, 0]]]) / determinant


def covariance_log_lik(params, batch):
    determinant, precision = determinant_and_inverse(params["Sigma"])
    return -0.5 * (batch["x"] @ precision * batch["x"]).sum(axis=1) - 0.5 * jnp.log(determinant)


def covariance_prior(params):
    """Inverse Wishart."""
    determinant, precision = determinant_and_inverse(params["Sigma"])
    return -0.5 * (DEGREES + 3) * jnp.log(determinant) - 0.5 * jnp.trace(SCALE @ precision)


def rate_truth():
    posterior = scipy.stats.gamma(3.0 + len(WAITS), scale=1 / (1.5 + WAITS.sum(dtype=np.float64)))
    return posterior.mean(), posterior.var()


def covariance_truth():
    nu, psi = DEGREES + len(PAIRS), SCALE + PAIRS.T.astype(np.float64) @ PAIRS
    mean = psi / (nu - 3)
    variance = ((nu - 1) * psi**2 + (nu - 3) * np.outer(np.diag(psi), np.diag(psi))) / ((nu - 2) * (nu - 3) ** 2 * (nu - 5))
    return mean, variance


CURVED = {
    "rate": (rate_log_lik, {"wait": WAITS}, {"rate": 2.0}, rate_prior, {"rate": constraints.positive}, rate_truth),
    "Sigma": (
        covariance_log_lik, {"x": PAIRS}, {"Sigma": np.array([[1.0, 0.5], [0.5, 2.0]])}, covariance_prior,
        {"Sigma": constraints.positive_definite}, covariance_truth,
    ),
}  # fmt: skip
SMALL_STEPS = {"sgld": 2e-4, "sghmc": 1e-5, "sgnht": 1e-5, "sgldcv": 3e-4, "sghmccv": 1e-4, "sgnhtcv": 1e-4}
CURVED_OPTIONS = {"sghmc": {"L": 10}, "sghmccv": {"L": 5}}


@cache
def curved_moments(name, parameter, share, n_iters, rows="random"):
    log_lik, data, params, log_prior, constraint, truth = CURVED[parameter]
    out = sample(
        getattr(sgmcmc, name), log_lik, data, params, share * SMALL_STEPS[name], log_prior=log_prior, constraints=constraint,
        minibatch_size=40, rows=rows, n_iters=n_iters, burn_in=1000, **CURVED_OPTIONS.get(name, {}),
    )  # fmt: skip
    return mean_and_variance(out[parameter], truth()[0]), truth()


@pytest.mark.parametrize("parameter", list(CURVED))
@pytest.mark.parametrize("name", some_of(SMALL_STEPS, "sgld", "sgldcv"))
def test_constrained(name, parameter):
    (first, second), (mean, variance) = curved_moments(name, parameter, 1.0, 3000)
    assert np.max(np.abs(first.z(mean))) < LIMIT
    assert np.max(np.abs(second.z(variance))) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("parameter", list(CURVED))
@pytest.mark.parametrize("name", list(SMALL_STEPS))
def test_halving_the_step_moves_nothing(name, parameter):
    (first, second), _ = curved_moments(name, parameter, 1.0, 3000, "window")
    long, _ = curved_moments(name, parameter, 1.0, 48_000, "window")
    half, _ = curved_moments(name, parameter, 0.5, 96_000, "window")
    for whole, halved, short in zip(long, half, (first, second), strict=True):
        assert np.max(np.abs(whole.value - halved.value) / short.error) < 1


def test_control_a_wrong_posterior_is_caught():
    (first, _), (mean, variance) = curved_moments("sgldcv", "rate", 1.0, 3000)
    assert abs(first.z(mean + 0.2 * np.sqrt(variance))) > LIMIT


# A thermostat of few numbers has no exact law. While its own fluctuations are small, at a small step, the law for many
# dimensions holds: each variance is 1 - α/2 of the posterior's, with α where the noise of the minibatches puts it.


def thermostat_share(eps, a, A, V):
    return 1 - ((4 - eps * A) - np.sqrt((4 - eps * A) ** 2 - 16 * (2 * a + eps * V))) / 8


@pytest.mark.parametrize("function", [sgmcmc.sgnht, sgmcmc.sgnhtcv])
def test_normal_mean_with_a_thermostat(function):
    eps, a, precision = 1e-4, 0.05, N / SIGMA2 + PRIOR
    V = 0.0 if function is sgmcmc.sgnhtcv else N * (N - SIZE) / SIZE * np.var(LOCATION / SIGMA2, ddof=1)
    out = sample(
        function, location_log_lik, {"x": LOCATION}, {"mu": 0.5}, eps, a=a, log_prior=location_prior,
        minibatch_size=SIZE, n_iters=8000, burn_in=4000,
    )  # fmt: skip
    mean = LOCATION.sum() / SIGMA2 / precision
    first, second = mean_and_variance(out["mu"], mean)
    assert abs(first.z(mean)) < LIMIT
    assert abs(second.z(thermostat_share(eps, a, precision, V) / precision)) < LIMIT


@pytest.mark.parametrize(("function", "eps"), [(sgmcmc.sgnht, 1e-5), (sgmcmc.sgnhtcv, 1e-4)])
def test_regression_with_a_thermostat(function, eps):
    a = 0.05
    H = COVARIATES.T @ COVARIATES / SIGMA2 + RIDGE
    mean, variance = np.linalg.solve(H, COVARIATES.T @ RESPONSE / SIGMA2), np.diag(np.linalg.inv(H))
    row_gradients = COVARIATES * (RESPONSE - COVARIATES @ mean)[:, None] / SIGMA2
    V = 0.0 if function is sgmcmc.sgnhtcv else N * (N - SIZE) / SIZE * row_gradients.var(axis=0, ddof=1).mean()
    out = sample(
        function, regression_log_lik, {"x": COVARIATES, "y": RESPONSE}, {"beta": mean}, eps, a=a,
        log_prior=regression_prior, minibatch_size=SIZE, n_iters=8000, burn_in=4000,
    )  # fmt: skip
    first, second = mean_and_variance(out["beta"], mean)
    assert np.max(np.abs(first.z(mean))) < LIMIT
    assert np.max(np.abs(second.z(thermostat_share(eps, a, np.diag(H).mean(), V) * variance))) < LIMIT
