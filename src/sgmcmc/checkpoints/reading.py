"""Reading the folder of a checkpointed run, by the process that goes on with it or by any other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from sgmcmc.checkpoints.durable import read_draws, read_json, whole_draws
from sgmcmc.core.array_files import read_arrays
from sgmcmc.core.errors import InputError, SgmcmcError, warn
from sgmcmc.core.files import DamagedFileError, replacing
from sgmcmc.core.trees import PyTree
from sgmcmc.problem.model import Model
from sgmcmc.results.packing import unpack
from sgmcmc.results.result import Record, Result, assemble

FORMAT = 1
MANIFEST, LOCK = "manifest.json", "lock"
STATE, PREVIOUS, DAMAGED = "state.npz", "state.previous.npz", "state.damaged.npz"
STAGE, DRAWS = "stage-", ".draws"
WEIGHTS = "weights of the draws"
"""The file of what each draw counts for, where they do not count the same."""

BESIDE = "beside"
"""The stage of what a model has kept with its run."""

TRIES, PAUSE = 20, 0.05
"""How often, and after how many seconds, a reader looks again at files that do not fit together."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stood: the trees that were committed, and the number of draws in each file that belong to them."""

    contents: dict[str, Any]
    n_draws: dict[str, int]


@dataclass(frozen=True)
class Reading:
    """What a folder holds: draws are memory-mapped, as many as belong to its last checkpoint; parts are its sub-folders."""

    manifest: dict[str, Any]
    last: Checkpoint | None
    draws: dict[str, PyTree]
    stages: dict[str, Any]
    parts: dict[str, Reading]


def result_of(reading: Reading, model: Model | None = None) -> Result:
    """What a run has so far: of one that began anew, that of the last beginning that made draws."""
    begun = [part for _, part in sorted(reading.parts.items()) if part.last is not None]
    drawn = [part for part in begun if part.last is not None and any(part.last.n_draws.values())]
    reading = (drawn or begun or [reading])[-1]
    last, draws = reading.last, dict(reading.draws)
    assert last is not None  # `read` refuses what holds no draws yet
    weights = draws.pop(WEIGHTS, None)
    record, state, kept = (last.contents[name] for name in ("record", "state", "kept"))
    return assemble(Record.unpacked(record), state, kept | draws, weights, model)


def read(path: str | os.PathLike[str]) -> Reading:
    """What a run's folder holds, also while the run goes on; nothing is changed and no lock is taken."""
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        expected = f"expected one that a run with checkpoint={str(path)!r} made, or a file that fit.save made"
        raise InputError(f"there is no folder {folder}; {expected}")
    if not (folder / MANIFEST).exists():
        refuse_foreign(folder)
        raise SgmcmcError(f"{folder} holds no draws yet: its run has only begun")
    reading = _patiently(folder)
    if reading.last is None and not any(part.last for part in reading.parts.values()):
        raise SgmcmcError(f"{folder} holds no draws yet: its run has not reached the first checkpoint")
    return reading


def _patiently(folder: Path) -> Reading:
    """Look again for a while: the run may have been replacing what was read."""
    for _ in range(TRIES - 1):
        with suppress(DamagedFileError, FileNotFoundError):
            return _read(folder, read_manifest(folder))
        time.sleep(PAUSE)
    return _read(folder, read_manifest(folder))


def _read(folder: Path, manifest: dict[str, Any]) -> Reading:
    last = last_checkpoint(folder)
    n_draws = {} if last is None else last.n_draws
    draws = {name: read_draws(draws_path(folder, name), count) for name, count in n_draws.items()}
    stages = {}
    for path in sorted(folder.glob(f"{STAGE}*.npz")):
        with suppress(DamagedFileError):  # the run will compute it again
            stages[unquote(path.name[len(STAGE) : -len(".npz")])] = unpack(*read_arrays(path))
    inside = [part for part in sorted(folder.iterdir()) if part.is_dir() and not (part / MANIFEST).exists()]  # or another run
    parts = {unquote(part.name): _read(part, manifest) for part in inside}
    return Reading(manifest, last, draws, stages, parts)


def last_checkpoint(folder: Path, *likes: PyTree, repair: bool = False) -> Checkpoint | None:
    """The last checkpoint that is whole and whose draws are all there."""
    if (recorded := last_recorded(folder, repair)) is None:
        return None
    spec, arrays = recorded
    return Checkpoint(unpack(spec["tree"], arrays, *likes), spec["n_draws"])


def last_recorded(folder: Path, repair: bool = False) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """The last checkpoint, as it was written."""
    troubles: list[str] = []
    for name in (STATE, PREVIOUS):
        try:
            spec, arrays = read_arrays(folder / name)
            _check_draws(folder, spec["n_draws"])
        except FileNotFoundError:
            continue
        except DamagedFileError as error:
            troubles.append(str(error))
            continue
        if troubles:
            made = max(spec["n_draws"].values(), default=0)
            warn(f"{troubles[0]}; going back to the checkpoint before, of {made:,} draws")
        if troubles and repair:
            os.replace(folder / STATE, folder / DAMAGED)
            with replacing(folder / STATE) as file:
                file.write((folder / PREVIOUS).read_bytes())
        return spec, arrays
    if troubles:
        raise DamagedFileError(f"{'; '.join(troubles)}; {_intact(folder)}. Use another folder, or delete this one to start over")
    return None


def _check_draws(folder: Path, n_draws: Mapping[str, int]) -> None:
    for name, count in n_draws.items():
        path = draws_path(folder, name)
        if not path.exists():
            raise DamagedFileError(f"{path} is not there, though it should hold {count:,} draws")
        if (found := whole_draws(path)) < count:
            raise DamagedFileError(f"{path} was cut short: it holds {found:,} draws of {count:,}")


def _intact(folder: Path) -> str:
    found = []
    for path in sorted(folder.glob(f"*{DRAWS}")):
        with suppress(DamagedFileError):
            found.append(f"{whole_draws(path):,} whole draws in {path.name}")
    return f"intact are {' and '.join(found)}" if found else "no draws are intact"


def draws_path(folder: Path, name: str) -> Path:
    """Where the draws of this name are."""
    return folder / f"{quote(name, safe=' ')}{DRAWS}"


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the run is."""
    manifest = read_json(folder / MANIFEST)
    if manifest["format"] != FORMAT:
        ours = f"by another version of sgmcmc than this one, which reads format {FORMAT}; use that version"
        raise SgmcmcError(f"{folder} was written in format {manifest['format']}, {ours}")
    return manifest


def refuse_foreign(folder: Path) -> None:
    """Files of someone else's are not to be mixed with ours. A process that ended at once may have left a lock."""
    others = sorted(path.name for path in folder.iterdir() if path.name not in (LOCK, f"{MANIFEST}.tmp"))
    if others and not (folder / MANIFEST).exists():  # asked last: a run may just be beginning
        names = ", ".join(others[:3] + (["..."] if len(others) > 3 else []))
        expected = "expected a new folder, an empty one, or that of an earlier run"
        raise InputError(f"{folder} holds other files ({names}) and no {MANIFEST}; {expected}")
