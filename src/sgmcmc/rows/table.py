"""The dataset as the library sees it: named columns that share their rows, in memory or elsewhere.

A column in memory is a NumPy array. One elsewhere (a file, a memory map, a Zarr array) is anything with a shape, a dtype, and
slices of rows; nothing of it is read before it is needed.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Dataset
from sgmcmc.rows.files import AnyFolder, FileColumn, NamedColumns, open_rows
from sgmcmc.rows.gathering import take_rows
from sgmcmc.rows.given import Levels, coded, columns_of

LARGE_SHARE = 1 / 4
"""Data on disk of more than this part of the machine's memory are read in order: the system cannot be trusted to hold them."""

RANDOM, WINDOW, IMPORTANCE = DRAWN = ("random", "window", "importance")
"""Short names for how rows are drawn."""


@dataclass(frozen=True, eq=False)
class Table(NamedColumns[Any]):
    """Columns by name, with rows on their first axis.

    Attributes:
        columns: NumPy arrays where they are in memory.
        shuffled: whether the rows are in random order already, so that neighbours are no more alike than others.
        checksum: what identifies the contents, where whoever wrote them has recorded it.
        checked: whether all numbers are known to be finite.
        levels: what the codes of columns of categories stand for.
    """

    columns: dict[str, Any]
    shuffled: bool = False
    checksum: str | None = None
    checked: bool = False
    levels: Levels = field(default_factory=dict, kw_only=True)

    in_strata: ClassVar[bool] = False
    """Whether the rows are in more than one stratum."""

    @cached_property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def total_rows(self) -> int:
        """Rows of the whole dataset, those of other processes included."""
        return self.n_rows

    @cached_property
    def row_bytes(self) -> int:
        return sum(column.dtype.itemsize * math.prod(column.shape[1:]) for column in self.columns.values())

    @property
    def nbytes(self) -> int:
        return self.n_rows * self.row_bytes

    @cached_property
    def in_memory(self) -> bool:
        return all(isinstance(column, np.ndarray) for column in self.columns.values())

    @property
    def large(self) -> bool:
        """Whether it is elsewhere, and too large for the system to keep in memory for us."""
        return not self.in_memory and self.nbytes > LARGE_SHARE * physical_memory()

    @property
    def seekable(self) -> bool:
        """Whether single rows are as quick to get at as the place they are kept allows."""
        return all(isinstance(column, np.ndarray) or column.seekable for column in self.columns.values())

    def part(self, start: int, stop: int) -> Table:
        """Some adjacent rows, without reading them."""

        def cut(column: Any) -> Any:
            if isinstance(column, np.ndarray):
                return column[start:stop]
            return replace(column, start=column.start + start, stop=column.start + stop)

        return Table({name: cut(column) for name, column in self.items()}, self.shuffled, None, self.checked)

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Some adjacent rows, read."""
        return {name: column[start:stop] for name, column in self.columns.items()}


@dataclass(frozen=True, eq=False)
class Stratum(Table):
    """This process's rows of a dataset that all processes hold together: its columns are this process's own.

    `row_counts` are those of every process, and `devices` the parts into which each one's rows are cut.
    """

    row_counts: tuple[int, ...] = ()
    process: int = 0
    devices: int = 1

    @property
    def total_rows(self) -> int:
        return sum(self.row_counts)

    @property
    def count(self) -> int:
        """Strata of all processes."""
        return len(self.row_counts) * self.devices

    @property
    def in_strata(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]: as the strata say
        return self.count > 1

    @property
    def smallest(self) -> int:
        """Rows of the smallest stratum."""
        return min(self.row_counts) // self.devices

    def parts(self) -> dict[int, Table]:
        """This process's strata by number: contiguous, of nearly equal size."""
        edges = np.arange(self.devices + 1) * self.n_rows // self.devices
        return {
            self.process * self.devices + device: self.part(start, stop)
            for device, (start, stop) in enumerate(itertools.pairwise(edges.tolist()))
        }

    def share_of(self, count: int) -> tuple[int, ...]:
        """`count` rows dealt out to the processes in proportion to what they hold: at least one each, the same on all."""
        edges = np.cumsum((0, *self.row_counts)).tolist()
        marks = [count * edge // self.total_rows for edge in edges]
        shares = [max(1, high - low) for low, high in itertools.pairwise(marks)]
        return tuple(map(min, self.row_counts, shares))


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Rows `start` to `stop` of a column that is not in memory, converted to a dtype JAX computes with as they are read: of a
    `FileColumn`, a memory map, or anything of the user's with a shape, a dtype, and slices of rows.
    """

    values: Any
    dtype: np.dtype
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.values.shape[1:])

    @property
    def seekable(self) -> bool:
        """Whether any rows can be asked for at once, and not slices only."""
        return isinstance(self.values, np.ndarray | FileColumn)

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, place: slice) -> np.ndarray:
        return np.ascontiguousarray(self.as_kept(place), dtype=self.dtype)

    def as_kept(self, place: slice) -> Any:
        """Adjacent rows, not converted."""
        first, last, _ = place.indices(len(self))
        return self.values[self.start + first : self.start + max(first, last)]

    def rows(self, index: np.ndarray, out: np.ndarray) -> None:
        """Copy the rows of these numbers."""
        index = index + self.start
        if self.seekable and self.values.dtype != self.dtype:
            out[...] = self.values[index]
        elif isinstance(self.values, np.ndarray):
            take_rows(self.values, index, out)
        elif self.seekable:
            self.values.rows(index, out)
        else:  # slices are all that is known to work
            for number, row in zip(np.ndindex(*index.shape), index.flat, strict=True):
                out[number] = self.values[int(row) : int(row) + 1][0]

    def read(self, start: int, out: np.ndarray) -> None:
        """Copy as many adjacent rows as `out` has."""
        if isinstance(self.values, FileColumn) and self.values.dtype == self.dtype:
            self.values.read(self.start + start, out)
        else:
            out[...] = self.as_kept(slice(start, start + len(out)))

    def will_need(self, index: np.ndarray) -> None:
        """Say in advance which rows will be asked for, where it is known of which file they are a part."""
        if isinstance(self.values, FileColumn):
            self.values.will_need(index + self.start)

    def will_read(self, start: int, count: int) -> None:
        """Say in advance which adjacent rows will be asked for, likewise."""
        if isinstance(self.values, FileColumn):
            self.values.will_read(self.start + start, count)


def as_table(columns: Mapping[str, Any]) -> Table:
    """A table of columns that were looked at before."""
    return columns if isinstance(columns, Table) else Table(dict(columns))


def is_mapped(values: Any) -> bool:
    """Whether an array is a memory map, or a view of one."""
    while values is not None:
        if isinstance(values, np.memmap | mmap.mmap):
            return True
        values = getattr(values, "base", None)
    return False


def physical_memory() -> int:
    """Bytes of memory this process may count on: the machine's, or its container's where that is less."""
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        installed = 8 << 30
    try:
        return min(installed, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or no limit ("max")
        return installed


BLOCK = 1 << 22
"""Numbers looked at together when searching an array for NaN: bounds the memory the search takes."""


def check_dataset(dataset: Dataset, levels: Levels | None = None) -> Table:
    """The dataset as C-ordered columns of types JAX computes with; columns of categories as codes, of `levels` where these are
    known from other rows.

    What is in memory is copied only where that needs a copy; what is not is left where it is.
    """
    if isinstance(dataset, Table):
        return dataset
    if isinstance(dataset, str | Path):
        dataset = open_rows(dataset)
    given, found = coded(columns_of(dataset), levels)
    columns = {name: _check_column(name, values) for name, values in given.items()}
    if not columns:
        raise InputError('dataset has no arrays; expected a dict such as {"X": X, "y": y}, rows on the first axis')
    n_rows = check_row_counts(columns)
    if n_rows >= 2**31:
        raise InputError(f"dataset has {n_rows:,} rows; expected fewer than 2**31: spread the rows over several processes")
    if isinstance(dataset, AnyFolder):
        return Table(columns, dataset.shuffled, dataset.checksum, checked=True)
    return Table(columns, checked=all(isinstance(column, np.ndarray) for column in columns.values()), levels=found)


def check_row_counts(arrays: Mapping[str, Any]) -> int:
    """The number of rows, which all arrays must have."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        expected = "expected one first axis for all (transpose the one that has rows elsewhere)"
        raise InputError(f"dataset arrays have different numbers of rows: {found}; {expected}")
    return next(iter(lengths.values()))


def _check_column(name: str, values: Any) -> Any:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"dataset[{name!r}] has masked values; drop or fill such rows first, for instance with .compressed()")
    elsewhere, where = is_elsewhere(values), f"dataset[{name!r}]"
    array = values if elsewhere else np.asarray(values)
    if array.dtype == object or np.dtype(array.dtype).kind not in "fiub":
        groups = f"; where it is text that names groups, make it categories: {name}.astype('category') of pandas"
        raise InputError(f"{where} has dtype {array.dtype}; expected numbers (drop or fill missing values){groups}")
    if len(array.shape) == 0:
        raise InputError(f"{where} is a single number; expected rows on the first axis (put constants into log_lik itself)")
    if array.shape[0] == 0:
        raise InputError(f"{where} is empty: shape {array.shape}; expected at least one row")
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
    if elsewhere:
        return Elsewhere(array, dtype, 0, array.shape[0])
    if array.dtype.kind == "f":
        array = np.ascontiguousarray(array, dtype)  # what overflows is not finite
    _check_numbers(name, array, dtype)
    return np.ascontiguousarray(array, dtype)


def is_elsewhere(values: Any) -> bool:
    """Whether a column is not in memory: a file, a memory map, or what has rows to slice but is no array of a known kind."""
    if isinstance(values, np.ndarray):
        return is_mapped(values)
    sliceable = all(hasattr(values, name) for name in ("shape", "dtype", "__getitem__"))
    known = any(hasattr(values, name) for name in ("__array_interface__", "to_numpy", "numpy"))
    return isinstance(values, FileColumn) or (sliceable and not known and not isinstance(values, jax.Array))


def check_block(name: str, column: Any, start: int, stop: int) -> None:
    """Look at some rows of a column that is not in memory as `check_dataset` looks at arrays that are."""
    _check_numbers(name, np.asarray(column.as_kept(slice(start, stop))), column.dtype, start)


def _check_numbers(name: str, array: np.ndarray, dtype: np.dtype, first: int = 0) -> None:
    if array.dtype.kind in "iu" and array.dtype != dtype:
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise InputError(f"dataset[{name!r}] has integers that do not fit {dtype}; renumber them, or use JAX's 64-bit mode")
    row = first_bad_row(array) if array.dtype.kind == "f" else None
    if row is not None:
        raise InputError(f"dataset[{name!r}] has a value that is not finite in row {first + row}; drop or fill such rows first")


def first_bad_row(array: np.ndarray) -> int | None:
    """The first row with a NaN or an infinity. Sums find it (they are not finite either) without a mask as big as the data."""
    rows = max(1, BLOCK // max(1, array[0].size))
    with np.errstate(all="ignore"):
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            if not np.isfinite(block.sum(dtype=block.dtype)):
                bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
                if bad.any():
                    return start + int(np.argmax(bad))
    return None


def usual_rows(table: Table) -> str:
    """How rows are drawn where the user does not say: at random, or where that is slow as windows of the order they are in.

    Windows need shuffled rows to be as good, so those of a memory map are drawn at random whatever its size.
    """
    slow = not table.seekable or (table.large and table.shuffled)
    return WINDOW if slow else RANDOM


def whole(table: Table) -> dict[str, np.ndarray]:
    """All rows in memory."""
    return {name: column if isinstance(column, np.ndarray) else column[: len(column)] for name, column in table.items()}
