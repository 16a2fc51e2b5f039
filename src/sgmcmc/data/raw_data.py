"""Which raw data a user means: files, a folder of Zarr, arrays, a DataFrame, blocks of rows."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.data import readers
from sgmcmc.data.readers import Options, RawTable

FILES: dict[str, Callable[[Path, Options], RawTable]] = {
    "csv": readers.csv_table,
    "parquet": readers.parquet_table,
    "arrow": readers.arrow_table,
    "libsvm": readers.libsvm_table,
}
FORMATS = (*FILES, "zarr")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".zarr": "zarr",
}
SAMPLED = 16
"""Rows of arrays in memory by which they are known again."""


@dataclass(frozen=True)
class RawData:
    """Tables to be read one after the other, and by what they are known again (as JSON).

    LIBSVM files do not say how many features there are: then there are no tables until these are counted.
    """

    identity: Any
    tables: list[RawTable]
    count_features: Callable[[Progress], int] | None = None
    with_features: Callable[[int], RawData] | None = None

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known without reading."""
        counts = [table.n_rows for table in self.tables]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def size(self) -> int | None:
        """Total for the bar."""
        sizes = [table.size for table in self.tables]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def find_raw_data(source: Any, format_: str | None, options: Options) -> RawData:
    """The raw data, whatever way they were given."""
    if _is_path(source):
        return _files(_matching(source), format_, options)
    if isinstance(source, (list, tuple)) and source and all(_is_path(path) for path in source):
        return _files([match for path in source for match in _matching(path)], format_, options)
    if hasattr(source, "iloc"):
        return RawData(_identity_of(readers.frame_columns(source)), [readers.frame_table(source)])
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        return _arrays({"X": source}, "the array")
    if isinstance(source, Mapping) and source:
        return _arrays({str(name): values for name, values in source.items()}, "the arrays")
    members: Any = getattr(source, "arrays", None)
    if callable(members):
        return _arrays(dict(sorted(members())), "the Zarr group")  # pyright: ignore
    blocks = source() if callable(source) else source
    if not isinstance(blocks, Iterator):
        raise InputError(
            f"source is {describe(source)}; expected the path of a CSV, Parquet, Arrow, LIBSVM or Zarr file, a list of paths, "
            "a dict of arrays, or an iterator of blocks of rows"
        )
    return _blocks(blocks)


def _files(paths: list[Path], format_: str | None, options: Options) -> RawData:
    formats = {format_ or _format_of(path) for path in paths}
    if len(formats) > 1:
        raise InputError(f"the files are of different formats, {sorted(formats)}; convert files of one format, or say format=")
    (kind,) = formats
    if kind == "zarr":
        if len(paths) > 1:
            raise InputError(f"{len(paths)} Zarr stores; expected one, or a dict of Zarr arrays")
        return _zarr(paths[0])
    if all(path.name.partition(".")[2].startswith("tsv") for path in paths) and options.separator == ",":
        options = replace(options, separator="\t")
    identity = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    if kind == "libsvm" and options.n_features is None:
        return RawData(
            identity,
            [],
            partial(_count_features, paths),
            lambda count: _tables(kind, paths, replace(options, n_features=count), identity),
        )
    return _tables(kind, paths, options, identity)


def _tables(kind: str, paths: list[Path], options: Options, identity: Any) -> RawData:
    return RawData(identity, [FILES[kind](path, options) for path in paths])


def _count_features(paths: list[Path], progress: Progress) -> int:
    with Bar(progress, "counting features", sum(path.stat().st_size for path in paths), "B") as bar:
        return readers.most_features(paths, bar.update)


def _zarr(path: Path) -> RawData:
    zarr = readers.optional("zarr")
    try:
        opened = zarr.open(path, mode="r")
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise InputError(f"{path} is not a Zarr store ({error})") from error
    arrays = {"X": opened} if hasattr(opened, "shape") else dict(sorted(opened.arrays()))
    if not arrays:
        raise InputError(f"{path} has no arrays; expected a Zarr group of arrays that share their first axis")
    return _arrays(arrays, path.name)


def _arrays(arrays: dict[str, Any], name: str) -> RawData:
    return RawData(_identity_of(arrays), [readers.arrays_table(arrays, name)])


def _blocks(blocks: Iterator[Any]) -> RawData:
    first = next(blocks, None)
    if first is None:
        raise InputError("source has no blocks of rows; an iterator can be used only once: give the function that makes it")
    columns = readers.block_columns(first, "block 0")
    digest = readers.fingerprint({name: values[:1] for name, values in columns.items() if values.ndim})
    return RawData(digest, [readers.blocks_table(itertools.chain([first], blocks))])


def _identity_of(arrays: Mapping[str, Any]) -> list[Any]:
    """Shapes, types, and a digest of a few rows."""
    known = []
    for name, values in arrays.items():
        array = values if hasattr(values, "shape") else np.asarray(values)
        length = array.shape[0] if len(array.shape) else 0
        picked = sorted({length * number // SAMPLED for number in range(SAMPLED)} | {max(0, length - 1)}) if length else []
        rows = {str(row): np.asarray(array[row : row + 1]) for row in picked}
        known.append([name, list(array.shape), str(array.dtype), readers.fingerprint(rows)])
    return known


def _matching(path: str | os.PathLike[str]) -> list[Path]:
    if os.path.exists(path):
        return [Path(path)]
    matches = sorted(glob.glob(os.fspath(path)))
    if not matches:
        raise InputError(
            f"there is no file {os.fspath(path)!r}; expected a path, a list of paths, or a pattern such as 'part-*.csv'"
        )
    return [Path(match) for match in matches]


def _format_of(path: Path) -> str:
    plain = path.with_suffix("") if path.suffix in (".gz", ".bz2") else path
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    if plain.suffix not in SUFFIXES or path.is_dir() != (plain.suffix == ".zarr"):
        what = "is a folder" if path.is_dir() else "has a name that does not tell its format"
        hint = (
            "give a pattern such as 'folder/*.parquet'"
            if path.is_dir()
            else f"say format=, one of {', '.join(map(repr, FORMATS))}"
        )
        raise InputError(f"{path} {what}; {hint}")
    return SUFFIXES[plain.suffix]


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))
