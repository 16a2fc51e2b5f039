"""One run's folder for all processes of a job: process 0 reads and writes it, the others go along."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.checkpoints.durable import DrawFile, read_draws, whole_draws
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.places import FolderPlace
from sgmcmc.checkpoints.reading import Checkpoint, draws_path
from sgmcmc.core.errors import SgmcmcError, warn
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.results.packing import pack, unpack
from sgmcmc.rows.hosts import exchange, from_first, together


class SharedFolder(FolderPlace):
    """What a `RunFolder` is, called by all processes together."""

    def __init__(self, folder: RunFolder | None, path: Path, key: jax.Array, version_changes: list[str]) -> None:
        self.path, self.key, self.version_changes = path, key, version_changes
        self._folder = folder
        self._followers: dict[str, Follower] = {}

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], fingerprint: Mapping[str, str], seed: Any, params: PyTree, allow_version_change: bool
    ) -> SharedFolder:
        """Process 0 opens it, for a run that depends on what all processes say; what it refuses, all refuse."""
        said = exchange(json.dumps(dict(fingerprint)).encode(), "what the run depends on")
        first, *others = (json.loads(message) for message in said)
        whole = dict(first)
        for number, other in enumerate(others, start=1):
            whole |= {f"{name} of process {number}": text for name, text in other.items() if text != first.get(name)}

        def mine() -> RunFolder | None:
            return RunFolder.open(path, whole, seed, params, allow_version_change) if jax.process_index() == 0 else None

        folder, told = together("opening the run's folder", mine), b""
        if folder is not None:
            numbers = np.asarray(jax.random.key_data(folder.key)).tolist()
            told = json.dumps([str(jax.random.key_impl(folder.key)), numbers, folder.version_changes]).encode()
        kind, numbers, changes = json.loads(from_first(told, "the recorded seed"))
        key = jax.random.wrap_key_data(jnp.asarray(np.asarray(numbers, np.uint32)), impl=kind)
        return cls(folder, Path(path).expanduser().absolute(), key, changes)

    def stage(self, name: str, compute: Callable[[], PyTree], *likes: PyTree) -> PyTree:
        """The result of set-up work: read by process 0 for all, or computed by all together."""
        found = b""
        if self._folder is not None:
            with suppress(_NothingError):
                found = _to_bytes(self._folder.stage(name, _raise_nothing, *likes), likes)
        found = from_first(found, f"the stage {name!r}")
        value = _from_bytes(found, likes) if found else compute()
        if not found and self._folder is not None:
            self._folder.stage(name, lambda: value, *likes)
        return value if found else unpack(*pack(value, *likes), *likes)

    def draw_file(self, name: str, like: PyTree, chained: bool) -> DrawFile | Follower:
        """The file of draws, which process 0 writes and the others count along."""
        if self._folder is not None:
            return self._folder.draw_file(name, like, chained)
        self._followers[name] = Follower(draws_path(self.path, name), like, chained)
        return self._followers[name]

    def last_checkpoint(self, *likes: PyTree) -> Checkpoint | None:
        """The last checkpoint, on all processes."""
        last = None if self._folder is None else self._folder.last_checkpoint(*likes)
        told = b"" if last is None else _to_bytes({"contents": last.contents, "n_draws": last.n_draws}, likes)
        told = from_first(told, "the last checkpoint")
        if not told:
            return None
        found = _from_bytes(told, likes)
        for name, follower in self._followers.items():
            follower.filled = found["n_draws"].get(name, 0)
        return Checkpoint(found["contents"], found["n_draws"])

    def commit(self, contents: Mapping[str, PyTree], *likes: PyTree) -> None:
        """A checkpoint, by process 0, when its own clock says so: nobody waits for it."""
        if self._folder is not None:
            self._folder.commit(contents, *likes)

    def settle(self) -> None:
        """Wait until process 0 has written what there is."""
        exchange(b"", "the last checkpoint")

    def sub(self, name: str) -> SharedFolder:
        """A part of the run with files of its own, for all processes."""
        part = None if self._folder is None else self._folder.sub(name)
        return SharedFolder(part, self.path / name, self.key, self.version_changes)

    def close(self) -> None:
        """Let others run here."""
        if self._folder is not None:
            self._folder.close()


class Follower:
    """A file of draws that another process writes: counted here, and read at the end, where it can be seen."""

    def __init__(self, path: Path, like: PyTree, chained: bool) -> None:
        self.path, self.filled = path, 0
        self._like, self._axis = like, 1 if chained else 0

    def add(self, piece: tuple[Any, PyTree]) -> None:
        self.filled += int(piece[0])

    def draws(self) -> PyTree:
        """All draws, or none where the file is on another machine's disk."""
        try:
            if whole_draws(self.path) >= self.filled:
                leaves = jax.tree.leaves(read_draws(self.path, self.filled))
                return jax.tree.unflatten(jax.tree.structure(self._like), leaves)
        except (OSError, SgmcmcError):
            pass
        if self.filled:
            warn(f"the draws are with process 0: {self.path} cannot be seen from here")
        return tree_map(lambda x: np.empty((*x.shape[: self._axis], 0, *x.shape[self._axis :]), x.dtype), self._like)


class _NothingError(Exception):
    """There is no such stage yet."""


def _raise_nothing() -> PyTree:
    raise _NothingError


def _to_bytes(tree: PyTree, likes: tuple[PyTree, ...]) -> bytes:
    spec, arrays = pack(tree, *likes)
    buffer = io.BytesIO()
    np.savez(buffer, np.frombuffer(json.dumps(spec).encode(), np.uint8), *arrays)
    return buffer.getvalue()


def _from_bytes(message: bytes, likes: tuple[PyTree, ...]) -> PyTree:
    with np.load(io.BytesIO(message), allow_pickle=False) as stored:
        first, *arrays = (stored[f"arr_{number}"] for number in range(len(stored.files)))
    return unpack(json.loads(first.tobytes()), arrays, *likes)
