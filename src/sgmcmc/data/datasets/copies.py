"""Copies of parsed files in the cache folder: reading one is much quicker than unpacking, checking and parsing."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from sgmcmc.data.datasets.catalogue import DataFile
from sgmcmc.data.datasets.contents import read
from sgmcmc.data.datasets.folders import cache_folder

FORMAT = 1
"""Of the copies. A new number makes old ones be made again: raise it when a parser changes what it returns."""


def arrays_of(name: str, files: tuple[DataFile, ...], folder: Path) -> list[np.ndarray]:
    """The arrays of the files, from the copy where there is a good one, else from the files, leaving a copy for the next time."""
    copy, stamp = cache_folder() / f"{name}.npz", _stamp(files, folder)
    arrays = _load(copy, stamp, len(files))
    if arrays is None:
        arrays = [read(folder / file.name, file) for file in files]
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, no more
            _save(copy, stamp, arrays)
    return arrays


def _stamp(files: tuple[DataFile, ...], folder: Path) -> str:
    """What a copy was made from. A file that is changed or damaged later has another size or time, and is checked again."""
    sources = []
    for file in files:
        path = (folder / file.name).resolve()
        status = path.stat()
        sources.append([str(path), status.st_size, status.st_mtime_ns, file.sha256])
    return json.dumps([FORMAT, sources])


def _load(copy: Path, stamp: str, n_arrays: int) -> list[np.ndarray] | None:
    try:
        with copy.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if stored["arr_0"].item() != stamp:
                return None
            return [stored[f"arr_{number}"] for number in range(1, n_arrays + 1)]
    except Exception:  # it is not there, or damaged, which shows in as many ways as zip and npy headers have fields
        return None


def _save(copy: Path, stamp: str, arrays: list[np.ndarray]) -> None:
    """Write under another name, then rename: no process ever reads half a copy. Checksums inside make up for no fsync."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=f"{copy.stem}-", suffix=".unfinished", dir=copy.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, np.array(stamp), *arrays)
        os.replace(unfinished, copy)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
