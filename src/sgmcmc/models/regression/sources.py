"""Frames of any kind, in memory or on disk, as blocks of rows that are pandas frames of a few columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.data.readers import Options, find_raw_data, optional

Frame: TypeAlias = Any
"""A pandas frame; the library is imported where it is used."""

Series: TypeAlias = Any
"""A column of one."""

BLOCK_ROWS = 1 << 17
"""Rows that are looked at together."""

EXPECTED = "a pandas or polars frame, a pyarrow table, a dict of columns, or the path of CSV, Parquet or Arrow files"


@dataclass(frozen=True)
class Source:
    """Where rows come from: the names of all columns, and blocks of some of them, as often as asked for."""

    names: list[str]
    read: Callable[[list[str]], Iterator[Any]]
    in_memory: bool = True

    def blocks(self, columns: list[str]) -> Iterator[Frame]:
        """Blocks of rows, of these columns."""
        for block in self.read(columns):
            for start in range(0, len(block), BLOCK_ROWS):
                yield block.iloc[start : start + BLOCK_ROWS].reset_index(drop=True)


def find_source(frame: Any) -> Source:
    """The rows of whatever was given."""
    if isinstance(frame, Source):
        return frame
    source = _find(frame)
    if len(set(source.names)) < len(source.names):
        twice = next(name for name in source.names if source.names.count(name) > 1)
        raise InputError(f"the frame has two columns named {twice!r}; rename one")
    return source


def _find(frame: Any) -> Source:
    if _is_path(frame):
        return _of_files(frame)
    package = type(frame).__module__.partition(".")[0]
    if package == "polars":
        return _of_lazy(frame) if hasattr(frame, "collect") else _of_polars(frame)
    if package == "pyarrow" and hasattr(frame, "to_batches"):
        return _of_arrow(frame)
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):
        return _of_pandas(frame)
    if isinstance(frame, Mapping) and frame:
        return _of_pandas(_as_frame(frame))
    raise InputError(f"frame is {describe(frame)}; expected {EXPECTED}")


def _is_path(frame: Any) -> bool:
    several = frame if isinstance(frame, list | tuple) else [frame]
    return bool(several) and all(isinstance(one, str | os.PathLike) for one in several)


def _as_frame(columns: Mapping[Any, Any]) -> Frame:
    import pandas

    made = {str(name): _as_column(values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in made.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the columns have different numbers of rows, {lengths}; expected one number")
    return pandas.DataFrame(made)


def _as_column(values: Any) -> Any:
    if hasattr(values, "to_pandas"):
        return values.to_pandas()
    if hasattr(values, "dtype") and not hasattr(values, "addressable_shards"):
        return values
    return np.atleast_1d(np.asarray(values))  # one number is one row


def _of_pandas(frame: Frame) -> Source:
    names = [str(name) for name in frame.columns]
    place = {name: number for number, name in enumerate(names)}

    def read(columns: list[str]) -> Iterator[Frame]:
        chosen = frame.iloc[:, [place[name] for name in columns]].set_axis(columns, axis=1)
        return iter([chosen.reset_index(drop=True)])

    return Source(names, read)


def _of_polars(frame: Any) -> Source:
    def read(columns: list[str]) -> Iterator[Frame]:
        return (_alphabetical(part.to_pandas()) for part in frame.select(columns).iter_slices(BLOCK_ROWS))

    return Source(list(frame.columns), read)


def _of_lazy(frame: Any) -> Source:
    def read(columns: list[str]) -> Iterator[Frame]:
        batches = frame.select(columns).collect_batches(chunk_size=BLOCK_ROWS, maintain_order=True)
        return (_alphabetical(batch.to_pandas()) for batch in batches)

    return Source(frame.collect_schema().names(), read, in_memory=False)


def _of_arrow(table: Any) -> Source:
    def read(columns: list[str]) -> Iterator[Frame]:
        chosen = table.select(columns) if hasattr(table, "select") else table.to_table(columns=columns)
        return (_alphabetical(batch.to_pandas()) for batch in chosen.to_batches(max_chunksize=BLOCK_ROWS))

    return Source(list(table.schema.names), read)


def _alphabetical(block: Frame) -> Frame:
    """Categories in the order in which they happened to come, as polars and Arrow have them, put into that of the alphabet."""
    for name in block:
        kind = block[name].dtype
        if hasattr(kind, "categories") and not kind.ordered:
            block[name] = block[name].cat.reorder_categories(sorted(kind.categories))
    return block


def _of_files(paths: Any) -> Source:
    import pandas

    first = find_raw_data(paths, None, Options())
    if first.uncounted:
        raise InputError(f"frame is {describe(paths)}, which has no names of columns; expected {EXPECTED}")
    piece = next(first.tables[0].read(0), None)
    if piece is None:
        raise InputError(f"{first.tables[0].name} has no rows")
    optional("pyarrow")

    def read(columns: list[str]) -> Iterator[Frame]:
        for table in find_raw_data(paths, None, Options(wanted=columns)).tables:
            for block, _ in table.read(0):
                yield pandas.DataFrame({name: block[name] for name in columns})

    return Source(list(piece[0]), read, in_memory=False)
