"""Files of rows that only ever grow, up to a size that is on record, and shuffling rows that do not fit in memory.

Row i gets the i-th number of a stream of random 64-bit integers, and the rows are sorted by these, so the order depends on the
seed alone. As they come, rows are collected into runs; each run is sorted and appended to one spill file. Then the numbers are
cut into ranges; the rows of one range, a slice of every run, fit in memory and are merged there.
"""

import contextlib
import errno
import hashlib
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TypeAlias

import numpy as np

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.trees import Rows
from sgmcmc.data.columns import Arrangement
from sgmcmc.rows.files import in_words, row_file

KEY = np.dtype("<u8")
STREAM_END = 2**64

Slice: TypeAlias = tuple[int, int, int, int]
"""Of a run: where it starts, how many rows it has, the first of those that are meant, and the one after the last."""


class GrowingFile(FileIO):
    """A file that is written at its end. It starts with the bytes that were on record, whatever was written after those."""

    def __init__(self, path: Path, start: int = 0, hashed: bool = False) -> None:
        found = path.stat().st_size if path.exists() else 0
        if found < start:
            raise changed(path, found, start)
        super().__init__(path, "a+")
        os.ftruncate(self.fileno(), start)
        self.seek(0)
        self._digest = hashlib.file_digest(self, "sha256") if hashed else None

    def append(self, array: np.ndarray) -> None:
        """Write an array's bytes at the end."""
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        if self._digest is not None:
            self._digest.update(view)
        while len(view):
            view = view[write(self.fileno(), view) :]

    def sync(self) -> None:
        """Everything written so far is on the disk."""
        os.fsync(self.fileno())

    def sha256(self) -> str:
        """The checksum of all bytes."""
        assert self._digest is not None
        return self._digest.hexdigest()


class Collected:
    """Rows of blocks of any size, handed on in runs of one size. A run is good until the next is asked for."""

    def __init__(self, arrangement: Arrangement, run_rows: int) -> None:
        shapes = arrangement.row_shapes
        self._run = {name: np.empty((run_rows, *shapes[name]), dtype) for name, dtype in arrangement.dtypes.items()}
        self._run_rows, self.filled = run_rows, 0

    def add(self, rows: Rows) -> Iterator[Rows]:
        """Take rows in; the runs that became full."""
        start, count = 0, len(next(iter(rows.values())))
        while start < count:
            taken = min(count - start, self._run_rows - self.filled)
            for name, values in rows.items():
                self._run[name][self.filled : self.filled + taken] = values[start : start + taken]
            start, self.filled = start + taken, self.filled + taken
            if self.filled == self._run_rows:
                yield self._run
                self.filled = 0

    def rest(self) -> Rows:
        """The rows of the last, unfilled run."""
        return {name: values[: self.filled] for name, values in self._run.items()}


@contextlib.contextmanager
def row_files(folder: Path, arrangement: Arrangement, n_rows: int) -> Iterator[dict[str, GrowingFile]]:
    """The arrays' files, to be gone on with after `n_rows` rows."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(GrowingFile(row_file(folder, name), n_rows * width, hashed=True))
            for name, width in arrangement.row_bytes.items()
        }


def write(file: int, view: memoryview) -> int:
    """os.write, in a place of its own so that a full disk can be played."""
    return os.write(file, view)


def check_space(folder: Path, needed: int) -> None:
    """Refuse to begin what the disk has no room for."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        needs = f"the conversion needs {in_words(needed)} more (rows are written twice to be shuffled)"
        missing, remedy = in_words(needed - free), "make room and run the same call again, or choose another folder"
        raise SgmcmcError(f"the disk of {folder} has {in_words(free)} free, {needs}: {missing} are missing; {remedy}")


def disk_failure(folder: Path, error: OSError) -> SgmcmcError:
    """What went wrong in writing, and what now."""
    again = "run the same call again: it goes on where it stopped"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SgmcmcError(f"the disk of {folder} is full ({error}); what was converted is kept: make room and {again}")
    return SgmcmcError(f"{folder} could not be written ({error}); check its permissions, or choose another folder; {again}")


def changed(path: Path, found: int, recorded: int) -> SgmcmcError:
    """A file is not as it was left."""
    why = "it was changed from outside; convert again with overwrite=True"
    return SgmcmcError(f"{path} has {found:,} bytes, {recorded:,} were on record: {why}")


def keys(seed: int, start: int, count: int) -> np.ndarray:
    """The random numbers of rows `start` to `start + count`."""
    return np.random.PCG64(seed).advance(start).random_raw(count).astype(KEY, copy=False)


@dataclass(frozen=True)
class Spill:
    """A file of runs of `run_rows` sorted rows (the last may have fewer), one after the other: keys, then each array."""

    path: Path
    arrangement: Arrangement
    run_rows: int

    @property
    def row_bytes(self) -> int:
        """Of a row and its key."""
        return KEY.itemsize + self.arrangement.row_size

    @property
    def stride(self) -> int:
        """From one run to the next: keys must start where 64-bit numbers may start."""
        return -(-self.run_rows * self.row_bytes // KEY.itemsize) * KEY.itemsize

    def end(self, n_rows: int) -> int:
        """Size of the file with so many rows."""
        whole, rest = divmod(n_rows, self.run_rows)
        return whole * self.stride + rest * self.row_bytes

    def write(self, file: GrowingFile, rows: Rows, seed: int, first_row: int) -> None:
        """Append one run, sorted."""
        count = len(next(iter(rows.values())))
        own = keys(seed, first_row, count)
        order = np.argsort(own, kind="stable")
        file.append(own[order])
        for name in self.arrangement.columns:
            file.append(rows[name][order])
        if count == self.run_rows:
            file.append(np.zeros(self.stride - count * self.row_bytes, np.uint8))

    def in_range(self, number: int, n_ranges: int, n_rows: int) -> Iterator[tuple[str, np.ndarray]]:
        """Each array's rows that have their keys in this range, in order, of a file that has all its `n_rows` rows."""
        found = self.path.stat().st_size
        if found != self.end(n_rows):
            raise changed(self.path, found, self.end(n_rows))
        slices = self._slices(number * STREAM_END // n_ranges, (number + 1) * STREAM_END // n_ranges, n_rows)
        order = np.argsort(self._gathered(slices, KEY, (), 0), kind="stable")
        before = KEY.itemsize
        for name, dtype in self.arrangement.dtypes.items():
            yield name, self._gathered(slices, dtype, self.arrangement.row_shapes[name], before)[order]
            before += self.arrangement.row_bytes[name]

    def _slices(self, low: int, high: int, n_rows: int) -> list[Slice]:
        """Of every run the rows with keys from `low` to below `high`."""
        slices = []
        for first in range(0, n_rows, self.run_rows):
            offset, rows = first // self.run_rows * self.stride, min(self.run_rows, n_rows - first)
            own = np.memmap(self.path, KEY, "r", offset, (rows,))
            start = int(np.searchsorted(own, np.uint64(low)))
            stop = rows if high >= STREAM_END else int(np.searchsorted(own, np.uint64(high)))
            slices.append((offset, rows, start, stop))
        return slices

    def _gathered(self, slices: list[Slice], dtype: np.dtype, shape: tuple[int, ...], before: int) -> np.ndarray:
        """One array's rows of the slices. In a run, `before` bytes of each row are in the arrays that come first."""
        out = np.empty((sum(stop - start for _, _, start, stop in slices), *shape), dtype)
        width, done = math.prod(shape), 0
        for offset, rows, start, stop in slices:
            at = offset + rows * before + start * width * dtype.itemsize
            own = np.fromfile(self.path, dtype, (stop - start) * width, offset=at)
            out[done : done + stop - start] = own.reshape(-1, *shape)
            done += stop - start
        return out
