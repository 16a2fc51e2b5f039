"""Which rows make the noise of minibatch gradients, how much of it there is, and how steep the posterior is away from its
centre: all in the variables z of a whitening, where the posterior is near N(0, I).

What is measured for every row takes derivatives along single directions, so that its cost does not grow with the parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, Rows, flat, size, split, tree_map
from sgmcmc.problem.arrow import ArrowWhitening
from sgmcmc.problem.passes import all_rows, compiled, full_sum
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import AnyWhitening, whitened
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.importance import UNIFORM_SHARE, Pool, RowLaw, draw_pool, mixed
from sgmcmc.rows.table import Table
from sgmcmc.tune.mode import curvature_times

FEWEST_POINTS, MOST_POINTS, SCORED_BYTES = 8, 16, 2 << 30
"""Points at which the rows are scored: as many as reading so much in all allows."""

WIDE, WIDTH = 4, 2.5
"""One point in so many is far out: drawn that much wider than N(0, I), or the farthest the chains have been."""

NOISE_ROWS, NOISE_POINTS = 4096, 256
"""Rows and points from which the noise is measured: it varies from point to point as a square does, so many are needed."""

NOISE_WORK, FEW_ROWS, FEW_POINTS = 1.3e10, 1024, 16
"""Rows × points × d² that this may cost; with more, fewer rows and points do."""

LARGEST_MATRIX = 512
"""Numbers up to which the noise is measured as a matrix; of more, or of groups, its diagonal."""

SKETCHES, SKETCHED_ROWS, FARTHEST, LOUDER = 48, 1 << 18, 2.0, 0.005
"""How many sums of rows with random signs tell the diagonal, and of how many rows at most. With powers of the distance in them a
few would be larger than all others: so no point is farther than this in any direction, and some directions may be louder."""

TOGETHER = 8
"""Points that are looked at together: a row that is read once for all of them takes less time than its numbers do."""

CURVATURE_ROWS, CURVATURE_POINTS, FEW_CURVATURE_POINTS, POWER_ITERATIONS = 4096, 16, 4, 8
"""Rows and points at which the largest curvature is looked for, and how long."""

IMPLAUSIBLE, SLACK, NEARER = 10.0, 50.0, 6
"""A point whose log density is lower than the centre's by so many times what a Gaussian's would be, and so much more, is where no
chain goes: it is brought nearer, by half, so often at most."""

POOL_ROWS, POOL_BYTES = 1_000_000, 256 << 20
"""How large a pool is at most."""

MOST_WEIGHED = 5_000_000
"""Rows on disk of which each is given a probability of its own; of more, a pool is drawn."""

Choice: TypeAlias = RowLaw | Pool
"""How rows are drawn that matter more than others."""


class Noise(NamedTuple):
    """The variance of an estimate from a single row drawn by the probabilities given: a matrix, or its diagonal.

    An estimate from n rows drawn independently has 1/n of it. `loudest` is the variance in the direction that has most;
    `gain` how many times as large it would be, were all rows drawn alike.
    """

    drawn: np.ndarray
    loudest: float
    gain: float

    @property
    def diagonal(self) -> np.ndarray:
        return np.diag(self.drawn) if self.drawn.ndim == 2 else self.drawn


@dataclass(frozen=True)
class Pilot:
    """Terms of the rows in estimates of the gradient, in whitened variables: of order 0 their gradients, of order 1 what these
    differ from the centre's by, of order 2 what they differ by from a line through the centre's.

    The whitening is an argument of what is compiled: another one costs no compilation.
    """

    posterior: Posterior
    table: Table
    order: int
    progress: Progress = False

    def weigh(self, whitening: AnyWhitening, points: np.ndarray, chains: int, seed: int) -> Choice:
        """How to draw rows by their scores: all of them, or where they do not fit into memory a pool for each chain."""
        table = self.table
        if not table.large and (table.in_memory or table.n_rows <= MOST_WEIGHED):
            return self.importance(whitening, points)
        most = min(POOL_ROWS, POOL_BYTES // table.row_bytes)
        return draw_pool(self._scored(whitening, points), table, max(most, chains), chains, seed)

    def importance(self, whitening: AnyWhitening, points: np.ndarray, uniform_share: float = UNIFORM_SHARE) -> RowLaw:
        """A probability for every row by its score, which takes memory for each."""
        scores = np.concatenate([scores for _, scores in self._scored(whitening, points)])
        return RowLaw(self.table, mixed(scores, uniform_share))

    def _scored(self, whitening: AnyWhitening, points: np.ndarray) -> Iterator[tuple[Rows, np.ndarray]]:
        """All rows, with the root mean square length of each one's term over some points."""
        program, rng = compiled(_squares, self.posterior, self.order), np.random.default_rng(len(points))
        given = tuple(jnp.asarray(x, float) for x in (points, rng.standard_normal(points.shape)))
        with Bar(self.progress, "row weights", self.posterior.n_rows, "row") as bar:
            for rows in all_rows(self.table, 64):
                squares = np.asarray(program(whitening, *given, rows))
                bar.update(len(squares))
                yield rows, np.sqrt(squares / len(points))

    def points(self, dimension: int, seed: int) -> np.ndarray:
        """Points of N(0, I) and beyond, for scores before there are draws."""
        points = np.random.default_rng(seed).standard_normal((self._count, dimension))
        points[::WIDE] *= WIDTH
        return points

    def some_of(self, states: np.ndarray) -> np.ndarray:
        """States of chains for scores, the farthest among them."""
        far = np.argsort(np.sum(states**2, axis=1))[-self._count // WIDE :]
        return np.concatenate([states[np.linspace(0, len(states) - 1, self._count - len(far)).astype(int)], states[far]])

    @property
    def _count(self) -> int:
        return min(MOST_POINTS, max(FEWEST_POINTS, SCORED_BYTES // (self.posterior.n_rows * max(48, self.table.row_bytes))))

    def noise(self, whitening: AnyWhitening, points: np.ndarray, choice: Choice | None, seed: int) -> Noise:
        """The noise of rows drawn by a choice (None: all alike), averaged over `points`."""
        rng, d = np.random.default_rng(seed), points.shape[1]
        if not whitening.dense or isinstance(whitening, ArrowWhitening) or d > LARGEST_MATRIX:
            return self._sketched(whitening, points, choice, rng)
        rows, inverse = self._drawn(choice, noise_rows(d), rng)
        program = compiled(_variances, self.posterior, self.order)
        n_rows = float(self.posterior.n_rows)
        found = program(whitening, jnp.asarray(points, float), rows, jnp.asarray(inverse / n_rows, float))
        drawn, alike = (n_rows**2 * np.asarray(variance, np.float64) for variance in found)
        gain = alike.max() / max(np.diag(drawn).max(), 1e-30)
        return Noise(drawn, float(np.linalg.eigvalsh(drawn)[-1]), float(gain))

    def _drawn(self, choice: Choice | None, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """Rows drawn by a choice, and 1/q of each; all rows as they are where no more are asked for and they are alike."""
        if choice is not None:
            return choice.some(count, rng)
        n_rows = self.posterior.n_rows
        index = np.arange(n_rows) if n_rows <= count else np.sort(rng.integers(0, n_rows, count))
        return gather_all(self.table, index), np.full(len(index), float(n_rows))

    def _sketched(self, whitening: AnyWhitening, points: np.ndarray, choice: Choice | None, rng: np.random.Generator) -> Noise:
        """By sums of rows with random signs: their squares have the mean of the sum of the rows' squares, in every direction."""
        d = points.shape[1]
        points = np.clip(points[np.linspace(0, len(points) - 1, SKETCHES).astype(int)], -FARTHEST, FARTHEST)
        rows, inverse = self._drawn(choice, min(SKETCHED_ROWS, max(NOISE_ROWS, 4 * d)), rng)
        signs = rng.choice(np.array([-1.0, 1.0]), (SKETCHES, len(inverse))) / np.sqrt(len(inverse))
        sums = self._sums(whitening, points, signs * inverse, rows)
        if self.order == 0:
            mean = self._sums(whitening, points[:1], inverse[None] / len(inverse), rows)
            sums = sums * np.sqrt(np.maximum(1 - mean**2 / np.maximum(np.mean(sums**2, axis=0), 1e-30), 0.0))
        drawn = np.mean(sums**2, axis=0)
        few = SKETCHES // 8
        alike = self._sums(whitening, points[:few], signs[:few] * np.sqrt(inverse * self.posterior.n_rows), rows)
        gain = np.sum(alike**2) / max(np.sum(sums[:few] ** 2), 1e-30)
        half = SKETCHES // 2
        direction = np.linalg.svd(sums[:half], full_matrices=False)[2][0]
        along = float(np.mean((sums[half:] @ direction) ** 2))
        loud = np.quantile(drawn, 1 - LOUDER) / largest_of(round(1 / LOUDER), SKETCHES)
        return Noise(drawn, max(along, float(loud)), float(gain))

    def _sums(self, whitening: AnyWhitening, points: np.ndarray, weights: np.ndarray, rows: Rows) -> np.ndarray:
        """Weighted sums of the rows' terms, one for each point and its weights."""
        program, count, total = compiled(_weighted, self.posterior, self.order), weights.shape[1], 0.0
        for first in range(0, count, NOISE_ROWS):
            part = slice(first, first + NOISE_ROWS)
            few, lines = {name: column[part] for name, column in rows.items()}, jnp.asarray(weights[:, part], float)
            total = total + np.asarray(program(whitening, jnp.asarray(points, float), lines, few), np.float64)
        return np.asarray(total)

    def plausible(self, whitening: AnyWhitening, points: np.ndarray, choice: Choice | None, seed: int) -> np.ndarray:
        """Points brought nearer to the centre where the posterior has nothing, as beyond the wall of an exponential; judged from
        all rows, or where a choice is given from some of them.
        """
        points = points.copy()
        for _ in range(NEARER):
            gone = ~(self._drops(whitening, points, choice, seed) < IMPLAUSIBLE / 2 * np.sum(points**2, axis=1) + SLACK)
            if not gone.any():
                break
            points[gone] /= 2
        return points

    def _drops(self, whitening: AnyWhitening, points: np.ndarray, choice: Choice | None, seed: int) -> np.ndarray:
        """How much lower the log posterior is at each point than at the centre."""
        sketch = None if choice is None else choice.sketch(CURVATURE_ROWS, np.random.default_rng(seed))
        padded = np.resize(points, (-(-len(points) // MOST_POINTS) * MOST_POINTS, points.shape[1]))  # one program for any number
        parts = [self._fall(whitening, part, sketch) for part in np.split(padded, len(padded) // MOST_POINTS)]
        return np.concatenate(parts)[: len(points)]

    def _fall(self, whitening: AnyWhitening, points: np.ndarray, sketch: tuple[Rows, np.ndarray] | None) -> np.ndarray:
        """The same for a handful of points: from a sketch of the rows, or from all of them."""
        program, given = compiled(_falls, self.posterior, "each_row"), (whitening, jnp.asarray(points, float))
        prior = np.asarray(compiled(_falls, self.posterior, "log_density_prior")(*given), np.float64)
        if sketch is not None:
            return prior + np.asarray(program(*given, jnp.asarray(sketch[1], float), sketch[0]), np.float64)
        return prior + full_sum(partial(program, *given, jnp.ones(())), self.table, extra=64)

    def curvatures(self, whitening: AnyWhitening, points: np.ndarray, choice: Choice, seed: int) -> np.ndarray:
        """The largest curvature at each of some points, taken to be 1 in all directions at the centre, as whitened."""
        count = min(SKETCHED_ROWS, self.posterior.n_rows) if isinstance(whitening, ArrowWhitening) else CURVATURE_ROWS
        rows, weight = choice.sketch(count, np.random.default_rng(seed))
        begin = np.random.default_rng(seed + 1).standard_normal(points.shape[1])
        program = compiled(_largest_curvatures, self.posterior)
        found = program(whitening, *(jnp.asarray(x, float) for x in (points, begin)), rows, jnp.asarray(weight, float))
        return np.nan_to_num(np.asarray(found, np.float64), nan=np.inf)

    @staticmethod
    def curvature_points(whitening: AnyWhitening, states: np.ndarray) -> np.ndarray:
        """As many of some states as the curvature is looked for at, half of them the farthest from the centre."""
        many = whitening.dense and not isinstance(whitening, ArrowWhitening)
        count = CURVATURE_POINTS if many else FEW_CURVATURE_POINTS
        far = np.argsort(np.sum(states**2, axis=1))[-(count // 2) :]
        return states[np.concatenate([np.linspace(0, len(states) - 1, count - len(far)).astype(int), far])]


def _largest_curvatures(
    posterior: Posterior, whitening: AnyWhitening, points: jax.Array, begin: jax.Array, rows: Rows, weight: jax.Array
) -> jax.Array:
    """By power iteration: what the curvature gains from the centre to each point, on top of 1."""
    of_z, zero = whitened(posterior, whitening), whitening.zero()

    def log_density(z: PyTree) -> jax.Array:
        return jnp.dot(weight, of_z.each_row(z, rows)) + of_z.log_density_prior(z)

    def at(point: jax.Array) -> jax.Array:
        def times(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            direction = split(carry[0], zero)
            gain = curvature_times(log_density, split(point, zero), direction) - curvature_times(log_density, zero, direction)
            product = carry[0] + gain
            length = jnp.linalg.norm(product)
            return product / length, length

        return jax.lax.fori_loop(0, POWER_ITERATIONS, times, (begin / jnp.linalg.norm(begin), jnp.ones((), begin.dtype)))[1]

    return jax.lax.map(at, points, batch_size=TOGETHER)


def _falls(
    posterior: Posterior, density: str, whitening: AnyWhitening, points: jax.Array, weight: Any = 1.0, *rows: Rows
) -> jax.Array:
    """By how much a log density of the posterior, by its name, falls from the centre to each point, summed over rows."""
    log_density, zero = getattr(whitened(posterior, whitening), density), whitening.zero()
    there = log_density(zero, *rows)
    return jax.lax.map(lambda z: jnp.sum(weight * (there - log_density(split(z, zero), *rows))), points, batch_size=TOGETHER)


def _squares(
    posterior: Posterior, order: int, whitening: AnyWhitening, points: jax.Array, directions: jax.Array, rows: Rows
) -> jax.Array:
    """The squared derivative of every row's term along a direction at each point, summed: where directions are of N(0, I), its
    squared length on average.
    """
    of_z, zero = whitened(posterior, whitening), whitening.zero()

    def at(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        z, along = (split(x, zero) for x in given)

        def slope(x: PyTree) -> jax.Array:
            return jax.jvp(lambda x: of_z.each_row(x, rows), (x,), (along,))[1]

        found = slope(z)
        if order == 1:
            found = found - slope(zero)
        if order == 2:
            there, turn = jax.jvp(slope, (zero,), (z,))
            found = found - there - turn
        return found**2

    return jax.lax.map(at, (points, directions), batch_size=TOGETHER).sum(axis=0)


def _weighted(
    posterior: Posterior, order: int, whitening: AnyWhitening, points: jax.Array, weights: jax.Array, rows: Rows
) -> jax.Array:
    """Sums of the rows' terms, one for each point with its weights."""
    of_z, zero = whitened(posterior, whitening), whitening.zero()

    def at(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        z = split(given[0], zero)
        total = jax.grad(lambda x: jnp.dot(given[1], of_z.each_row(x, rows)))
        found = flat(total(z))
        if order == 0:
            return found
        if order == 1:
            return found - flat(total(zero))
        return found - sum(flat(part) for part in jax.jvp(total, (zero,), (z,)))

    return jax.lax.map(at, (points, weights), batch_size=TOGETHER)


def _variances(
    posterior: Posterior, order: int, whitening: AnyWhitening, points: jax.Array, rows: Rows, weight: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A matrix and, of rows drawn alike, its diagonal, over the squared number of rows; `weight` is 1 for rows drawn alike."""
    terms, w = _terms(posterior, order, whitening, rows), weight[:, None]

    def at(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        row = terms(z)
        weighted = w * row
        mean, alike = jnp.mean(weighted, axis=0), jnp.mean(row * weighted, axis=0)
        return weighted.T @ weighted / len(weight) - jnp.outer(mean, mean), alike - mean**2

    return tree_map(lambda x: x.mean(axis=0), jax.lax.map(at, points))


def _terms(posterior: Posterior, order: int, whitening: AnyWhitening, rows: Rows) -> Callable[[jax.Array], jax.Array]:
    """Every row's term of the estimate at z, as one vector each."""
    of_z, like = whitened(posterior, whitening), whitening.zero()

    def gradients(z: jax.Array) -> jax.Array:
        return jax.vmap(flat)(of_z.row_gradients(split(z, like), rows))

    if order == 0:
        return gradients
    if order == 1:
        there = gradients(flat(like))
        return lambda z: gradients(z) - there
    return lambda z: gradients(z) - sum(jax.jvp(gradients, (flat(like),), (z,)))


def largest_of(count: int, degrees: int) -> float:
    """About how large the largest of so many independent mean squares is, of so many standard normal numbers each."""
    spread = 2 / (9 * degrees)  # after Wilson and Hilferty
    return (1 - spread + NormalDist().inv_cdf(1 - 0.5 / count) * spread**0.5) ** 3


def posterior_points(whitening: AnyWhitening, seed: int) -> np.ndarray:
    """Points of N(0, I) to measure the noise at before there are draws."""
    d = size(whitening.origin)
    return np.random.default_rng(seed + 1).standard_normal((noise_points(d), d))


def noise_rows(dimension: int) -> int:
    """From how many rows the noise is measured, where it is a matrix."""
    return NOISE_ROWS if NOISE_ROWS * NOISE_POINTS * dimension**2 <= NOISE_WORK else FEW_ROWS


def noise_points(dimension: int) -> int:
    """At how many points the noise is measured."""
    if dimension > LARGEST_MATRIX:
        return SKETCHES
    return int(np.clip(NOISE_WORK / 4 / (FEW_ROWS * dimension**2), FEW_POINTS, NOISE_POINTS))
