"""From columns of raw data to the arrays of a folder: which, of what type, and nothing but finite numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from sgmcmc.core.errors import InputError, describe

Columns: TypeAlias = dict[str, np.ndarray]
"""A block of rows as it was read: columns, or arrays with rows on the first axis."""

ColumnChoice: TypeAlias = Mapping[str, "str | list[str] | tuple[str, ...] | EllipsisType"]
"""The arrays to make: of one column, of several side by side, or (`...`) of all the others."""

KEPT = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


@dataclass(frozen=True)
class Origin:
    """Where a block comes from, for messages. The first row has number 1."""

    name: str
    first_row: int

    def of(self, row: int, column: str) -> str:
        """One number of the block, in words."""
        return f"{self.name}, row {self.first_row + row}, column {column!r}"


@dataclass(frozen=True)
class Arrangement:
    """The arrays of a folder. `columns` has one name for a column taken as it is, a list for several side by side."""

    columns: dict[str, str | list[str]]
    dtypes: dict[str, np.dtype]
    row_shapes: dict[str, tuple[int, ...]]
    everything: bool

    @property
    def row_bytes(self) -> dict[str, int]:
        """Size of a row of each array."""
        return {name: dtype.itemsize * math.prod(self.row_shapes[name]) for name, dtype in self.dtypes.items()}

    @property
    def row_size(self) -> int:
        """Of all arrays together."""
        return sum(self.row_bytes.values())

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Arrangement:
        """From JSON, in which types are names and shapes are lists."""
        dtypes = {name: np.dtype(text) for name, text in record["dtypes"].items()}
        shapes = {name: tuple(shape) for name, shape in record["row_shapes"].items()}
        return cls(record["columns"], dtypes, shapes, record["everything"])

    def arrays(self, block: Columns, origin: Origin) -> dict[str, np.ndarray]:
        """The block's rows in the arrays' types. What cannot be put there exactly (or is not finite) is refused."""
        chosen = [column for part in self.columns.values() for column in _several(part)]
        _check_present(chosen, block, origin)
        if self.everything and (extra := [column for column in block if column not in chosen]):
            raise InputError(f"{origin.name} has columns that were not there before: {_listed(extra)}; say which by columns=")
        lengths = {column: len(block[column]) for column in chosen}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{origin.name}, from row {origin.first_row}: different numbers of rows, {lengths}")
        return {name: self._array(name, block, origin) for name in self.columns}

    def _array(self, name: str, block: Columns, origin: Origin) -> np.ndarray:
        columns, dtype = self.columns[name], self.dtypes[name]
        if isinstance(columns, str):
            values, shape, before = block[columns], block[columns].shape[1:], self.row_shapes[name]
            if shape != before:
                where = f"{origin.name}, from row {origin.first_row}"
                raise InputError(f"{where}: {columns!r} has rows of shape {shape}, before it was {before}")
            return fitted(values, dtype, columns, name, origin)
        rows = np.empty((len(block[columns[0]]), len(columns)), dtype)
        for number, column in enumerate(columns):
            rows[:, number] = fitted(block[column], dtype, column, name, origin)
        return rows


def settle(block: Columns, chosen: ColumnChoice | None, dtype: Any, origin: Origin) -> Arrangement:
    """The arrangement that the first block of rows and the user's wishes make."""
    for column, values in block.items():
        if values.ndim == 0:
            raise InputError(f"{origin.name}: {column!r} is {describe(values)}; expected rows on the first axis")
    columns, everything = _columns(block, chosen, origin)
    names = list(columns)
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"arrays {_listed(names)}: two names differ in case only, which some disks do not see; rename one")
    shapes = {name: block[part].shape[1:] if isinstance(part, str) else (len(part),) for name, part in columns.items()}
    for name, shape in shapes.items():
        if math.prod(shape) == 0:
            raise InputError(f"{origin.name}: array {name!r} has rows of shape {shape}, which hold nothing")
    if isinstance(dtype, Mapping) and (unknown := [name for name in dtype if name not in columns]):
        raise InputError(f"dtype is for {_listed(unknown)}; the arrays are {_listed(names)}")
    dtypes = {name: _dtype(name, part, block, dtype) for name, part in columns.items()}
    return Arrangement(columns, dtypes, shapes, everything)


def wanted(chosen: ColumnChoice | None) -> list[str] | None:
    """The columns that must be read, or None for all of them."""
    if chosen is None or any(part is ... for part in chosen.values()):
        return None
    return list(dict.fromkeys(column for part in chosen.values() for column in _several(part)))


def check_columns(chosen: Any) -> ColumnChoice | None:
    """`columns` as it may be."""
    if chosen is None:
        return None
    expected = 'expected a dict such as {"X": ["a", "b"], "y": "label"}, or {"X": ..., "y": "label"} with ... for all others'
    if not isinstance(chosen, Mapping) or not chosen or not all(isinstance(name, str) and name for name in chosen):
        raise InputError(f"columns is {describe(chosen)}; {expected}")
    for name, part in chosen.items():
        several = isinstance(part, (list, tuple)) and len(part) > 0 and all(isinstance(column, str) for column in part)
        if not (several or isinstance(part, str) or part is ...):
            raise InputError(f"columns[{name!r}] is {describe(part)}; {expected}")
    if sum(part is ... for part in chosen.values()) > 1:
        raise InputError(f"columns has ... (all other columns) more than once; {expected}")
    return chosen


def check_dtype(dtype: Any) -> Any:
    """`dtype` in a form that can be written down: None, one name, or one for each array."""
    if dtype is None:
        return None
    if isinstance(dtype, Mapping):
        return {str(name): _kept(wish, f"dtype[{name!r}]", KEPT) for name, wish in dtype.items()}
    return _kept(dtype, "dtype", ("float32", "float64"))


def fitted(values: np.ndarray, dtype: np.dtype, column: str, name: str, origin: Origin) -> np.ndarray:
    """The values as `dtype`: floats finite, all else exact."""
    if values.dtype.kind not in "biuf":
        raise _not_numbers(values, column, origin)
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype)
    bad = ~np.isfinite(result) if dtype.kind == "f" else result != values
    if bad.any():
        row, *rest = np.argwhere(bad)[0].tolist()
        raise _refused(values[(row, *rest)].item(), dtype, name, origin.of(row, column) + (f", entry {rest}" if rest else ""))
    return result


def _columns(block: Columns, chosen: ColumnChoice | None, origin: Origin) -> tuple[dict[str, str | list[str]], bool]:
    if chosen is None:
        return {column: column for column in block}, True
    named = {column for part in chosen.values() if part is not ... for column in _several(part)}
    _check_present(sorted(named), block, origin)
    rest = [column for column in block if column not in named]
    columns: dict[str, str | list[str]] = {}
    for name, part in chosen.items():
        columns[name] = part if isinstance(part, str) else rest if isinstance(part, EllipsisType) else list(part)
        for column in [] if isinstance(part, str) else columns[name]:
            if block[column].ndim != 1:
                raise InputError(f"{origin.name}: {column!r} is {describe(block[column])}; only columns can be put side by side")
    return columns, any(part is ... for part in chosen.values())


def _check_present(columns: list[str], block: Columns, origin: Origin) -> None:
    for column in columns:
        if column not in block:
            raise InputError(f"{origin.name} has no column {column!r}; it has {_listed(list(block))}")


def _dtype(name: str, part: str | list[str], block: Columns, dtype: Any) -> np.dtype:
    kinds = {block[column].dtype.kind for column in _several(part)}
    natural = "float32" if "f" in kinds else "bool" if kinds == {"b"} else "int32"
    if isinstance(dtype, Mapping):
        natural = dtype.get(name, natural)
    elif dtype is not None and natural == "float32":
        natural = dtype
    return np.dtype(natural).newbyteorder("<")


def _several(part: Any) -> list[str]:
    return [part] if isinstance(part, str) else part


def _kept(wish: Any, label: str, allowed: tuple[str, ...]) -> str:
    try:
        name = np.dtype(wish).name
    except TypeError:
        name = None
    if name not in allowed:
        extra = "" if allowed == KEPT else ', or a dict such as {"X": "float64", "y": "int32"}'
        raise InputError(f"{label} is {describe(wish)}; expected one of {_listed(list(allowed))}{extra}")
    return name


def _not_numbers(values: np.ndarray, column: str, origin: Origin) -> InputError:
    row = next((number for number, value in enumerate(values) if not _is_number(value)), 0) if len(values) else 0
    arrived = describe(values[row]) if len(values) else f"of dtype {values.dtype}"
    remedies = "drop or mend the row, or leave the column out by columns=, or turn its categories into numbers first"
    return InputError(f"{origin.of(row, column)} is {arrived}; expected a number: {remedies}")


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _refused(value: Any, dtype: np.dtype, name: str, where: str) -> InputError:
    if isinstance(value, float) and not math.isfinite(value):
        missing = "missing or not a number" if math.isnan(value) else f"{value}"
        return InputError(f"{where} is {missing}; expected a finite number: drop or mend the row before converting")
    wider = "float64" if dtype.kind == "f" else "int64" if float(value).is_integer() else "float32"
    narrow = f"{dtype.name}, the type of array {name!r},"
    return InputError(f"{where} is {value}, which {narrow} cannot hold; say dtype={{{name!r}: {wider!r}}}")


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:12]))
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown
