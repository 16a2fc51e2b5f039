"""Rows drawn with unequal probabilities: row i with probability q_i, with replacement, counted 1/(n q_i) times.

Rows that matter more come more often and count less, so the estimate stays unbiased and its variance falls. An alias table
draws a row in O(1), whatever N: pick a column uniformly, then keep it or go to its alias. Rows that would come in every minibatch
on average, such as the few of a rare level, are cheaper to take always, each counted once: they make no noise at all.

From data too large to hold, a pool of rows is drawn once, then sampled from in memory. With the exact full gradient at the centre
known, only differences to it need rows. A pool of m rows, row i drawn with probability q_i and counted 1/(m q_i) times, estimates
their sum without bias. What the pool got wrong stays wrong for as long as it is used: a fixed shift of the whitened gradient,
and so of the posterior mean in posterior standard deviations, with standard deviation √(V/m), where V is the variance of an
estimate from a single row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import Batch, PyTree, Rows
from sgmcmc.rows.drawing import distinct, draw_distinct, per_key, streams
from sgmcmc.rows.gathering import aligned, filled_up, gather, gather_all
from sgmcmc.rows.sources import Source, Take, rows_of
from sgmcmc.rows.table import Table, as_table, whole

TICKS = 2**23
"""A uniform float32 of JAX is a whole number of these parts of 1: what a column can be kept with is no finer."""

UNIFORM_SHARE = 0.1
"""Of the rows that are drawn alike from all: bounds every weight, however wrong the scores."""

CERTAIN_SHARE, MOST_CERTAIN = 0.5, 1000
"""The part of a minibatch that rows which are always in may take up, and how many they may be."""


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
    edges = np.cumsum(wanted)
    edges /= edges[-1]
    edges *= len(wanted) * TICKS
    ticks = np.diff(np.rint(edges, out=edges).astype(np.int64), prepend=0)  # they add up to N `TICKS` exactly
    light, heavy = np.flatnonzero(ticks < TICKS), np.flatnonzero(ticks >= TICKS)
    lacking, offered = (np.concatenate([[0], np.cumsum(np.abs(ticks[rows] - TICKS))]) for rows in (light, heavy))
    keep, alias = np.minimum(ticks, TICKS), np.arange(len(ticks), dtype=np.int32)
    alias[light] = heavy[np.searchsorted(offered[1:], lacking[:-1], side="right")]
    keep[heavy] -= lacking[np.searchsorted(lacking, offered[1:])] - offered[1:]
    alias[heavy[:-1]] = heavy[1:]
    return AliasTable((keep / TICKS).astype(np.float32), alias, ticks / (len(ticks) * TICKS))


def mixed(scores: Any, uniform_share: float = UNIFORM_SHARE) -> np.ndarray:
    """Probabilities proportional to the scores, with a share spread evenly over all rows; even where all scores are zero.

    The share bounds every row's weight by N/n over it, however wrong the scores.
    """
    scores = _nonnegative(scores, "scores")
    if not isinstance(uniform_share, int | float | np.number) or not 0 <= uniform_share <= 1:
        raise InputError(f"uniform_share is {describe(uniform_share)}; expected a number from 0 to 1, such as 0.1")
    largest = scores.max()
    relative = scores / largest if largest > 0 else np.ones_like(scores)
    return (1 - uniform_share) * (relative / relative.sum()) + uniform_share / len(scores)


@dataclass(frozen=True, eq=False)
class Importance:
    """Rows drawn by how much they matter, some in a minibatch twice, and each counted by so much less: `rows=Importance()`.

    The estimate stays unbiased and its variance falls where the scores are near the lengths of the rows' terms. `"importance"` is
    short for `Importance()`.

    Args:
        scores: one number of at least 0 for every row, to which its chance is proportional. Left out they are measured, from what
            the terms of control variates are about their centre: so these are needed then. With scores of your own any gradient
            serves that does not need distinct rows.
        uniform_share: the part of the rows that is drawn alike from all: it bounds every weight, however wrong the scores.

    >>> import numpy as np, sgmcmc
    >>> from sgmcmc.algorithms import Importance
    >>> log_lik = lambda params, batch: -0.5 * batch["exposure"] @ (batch["x"] - params["mu"]) ** 2
    >>> rng = np.random.default_rng(0)
    >>> data = {"x": rng.normal(size=1000), "exposure": rng.pareto(1.5, 1000)}
    >>> rows = Importance(data["exposure"])
    >>> sampler = sgmcmc.sampler_setup(log_lik, data, {"mu": 0.0}, 1e-4, gradient="svrg", rows=rows, minibatch_size=20)
    >>> sampler.run(sampler.init(seed=1), 100)["mu"].shape
    (100,)
    """

    scores: Any = None
    uniform_share: float = UNIFORM_SHARE

    def law(self, table: Table) -> "RowLaw":
        """The probabilities that follow from scores of the user's."""
        if np.shape(self.scores) != (table.n_rows,):
            raise InputError(f"scores is {describe(self.scores)}; expected one number for each of the {table.n_rows} rows")
        return RowLaw(table, mixed(self.scores, self.uniform_share))


@dataclass(frozen=True, eq=False)
class RowLaw:
    """A probability for every row of a table but the `certain` ones, which are in every minibatch; theirs is 0."""

    arrays: Mapping[str, Any]
    probabilities: np.ndarray
    certain: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def some(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """Rows drawn by them, in order, and 1/q of each."""
        index = np.sort(_drawn(self.probabilities, count, rng))
        return gather_all(as_table(self.arrays), index), 1 / self.probabilities[index]

    def sketch(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """So many rows, and weights with which their sum estimates that of all."""
        drawn = count - len(self.certain)
        index = np.concatenate([self.certain, _drawn(self.probabilities, drawn, rng)])
        weights = np.concatenate([np.ones(len(self.certain)), 1 / (drawn * self.probabilities[index[len(self.certain) :]])])
        return gather_all(as_table(self.arrays), index), weights

    def with_certain(self, batch_size: int) -> Self:
        """The same with those rows always in that minibatches of so many would have once or more on average."""
        left, certain = self.probabilities.copy(), np.zeros(0, np.int64)
        while True:
            more = np.flatnonzero((batch_size - len(certain)) * left >= left.sum())
            if not len(more) or len(certain) + len(more) > min(CERTAIN_SHARE * batch_size, MOST_CERTAIN):
                break
            left[more], certain = 0.0, np.concatenate([certain, more])
        return replace(self, probabilities=left / left.sum(), certain=np.sort(certain))

    def source(self, batch_size: int) -> Source:
        """Minibatches drawn by them, of so many rows in all."""
        return make_importance_rows(self.arrays, batch_size, self.probabilities, self.certain)


@dataclass(frozen=True)
class HostImportanceRows(Source):
    """Rows gathered by NumPy while the device works on the chunk before (see `HostRows`).

    Compiled code sees the table's numbers as arguments: another table needs no other program.
    """

    law: AliasTable
    certain: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)

    kind = "importance"

    def __post_init__(self) -> None:
        q = self.law.probabilities
        if len(q) != self.n_rows:
            raise InputError(f"probabilities has {len(q)} entries; expected one for each of the {self.n_rows} rows")
        if self.drawn < 1:
            expected = f"expected a minibatch of more than the {len(self.certain)} rows that are always in"
            raise InputError(f"minibatch_size is {self.batch_size}; {expected}")
        seen = q > 0
        seen[self.certain] = True
        if not seen.all():
            never = (
                f"row {int(np.argmin(seen))} would never be drawn: its probability is zero or below {1 / TICKS:.1g} of the mean"
            )
            raise InputError(f"{never}; spread a share over all rows, as mixed(scores, uniform_share=0.1) does")

    @property
    def drawn(self) -> int:
        """Rows of a minibatch that are drawn."""
        return self.batch_size - len(self.certain)

    @cached_property
    def weights(self) -> np.ndarray:
        """What each row counts for when it is in a minibatch."""
        q = self.law.probabilities.copy()
        q[self.certain] = 1 / self.drawn
        return (1 / (self.drawn * q)).astype(jnp.result_type(float))

    def draw(self, keys: jax.Array) -> PyTree:
        """As many as a minibatch has, however many of them are always in: one program for all."""
        return columns_and_coins(keys, self.n_rows, self.batch_size)

    @property
    def bytes_per_batch(self) -> int:
        return super().bytes_per_batch + self.batch_size * self.weights.itemsize

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        capacity = len(drawn[0])
        index = self.law.rows(*(np.asarray(numbers)[:count, ..., : self.drawn] for numbers in drawn))
        if len(self.certain):
            certain = np.broadcast_to(self.certain.astype(index.dtype), (*index.shape[:-1], len(self.certain)))
            index = np.concatenate([certain, index], axis=-1)
        rows = gather_all(self.table, index, capacity)
        return rows, gather(self.weights, index, capacity), filled_up(index, capacity)


@dataclass(frozen=True)
class TakeByAlias(Take):
    """The rows that are always in, and so many that are looked up in the table by the numbers of the entry."""

    drawn: int

    def __call__(self, data: PyTree, entry: PyTree) -> Batch:
        (table, dataset, certain), (columns, numbers) = data, (drawn[: self.drawn] for drawn in entry)
        keep, alias = rows_of(table, columns)
        index = jnp.concatenate([certain, jnp.where(numbers < keep, columns, alias)])
        rows, weight = rows_of(dataset, index)
        return Batch(rows, weight, index)


@dataclass(frozen=True)
class DeviceImportanceRows(HostImportanceRows):
    """Rows looked up and gathered on the device from a copy of the data and of the table: for accelerators."""

    @property
    def bytes_per_batch(self) -> int:
        return 8 * self.batch_size

    @cached_property
    def data(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]: made when first asked for
        return jax.device_put(((self.law.keep, self.law.alias), (whole(self.table), self.weights), self.certain.astype(np.int32)))

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        return drawn

    @property
    def take(self) -> Take:
        return TakeByAlias(self.n_rows, self.batch_size, self.drawn)


def make_importance_rows(arrays: Mapping[str, Any], batch_size: int, probabilities: Any, certain: Any = ()) -> Source:
    """The source that draws row i of a table in proportion to `probabilities[i]`, the `certain` ones always, on this backend."""
    on_host = jax.default_backend() == "cpu" or not as_table(arrays).in_memory
    version = HostImportanceRows if on_host else DeviceImportanceRows
    return version(arrays, batch_size, make_alias_table(probabilities), np.asarray(certain, np.int64))


@partial(jax.jit, static_argnums=1)
@per_key
def coins(key: jax.Array, length: int) -> jax.Array:
    """Independent uniform numbers in [0, 1), for every key, apart from its `streams`."""
    return jax.random.uniform(jax.random.fold_in(key, 1), (length,), jnp.float32)


@partial(jax.jit, static_argnums=(1, 2))
def columns_and_coins(keys: jax.Array, n_rows: int, length: int) -> tuple[jax.Array, jax.Array]:
    """What the table needs for `length` rows of every key, in one program."""
    return streams(keys, 0, n_rows, length), coins(keys, length)


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows drawn independently, each of so many chains' own ones adjacent, from a dataset of `n_rows`: `inverse` has 1/q of each,
    q being the probability with which it is drawn, `numbers` where it was in the dataset.
    """

    rows: dict[str, np.ndarray]
    inverse: np.ndarray
    numbers: np.ndarray
    n_rows: int
    chains: int

    @property
    def size(self) -> int:
        return len(self.inverse)

    def some(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """Rows drawn by importance, and 1/q of each: any of the pool's are that."""
        index = np.sort(rng.integers(0, self.size, count))
        return gather_all(Table(self.rows), index), self.inverse[index]

    def sketch(self, count: int, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """So many rows, and weights with which their sum estimates that of all."""
        rows, inverse = self.some(count, rng)
        return rows, inverse / count

    def source(self, batch_size: int) -> Source:
        """Minibatches of each chain's own pool."""
        return PoolRows(Table(self.rows), batch_size, self)


@dataclass(frozen=True)
class PoolRows(Source):
    """Minibatches of a pool, drawn alike and without replacement, each chain from its own."""

    pool: Pool

    kind = "pool"

    @property
    def n_rows(self) -> int:
        return self.pool.n_rows

    @property
    def per_chain(self) -> int:
        """Rows that a chain's minibatches are drawn from."""
        return self.pool.size // self.pool.chains

    @property
    def bytes_per_batch(self) -> int:
        return super().bytes_per_batch + 4 * self.batch_size

    def draw(self, keys: jax.Array) -> PyTree:
        chains = keys.shape[1] if keys.ndim == 3 else 1  # iteration, chain, leap
        numbers = jnp.broadcast_to(jnp.arange(chains, dtype=jnp.int32), (len(keys), chains))
        return draw_distinct(keys, self.per_chain, self.batch_size), numbers

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        drawn, chains = drawn  # whose chains these are: a device may be asked for some of them only
        capacity, index = distinct(drawn, count, self.per_chain, self.batch_size)
        if index.ndim == 4:  # iteration, chain, leap, row
            index = index + self.per_chain * np.asarray(chains)[:count, :, None, None]
        rows = gather_all(self.table, index, capacity)
        return rows, gather(self._weights, index, capacity), gather(self.pool.numbers, index, capacity)

    @cached_property
    def _weights(self) -> np.ndarray:
        return (self.pool.inverse / self.batch_size).astype(jnp.result_type(float))


def draw_pool(scored: Iterable[tuple[Rows, np.ndarray]], like: Table, size: int, chains: int, seed: int) -> Pool:
    """A pool from one pass over the data, in blocks of rows with their scores: memory for the pool and one block only.

    Each place of the pool is one draw of its own, by score or, for a share of them, alike. A block takes over a place with
    the share of the total so far that it makes up, and puts one of its rows there: so at the end every place holds row i with
    probability proportional to its score, whatever the blocks.
    """
    rng = np.random.default_rng(seed)
    size -= size % chains
    rows = {name: aligned((size, *column.shape[1:]), column.dtype) for name, column in like.items()}
    scores, numbers = np.zeros(size), np.zeros(size, np.int32)
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
            mine = places[component]
            taken = mine[rng.choice(len(mine), rng.binomial(len(mine), share), replace=False, shuffle=False)]
            picked = _drawn(law if weight > 0 else np.ones(count), len(taken), rng)
            for name, array in rows.items():
                array[taken] = np.asarray(block[name])[picked]
            scores[taken], numbers[taken] = of_block[picked], seen + picked
        seen += count
    relative = scores / total[True] if total[True] > 0 else np.full(size, 1 / seen)
    return Pool(rows, 1 / ((1 - UNIFORM_SHARE) * relative + UNIFORM_SHARE / seen), numbers, seen, chains)


def _drawn(law: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Row numbers drawn independently, in proportion to `law`."""
    edges = np.cumsum(law)
    return np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1], side="right"), len(edges) - 1)


def _nonnegative(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {describe(values)}; expected one number per row") from error
    if array.ndim != 1 or not array.size:
        raise InputError(f"{name} is {describe(values)}; expected one number per row")
    if not (np.isfinite(array) & (array >= 0)).all():
        row = int(np.argmin(np.isfinite(array) & (array >= 0)))
        raise InputError(f"{name}[{row}] is {array[row]}; expected finite numbers of at least 0")
    return array
