"""What a sampler may ask for at set-up beside its own arguments: whitened variables, rows by importance, an automatic step."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.kernel import Dynamics
from sgmcmc.algorithms.laws import Directions, added_by_step, directions, inflation, largest_step, representative
from sgmcmc.checkpoints.places import Place
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, join, size, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import per_parameter
from sgmcmc.problem.whitening import Whitening
from sgmcmc.results.words import Decisions
from sgmcmc.rows.importance import Importance
from sgmcmc.rows.table import Table
from sgmcmc.tune.design import FEWEST_ROWS, largest_curvature
from sgmcmc.tune.pilot import Pilot, posterior_points
from sgmcmc.tune.starts import Surveyed, warn_of_distance
from sgmcmc.tune.survey import Survey, dense_whitening, take_survey

SEED = 0
"""Of the subsamples of a survey at set-up, so that it depends on model and data alone."""

ALLOWED = 0.1
"""What an automatic step size may add to any variance."""

PLAIN_ROWS = 1000
"""Rows that an automatic minibatch has at most without control variates: there, more rows only buy larger steps."""


@dataclass(frozen=True)
class Preparation:
    """A look at the posterior at set-up, and what follows from it.

    Attributes:
        survey: the mode and the curvature there; None where nothing asked for them.
        whitening: the change of variables, if any.
        choice: how rows are drawn, where that is by importance.
    """

    posterior: Posterior
    arrays: Table
    centred: bool
    survey: Survey | None
    whitening: Whitening | None
    choice: Importance | None

    @property
    def start(self) -> Surveyed:
        """Where chains start: at the centre."""
        return Surveyed(None if self.survey is None else self.survey.centre, self.whitening)

    def choose(self, dynamics: Dynamics, rows: int | None) -> tuple[float, int, Decisions]:
        """The largest step size that adds no more than `ALLOWED` to a variance; and, where `rows` is None, the minibatch."""
        shape, per_row = self._shape()
        try:
            dynamics, n_rows = dynamics.fitted(jnp.zeros(())), self.posterior.n_rows
        except InputError as error:
            raise InputError(
                "stepsize='auto' came with an alpha or a for each parameter; expected one number for all, or your own stepsize"
            ) from error

        def with_rows(n: int) -> Directions:
            left = 1.0 if self.choice is not None else 1 - n / n_rows
            return representative(directions(shape, per_row / n * left))

        told = Decisions()
        if rows is None:
            quiet = largest_step(dynamics, with_rows(n_rows), ALLOWED / 2)
            rows, most = min(FEWEST_ROWS, n_rows), n_rows if self.centred else min(PLAIN_ROWS, n_rows)
            while rows < most and added_by_step(dynamics, quiet, with_rows(rows)) > ALLOWED:
                rows = min(2 * rows, most)
            told = told.and_then("minibatch_size", rows, f"Each gradient looks at {rows:,} of the {n_rows:,} rows.")
        eps = float(f"{0.995 * largest_step(dynamics, with_rows(rows), ALLOWED):.3g}")  # three digits, never above
        predicted = inflation(dynamics, eps, with_rows(rows))
        worst = float(predicted[np.argmax(np.abs(predicted - 1))])
        told = told.and_then(
            "stepsize",
            eps,
            f"The step size is {eps:.3g}, the largest that adds at most {ALLOWED:.0%} to any variance of a Gaussian with the "
            "posterior's curvature at its mode.",
        )
        told = told.and_then("predicted_inflation", worst, f"There, no variance is further off than {worst:.3f} times the truth.")
        return eps, rows, told

    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        """The posterior's precision and the noise per single row, in the variables that move."""
        survey = self.survey
        assert survey is not None
        unit, pilot = survey.whitening, Pilot(self.posterior, self.arrays, self.centred)
        points = posterior_points(unit, SEED)
        if not unit.dense:
            steepest = largest_curvature(self.posterior, self.arrays, unit, SEED)
            scale = 1.0 if self.whitening is None else join(self.whitening.factor)
            noise = pilot.noise(unit, points, self.choice, SEED + 2).drawn * survey.precision
            return steepest * survey.precision * scale**2, noise * scale**2
        noise = pilot.noise(unit, points, self.choice, SEED + 2).drawn
        back = np.linalg.inv(np.asarray(unit.factor, np.float64))
        if self.whitening is not None:
            factor = self.whitening.factor
            back = back @ (np.asarray(factor, np.float64) if self.whitening.dense else np.diag(join(factor)))
        return back.T @ back, back.T @ noise @ back


@dataclass(frozen=True)
class Wishes:
    """What a sampler may ask for at set-up.

    Attributes:
        precondition: as the user gave it.
        own: the user's own whitening, if that is what it is.
        importance: whether rows are to be drawn by how much they matter.
        auto: whether the step size is to be chosen.
        centred: whether the estimator needs a centre.
    """

    precondition: Any
    own: Whitening | None
    importance: bool
    auto: bool
    centred: bool

    def prepare(self, posterior: Posterior, table: Table, start: PyTree, place: Place, progress: Progress) -> Preparation:
        """What follows from a look at the posterior, or what did when the run in a place began."""

        def compute() -> dict[str, Any]:
            survey, whitening, choice = self._look(posterior, table, start, progress)
            return {"survey": survey, "whitening": whitening, "probabilities": None if choice is None else choice.probabilities}

        found = place.stage("preparation", compute, start)
        choice = None if found["probabilities"] is None else Importance(table, found["probabilities"])
        return Preparation(posterior, table, self.centred, found["survey"], found["whitening"], choice)

    def _look(
        self, posterior: Posterior, table: Table, start: PyTree, progress: Progress
    ) -> tuple[Survey | None, Whitening | None, Importance | None]:
        survey, whitening, choice = None, self.own, None
        if self.own is None or self.centred or self.auto:
            diagonal = self.own is None and self.precondition == "diagonal"
            survey = take_survey(posterior, table, start, SEED, progress, diagonal)
            if not bool(survey.centre.converged):
                warn_of_distance(float(survey.centre.distance))
            whitening = _at_the_mode(survey, self.own, self.precondition)
        if self.importance:
            assert survey is not None
            pilot = Pilot(posterior, table, self.centred)
            with Bar(progress, "row weights", posterior.n_rows, "row") as bar:
                choice = Importance(table, pilot.probabilities(survey.whitening, pilot.points(size(start), SEED), bar))
        return survey, whitening, choice


def _at_the_mode(survey: Survey, own: Whitening | None, precondition: Any) -> Whitening | None:
    if own is not None:
        return replace(own, origin=survey.centre.position)
    return None if precondition is None else survey.whitening


def own_whitening(precondition: Any, start: PyTree) -> Whitening | None:
    """The user's: a covariance matrix of all numbers, or a tree of standard deviations; None where it is to be found."""
    if precondition is None or isinstance(precondition, str):
        if precondition not in (None, "laplace", "diagonal"):
            raise InputError(f"precondition is {precondition!r}; expected 'laplace', 'diagonal', None, or {_OWN}")
        return None
    d = size(start)
    if np.shape(precondition) == (d, d) and (d > 1 or jax.tree.structure(precondition) != jax.tree.structure(start)):
        matrix = np.asarray(precondition, np.float64)
        if not np.isfinite(matrix).all() or not _symmetric(matrix):
            raise InputError(f"precondition is {describe(precondition)} that is not symmetric and finite; expected {_OWN}")
        scale, matrix = _scale(matrix), (matrix + matrix.T) / 2
        try:
            factor = scale[:, None] * np.linalg.cholesky(matrix / np.outer(scale, scale))
        except np.linalg.LinAlgError as error:
            raise InputError(f"precondition is a matrix that is not positive definite; expected {_OWN}") from error
        return dense_whitening(factor, start)
    if jax.tree.structure(precondition) != jax.tree.structure(start):
        raise InputError(f"precondition is {describe(precondition)} for {d} numbers in params; expected {_OWN}")
    scales = per_parameter(precondition, start, "precondition")
    return Whitening(start, tree_map(lambda s, x: jnp.broadcast_to(s, x.shape), scales, start), dense=False)


def _scale(matrix: np.ndarray) -> np.ndarray:
    diagonal = np.abs(np.diag(matrix))
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _symmetric(matrix: np.ndarray) -> bool:
    scale = _scale(matrix)
    return bool((np.abs(matrix - matrix.T) <= 1e-4 * np.outer(scale, scale)).all())


_OWN = "a covariance matrix of all numbers of params in one vector, or a tree like params of standard deviations"
