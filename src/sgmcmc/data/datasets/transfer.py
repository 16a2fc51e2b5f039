"""One request over an unreliable network, for all of a file or for what is missing of it."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from sgmcmc.core.progress import Bar, Progress
from sgmcmc.data.datasets.catalogue import DataFile

CHUNK = 1 << 18
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""


class FailedError(Exception):
    """This home cannot give the file now."""


class BrokenOffError(FailedError):
    """The transfer stopped early: what arrived is kept, and trying again fetches the rest."""


def transfer(url: str, file: DataFile, part: Path, progress: Progress) -> None:
    """One request: for the rest of `part`, or for everything where the server knows no parts."""
    had = size(part)
    headers = {"User-Agent": "sgmcmc"} | ({"Range": f"bytes={had}-"} if had else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and had:
            return  # nothing follows what we had: it is complete, or the checksum will tell that it is not
        raise FailedError(f"HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise FailedError(f"no answer ({getattr(error, 'reason', error)})") from error
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {had}-"):
            os.truncate(part, 0)
            raise BrokenOffError(f"it sent {response.headers.get('Content-Range')!r} when asked for the bytes from {had}")
        if not resumed and response.status != http.HTTPStatus.OK:
            raise FailedError(f"HTTP {response.status} {response.reason}")
        had = had if resumed else 0
        total = None if response.length is None else had + response.length
        with part.open("ab" if resumed else "wb") as stream, Bar(progress, f"downloading {file.name}", total, "B") as bar:
            bar.update(had)
            for chunk in _chunks(response):
                stream.write(chunk)
                bar.update(len(chunk))
    if total is not None and size(part) < total:
        raise BrokenOffError(f"the transfer broke off after {size(part)} of {total} bytes")


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body as it arrives. Errors of the network are told apart from those of the disk here."""
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise BrokenOffError(f"the transfer broke off ({error})") from error


def size(part: Path) -> int:
    """Bytes that have arrived so far."""
    return part.stat().st_size if part.exists() else 0
