"""One process at a time, by locks of the operating system, which end with the process however that ends."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sgmcmc.core.checks import Progress
from sgmcmc.core.progress import Bar

POLL = 0.25
"""Seconds between two looks at a lock that another process holds."""


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
        _remove(file, handle)


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


def _remove(file: Path, handle: int) -> None:
    if sys.platform == "win32":  # files that are open cannot be removed there, so nobody loses a lock
        os.close(handle)
        with suppress(OSError):
            file.unlink()
    else:  # while it is locked, or somebody who just got the lock would lose it
        with suppress(OSError):
            file.unlink()
        os.close(handle)
