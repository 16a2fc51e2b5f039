"""What is inside a packed file, and whether it is what the catalogue says."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgmcmc.core.errors import SgmcmcError

if TYPE_CHECKING:
    from sgmcmc.data.datasets.catalogue import DataFile

UNPACKERS = {".gz": gzip.decompress, ".bz2": bz2.decompress}


class DamagedError(Exception):
    """Bytes that are not what the catalogue says: what was found, and what was expected."""


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
