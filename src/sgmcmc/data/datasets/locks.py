"""One process at a time."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sgmcmc.core.progress import Bar, Progress

POLL = 0.25
"""Seconds between two looks at a lock that another process holds."""


@contextlib.contextmanager
def alone(part: Path, progress: Progress) -> Iterator[None]:
    """One process at a time works on `part`, which is not left behind empty.

    The lock is on the .part itself and ends with the process, however that ends, so there is no stale lock to find. Where the
    system has no such locks, two processes spoil each other's .part, which the checksum tells before anything is renamed.
    """
    handle = None if sys.platform == "win32" else _locked(part, progress)
    try:
        yield
    finally:
        if part.exists() and part.stat().st_size == 0:
            part.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def _locked(part: Path, progress: Progress) -> int:
    while True:
        handle = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            wait_for_lock(handle, f"downloads {part.stem}", progress)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), part.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever had the lock renamed or removed the file meanwhile


def wait_for_lock(handle: int, doing: str, progress: Progress) -> None:
    """Take the lock of an open file, after whoever has it; `doing` says what that one does."""
    import fcntl  # Windows has none

    with Bar(progress, f"waiting for another process that {doing}", None, "looks") as bar:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                bar.update(1)
                time.sleep(POLL)
            except OSError:  # some network file systems have no locks
                return
