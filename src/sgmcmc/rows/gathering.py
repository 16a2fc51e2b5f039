"""Copying random rows on the host, as fast as memory allows: compiled functions where there are any, else NumPy; and memory
that is used again, since the system clears fresh memory before it hands it out.
"""

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import sysconfig
import tempfile
import threading
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_dir

ALIGNMENT = 64
"""JAX shares a host buffer with the CPU backend, without a copy, when it starts at a multiple of this."""

SMALLEST_LOAN = 1 << 18
"""Bytes below which memory is not worth keeping: the allocator does that itself."""

SHELF_BYTES = 128 << 20
"""Memory kept for the next loan, at most: two chunks of minibatches."""


def take_rows(array: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    """`out[...] = array[index]` for row numbers within bounds."""
    found = library()
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


def take_first_distinct(streams: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the first distinct numbers of every stream into its row of `out`, as many as that has room for.

    Returns the places of the streams that have too few; their rows may hold anything.
    """
    found = library()
    if found is None or not all(x.flags.c_contiguous and x.dtype == np.int32 for x in (streams, out)):
        return _take_first_distinct(streams, out)
    (count, length), wanted = streams.shape, out.shape[1]
    bits = (8 * wanted - 1).bit_length()  # mostly empty: collisions would make it as slow as sorting
    seen, poor = np.zeros((1 << bits, 2), np.int32), np.empty(count, bool)
    found.first_distinct(streams.ctypes.data, count, length, wanted, out.ctypes.data, seen.ctypes.data, bits, poor.ctypes.data)
    return np.flatnonzero(poor)


def _take_first_distinct(streams: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The same by sorting: most streams begin without a repetition, and order shows which do not."""
    wanted = out.shape[1]
    np.copyto(out, streams[:, :wanted])
    ordered = np.sort(out, axis=1)
    repeated = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    pending = streams[repeated]
    packed = np.sort(pending.astype(np.int64) << 32 | np.arange(pending.shape[1]), axis=1)  # plain integers are sorted fast
    number, place = packed >> 32, packed & (2**32 - 1)
    fresh = np.ones(pending.shape, bool)
    fresh[:, 1:] = number[:, 1:] != number[:, :-1]
    new = np.empty_like(fresh)  # where a number comes up first
    np.put_along_axis(new, place, fresh, axis=1)
    enough = new.sum(axis=1) >= wanted
    new &= np.cumsum(new, axis=1) <= wanted
    out[repeated[enough]] = pending[enough][new[enough]].reshape(-1, wanted)
    return repeated[~enough]


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


SETTING = "SGMCMC_NATIVE"
"""The environment variable that turns compiled functions off, with the value 0."""

SOURCE = Path(__file__).with_name("rows.c")

FLAGS = ("-std=c99", "-O2", "-shared", "-fPIC")
"""Nothing that ties the result to this very processor: a cache folder may be shared between machines."""

COMPILER_SECONDS = 60


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where there are none to be had."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get(SETTING) == "0" or compiler is None:
        return None
    try:
        return compiled(compiler, Path(user_cache_dir("sgmcmc")) / "native")
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None


def compiled(compiler: str, folder: Path, options: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The functions as compiled into `folder`, now or earlier; made again if what is there does not load."""
    told = "\n".join([SOURCE.read_text(), *FLAGS, *options, sysconfig.get_platform()])
    target = folder / f"rows-{hashlib.sha256(told.encode()).hexdigest()[:16]}.so"
    if target.exists():
        with suppress(OSError, AttributeError):  # damaged: a crash of the machine can do that
            return _typed(ctypes.CDLL(str(target)))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / target.name
        command = [compiler, *FLAGS, *options, str(SOURCE), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=COMPILER_SECONDS)
        made.replace(target)
    return _typed(ctypes.CDLL(str(target)))


def _typed(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.copy_rows.argtypes = [pointer, number, number, pointer, number, pointer]
    found.first_distinct.argtypes = [pointer, number, number, number, pointer, pointer, ctypes.c_int32, pointer]
    found.copy_rows.restype = found.first_distinct.restype = None
    return found


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
