"""The mathematics of finding a centre for the control variates: block sums, a metric, a quasi-Newton direction.

Nothing here loops over the data, compiles or prints; `mode` does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import flat, split
from sgmcmc.core.types import PyTree, Rows
from sgmcmc.problem.posterior import Posterior

LARGEST_DENSE = 2000
"""Up to this many parameters the metric is a full matrix; beyond, its diagonal."""

ROWS_PER_PARAMETER = 10
"""With fewer rows than this the information matrix is (nearly) singular, and its diagonal says more."""

SMALLEST_EIGENVALUE = 1e-7
"""Of the metric scaled to a unit diagonal: what rounding leaves of a direction that nothing determines."""

KINK = 0.1
"""Posterior standard deviations within which a sign change of the prior's gradient counts as a kink at the optimum."""


def value_and_gradient(posterior: Posterior, position: PyTree, rows: Rows) -> tuple[jax.Array, jax.Array]:
    """The log likelihood of a block and its gradient as one vector."""
    value, gradient = jax.value_and_grad(posterior.sum_of_rows)(position, rows)
    return value, flat(gradient)


def prior_value_and_gradient(posterior: Posterior, position: PyTree) -> tuple[jax.Array, jax.Array]:
    """The log prior of the position and its gradient as one vector."""
    value, gradient = jax.value_and_grad(posterior.log_density_prior)(position)
    return value, flat(gradient)


def fisher_information(posterior: Posterior, position: PyTree, rows: Rows, dense: bool) -> jax.Array:
    """Σ g_i g_iᵀ over a block of rows, or its diagonal."""
    gradients = jax.vmap(flat)(posterior.row_gradients(position, rows))
    return gradients.T @ gradients if dense else jnp.sum(gradients**2, axis=0)


def prior_curvature(posterior: Posterior, position: PyTree, dense: bool) -> jax.Array:
    """The prior's precision, a matrix or its diagonal: its Hessian by size, and where that is silent its squared gradients.

    The squares are the prior's own Fisher information. The paper's Laplace prior has no Hessian, yet alone decides
    directions that the data leave open, such as those of indicator columns that sum to 1.
    """
    vector = flat(position)

    def log_density(x: jax.Array) -> jax.Array:
        return posterior.log_density_prior(split(x, position))

    gradient = jax.grad(log_density)
    hair = 1e-6 * (1 + jnp.abs(vector))  # to look at either side of a kink
    squares = jnp.nan_to_num(jnp.maximum(gradient(vector + hair) ** 2, gradient(vector - hair) ** 2))
    if not dense:
        bends = jnp.abs(
            jax.jvp(gradient, (vector,), (jnp.ones_like(vector),))[1]
        )  # the diagonal, of a prior without correlations
        return jnp.where(bends < 1e-6 * squares, squares, bends)
    hessian = jax.hessian(log_density)(vector)
    values, vectors = jnp.linalg.eigh(hessian)
    silent = jnp.abs(jnp.diagonal(hessian)) < 1e-6 * squares
    return (vectors * jnp.abs(values)) @ vectors.T + jnp.diag(jnp.where(silent, squares, 0.0))


def curvature_along(posterior: Posterior, position: PyTree, direction: PyTree, rows: Rows) -> jax.Array:
    """How fast the log likelihood of a block bends down along a direction."""
    gradient = jax.grad(posterior.sum_of_rows)
    bend = jax.jvp(lambda p: gradient(p, rows), (position,), (direction,))[1]
    return -jnp.dot(flat(bend), flat(direction))


def dense_metric(dimension: int, rows: int) -> bool:
    """Whether the rows can tell all directions apart, and the matrix is small enough to solve with."""
    return dimension <= LARGEST_DENSE and rows >= ROWS_PER_PARAMETER * dimension


@dataclass(frozen=True)
class Metric:
    """A positive definite stand-in for the posterior's precision: what turns gradients into posterior standard deviations.

    `scale` holds the square roots of its diagonal; `values` and `vectors` the eigenvectors of what is left (None: nothing);
    `silent` marks parameters of which neither rows nor prior say anything here.
    """

    scale: np.ndarray
    values: np.ndarray | None = None
    vectors: np.ndarray | None = None
    silent: np.ndarray | None = None

    @staticmethod
    def of(information: np.ndarray, curvature: np.ndarray) -> Metric:
        """Fisher information of the rows plus the prior's."""
        total = information + curvature
        diagonal = total if total.ndim == 1 else np.diag(total)
        scale, silent = _unit_where_zero(diagonal), None if (diagonal > 0).all() else diagonal <= 0
        if total.ndim == 1:
            return Metric(scale, silent=silent)
        values, vectors = np.linalg.eigh(total / np.outer(scale, scale))
        return Metric(scale, np.maximum(values, SMALLEST_EIGENVALUE), vectors, silent)

    def solve(self, vector: np.ndarray) -> np.ndarray:
        scaled = vector / self.scale
        if self.values is not None and self.vectors is not None:
            scaled = self.vectors @ ((self.vectors.T @ scaled) / self.values)
        return scaled / self.scale

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation of each parameter given the others: a lower bound on its posterior one."""
        return 1 / self.scale

    def distance(self, gradient: np.ndarray) -> float:
        """gᵀM⁻¹g/d: the squared distance to the optimum in posterior standard deviations, per parameter."""
        return float(gradient @ self.solve(gradient)) / len(gradient)


def _unit_where_zero(diagonal: np.ndarray) -> np.ndarray:
    """Square roots, but 1 for a parameter that nothing says anything about."""
    return np.where(diagonal > 0, np.sqrt(np.maximum(diagonal, 0)), 1.0)


@dataclass
class QuasiNewton:
    """L-BFGS directions on top of a metric: M⁻¹g, corrected by what the last steps showed of the curvature."""

    metric: Metric
    memory: int = 20
    pairs: deque[tuple[np.ndarray, np.ndarray]] = field(default_factory=deque)

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        q, weights = gradient.copy(), []
        for s, y in reversed(self.pairs):
            weights.append((s @ q) / (s @ y))
            q -= weights[-1] * y
        r = self.metric.solve(q)
        for (s, y), weight in zip(self.pairs, reversed(weights), strict=True):
            r += s * (weight - (y @ r) / (s @ y))
        return r

    def learn(self, step: np.ndarray, drop: np.ndarray) -> None:
        """Remember a step and how much the gradient dropped over it, where that shows positive curvature."""
        if step @ drop > 1e-10 * np.linalg.norm(step) * np.linalg.norm(drop):
            self.pairs.append((step, drop))
            if len(self.pairs) > self.memory:
                self.pairs.popleft()


def without_kinks(gradient: np.ndarray, prior: np.ndarray, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The gradient, with zeros where it changes sign within a hair of here because the prior has a kink.

    `prior`, `below` and `above` are the prior's gradients here and `KINK` standard deviations to either side. The Laplace
    prior of the paper has its kink at 0, where the mode of a weak coefficient sits: the gradient is never small there.
    """
    sides = np.stack([gradient, gradient - prior + below, gradient - prior + above])
    return np.where(sides.min(axis=0) * sides.max(axis=0) <= 0, 0.0, gradient)


def subsample_size(n_rows: int, dimension: int) -> int:
    """Rows enough to say where the mode roughly is."""
    return min(n_rows, max(10_000, min(200 * dimension, 200_000)))


def as_tree(vector: np.ndarray, like: Any) -> PyTree:
    """A host vector as a tree of device arrays."""
    return split(jnp.asarray(vector, jnp.result_type(float)), like)
