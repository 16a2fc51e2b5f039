"""The noise of minibatch gradients, measured before sampling: which rows make it, and how much there is of it.

All in the variables z of a whitening, where the posterior is near N(0, I).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Rows, flat, split, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening, whitened
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.importance import Importance, draw_pool, mixed
from sgmcmc.rows.sources import Source
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import all_rows

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


class Choice(Protocol):
    """How rows are drawn that matter more than others."""

    def some(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """Rows drawn independently, and 1 over the probability of each."""
        ...

    def source(self, batch_size: int) -> Source:
        """Minibatches drawn so."""
        ...


@dataclass(frozen=True)
class Noise:
    """The variance of an estimate from a single row, in all directions: a matrix, or its diagonal for a whitening by scales.

    An estimate from n rows drawn independently has 1/n of it.

    Attributes:
        drawn: with the row drawn by the probabilities given.
        alike: with all rows alike.
    """

    drawn: np.ndarray
    alike: np.ndarray


@dataclass(frozen=True)
class Pilot:
    """Row gradients of a posterior in whitened variables: their differences to the centre's, where `centred`.

    The whitening is an argument of what is compiled: another one costs no compilation.
    """

    posterior: Posterior
    arrays: Table
    centred: bool

    def weigh(self, whitening: Whitening, points: np.ndarray, chains: int, seed: int, progress: Progress) -> Choice:
        """How to draw rows by their scores: all of them, or where they do not fit into memory a pool for each chain."""
        with Bar(progress, "row weights", self.posterior.n_rows, "row") as bar:
            if not self.pooled:
                return Importance(self.arrays, self.probabilities(whitening, points, bar))
            size = min(POOL_ROWS, POOL_BYTES // self.arrays.row_bytes)
            return draw_pool(self._scored(whitening, points, bar), self.arrays, max(size, chains), chains, seed)

    def probabilities(self, whitening: Whitening, points: np.ndarray, bar: Bar) -> np.ndarray:
        """A probability for every row by its score, which takes memory for each."""
        return mixed(np.concatenate([scores for _, scores in self._scored(whitening, points, bar)]))

    @property
    def pooled(self) -> bool:
        """Whether the rows, or a number for each, are too many to hold."""
        return self.arrays.large or (not self.arrays.in_memory and self.arrays.n_rows > MOST_WEIGHED)

    def _scored(self, whitening: Whitening, points: np.ndarray, bar: Bar) -> Iterator[tuple[Rows, np.ndarray]]:
        """All rows, with the root mean square length of each one's term over some points."""
        for rows in all_rows(self.arrays, 12 * points.shape[1]):
            squares = np.asarray(self._squares(whitening, jnp.asarray(points, float), rows))
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
            rows, weight = gather_all(self.arrays, index), np.full(len(index), float(n_rows))
        drawn, alike = self._variances(whitening, jnp.asarray(points, float), rows, jnp.asarray(weight / n_rows, float))
        scale = float(n_rows) ** 2
        return Noise(scale * np.asarray(drawn, np.float64), scale * np.asarray(alike, np.float64))

    @cached_property
    def _squares(self) -> Callable[..., jax.Array]:
        def squares(whitening: Whitening, points: jax.Array, rows: Rows) -> jax.Array:
            terms = self._terms(whitening, rows)
            return jax.lax.map(lambda z: jnp.sum(terms(z) ** 2, axis=1), points).sum(axis=0)

        return jax.jit(squares)

    @cached_property
    def _variances(self) -> Callable[..., tuple[jax.Array, jax.Array]]:
        def variances(whitening: Whitening, points: jax.Array, rows: Rows, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
            terms, w = self._terms(whitening, rows), weight[:, None]

            def square(left: jax.Array, right: jax.Array) -> jax.Array:
                return left.T @ right / len(weight) if whitening.dense else jnp.mean(left * right, axis=0)

            def at(z: jax.Array) -> tuple[jax.Array, jax.Array]:
                row = terms(z)
                mean = jnp.mean(w * row, axis=0)
                common = jnp.outer(mean, mean) if whitening.dense else mean**2
                return square(w * row, w * row) - common, square(row, w * row) - common

            return tree_map(lambda x: x.mean(axis=0), jax.lax.map(at, points))

        return jax.jit(variances)

    def _terms(self, whitening: Whitening, rows: Rows) -> Callable[[jax.Array], jax.Array]:
        """Every row's term of the estimate at z, as one vector each."""
        posterior, like = whitened(self.posterior, whitening), whitening.zero()

        def gradients(z: jax.Array) -> jax.Array:
            return jax.vmap(flat)(posterior.row_gradients(split(z, like), rows))

        if not self.centred:
            return gradients
        there = gradients(flat(like))
        return lambda z: gradients(z) - there


def posterior_points(whitening: Whitening, seed: int) -> np.ndarray:
    """Points of N(0, I) to measure the noise at before there are draws."""
    count = NOISE_POINTS if whitening.dense else FEW_POINTS
    return np.random.default_rng(seed + 1).standard_normal((count, _dimension(whitening)))


def _dimension(whitening: Whitening) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(whitening.origin))
