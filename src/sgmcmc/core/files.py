"""Files that are replaced at one stroke: after a crash there is the old one or the new one, whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at once, when it is whole and on disk; the old one becomes `previous`."""
    unfinished = draft_of(path)
    try:
        with open(unfinished, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            _keep_as(path, previous)
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def draft_of(path: Path) -> Path:
    """The name of a file until it is whole."""
    return path.with_name(f"{path.name}.tmp")


def _keep_as(path: Path, previous: Path) -> None:
    """A second name for a file that is about to lose its own."""
    try:
        previous.unlink(missing_ok=True)
        os.link(path, previous)
    except OSError:  # a file system without links: for a moment the file has its other name only, and readers look there too
        os.replace(path, previous)


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in a folder last."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
