"""Rows that are spread over processes and devices: each draws from its own, and the sums are the whole dataset's.

A stratum h holds N_h of the N rows and draws n_h of them for every minibatch, each counted N_h/n_h times. The sum over strata
of these weighted sums is unbiased, whatever the N_h; n_h is the same for all, so that all run the same program.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Batch, PyTree
from sgmcmc.rows.gathering import gather
from sgmcmc.rows.sources import HostRows, ReadWindows, Source, WindowRows, per_key, starts
from sgmcmc.rows.table import Stratum

STRATA = "strata"
"""The mesh axis over which likelihood terms are summed."""


@dataclass(frozen=True)
class HostWindows(Source):
    """The windows of `WindowRows`, copied by the host while the device works on the chunk before.

    A device array that is sharded over processes has equal parts; strata need not be equal, their minibatches are.
    """

    kind = "window"

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
    def strata(self) -> int:
        return len(self.parts)

    @property
    def all_strata(self) -> int:
        return self.arrays.count

    @property
    def inner(self) -> Source:
        """Any of the strata: they have the same sizes."""
        return next(iter(self.parts.values()))

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


def make_stratum_source(arrays: Stratum, batch_size: int, rows: str) -> StratumRows:
    """The source of this process's strata, each of which draws the same number of rows: `batch_size` over all, rounded up."""
    each = -(-batch_size // arrays.count)
    if each > arrays.smallest:
        raise InputError(
            f"minibatch_size is {batch_size}, {each} rows for each of {arrays.count} strata, of which the smallest has "
            f"{arrays.smallest}; expected at most {arrays.smallest * arrays.count}, or rows spread more evenly"
        )
    windows = HostWindows if arrays.in_memory else ReadWindows
    version = windows if rows == "window" else HostRows
    parts: dict[int, Source] = {number: version(part, each) for number, part in arrays.parts().items()}
    return StratumRows(arrays, each * arrays.count, parts)


@partial(jax.jit, static_argnums=1)
@per_key
def _of_stratum(key: jax.Array, number: int) -> jax.Array:
    """A stratum's own keys: strata draw independently."""
    return jax.random.fold_in(key, number)
