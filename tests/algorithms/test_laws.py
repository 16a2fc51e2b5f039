"""The stationary laws of docs/methods/conventions.md, at 1e-10: moments of the library's own updates against closed forms."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import additive, from_rows, stationary_moments

from sgmcmc.algorithms.dynamics.hamiltonian import PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.core.trees import Batch
from sgmcmc.problem.posterior import Posterior, Transform
from sgmcmc.problem.schedules import step_schedule

pytestmark = pytest.mark.usefixtures("x64")

EXACT = 1e-10
KEY = np.zeros(2, np.uint32)


def variance(dynamics, A, eps, V=0.0, estimate=None):
    mean, covariance = stationary_moments(dynamics, additive(np.array([[A]]), np.array([[V]])), eps, estimate)
    assert abs(mean[0]) < EXACT
    return covariance[0, 0]


def sgld_law(A, eps, V):
    h = eps / 2
    return (1 + h * V / 2) / (A * (1 - h * A / 2))


@pytest.mark.parametrize(("A", "eps", "V"), [(1.0, 0.5, 0.0), (3.0, 0.2, 4.0), (0.1, 1.0, 0.5), (250.0, 1e-3, 900.0)])
def test_sgld(A, eps, V):
    assert variance(Langevin(), A, eps, V) == pytest.approx(sgld_law(A, eps, V), rel=EXACT)


@pytest.mark.parametrize("L", [1, 2, 5, 20])
@pytest.mark.parametrize("alpha", [0.01, 0.3])
@pytest.mark.parametrize(("A", "eps"), [(1.0, 0.5), (30.0, 0.01)])
def test_symmetric_sghmc_does_not_depend_on_L_or_alpha(A, eps, L, alpha):
    law = 1 / (A * (1 - eps * A / 4))
    assert variance(SymmetricHamiltonian(jnp.array(alpha), L), A, eps) == pytest.approx(law, rel=EXACT)


def test_symmetric_sghmc_noise_amplification():
    eps, V = 1e-6, 1.0
    inflation = variance(SymmetricHamiltonian(jnp.array(0.01), 5), 1.0, eps, V) - variance(
        SymmetricHamiltonian(jnp.array(0.01), 5), 1.0, eps
    )
    assert inflation / (eps * V) == pytest.approx(1.42, abs=0.005)


@pytest.mark.parametrize("L", [2, 3, 5, 10, 50])
def test_paper_sghmc_has_the_bias_L_over_L_minus_1(L):
    assert variance(PaperHamiltonian(jnp.array(1e-7), L), 1.0, 1e-7) == pytest.approx(L / (L - 1), abs=1e-4)


def test_paper_sghmc_bias_at_its_defaults():
    assert variance(PaperHamiltonian(jnp.array(0.01), 5), 1.0, 1e-8) == pytest.approx(1.243, abs=5e-4)


@pytest.mark.parametrize(("A", "eps", "alpha", "V"), [(1.0, 0.1, 0.1, 0.0), (4.0, 0.05, 0.3, 2.0), (50.0, 1e-3, 0.01, 10.0)])
@pytest.mark.parametrize("beta_share", [0.0, 0.5])
def test_persistent_sghmc(A, eps, alpha, V, beta_share):
    beta = beta_share * alpha
    dynamics = PersistentHamiltonian(jnp.array(alpha), warmup=1 if beta_share else 0)
    temperature = ((alpha - beta) + eps * V / 2) / alpha
    law = temperature / (A * (1 - eps * A / (4 - 2 * alpha)))
    estimate = 2 * beta / eps if beta_share else None
    assert variance(dynamics, A, eps, V, estimate) == pytest.approx(law, rel=EXACT)


def test_fisher_estimate_makes_up_for_the_noise():
    A, eps, alpha, V = 2.0, 0.02, 0.1, 5.0
    dynamics = PersistentHamiltonian(jnp.array(alpha), warmup=1)
    assert variance(dynamics, A, eps, V, estimate=V) == pytest.approx(1 / (A * (1 - eps * A / (4 - 2 * alpha))), rel=EXACT)


def test_correlated_targets_follow_their_eigenvalues():
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    precisions, eps = np.array([0.5, 2.0, 9.0]), 0.1
    A = rotation @ np.diag(precisions) @ rotation.T
    for dynamics, law in [
        (Langevin(), [sgld_law(a, eps, 0.0) for a in precisions]),
        (SymmetricHamiltonian(jnp.array(0.05), 4), 1 / (precisions * (1 - eps * precisions / 4))),
    ]:
        covariance = stationary_moments(dynamics, additive(A, np.zeros((3, 3))), eps)[1]
        np.testing.assert_allclose(covariance, rotation @ np.diag(law) @ rotation.T, atol=EXACT)


# Multiplicative noise, by enumerating every minibatch of a linear regression with the library's own estimator. The pairs of
# opposite residuals make the noise in the slope and in the intercept of the gradient uncorrelated, as the closed form assumes.

X = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
Y = np.array([0.4, -0.4, 1.1, -1.1, 0.7, -0.7])
SIGMA2, PRIOR, SIZE = 0.5, 0.8, 2


def regression():
    def log_lik(theta, rows):
        return -0.5 / SIGMA2 * ((rows["y"] - rows["x"] * theta) ** 2).sum()

    posterior = Posterior(log_lik, lambda theta: -0.5 * PRIOR * theta**2, len(X), Transform((None,)), per_row=False)
    batches = [
        Batch({"x": jnp.array(X[list(rows)]), "y": jnp.array(Y[list(rows)])}, jnp.array(len(X) / SIZE), jnp.array(rows))
        for rows in itertools.combinations(range(len(X)), SIZE)
    ]
    return posterior, batches


def enumerated_sgld_variance(eps):
    """E over all minibatches of the update's slope and intercept, from `Kernel` itself; then the second moment's equation."""
    posterior, batches = regression()
    kernel = Kernel(posterior, Minibatch(), Langevin(), step_schedule(eps, jnp.zeros(())))

    def moved(theta, noise, batch):
        state = kernel.start(KEY, KEY, theta, batch, ())
        return kernel.step(state, lambda _: batch, noise[None]).position

    zero = jnp.zeros(())
    slopes = np.array([jax.grad(moved)(zero, zero, batch) for batch in batches])
    intercepts = np.array([moved(zero, zero, batch) for batch in batches])
    injected = float(jax.grad(moved, argnums=1)(zero, zero, batches[0]))
    assert abs(np.mean(slopes * intercepts)) < 1e-14
    assert abs(intercepts.mean()) < 1e-14
    return (np.mean(intercepts**2) + injected**2) / (1 - np.mean(slopes**2))


def test_sgld_with_multiplicative_noise_enumerated():
    N, h = len(X), 0.01
    A = (X**2).sum() / SIGMA2 + PRIOR
    V = N * (N - SIZE) / SIZE * np.var(X * Y / SIGMA2, ddof=1)
    W = N * (N - SIZE) / SIZE * np.var(X**2 / SIGMA2, ddof=1)
    law = (2 + h * V) / (2 * A - h * (A**2 + W))
    assert enumerated_sgld_variance(2 * h) == pytest.approx(law, rel=EXACT)


def test_moment_solver_agrees_with_enumeration():
    rows = from_rows((X**2 / SIGMA2)[:, None, None], (X * Y / SIGMA2)[:, None], SIZE, np.array([[PRIOR]]))
    solved = stationary_moments(Langevin(), rows, 0.02)[1][0, 0]
    assert solved == pytest.approx(enumerated_sgld_variance(0.02), rel=EXACT)


# Controls: a law test that cannot fail proves nothing.


@dataclass(frozen=True)
class TooLoud(Langevin):
    def move(self, motion, eps, noise):
        return super().move(motion, eps, noise * 1.001)


@dataclass(frozen=True)
class WrongFriction(SymmetricHamiltonian):
    def settle(self, motion, gradient, stats, eps, noise, t):
        return super().settle(motion, gradient, stats, eps, noise * 1.001, t)


@dataclass(frozen=True)
class WholeKicks(SymmetricHamiltonian):
    def move(self, motion, eps, noise):
        return super().move(replace(motion, gradient=2 * motion.gradient), eps, noise)


@pytest.mark.parametrize(
    ("dynamics", "law"),
    [
        (TooLoud(), sgld_law(2.0, 0.1, 0.0)),
        (WrongFriction(jnp.array(0.1), 5), 1 / (2.0 * (1 - 0.1 * 2.0 / 4))),
        (WholeKicks(jnp.array(0.1), 5), 1 / (2.0 * (1 - 0.1 * 2.0 / 4))),
    ],
)
def test_wrong_updates_are_caught(dynamics, law):
    assert abs(variance(dynamics, 2.0, 0.1) / law - 1) > 1e-4
