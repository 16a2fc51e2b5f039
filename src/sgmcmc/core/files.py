"""Files that are replaced at one stroke, and locks of the operating system, which end with the process however that ends."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar

POLL = 0.25
"""Seconds between two looks at a lock that another process holds."""


class DamagedFileError(SgmcmcError):
    """A file is not what was written."""


@contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at once, when it is whole and on disk; the old one becomes `previous`.

    The draft has one name, so that a killed process leaves at most one and the next writes over it. Whoever writes holds a lock.
    """
    unfinished = draft_of(path)
    try:
        with open(unfinished, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            try:
                previous.unlink(missing_ok=True)
                os.link(path, previous)
            except OSError:  # no links here: for a moment the file has its other name only, and readers look there too
                os.replace(path, previous)
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def draft_of(path: Path) -> Path:
    """The name of a file until it is whole."""
    return path.with_name(f"{path.name}.tmp")


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Replace a small file by a record and its checksum; what JSON does not take is written as text."""
    record = json.loads(json.dumps(record, default=str))
    with replacing(path) as file:
        file.write(json.dumps(record | {"checksum": checksum_of(record)}, indent=1, ensure_ascii=False).encode())


def checked_json(contents: bytes, path: Path) -> dict[str, Any]:
    """What `write_json` wrote; `path` is for the message."""
    try:
        record = json.loads(contents)
        recorded = record.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"{path} is damaged: it is not what was written") from error
    before = hashlib.blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=16)  # in manifests of version 0.1
    if recorded not in (checksum_of(record), before.hexdigest()):
        raise DamagedFileError(f"{path} is damaged, or was edited: its checksum does not fit")
    return record


def checksum_of(record: dict[str, Any]) -> str:
    """The sha256 of a JSON record, however it is laid out."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in a folder last."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def alone(path: Path, doing: str, progress: Progress) -> Iterator[None]:
    """One process at a time works on `path`; the others wait, and their bar says what the one is `doing`.

    The lock is on a file beside `path`, which is not left behind. Where a file system has no locks, nobody waits.
    """
    file = lock_of(path)
    with Bar(progress, f"waiting for another process that {doing}", None, "looks") as bar:
        while (handle := locked(file, needed=False)) is None:
            bar.update(1)
            time.sleep(POLL)
    try:
        yield
    finally:
        if sys.platform == "win32":  # files that are open cannot be removed there, so nobody loses a lock
            os.close(handle)
        with suppress(OSError):
            file.unlink()
        if sys.platform != "win32":  # only now, or somebody who just got the lock would lose it
            os.close(handle)


def lock_of(path: Path) -> Path:
    """The name of the lock file of `path`."""
    return path.with_name(f"{path.name}.lock")


def locked(file: Path, needed: bool = True) -> int | None:
    """The lock file, opened and locked until it is closed; None while anybody else holds it.

    A file system without locks is an error where the lock is `needed`, else the file is as good as locked.
    """
    from filelock import lock_descriptor  # not needed to import the package

    handle, ours = os.open(file, os.O_RDWR | os.O_CREAT, 0o666), False
    try:
        try:
            ours = lock_descriptor(handle, blocking=False)
        except OSError:
            if needed:
                raise
            ours = True
        ours = ours and _is_named(file, handle)
    finally:
        if not ours:
            os.close(handle)
    return handle if ours else None


def _is_named(file: Path, handle: int) -> bool:
    """Whether the open file is still the one of that name: whoever had the lock may have removed it meanwhile."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), file.stat())
    return False
