"""Curvatures as arrows and as matrices: the same, and made positive where they are not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc import constraints
from sgmcmc.core.trees import flat, split
from sgmcmc.problem.arrow import Arrow, Layout
from sgmcmc.run.request import Problem
from sgmcmc.tune.curvatures import in_whitened, likelihood_curvature, positive, prior_curvature_over, whitening_of

pytestmark = pytest.mark.usefixtures("x64")

J = 4
RNG = np.random.default_rng(6)
DATA = {"g": np.arange(40, dtype=np.int32) % J, "x": RNG.normal(size=40), "y": RNG.poisson(1.0, 40).astype(float)}
PARAMS = {"a": 0.2, "mu": np.array([0.1, -0.2]), "s": np.array([0.7, 1.3]), "w": 0.3 * RNG.normal(size=(J, 2))}
LAYOUT = Layout((None, None, None, 0), ((), (2,), (2,), (J, 2)))


def log_lik(p, batch):
    w = p["w"][batch["g"]]
    eta = p["a"] + w[:, 0] + w[:, 1] * batch["x"]
    return batch["y"] * eta - jnp.exp(eta)


def log_prior(p):
    z = (p["w"] - p["mu"]) / p["s"]
    return -0.5 * (z**2).sum() - J * jnp.log(p["s"]).sum() - 0.5 * p["a"] ** 2 - 0.5 * (p["mu"] ** 2).sum() - p["s"].sum()


@pytest.fixture(scope="module")
def problem():
    with jax.enable_x64(True):
        return Problem.of(log_lik, DATA, PARAMS, log_prior, {"s": constraints.positive})


def dense(arrow):
    """In the order of the layout."""
    k, q = len(arrow.outer), arrow.within.shape[1]
    A = np.zeros((k + J * q,) * 2)
    A[:k, :k] = arrow.outer
    for j in range(J):
        own = slice(k + j * q, k + (j + 1) * q)
        A[own, own], A[own, :k], A[:k, own] = arrow.within[j], arrow.coupling[j], arrow.coupling[j].T
    return A


def hessians(problem, positions):
    """-∇² of log likelihood and of log prior by autodiff, the latter averaged over positions, in the order of the layout."""
    order, rows = LAYOUT.order(problem.position), {name: jnp.asarray(column) for name, column in DATA.items()}
    posterior = problem.posterior
    here, first = flat(problem.position), problem.position
    likelihood = -jax.hessian(lambda x: posterior.sum_of_rows(split(x, first), rows))(here)
    each = [-jax.hessian(lambda x: posterior.log_density_prior(split(x, first)))(flat(one)) for one in positions]
    return tuple(np.asarray(H)[np.ix_(order, order)] for H in (likelihood, sum(each) / len(each)))


def test_arrows_and_matrices_are_the_hessians(problem):
    order = LAYOUT.order(problem.position)
    positions = [jax.tree.map(lambda x, t=t: x + 0.1 * t, problem.position) for t in range(3)]
    together = jax.tree.map(lambda *x: jnp.stack(x), *positions)
    likelihood, prior = hessians(problem, positions)
    for layout, shape in ((LAYOUT, dense), (None, lambda H: H[np.ix_(order, order)])):
        found = likelihood_curvature(problem.posterior, problem.table, problem.position, layout)
        np.testing.assert_allclose(shape(found), likelihood, atol=1e-10)
        np.testing.assert_allclose(shape(prior_curvature_over(problem.posterior, together, layout)), prior, atol=1e-10)


def test_in_whitened_variables_both_act_alike(problem):
    arrow = likelihood_curvature(problem.posterior, problem.table, problem.position, LAYOUT)
    matrix = likelihood_curvature(problem.posterior, problem.table, problem.position, None)
    unit = Arrow(np.eye(5), np.zeros((J, 2, 5)), np.stack([np.eye(2)] * J))
    whitening = whitening_of(arrow + unit, problem.position, LAYOUT)
    z = np.random.default_rng(0).normal(size=LAYOUT.size)
    L = np.asarray(whitening.factor)
    np.testing.assert_allclose(in_whitened(arrow, whitening).times(z), L.T @ matrix @ L @ z, atol=1e-10)
    by_matrix = whitening_of(matrix + np.eye(13), problem.position)
    factor = np.asarray(by_matrix.factor)
    np.testing.assert_allclose(in_whitened(matrix, by_matrix).times(z), factor.T @ matrix @ factor @ z, atol=1e-10)


def test_what_is_positive_stays_and_what_is_not_becomes_so(problem):
    arrow = likelihood_curvature(problem.posterior, problem.table, problem.position, LAYOUT)
    good = arrow + Arrow(np.eye(5), np.zeros((J, 2, 5)), np.stack([np.eye(2)] * J))
    np.testing.assert_allclose(dense(positive(good)), dense(good), rtol=1e-12, atol=1e-12)
    matrix = dense(good)
    np.testing.assert_array_equal(positive(matrix), matrix)
    outer, within = np.array(good.outer), np.array(good.within)
    outer[3, 3], within[2] = -0.5, np.array([[1.0, 2.0], [2.0, 1.0]])
    for bad in (Arrow(outer, good.coupling, good.within), Arrow(good.outer, good.coupling, within)):
        assert np.linalg.eigvalsh(dense(bad))[0] < 0, "the control"
        repaired = positive(bad)
        assert np.linalg.eigvalsh(dense(repaired))[0] > 0
        L = np.asarray(whitening_of(repaired, problem.position, LAYOUT).factor)
        order = LAYOUT.order(problem.position)
        np.testing.assert_allclose(L[order].T @ dense(repaired) @ L[order], np.eye(13), atol=1e-9)
        assert np.linalg.eigvalsh(positive(dense(bad)))[0] > 0
