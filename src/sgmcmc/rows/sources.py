"""Rows and minibatches: where the data lie, and how a step gets n of its N rows in O(n).

A source works in three parts. `draw`, compiled, turns one random key per minibatch into random numbers; `prepare`, in a thread
of the host while the chunk before is computing, turns these into a plan, reading rows where they are not on the device;
`take`, inside the compiled loop, turns one entry of the plan into a `Batch`.

Rows may be spread over processes and devices. A stratum h then holds N_h of the N rows and draws n_h of them for every minibatch,
each counted N_h/n_h times. The sum over strata of these weighted sums is unbiased, whatever the N_h; n_h is the same for all, so
that all run the same program.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.slicing import stretch
from sgmcmc.core.trees import Batch, PyTree, Rows, tree_map
from sgmcmc.rows.drawing import distinct, distinct_rows, draw_distinct, per_key, starts
from sgmcmc.rows.gathering import filled_up, gather, gather_all, lend
from sgmcmc.rows.table import WINDOW, Stratum, Table, as_table, whole

SHUFFLE_SEED = 20180512
"""Windows are cut from data shuffled once with this seed, so that a run depends on its own seed alone."""

BLOCK_BYTES = 4 << 20
"""Rows summed in one call: few enough for float32 sums to be accurate, enough to hide the call."""

STRATA = "strata"
"""The mesh axis over which likelihood terms are summed."""


@dataclass(frozen=True)
class Take:
    """How a minibatch is made of one entry of the plan, traced: all that compiled programs know of a source, and no data.

    As it is here, the entry has the rows, their weights unless all count the same, and their numbers.
    """

    n_rows: int
    batch_size: int

    def __call__(self, data: PyTree, entry: PyTree) -> Batch:
        rows, *weight, index = entry
        return Batch(rows, weight[0] if weight else self.weight(), index)

    def weight(self) -> jax.Array:
        """What a row counts for where all count the same."""
        return jnp.asarray(self.n_rows / self.batch_size, jnp.result_type(float))


class TakeAll(Take):
    """All rows of the data."""

    def __call__(self, data: PyTree, entry: PyTree) -> Batch:
        return Batch(data, self.weight(), jnp.arange(self.n_rows))


class TakeNumbered(Take):
    """The rows of the data whose numbers the entry has."""

    def __call__(self, data: PyTree, entry: PyTree) -> Batch:
        return Batch(rows_of(data, entry), self.weight(), entry)


class TakeWindow(Take):
    """The rows of the data from the one whose number the entry is."""

    def __call__(self, data: PyTree, entry: PyTree) -> Batch:
        return super().__call__(data, tree_map(lambda x: stretch(x, entry, self.batch_size), data))


@dataclass(frozen=True)
class TakeOfStratum(Take):
    """What a stratum takes, the weight of its rows being all that is in the data."""

    inner: Take

    def __call__(self, data: PyTree, entry: PyTree) -> Batch:
        return replace(self.inner((), entry), weight=data[0])


@dataclass(frozen=True)
class Source:
    """What the loop needs of a dataset. As it is here, the host prepares rows, weights unless all count the same, and numbers."""

    arrays: Mapping[str, Any]
    batch_size: int

    kind: ClassVar[str]

    strata: ClassVar[int] = 0
    """Strata that this process's rows are in; 0 where they are not in strata."""

    all_strata: ClassVar[int] = 0
    """Strata of all processes; 0 likewise."""

    data: ClassVar[PyTree] = ()
    """Arrays handed to the compiled loop as arguments, never captured by it."""

    @cached_property
    def table(self) -> Table:
        return self.arrays if isinstance(self.arrays, Table) else as_table(self.arrays)

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    @property
    def drawn(self) -> int:
        """Rows of a minibatch that are drawn: all, unless some are always in."""
        return self.batch_size

    @property
    def bytes_per_batch(self) -> int:
        """Size of one entry of the plan."""
        return self.batch_size * (self.table.row_bytes + 4)

    def draw(self, keys: jax.Array) -> PyTree:
        """The random part of the minibatches of `keys` (any number of axes), queued on the device."""
        raise NotImplementedError

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        """The plan: what the compiled loop needs for them, with the axes of the keys in front, on the host in fresh buffers.
        Only the first `count` entries will be taken; the others may hold anything.
        """
        return drawn

    def shares(self, drawn: PyTree) -> "Iterable[tuple[Source, PyTree]]":
        """Who prepares what of it: one for every stratum of this process."""
        return [(self, drawn)]

    @property
    def take(self) -> Take:
        """`take(data, entry)`: the minibatch of one entry of the plan, traced."""
        return Take(self.n_rows, self.batch_size)


class OnDevice(Source):
    """Sources that work on a copy of the data on the device."""

    @cached_property
    def data(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]: made when first asked for
        return jax.device_put(whole(self.table))


@dataclass(frozen=True)
class AllRows(OnDevice):
    """n = N: every minibatch is the whole dataset."""

    kind = "all"

    @property
    def bytes_per_batch(self) -> int:
        return 0

    def draw(self, keys: jax.Array) -> PyTree:
        return ()

    @property
    def take(self) -> Take:
        return TakeAll(self.n_rows, self.batch_size)


@dataclass(frozen=True)
class HostRows(Source):
    """Random rows gathered by the host, from memory or files, while the device works on the chunk before.

    XLA's CPU backend gathers rows one number at a time; NumPy copies whole rows, and needs no second copy of the data.
    """

    kind = "random"

    def draw(self, keys: jax.Array) -> PyTree:
        return draw_distinct(keys, self.n_rows, self.batch_size)

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        capacity, index = distinct(drawn, count, self.n_rows, self.batch_size)
        return gather_all(self.table, index, capacity), filled_up(index, capacity)


@dataclass(frozen=True)
class DeviceRows(OnDevice):
    """Random rows gathered on the device: for accelerators."""

    kind = "random"

    @property
    def bytes_per_batch(self) -> int:
        return 4 * self.batch_size

    def draw(self, keys: jax.Array) -> PyTree:
        return distinct_rows(keys, self.n_rows, self.batch_size)

    @property
    def take(self) -> Take:
        return TakeNumbered(self.n_rows, self.batch_size)


@dataclass(frozen=True)
class Windows(Source):
    """A contiguous window at a uniform start of data shuffled once, wrapping around at the end.

    Every row is in a window with probability exactly n/N, and memory is read in order.
    """

    kind = "window"

    @cached_property
    def order(self) -> np.ndarray:
        """The shuffled order, its first n - 1 rows again at the end so that every window is one slice."""
        if self.table.shuffled:
            order = np.arange(self.n_rows, dtype=np.int32)
        else:
            order = np.random.default_rng(SHUFFLE_SEED).permutation(self.n_rows).astype(np.int32)
        return np.concatenate([order, order[: self.batch_size - 1]])

    def shuffle(self) -> dict[str, np.ndarray]:
        """The rows in that order."""
        return {name: gather(array, self.order) for name, array in self.arrays.items()}

    def draw(self, keys: jax.Array) -> PyTree:
        return starts(keys, self.n_rows)


@dataclass(frozen=True)
class WindowRows(Windows):
    """Windows cut on the device from rows that live there."""

    @property
    def bytes_per_batch(self) -> int:
        return 4

    @cached_property
    def data(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]: made when first asked for
        return jax.device_put(self.shuffle()), jax.device_put(self.order)

    @property
    def take(self) -> Take:
        return TakeWindow(self.n_rows, self.batch_size)


@dataclass(frozen=True)
class ReadWindows(Windows):
    """Windows read from where the rows are kept, in the order in which they are kept."""

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        capacity, first = len(drawn), np.asarray(drawn)[:count]
        shape = (capacity, *first.shape[1:], self.batch_size)
        rows = {name: lend((*shape, *column.shape[1:]), column.dtype) for name, column in self.arrays.items()}
        if self.table.large:  # have all windows asked for before the first is waited for
            for column in self.arrays.values():
                for start in first.ravel().tolist():
                    column.will_read(start, self.batch_size)
        for name, column in self.arrays.items():
            windows = rows[name][:count].reshape(first.size, self.batch_size, *column.shape[1:])
            for start, window in zip(first.ravel().tolist(), windows, strict=True):
                before_end = self.n_rows - start
                column.read(start, window[:before_end])
                if before_end < self.batch_size:
                    column.read(0, window[before_end:])
        index = lend(shape, np.int32)
        np.add(first[..., None], np.arange(self.batch_size, dtype=np.int32), out=index[:count])
        around = first > self.n_rows - self.batch_size  # few: a division for every row of every window would take its time
        index[:count][around] %= self.n_rows
        return rows, index


@dataclass(frozen=True)
class HostWindows(Windows):
    """Windows copied by the host while the device works on the chunk before.

    A device array that is sharded over processes has equal parts; strata need not be equal, their minibatches are.
    """

    @cached_property
    def shuffled(self) -> dict[str, np.ndarray]:
        """The rows in their shuffled order, so that a window is one stretch of memory."""
        return self.shuffle()

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        capacity = len(drawn)
        place = np.asarray(drawn)[:count, ..., None] + np.arange(self.batch_size, dtype=np.int32)
        rows = {name: gather(array, place, capacity) for name, array in self.shuffled.items()}
        return rows, gather(self.order, place, capacity)


@dataclass(frozen=True)
class StratumRows(Source):
    """Minibatches of the strata of this process: each from its own rows, by random numbers of its own.

    What `draw` returns has one entry for every stratum of this process. `take` sees one stratum, inside the compiled loop:
    its weight is an argument of that loop, so that all processes compile the same program. `batch_size` is that of all strata.
    """

    arrays: Stratum
    parts: dict[int, Source]

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]: as the strata say
        return self.inner.kind

    @property
    def strata(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.parts)

    @property
    def all_strata(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.arrays.count

    @property
    def inner(self) -> Source:
        """Any of the strata: they have the same sizes."""
        return next(iter(self.parts.values()))

    @property
    def bytes_per_batch(self) -> int:
        return self.inner.bytes_per_batch

    @cached_property
    def data(self) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]: made when first asked for
        """What a row of each stratum counts for."""
        return np.asarray([part.n_rows / part.batch_size for part in self.parts.values()], jnp.result_type(float))

    def draw(self, keys: jax.Array) -> PyTree:
        return tuple(part.draw(_of_stratum(keys, number)) for number, part in self.parts.items())

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        return tuple(part.prepare(one, count) for part, one in self.shares(drawn))

    def shares(self, drawn: PyTree) -> Iterable[tuple[Source, PyTree]]:
        return zip(self.parts.values(), drawn, strict=True)

    @property
    def take(self) -> Take:
        return TakeOfStratum(self.n_rows, self.batch_size, self.inner.take)


def make_source(arrays: Mapping[str, Any], batch_size: int, rows: str) -> Source:
    """The source for a table's rows on this backend; of rows in strata, for those of this process."""
    table = as_table(arrays)
    if isinstance(table, Stratum) and table.in_strata:
        return make_stratum_source(table, batch_size, rows)
    if batch_size == table.n_rows:
        if table.large:
            found = f"all {table.n_rows:,} rows, {table.nbytes / 2**30:.1f} GB that do not fit into memory"
            raise InputError(f"minibatch_size is {found}; expected a count such as minibatch_size=1000")
        return AllRows(arrays, batch_size)
    if rows == WINDOW:
        return WindowRows(arrays, batch_size) if table.in_memory else ReadWindows(arrays, batch_size)
    on_host = jax.default_backend() == "cpu" or not table.in_memory
    return HostRows(arrays, batch_size) if on_host else DeviceRows(arrays, batch_size)


def make_stratum_source(arrays: Stratum, batch_size: int, rows: str) -> StratumRows:
    """The source of this process's strata, each of which draws the same number of rows: `batch_size` over all, rounded up."""
    each = -(-batch_size // arrays.count)
    if each > arrays.smallest:
        found = f"{batch_size}, {each} rows for each of {arrays.count} strata, of which the smallest has {arrays.smallest}"
        most = arrays.smallest * arrays.count
        raise InputError(f"minibatch_size is {found}; expected at most {most}, or rows spread more evenly")
    windows = HostWindows if arrays.in_memory else ReadWindows
    version = windows if rows == WINDOW else HostRows
    parts: dict[int, Source] = {number: version(part, each) for number, part in arrays.parts().items()}
    return StratumRows(arrays, each * arrays.count, parts)


def block_rows(table: Table, extra: int = 0, least: int = 1) -> int:
    """Rows of a block, for a device that needs `extra` bytes beside each of them, and about `least` at least: a power of two, so
    that what is a whole number of one program's blocks is one of another's too.
    """
    return 1 << (max(least, BLOCK_BYTES // max(1, table.row_bytes + extra)).bit_length() - 1)


def blocks(arrays: Mapping[str, Any], largest: int) -> Iterator[Rows]:
    """The whole dataset in order, in blocks of one size and what is left (so that at most two shapes are compiled)."""
    table = as_table(arrays)
    for start in range(0, table.n_rows, largest):
        yield table.rows(start, min(start + largest, table.n_rows))


def subsample(arrays: Mapping[str, Any], count: int, seed: int) -> Table:
    """`count` of the rows (of a stratum, its share), or up to a block more: then its blocks have the shapes of those of all."""
    table = as_table(arrays)
    if count < table.total_rows and isinstance(table, Stratum):
        shares = table.share_of(count)
        mine = some_rows(table.part(0, table.n_rows), shares[table.process], seed + table.process)
        return replace(table, columns=mine.columns, checksum=None, row_counts=shares)
    block = block_rows(table)
    return some_rows(table, -(-count // block) * block, seed)


def some_rows(table: Table, count: int, seed: int) -> Table:
    """Exactly `count` of the rows, in order: where they were shuffled, adjacent ones, read in one go."""
    if count >= table.total_rows:
        return table
    rng = np.random.default_rng(seed)
    if table.shuffled:
        start = int(rng.integers(0, table.n_rows - count + 1))
        return table.part(start, start + count)
    index = np.sort(rng.choice(table.n_rows, count, replace=False, shuffle=False))
    return replace(table, columns=gather_all(table, index), checksum=None)


def rows_of(tree: PyTree, index: jax.Array) -> PyTree:
    """Rows of arrays on the device, traced."""
    return tree_map(lambda x: x.at[index].get(mode="promise_in_bounds"), tree)


@partial(jax.jit, static_argnums=1)
@per_key
def _of_stratum(key: jax.Array, number: int) -> jax.Array:
    """A stratum's own keys: strata draw independently."""
    return jax.random.fold_in(key, number)
