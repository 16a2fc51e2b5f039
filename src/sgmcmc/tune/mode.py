"""The centre of the control variates, found with nothing to tune.

First on a subsample, then on the whole data: quasi-Newton ascent preconditioned by the Fisher information of the rows, so
that "close" is measured in posterior standard deviations whatever the units. An estimate with control variates is
unbiased for any centre; a close one makes it quiet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, Rows, flat, join, size, split
from sgmcmc.problem.posterior import Posterior
from sgmcmc.rows.sources import subsample
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import compiled, full_sum

TOLERANCE = 0.05
"""Converged: the centre is within √0.05 = 0.22 posterior standard deviations per parameter, root mean square."""

METRIC_ROWS = 200_000
LARGE_MODEL_METRIC_ROWS = 2_000
ROUNDS, STEPS_PER_ROUND = 12, 25
FULL_ROUNDS, FULL_STEPS_PER_ROUND = 3, 15
HALVINGS = 30
MOST_PASSES = 300
"""Evaluations on the same rows after which a search ends, wherever it is."""


@dataclass(frozen=True)
class Mode:
    """Where the search ended and how well: `distance` is the mean squared distance in posterior standard deviations."""

    position: PyTree
    converged: bool
    distance: float
    passes: int


class _Objective:
    """The log posterior on some arrays, `scale` times their log likelihood plus the log prior, at host vectors."""

    def __init__(self, posterior: Posterior, arrays: Table, like: PyTree, scale: float) -> None:
        self.arrays, self.like, self.scale, self.passes = arrays, like, scale, 0
        self._block = compiled(value_and_gradient, posterior)
        self._prior = compiled(prior_value_and_gradient, posterior)
        self._fisher = compiled(fisher_information, posterior, 2)
        self._curvature = compiled(prior_curvature, posterior, 1)
        self._bend = compiled(curvature_along, posterior)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, gradient, and the prior's part of the gradient."""
        position = as_tree(x, self.like)
        value, gradient = full_sum(lambda rows: self._block(position, rows), self.arrays)
        prior_value, prior = self.prior(x)
        self.passes += 1
        return self.scale * float(value) + prior_value, self.scale * gradient + prior, prior

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._prior(as_tree(x, self.like))
        return float(value), np.asarray(gradient, np.float64)

    def metric(self, x: np.ndarray, sample: Table, n_rows: int) -> Metric:
        position = as_tree(x, self.like)
        used = sample.total_rows
        dense = dense_metric(len(x), used)
        information = full_sum(lambda rows: self._fisher(position, rows, dense), sample, extra=4 * len(x))
        return Metric.of(n_rows / used * information, np.asarray(self._curvature(position, dense), np.float64))

    def determines(self, x: np.ndarray, silent: np.ndarray | None, sample: Table) -> bool:
        """Whether the likelihood bends in parameters whose gradients all vanish: a perfect fit does, a plateau does not."""
        if silent is None:
            return True
        position, direction = as_tree(x, self.like), as_tree(silent.astype(np.float64), self.like)
        return float(full_sum(lambda rows: self._bend(position, direction, rows), sample)) > 0


@dataclass
class _Point:
    x: np.ndarray
    value: float
    gradient: np.ndarray
    settled: np.ndarray


def find_mode(posterior: Posterior, arrays: Table, start: PyTree, seed: int, progress: Progress) -> Mode:
    """Search from `start`; bounded work whatever the posterior."""
    x, n_rows = join(start), posterior.n_rows
    sample = subsample(arrays, subsample_size(n_rows, size(start)), seed)
    used = sample.total_rows
    with Bar(progress, "centre", None, "step") as bar:
        if used < n_rows:
            rough = _Objective(posterior, sample, start, n_rows / used)
            metric_rows = subsample(sample, _metric_rows(len(x)), seed)
            x = _search(rough, x, metric_rows, n_rows, ROUNDS, STEPS_PER_ROUND, bar)[0].x
        whole = _Objective(posterior, arrays, start, 1.0)
        metric_rows = subsample(arrays, _metric_rows(len(x)), seed + 1)
        rounds, steps = (FULL_ROUNDS, FULL_STEPS_PER_ROUND) if used < n_rows else (ROUNDS, STEPS_PER_ROUND)
        point, distance = _search(whole, x, metric_rows, n_rows, rounds, steps, bar)
    return Mode(as_tree(point.x, start), distance < TOLERANCE, distance, whole.passes)


def _search(
    objective: _Objective, x: np.ndarray, metric_rows: Table, n_rows: int, rounds: int, steps: int, bar: Bar
) -> tuple[_Point, float]:
    """Rounds of ascent, each with the metric of where it starts, until close or out of work."""
    point, metric, distance = None, None, np.inf
    for _ in range(rounds):
        metric = objective.metric(x, metric_rows, n_rows)
        point = _evaluate(objective, x, metric)
        distance = metric.distance(point.settled)
        if distance < TOLERANCE:
            break
        moved = _ascend(objective, point, metric, steps, bar)
        if moved is point or objective.passes > MOST_PASSES:
            break
        point, x = moved, moved.x
        distance = metric.distance(point.settled)
    assert point is not None
    assert metric is not None
    return point, distance if objective.determines(x, metric.silent, metric_rows) else np.inf


def _ascend(objective: _Objective, point: _Point, metric: Metric, steps: int, bar: Bar) -> _Point:
    memory = QuasiNewton(metric)
    for _ in range(steps):
        if metric.distance(point.settled) < TOLERANCE / 2 or objective.passes > MOST_PASSES:
            break
        new = _line_search(objective, point, memory.direction(point.settled), metric)
        if new is None and memory.pairs:
            memory = QuasiNewton(metric)
            new = _line_search(objective, point, memory.direction(point.settled), metric)
        if new is None:
            break
        memory.learn(new.x - point.x, point.gradient - new.gradient)
        point = new
        bar.update(1, log_posterior=point.value)
    return point


def _line_search(objective: _Objective, point: _Point, direction: np.ndarray, metric: Metric) -> _Point | None:
    """The first of 1, 1/2, 1/4, ... of the direction that climbs; a value that is not finite does not."""
    slope = float(point.settled @ direction)
    length = 1.0
    for _ in range(HALVINGS if slope > 0 else 0):
        new = _evaluate(objective, point.x + length * direction, metric)
        if np.isfinite(new.value) and np.isfinite(new.gradient).all() and new.value > point.value + 1e-4 * length * slope:
            return new
        length /= 2
    return None


def _evaluate(objective: _Objective, x: np.ndarray, metric: Metric) -> _Point:
    value, gradient, prior = objective(x)
    below, above = (objective.prior(x + side * KINK * metric.sd)[1] for side in (-1, 1))
    return _Point(x, value, gradient, without_kinks(gradient, prior, below, above))


def _metric_rows(dimension: int) -> int:
    return METRIC_ROWS if dimension <= LARGEST_DENSE else LARGE_MODEL_METRIC_ROWS


def keeps_climbing(posterior: Posterior, arrays: Table, start: PyTree, end: PyTree) -> bool:
    """Whether the log posterior does not fall on the way on from `start` through `end`: then it has no mode there."""
    objective = _Objective(posterior, arrays, start, 1.0)
    here, away = join(end), join(end) - join(start)
    values = [objective(here + further * away)[0] for further in (0.0, 0.5, 1.0, 3.0)]
    return bool(np.isfinite(values).all() and (np.diff(values) >= -1e-6 * (1 + abs(values[0]))).all())


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
