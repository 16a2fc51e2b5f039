"""The header of a folder of rows."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.files import DamagedFileError, checked_json, write_json

HEADER = "header.json"
PROGRESS = "conversion.json"
"""What a conversion was asked for and how far it is; the only one of the two in an unfinished folder."""

FORMAT = "sgmcmc rows"
VERSION = 1


@dataclass(frozen=True)
class ArrayEntry:
    """One array as the header describes it."""

    dtype: np.dtype
    row_shape: tuple[int, ...]
    n_bytes: int
    sha256: str

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.row_shape)


@dataclass(frozen=True)
class Header:
    """What `header.json` says. Every number in the files was checked to be finite when they were written."""

    n_rows: int
    arrays: dict[str, ArrayEntry]
    shuffle_seed: int | None

    def record(self) -> dict[str, Any]:
        """The header as JSON."""
        arrays = {
            name: {"dtype": entry.dtype.str, "row_shape": list(entry.row_shape), "bytes": entry.n_bytes, "sha256": entry.sha256}
            for name, entry in self.arrays.items()
        }
        record = {"format": FORMAT, "version": VERSION, "rows": self.n_rows, "shuffle_seed": self.shuffle_seed}
        return record | {"finite": True, "arrays": arrays}


def row_file(folder: Path, name: str) -> Path:
    """The file of the array `name`, whatever characters that has."""
    return folder / f"{quote(name, safe=' ')}.rows"


def read_header(folder: Path) -> Header:
    """The header of a folder, verified."""
    try:
        text = (folder / HEADER).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_header(folder) from None
    except OSError as error:
        raise InputError(f"{folder / HEADER} could not be read ({error}); check the disk and your permissions") from error
    damaged = InputError(f"{folder / HEADER} is damaged; check the disk, then convert the data again with overwrite=True")
    try:
        record = checked_json(text, folder / HEADER)
    except DamagedFileError:
        raise damaged from None
    if record.get("format") != FORMAT:
        raise damaged
    if record["version"] != VERSION:
        raise InputError(
            f"{folder} has format version {record['version']}, this release of sgmcmc reads version {VERSION}; "
            "use the release that made it, or convert the data again"
        )
    arrays = {
        name: ArrayEntry(np.dtype(entry["dtype"]), tuple(entry["row_shape"]), entry["bytes"], entry["sha256"])
        for name, entry in record["arrays"].items()
    }
    return Header(record["rows"], arrays, record["shuffle_seed"])


def write_header(folder: Path, header: Header) -> None:
    """Make a folder a finished one. Its files must be on the disk by now."""
    write_json(folder / HEADER, header.record())


def size(n_bytes: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"


def _no_header(folder: Path) -> InputError:
    if not folder.is_dir():
        return InputError(f"{folder} is not a folder; expected one made by sgmcmc.data.convert(source, folder)")
    if (folder / PROGRESS).exists():
        return InputError(
            f"the conversion into {folder} is unfinished; run the same sgmcmc.data.convert call again: "
            "it goes on where it stopped"
        )
    return InputError(f"{folder} has no {HEADER}: it is not a folder of rows; make one with sgmcmc.data.convert(source, folder)")
