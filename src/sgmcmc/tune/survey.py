"""A look at the posterior before sampling: its mode, its full gradient there, its curvature."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.checkpoints.packing import packable
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, Rows, flat, number_names, size, split
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening
from sgmcmc.rows.sources import subsample
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import FullPasses, compiled, full_sum
from sgmcmc.run.request import Problem
from sgmcmc.tune.mode import LARGEST_DENSE, TOLERANCE, as_tree, find_mode, fisher_information, keeps_climbing, prior_curvature

HESSIAN_WORK = 4e9
"""Rows × d² that the dense Hessian may cost; with more rows a subsample gives the correlations and all rows the scales."""

ROUNDING = 1e-6
"""Of a likelihood's curvature scaled to a unit diagonal: what float32 rows cannot tell from nothing."""

INDEFINITE = 1e-2
"""A negative eigenvalue of the scaled curvature beyond this is no rounding: the point is a saddle, or off the mode."""

OPEN = 1e-12
"""Scaled precision below which neither rows nor prior say anything about a direction."""


@packable
@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        centre: the mode (or where the search ended), and the full gradient there.
        precision: the posterior's precision there, a matrix or its diagonal.
        curvature: where that came from: `"hessian"`, or `"fisher"` where the Hessian is not positive definite.
        passes: full passes over the data that the search took.
    """

    centre: Centre
    precision: np.ndarray
    curvature: str
    passes: int

    @property
    def whitening(self) -> Whitening:
        return whitening_of(self.precision, self.centre.position)


def take_survey(problem: Problem, seed: int, progress: Progress, diagonal: bool = False) -> Survey:
    """Mode, full gradient, curvature: bounded work, and an error where there is no posterior to sample."""
    posterior, table, start = problem.posterior, problem.table, problem.position
    mode = find_mode(posterior, table, start, seed, progress)
    if not mode.converged and keeps_climbing(posterior, table, start, mode.position):
        raise SgmcmcError(
            "the log posterior keeps rising without end along a line from the starting values: the posterior has no mode, and is "
            "probably improper. Data that a plane separates do this to a logistic regression with a flat prior. Give a proper "
            "log_prior, such as lambda params: -0.5 * (params['beta'] ** 2).sum()"
        )
    centre = ControlVariate().init(posterior, mode.position, FullPasses(table, progress))
    precision, kind = curvature_at(posterior, table, mode.position, seed, progress, diagonal)
    distance, converged = mode.distance, mode.converged
    if not converged and kind == "hessian":  # a perfect fit has no Fisher information, yet a Hessian
        slope = flat(centre.gradient) + flat(posterior.prior_gradient(mode.position))
        distance = float(slope @ np.linalg.solve(precision, slope)) / len(slope)
        converged = distance < TOLERANCE
    centre = replace(centre, distance=jnp.asarray(distance, float), converged=jnp.asarray(converged))
    return Survey(centre, precision, kind, mode.passes)


def curvature_at(
    posterior: Posterior, table: Table, position: PyTree, seed: int, progress: Progress, diagonal: bool
) -> tuple[np.ndarray, str]:
    """The posterior's precision at a point, and whether it is the Hessian or the Fisher information."""
    names, dense = number_names(position), size(position) <= LARGEST_DENSE and not diagonal
    prior = np.asarray(compiled(prior_curvature, posterior, dense)(position), np.float64)
    with Bar(progress, "curvature", posterior.n_rows, "row") as bar:
        if not dense:
            total = _information(posterior, False, position, table, bar) + prior
            if not (total > 0).all():
                raise open_direction([names[int(np.argmin(total))]])
            return total, "fisher"
        likelihood, kind = _hessian(posterior, position, table, seed, bar), "hessian"
        if is_indefinite(likelihood, prior):
            likelihood, kind = _information(posterior, True, position, table, bar), "fisher"
    return with_floor(likelihood, prior, names), kind


def _information(posterior: Posterior, dense: bool, position: PyTree, table: Table, bar: Bar | None = None) -> np.ndarray:
    return full_sum(partial(compiled(fisher_information, posterior, dense), position), table, bar, extra=8 * size(position))


def _hessian(posterior: Posterior, position: PyTree, table: Table, seed: int, bar: Bar) -> np.ndarray:
    """-∇² of the log likelihood. From a subsample where all rows would cost too much; then all of them give the diagonal's
    scale, since a column that is rare (three rows of a million) is not in a subsample.
    """
    d = size(position)
    used = subsample(table, hessian_rows(posterior.n_rows, d), seed)
    total = full_sum(partial(compiled(negative_hessian, posterior), position), used, bar, extra=16 * d)
    total = (total + total.T) / 2
    if used.total_rows == posterior.n_rows:
        return total
    seen, every = _information(posterior, False, position, used), _information(posterior, False, position, table, bar)
    stretch = np.sqrt(np.where(seen > 0, every / np.where(seen > 0, seen, 1), 0.0))
    return total * np.outer(stretch, stretch) + np.diag(np.where(seen > 0, 0.0, every))


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
    gradient = jax.grad(posterior.sum_of_rows)
    return -jax.jacfwd(lambda x: flat(gradient(split(x, position), rows)))(flat(position))


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
