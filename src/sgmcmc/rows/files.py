"""A folder of rows on disk: `header.json`, and one raw file of little-endian rows per array.

The header tells number of rows, types, sizes and checksums, whether and with which seed the rows were shuffled, and has a
checksum of its own. It is written last, so a folder with a header is a finished one.
"""

import contextlib
import hashlib
import math
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from sgmcmc.core.errors import InputError, SgmcmcError, describe
from sgmcmc.core.files import DamagedFileError, checked_json, checksum_of, write_json
from sgmcmc.rows.gathering import aligned, take_rows

HEADER = "header.json"
PROGRESS = "conversion.json"
"""What a conversion was asked for and how far it is; the only one of the two in an unfinished folder."""

FORMAT = "sgmcmc rows"
VERSION = 1

BLOCK = 2**24
"""Bytes read at once where a whole file is read."""

Column = TypeVar("Column")


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
        if not folder.is_dir():
            why = f"{folder} is not a folder; expected one made by sgmcmc.data.convert(source, folder)"
        elif (folder / PROGRESS).exists():
            again = "run the same sgmcmc.data.convert call again: it goes on where it stopped"
            why = f"the conversion into {folder} is unfinished; {again}"
        else:
            why = f"{folder} has no {HEADER}: it is not a folder of rows; make one with sgmcmc.data.convert(source, folder)"
        raise InputError(why) from None
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
        found = f"{folder} has format version {record['version']}, this release of sgmcmc reads version {VERSION}"
        raise InputError(f"{found}; use the release that made it, or convert the data again")
    arrays = {
        name: ArrayEntry(np.dtype(entry["dtype"]), tuple(entry["row_shape"]), entry["bytes"], entry["sha256"])
        for name, entry in record["arrays"].items()
    }
    return Header(record["rows"], arrays, record["shuffle_seed"])


def write_header(folder: Path, header: Header) -> None:
    """Make a folder a finished one. Its files must be on the disk by now."""
    write_json(folder / HEADER, header.record())


def in_words(n_bytes: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"


class FileColumn:
    """One array of a folder of rows, read from its file on demand. Any number of threads may read at once.

    Attributes:
        path: the file.
        shape: number of rows, then the shape of a row.
        dtype: of the numbers, little-endian.
    """

    def __init__(self, path: Path, n_rows: int, entry: ArrayEntry) -> None:
        self.path, self.shape, self.dtype = path, (n_rows, *entry.row_shape), entry.dtype
        self.nbytes, self._row_bytes, self._lock = entry.n_bytes, entry.row_bytes, threading.RLock()
        self._opened: int | None = None
        self._mapped: tuple[mmap.mmap, np.ndarray] | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"FileColumn of shape {self.shape} and dtype {self.dtype} in {self.path}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Contiguous rows by a slice, one row by its number, any rows by an array of row numbers; always a fresh array."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise InputError(f"rows {start}:{stop}:{step} of {self.path.name}; expected contiguous rows, such as rows[10:20]")
            out = aligned((max(0, stop - start), *self.shape[1:]), self.dtype)
            self.read(start, out)
            return out
        if isinstance(index, (int, np.integer)):
            row = int(index) + (len(self) if index < 0 else 0)
            if not 0 <= row < len(self):
                raise IndexError(f"row {index} of {self.path.name}, which has {len(self)} rows")
            return self[row : row + 1][0]
        return self.rows(np.asarray(index))

    def rows(self, index: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The rows of these numbers, in the shape of `index`, in `out` or in a fresh aligned array."""
        if index.dtype.kind not in "iu":
            raise InputError(f"index is {describe(index)}; expected row numbers")
        if index.size and not (int(index.min()) >= 0 and int(index.max()) < len(self)):
            raise IndexError(f"rows {index.min()} to {index.max()} of {self.path.name}, which has {len(self)} rows")
        if out is None:
            out = aligned((*index.shape, *self.shape[1:]), self.dtype)
        take_rows(self._map()[1], index, out)
        return out

    def will_need(self, index: np.ndarray) -> None:
        """Have the system read the pages of these rows ahead, all at once; where it cannot be told, nothing."""
        if not hasattr(mmap, "MADV_WILLNEED") or not index.size:
            return
        pages, _ = self._map()
        first = np.unique(np.asarray(index, np.int64)) * self._row_bytes
        starts, ends = first // mmap.PAGESIZE, (first + self._row_bytes - 1) // mmap.PAGESIZE + 1
        apart = np.flatnonzero(starts[1:] > ends[:-1])  # rows on the same or on neighbouring pages are asked for together
        edges = zip(starts[np.r_[0, apart + 1]].tolist(), ends[np.r_[apart, len(ends) - 1]].tolist(), strict=True)
        for start, end in edges:
            offset = start * mmap.PAGESIZE
            pages.madvise(mmap.MADV_WILLNEED, offset, min(end * mmap.PAGESIZE, self.nbytes) - offset)

    def will_read(self, start: int, count: int) -> None:
        """Have the system read adjacent rows ahead; where it cannot be told, nothing."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # what is wrong with the file shows when it is read
                os.posix_fadvise(self._file(), start * self._row_bytes, count * self._row_bytes, os.POSIX_FADV_WILLNEED)

    def read(self, start: int, out: np.ndarray) -> None:
        """Read as many adjacent rows as `out` has, straight into it."""
        stop = start + len(out)
        view, offset = out.reshape(-1).view(np.uint8).data, start * self._row_bytes
        done = 0
        while done < len(view):
            try:
                count = self._read_into(view[done:], offset + done)
            except OSError as error:
                raise self._failure(f"rows {start} to {stop - 1} could not be read ({error})") from error
            if count == 0:
                expected = f"expected {len(view):,} bytes at byte {offset:,}, got {done:,}"
                raise self._failure(f"the file ends within rows {start} to {stop - 1}: {expected}")
            done += count

    def _read_into(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file(), [view], offset)
        with self._lock:  # where there are no reads at a position, one thread at a time
            os.lseek(self._file(), offset, os.SEEK_SET)
            part = os.read(self._file(), len(view))
        view[: len(part)] = part
        return len(part)

    def _map(self) -> tuple[mmap.mmap, np.ndarray]:
        """The file as memory. A map of a file that was cut short ends the process, hence the look at its size."""
        try:
            found = os.fstat(self._file()).st_size
            if found != self.nbytes:
                raise self._failure(f"expected a file of {self.nbytes:,} bytes, found {found:,}")
            with self._lock:
                if self._mapped is None:
                    pages = mmap.mmap(self._file(), self.nbytes, access=mmap.ACCESS_READ)
                    if hasattr(mmap, "MADV_RANDOM"):
                        pages.madvise(mmap.MADV_RANDOM)
                    self._mapped = pages, np.frombuffer(pages, self.dtype).reshape(self.shape)
                return self._mapped
        except OSError as error:
            raise self._failure(f"it could not be mapped into memory ({error})") from error

    def _file(self) -> int:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    opened = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
                    weakref.finalize(self, os.close, opened)
                    self._opened = opened
        return self._opened

    def _failure(self, what: str) -> SgmcmcError:
        return SgmcmcError(f"{self.path}: {what}; check the disk, or convert the data again with overwrite=True")


class NamedColumns(Mapping[str, Column]):
    """Columns by name. One is like another only if it is the same: nobody means to compare all their rows."""

    columns: dict[str, Column]
    __eq__, __hash__ = object.__eq__, object.__hash__  # pyright: ignore[reportAssignmentType]: None in Mapping

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class AnyFolder(NamedColumns[Column]):
    """What a folder of rows is, whether its arrays are read from files or held in memory.

    Attributes:
        path: the folder.
        header: what its `header.json` says.
        n_rows: number of rows.
        nbytes: size of all arrays.
        shuffled: whether the rows were shuffled when they were converted.
        checksum: of the header, and through it of the contents.
    """

    def __init__(self, path: Path, header: Header, columns: dict[str, Column]) -> None:
        self.path, self.header, self.columns = path, header, columns
        self.n_rows = header.n_rows
        self.nbytes = sum(entry.n_bytes for entry in header.arrays.values())
        self.shuffled = header.shuffle_seed is not None
        self.checksum = checksum_of(header.record())

    def __repr__(self) -> str:
        arrays = [
            f"  {name}: {entry.dtype.name}" + (f", rows of {' × '.join(map(str, entry.row_shape))}" if entry.row_shape else "")
            for name, entry in self.header.arrays.items()
        ]
        order = "shuffled" if self.shuffled else "in their original order"
        return "\n".join([f"{type(self).__name__} {self.path}: {self.n_rows:,} rows, {in_words(self.nbytes)}, {order}", *arrays])


class RowFolder(AnyFolder[FileColumn]):
    """A folder of rows, each array of it a `FileColumn` that reads what is asked of it."""


class LoadedFolder(AnyFolder[np.ndarray]):
    """A folder of rows read into memory: NumPy arrays, known to be shuffled if the folder is."""


def open_rows(path: str | os.PathLike[str]) -> RowFolder:
    """A folder of rows, its header verified and its files of the right sizes."""
    folder = Path(path)
    header = read_header(folder)
    columns = {}
    for name, entry in header.arrays.items():
        path, again = row_file(folder, name), "convert the data again with overwrite=True"
        try:
            found = path.stat().st_size
        except OSError as error:
            raise InputError(f"{path} is not readable ({error}); put it back, or {again}") from error
        if found != entry.n_bytes:
            changed = f"{path} has {found:,} bytes, the header says {entry.n_bytes:,}: it was cut short or changed"
            raise InputError(f"{changed}; {again}")
        columns[name] = FileColumn(path, header.n_rows, entry)
    return RowFolder(folder, header, columns)


def load(folder: RowFolder) -> LoadedFolder:
    """All of a folder in memory."""
    return LoadedFolder(folder.path, folder.header, {name: column[:] for name, column in folder.items()})


def verify(folder: RowFolder, report: Callable[[int], Any] | None = None) -> None:
    """Read every file and compare its checksum with the header's; `report` is told the bytes as they are read."""
    for name, column in folder.items():
        rows = max(1, BLOCK // folder.header.arrays[name].row_bytes)
        digest = hashlib.sha256()
        for start in range(0, len(column), rows):
            block = column[start : start + rows]
            digest.update(block.reshape(-1).view(np.uint8).data)
            if report is not None:
                report(block.nbytes)
        expected = folder.header.arrays[name].sha256
        if digest.hexdigest() != expected:
            found = f"{column.path} is damaged: its sha256 is {digest.hexdigest()}, the header says {expected}"
            raise SgmcmcError(f"{found}; check the disk, then convert the data again with overwrite=True")
