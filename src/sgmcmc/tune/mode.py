"""The centre of the control variates, found with nothing to tune.

First on a subsample, then on the whole data: quasi-Newton ascent preconditioned by the Fisher information of the rows, so
that "close" is measured in posterior standard deviations whatever the units. An estimate with control variates is
unbiased for any centre; a close one makes it quiet.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, Rows, flat, join, split
from sgmcmc.problem.passes import compiled, full_sum
from sgmcmc.problem.posterior import Posterior
from sgmcmc.rows.hosts import together
from sgmcmc.rows.sources import subsample
from sgmcmc.rows.table import Stratum, Table
from sgmcmc.run.blame import raise_if_not_finite, raise_if_rounded_away

TOLERANCE = 0.05
"""Converged: the centre is within √0.05 = 0.22 posterior standard deviations per parameter, root mean square."""

METRIC_ROWS, METRIC_WORK = 200_000, 2e10
"""Rows that the metric is taken from at most, and rows × d² that it may cost where they are still enough to tell directions."""

LARGE_MODEL_METRIC_ROWS = 2_000
ROUNDS, STEPS_PER_ROUND = 12, 25
FULL_ROUNDS, FULL_STEPS_PER_ROUND = 3, 15
SHORTEST = 1e-9
"""The part of a direction below which a line search gives up."""

MOST_PASSES = 300
"""Evaluations on the same rows after which a search ends, wherever it is."""

NUDGE = 0.01
"""Posterior standard deviations by which a search leaves a start at a kink of the log likelihood: zeros often are one."""

LONGEST_LOG_STEP = 3.0
"""How far one step may go in a parameter behind a constraint, which mostly lives on a log scale: a factor of 20."""

LENGTHS = (0.0, 1.0, 4.0, 16.0, 64.0, 256.0)
"""How far beyond its end a search that did not converge is followed, in lengths of its way there."""

LARGEST_METRIC, LARGEST_DENSE = 2000, 3000
"""Up to so many parameters the metric is a full matrix, and the curvature at the mode; beyond, their diagonals."""

ROWS_PER_PARAMETER = 10
"""With fewer rows than this the information matrix is (nearly) singular, and its diagonal says more."""

SMALLEST_EIGENVALUE, SURE_EIGENVALUE = 1e-7, 1e-3
"""Of the metric scaled to a unit diagonal: what rounding leaves of a direction that nothing determines, and what it cannot make
of one."""

KINK = 0.1
"""Posterior standard deviations within which a sign change of the prior's gradient counts as a kink at the optimum."""


@dataclass(frozen=True)
class Mode:
    """Where the search ended and how well: `distance` is the mean squared distance in posterior standard deviations.

    `passes` over all rows were made for it, after `looks` at a subsample; `heading` is the last step.
    """

    position: PyTree
    converged: bool
    distance: float
    passes: int
    looks: int
    heading: PyTree


@dataclass(frozen=True)
class Metric:
    """A positive definite stand-in for the posterior's precision: what turns gradients into posterior standard deviations.

    `scale` holds the square roots of its diagonal (1 where it is 0), so that 1/`scale` is the standard deviation of each
    parameter given the others; `inverse` is that of what is left (None: nothing is); `silent` marks parameters of which neither
    rows nor prior say anything here.
    """

    scale: np.ndarray
    inverse: np.ndarray | None = None
    silent: np.ndarray | None = None

    @classmethod
    def of(cls, information: np.ndarray, curvature: np.ndarray) -> Self:
        """Fisher information of the rows plus the prior's."""
        total = information + curvature
        diagonal = total if total.ndim == 1 else np.diag(total)
        scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        silent = None if (diagonal > 0).all() else diagonal <= 0
        if total.ndim == 1:
            return cls(scale, silent=silent)
        scaled = total / np.outer(scale, scale)
        if bends_everywhere(scaled, SURE_EIGENVALUE):
            return cls(scale, np.linalg.inv(scaled), silent)
        values, vectors = np.linalg.eigh(scaled)
        return cls(scale, (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T, silent)

    def solve(self, vector: np.ndarray) -> np.ndarray:
        scaled = vector / self.scale
        if self.inverse is not None:
            scaled = self.inverse @ scaled
        return scaled / self.scale

    def distance(self, gradient: np.ndarray) -> float:
        """gᵀM⁻¹g/d: the squared distance to the optimum in posterior standard deviations, per parameter."""
        return float(gradient @ self.solve(gradient)) / len(gradient)


@dataclass
class QuasiNewton:
    """L-BFGS directions on top of a metric: M⁻¹g, corrected by what the last 20 steps showed of the curvature."""

    metric: Metric
    pairs: deque[tuple[np.ndarray, np.ndarray]] = field(default_factory=lambda: deque(maxlen=20))

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


@dataclass(frozen=True)
class _Point:
    """The log posterior at a host vector; `settled` is its gradient without kinks of the prior, `step` led there."""

    x: np.ndarray
    metric: Metric
    value: float
    gradient: np.ndarray
    settled: np.ndarray
    step: np.ndarray

    @cached_property
    def distance(self) -> float:
        return self.metric.distance(self.settled)


@dataclass
class _Objective:
    """The log posterior at host vectors, from a table whose log likelihood stands for that of the `whole`; `wall` is where it was
    not finite, in the way of the last line search, if that found nothing.
    """

    posterior: Posterior
    table: Table
    like: PyTree
    whole: Table
    passes: int = 0
    wall: np.ndarray | None = None

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, gradient, and the prior's part of the gradient."""
        (value, gradient), (prior_value, prior) = self.likelihood(x), self.prior(x)
        return value + prior_value, gradient + prior, prior

    def likelihood(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        block, scale = compiled(value_and_gradient, self.posterior, "sum_of_rows"), self.posterior.n_rows / self.table.total_rows
        value, gradient = full_sum(partial(block, as_tree(x, self.like)), self.table)
        self.passes += 1
        return scale * float(value), scale * gradient

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = compiled(value_and_gradient, self.posterior, "log_density_prior")(as_tree(x, self.like))
        return float(value), np.asarray(gradient, np.float64)

    def at(self, x: np.ndarray, metric: Metric) -> _Point:
        value, gradient, prior = self(x)
        return _Point(x, metric, value, gradient, self._settled(x, metric, gradient, prior), np.zeros_like(x))

    def first(self, x: np.ndarray, metric_rows: Table) -> _Point:
        """The point at which a search begins, by the metric there; where it is not finite, an error names the row at fault."""
        value, gradient, prior = self(x)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            where = "where the search for the mode begins"
            look = partial(raise_if_not_finite, self.posterior, as_tree(x, self.like), self.whole, where)
            together(where, look) if isinstance(self.whole, Stratum) else look()
            raise SgmcmcError(f"the log posterior is {value} {where}, though that of every row is finite; start params elsewhere")
        metric = self.metric(x, metric_rows)
        return _Point(x, metric, value, gradient, self._settled(x, metric, gradient, prior), np.zeros_like(x))

    def under(self, point: _Point, metric: Metric) -> _Point:
        """The same point, measured by another metric."""
        settled = self._settled(point.x, metric, point.gradient, self.prior(point.x)[1])
        return replace(point, metric=metric, settled=settled)

    def _settled(self, x: np.ndarray, metric: Metric, gradient: np.ndarray, prior: np.ndarray) -> np.ndarray:
        below, above = (self.prior(x + side * KINK / metric.scale)[1] for side in (-1, 1))
        return without_kinks(gradient, prior, below, above)

    def capped(self, direction: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """A direction that takes no parameter behind a constraint too far at once; if need be, all of it is shorter."""
        too_far = np.max(np.abs(direction) * self._constrained) / LONGEST_LOG_STEP
        if too_far <= 1:
            return direction
        clipped = np.where(self._constrained, np.clip(direction, -LONGEST_LOG_STEP, LONGEST_LOG_STEP), direction)
        return clipped if clipped @ gradient > 0 else direction / too_far

    @cached_property
    def _constrained(self) -> np.ndarray:
        """Which numbers have a constraint."""
        leaves = zip(self.posterior.transform.bijections, jax.tree.leaves(self.like), strict=True)
        return np.concatenate([np.full(np.size(leaf), bijection is not None) for bijection, leaf in leaves])

    def metric(self, x: np.ndarray, sample: Table) -> Metric:
        """From some rows; a matrix if they can tell all directions apart, and it is small enough to solve with."""
        position, d, used = as_tree(x, self.like), len(x), sample.total_rows
        dense = d <= LARGEST_METRIC and used >= ROWS_PER_PARAMETER * d
        program = partial(compiled(fisher_information, self.posterior, dense), position)
        information = full_sum(program, sample, extra=4 * d, least=d if dense else 1)
        return Metric.of(self.posterior.n_rows / used * information, prior_curvature(self.posterior, dense, position))

    def determines(self, x: np.ndarray, silent: np.ndarray | None, sample: Table) -> bool:
        """Whether the likelihood bends in parameters whose gradients all vanish: a perfect fit does, a plateau does not."""
        if silent is None:
            return True
        position, direction = as_tree(x, self.like), as_tree(silent.astype(np.float64), self.like)
        return float(full_sum(partial(compiled(curvature_along, self.posterior), position, direction), sample)) > 0


def find_mode(posterior: Posterior, table: Table, start: PyTree, seed: int, progress: Progress) -> Mode:
    """Search from `start`; bounded work whatever the posterior."""
    x, looks = join(start), 0
    metric_rows = rows_of_metric(len(x))
    sample = subsample(table, max(10_000, min(200 * len(x), 200_000)), seed)  # enough to say where the mode roughly is
    rounds, steps = ROUNDS, STEPS_PER_ROUND
    with Bar(progress, "centre", None, "step") as bar:
        if sample.total_rows < posterior.n_rows:
            rough = _Objective(posterior, sample, start, table)
            x = _search(rough, x, subsample(sample, metric_rows, seed), rounds, steps, bar)[0].x
            rounds, steps, looks = FULL_ROUNDS, FULL_STEPS_PER_ROUND, rough.passes
        whole = _Objective(posterior, table, start, table)
        point, distance = _search(whole, x, subsample(table, metric_rows, seed + 1), rounds, steps, bar)
    if distance >= TOLERANCE and whole.wall is not None and not isinstance(table, Stratum):
        raise_if_rounded_away(posterior, as_tree(whole.wall, start), table, "where the search for the mode was stopped")
    heading = as_tree(point.step, start)
    return Mode(as_tree(point.x, start), distance < TOLERANCE, distance, whole.passes, looks, heading)


def rows_of_metric(dimension: int) -> int:
    """How many rows the metric is taken from."""
    if dimension > LARGEST_METRIC:
        return LARGE_MODEL_METRIC_ROWS
    return int(min(METRIC_ROWS, max(METRIC_WORK / dimension**2, ROWS_PER_PARAMETER * dimension)))


def _search(objective: _Objective, x: np.ndarray, metric_rows: Table, rounds: int, steps: int, bar: Bar) -> tuple[_Point, float]:
    """Rounds of ascent, each with the metric of where it starts, until close or out of work."""
    point = objective.first(x, metric_rows)
    point = _off_kinks(objective, point) if (x == join(objective.like)).all() else point
    for _ in range(rounds):
        moved = point if point.distance < TOLERANCE else _ascend(objective, point, steps, bar)
        if moved is point or objective.passes > MOST_PASSES:
            point = moved
            break
        point = objective.under(moved, objective.metric(moved.x, metric_rows))
    return point, point.distance if objective.determines(point.x, point.metric.silent, metric_rows) else np.inf


def _off_kinks(objective: _Objective, point: _Point) -> _Point:
    """A point whose gradient can be believed: itself, or one a hair away if the log likelihood's gradient jumps over that.

    Derivatives at a kink are a matter of convention: those of NumPyro's `BernoulliLogits` are 0 and 1 at a logit of exactly 0.
    """
    hair = NUDGE * np.random.default_rng(0).standard_normal(len(point.x)) / point.metric.scale
    beside = objective.at(point.x + hair, point.metric)
    prior, there = (objective.prior(x)[1] for x in (point.x, beside.x))
    jump = (beside.gradient - there) - (point.gradient - prior)
    return beside if np.isfinite(beside.value) and point.metric.distance(jump) > 1 else point


def _ascend(objective: _Objective, point: _Point, steps: int, bar: Bar) -> _Point:
    memory = QuasiNewton(point.metric)
    for _ in range(steps):
        if point.distance < TOLERANCE / 2 or objective.passes > MOST_PASSES:
            break
        new = _line_search(objective, point, memory.direction(point.settled))
        if new is None and memory.pairs:
            memory = QuasiNewton(point.metric)
            new = _line_search(objective, point, memory.direction(point.settled))
        if new is None:
            break
        memory.learn(new.step, point.gradient - new.gradient)
        point = new
        bar.update(1, log_posterior=point.value)
    return point


def _line_search(objective: _Objective, point: _Point, direction: np.ndarray) -> _Point | None:
    """The first point on the way that climbs enough, each try shorter as a parabola through the last one says; a value that is
    not finite does not climb.
    """
    direction = objective.capped(direction, point.settled)
    slope, length, objective.wall = float(point.settled @ direction), 1.0, None
    while slope > 0 and length > SHORTEST:
        new = objective.at(point.x + length * direction, point.metric)
        if np.isfinite(new.value) and np.isfinite(new.gradient).all() and new.value > point.value + 1e-4 * length * slope:
            objective.wall = None
            return replace(new, step=length * direction)
        if not np.isfinite(new.value):
            objective.wall = new.x
        length *= next_part(new.value - point.value, length * slope)
    return None


def next_part(gain: float, expected: float) -> float:
    """The part of a step at which the parabola with slope `expected` at its start and `gain` at its end is highest, bounded."""
    return float(np.clip(expected / (2 * (expected - gain)), 0.05, 0.5)) if np.isfinite(gain) else 0.1


@dataclass(frozen=True)
class Ascent:
    """A log posterior that did not fall beyond the end of a search, and by how much it rose on the way there."""

    parameters: list[str]
    moved: float
    risen: float


def endless_ascent(posterior: Posterior, table: Table, start: PyTree, mode: Mode) -> Ascent | None:
    """Evidence that the posterior is improper: far beyond the end of a search the log likelihood still does not fall, and the
    prior, which would have to stop it, does not change. A prior that does change may be proper, whatever the search found.
    """
    objective = _Objective(posterior, table, start, table)
    begun, ended, heading = join(start), join(mode.position), join(mode.heading)
    away = ended - begun
    for line in (away, heading * np.linalg.norm(away) / max(float(np.linalg.norm(heading)), 1e-300)):
        path = [ended + length * line for length in LENGTHS]
        priors = np.array([objective.prior(x)[0] for x in path])
        if not line.any() or not (np.abs(priors - priors[0]) < 1e-3 * (1 + abs(priors[0]))).all():
            continue
        values = np.array([objective.likelihood(x)[0] for x in path])
        if np.isfinite(values).all() and (np.diff(values) >= -1e-6 * (1 + abs(values[0]))).all():
            names, part = posterior.names.numbers(start), np.abs(line) / (1 + np.abs(begun))
            most = [names[i] for i in np.argsort(part)[::-1][:3] if part[i] > 0.1 * part.max()]
            risen = values[0] + priors[0] - objective(begun)[0]
            if risen > 1e-6 * (1 + abs(values[0])):  # else rounding may hide a fall on so short a way
                return Ascent(most, float(np.abs(away).max()), float(risen))
    return None


def value_and_gradient(posterior: Posterior, density: str, *arguments: Any) -> tuple[jax.Array, jax.Array]:
    """A log density of the posterior by its name, and its gradient as one vector."""
    value, gradient = jax.value_and_grad(getattr(posterior, density))(*arguments)
    return value, flat(gradient)


def fisher_information(posterior: Posterior, dense: bool, position: PyTree, rows: Rows) -> jax.Array:
    """Σ g_i g_iᵀ over a block of rows, or its diagonal."""
    gradients = jax.vmap(flat)(posterior.row_gradients(position, rows))
    return gradients.T @ gradients if dense else jnp.sum(gradients**2, axis=0)


def prior_curvature(posterior: Posterior, dense: bool, position: PyTree) -> np.ndarray:
    """The prior's precision, a matrix or its diagonal: its Hessian by size, and where that is silent its squared gradients.

    The squares are the prior's own Fisher information. The paper's Laplace prior has no Hessian, yet alone decides
    directions that the data leave open, such as those of indicator columns that sum to 1.
    """
    bends, squares = (np.asarray(x, np.float64) for x in compiled(_prior_derivatives, posterior, dense)(position))
    if not dense:  # the diagonal, of a prior without correlations
        return np.where(np.abs(bends) < 1e-6 * squares, squares, np.abs(bends))
    diagonal = np.diag(bends)
    silent = np.diag(np.where(np.abs(diagonal) < 1e-6 * squares, squares, 0.0))
    if not np.any(bends - np.diag(diagonal)):
        return np.diag(np.abs(diagonal)) + silent
    values, vectors = np.linalg.eigh((bends + bends.T) / 2)
    return (vectors * np.abs(values)) @ vectors.T + silent


def _prior_derivatives(posterior: Posterior, dense: bool, position: PyTree) -> tuple[jax.Array, jax.Array]:
    """The Hessian of the log prior or its diagonal, and squared gradients."""
    vector = flat(position)

    def log_density(x: jax.Array) -> jax.Array:
        return posterior.log_density_prior(split(x, position))

    gradient = jax.grad(log_density)
    hair = 1e-6 * (1 + jnp.abs(vector))  # to look at either side of a kink
    squares = jnp.nan_to_num(jnp.maximum(gradient(vector + hair) ** 2, gradient(vector - hair) ** 2))
    bends = jax.hessian(log_density)(vector) if dense else jax.jvp(gradient, (vector,), (jnp.ones_like(vector),))[1]
    return _finite(bends), squares


def _finite(curvature: jax.Array) -> jax.Array:
    """With nothing where it is not finite, as that of |x|^1.5 at 0."""
    return jnp.where(jnp.isfinite(curvature), curvature, 0.0)


def curvature_along(posterior: Posterior, position: PyTree, direction: PyTree, rows: Rows) -> jax.Array:
    """How fast the log likelihood of a block bends down along a direction."""
    return jnp.dot(curvature_times(partial(posterior.sum_of_rows, rows=rows), position, direction), flat(direction))


def curvature_times(log_density: Callable[[PyTree], jax.Array], position: PyTree, direction: PyTree) -> jax.Array:
    """Minus the Hessian of a log density, times a direction, as one vector."""
    return -flat(jax.jvp(jax.grad(log_density), (position,), (direction,))[1])


def without_kinks(gradient: np.ndarray, prior: np.ndarray, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The gradient, with zeros where it changes sign within a hair of here because the prior has a kink.

    `prior`, `below` and `above` are the prior's gradients here and `KINK` standard deviations to either side. The Laplace
    prior of the paper has its kink at 0, where the mode of a weak coefficient sits: the gradient is never small there.
    """
    sides = np.stack([gradient, gradient - prior + below, gradient - prior + above])
    return np.where(sides.min(axis=0) * sides.max(axis=0) <= 0, 0.0, gradient)


def bends_everywhere(matrix: np.ndarray, least: float) -> bool:
    """Whether all eigenvalues of a symmetric matrix are larger, which takes far less time than to find them."""
    try:
        np.linalg.cholesky(matrix - least * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True


def as_tree(vector: np.ndarray, like: Any) -> PyTree:
    """A host vector as a tree of device arrays."""
    return split(jnp.asarray(vector, jnp.result_type(float)), like)
