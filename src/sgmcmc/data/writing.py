"""Files that only ever grow, up to a size that is on record."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.trees import Rows
from sgmcmc.data.columns import Arrangement
from sgmcmc.rows.files import row_file, size

REREAD = 2**24
"""Bytes read at once where a file is read again for its checksum."""


class GrowingFile:
    """A file that is written at its end. It starts with the bytes that were on record, whatever was written after those."""

    def __init__(self, path: Path, start: int = 0, hashed: bool = False) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        self._digest = hashlib.sha256() if hashed else None
        try:
            if os.fstat(self._file).st_size < start:
                raise SgmcmcError(
                    f"{path} has {os.fstat(self._file).st_size:,} bytes, {start:,} were on record: it was changed from outside; "
                    "convert again with overwrite=True"
                )
            os.ftruncate(self._file, start)
            os.lseek(self._file, start, os.SEEK_SET)
            self._hash_again(start)
        except BaseException:
            self.close()
            raise

    def append(self, array: np.ndarray) -> None:
        """Write an array's bytes at the end."""
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        if self._digest is not None:
            self._digest.update(view)
        while len(view):
            view = view[write(self._file, view) :]

    def sync(self) -> None:
        """Everything written so far is on the disk."""
        os.fsync(self._file)

    def sha256(self) -> str:
        """The checksum of all bytes."""
        assert self._digest is not None
        return self._digest.hexdigest()

    def close(self) -> None:
        """No more writing."""
        os.close(self._file)

    def _hash_again(self, n_bytes: int) -> None:
        if self._digest is None:
            return
        with open(self.path, "rb") as file:
            while n_bytes > 0:
                block = file.read(min(REREAD, n_bytes))
                self._digest.update(block)
                n_bytes -= len(block)


class Collected:
    """Rows of blocks of any size, handed on in runs of one size. A run is good until the next is asked for."""

    def __init__(self, arrangement: Arrangement, run_rows: int) -> None:
        self._run = {
            name: np.empty((run_rows, *arrangement.row_shapes[name]), dtype) for name, dtype in arrangement.dtypes.items()
        }
        self._run_rows, self.filled = run_rows, 0

    def add(self, rows: Rows) -> Iterator[Rows]:
        """Take rows in; the runs that became full."""
        start, count = 0, len(next(iter(rows.values())))
        while start < count:
            taken = min(count - start, self._run_rows - self.filled)
            for name, values in rows.items():
                self._run[name][self.filled : self.filled + taken] = values[start : start + taken]
            start, self.filled = start + taken, self.filled + taken
            if self.filled == self._run_rows:
                yield self._run
                self.filled = 0

    def rest(self) -> Rows:
        """The rows of the last, unfilled run."""
        return {name: values[: self.filled] for name, values in self._run.items()}


@contextlib.contextmanager
def row_files(folder: Path, arrangement: Arrangement, n_rows: int) -> Iterator[dict[str, GrowingFile]]:
    """The arrays' files, to be gone on with after `n_rows` rows."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(contextlib.closing(GrowingFile(row_file(folder, name), n_rows * width, hashed=True)))
            for name, width in arrangement.row_bytes.items()
        }


def write(file: int, view: memoryview) -> int:
    """os.write, in a place of its own so that a full disk can be played."""
    return os.write(file, view)


def check_space(folder: Path, needed: int) -> None:
    """Refuse to begin what the disk has no room for."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SgmcmcError(
            f"the disk of {folder} has {size(free)} free, the conversion needs {size(needed)} more (rows are written twice to be "
            f"shuffled): {size(needed - free)} are missing; make room and run the same call again, or choose another folder"
        )


def write_failure(folder: Path, error: OSError) -> SgmcmcError:
    """What went wrong in writing, and what now."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SgmcmcError(
            f"the disk of {folder} is full ({error}); what was converted so far is kept: make room and run the same call again, "
            "it goes on where it stopped"
        )
    return SgmcmcError(
        f"{folder} could not be written ({error}); check its permissions and the disk, or choose another folder; "
        "the same call again goes on where it stopped"
    )
