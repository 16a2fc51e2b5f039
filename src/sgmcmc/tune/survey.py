"""Where the posterior is and what shape it has there: the mode, the full gradient and the curvature at it."""

from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, flat, leaf_names, size
from sgmcmc.problem.arrow import Layout
from sgmcmc.problem.passes import FullPasses, compiled, full_sum
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import AnyWhitening
from sgmcmc.results.packing import packable
from sgmcmc.rows.sources import subsample
from sgmcmc.rows.table import Table
from sgmcmc.run.request import Problem
from sgmcmc.tune.anchor import find_anchor
from sgmcmc.tune.curvatures import Curvature, hessian_over, whitening_of
from sgmcmc.tune.mode import (
    LARGEST_DENSE,
    LARGEST_METRIC,
    LENGTHS,
    TOLERANCE,
    Ascent,
    bends_everywhere,
    endless_ascent,
    find_mode,
    fisher_information,
    prior_curvature,
)
from sgmcmc.tune.structure import groups_of, unseen_by_prior, unseen_by_rows

HESSIAN_WORK, HESSIAN_ROWS = 4e9, 100
"""Rows × d² that the dense Hessian may cost, and rows per parameter that it is taken from in any case: with fewer its
eigenvalues say little. Of more rows a subsample gives the correlations and all rows the scales."""

ROUNDING = 1e-6
"""Of a likelihood's curvature scaled to a unit diagonal: what float32 rows cannot tell from nothing."""

INDEFINITE = 1e-2
"""A negative eigenvalue of the scaled curvature beyond this is no rounding: the point is a saddle, or off the mode."""

SURELY = 1e-3
"""Scaled precision that is far from what rounding could make of nothing."""

OPEN = 1e-12
"""Scaled precision below which neither rows nor prior say anything about a direction."""


@packable
@dataclass(frozen=True)
class Survey:
    """The mode (or where the search ended) after so many passes over the data and looks at a subsample, with the full gradient
    there; the posterior's precision, a matrix or its diagonal, or an arrow in the order of a `layout`; and where that came from:
    `"fisher"` where the `"hessian"` is not positive definite, `"anchor"` where the centre is none but in the middle of the mass.
    `likelihood` is the part of all rows in it, where that is known exactly.
    """

    centre: Centre
    precision: Curvature
    curvature: str
    passes: int
    looks: int
    likelihood: Curvature | None = None
    layout: Layout | None = None

    @property
    def whitening(self) -> AnyWhitening:
        return whitening_of(self.precision, self.centre.position, self.layout)

    @property
    def work(self) -> str:
        """What the search for the mode took, in words."""
        return f"{self.passes} passes over the data" + (f", after {self.looks} over a sample of the rows" if self.looks else "")

    @property
    def sentence(self) -> str:
        """What it found, in words."""
        if self.curvature == "anchor":
            groups = "" if self.layout is None else f", with {self.layout.own} of {self.layout.groups:,} groups each on its own"
            shape = "Centre and shape are those of a Gaussian fitted in the middle of the mass"
            return f"The model has parameters of groups or of effects: no mode was looked for. {shape}{groups} ({self.work})."
        kind = "second derivatives" if self.curvature == "hessian" else "squared gradients (Fisher information)"
        return f"The mode was found in {self.work}; the posterior's shape there comes from {kind}."

    @property
    def peaked(self) -> bool:
        """Whether a mode was found, at which the posterior bends down in all directions."""
        return bool(self.centre.converged) and self.curvature == "hessian"


def take_survey(problem: Problem, seed: int, progress: Progress, diagonal: bool = False, anchored: bool = False) -> Survey:
    """Mode, full gradient, curvature: bounded work, and an error where there is no posterior to sample. If `anchored`, of a
    hierarchy not the mode but a centre in the middle of the mass, and the shape of an arrow where there are groups.
    """
    posterior, table, start = problem.posterior, problem.table, problem.position
    if anchored and (found := _anchored(problem, seed, progress)) is not None:
        return found
    mode = find_mode(posterior, table, start, seed, progress)
    ascent = None if mode.converged else endless_ascent(posterior, table, start, mode)
    if ascent is not None:
        raise improper(ascent)
    centre = ControlVariate().init(posterior, mode.position, FullPasses(table, progress))
    diagonal = diagonal or (size(start) > LARGEST_METRIC and not mode.converged)  # of no use for as much work
    precision, kind, likelihood = curvature_at(posterior, table, mode.position, seed, progress, diagonal)
    distance, converged = mode.distance, mode.converged
    if not converged and kind == "hessian":  # a perfect fit has no Fisher information, yet a Hessian
        slope = flat(centre.gradient) + flat(posterior.prior_gradient(mode.position))
        distance = float(slope @ np.linalg.solve(precision, slope)) / len(slope)
        converged = distance < TOLERANCE
    centre = replace(centre, distance=jnp.asarray(distance, float), converged=jnp.asarray(converged))
    return Survey(centre, precision, kind, mode.passes, mode.looks, likelihood)


def _anchored(problem: Problem, seed: int, progress: Progress) -> Survey | None:
    """The survey of a model with parameters of groups, or with parameters that no row knows; None for others."""
    posterior, table, start = problem.posterior, problem.table, problem.position
    layout, unseen = groups_of(posterior, table, start, seed), unseen_by_rows(posterior, table, start)
    open_leaves = zip(leaf_names(start), unseen, unseen_by_prior(posterior, start), strict=True)
    if alone := [name for name, no_row, no_prior in open_leaves if no_row and no_prior]:
        raise open_direction(alone[:1])
    if (layout is None and (size(start) > LARGEST_DENSE or not any(unseen))) or all(unseen):
        return None
    anchor = find_anchor(problem, layout, unseen, seed, progress)
    if anchor is None:
        return None
    centre = replace(anchor.centre, distance=jnp.asarray(0.0, float))
    return Survey(centre, anchor.precision, "anchor", anchor.passes, anchor.looks, anchor.likelihood, anchor.layout)


def improper(ascent: Ascent) -> SgmcmcError:
    """What to say of a posterior without a mode, and without a prior that could make it proper."""
    along = ", ".join(ascent.parameters)
    found = (
        f"the log posterior keeps rising without end along {along}: by {ascent.risen:.3g} over a distance of {ascent.moved:.3g}"
    )
    further = f"and up to {LENGTHS[-1]:.0f} times as far the likelihood does not fall, and the prior does not change"
    why = "Data that a plane separates do this to a logistic regression with a flat prior"
    repair = "Give these parameters a proper log_prior, such as lambda params: -0.5 * (params['beta'] ** 2).sum()"
    return SgmcmcError(f"{found}, {further}. So the posterior has no mode and is improper. {why}. {repair}")


def curvature_at(
    posterior: Posterior, table: Table, position: PyTree, seed: int, progress: Progress, diagonal: bool
) -> tuple[np.ndarray, str, np.ndarray | None]:
    """The posterior's precision at a point, whether it is the Hessian or the Fisher information, and the rows' part in that where
    it is the Hessian of all of them.
    """
    names, dense = posterior.names.numbers(position), size(position) <= LARGEST_DENSE and not diagonal
    prior = prior_curvature(posterior, dense, position)
    with Bar(progress, "curvature", posterior.n_rows, "row") as bar:
        if not dense:
            total = _information(posterior, False, position, table, bar) + prior
            if not (total > 0).all():
                raise open_direction([names[int(np.argmin(total))]])
            return total, "fisher", None
        likelihood, kind = _hessian(posterior, position, table, seed, bar), "hessian"
        exact = likelihood if hessian_rows(posterior.n_rows, size(position)) == posterior.n_rows else None
        if is_indefinite(likelihood, prior):
            likelihood, kind = _information(posterior, True, position, table, bar), "fisher"
    return with_floor(likelihood, prior, names), kind, exact


def _information(posterior: Posterior, dense: bool, position: PyTree, table: Table, bar: Bar | None = None) -> np.ndarray:
    d, program = size(position), partial(compiled(fisher_information, posterior, dense), position)
    return full_sum(program, table, bar, extra=8 * d, least=d if dense else 1)


def _hessian(posterior: Posterior, position: PyTree, table: Table, seed: int, bar: Bar) -> np.ndarray:
    """-∇² of the log likelihood. From a subsample where all rows would cost too much; then all of them give the diagonal's
    scale, since a column that is rare (three rows of a million) is not in a subsample.
    """
    d = size(position)
    used = subsample(table, hessian_rows(posterior.n_rows, d), seed)
    total = hessian_over(posterior, used, position, bar)
    if used.total_rows == posterior.n_rows:
        return total
    seen, every = _information(posterior, False, position, used), _information(posterior, False, position, table, bar)
    stretch = np.sqrt(np.where(seen > 0, every / np.where(seen > 0, seen, 1), 0.0))
    return total * np.outer(stretch, stretch) + np.diag(np.where(seen > 0, 0.0, every))


def open_direction(names: list[str]) -> SgmcmcError:
    """What to say of a direction that neither the rows nor the prior determine, by the names with the largest part in it."""
    what = names[0] if len(names) == 1 else f"some combination of {', '.join(names)}"
    found = f"neither the data nor the prior determine {what}: the log posterior is flat there, so the posterior is improper"
    why = "With a flat prior, data that a plane separates do this, and columns that add up to each other"
    return SgmcmcError(f"{found}. {why}. Give these parameters a proper log_prior, or leave one of them out")


def hessian_rows(n_rows: int, dimension: int) -> int:
    """How many rows the dense Hessian is taken from."""
    return int(min(n_rows, max(HESSIAN_WORK / dimension**2, HESSIAN_ROWS * dimension)))


def is_indefinite(likelihood: np.ndarray, prior: np.ndarray) -> bool:
    """Whether the posterior bends upwards somewhere, by more than rounding."""
    total = likelihood + prior
    diagonal = np.diag(total)
    if not (diagonal > 0).all():
        return True
    scale = np.sqrt(diagonal)
    scaled = total / np.outer(scale, scale)
    return not bends_everywhere(scaled, -INDEFINITE) and bool(np.linalg.eigvalsh(scaled)[0] < -INDEFINITE)


def with_floor(likelihood: np.ndarray, prior: np.ndarray, names: list[str]) -> np.ndarray:
    """The posterior's precision, positive definite: what rounding leaves of the rows' curvature gives way to the prior's."""
    diagonal = np.diag(likelihood + prior)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    if bends_everywhere((likelihood + prior) / np.outer(scale, scale), SURELY):
        return likelihood + prior
    values, vectors = np.linalg.eigh(likelihood / np.outer(scale, scale))
    values = np.where(values > ROUNDING * max(values[-1], 0), values, 0.0)
    total = (vectors * values) @ vectors.T + prior / np.outer(scale, scale)
    smallest, directions = np.linalg.eigh(total)
    if smallest[0] < OPEN:
        part = np.abs(directions[:, 0])
        if not speaks(prior, directions[:, 0] / scale):
            largest = np.argsort(part)[::-1][:4]
            raise open_direction([names[i] for i in largest if part[i] > 0.1])
        total = (directions * np.maximum(smallest, OPEN)) @ directions.T  # determined, if by no more than rounding can tell
    return total * np.outer(scale, scale)


def speaks(prior: np.ndarray, direction: np.ndarray) -> bool:
    """Whether a prior's precision has something to say about a direction, however little beside the rows."""
    own, known = direction**2 * np.diag(prior), np.diag(prior) > 0
    along = direction @ prior @ direction
    return bool(np.sum(direction[known] ** 2) > 0.5 * np.sum(direction**2) and along > 1e-6 * own.sum() > 0)
