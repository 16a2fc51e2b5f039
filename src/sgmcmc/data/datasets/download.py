"""Fetching a file: from the first of its homes that has it, verified, and put in place whole or not at all."""

import contextlib
import time
from pathlib import Path
from typing import Any, BinaryIO

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import replacing
from sgmcmc.core.locks import alone
from sgmcmc.core.progress import Bar
from sgmcmc.data.datasets.catalogue import DataFile
from sgmcmc.data.datasets.contents import DamagedError, unpack
from sgmcmc.data.datasets.folders import FOLDER_SETTING

HEADERS = {"User-Agent": "sgmcmc", "Accept-Encoding": "identity"}
CHUNK = 1 << 16
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""

TRIES = 4
"""Of one home, when the transfer breaks off."""

PAUSE = 1.0
"""Seconds before the second try, twice that before the third, and so on."""


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
        raise SgmcmcError(
            f"{file.name} is not in {folder}, and cannot be downloaded because writing there fails ({error.strerror or error}); "
            f"{by_hand}, or to one with room that you may write to"
        ) from error
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
        unpack(draft.read(), file)
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
