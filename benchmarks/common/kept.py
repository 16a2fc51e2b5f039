"""What was measured, kept in a file with the state of the library that it was measured with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from filelock import FileLock

from benchmarks.common.freshly import ROOT

Fits = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Shelf:
    """A file of fits by name, each with the state of the library under `library`."""

    file: Path

    def stored(self, old: bool = False) -> Fits:
        """Fits of earlier runs with the library as it is now, or with any."""
        fits = json.loads(self.file.read_text()) if self.file.exists() else {}
        return {key: fit for key, fit in fits.items() if old or fit["library"] == library()}

    def keep(self, fits: Fits) -> None:
        """Beside those that are there."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = Path(f"{self.file}.part")
        with FileLock(f"{self.file}.lock"):
            part.write_text(json.dumps(self.stored(old=True) | fits) + "\n")
            part.replace(self.file)


def library() -> str:
    """The state of the library: a hash of its source."""
    seen = hashlib.sha256()
    for file in sorted((ROOT / "src").rglob("*.py")):
        seen.update(file.read_bytes())
    return seen.hexdigest()[:16]


def asked_for(name: str, pattern: str | None) -> bool:
    """Whether a name has the pattern in it, or matches it."""
    return pattern is None or pattern in name or fnmatch(name, pattern)
