"""The noise of minibatch gradients, measured before sampling: which rows make it, and how much there is of it.

All in the variables z of a whitening, where the posterior is near N(0, I).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Rows, flat, size, split, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening, whitened
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.importance import Importance, Pool, draw_pool, mixed
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import all_rows, compiled

FEWEST_POINTS, MOST_POINTS, SCORED_ROWS = 6, 16, 20_000_000
"""Points at which the rows are scored: as many as so many rows in all allow."""

WIDE, WIDTH = 4, 2.5
"""One point in so many is far out: drawn that much wider than N(0, I), or the farthest the chains have been."""

NOISE_ROWS, NOISE_POINTS, FEW_POINTS = 4096, 256, 16
"""Rows and points from which the noise is measured: it varies from point to point as a square does, so many are needed.
Of models so large that they are only scaled, few must do."""

POOL_ROWS, POOL_BYTES = 1_000_000, 256 << 20
"""How large a pool is at most."""

MOST_WEIGHED = 5_000_000
"""Rows on disk of which each is given a probability of its own; of more, a pool is drawn."""

Choice: TypeAlias = Importance | Pool
"""How rows are drawn that matter more than others."""


class Noise(NamedTuple):
    """The variance of an estimate from a single row, in all directions: a matrix, or its diagonal for a whitening by scales.

    An estimate from n rows drawn independently has 1/n of it. `drawn` is that of a row drawn by the probabilities given,
    `alike` with all rows alike.
    """

    drawn: np.ndarray
    alike: np.ndarray


@dataclass(frozen=True)
class Pilot:
    """Row gradients of a posterior in whitened variables: their differences to the centre's, where `centred`.

    The whitening is an argument of what is compiled: another one costs no compilation.
    """

    posterior: Posterior
    table: Table
    centred: bool
    progress: Progress = False

    def weigh(self, whitening: Whitening, points: np.ndarray, chains: int, seed: int) -> Choice:
        """How to draw rows by their scores: all of them, or where they do not fit into memory a pool for each chain."""
        table = self.table
        if not table.large and (table.in_memory or table.n_rows <= MOST_WEIGHED):
            return self.importance(whitening, points)
        most = min(POOL_ROWS, POOL_BYTES // table.row_bytes)
        return draw_pool(self._scored(whitening, points), table, max(most, chains), chains, seed)

    def importance(self, whitening: Whitening, points: np.ndarray) -> Importance:
        """A probability for every row by its score, which takes memory for each."""
        return Importance(self.table, mixed(np.concatenate([scores for _, scores in self._scored(whitening, points)])))

    def _scored(self, whitening: Whitening, points: np.ndarray) -> Iterator[tuple[Rows, np.ndarray]]:
        """All rows, with the root mean square length of each one's term over some points."""
        program = compiled(_squares, self.posterior, self.centred)
        with Bar(self.progress, "row weights", self.posterior.n_rows, "row") as bar:
            for rows in all_rows(self.table, 12 * points.shape[1]):
                squares = np.asarray(program(whitening, jnp.asarray(points, float), rows))
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
        return min(MOST_POINTS, max(FEWEST_POINTS, SCORED_ROWS // self.posterior.n_rows))

    def noise(self, whitening: Whitening, points: np.ndarray, choice: Choice | None, seed: int) -> Noise:
        """The noise of rows drawn by a choice (None: all alike), averaged over `points`."""
        rng, n_rows = np.random.default_rng(seed), self.posterior.n_rows
        if choice is not None:
            rows, weight = choice.some(NOISE_ROWS, rng)
        else:
            index = np.arange(n_rows) if n_rows <= NOISE_ROWS else np.sort(rng.integers(0, n_rows, NOISE_ROWS))
            rows, weight = gather_all(self.table, index), np.full(len(index), float(n_rows))
        program = compiled(_variances, self.posterior, self.centred)
        found = program(whitening, jnp.asarray(points, float), rows, jnp.asarray(weight / n_rows, float))
        return Noise(*(float(n_rows) ** 2 * np.asarray(variance, np.float64) for variance in found))


def _squares(posterior: Posterior, centred: bool, whitening: Whitening, points: jax.Array, rows: Rows) -> jax.Array:
    """The squared length of every row's term, summed over points."""
    terms = _terms(posterior, centred, whitening, rows)
    return jax.lax.map(lambda z: jnp.sum(terms(z) ** 2, axis=1), points).sum(axis=0)


def _variances(
    posterior: Posterior, centred: bool, whitening: Whitening, points: jax.Array, rows: Rows, weight: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Those of `Noise`, over the squared number of rows; `weight` is 1 for rows drawn alike."""
    terms, w = _terms(posterior, centred, whitening, rows), weight[:, None]

    def square(left: jax.Array, right: jax.Array) -> jax.Array:
        return left.T @ right / len(weight) if whitening.dense else jnp.mean(left * right, axis=0)

    def at(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        row = terms(z)
        mean = jnp.mean(w * row, axis=0)
        common = jnp.outer(mean, mean) if whitening.dense else mean**2
        return square(w * row, w * row) - common, square(row, w * row) - common

    return tree_map(lambda x: x.mean(axis=0), jax.lax.map(at, points))


def _terms(posterior: Posterior, centred: bool, whitening: Whitening, rows: Rows) -> Callable[[jax.Array], jax.Array]:
    """Every row's term of the estimate at z, as one vector each."""
    of_z, like = whitened(posterior, whitening), whitening.zero()

    def gradients(z: jax.Array) -> jax.Array:
        return jax.vmap(flat)(of_z.row_gradients(split(z, like), rows))

    if not centred:
        return gradients
    there = gradients(flat(like))
    return lambda z: gradients(z) - there


def posterior_points(whitening: Whitening, seed: int) -> np.ndarray:
    """Points of N(0, I) to measure the noise at before there are draws."""
    count = NOISE_POINTS if whitening.dense else FEW_POINTS
    return np.random.default_rng(seed + 1).standard_normal((count, size(whitening.origin)))
