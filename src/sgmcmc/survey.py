"""A look at the posterior before sampling: its mode, its full gradient there, its curvature."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.centering import LARGEST_DENSE, fisher_information, prior_curvature
from sgmcmc.checkpoints.packing import packable
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar, Progress
from sgmcmc.core.trees import flat, number_names, size
from sgmcmc.core.types import PyTree
from sgmcmc.curvature import (
    hessian_rows,
    is_indefinite,
    negative_hessian,
    open_direction,
    whitening_of,
    with_floor,
)
from sgmcmc.mode import TOLERANCE, find_mode, keeps_climbing
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening
from sgmcmc.rows.sources import subsample
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import compiled, full_gradient, full_sum


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


def take_survey(
    posterior: Posterior, arrays: Table, start: PyTree, seed: int, progress: Progress, diagonal: bool = False
) -> Survey:
    """Mode, full gradient, curvature: bounded work, and an error where there is no posterior to sample."""
    mode = find_mode(posterior, arrays, start, seed, progress)
    if not mode.converged and keeps_climbing(posterior, arrays, start, mode.position):
        raise SgmcmcError(
            "the log posterior keeps rising without end along a line from the starting values: the posterior has no mode, and is "
            "probably improper. Data that a plane separates do this to a logistic regression with a flat prior. Give a proper "
            "log_prior, such as lambda params: -0.5 * (params['beta'] ** 2).sum()"
        )
    with Bar(progress, "full gradient", posterior.n_rows, "row") as bar:
        gradient = full_gradient(posterior, mode.position, arrays, bar)
    centre = Centre(mode.position, gradient, jnp.asarray(mode.distance, float), jnp.asarray(mode.converged))
    precision, kind = curvature_at(posterior, arrays, mode.position, seed, progress, diagonal)
    if not mode.converged and kind == "hessian":  # a perfect fit has no Fisher information, yet a Hessian
        slope = flat(gradient) + flat(jax.grad(posterior.log_density_prior)(mode.position))
        distance = float(slope @ np.linalg.solve(precision, slope)) / len(slope)
        centre = Centre(mode.position, gradient, jnp.asarray(distance, float), jnp.asarray(distance < TOLERANCE))
    return Survey(centre, precision, kind, mode.passes)


def curvature_at(
    posterior: Posterior, arrays: Table, position: PyTree, seed: int, progress: Progress, diagonal: bool
) -> tuple[np.ndarray, str]:
    """The posterior's precision at a point, and whether it is the Hessian or the Fisher information."""
    d, names = size(position), number_names(position)
    dense = d <= LARGEST_DENSE and not diagonal
    fisher = compiled(fisher_information, posterior, 2)
    prior = np.asarray(compiled(prior_curvature, posterior, 1)(position, dense), np.float64)
    with Bar(progress, "curvature", posterior.n_rows, "row") as bar:

        def information(dense: bool) -> np.ndarray:
            return full_sum(lambda rows: fisher(position, rows, dense), arrays, bar, extra=8 * d)

        if not dense:
            total = information(False) + prior
            if not (total > 0).all():
                raise open_direction([names[int(np.argmin(total))]])
            return total, "fisher"
        likelihood = _hessian(posterior, arrays, position, seed, bar, information)
        kind = "hessian"
        if is_indefinite(likelihood, prior):
            likelihood, kind = information(True), "fisher"
    return with_floor(likelihood, prior, names), kind


def _hessian(posterior: Posterior, arrays: Table, position: PyTree, seed: int, bar: Bar, information) -> np.ndarray:
    """-∇² of the log likelihood. From a subsample where all rows would cost too much; then all of them give the diagonal's
    scale, since a column that is rare (three rows of a million) is not in a subsample.
    """
    d = size(position)
    hessian = compiled(negative_hessian, posterior)
    used = subsample(arrays, hessian_rows(posterior.n_rows, d), seed)
    count = used.total_rows
    total = full_sum(lambda rows: hessian(position, rows), used, bar, extra=16 * d)
    total = (total + total.T) / 2
    if count == posterior.n_rows:
        return total
    fisher = compiled(fisher_information, posterior, 2)
    seen = full_sum(lambda rows: fisher(position, rows, False), used, extra=8 * d)
    every = information(False)
    stretch = np.sqrt(np.where(seen > 0, every / np.where(seen > 0, seen, 1), 0.0))
    missed = np.where(seen > 0, 0.0, every)
    return total * np.outer(stretch, stretch) + np.diag(missed)
