"""A pool of rows: drawn once by importance from data too large to hold, then sampled from in memory.

With the exact full gradient at the centre known, only differences to it need rows. A pool of m rows, row i drawn with
probability q_i and counted 1/(m q_i) times, estimates their sum without bias. What the pool got wrong stays wrong for as long
as it is used: a fixed shift of the whitened gradient, and so of the posterior mean in posterior standard deviations, with
standard deviation √(V/m), where V is the variance of an estimate from a single row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import Batch, PyTree, Rows
from sgmcmc.rows.gathering import aligned, gather, gather_all
from sgmcmc.rows.sources import FromTable, distinct, draw_distinct
from sgmcmc.rows.table import Table

UNIFORM_SHARE = 0.1
"""Of the pool that is drawn alike from all rows: bounds every weight, however wrong the scores."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows drawn independently, each chain's own ones adjacent.

    Attributes:
        rows: the rows, in memory.
        inverse: 1/q of each, q being the probability with which it is drawn.
        numbers: where each was in the dataset.
        n_rows: of the dataset.
        chains: how many pools it is: as many chains have one of their own each.
    """

    rows: dict[str, np.ndarray]
    inverse: np.ndarray
    numbers: np.ndarray
    n_rows: int
    chains: int

    @property
    def size(self) -> int:
        """Rows in all."""
        return len(self.inverse)

    def some(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """Rows drawn by importance, and 1/q of each: any of the pool's are that."""
        index = np.sort(rng.integers(0, self.size, count))
        return gather_all(Table(self.rows), index), self.inverse[index]

    def source(self, batch_size: int) -> PoolRows:
        """Minibatches of each chain's own pool."""
        return PoolRows(Table(self.rows), batch_size, self)


@dataclass(frozen=True)
class PoolRows(FromTable):
    """Minibatches of a pool, drawn alike and without replacement, each chain from its own."""

    pool: Pool

    kind = "pool"
    data = ()

    @property
    def n_rows(self) -> int:
        return self.pool.n_rows

    @property
    def per_chain(self) -> int:
        """Rows that a chain's minibatches are drawn from."""
        return self.pool.size // self.pool.chains

    @property
    def bytes_per_batch(self) -> int:
        return self.batch_size * (self.row_bytes + 8)

    def draw(self, keys: jax.Array) -> PyTree:
        chains = keys.shape[1] if keys.ndim == 3 else 1  # iteration, chain, leap
        numbers = jnp.broadcast_to(jnp.arange(chains, dtype=jnp.int32), (len(keys), chains))
        return draw_distinct(keys, self.per_chain, self.batch_size), numbers

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        drawn, chains = drawn  # whose chains these are: a device may be asked for some of them only
        capacity, index = distinct(drawn, count, self.per_chain, self.batch_size)
        if index.ndim == 4:  # iteration, chain, leap, row
            index = index + self.per_chain * np.asarray(chains)[:count, :, None, None]
        numbers = gather(self._numbers, index, capacity)
        return gather_all(self.table, index, capacity), gather(self._weights, index, capacity), numbers

    @cached_property
    def _weights(self) -> np.ndarray:
        return (self.pool.inverse / self.batch_size).astype(jnp.result_type(float))

    @cached_property
    def _numbers(self) -> np.ndarray:
        return self.pool.numbers.astype(np.int32)

    def take(self, data: PyTree, entry: PyTree) -> Batch:
        return Batch(*entry)


def draw_pool(scored: Iterable[tuple[Rows, np.ndarray]], like: Table, size: int, chains: int, seed: int) -> Pool:
    """A pool from one pass over the data, in blocks of rows with their scores: memory for the pool and one block only.

    Each place of the pool is one draw of its own, by score or, for a share of them, alike. A block takes over a place with
    the share of the total so far that it makes up, and puts one of its rows there: so at the end every place holds row i with
    probability proportional to its score, whatever the blocks.
    """
    rng = np.random.default_rng(seed)
    size -= size % chains
    rows = {name: aligned((size, *column.shape[1:]), column.dtype) for name, column in like.items()}
    scores, numbers = np.zeros(size), np.zeros(size, np.int64)
    by_score = rng.random(size) >= UNIFORM_SHARE
    places = {True: np.flatnonzero(by_score), False: np.flatnonzero(~by_score)}
    seen, total = 0, {True: 0.0, False: 0.0}
    for block, of_block in scored:
        count = len(of_block)
        for component, law in ((True, of_block.astype(np.float64)), (False, np.ones(count))):
            weight = float(law.sum())
            if weight == 0 and total[component] > 0:
                continue
            total[component] += weight
            share = weight / total[component] if weight > 0 else 1.0  # nothing scored yet: any row holds the place for now
            mine, edges = places[component], np.cumsum(law if weight > 0 else np.ones(count))
            taken = mine[rng.choice(len(mine), rng.binomial(len(mine), share), replace=False, shuffle=False)]
            picked = np.minimum(np.searchsorted(edges, rng.random(len(taken)) * edges[-1], side="right"), count - 1)
            for name, array in rows.items():
                array[taken] = np.asarray(block[name])[picked]
            scores[taken], numbers[taken] = of_block[picked], seen + picked
        seen += count
    relative = scores / total[True] if total[True] > 0 else np.full(size, 1 / seen)
    return Pool(rows, 1 / ((1 - UNIFORM_SHARE) * relative + UNIFORM_SHARE / seen), numbers, seen, chains)
