"""The files of datasets on this machine: where they are, how they are fetched, and the arrays in them.

Arrays are copied to the cache folder, where they are much quicker to read.
"""

import bz2
import contextlib
import gzip
import hashlib
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from platformdirs import user_cache_dir

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import alone, replacing
from sgmcmc.core.progress import Bar
from sgmcmc.data.datasets.catalogue import DamagedError, DataFile

FOLDER_SETTING = "SGMCMC_DATA"
"""The environment variable that names the data folder."""

UNPACKERS = {".gz": gzip.decompress, ".bz2": bz2.decompress}

FORMAT = 1
"""Of the copies. A new number makes old ones be made again: raise it when a parser changes what it returns."""

HEADERS = {"User-Agent": "sgmcmc", "Accept-Encoding": "identity"}
CHUNK = 1 << 16
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""

TRIES, PAUSE = 4, 1.0
"""Of one home, when the transfer breaks off, and the seconds before the second try; twice that before the third, and so on."""


def cache_folder() -> Path:
    """The platform's folder for what can be made again."""
    return Path(user_cache_dir("sgmcmc"))


def data_folder() -> Path:
    """The folder the user named, which must be there, or else the cache folder, which need not."""
    named = os.environ.get(FOLDER_SETTING)
    if not named:
        return cache_folder()
    folder = Path(named).expanduser()
    if not os.path.isdir(folder):  # not Path.is_dir, which raises where looking is not allowed
        remedy = f"make it, or set {FOLDER_SETTING} to the folder that has the files, or unset it to download them"
        raise SgmcmcError(f"{FOLDER_SETTING} is {named!r}, which is not a folder; {remedy}")
    return folder


def arrays_of(name: str, files: tuple[DataFile, ...], folder: Path) -> list[np.ndarray]:
    """The arrays of the files, from the copy where there is a good one, else from the files, leaving a copy for the next time."""
    copy, stamp = cache_folder() / f"{name}.npz", _stamp(files, folder)
    arrays = _load(copy, stamp, len(files))
    if arrays is None:
        arrays = [read(folder / file.name, file) for file in files]
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, no more
            copy.parent.mkdir(parents=True, exist_ok=True)
            with alone(copy, f"copies {name}", progress=False), replacing(copy) as stream:
                np.savez(stream, np.array(stamp), *arrays)
    return arrays


def read(path: Path, file: DataFile) -> np.ndarray:
    """The array in the file at `path`."""
    try:
        return file.parse(uncompressed(path.read_bytes(), file))
    except OSError as error:
        raise SgmcmcError(f"{path} cannot be read ({error.strerror or error}); expected a file you may read") from error
    except DamagedError as error:
        remedy = f"delete it and call again, or put there what {file.homes[0]} has"
        raise SgmcmcError(f"{path} is damaged or another version: {error}; {remedy}") from error


def uncompressed(packed: bytes, file: DataFile) -> bytes:
    """The content of `packed`, which must have the checksum of `file`."""
    expected = f"expected content with SHA-256 {file.sha256}"
    try:
        content = UNPACKERS[Path(file.name).suffix](packed)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DamagedError(f"it does not unpack ({type(error).__name__}: {error}), {expected}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DamagedError(f"its content has SHA-256 {found}, {expected}")
    return content


def _stamp(files: tuple[DataFile, ...], folder: Path) -> str:
    """What a copy was made from. A file that is changed or damaged later has another size or time, and is checked again."""
    found = [((folder / file.name).resolve(), file.sha256) for file in files]
    return json.dumps([FORMAT, [[str(path), path.stat().st_size, path.stat().st_mtime_ns, sha256] for path, sha256 in found]])


def _load(copy: Path, stamp: str, n_arrays: int) -> list[np.ndarray] | None:
    try:
        with copy.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if stored["arr_0"].item() != stamp:
                return None
            return [stored[f"arr_{number}"] for number in range(1, n_arrays + 1)]
    except Exception:  # it is not there, or damaged, which shows in as many ways as zip and npy headers have fields
        return None


class FailedError(Exception):
    """This home cannot give the file now."""


class BrokenOffError(FailedError):
    """The transfer stopped early: trying again may help."""


def download(file: DataFile, folder: Path, progress: Progress) -> None:
    """Put `file` into `folder`."""
    target = folder / file.name
    by_hand = f"put {file.name} into {folder} yourself, or set {FOLDER_SETTING} to the folder that has it"
    new_folders = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(target, f"downloads {file.name}", progress):
            if not target.is_file():  # else another process was quicker
                with replacing(target) as draft:
                    _from_homes(file, draft, progress)
    except FailedError as failure:
        raise SgmcmcError(f"{file.name} is not in {folder} and could not be downloaded ({failure}); {by_hand}") from failure
    except OSError as error:
        why = f"and cannot be downloaded because writing there fails ({error.strerror or error})"
        raise SgmcmcError(f"{file.name} is not in {folder}, {why}; {by_hand}, or one with room that you may write to") from error
    finally:
        for place in new_folders:
            with contextlib.suppress(OSError):  # not empty: it is needed
                place.rmdir()


def _from_homes(file: DataFile, draft: BinaryIO, progress: Progress) -> None:
    failures = []
    for url in file.homes:
        try:
            return _from_home(url, file, draft, progress)
        except FailedError as failure:
            failures.append(f"{url}: {failure}")
    raise FailedError("; ".join(failures))


def _from_home(url: str, file: DataFile, draft: BinaryIO, progress: Progress) -> None:
    """Fill `draft` from one home, and verify it."""
    for attempt in range(1, TRIES + 1):
        draft.seek(0)
        draft.truncate()
        try:
            _transfer(url, f"downloading {file.name}", draft, progress)
            break
        except BrokenOffError:
            if attempt == TRIES:
                raise
            time.sleep(PAUSE * attempt)
    draft.seek(0)
    try:
        uncompressed(draft.read(), file)
    except DamagedError as error:
        raise FailedError(f"what it sent is damaged or another version: {error}") from error


def _transfer(url: str, stage: str, draft: BinaryIO, progress: Progress) -> None:
    """One request for the whole file."""
    import pooch  # takes long, and few calls download
    from requests import HTTPError, RequestException

    with _PoochBar(progress, stage, None, "B") as bar:
        options: dict[str, Any] = {"progressbar": bar, "chunk_size": CHUNK, "timeout": TIMEOUT, "headers": HEADERS}
        try:
            pooch.HTTPDownloader(**options, hooks={"response": _as_sent})(url, draft, None)
        except HTTPError as error:
            answer: Any = error.response
            answer.close()
            raise FailedError(f"HTTP {answer.status_code} {answer.reason}") from error
        except RequestException as error:
            if bar.total is None:
                raise FailedError(f"no answer ({_cause(error)})") from error
            raise BrokenOffError(f"the transfer broke off ({_cause(error)})") from error


def _as_sent(response: Any, **_: Any) -> None:
    """Some servers take the packing of a file for one made for the transfer, which would be undone."""
    response.raw.headers.discard("Content-Encoding")


def _cause(error: BaseException) -> BaseException:
    """What lies under the wrappers."""
    while error.__context__ is not None:
        error = error.__context__
    return error


class _PoochBar(Bar):
    """A bar as pooch moves it: told the total late (0 if it is unknown), by whole chunks, at the end by all bytes again."""

    def update(self, amount: int, **_: float) -> None:
        """Never beyond the total."""
        super().update(min(amount, self.total - self.done) if self.total else amount)

    def reset(self) -> None:
        """What was counted stays."""

    def close(self) -> None:
        """Whoever opened the bar closes it."""
