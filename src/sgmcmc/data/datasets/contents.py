"""From packed files to arrays: unpacked, checked, parsed, and copied to the cache folder, where they are much quicker to read."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import replacing
from sgmcmc.core.locks import alone
from sgmcmc.data.datasets.folders import cache_folder

if TYPE_CHECKING:
    from sgmcmc.data.datasets.catalogue import DataFile

UNPACKERS = {".gz": gzip.decompress, ".bz2": bz2.decompress}

FORMAT = 1
"""Of the copies. A new number makes old ones be made again: raise it when a parser changes what it returns."""


class DamagedError(Exception):
    """Bytes that are not what the catalogue says: what was found, and what was expected."""


def arrays_of(name: str, files: tuple[DataFile, ...], folder: Path) -> list[np.ndarray]:
    """The arrays of the files, from the copy where there is a good one, else from the files, leaving a copy for the next time."""
    copy, stamp = cache_folder() / f"{name}.npz", _stamp(files, folder)
    arrays = _load(copy, stamp, len(files))
    if arrays is None:
        arrays = [read(folder / file.name, file) for file in files]
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, no more
            copy.parent.mkdir(parents=True, exist_ok=True)
            with alone(copy, f"copies {name}", progress=False), replacing(copy) as stream:
                np.savez(stream, np.array(stamp), *arrays)
    return arrays


def read(path: Path, file: DataFile) -> np.ndarray:
    """The array in the file at `path`."""
    try:
        return file.parse(unpack(path.read_bytes(), file))
    except OSError as error:
        raise SgmcmcError(f"{path} cannot be read ({error.strerror or error}); expected a file you may read") from error
    except DamagedError as error:
        raise SgmcmcError(
            f"{path} is damaged or another version: {error}; delete it and call again, or put there what {file.homes[0]} has"
        ) from error


def unpack(packed: bytes, file: DataFile) -> bytes:
    """The content of `packed`, which must have the checksum of `file`."""
    expected = f"expected content with SHA-256 {file.sha256}"
    try:
        content = UNPACKERS[Path(file.name).suffix](packed)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DamagedError(f"it does not unpack ({type(error).__name__}: {error}), {expected}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DamagedError(f"its content has SHA-256 {found}, {expected}")
    return content


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
