"""Rows drawn with unequal probabilities: row i with probability q_i, with replacement, counted 1/(n q_i) times.

Rows that matter more come more often and count less, so the estimate stays unbiased and its variance falls. An alias table
draws a row in O(1), whatever N: pick a column uniformly, then keep it or go to its alias.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import Batch, PyTree, Rows, tree_map
from sgmcmc.rows.gathering import filled_up, gather, gather_all
from sgmcmc.rows.sources import FromTable, Source, per_key, streams
from sgmcmc.rows.table import as_table, whole

TICKS = 2**23
"""A uniform float32 of JAX is a whole number of these parts of 1: what a column can be kept with is no finer."""


@dataclass(frozen=True, eq=False)
class AliasTable:
    """Walker's alias table: column i is kept with probability `keep[i]`, else it stands for row `alias[i]`.

    Attributes:
        keep: whole multiples of 1/`TICKS`, so that a uniform float32 is below it with exactly this probability.
        alias: the other row of each column.
        probabilities: the exact law of the rows drawn. It differs from what was asked for by about 1/`TICKS` of 1/N at most.
    """

    keep: np.ndarray
    alias: np.ndarray
    probabilities: np.ndarray

    def rows(self, columns: np.ndarray, coins: np.ndarray) -> np.ndarray:
        """The rows that uniform columns and uniform numbers in [0, 1) stand for."""
        keep, alias = gather(self.keep, columns), gather(self.alias, columns)
        return np.where(coins < keep, columns, alias)


def make_alias_table(probabilities: Any) -> AliasTable:
    """The table for probabilities, or anything proportional to them: O(N) memory, no loop over rows.

    Every column has room for 1/N. Light rows (below 1/N) keep part of theirs and leave the rest to the heavy rows in turn; a
    heavy row that gave more than its excess leaves what it lacks to the next heavy row. Who serves whom is read off running
    sums, in whole numbers, so that nothing is lost to rounding.
    """
    wanted = _nonnegative(probabilities, "probabilities")
    if not wanted.any():
        raise InputError("probabilities are all zero; expected one positive number per row, such as mixed(scores)")
    ticks = _whole_ticks(wanted)
    light, heavy = np.flatnonzero(ticks < TICKS), np.flatnonzero(ticks >= TICKS)
    lacking, offered = (np.concatenate([[0], np.cumsum(np.abs(ticks[rows] - TICKS))]) for rows in (light, heavy))
    keep, alias = np.minimum(ticks, TICKS), np.arange(len(ticks), dtype=np.int32)
    alias[light] = heavy[np.searchsorted(offered[1:], lacking[:-1], side="right")]
    keep[heavy] -= lacking[np.searchsorted(lacking, offered[1:])] - offered[1:]
    alias[heavy[:-1]] = heavy[1:]
    return AliasTable((keep / TICKS).astype(np.float32), alias, ticks / (len(ticks) * TICKS))


def mixed(scores: Any, uniform_share: float = 0.1) -> np.ndarray:
    """Probabilities proportional to the scores, with a share spread evenly over all rows; even where all scores are zero.

    The share bounds every row's weight by N/n over it, however wrong the scores.
    """
    scores = _nonnegative(scores, "scores")
    if not 0 <= uniform_share <= 1:
        raise InputError(f"uniform_share is {describe(uniform_share)}; expected a number from 0 to 1, such as 0.1")
    largest = scores.max()
    relative = scores / largest if largest > 0 else np.ones_like(scores)
    return (1 - uniform_share) * (relative / relative.sum()) + uniform_share / len(scores)


@dataclass(frozen=True, eq=False)
class Importance:
    """A probability for every row of a table."""

    arrays: Mapping[str, Any]
    probabilities: np.ndarray

    def some(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """Rows drawn by them, in order, and 1/q of each."""
        edges = np.cumsum(self.probabilities)
        drawn = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
        index = np.sort(np.minimum(drawn, len(edges) - 1))
        return gather_all(as_table(self.arrays), index), 1 / self.probabilities[index]

    def source(self, batch_size: int) -> Source:
        """Minibatches drawn by them."""
        return make_importance_rows(self.arrays, batch_size, self.probabilities)


@dataclass(frozen=True)
class ImportanceRows(FromTable):
    """What both versions share. Compiled code sees the table's numbers as arguments: another table needs no other program."""

    law: AliasTable

    kind = "importance"

    def __post_init__(self) -> None:
        q = self.law.probabilities
        if len(q) != self.n_rows:
            raise InputError(f"probabilities has {len(q)} entries; expected one for each of the {self.n_rows} rows")
        if not q.all():
            raise InputError(
                f"row {int(np.argmin(q))} would never be drawn: its probability is zero or below {1 / TICKS:.1g} of the mean; "
                "spread a share over all rows, as mixed(scores, uniform_share=0.1) does"
            )

    @cached_property
    def weights(self) -> np.ndarray:
        """What each row counts for when it is drawn."""
        return (1 / (self.batch_size * self.law.probabilities)).astype(jnp.result_type(float))

    def draw(self, keys: jax.Array) -> PyTree:
        return columns_and_coins(keys, self.n_rows, self.batch_size)


@dataclass(frozen=True)
class HostImportanceRows(ImportanceRows):
    """Rows gathered by NumPy while the device works on the chunk before (see `HostRows`)."""

    data = ()

    @property
    def bytes_per_batch(self) -> int:
        return self.batch_size * (self.row_bytes + self.weights.itemsize + 4)

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        capacity = len(drawn[0])
        index = self.law.rows(*(np.asarray(numbers)[:count] for numbers in drawn))
        rows = gather_all(self.table, index, capacity)
        return rows, gather(self.weights, index, capacity), filled_up(index, capacity)

    def take(self, data: PyTree, entry: PyTree) -> Batch:
        return Batch(*entry)


@dataclass(frozen=True)
class DeviceImportanceRows(ImportanceRows):
    """Rows looked up and gathered on the device from a copy of the data and of the table: for accelerators."""

    @property
    def bytes_per_batch(self) -> int:
        return 8 * self.batch_size

    @cached_property
    def data(self) -> PyTree:
        return jax.device_put(((self.law.keep, self.law.alias), (whole(self.table), self.weights)))

    def take(self, data: PyTree, entry: PyTree) -> Batch:
        (columns, numbers), (table, dataset) = entry, data
        keep, alias = _rows_of(table, columns)
        index = jnp.where(numbers < keep, columns, alias)
        rows, weight = _rows_of(dataset, index)
        return Batch(rows, weight, index)


def make_importance_rows(arrays: Mapping[str, Any], batch_size: int, probabilities: Any) -> Source:
    """The source that draws row i of a table in proportion to `probabilities[i]`, on this backend."""
    on_host = jax.default_backend() == "cpu" or not as_table(arrays).in_memory
    version = HostImportanceRows if on_host else DeviceImportanceRows
    return version(arrays, batch_size, make_alias_table(probabilities))


@partial(jax.jit, static_argnums=1)
@per_key
def coins(key: jax.Array, length: int) -> jax.Array:
    """Independent uniform numbers in [0, 1), for every key, apart from its `streams`."""
    return jax.random.uniform(jax.random.fold_in(key, 1), (length,), jnp.float32)


@partial(jax.jit, static_argnums=(1, 2))
def columns_and_coins(keys: jax.Array, n_rows: int, length: int) -> tuple[jax.Array, jax.Array]:
    """What the table needs for `length` rows of every key, in one program."""
    return streams(keys, 0, n_rows, length), coins(keys, length)


def _rows_of(tree: PyTree, index: jax.Array) -> PyTree:
    return tree_map(lambda x: x.at[index].get(mode="promise_in_bounds"), tree)


def _whole_ticks(wanted: np.ndarray) -> np.ndarray:
    """N times the probabilities in whole ticks that add up to N `TICKS` exactly: differences of rounded running sums."""
    edges = np.cumsum(wanted)
    edges /= edges[-1]
    edges *= len(wanted) * TICKS
    return np.diff(np.rint(edges, out=edges).astype(np.int64), prepend=0)


def _nonnegative(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not array.size:
        raise InputError(f"{name} is {describe(values)}; expected one number per row")
    if not (np.isfinite(array) & (array >= 0)).all():
        row = int(np.argmin(np.isfinite(array) & (array >= 0)))
        raise InputError(f"{name}[{row}] is {array[row]}; expected finite numbers of at least 0")
    return array
