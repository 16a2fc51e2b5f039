"""BAOA: its exact law at 1e-10, and real chains of `baoa` and `baoacv` against it."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import mean_and_variance
from exact import additive, from_rows, stationary_moments

import sgmcmc
from sgmcmc.algorithms.dynamics.baoa import BAOA, noise_amplification
from sgmcmc.algorithms.dynamics.langevin import Langevin

EXACT, LIMIT, CHAINS = 1e-10, 4.0, 32


def baoa(alpha, curvature=0.0, corrected=False):
    return BAOA(jnp.asarray(alpha), curvature, corrected)


def variance(dynamics, A, eps, V=0.0, estimate=None):
    mean, covariance = stationary_moments(dynamics, additive(np.array([[A]]), np.array([[V]])), eps, estimate)
    assert abs(mean[0]) < EXACT
    return covariance[0, 0]


def amplification(eps, alpha, A):
    """κ of docs/methods/conventions.md, in terms of c = 1 - α: written out, not taken from the code."""
    c = 1 - alpha
    return eps * (1 + c) / (4 * (1 - c) * (1 - eps * A / 4))


ALPHAS = [0.05, 0.5, 1.0]
STEPS = [(1.0, 1e-3), (1.0, 0.49), (1.0, 3.9), (250.0, 3.9 / 250)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("A", "eps"), STEPS)
def test_exact_gradients_give_the_exact_variance_at_every_stable_step(A, eps, alpha):
    assert variance(baoa(alpha), A, eps) == pytest.approx(1 / A, rel=EXACT)
    assert variance(Langevin(), A, eps) > (1 + eps * A / 5) / A


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("A", "eps"), STEPS)
def test_noise_adds_its_amplification_and_the_correction_takes_it_away(A, eps, alpha):
    amp = amplification(eps, alpha, A)
    V = 0.4 / amp
    assert float(noise_amplification(eps, alpha, A)) == pytest.approx(amp, rel=EXACT)
    assert variance(baoa(alpha), A, eps, V) == pytest.approx(1.4 / A, rel=EXACT)
    assert variance(baoa(alpha, A, corrected=True), A, eps, V, estimate=V) == pytest.approx(1 / A, rel=EXACT)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_correction_that_does_not_know_the_curvature_leaves_the_stated_remainder(alpha):
    A, eps = 2.0, 0.3
    V = 0.4 / amplification(eps, alpha, A)
    left = amplification(eps, alpha, 0.0) * V * eps * A / (4 - eps * A)
    assert variance(baoa(alpha, corrected=True), A, eps, V, estimate=V) == pytest.approx((1 + left) / A, rel=EXACT)
    assert left > 0.05


@pytest.mark.usefixtures("x64")
def test_more_noise_than_can_be_corrected_leaves_the_rest():
    """Nothing is injected any more, and what the minibatches add is all there is."""
    A, eps, alpha = 1.0, 0.49, 0.5
    V = 1.7 / amplification(eps, alpha, A)
    assert variance(baoa(alpha, A, corrected=True), A, eps, V, estimate=V) == pytest.approx(1.7 / A, rel=EXACT)


NOISE = np.array([[1.0, 0.6], [0.6, 0.5]])


@pytest.mark.usefixtures("x64")
def test_correlated_targets_with_a_full_noise_matrix():
    Q, precisions, eps, alpha = np.array([[0.6, -0.8], [0.8, 0.6]]), np.array([0.5, 9.0]), 0.2, 0.4
    A = Q @ np.diag(precisions) @ Q.T
    quiet = stationary_moments(baoa(alpha), additive(A, 0 * NOISE), eps)[1]
    np.testing.assert_allclose(quiet, np.linalg.inv(A), atol=EXACT)
    loud = Q.T @ stationary_moments(baoa(alpha), additive(A, NOISE), eps)[1] @ Q
    law = (1 + amplification(eps, alpha, precisions) * np.diag(Q.T @ NOISE @ Q)) / precisions
    np.testing.assert_allclose(np.diag(loud), law, rtol=EXACT)


@pytest.mark.usefixtures("x64")
def test_whitened_targets_add_the_noise_matrix_and_along_its_axes_the_correction_is_exact():
    eps, alpha = 0.49, 0.5
    amp = amplification(eps, alpha, 1.0)
    noise = 0.8 / amp * NOISE / np.linalg.eigvalsh(NOISE)[-1]
    loud = stationary_moments(baoa(alpha), additive(np.eye(2), noise), eps)[1]
    np.testing.assert_allclose(loud, np.eye(2) + amp * noise, atol=EXACT)
    values, axes = np.linalg.eigh(noise)
    turned, corrected = additive(np.eye(2), axes.T @ noise @ axes), baoa(alpha, 1.0, corrected=True)
    np.testing.assert_allclose(stationary_moments(corrected, turned, eps, jnp.asarray(values))[1], np.eye(2), atol=EXACT)


# Real chains on linear regression, against the exact law of the discrete chain with the noise of its minibatches.

N, SIZE, SIGMA2 = 60, 6, 1.69
RNG = np.random.default_rng(11)
COVARIATES = np.stack([np.ones(N), RNG.normal(size=N)], axis=1)
RESPONSE = COVARIATES @ [0.5, -1.0] + RNG.normal(0, 1.3, N)
RIDGE = np.diag([0.5, 2.0])
HESSIANS = COVARIATES[:, :, None] * COVARIATES[:, None, :] / SIGMA2
INTERCEPTS = COVARIATES * RESPONSE[:, None] / SIGMA2
EPS, ALPHA = {"baoa": 0.01, "baoacv": 0.04}, 0.5


def log_lik(params, batch):
    return -0.5 / SIGMA2 * (batch["y"] - batch["x"] @ params["beta"]) ** 2


def log_prior(params):
    return -0.5 * params["beta"] @ RIDGE @ params["beta"]


def law(dynamics, name):
    mode = np.linalg.solve(HESSIANS.sum(0) + RIDGE, INTERCEPTS.sum(0))
    rows = from_rows(HESSIANS, INTERCEPTS, SIZE, RIDGE, mode if name == "baoacv" else None)
    with jax.enable_x64(True):
        mean, covariance = stationary_moments(dynamics, rows, EPS[name])
    return mean, np.diag(covariance)


@cache
def regression_draws(name):
    return getattr(sgmcmc, name)(
        log_lik, {"x": COVARIATES, "y": RESPONSE}, {"beta": np.zeros(2)}, EPS[name], alpha=ALPHA, log_prior=log_prior,
        minibatch_size=SIZE, n_iters=4000, burn_in=300, n_chains=CHAINS, seed=2, progress=False,
    )["beta"]  # fmt: skip


@pytest.mark.parametrize("name", list(EPS))
def test_linear_regression(name):
    mean, expected = law(BAOA(ALPHA), name)
    first, second = mean_and_variance(regression_draws(name), mean)
    assert np.max(np.abs(first.z(mean))) < LIMIT
    assert np.max(np.abs(second.z(expected))) < LIMIT


@pytest.mark.parametrize("name", list(EPS))
def test_control_the_law_of_sgld_at_the_same_step_is_another(name):
    mean, expected = law(Langevin(), name)
    second = mean_and_variance(regression_draws(name), mean)[1]
    assert np.max(np.abs(second.z(expected))) > 2 * LIMIT


# The noise of a location model does not depend on where the chain is, so the correction is exact once it is whitened.

PLACES = RNG.multivariate_normal([0.3, -1.0], [[1.0, 0.7], [0.7, 2.0]], 400)


def location(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum(axis=1)


@cache
def whitened_variances(noise_estimate):
    out = sgmcmc.baoa(
        location, {"x": PLACES}, {"mu": np.zeros(2)}, 0.1, alpha=0.9, noise_estimate=noise_estimate, noise_warmup=500,
        precondition="laplace", minibatch_size=40, n_iters=3000, burn_in=500, n_chains=CHAINS, seed=3, progress=False,
    )  # fmt: skip
    return mean_and_variance(out["mu"], PLACES.mean(axis=0))[1]


def test_the_fisher_estimate_corrects_a_whitened_chain():
    assert np.max(np.abs(whitened_variances("fisher").z(1 / 400))) < LIMIT


def test_control_without_the_estimate_the_noise_is_in_the_variance():
    found = whitened_variances(None)
    V = 400 * 360 / 40 * PLACES.var(axis=0, ddof=1) / 400
    assert np.max(np.abs(found.z((1 + amplification(0.1, 0.9, 1.0) * V) / 400))) < LIMIT
    assert np.max(np.abs(found.z(1 / 400))) > 2 * LIMIT


# Contracts, for the composition that `sample` uses.


@pytest.fixture(scope="module")
def sampler():
    return sgmcmc.baoacv_setup(
        log_lik, {"x": COVARIATES, "y": RESPONSE}, {"beta": np.zeros(2)}, 0.49, log_prior=log_prior, minibatch_size=SIZE,
        precondition="laplace", rows="importance", noise_estimate="fisher", noise_warmup=20, progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def state(sampler):
    return sampler.init(seed=4, n_chains=2, progress=False)


@pytest.fixture(scope="module")
def draws(sampler, state):
    return sampler.run(state, 60, burn_in=20, progress=False)["beta"]


def test_chunk_size_changes_no_bit(sampler, state, draws):
    np.testing.assert_array_equal(draws, sampler.run(state, 60, burn_in=20, progress=False, chunk_size=7)["beta"])


def test_continuing_changes_no_bit(sampler, state, draws):
    first = sampler.run(state, 23, burn_in=20, progress=False, chunk_size=7)
    second = sampler.run(first.final_state, 37, progress=False, chunk_size=7)
    np.testing.assert_array_equal(np.concatenate([first["beta"], second["beta"]], axis=1), draws)


def test_the_noise_estimate_is_learnt_and_then_fixed(sampler, state):
    assert not np.asarray(state.auxiliary["variance"]).any()
    learnt = sampler.run(state, 1, burn_in=20, progress=False, chunk_size=7).final_state
    later = sampler.run(learnt, 10, progress=False, chunk_size=7).final_state
    assert np.all(np.asarray(learnt.auxiliary["variance"]) > 0)
    np.testing.assert_array_equal(learnt.auxiliary["variance"], later.auxiliary["variance"])


@pytest.mark.slow
def test_schedules_rescale_the_momentum():
    def decreasing(t):
        return 0.01 * t**-0.33

    sampler = sgmcmc.baoa_setup(
        log_lik, {"x": COVARIATES, "y": RESPONSE}, {"beta": np.zeros(2)}, decreasing, log_prior=log_prior, minibatch_size=SIZE
    )
    moved = sampler.run(sampler.init(seed=1, n_chains=512), 200, progress=False).final_state
    momentum = np.asarray(moved.auxiliary["momentum"]["beta"])
    assert momentum.var() == pytest.approx(decreasing(200), rel=0.3)
    assert jax.tree.structure(moved.params) == jax.tree.structure({"beta": 0.0})


@pytest.mark.parametrize("alpha", [0.0, 1.01, -0.5])
def test_friction_outside_its_range_is_refused(alpha):
    with pytest.raises(sgmcmc.InputError, match="alpha"):
        sgmcmc.baoa_setup(
            log_lik, {"x": COVARIATES, "y": RESPONSE}, {"beta": np.zeros(2)}, 0.01, alpha=alpha, minibatch_size=SIZE
        )
