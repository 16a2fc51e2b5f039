"""Files that survive: written whole or not at all, known to be undamaged when they are read, and used by one process."""

import errno
import hashlib
import io
import json
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import DamagedFileError, checked_json, locked, replacing
from sgmcmc.core.files import write_json as write_json

SPEC = "spec"
SEAL = b"blake2b:"
"""What an npz file ends with, before the checksum of everything else. Readers of zip files look past it."""

REMEDIES = {
    "free some space": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "make the folder writable": (errno.EACCES, errno.EPERM, errno.EROFS),
}


def write_failure(path: Path, error: OSError, folder: Path, safe: int) -> SgmcmcError:
    """What could not be written and why, what is safe, and how to go on."""
    remedy = next((remedy for remedy, codes in REMEDIES.items() if error.errno in codes), "see to the disk")
    kept = f"the {safe:,} draws of the last checkpoint are safe in {folder}" if safe else f"{folder} holds no draws yet"
    read = f", or read them with sgmcmc.load({str(folder)!r})" if safe else ""
    return SgmcmcError(
        f"{path} could not be written: {error.strerror or error}; {kept}; {remedy} and make the same call again to go on{read}"
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    return checked_json(_contents(path), path)


def write_arrays(path: Path, spec: dict[str, Any], arrays: Sequence[np.ndarray], previous: Path | None = None) -> None:
    """Write JSON and arrays into one npz file, atomically and durably."""
    named: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
    named[SPEC] = np.frombuffer(json.dumps(spec).encode(), np.uint8)
    with replacing(path, previous) as file:
        np.savez(file, **named)
        file.seek(0)
        file.write(SEAL + _digest(file))


def read_arrays(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read what `write_arrays` wrote."""
    contents = _contents(path)
    size = len(contents) - len(SEAL) - 32
    if contents[size : size + len(SEAL)] != SEAL or _digest(io.BytesIO(contents[:size])) != contents[-32:]:
        raise DamagedFileError(f"{path} is damaged: its checksum does not fit")
    with np.load(io.BytesIO(contents), allow_pickle=False) as file:
        return json.loads(file[SPEC].tobytes()), [file[f"a{number}"] for number in range(len(file.files) - 1)]


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _digest(file: Any) -> bytes:
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest().encode()


class FolderLock:
    """A folder for this process alone, until it ends (however it ends) or `release` is called."""

    def __init__(self, path: Path) -> None:
        file = locked(path)
        if file is None:
            owner = ""
            with suppress(OSError):  # Windows lets nobody else read a locked file
                owner = path.read_text().strip()
            who = "this process already is" if owner == str(os.getpid()) else f"another process ({owner or 'starting'}) is"
            raise SgmcmcError(f"{who} running in {path.parent}; wait for it, or use another folder")
        with suppress(OSError):  # only for the message above
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
        self.release = weakref.finalize(self, os.close, file)
