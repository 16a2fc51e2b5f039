"""Copying random rows on the host, as fast as memory allows: compiled functions where there are any, else NumPy; and memory
that is used again, since the system clears fresh memory before it hands it out.
"""

import math
import threading
import weakref
from typing import Any

import numpy as np

from sgmcmc.rows import native

ALIGNMENT = 64
"""JAX shares a host buffer with the CPU backend, without a copy, when it starts at a multiple of this."""

SMALLEST_LOAN = 1 << 18
"""Bytes below which memory is not worth keeping: the allocator does that itself."""

SHELF_BYTES = 128 << 20
"""Memory kept for the next loan, at most: two chunks of minibatches."""


def take_rows(array: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    """`out[...] = array[index]` for row numbers within bounds."""
    found = native.library()
    if found is not None and _simple(array, index, out):
        row_bytes = array.itemsize * math.prod(array.shape[1:])
        found.copy_rows(array.ctypes.data, len(array), row_bytes, index.ctypes.data, index.size, out.ctypes.data)
    else:
        np.take(array, index, axis=0, out=out, mode="clip")  # clip writes straight into `out`


def _simple(array: np.ndarray, index: np.ndarray, out: np.ndarray) -> bool:
    """Whether the compiled function can do it: bytes that lie in order, and something to copy."""
    in_order = all(x.flags.c_contiguous and x.flags.aligned for x in (array, index, out))
    alike = array.dtype == out.dtype and not array.dtype.hasobject and out.shape == (*index.shape, *array.shape[1:])
    return in_order and alike and index.dtype == np.int32 and array.size > 0 and index.size > 0


class Loan:
    """Memory on loan. NumPy arrays made of it, and JAX arrays that share it, keep it alive; when it goes, the memory is free."""

    def __init__(self, block: np.ndarray) -> None:
        self.__array_interface__ = block.__array_interface__


class Shelf:
    """Blocks of memory that nobody uses, for whoever needs one of that size next. Any number of threads may come."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._lock = most_bytes, threading.Lock()
        self._blocks: list[np.ndarray] = []

    def lend(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised aligned array. Its memory is lent again when nothing that shares it is left."""
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if not SMALLEST_LOAN <= n_bytes <= self._most_bytes:
            return aligned(shape, dtype)
        block = self._taken(n_bytes)
        loan = Loan(block)
        weakref.finalize(loan, self._put, block).atexit = False
        return np.asarray(loan).view(dtype).reshape(shape)

    def _taken(self, n_bytes: int) -> np.ndarray:
        with self._lock:
            for place, block in enumerate(self._blocks):
                if block.nbytes == n_bytes:
                    return self._blocks.pop(place)
        return aligned((n_bytes,), np.uint8)

    def _put(self, block: np.ndarray) -> None:
        # A block can come back at any moment, even while this very thread is at the shelf: then its memory is let go.
        if self._lock.acquire(blocking=False):
            self._blocks.append(block)
            while sum(kept.nbytes for kept in self._blocks) > self._most_bytes:
                self._blocks.pop(0)
            self._lock.release()


lend = Shelf(SHELF_BYTES).lend


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array that starts at a multiple of `ALIGNMENT` bytes."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(n_bytes + ALIGNMENT, np.uint8)
    offset = -buffer.ctypes.data % ALIGNMENT
    return buffer[offset : offset + n_bytes].view(dtype).reshape(shape)


def gather_all(table: Any, index: np.ndarray, capacity: int | None = None) -> dict[str, np.ndarray]:
    """Rows of all columns; of files too large for memory, asked for together before the first is waited for."""
    elsewhere = [column for column in table.columns.values() if not isinstance(column, np.ndarray)]
    if elsewhere and table.large and table.seekable:
        for column in elsewhere:
            column.will_need(index)
    return {name: gather(column, index, capacity) for name, column in table.columns.items()}


def gather(column: Any, index: np.ndarray, capacity: int | None = None) -> np.ndarray:
    """Rows of a column in a buffer that the CPU backend can share, its first axis filled up to `capacity`."""
    length = len(index) if capacity is None else capacity
    out = lend((length, *index.shape[1:], *column.shape[1:]), column.dtype)
    if isinstance(column, np.ndarray):
        take_rows(column, index, out[: len(index)])
    else:
        column.rows(index, out[: len(index)])
    return out


def filled_up(index: np.ndarray, capacity: int) -> np.ndarray:
    """Row numbers in a buffer that the CPU backend can share, its first axis filled up to `capacity`."""
    out = lend((capacity, *index.shape[1:]), index.dtype)
    out[: len(index)] = index
    return out
