"""What a conversion reads from: files, a folder of Zarr, arrays, a DataFrame, and blocks of rows from a function."""

import bz2
import contextlib
import glob
import gzip
import hashlib
import importlib
import itertools
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.data.columns import Columns
from sgmcmc.data.libsvm import count_features, read_rows

SUFFIXES = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "libsvm": (".libsvm", ".svm", ".svmlight"),
    "zarr": (".zarr",),
}
FORMATS = tuple(SUFFIXES)
UNPACKERS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open}

SAMPLED = 16
"""Rows of arrays in memory by which they are known again."""

BLOCK_BYTES = 2**25
"""About the size of a block of rows, in memory."""

Piece: TypeAlias = tuple[Columns, int]
"""A block of rows, and how many bytes of the table were read up to here (for the bar)."""


@dataclass(frozen=True)
class Options:
    """What the user said about the files: the columns to read, names and separator of CSV files, features of LIBSVM files."""

    wanted: list[str] | None = None
    names: list[str] | None = None
    separator: str = ","
    n_features: int | None = None


@dataclass(frozen=True)
class RawTable:
    """One file, or all of the raw data where there are no files. `read` leaves out the given number of rows at the beginning."""

    name: str
    size: int | None
    n_rows: int | None
    read: Callable[[int], Iterator[Piece]]


@dataclass(frozen=True)
class RawData:
    """Tables to be read one after the other, and by what they are known again (as JSON).

    Where LIBSVM files are `uncounted`, there are no tables until somebody knows how many features they have.
    """

    identity: Any
    tables: list[RawTable]
    uncounted: list[Path] = field(default_factory=list)


def find_raw_data(source: Any, format_: str | None, options: Options) -> RawData:
    """The raw data, whatever way they were given."""
    paths = source if isinstance(source, (list, tuple)) else [source]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        return _files([match for path in paths for match in _matching(path)], format_, options)
    if hasattr(source, "iloc"):
        return _arrays(frame_columns(source), "the DataFrame")
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        return _arrays({"X": source}, "the array")
    if isinstance(source, Mapping) and source:
        return _arrays({str(name): values for name, values in source.items()}, "the arrays")
    members: Any = getattr(source, "arrays", None)
    if callable(members):
        return _arrays(dict(sorted(members())), "the Zarr group")  # pyright: ignore
    blocks = source() if callable(source) else source
    if not isinstance(blocks, Iterator):
        more = "a list of paths, a dict of arrays, or an iterator of blocks of rows"
        raise InputError(f"source is {describe(source)}; expected the path of a CSV, Parquet, Arrow, LIBSVM or Zarr file, {more}")
    first = next(blocks, None)
    if first is None:
        raise InputError("source has no blocks of rows; an iterator can be used only once: give the function that makes it")
    columns = _block_columns(first, "block 0")
    digest = _digest({name: values[:1] for name, values in columns.items() if values.ndim})
    pieces = _block_pieces(itertools.chain([first], blocks))
    return RawData(digest, [RawTable("the blocks", None, None, lambda skip: _without(pieces, skip))])


def _files(paths: list[Path], format_: str | None, options: Options) -> RawData:
    formats = {format_ or _format_of(path) for path in paths}
    if len(formats) > 1:
        raise InputError(f"the files are of different formats, {sorted(formats)}; convert files of one format, or say format=")
    (kind,) = formats
    if kind == "zarr":
        return _zarr(paths)
    if kind in ("parquet", "arrow"):
        optional("pyarrow")
    if all(path.name.partition(".")[2].startswith("tsv") for path in paths) and options.separator == ",":
        options = replace(options, separator="\t")
    identity = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    if kind == "libsvm" and options.n_features is None:
        return RawData(identity, [], paths)
    return RawData(identity, [file_table(kind, path, options) for path in paths])


def file_table(kind: str, path: Path, options: Options) -> RawTable:
    """The table in one file."""
    if kind == "parquet":
        return _parquet_table(path, options)
    return RawTable(path.name, path.stat().st_size, None, lambda skip: _without(PIECES[kind](path, options), skip))


def _matching(path: str | os.PathLike[str]) -> list[Path]:
    if os.path.exists(path):
        return [Path(path)]
    matches = sorted(glob.glob(os.fspath(path)))
    if not matches:
        raise InputError(f"there is no file {os.fspath(path)!r}; expected a path, several, or a pattern such as 'part-*.csv'")
    return [Path(match) for match in matches]


def _format_of(path: Path) -> str:
    plain = path.with_suffix("") if path.suffix in UNPACKERS else path
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    found = next((kind for kind, suffixes in SUFFIXES.items() if plain.suffix in suffixes), None)
    if found is not None and path.is_dir() == (found == "zarr"):
        return found
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a pattern such as 'folder/*.parquet'")
    raise InputError(f"{path} has a name that does not tell its format; say format=, one of {', '.join(map(repr, FORMATS))}")


def _zarr(paths: list[Path]) -> RawData:
    if len(paths) > 1:
        raise InputError(f"{len(paths)} Zarr stores; expected one, or a dict of Zarr arrays")
    zarr, path = optional("zarr"), paths[0]
    try:
        opened = zarr.open(path, mode="r")
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise InputError(f"{path} is not a Zarr store ({error})") from error
    arrays = {"X": opened} if hasattr(opened, "shape") else dict(sorted(opened.arrays()))
    if not arrays:
        raise InputError(f"{path} has no arrays; expected a Zarr group of arrays that share their first axis")
    return _arrays(arrays, path.name)


def _arrays(arrays: Mapping[str, Any], name: str) -> RawData:
    """Arrays with rows on the first axis: NumPy's, Zarr's, anything with a shape and slices."""
    sliceable = {key: value if hasattr(value, "shape") else np.asarray(value) for key, value in arrays.items()}
    for key, value in sliceable.items():
        if len(value.shape) == 0:
            raise InputError(f"{name}: {key!r} is {describe(value)}; expected an array with rows on the first axis")
    lengths = {key: value.shape[0] for key, value in sliceable.items()}
    if len(set(lengths.values())) != 1:
        raise InputError(f"{name}: arrays have different numbers of rows, {lengths}; expected one number")
    n_rows = next(iter(lengths.values()))
    row_bytes = sum(value.dtype.itemsize * int(np.prod(value.shape[1:])) for value in sliceable.values())
    together = max((chunks[0] for value in sliceable.values() if (chunks := getattr(value, "chunks", None))), default=1)
    step = max(1, BLOCK_BYTES // max(1, row_bytes) // together) * together

    def pieces(skip: int) -> Iterator[Piece]:
        for start in [skip, *range(skip // step * step + step, n_rows, step)] if skip < n_rows else []:
            stop = min(start // step * step + step, n_rows)
            yield {key: np.asarray(value[start:stop]) for key, value in sliceable.items()}, stop * row_bytes

    return RawData(_identity_of(sliceable), [RawTable(name, n_rows * row_bytes, n_rows, pieces)])


def _identity_of(arrays: Mapping[str, Any]) -> list[Any]:
    """Shapes, types, and a digest of a few rows."""
    known, length = [], next(iter(arrays.values())).shape[0]
    picked = sorted({length * number // SAMPLED for number in range(SAMPLED)} | {length - 1}) if length else []
    for name, array in arrays.items():
        rows = {str(row): np.asarray(array[row : row + 1]) for row in picked}
        known.append([name, list(array.shape), str(array.dtype), _digest(rows)])
    return known


def _digest(columns: Columns) -> str:
    """A digest of a few rows."""
    digest = hashlib.sha256()
    for name, values in columns.items():
        digest.update(f"{name} {values.dtype} {values.shape[1:]}".encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _block_pieces(blocks: Iterator[Any]) -> Iterator[Piece]:
    read = 0
    for number, block in enumerate(blocks):
        columns = _block_columns(block, f"block {number}")
        read += sum(values.nbytes for values in columns.values())
        yield columns, read


def _block_columns(block: Any, label: str) -> Columns:
    """A block as somebody's code makes it: a dict of arrays, or a DataFrame."""
    if hasattr(block, "iloc"):
        return frame_columns(block)
    if not isinstance(block, Mapping) or not block or not all(isinstance(name, str) for name in block):
        raise InputError(f'{label} is {describe(block)}; expected a dict of arrays such as {{"X": X, "y": y}}')
    return {name: np.asarray(values) for name, values in block.items()}


def frame_columns(frame: Any, wanted: list[str] | None = None) -> Columns:
    """A DataFrame's columns as NumPy has them."""
    return {str(name): frame[name].to_numpy() for name in frame.columns if wanted is None or str(name) in wanted}


def _csv_pieces(path: Path, options: Options) -> Iterator[Piece]:
    import pandas

    settings: dict[str, Any] = {"sep": options.separator, "low_memory": False}
    settings |= {} if options.names is None else {"names": options.names, "header": None}
    if int(pandas.__version__.partition(".")[0]) < 3:
        settings["float_precision"] = "round_trip"  # what later versions always do
    try:
        with decompressed(path) as (_, text):
            n_columns = len(pandas.read_csv(text, nrows=0, **settings).columns)
        with decompressed(path) as (raw, text):
            frames: Any = pandas.read_csv(text, chunksize=max(1, BLOCK_BYTES // (8 * max(1, n_columns))), **settings)
            for frame in frames:
                if not isinstance(frame.index, pandas.RangeIndex):
                    raise pandas.errors.ParserError(f"lines have more fields than there are names, {n_columns}")
                yield frame_columns(frame, options.wanted), raw.tell()  # pandas told to read some columns takes longer lines too
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError) as error:
        words = str(error).strip()
        raise InputError(f"{path.name} is not a table in CSV ({words}); is the separator {options.separator!r}?") from error


def _libsvm_pieces(path: Path, options: Options) -> Iterator[Piece]:
    """Dense "X", and "y"."""
    assert options.n_features is not None  # whoever finds the raw data sees to it
    with decompressed(path) as (raw, text):
        for rows, labels in read_rows(text, options.n_features, BLOCK_BYTES, path.name):
            yield {"X": rows, "y": labels}, raw.tell()


def most_features(paths: list[Path], progress: Progress) -> int:
    """The largest feature number in LIBSVM files."""
    largest = 0
    with Bar(progress, "counting features", sum(path.stat().st_size for path in paths), "B") as bar:
        for path in paths:
            with decompressed(path) as (_, text):
                largest = max(largest, count_features(text))
            bar.update(path.stat().st_size)
    if largest == 0:
        raise InputError(f"{paths[0].name}: no features, index:value, in it; say n_features=, or is it another format?")
    return largest


def _parquet_table(path: Path, options: Options) -> RawTable:
    parquet, pyarrow = optional("pyarrow.parquet"), optional("pyarrow")
    try:
        metadata = parquet.read_metadata(path)
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path.name} is not a Parquet file ({error})") from error
    n_bytes, n_rows = path.stat().st_size, metadata.num_rows
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    n_columns = metadata.num_columns if options.wanted is None else len(options.wanted)
    batch_rows = max(1, BLOCK_BYTES // (8 * max(n_columns, 1)))

    def pieces(passed: int, done: int) -> Iterator[Piece]:
        rest = list(range(passed, len(groups)))
        try:
            with parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**18) as file:  # else whole row groups
                for columns in map(_batch_columns, file.iter_batches(batch_rows, row_groups=rest, columns=options.wanted)):
                    done += _length(columns)
                    yield columns, n_bytes * done // n_rows
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{path.name} is damaged ({error})") from error

    def read(skip: int) -> Iterator[Piece]:
        passed = int(np.searchsorted(np.cumsum(groups), skip, side="right"))
        done = sum(groups[:passed])
        return _without(pieces(passed, done), skip - done)

    return RawTable(path.name, n_bytes, n_rows, read)


def _arrow_pieces(path: Path, options: Options) -> Iterator[Piece]:
    """Of an Arrow IPC file (Feather version 2 is the same) or stream."""
    pyarrow, read = optional("pyarrow"), 0
    try:
        with pyarrow.memory_map(str(path)) as source:
            for batch in _arrow_batches(source):
                read += batch.nbytes
                step = max(1, BLOCK_BYTES // max(1, batch.nbytes // max(1, batch.num_rows)))
                for start in range(0, batch.num_rows, step):
                    yield _batch_columns(batch.slice(start, step), options.wanted), read
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path.name} is neither an Arrow file nor an Arrow stream ({error})") from error


def _arrow_batches(source: Any) -> Iterator[Any]:
    ipc = optional("pyarrow.ipc")
    try:
        file = ipc.open_file(source)
    except optional("pyarrow").ArrowInvalid:
        source.seek(0)
        yield from ipc.open_stream(source)
    else:
        yield from (file.get_batch(number) for number in range(file.num_record_batches))


def _batch_columns(batch: Any, wanted: list[str] | None = None) -> Columns:
    named = zip(batch.schema.names, batch.columns, strict=True)
    return {name: _arrow_values(values) for name, values in named if wanted is None or name in wanted}


def _arrow_values(values: Any) -> np.ndarray:
    width = getattr(values.type, "list_size", None)
    if width and values.null_count == 0:
        return _arrow_values(values.flatten()).reshape(-1, width)
    if hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    return values.to_numpy(zero_copy_only=False)


PIECES = {"csv": _csv_pieces, "arrow": _arrow_pieces, "libsvm": _libsvm_pieces}


@contextlib.contextmanager
def decompressed(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A file as it is on the disk, and the text in it."""
    with open(path, "rb") as raw:
        try:
            yield raw, UNPACKERS[path.suffix](raw) if path.suffix in UNPACKERS else raw
        except (EOFError, zlib.error) as error:
            raise InputError(f"{path.name} cannot be decompressed ({error}): incomplete or damaged; fetch it again") from error


def optional(module: str) -> Any:
    """A module of the extra sgmcmc[data]."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(f"this format needs {package}, which is not installed; pip install 'sgmcmc[data]'") from error


def _without(pieces: Iterator[Piece], skip: int) -> Iterator[Piece]:
    """The pieces without the first rows."""
    for columns, read in pieces:
        count = _length(columns)
        if count > skip:
            yield {name: values[skip:] for name, values in columns.items()} if skip else columns, read
        skip = max(0, skip - count)


def _length(columns: Columns) -> int:
    return max((len(values) if values.ndim else 0 for values in columns.values()), default=0)
