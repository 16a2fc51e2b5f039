"""Rows that are spread over processes and devices: each draws from its own, and the sums are the whole dataset's.

A stratum h holds N_h of the N rows and draws n_h of them for every minibatch, each counted N_h/n_h times. The sum over strata
of these weighted sums is unbiased, whatever the N_h; n_h is the same for all, so that all run the same program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc._types import Batch, PyTree
from sgmcmc.errors import InputError
from sgmcmc.sources import HostRows, InMemory, Source, WindowRows, gather, on_device, per_key, starts

STRATA = "strata"
"""The mesh axis over which likelihood terms are summed."""


@dataclass(frozen=True, eq=False)
class Stratum(Mapping[str, Any]):
    """This process's rows of a dataset that all processes hold together: to the eye a mapping of its own columns.

    Attributes:
        columns: this process's rows.
        row_counts: how many rows every process holds, in the order of the processes.
        process: which of them this one is.
        devices: parts into which each process's rows are cut, one for each of its devices.
    """

    columns: Mapping[str, Any]
    row_counts: tuple[int, ...]
    process: int
    devices: int = 1

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def n_rows(self) -> int:
        """Rows of all processes."""
        return sum(self.row_counts)

    @property
    def count(self) -> int:
        """Strata of all processes."""
        return len(self.row_counts) * self.devices

    @property
    def smallest(self) -> int:
        """Rows of the smallest stratum."""
        return min(self.row_counts) // self.devices

    def parts(self) -> dict[int, dict[str, Any]]:
        """This process's strata by number: contiguous, of nearly equal size."""
        edges = np.arange(self.devices + 1) * self.row_counts[self.process] // self.devices
        return {
            self.process * self.devices + device: {name: column[start:end] for name, column in self.columns.items()}
            for device, (start, end) in enumerate(itertools.pairwise(edges.tolist()))
        }

    def share_of(self, count: int) -> tuple[int, ...]:
        """`count` rows dealt out to the processes in proportion to what they hold: at least one each, the same on all."""
        edges = np.cumsum((0, *self.row_counts)).tolist()
        marks = [count * edge // self.n_rows for edge in edges]
        return tuple(max(1, high - low) for low, high in itertools.pairwise(marks))


def row_count(arrays: Mapping[str, Any]) -> int:
    """Rows of a dataset, those of other processes included."""
    return arrays.n_rows if isinstance(arrays, Stratum) else len(next(iter(arrays.values())))


def is_spread(arrays: Mapping[str, Any]) -> bool:
    """Whether a dataset is in more than one stratum."""
    return isinstance(arrays, Stratum) and arrays.count > 1


def sample_stratum(arrays: Stratum, count: int, seed: int) -> Stratum:
    """`count` rows of all processes' (at least one of each), every process choosing its share of its own, in order."""
    shares = arrays.share_of(count)
    mine = arrays.row_counts[arrays.process]
    rng = np.random.default_rng((seed, arrays.process))
    index = np.sort(rng.choice(mine, min(mine, shares[arrays.process]), replace=False, shuffle=False))
    counts = tuple(min(have, share) for have, share in zip(arrays.row_counts, shares, strict=True))
    return replace(arrays, columns={name: gather(array, index) for name, array in arrays.items()}, row_counts=counts)


@dataclass(frozen=True)
class HostWindows(InMemory):
    """The windows of `WindowRows`, copied by the host while the device works on the chunk before.

    A device array that is sharded over processes has equal parts; strata need not be equal, their minibatches are.
    """

    kind = "window"
    data = ()

    @property
    def bytes_per_batch(self) -> int:
        return self.batch_size * (self.row_bytes + 4)

    @cached_property
    def order(self) -> np.ndarray:
        return WindowRows(self.arrays, self.batch_size).order

    @cached_property
    def shuffled(self) -> dict[str, np.ndarray]:
        """The rows in their shuffled order, so that a window is one stretch of memory."""
        return {name: gather(array, self.order) for name, array in self.arrays.items()}

    def draw(self, keys: jax.Array) -> PyTree:
        return starts(keys, self.n_rows)

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        capacity = len(drawn)
        place = np.asarray(drawn)[:count, ..., None] + np.arange(self.batch_size, dtype=np.int32)
        rows = {name: gather(array, place, capacity) for name, array in self.shuffled.items()}
        return on_device((rows, gather(self.order, place, capacity)))

    def take(self, data: PyTree, entry: PyTree) -> Batch:
        rows, index = entry
        return Batch(rows, self._weight(), index)


@dataclass(frozen=True)
class StratumRows:
    """Minibatches of the strata of this process: each from its own rows, by random numbers of its own.

    What `draw` returns has one entry for every stratum of this process. `take` sees one stratum, inside the compiled loop:
    its weight is an argument of that loop, so that all processes compile the same program.
    """

    stratum: Stratum
    parts: dict[int, Source]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return self.stratum  # pyright: ignore[reportReturnType]: a mapping too

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def inner(self) -> Source:
        """Any of the strata: they have the same sizes."""
        return next(iter(self.parts.values()))

    @property
    def batch_size(self) -> int:
        """Rows that all strata draw together."""
        return self.inner.batch_size * self.stratum.count

    @property
    def n_rows(self) -> int:
        """Rows of this process."""
        return self.stratum.row_counts[self.stratum.process]

    @property
    def bytes_per_batch(self) -> int:
        return self.inner.bytes_per_batch

    @cached_property
    def data(self) -> PyTree:
        """What a row of each stratum counts for."""
        return np.asarray([part.n_rows / part.batch_size for part in self.parts.values()], jnp.result_type(float))

    def draw(self, keys: jax.Array) -> PyTree:
        return tuple(part.draw(_of_stratum(keys, number)) for number, part in self.parts.items())

    def prepare(self, drawn: PyTree, count: int) -> PyTree:
        return tuple(part.prepare(one, count) for part, one in zip(self.parts.values(), drawn, strict=True))

    def take(self, data: PyTree, entry: PyTree) -> Batch:
        return replace(self.inner.take((), entry), weight=data[0])


def axis_of(source: Source) -> str | None:
    """The mesh axis over which the likelihood terms of a source's minibatches are summed, if they are."""
    return STRATA if isinstance(source, StratumRows) else None


def make_stratum_source(arrays: Stratum, batch_size: int, rows: str) -> StratumRows:
    """The source of this process's strata, each of which draws the same number of rows: `batch_size` over all, rounded up."""
    each = -(-batch_size // arrays.count)
    if each > arrays.smallest:
        raise InputError(
            f"minibatch_size is {batch_size}, {each} rows for each of {arrays.count} strata, of which the smallest has "
            f"{arrays.smallest}; expected at most {arrays.smallest * arrays.count}, or rows spread more evenly"
        )
    version = HostWindows if rows == "window" else HostRows
    return StratumRows(arrays, {number: version(part, each) for number, part in arrays.parts().items()})


@partial(jax.jit, static_argnums=1)
@per_key
def _of_stratum(key: jax.Array, number: int) -> jax.Array:
    """A stratum's own keys: strata draw independently."""
    return jax.random.fold_in(key, number)
