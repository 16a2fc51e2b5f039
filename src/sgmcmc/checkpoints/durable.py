"""Files that survive: small ones written whole or not at all, draws in one that only grows, and a lock for one process.

A file of draws has one record for each stored draw, all parameters and chains in it.
"""

from __future__ import annotations

import errno
import json
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.array_files import contents_of
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import DamagedFileError, checked_json, locked, replacing
from sgmcmc.core.trees import PyTree
from sgmcmc.results.packing import fill, outline

REMEDIES = {
    "free some space": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "make the folder writable": (errno.EACCES, errno.EPERM, errno.EROFS),
}

OPENING = b"sgmcmc draws, version 1\n"
ALIGNMENT = 64
COPY_BYTES = 64 << 20
"""Draws are put into records this many bytes at a time."""


def write_failure(path: Path, error: OSError, folder: Path, safe: int) -> SgmcmcError:
    """What could not be written and why, what is safe, and how to go on."""
    remedy = next((remedy for remedy, codes in REMEDIES.items() if error.errno in codes), "see to the disk")
    kept = f"the {safe:,} draws of the last checkpoint are safe in {folder}" if safe else f"{folder} holds no draws yet"
    read = f", or read them with sgmcmc.load({str(folder)!r})" if safe else ""
    again = f"{remedy} and make the same call again to go on"
    return SgmcmcError(f"{path} could not be written: {error.strerror or error}; {kept}; {again}{read}")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    return checked_json(contents_of(path), path)


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


@dataclass(frozen=True)
class Layout:
    """What a record holds: how its tree is built, its leaves' types and shapes, and whether chains are their first axis."""

    name: str
    built: Any
    leaves: tuple[tuple[str, tuple[int, ...]], ...]
    chained: bool

    @classmethod
    def of(cls, name: str, like: PyTree, chained: bool) -> Layout:
        """The layout for draws like `like`, of which only shapes and dtypes matter."""
        leaves = tuple((np.dtype(leaf.dtype).name, tuple(leaf.shape)) for leaf in jax.tree.leaves(like))
        return cls(name, outline(like), leaves, chained)

    @cached_property
    def record(self) -> np.dtype:
        """The leaves side by side, each where its numbers are aligned."""
        formats = [(jnp.dtype(name), shape) for name, shape in self.leaves]
        whole: Any = {"names": [str(number) for number in range(len(formats))], "formats": formats}
        aligned = np.dtype(whole, align=True)
        return aligned if aligned.itemsize else np.dtype(whole | {"itemsize": aligned.alignment})  # no numbers: counted too

    @cached_property
    def header(self) -> bytes:
        """What the file begins with: lines of text, filled up so that the records after them are aligned."""
        text = json.dumps({"name": self.name, "built": self.built, "leaves": self.leaves, "chained": self.chained})
        size = len(OPENING) + 8 + 1 + len(text.encode()) + 1
        padding = " " * (-size % ALIGNMENT)
        return OPENING + f"{len(text.encode()) + len(padding):08d}\n{text}{padding}\n".encode()

    def arrays(self, records: np.ndarray) -> list[np.ndarray]:
        """The leaves of some records, read-only: axes (chain,) draw and those of the parameter."""
        records.flags.writeable = False
        return [np.moveaxis(np.asarray(records[name]), 0, int(self.chained)) for name in self.record.names or ()]


def read_layout(file: BinaryIO) -> Layout:
    """The layout that a file of draws begins with."""
    opening, length = file.read(len(OPENING)), file.read(9)
    try:
        if opening != OPENING:
            raise ValueError
        found = json.loads(file.read(int(length)))
        leaves = tuple((dtype, tuple(shape)) for dtype, shape in found["leaves"])
        layout = Layout(found["name"], found["built"], leaves, found["chained"])
        if file.seek(0) or file.read(len(layout.header)) != layout.header:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{file.name} is damaged: it does not begin as a file of draws does") from error
    return layout


def whole_draws(path: Path) -> int:
    """How many whole records a file of draws holds."""
    with open(path, "rb") as file:
        layout = read_layout(file)
        return (os.fstat(file.fileno()).st_size - len(layout.header)) // layout.record.itemsize


def read_draws(path: Path, count: int) -> PyTree:
    """The first `count` draws, memory-mapped; nodes other than dicts, lists and tuples become dicts by leaf name."""
    with open(path, "rb") as file:
        layout = read_layout(file)
        return fill(layout.built, iter(layout.arrays(_records(file, layout, count))))


class DrawFile:
    """A place for draws with the interface of `TraceStore`. They are durable after `RunFolder.commit`.

    Args:
        path: the file; begun if it is not there.
        like: shapes and dtypes of one draw, chains on the first axis where `chained`.
        committed: draws of an earlier process to go on from; what follows them in the file is written over, with the same
            bits. The file never becomes shorter: results that were handed out may be maps of it.
    """

    def __init__(self, path: Path, name: str, like: PyTree, chained: bool, committed: int = 0) -> None:
        self.path, self.filled, self.committed = path, committed, committed
        self._layout, self._structure = Layout.of(name, like, chained), jax.tree.structure(like)
        try:
            if not committed:
                with replacing(path) as file:
                    file.write(self._layout.header)
            self._file = open(path, "r+b", buffering=0)  # noqa: SIM115 (open as long as the run)
            weakref.finalize(self, self._file.close)
            if (found := read_layout(self._file)) != self._layout:
                raise SgmcmcError(f"{path} holds draws of {found.leaves}; expected {self._layout.leaves}")
        except OSError as error:
            raise write_failure(self.path, error, self.path.parent, self.committed) from error

    def add(self, piece: tuple[Any, PyTree]) -> None:
        """Append the first `count` rows of a tree of arrays; all or, on a full disk, none of them."""
        count, rows = int(piece[0]), [np.asarray(leaf) for leaf in jax.tree.leaves(piece[1])]
        at_once, length = max(1, COPY_BYTES // self._layout.record.itemsize), os.fstat(self._file.fileno()).st_size
        try:
            for start in range(0, count, at_once):
                stop = min(start + at_once, count)
                self._write(self.filled + start, [leaf[start:stop] for leaf in rows], stop - start)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), length)
            raise write_failure(self.path, error, self.path.parent, self.committed) from error
        self.filled += count

    def draws(self) -> PyTree:
        """All draws so far as read-only arrays that live on disk: axes (chain,) draw and those of the parameter."""
        return jax.tree.unflatten(self._structure, self._layout.arrays(_records(self._file, self._layout, self.filled)))

    def sync(self) -> None:
        """Wait until all draws are on disk."""
        os.fsync(self._file.fileno())

    def _write(self, draw: int, leaves: Sequence[np.ndarray], count: int) -> None:
        records = np.zeros(count, self._layout.record)
        for name, leaf in zip(self._layout.record.names or (), leaves, strict=True):
            records[name] = leaf
        rest, position = records.view(np.uint8).data, len(self._layout.header) + draw * records.itemsize
        while rest:
            written = os.pwrite(self._file.fileno(), rest, position)
            rest, position = rest[written:], position + written


def _records(file: Any, layout: Layout, count: int) -> np.ndarray:
    if count == 0:
        return np.empty(0, layout.record)
    return np.memmap(file, layout.record, "r", len(layout.header), (count,))
