"""What is made ready at set-up: where chains start, whitened variables, rows by importance, an automatic step."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.langevin import Ascent
from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState, whitened_centre
from sgmcmc.algorithms.kernel import Dynamics, Kernel
from sgmcmc.algorithms.laws import Directions, added_by_step, directions, inflation, largest_step, representative
from sgmcmc.checkpoints.places import Place
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, SgmcmcError, describe, warn
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, join, size, tree_map
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.schedules import Schedule, per_parameter
from sgmcmc.problem.whitening import Whitening, whitened
from sgmcmc.results.words import Decisions
from sgmcmc.rows.importance import Importance, RowLaw
from sgmcmc.rows.sources import Source
from sgmcmc.rows.table import as_table
from sgmcmc.run.loop import Loop
from sgmcmc.run.request import Problem, Request
from sgmcmc.run.sampler import FromParams, Given
from sgmcmc.tune.curvatures import dense_whitening
from sgmcmc.tune.design import FEWEST_ROWS, largest_curvature
from sgmcmc.tune.mode import LARGEST_DENSE, find_mode
from sgmcmc.tune.pilot import Pilot, posterior_points
from sgmcmc.tune.survey import Survey, take_survey

SEARCH_CHAIN = 2**31 - 1
"""The chain number whose random numbers serve the search: no real chain has it."""

SEED = 0
"""Of the subsamples of a survey at set-up, so that it depends on model and data alone."""

ALLOWED = 0.1
"""What an automatic step size may add to any variance."""

MOST_PLAIN_ROWS = 1000
"""Rows that an automatic minibatch has at most without control variates: there, more rows only buy larger steps."""

_OWN = "a covariance matrix of all numbers of params in one vector, or a tree like params of standard deviations"


@dataclass(frozen=True)
class Surveyed:
    """At the centre that a survey found at set-up, in the variables of a whitening if there is one."""

    centre: Centre | None
    whitening: Whitening | None

    @property
    def position(self) -> PyTree:
        if self.whitening is not None:
            return self.whitening.zero()
        assert self.centre is not None
        return self.centre.position

    @property
    def whitened_centre(self) -> Centre | None:
        """The centre in the variables of the whitening."""
        if self.centre is None or self.whitening is None:
            return self.centre
        return whitened_centre(self.centre, self.whitening)

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        estimator, posterior, whitening, inner = kernel.estimator, kernel.posterior, self.whitening, self.whitened_centre
        if isinstance(estimator, Whitened) and whitening is not None:
            estimator, posterior = estimator.inner, whitened(posterior, whitening)
        if not (estimator.centred and estimator.made(inner)):  # it carries no centre, or more of one than a survey has
            inner = _judged(estimator.init(posterior, self.position, FullPasses(source.arrays, progress)), inner)
        return Given(self.position, inner if whitening is None else WhitenedState(whitening, inner))


def _judged(state: Any, centre: Centre | None) -> Any:
    """What an estimator carries, with what the search for its centre said of that."""
    if centre is None or not isinstance(state, Centre):
        return state
    return replace(state, distance=centre.distance, converged=centre.converged)


@dataclass(frozen=True)
class AtMode:
    """At the mode, searched for from `position` with nothing to tune."""

    position: PyTree

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        seed = int(jax.random.randint(jax.random.fold_in(root, SEARCH_CHAIN), (), 0, 2**31 - 1))
        mode = find_mode(kernel.posterior, as_table(source.arrays), self.position, seed, progress)
        if not mode.converged:
            warn_of_distance(mode.distance)
        begun = FromParams(mode.position).find(kernel, source, root, progress)
        if not kernel.estimator.centred:
            return begun
        found = {"distance": jnp.asarray(mode.distance, float), "converged": jnp.asarray(mode.converged)}
        return begun._replace(est_state=replace(begun.est_state, **found))


@dataclass(frozen=True)
class PaperSearch:
    """As the paper searches: so many stochastic gradient steps of a given size from `position`."""

    position: PyTree
    schedule: Schedule
    n_iters: int

    def __str__(self) -> str:
        return f"{self.n_iters} steps of {self.schedule.describe()}"

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        loop = Loop.of(Kernel(kernel.posterior, Minibatch(), Ascent(), self.schedule), source)
        raw = jax.random.key_data(jax.random.fold_in(root, SEARCH_CHAIN))
        state = loop.call(loop.programs.start, (raw, self.position, (), raw), raw, -1)
        with Bar(progress, "centre", self.n_iters) as bar:
            outcome = loop.trial(state, Request(self.n_iters, keep={}), bar)
        if outcome.attempted is not None:
            found = f"left the finite numbers at step {int(outcome.state.step) + 1} with opt_stepsize {self.schedule.describe()}"
            repair = "give a smaller one, or leave opt_stepsize out for an automatic search"
            raise SgmcmcError(f"the search for the centre {found}; {repair}")
        return FromParams(outcome.state.position).find(kernel, source, root, progress)


def warn_of_distance(distance: float) -> None:
    """A centre that is far from the mode costs noise, and scales taken there may not fit."""
    found = f"stopped at a mean squared distance of {distance:.3g} posterior variances from the mode (goal 0.05)"
    repair = "start params nearer the mode, scale the data, or give opt_stepsize to search as the paper does"
    warn(f"the search for the centre of the control variates {found}. Estimates stay unbiased but are noisier: {repair}")


@dataclass(frozen=True)
class Preparation:
    """A look at the posterior at set-up, and what follows from it: a survey, where something asked for it, the change of
    variables, if any, and how rows are drawn, where that is by importance.
    """

    pilot: Pilot
    survey: Survey | None
    whitening: Whitening | None
    choice: RowLaw | None

    @property
    def start(self) -> Surveyed:
        """Where chains start: at the centre."""
        return Surveyed(None if self.survey is None else self.survey.centre, self.whitening)

    def choose(self, dynamics: Dynamics, rows: int | None) -> tuple[float, int, Decisions]:
        """The largest step size that adds no more than `ALLOWED` to a variance; and, where `rows` is None, the minibatch."""
        shape, per_row = self._shape()
        n_rows = self.pilot.posterior.n_rows
        try:
            dynamics = dynamics.fitted(jnp.zeros(()))
        except InputError as error:
            found = "stepsize='auto' came with an alpha or a for each parameter"
            raise InputError(f"{found}; expected one number for all, or your own stepsize") from error

        def with_rows(n: int) -> Directions:
            left = 1.0 if self.choice is not None else 1 - n / n_rows
            return representative(directions(shape, per_row / n * left))

        told = Decisions()
        if rows is None:
            quiet = largest_step(dynamics, with_rows(n_rows), ALLOWED / 2)
            rows, most = min(FEWEST_ROWS, n_rows), n_rows if self.pilot.order else min(MOST_PLAIN_ROWS, n_rows)
            while rows < most and added_by_step(dynamics, quiet, with_rows(rows)) > ALLOWED:
                rows = min(2 * rows, most)
            told = told.and_then("minibatch_size", rows, f"Each gradient looks at {rows:,} of the {n_rows:,} rows.")
        eps = float(f"{0.995 * largest_step(dynamics, with_rows(rows), ALLOWED):.3g}")  # three digits, never above
        predicted = inflation(dynamics, eps, with_rows(rows))
        worst = float(predicted[np.argmax(np.abs(predicted - 1))])
        target = "a Gaussian with the posterior's curvature at its mode"
        sentence = f"The step size is {eps:.3g}, the largest that adds at most {ALLOWED:.0%} to any variance of {target}."
        told = told.and_then("stepsize", eps, sentence)
        told = told.and_then("predicted_inflation", worst, f"There, no variance is further off than {worst:.3f} times the truth.")
        return eps, rows, told

    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        """The posterior's precision and the noise per single row, in the variables that move."""
        survey, pilot = self.survey, self.pilot
        assert survey is not None
        unit, precision = survey.whitening, survey.precision
        assert isinstance(unit, Whitening)
        assert isinstance(precision, np.ndarray)
        noise = pilot.noise(unit, posterior_points(unit, SEED), self.choice, SEED + 2).drawn
        if unit.dense and noise.ndim == 1:
            noise = np.diag(noise)
        if not unit.dense:
            steepest = largest_curvature(pilot.posterior, pilot.table, unit, SEED)
            scale = 1.0 if self.whitening is None else join(self.whitening.factor)
            return steepest * precision * scale**2, noise * precision * scale**2
        back = np.linalg.inv(np.asarray(unit.factor, np.float64))
        if self.whitening is not None:
            factor = self.whitening.factor
            back = back @ (np.asarray(factor, np.float64) if self.whitening.dense else np.diag(join(factor)))
        return back.T @ back, back.T @ noise @ back


@dataclass(frozen=True)
class Precondition:
    """What `precondition=` asks for: `name` is for the record, None where it asks for nothing. Where it is `dense` it mixes the
    parameters. `own` is the user's whitening, if it is one.
    """

    name: str | None = None
    dense: bool = False
    own: Whitening | None = None

    @classmethod
    def of(cls, given: Any, start: PyTree) -> Self:
        """From a short name, a covariance matrix of all numbers, or a tree of standard deviations."""
        if isinstance(given, str):
            if given not in ("laplace", "diagonal"):
                raise InputError(f"precondition is {given!r}; expected 'laplace', 'diagonal', None, or {_OWN}")
            return cls(given, given == "laplace" and size(start) <= LARGEST_DENSE)
        d, like = size(start), jax.tree.structure(given) == jax.tree.structure(start)
        if np.shape(given) == (d, d) and (d > 1 or not like):
            return cls("given", True, _of_covariance(given, start))
        if not like:
            raise InputError(f"precondition is {describe(given)} for {d} numbers in params; expected {_OWN}")
        scales = per_parameter(given, start, "precondition")
        whitening = Whitening(start, tree_map(lambda s, x: jnp.broadcast_to(s, x.shape), scales, start), dense=False)
        return cls("given", False, whitening)

    def about(self, survey: Survey) -> Whitening | None:
        """The change of variables that starts at the centre of a survey."""
        if self.own is not None:
            return replace(self.own, origin=survey.centre.position)
        return None if self.name is None else survey.whitening  # pyright: ignore[reportReturnType]: no arrow was asked for


def _of_covariance(given: Any, start: PyTree) -> Whitening:
    matrix = np.asarray(given, np.float64)
    diagonal = np.abs(np.diag(matrix))
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    unit = np.outer(scale, scale)
    if not np.isfinite(matrix).all() or (np.abs(matrix - matrix.T) > 1e-4 * unit).any():
        raise InputError(f"precondition is {describe(given)} that is not symmetric and finite; expected {_OWN}")
    try:
        factor = scale[:, None] * np.linalg.cholesky((matrix + matrix.T) / 2 / unit)
    except np.linalg.LinAlgError as error:
        raise InputError(f"precondition is a matrix that is not positive definite; expected {_OWN}") from error
    return dense_whitening(factor, start)


@dataclass(frozen=True)
class Wishes:
    """What a sampler may ask for at set-up: other variables, rows drawn by how much they matter, an automatic step size, a centre
    for its estimator.
    """

    precondition: Precondition
    importance: Importance | None
    auto: bool
    centred: bool

    def prepare(self, problem: Problem, place: Place, progress: Progress) -> Preparation:
        """What follows from a look at the posterior, or what did when the run in a place began."""
        pilot = Pilot(problem.posterior, problem.table, int(self.centred), progress)

        def look() -> dict[str, Any]:
            survey, whitening, probabilities = None, self.precondition.own, None
            if whitening is None or self.centred or self.auto:
                survey = take_survey(problem, SEED, progress, diagonal=self.precondition.name == "diagonal")
                if not bool(survey.centre.converged):
                    warn_of_distance(float(survey.centre.distance))
                whitening = self.precondition.about(survey)
            if self.importance is not None and self.importance.scores is not None:
                probabilities = self.importance.law(problem.table).probabilities
            elif self.importance is not None:
                assert survey is not None
                points = pilot.points(size(problem.position), SEED)
                probabilities = pilot.importance(survey.whitening, points, self.importance.uniform_share).probabilities
            return {"survey": survey, "whitening": whitening, "probabilities": probabilities}

        found = place.stage("preparation", look, problem.position)
        choice = None if found["probabilities"] is None else RowLaw(problem.table, found["probabilities"])
        return Preparation(pilot, found["survey"], found["whitening"], choice)
