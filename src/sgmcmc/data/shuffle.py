"""Shuffling rows that do not fit in memory.

Row i gets the i-th number of a stream of random 64-bit integers, and the rows are sorted by these, so the order depends on the
seed alone. As they come, rows are collected into runs; each run is sorted and appended to one spill file. Then the numbers are
cut into ranges; the rows of one range, a slice of every run, fit in memory and are merged there.
"""

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.data.columns import Arrangement
from sgmcmc.data.writing import GrowingFile

SHUFFLE_SEED = 20180512
KEY = np.dtype("<u8")
STREAM_END = 2**64


def keys(seed: int, start: int, count: int) -> np.ndarray:
    """The random numbers of rows `start` to `start + count`."""
    return np.random.PCG64(seed).advance(start).random_raw(count).astype(KEY, copy=False)


@dataclass(frozen=True)
class Runs:
    """How runs of `run_rows` rows (the last may have fewer) lie one after the other in the spill file: keys, then each array."""

    arrangement: Arrangement
    run_rows: int

    @property
    def row_bytes(self) -> int:
        """Of a row and its key."""
        return KEY.itemsize + sum(self.arrangement.row_bytes.values())

    @property
    def stride(self) -> int:
        """From one run to the next: keys must start where 64-bit numbers may start."""
        return -(-self.run_rows * self.row_bytes // KEY.itemsize) * KEY.itemsize

    def end(self, n_rows: int) -> int:
        """Size of the spill file with so many rows."""
        whole, rest = divmod(n_rows, self.run_rows)
        return whole * self.stride + rest * self.row_bytes

    def write(self, spill: GrowingFile, rows: dict[str, np.ndarray], seed: int, first_row: int) -> None:
        """Append one run, sorted."""
        count = len(next(iter(rows.values())))
        own = keys(seed, first_row, count)
        order = np.argsort(own, kind="stable")
        spill.append(own[order])
        for name in self.arrangement.columns:
            spill.append(rows[name][order])
        if count == self.run_rows:
            spill.append(np.zeros(self.stride - count * self.row_bytes, np.uint8))

    def ranges_for(self, n_rows: int, memory: int) -> int:
        """Into how many ranges the keys must be cut. Half of the memory is for the rows as read, half for the rows in order."""
        return max(1, math.ceil(2 * n_rows * self.row_bytes / memory))


class SpilledRows:
    """The spill file when it is complete."""

    def __init__(self, path: Path, runs: Runs, n_rows: int) -> None:
        self._path, self._runs, self._n_rows = path, runs, n_rows
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        found = path.stat().st_size
        if found != runs.end(n_rows):
            self.close()
            raise SgmcmcError(
                f"{path} has {found:,} bytes, {runs.end(n_rows):,} were on record: it was changed from outside; "
                "convert again with overwrite=True"
            )
        self._map = mmap.mmap(self._file.fileno(), found, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """No more reading."""
        self._file.close()

    def in_range(self, number: int, n_ranges: int) -> tuple[int, Iterator[tuple[str, np.ndarray]]]:
        """How many rows have their keys in this range, and each array's, in order."""
        slices = self._slices(number * STREAM_END // n_ranges, (number + 1) * STREAM_END // n_ranges)
        count = sum(stop - start for _, _, start, stop in slices)
        own = self._gathered(slices, count, KEY, (), 0)
        return count, self._arrays(slices, count, np.argsort(own, kind="stable"))

    def _arrays(self, slices: list[tuple[int, int, int, int]], count: int, order: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        arrangement, before = self._runs.arrangement, KEY.itemsize
        for name, dtype in arrangement.dtypes.items():
            yield name, self._gathered(slices, count, dtype, arrangement.row_shapes[name], before)[order]
            before += arrangement.row_bytes[name]

    def _slices(self, low: int, high: int) -> list[tuple[int, int, int, int]]:
        """Of every run: where it starts, how many rows it has, and which of them have keys from `low` to below `high`."""
        slices = []
        for first in range(0, self._n_rows, self._runs.run_rows):
            offset, rows = first // self._runs.run_rows * self._runs.stride, min(self._runs.run_rows, self._n_rows - first)
            own = np.frombuffer(self._map, KEY, rows, offset)
            start = int(np.searchsorted(own, np.uint64(low)))
            stop = rows if high >= STREAM_END else int(np.searchsorted(own, np.uint64(high)))
            slices.append((offset, rows, start, stop))
        return slices

    def _gathered(
        self, slices: list[tuple[int, int, int, int]], count: int, dtype: np.dtype, shape: tuple[int, ...], before: int
    ) -> np.ndarray:
        """One array's rows of the slices. In a run, `before` bytes of each row are in the arrays that come first."""
        out = np.empty((count, *shape), dtype)
        view, width, done = out.reshape(-1).view(np.uint8).data, dtype.itemsize * math.prod(shape), 0
        for offset, rows, start, stop in slices:
            end = done + (stop - start) * width
            self._read(view[done:end], offset + rows * before + start * width)
            done = end
        return out

    def _read(self, view: memoryview, offset: int) -> None:
        self._file.seek(offset)
        while len(view):
            count = self._file.readinto(view)
            if not count:
                raise SgmcmcError(
                    f"{self._path} ends at byte {self._file.tell():,}: it was changed from outside; "
                    "convert again with overwrite=True"
                )
            view = view[count:]
