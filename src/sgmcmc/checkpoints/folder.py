"""The folder of a checkpointed run: what it is, its set-up, its draws and where it stands, readable at every moment.

    manifest.json        what the run depends on and its seed; written once
    stage-<name>.npz     the result of long set-up work
    <name>.draws         stored draws, appended
    state.npz            where the run stands, and how many draws of each file belong to that; replaced at every checkpoint
    state.previous.npz   the checkpoint before
    lock                 held while a process runs here

A checkpoint first makes the draws durable, then replaces `state.npz` at once. So a process may end at any moment: the next one
forgets the draws after the last checkpoint and makes them again, bit for bit. A file that is replaced at once is never found
half written, so a damaged one means trouble with the disk. Then the checkpoint before it serves, whose draws are all still
there: that costs one link per checkpoint, and the loss of the only state would cost the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.checkpoints.durable import DrawFile, FolderLock, write_failure
from sgmcmc.checkpoints.fingerprint import VERSIONS, differences
from sgmcmc.checkpoints.places import FolderPlace
from sgmcmc.checkpoints.reading import (
    FORMAT,
    LOCK,
    MANIFEST,
    PREVIOUS,
    STAGE,
    STATE,
    Checkpoint,
    draws_path,
    last_checkpoint,
    last_recorded,
    read_manifest,
    refuse_foreign,
)
from sgmcmc.core.array_files import read_arrays, write_arrays
from sgmcmc.core.checks import as_key, draw_seed, seed_number
from sgmcmc.core.errors import InputError, SgmcmcError, warn
from sgmcmc.core.files import DamagedFileError, sync_folder, write_json
from sgmcmc.core.trees import PyTree
from sgmcmc.results.packing import outline, pack, unpack


class RunFolder(FolderPlace):
    """A run's folder, held by this process; use `open`, and `close` it (or use it in a `with` statement)."""

    def __init__(self, path: Path, manifest: dict[str, Any], lock: FolderLock) -> None:
        self.path, self._manifest, self._lock = path, manifest, lock
        self.key = jax.random.wrap_key_data(jnp.asarray(_seed_of(manifest)), impl=manifest["seed_kind"])
        self.version_changes = manifest.get("version_changes", [])
        self._files: dict[str, DrawFile] = {}
        recorded = last_recorded(path, repair=True)
        self._n_draws: dict[str, int] = {} if recorded is None else recorded[0]["n_draws"]

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], fingerprint: Mapping[str, str], seed: Any = None, params: PyTree = None,
        allow_version_change: bool = False,
    ) -> RunFolder:  # fmt: skip
        """Begin a run in a folder, which is made if it is not there, or go on with the one in it, if it is the same.

        It is the same by its `fingerprint`; `allow_version_change` goes on with a run of other versions of the software, and
        records that. Without a `seed` it is the recorded one, or drawn. Of `params` it is recorded how they are built.
        """
        folder = Path(path).expanduser().absolute()
        with _usable(folder):
            refuse_foreign(folder)
            lock = FolderLock(folder / LOCK)
            try:
                recorded = read_manifest(folder) if (folder / MANIFEST).exists() else None
                if recorded is None:
                    manifest = _new_manifest(fingerprint, seed, params)
                else:
                    manifest = _same_run(folder, recorded, fingerprint, seed, allow_version_change)
                if manifest != recorded:
                    write_json(folder / MANIFEST, manifest)
                return cls(folder, manifest, lock)
            except BaseException:
                lock.release()
                raise

    @property
    def safe(self) -> int:
        """How many draws the last checkpoint holds, of the file with most."""
        return max(self._n_draws.values(), default=0)

    def sub(self, name: str) -> RunFolder:
        """A part of the run with files of its own, under the same lock and manifest; closing one closes all."""
        path = self.path / quote(name, safe=" ")
        with _usable(path):
            return RunFolder(path, self._manifest, self._lock)

    def stage(self, name: str, compute: Callable[[], PyTree], *likes: PyTree) -> PyTree:
        """The result of set-up work: from an earlier process, or computed and saved.

        A damaged result is computed again, with a warning. What comes back has been through `pack` and `unpack` in either case.
        """
        path = self.path / f"{STAGE}{quote(name, safe=' ')}.npz"
        try:
            return unpack(*read_arrays(path), *likes)
        except FileNotFoundError:
            pass
        except DamagedFileError as error:
            warn(f"{error}; it is computed again")
        spec, arrays = pack(compute(), *likes)
        with self._writing(path):
            write_arrays(path, spec, arrays)
        return unpack(spec, arrays, *likes)

    def draw_file(self, name: str, like: PyTree, chained: bool) -> DrawFile:
        self._files[name] = DrawFile(draws_path(self.path, name), name, like, chained, self._n_draws.get(name, 0))
        return self._files[name]

    def commit(self, contents: Mapping[str, PyTree], *likes: PyTree) -> None:
        n_draws = self._n_draws | {name: file.filled for name, file in self._files.items()}
        spec, arrays = pack(dict(contents), *likes)
        for file in self._files.values():
            with self._writing(file.path):
                file.sync()
        with self._writing(self.path / STATE):
            write_arrays(self.path / STATE, {"n_draws": n_draws, "tree": spec}, arrays, previous=self.path / PREVIOUS)
        for file in self._files.values():
            file.committed = file.filled
        self._n_draws = n_draws

    def last_checkpoint(self, *likes: PyTree) -> Checkpoint | None:
        return last_checkpoint(self.path, *likes, repair=True)

    def close(self) -> None:
        self._lock.release()

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_failure(path, error, self.path, self.safe) from error


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Make the folder if it is not there, and tell in whose way the disk is."""
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        yield
    except OSError as error:
        why = f"{error.filename or folder} cannot be used for checkpoints: {error.strerror or error}"
        raise SgmcmcError(f"{why}; make it a folder that can be written to, or use another one") from error


def _new_manifest(fingerprint: Mapping[str, str], seed: Any, params: PyTree) -> dict[str, Any]:
    key = as_key(draw_seed() if seed is None else seed)
    return {
        "format": FORMAT,
        "fingerprint": dict(fingerprint),
        "seed": np.asarray(jax.random.key_data(key)).tolist(),
        "seed_kind": str(jax.random.key_impl(key)),
        "params": outline(params),
    }


def _same_run(
    folder: Path, manifest: dict[str, Any], fingerprint: Mapping[str, str], seed: Any, allow_version_change: bool
) -> dict[str, Any]:
    """The manifest of the run in a folder, with the software that goes on with it on record; another run is refused."""
    changed = differences(manifest["fingerprint"], fingerprint)
    versions = [one for one in changed if one.partition(" ")[0] in VERSIONS]
    found = [one for one in changed if not (allow_version_change and one in versions)]
    if seed is not None:
        numbers = np.asarray(jax.random.key_data(as_key(seed)))
        if numbers.tolist() != manifest["seed"]:
            found.append(f"seed was {_seed_text(_seed_of(manifest))}, is {_seed_text(numbers)}")
    if found:
        remedy = "; or say allow_version_change=True to go on all the same" if found == versions else ""
        remedy = f"use another folder, or delete this one to start over{remedy}"
        raise InputError(f"{folder} holds another run: {'; '.join(found)}; {remedy}")
    if not changed:
        return manifest
    return manifest | {"fingerprint": dict(fingerprint), "version_changes": manifest.get("version_changes", []) + changed}


def _seed_of(manifest: Mapping[str, Any]) -> np.ndarray:
    return np.asarray(manifest["seed"], np.uint32)


def _seed_text(numbers: Any) -> str:
    number = seed_number(numbers)
    return str(number if isinstance(number, int) else number.tolist())
