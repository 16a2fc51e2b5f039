"""Files that survive: written whole or not at all, known to be undamaged when they are read, and used by one process."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import replacing

BLOCK_BYTES = 4 << 20
SPEC = "spec"
SEAL = b"blake2b:"
"""What an npz file ends with, before the checksum of everything else. Readers of zip files look past it."""

REMEDIES = {
    "free some space": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "make the folder writable": (errno.EACCES, errno.EPERM, errno.EROFS),
}


class DamagedFileError(SgmcmcError):
    """A file is not what was written."""


def write_failure(path: Path, error: OSError, folder: Path, safe: int) -> SgmcmcError:
    """What could not be written and why, what is safe, and how to go on."""
    remedy = next((remedy for remedy, codes in REMEDIES.items() if error.errno in codes), "see to the disk")
    kept = f"the {safe:,} draws of the last checkpoint are safe in {folder}" if safe else f"{folder} holds no draws yet"
    read = f", or read them with sgmcmc.load({str(folder)!r})" if safe else ""
    return SgmcmcError(
        f"{path} could not be written: {error.strerror or error}; {kept}; {remedy} and make the same call again to go on{read}"
    )


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record for people and programs, with its checksum; what JSON does not take is written as text."""
    record = json.loads(json.dumps(record, default=str))
    with replacing(path) as file:
        file.write(json.dumps(record | {"checksum": _checksum(record)}, indent=2, ensure_ascii=False).encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    try:
        record = json.loads(_contents(path))
        recorded = record.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"{path} is damaged: it is not what was written") from error
    if recorded != _checksum(record):
        raise DamagedFileError(f"{path} is damaged, or was edited: its checksum does not fit")
    return record


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=16).hexdigest()


def write_arrays(path: Path, spec: dict[str, Any], arrays: Sequence[np.ndarray], previous: Path | None = None) -> None:
    """Write JSON and arrays into one npz file, atomically and durably."""
    named: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
    named[SPEC] = np.frombuffer(json.dumps(spec).encode(), np.uint8)
    with replacing(path, previous) as file:
        np.savez(file, **named)
        file.seek(0)
        digest = _digest(file)
        file.write(SEAL + digest)


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


def _digest(file: BinaryIO) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest().encode()


class FolderLock:
    """A folder for this process alone, until it ends (however it ends) or `release` is called."""

    def __init__(self, path: Path) -> None:
        try:
            import fcntl
        except ImportError as error:
            raise SgmcmcError("checkpoints need file locks, which this operating system does not have") from error
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 20).decode().strip()
            os.close(file)
            who = "this process already is" if owner == str(os.getpid()) else f"another process ({owner or 'starting'}) is"
            raise SgmcmcError(f"{who} running in {path.parent}; wait for it, or use another folder") from None
        except OSError:
            os.close(file)
            raise
        with suppress(OSError):  # only for the message above
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self.release = weakref.finalize(self, os.close, file)
