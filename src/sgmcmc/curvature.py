"""The mathematics of a posterior's shape at one point: its precision, and the whitening that makes it a unit ball.

Nothing here loops over the data, compiles or prints; `survey` does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.centering import as_tree
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.trees import flat, split
from sgmcmc.core.types import PyTree, Rows
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening

HESSIAN_WORK = 4e9
"""Rows × d² that the dense Hessian may cost; with more rows a subsample gives the correlations and all rows the scales."""

ROUNDING = 1e-6
"""Of a likelihood's curvature scaled to a unit diagonal: what float32 rows cannot tell from nothing."""

INDEFINITE = 1e-2
"""A negative eigenvalue of the scaled curvature beyond this is no rounding: the point is a saddle, or off the mode."""

OPEN = 1e-12
"""Scaled precision below which neither rows nor prior say anything about a direction."""


def open_direction(names: list[str]) -> SgmcmcError:
    """What to say of a direction that neither the rows nor the prior determine, by the names with the largest part in it."""
    what = names[0] if len(names) == 1 else f"some combination of {', '.join(names)}"
    return SgmcmcError(
        f"neither the data nor the prior determine {what}: the log posterior is flat there, so the posterior is improper. With a "
        "flat prior, data that a plane separates do this, and columns that add up to each other. Give these parameters a proper "
        "log_prior, or leave one of them out"
    )


def hessian_rows(n_rows: int, dimension: int) -> int:
    """How many rows the dense Hessian is taken from."""
    return int(min(n_rows, max(HESSIAN_WORK / dimension**2, 10 * dimension)))


def negative_hessian(posterior: Posterior, position: PyTree, rows: Rows) -> jax.Array:
    """-∇²Σℓ over a block of rows, as a matrix."""

    def gradient(x: jax.Array) -> jax.Array:
        return flat(jax.grad(posterior.sum_of_rows)(split(x, position), rows))

    return -jax.jacfwd(gradient)(flat(position))


def along(posterior: Posterior, position: PyTree, direction: jax.Array, rows: Rows) -> jax.Array:
    """-∇²Σℓ over a block of rows, times a vector."""
    gradient = jax.grad(posterior.sum_of_rows)
    return -flat(jax.jvp(lambda p: gradient(p, rows), (position,), (split(direction, position),))[1])


def prior_along(posterior: Posterior, position: PyTree, direction: jax.Array) -> jax.Array:
    """-∇² of the log prior, times a vector."""
    gradient = jax.grad(posterior.log_density_prior)
    return -flat(jax.jvp(gradient, (position,), (split(direction, position),))[1])


def is_indefinite(likelihood: np.ndarray, prior: np.ndarray) -> bool:
    """Whether the posterior bends upwards somewhere, by more than rounding."""
    total = likelihood + prior
    diagonal = np.diag(total)
    if not (diagonal > 0).all():
        return True
    scale = np.sqrt(diagonal)
    return bool(np.linalg.eigvalsh(total / np.outer(scale, scale))[0] < -INDEFINITE)


def with_floor(likelihood: np.ndarray, prior: np.ndarray, names: list[str]) -> np.ndarray:
    """The posterior's precision, positive definite: what rounding leaves of the rows' curvature gives way to the prior's."""
    diagonal = np.diag(likelihood + prior)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(likelihood / np.outer(scale, scale))
    values = np.where(values > ROUNDING * max(values[-1], 0), values, 0.0)
    total = (vectors * values) @ vectors.T + prior / np.outer(scale, scale)
    smallest, directions = np.linalg.eigh(total)
    if smallest[0] < OPEN:
        part = np.abs(directions[:, 0])
        largest = np.argsort(part)[::-1][:4]
        raise open_direction([names[i] for i in largest if part[i] > 0.1])
    return total * np.outer(scale, scale)


def whitening_of(precision: np.ndarray, origin: PyTree) -> Whitening:
    """The whitening of a precision matrix, or of a diagonal: L Lᵀ is its inverse."""
    if precision.ndim == 1:
        return Whitening(origin, as_tree(1 / np.sqrt(precision), origin), dense=False)
    scale = np.sqrt(np.diag(precision))
    lower = np.linalg.cholesky(precision / np.outer(scale, scale))
    return dense_whitening(np.linalg.inv(lower).T / scale[:, None], origin)


def dense_whitening(factor: np.ndarray, origin: PyTree) -> Whitening:
    """The whitening with a given matrix L."""
    return Whitening(origin, jnp.asarray(factor, jnp.result_type(float)), dense=True)
