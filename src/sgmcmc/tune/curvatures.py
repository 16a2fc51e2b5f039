"""Second derivatives of the log likelihood and the log prior at a point: a matrix, or an arrow where parameters are of groups."""

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.second_order import BesidePrior, Matrix
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, Rows, flat, size, split, tree_map
from sgmcmc.problem.arrow import Arrow, ArrowWhitening, Layout, probes
from sgmcmc.problem.passes import compiled, full_sum
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import AnyWhitening, Whitening
from sgmcmc.rows.table import Table
from sgmcmc.tune.mode import as_tree

Curvature: TypeAlias = np.ndarray | Arrow
"""Minus second derivatives: a matrix of all numbers in their order, or an arrow in the order of its layout."""

VECTORS = 3
"""Vectors at random that tell an arrow from another matrix."""

NEARLY = 1e-3
"""What a whitening in single precision may miss the identity by: as much are variances off then."""

FLOOR = 0.02
"""Of a precision scaled to a unit diagonal: the least eigenvalue that is believed of curvatures averaged over some points."""


def likelihood_curvature(
    posterior: Posterior, table: Table, position: PyTree, layout: Layout | None, bar: Bar | None = None
) -> Curvature:
    """Of all rows, in float64."""
    if layout is None:
        return hessian_over(posterior, table, position, bar)
    given = jnp.asarray(probes(layout), float)
    program = partial(compiled(_products, posterior, layout), position, given)
    return Arrow.of_products(full_sum(program, table, bar, extra=16 * len(given)), layout)


def hessian_over(posterior: Posterior, table: Table, position: PyTree, bar: Bar | None = None) -> np.ndarray:
    """-∇²Σℓ over a table, in blocks of as many rows as there are numbers at least: adding up matrices takes time too."""
    d = size(position)
    total = full_sum(partial(compiled(negative_hessian, posterior), position), table, bar, extra=16 * d, least=d)
    return (total + total.T) / 2


def negative_hessian(posterior: Posterior, position: PyTree, rows: Rows) -> jax.Array:
    """-∇²Σℓ over a block of rows, as a matrix."""
    gradient = jax.grad(posterior.sum_of_rows)
    return -jax.jacfwd(lambda x: flat(gradient(split(x, position), rows)))(flat(position))


def prior_curvature_over(posterior: Posterior, positions: PyTree, layout: Layout | None) -> Curvature:
    """The prior's, averaged over positions on the first axis of the leaves."""
    if layout is None:
        found = np.asarray(compiled(_prior_hessians, posterior)(positions), np.float64)
        return (found + found.T) / 2
    given = jnp.asarray(probes(layout), float)
    return Arrow.of_products(np.asarray(compiled(_prior_products, posterior, layout)(positions, given), np.float64), layout)


def is_arrow(posterior: Posterior, table: Table, position: PyTree, layout: Layout, found: Arrow, seed: int) -> bool:
    """Whether an arrow is all there is of the likelihood's curvature: by its products with vectors at random."""
    vectors = _at_random(found, seed)
    program = partial(compiled(_products, posterior, layout), position, jnp.asarray(vectors, float))
    return _are_products(found, vectors, full_sum(program, table, extra=64))


def is_arrow_of_prior(posterior: Posterior, position: PyTree, layout: Layout, seed: int) -> bool:
    """Whether an arrow is all there is of the prior's curvature."""
    one = tree_map(lambda x: x[None], position)
    found = prior_curvature_over(posterior, one, layout)
    assert isinstance(found, Arrow)
    vectors = _at_random(found, seed)
    seen = compiled(_prior_products, posterior, layout)(one, jnp.asarray(vectors, float))
    return _are_products(found, vectors, np.asarray(seen, np.float64))


def _at_random(found: Arrow, seed: int) -> np.ndarray:
    scale = _units(found)
    return np.random.default_rng(seed).standard_normal((VECTORS, len(scale))) / scale


def _are_products(found: Arrow, vectors: np.ndarray, seen: np.ndarray) -> bool:
    """Number by number, each in its own units: a pair of groups among thousands that know each other is nothing beside all."""
    scale, products = _units(found), np.stack([np.asarray(found.times(vector), np.float64) for vector in vectors])
    return bool((np.abs(seen - products) / scale < 0.01 * np.maximum(np.abs(seen) / scale, 1.0)).all())


def _units(found: Arrow) -> np.ndarray:
    diagonal = np.abs(found.diagonal)
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def in_whitened(curvature: Curvature, whitening: AnyWhitening) -> Any:
    """The same in the variables of a whitening, as what acts on vectors."""
    if isinstance(whitening, ArrowWhitening):
        assert isinstance(curvature, Arrow)
        return tree_map(lambda x: jnp.asarray(x, float), whitening.of_quadratic(curvature))
    factor = np.asarray(whitening.factor, np.float64)
    return Matrix(jnp.asarray(factor.T @ np.asarray(curvature) @ factor, float))


def beside_prior(curvature: Curvature, prior: np.ndarray, whitening: AnyWhitening) -> BesidePrior | None:
    """The Hessian of the log likelihood without a matrix of its own, where the whitening makes that of the posterior minus the
    identity and the prior's is a diagonal, as given: seen by products with vectors at random. Else None.
    """
    if not isinstance(whitening, Whitening) or not whitening.dense:
        return None
    factor, z = np.asarray(whitening.factor, np.float64), np.random.default_rng(0).standard_normal((len(prior), VECTORS))
    away = factor @ z
    left = factor.T @ (np.asarray(curvature) @ away + prior[:, None] * away) - z
    if np.abs(left).max() > NEARLY * np.abs(z).max():
        return None
    return BesidePrior(split(jnp.asarray(prior, float), whitening.origin))


def positive(precision: Curvature) -> Curvature:
    """The same where it is positive definite by more than rounding; where it is not, with curvatures that are."""
    if not isinstance(precision, Arrow):
        return _floored(precision)
    within = np.stack([_floored(block) for block in precision.within])
    shift = np.linalg.solve(within, precision.coupling)
    own = np.einsum("jqk,jql->kl", precision.coupling, shift)
    left = precision.outer - own
    return Arrow(_floored(left, np.diag(precision.outer)) + own, precision.coupling, within)


def _floored(matrix: np.ndarray, diagonal: np.ndarray | None = None) -> np.ndarray:
    diagonal = np.abs(np.diag(matrix) if diagonal is None else diagonal)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    if len(values) and values[0] > 0:
        return matrix
    return (vectors * np.maximum(values, FLOOR)) @ vectors.T * np.outer(scale, scale)


def whitening_of(precision: Curvature, origin: PyTree, layout: Layout | None = None) -> AnyWhitening:
    """The whitening of a precision, a matrix, an arrow or a diagonal: L Lᵀ is its inverse."""
    if isinstance(precision, Arrow):
        assert layout is not None
        return ArrowWhitening.of(precision, origin, layout)
    if precision.ndim == 1:
        return Whitening(origin, as_tree(1 / np.sqrt(precision), origin), dense=False)
    scale = np.sqrt(np.diag(precision))
    lower = np.linalg.cholesky(precision / np.outer(scale, scale))
    return dense_whitening(np.linalg.inv(lower).T / scale[:, None], origin)


def dense_whitening(factor: np.ndarray, origin: PyTree) -> Whitening:
    """The whitening with a given matrix L."""
    return Whitening(origin, jnp.asarray(factor, jnp.result_type(float)), dense=True)


def _products(posterior: Posterior, layout: Layout, position: PyTree, vectors: jax.Array, rows: Rows) -> jax.Array:
    """Minus the Hessian of the log likelihood of some rows, times each vector, in the order of the layout."""
    gradient = jax.grad(lambda x: posterior.sum_of_rows(layout.of_vector(x, position), rows))
    at = layout.vector(position)
    return -jax.vmap(lambda v: jax.jvp(gradient, (at,), (v,))[1])(vectors)


def _prior_products(posterior: Posterior, layout: Layout, positions: PyTree, vectors: jax.Array) -> jax.Array:
    """Minus the Hessian of the log prior, averaged over positions, times each vector."""

    def at(position: PyTree) -> jax.Array:
        gradient = jax.grad(lambda x: posterior.log_density_prior(layout.of_vector(x, position)))
        x = layout.vector(position)
        return jax.lax.map(lambda v: jax.jvp(gradient, (x,), (v,))[1], vectors)

    return -jax.lax.map(at, positions).mean(axis=0)


def _prior_hessians(posterior: Posterior, positions: PyTree) -> jax.Array:
    def at(position: PyTree) -> jax.Array:
        return jax.hessian(lambda x: posterior.log_density_prior(split(x, position)))(flat(position))

    return -jax.lax.map(at, positions).mean(axis=0)
