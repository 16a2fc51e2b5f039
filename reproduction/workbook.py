"""A folder of finished parts: what was computed before an interruption is read, not computed again."""

from __future__ import annotations

import json
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from reproduction.settings import told
from sgmcmc.core.errors import SgmcmcWarning
from sgmcmc.core.files import alone, replacing

Figures = dict[str, np.ndarray]


@dataclass
class Workbook:
    """Where an experiment keeps its parts, and how it talks while it works."""

    folder: Path
    experiment: str
    quick: bool
    seed: int | None
    progress: bool
    say: Callable[[str], Any]
    seconds: float = 0.0

    def part(self, name: str, compute: Callable[[], Mapping[str, Any]], **settings: Any) -> Figures:
        """What `compute` returns, with the `seconds` it took; from the folder where it was done before with the same settings."""
        path = self.folder / "parts" / self.experiment / f"{name.replace(' ', '-')}.npz"
        label = json.dumps(
            {"quick": self.quick, "seed": self.seed, "version": version("sgmcmc"), "table": told(self.experiment), **settings},
            sort_keys=True,
            default=str,
        )
        found = _read(path, label)
        if found is not None:
            self.say(f"{self.experiment}: {name}: done before")
            self.seconds += float(found["seconds"])
            return found
        self.say(f"{self.experiment}: {name}")
        clock = time.perf_counter()
        figures = {key: np.asarray(value) for key, value in _uninterrupted(compute).items()}
        figures.setdefault("seconds", np.asarray(time.perf_counter() - clock))
        self.seconds += float(figures["seconds"])
        with replaced(path) as file:
            np.savez(file, label=np.asarray(label), **figures)  # type: ignore[arg-type]
        return figures


def _uninterrupted(compute: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Samplers return what they have when they are interrupted; half a part is none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="interrupted", category=SgmcmcWarning)
        try:
            return compute()
        except SgmcmcWarning:
            raise KeyboardInterrupt from None


def _read(path: Path, label: str) -> Figures | None:
    """The part in a file, or None where there is none, it is damaged, or it was made with other settings."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            figures = dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return figures if str(figures.pop("label", "")) == label else None


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that is there whole or not at all, in a folder that is made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path, f"writes {path.name}", progress=False), replacing(path) as file:
        yield file
