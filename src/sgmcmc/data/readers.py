"""What a conversion reads from: tables in files, arrays, and blocks from a function."""

import bz2
import contextlib
import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.data.columns import Columns
from sgmcmc.data.libsvm import count_features, read_rows

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


def csv_table(path: Path, options: Options) -> RawTable:
    """A CSV file, plain or compressed."""
    return RawTable(path.name, path.stat().st_size, None, lambda skip: _without(_csv_pieces(path, options), skip))


def libsvm_table(path: Path, options: Options) -> RawTable:
    """A LIBSVM file, plain or compressed: dense "X", and "y"."""
    n_features = options.n_features
    assert n_features is not None  # whoever finds the raw data sees to it

    def pieces() -> Iterator[Piece]:
        with decompressed(path) as (raw, text):
            for rows, labels in read_rows(text, n_features, BLOCK_BYTES, path.name):
                yield {"X": rows, "y": labels}, raw.tell()

    return RawTable(path.name, path.stat().st_size, None, lambda skip: _without(pieces(), skip))


def most_features(paths: list[Path], report: Callable[[int], Any]) -> int:
    """The largest feature number in LIBSVM files."""
    largest = 0
    for path in paths:
        with decompressed(path) as (_, text):
            largest = max(largest, count_features(text))
        report(path.stat().st_size)
    if largest == 0:
        raise InputError(f"{paths[0].name}: no features, index:value, in it; say n_features=, or is it another format?")
    return largest


def parquet_table(path: Path, options: Options) -> RawTable:
    """A Parquet file."""
    parquet, pyarrow = optional("pyarrow.parquet"), optional("pyarrow")
    try:
        metadata = parquet.read_metadata(path)
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path.name} is not a Parquet file ({error})") from error
    n_rows, n_bytes = metadata.num_rows, path.stat().st_size
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    n_columns = metadata.num_columns if options.wanted is None else len(options.wanted)

    def pieces(skip: int) -> Iterator[Piece]:
        passed = _groups_within(groups, skip)
        done = sum(groups[:passed])
        rest = list(range(passed, len(groups)))
        rows = max(1, BLOCK_BYTES // (8 * max(n_columns, 1)))
        try:
            with parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**18) as file:  # else whole row groups
                for columns in map(_batch_columns, file.iter_batches(rows, row_groups=rest, columns=options.wanted)):
                    done += _length(columns)
                    yield columns, n_bytes * done // n_rows
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{path.name} is damaged ({error})") from error

    return RawTable(
        path.name, n_bytes, n_rows, lambda skip: _without(pieces(skip), skip - sum(groups[: _groups_within(groups, skip)]))
    )


def arrow_table(path: Path, options: Options) -> RawTable:
    """An Arrow IPC file (Feather version 2 is the same) or stream."""
    pyarrow, ipc = optional("pyarrow"), optional("pyarrow.ipc")

    def batches(source: Any) -> Iterator[Any]:
        try:
            file = ipc.open_file(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            yield from ipc.open_stream(source)
        else:
            yield from (file.get_batch(number) for number in range(file.num_record_batches))

    def pieces() -> Iterator[Piece]:
        read = 0
        try:
            with pyarrow.memory_map(str(path)) as source:
                for batch in batches(source):
                    read += batch.nbytes
                    step = max(1, BLOCK_BYTES // max(1, batch.nbytes // max(1, batch.num_rows)))
                    for start in range(0, batch.num_rows, step):
                        yield _batch_columns(batch.slice(start, step), options.wanted), read
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{path.name} is neither an Arrow file nor an Arrow stream ({error})") from error

    return RawTable(path.name, path.stat().st_size, None, lambda skip: _without(pieces(), skip))


def arrays_table(arrays: Mapping[str, Any], name: str) -> RawTable:
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
        for start in itertools.chain([skip], range(skip // step * step + step, n_rows, step)):
            stop = min(start // step * step + step, n_rows)
            yield {key: np.asarray(value[start:stop]) for key, value in sliceable.items()}, stop * row_bytes

    return RawTable(name, n_rows * row_bytes, n_rows, pieces)


def frame_table(frame: Any) -> RawTable:
    """A pandas DataFrame."""

    def pieces() -> Iterator[Piece]:
        step = max(1, BLOCK_BYTES // (8 * max(1, len(frame.columns))))
        for start in range(0, len(frame), step):
            yield frame_columns(frame.iloc[start : start + step]), start + step

    return RawTable("the DataFrame", len(frame), len(frame), lambda skip: _without(pieces(), skip))


def blocks_table(blocks: Iterator[Any]) -> RawTable:
    """Blocks of rows as somebody's code makes them."""

    def pieces() -> Iterator[Piece]:
        read = 0
        for number, block in enumerate(blocks):
            columns = block_columns(block, f"block {number}")
            read += sum(values.nbytes for values in columns.values())
            yield columns, read

    return RawTable("the blocks", None, None, lambda skip: _without(pieces(), skip))


def block_columns(block: Any, label: str) -> Columns:
    """A block as somebody's code makes it: a dict of arrays, or a DataFrame."""
    if hasattr(block, "iloc"):
        return frame_columns(block)
    if not isinstance(block, Mapping) or not block or not all(isinstance(name, str) for name in block):
        raise InputError(f'{label} is {describe(block)}; expected a dict of arrays such as {{"X": X, "y": y}}')
    return {name: np.asarray(values) for name, values in block.items()}


def frame_columns(frame: Any, wanted: list[str] | None = None) -> Columns:
    """A DataFrame's columns as NumPy has them."""
    return {str(name): frame[name].to_numpy() for name in frame.columns if wanted is None or str(name) in wanted}


def fingerprint(columns: Columns) -> str:
    """A digest of a few rows."""
    digest = hashlib.sha256()
    for name, values in columns.items():
        digest.update(f"{name} {values.dtype} {values.shape[1:]}".encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def decompressed(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A file as it is on the disk, and the text in it."""
    with open(path, "rb") as raw:
        text: Any = raw
        if path.suffix == ".gz":
            text = gzip.GzipFile(fileobj=raw)
        elif path.suffix == ".bz2":
            text = bz2.BZ2File(raw)
        try:
            yield raw, text
        except (EOFError, zlib.error) as error:
            raise InputError(
                f"{path.name} cannot be decompressed ({error}): it is incomplete or damaged; fetch it again"
            ) from error


def optional(module: str) -> Any:
    """A module of the extra sgmcmc[data]."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(f"this format needs {package}, which is not installed; pip install 'sgmcmc[data]'") from error


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
        raise InputError(
            f"{path.name} is not a table in CSV ({str(error).strip()}); is the separator {options.separator!r}?"
        ) from error


def _batch_columns(batch: Any, wanted: list[str] | None = None) -> Columns:
    named = zip(batch.schema.names, batch.columns, strict=True)
    return {name: _arrow_values(values) for name, values in named if wanted is None or name in wanted}


def _groups_within(groups: list[int], n_rows: int) -> int:
    """How many whole groups are among the first rows."""
    return int(np.searchsorted(np.cumsum(groups), n_rows, side="right"))


def _arrow_values(values: Any) -> np.ndarray:
    width = getattr(values.type, "list_size", None)
    if width and values.null_count == 0:
        return _arrow_values(values.flatten()).reshape(-1, width)
    if hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    return values.to_numpy(zero_copy_only=False)


def _without(pieces: Iterator[Piece], skip: int) -> Iterator[Piece]:
    for columns, read in pieces:
        rest = _drop(columns, skip)
        skip -= min(skip, _length(columns))
        if rest:
            yield rest, read


def _drop(columns: Columns, count: int) -> Columns:
    """The block without its first rows; nothing if none is left."""
    if count >= _length(columns):
        return {}
    return {name: values[count:] for name, values in columns.items()} if count else columns


def _length(columns: Columns) -> int:
    return max((len(values) if values.ndim else 0 for values in columns.values()), default=0)
