"""Data larger than memory: from files of any usual format to a folder of rows that samplers read from, once."""

import json
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

from sgmcmc.core.checks import Progress, check_choice, check_count, check_progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.data.columns import ColumnChoice, check_columns, check_dtype, wanted
from sgmcmc.data.conversion import Conversion
from sgmcmc.data.readers import FORMATS, Options, find_raw_data
from sgmcmc.rows.files import FileColumn, LoadedFolder, RowFolder, load, open_rows
from sgmcmc.rows.files import verify as verify_rows
from sgmcmc.rows.sources import SHUFFLE_SEED

__all__ = ["FileColumn", "LoadedFolder", "RowFolder", "convert", "open", "verify"]

Path_: TypeAlias = str | os.PathLike[str]

MEMORY = 2**27
"""Bytes for the rows that are collected or sorted at a time."""


def convert(
    source: Any,
    folder: Path_,
    *,
    columns: ColumnChoice | None = None,
    dtype: Any = None,
    shuffle: bool = True,
    seed: int = SHUFFLE_SEED,
    format: str | None = None,  # noqa: A002 (the word people look for)
    names: list[str] | None = None,
    separator: str = ",",
    n_features: int | None = None,
    overwrite: bool = False,
    memory: int = MEMORY,
    progress: Progress = True,
) -> RowFolder:
    """Make a folder of rows, shuffled once, from which samplers read data that need not fit in memory.

    The folder has one plain file of little-endian rows per array, and a header with their checksums. Floats become float32,
    whole numbers int32, truth values stay. Everything must be a finite number; the first that is not is named, with its file,
    row and column.

    **Resuming.** However the conversion ends, the same call goes on where it stopped. If it is finished, the same call returns
    the folder as it is: files are known again by name, size and time of change, arrays by shape, type and a few rows, blocks
    by their first row.

    **The order** depends on the seed and the number of rows only, not on the format. Shuffling needs twice the size of the
    data on disk while it lasts.

    Args:
        source: path of a CSV, Parquet, Arrow (Feather) or LIBSVM file, or of a Zarr store; a list of paths, or a pattern such as
            `"part-*.csv"`; text may be compressed (.gz, .bz2). Or a dict of arrays (NumPy, memmap, Zarr), a DataFrame, or an
            iterator of blocks of rows, each a dict of arrays (or a function that returns such an iterator).
        folder: where to put it; made if it is not there.
        columns: which columns make which array: `{"X": ["age", "dose"], "y": "outcome"}`; `...` stands for all other columns.
            None: an array for each column. LIBSVM files have "X" and "y".
        dtype: "float64" to keep all floats in double precision, or types by array, such as `{"X": "float64", "y": "int32"}`.
        shuffle: False keeps the order of the source.
        seed: of the shuffle.
        format: "csv", "parquet", "arrow", "libsvm" or "zarr", where the name of the file does not tell.
        names: names of the columns of CSV files that have no header line.
        separator: between the columns of CSV files.
        n_features: of LIBSVM files; None finds it by reading them once more.
        overwrite: True replaces the data of another call in this folder.
        memory: bytes for the rows collected or sorted at a time. The process needs about three times that, and what reading
            the format takes.
        progress: True shows a bar, False nothing; a function is called with what the bar would show.

    >>> import tempfile, numpy as np, sgmcmc.data
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sgmcmc.data.convert({"X": X, "y": [0, 1, 0]}, f"{folder}/rows", progress=False)
    ...     print(rows.n_rows, rows.shuffled, rows["X"].shape, rows["X"].dtype, rows["y"].dtype)
    ...     print(sorted(rows["X"][:].tolist()))
    3 True (3, 2) float32 int32
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    check_progress(progress)
    check_choice("shuffle", shuffle, (True, False))
    check_choice("overwrite", overwrite, (True, False))
    check_choice("format", format, (None, *FORMATS))
    seed, memory = check_count("seed", seed, 0), check_count("memory", memory)
    n_features = None if n_features is None else check_count("n_features", n_features)
    if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)):
        raise InputError(f'names is {describe(names)}; expected a list of names of columns, such as ["y", "a", "b"]')
    chosen, types = check_columns(columns), check_dtype(dtype)
    options = Options(wanted(chosen), None if names is None else list(names), separator, n_features)
    found = find_raw_data(source, format, options)
    shown = None if chosen is None else {name: "..." if part is ... else part for name, part in chosen.items()}
    order = seed if shuffle else None
    call = {"source": found.identity, "columns": shown, "dtype": types, "seed": order, "format": format}
    call |= {"names": options.names, "separator": separator, "n_features": n_features}
    place, call = Path(folder), json.loads(json.dumps(call))
    Conversion(found, place, call, columns=chosen, dtype=types, seed=order, memory=memory, progress=progress).run(overwrite)
    return open_rows(place)


@overload
def open(folder: Path_, in_memory: Literal[False] = False) -> RowFolder: ...  # noqa: A001
@overload
def open(folder: Path_, in_memory: Literal[True]) -> LoadedFolder: ...  # noqa: A001
@overload
def open(folder: Path_, in_memory: bool) -> RowFolder | LoadedFolder: ...  # noqa: A001
def open(folder: Path_, in_memory: bool = False) -> RowFolder | LoadedFolder:  # noqa: A001 (sgmcmc.data.open)
    """A folder of rows made by `convert`: a mapping from names to arrays that are read from their files on demand.

    The header's checksum and the sizes of the files are verified; `verify` verifies their contents.

    Args:
        folder: the folder.
        in_memory: True reads everything into NumPy arrays. They are still known to be shuffled.

    >>> import tempfile, numpy as np, sgmcmc.data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = sgmcmc.data.convert({"x": np.arange(5)}, f"{folder}/rows", shuffle=False, progress=False)
    ...     rows = sgmcmc.data.open(f"{folder}/rows")
    ...     print(rows["x"][1:3], rows.n_rows, rows.nbytes, rows.shuffled)
    [1 2] 5 20 False
    """
    check_choice("in_memory", in_memory, (True, False))
    rows = open_rows(folder)
    return load(rows) if in_memory else rows


def verify(folder: Path_ | RowFolder, progress: Progress = True) -> RowFolder:
    """Read all of a folder of rows and compare the contents with the checksums in its header.

    Args:
        folder: the folder, or what `open` or `convert` returned.
        progress: True shows a bar, False nothing; a function is called with what the bar would show.

    >>> import tempfile, numpy as np, sgmcmc.data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sgmcmc.data.convert({"x": np.arange(5)}, f"{folder}/rows", progress=False)
    ...     sgmcmc.data.verify(rows, progress=False) is rows
    True
    """
    check_progress(progress)
    rows = folder if isinstance(folder, RowFolder) else open_rows(folder)
    with Bar(progress, "verifying", rows.nbytes, "B") as bar:
        verify_rows(rows, bar.update)
    return rows
