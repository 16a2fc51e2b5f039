"""The centre of the control variates, found with nothing to tune.

First on a subsample, then on the whole data: quasi-Newton ascent preconditioned by the Fisher information of the rows, so
that "close" is measured in posterior standard deviations whatever the units. An estimate with control variates is
unbiased for any centre; a close one makes it quiet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgmcmc.centering import (
    KINK,
    LARGEST_DENSE,
    Metric,
    QuasiNewton,
    as_tree,
    curvature_along,
    dense_metric,
    fisher_information,
    prior_curvature,
    prior_value_and_gradient,
    subsample_size,
    value_and_gradient,
    without_kinks,
)
from sgmcmc.core.progress import Bar, Progress
from sgmcmc.core.trees import join, size
from sgmcmc.core.types import PyTree
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
