"""Fetching a file: resumed where it broke off, verified, and put in place whole or not at all."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Progress
from sgmcmc.data.datasets.catalogue import DataFile
from sgmcmc.data.datasets.contents import DamagedError, unpack
from sgmcmc.data.datasets.folders import FOLDER_SETTING
from sgmcmc.data.datasets.locks import alone
from sgmcmc.data.datasets.transfer import BrokenOffError, FailedError, size, transfer

TRIES = 4
"""Of one home, when the transfer breaks off."""

PAUSE = 1.0
"""Seconds before the second try, twice that before the third, and so on."""


def download(file: DataFile, folder: Path, progress: Progress) -> None:
    """Put `file` into `folder`, from the first of its homes that has it."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    new_folders = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(part, progress):
            if not target.is_file():  # else another process was quicker
                _from_homes(file, target, part, progress)
    except OSError as error:
        raise SgmcmcError(
            f"{file.name} is not in {folder}, and cannot be downloaded because writing there fails ({error.strerror or error}); "
            f"{_by_hand(file, folder)}, or to one with room that you may write to"
        ) from error
    finally:
        for place in new_folders:
            with contextlib.suppress(OSError):  # not empty: it is needed
                place.rmdir()


def _by_hand(file: DataFile, folder: Path) -> str:
    return f"put {file.name} into {folder} yourself, or set {FOLDER_SETTING} to the folder that has it"


def _from_homes(file: DataFile, target: Path, part: Path, progress: Progress) -> None:
    failures = []
    for url in file.homes:
        try:
            _from_home(url, file, part, progress)
        except FailedError as failure:
            failures.append(f"{url}: {failure}")
        else:
            with part.open("r+b") as stream:
                os.fsync(stream.fileno())
            part.replace(target)
            return
    kept = f"the {size(part)} bytes that came are kept in {part}, and calling again continues from there; " if size(part) else ""
    raise SgmcmcError(
        f"{file.name} is not in {target.parent} and could not be downloaded ({'; '.join(failures)}); "
        f"{kept}{_by_hand(file, target.parent)}"
    )


def _from_home(url: str, file: DataFile, part: Path, progress: Progress) -> None:
    """Complete `part` from one home, and verify it."""
    begun_before = size(part) > 0
    for attempt in range(1, TRIES + 1):
        try:
            transfer(url, file, part, progress)
            break
        except BrokenOffError:
            if attempt == TRIES:
                raise
            time.sleep(PAUSE * attempt)
    try:
        unpack(part.read_bytes(), file)
    except DamagedError as error:
        os.truncate(part, 0)
        if begun_before:  # perhaps only the bytes that were there were wrong, or from a home with another wrapper
            _from_home(url, file, part, progress)
        else:
            raise FailedError(f"what it sent is damaged or another version: {error}") from error
