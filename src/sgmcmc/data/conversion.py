"""One conversion, from an empty folder to a finished one, in steps that are on record so that any of them may be the last.

Data are on the disk before the bookmark says so; on the next attempt whatever lies beyond it is cut off.
"""

import contextlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, SgmcmcError, shortened
from sgmcmc.core.files import DamagedFileError, alone, checked_json, draft_of, lock_of, sync_folder, write_json
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Rows
from sgmcmc.data.columns import Arrangement, ColumnChoice, Columns, Origin, settle
from sgmcmc.data.readers import Options, RawData, file_table, most_features
from sgmcmc.data.writing import Collected, GrowingFile, Spill, check_space, disk_failure, row_files
from sgmcmc.rows.files import HEADER, PROGRESS, ArrayEntry, Header, write_header

SPILL = "shuffling.tmp"

Found: TypeAlias = tuple[Columns, Origin, tuple[int, ...]]
"""A block, where it comes from, and the lengths of the tables that were read to the end before it."""


@dataclass(frozen=True)
class Bookmark:
    """How far a conversion is. `tables` has the numbers of rows of those tables that were read to the end."""

    call: dict[str, Any]
    features: int | None = None
    arrangement: Arrangement | None = None
    run_rows: int = 0
    rows: int = 0
    tables: tuple[int, ...] = ()
    all_read: bool = False
    ranges: int = 0
    ranges_done: int = 0
    rows_sorted: int = 0
    checksums: dict[str, str] | None = None


@dataclass(frozen=True)
class Conversion:
    """What is to be done, and where."""

    raw: RawData
    folder: Path
    call: dict[str, Any]
    columns: ColumnChoice | None
    dtype: Any
    seed: int | None
    memory: int
    progress: Progress

    def run(self, overwrite: bool) -> None:
        """Do it, or what is left of it."""
        try:
            if self._is_finished() and not overwrite:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            with alone(self.folder / PROGRESS, f"converts into {self.folder}", self.progress):
                if (mark := self._begin(overwrite)) is not None:
                    mark = self._read_all(mark)
                    mark = mark if self.seed is None else self._sort(mark)
                    (self.folder / SPILL).unlink(missing_ok=True)
                    write_header(self.folder, self._header(mark))
        except InputError:
            with contextlib.suppress(OSError):  # not empty: it is needed
                self.folder.rmdir()
            raise
        except OSError as error:
            raise disk_failure(self.folder, error) from error

    def _is_finished(self) -> bool:
        """Whether all is done and nobody is at it, seen without a lock: the folder may be one that can only be read."""
        found = read_bookmark(self.folder)
        done = found is not None and found.call == self.call and (self.folder / HEADER).exists()
        return done and not lock_of(self.folder / PROGRESS).exists()

    def _begin(self, overwrite: bool) -> Bookmark | None:
        """Where to begin; None if all is done. Nothing is lost that somebody may want."""
        finished, found = (self.folder / HEADER).exists(), read_bookmark(self.folder)
        same = found is not None and found.call == self.call
        if same and not finished:
            return found
        if same and not overwrite:
            return None
        ours = finished or (self.folder / PROGRESS).exists()
        passing = {draft_of(self.folder / PROGRESS), lock_of(self.folder / PROGRESS)}
        others = [path.name for path in self.folder.iterdir() if path not in passing]
        if not ours and others:
            raise InputError(f"{self.folder} is not empty and not a folder of rows (it has {others[0]!r}); choose another folder")
        if ours and not overwrite:
            state = "holds the data" if finished else "has an unfinished conversion"
            remedy = "choose another folder, or say overwrite=True to replace what is there"
            raise InputError(f"{self.folder} {state} of another call: {how_it_differs(found, self.call)}; {remedy}")
        clear(self.folder)
        return self._noted(Bookmark(self.call))

    def _read_all(self, mark: Bookmark) -> Bookmark:
        """All rows into the spill file, or into the arrays' files where they are not shuffled."""
        if mark.all_read:
            return mark
        try:
            raw = self.raw
            if raw.uncounted:
                n_features = mark.features or most_features(raw.uncounted, self.progress)
                mark = self._noted(replace(mark, features=n_features))
                raw = replace(raw, tables=[file_table("libsvm", path, Options(n_features=n_features)) for path in raw.uncounted])
            found = self._blocks(raw, mark)
            first = next(found, None)
            if mark.arrangement is None:
                mark = self._settled(mark, first, total(table.n_rows for table in raw.tables))
            return self._keep_all(mark, itertools.chain([] if first is None else [first], found))
        except InputError:  # these data cannot be converted, now or later
            clear(self.folder)
            raise

    def _settled(self, mark: Bookmark, first: Found | None, n_rows: int | None) -> Bookmark:
        if first is None:
            raise InputError("the source has no rows")
        arrangement = settle(first[0], self.columns, self.dtype, first[1])
        spilled = self._spill(arrangement, 1).row_bytes
        if n_rows is not None:
            check_space(self.folder, n_rows * (arrangement.row_size + (0 if self.seed is None else spilled)))
        return self._noted(replace(mark, arrangement=arrangement, run_rows=max(1, self.memory // 4 // spilled)))

    def _blocks(self, raw: RawData, mark: Bookmark) -> Iterator[Found]:
        """What the bookmark does not have yet."""
        skip, number = mark.rows, 0
        while number < len(mark.tables) and skip >= mark.tables[number]:
            skip -= mark.tables[number]
            number += 1
        lengths = mark.tables[:number]
        with Bar(self.progress, "reading", total(table.size for table in raw.tables), "B") as bar:
            bar.update(sum(table.size or 0 for table in raw.tables[:number]))
            for table in raw.tables[number:]:
                row, before = skip, 0
                try:
                    for columns, read in table.read(skip):
                        yield columns, Origin(table.name, row + 1), lengths
                        row += len(next(iter(columns.values())))
                        bar.update(read - before)
                        before = read
                except OSError as error:
                    remedy = "what was converted so far is kept: check the file and run the same call again"
                    raise SgmcmcError(f"{table.name} could not be read ({error}); {remedy}") from error
                bar.update((table.size or before) - before)
                lengths, skip = (*lengths, row), 0

    def _keep_all(self, mark: Bookmark, found: Iterator[Found]) -> Bookmark:
        arrangement = mark.arrangement
        assert arrangement is not None
        spill, collected = self._spill(arrangement, mark.run_rows), Collected(arrangement, mark.run_rows)
        with contextlib.ExitStack() as stack:  # the files that grow while the raw data are read
            if self.seed is None:
                files = stack.enter_context(row_files(self.folder, arrangement, mark.rows))
            else:
                files = {SPILL: stack.enter_context(GrowingFile(spill.path, spill.end(mark.rows)))}
            for columns, origin, tables in found:
                for rows in collected.add(arrangement.arrays(columns, origin)):
                    self._keep(rows, files, spill, mark.rows)
                    mark = self._noted(replace(mark, rows=mark.rows + mark.run_rows, tables=tables))
            self._keep(collected.rest(), files, spill, mark.rows)
            checksums = {name: file.sha256() for name, file in files.items()} if self.seed is None else None
            n_rows = mark.rows + collected.filled
            if n_rows == 0:
                raise InputError("the source has no rows")
            return self._noted(replace(mark, rows=n_rows, all_read=True, checksums=checksums))

    def _keep(self, rows: Rows, files: dict[str, GrowingFile], spill: Spill, first_row: int) -> None:
        if self.seed is None:
            for name, values in rows.items():
                files[name].append(values)
        else:
            spill.write(files[SPILL], rows, self.seed, first_row)
        for file in files.values():
            file.sync()

    def _spill(self, arrangement: Arrangement, run_rows: int) -> Spill:
        return Spill(self.folder / SPILL, arrangement, run_rows)

    def _sort(self, mark: Bookmark) -> Bookmark:
        """From the spill file to the arrays' files, one range of keys after the other."""
        if mark.checksums is not None:
            return mark
        arrangement = mark.arrangement
        assert arrangement is not None
        spill, row_bytes = self._spill(arrangement, mark.run_rows), arrangement.row_size
        check_space(self.folder, (mark.rows - mark.rows_sorted) * row_bytes)
        if not mark.ranges:  # half of the memory is for the rows as read, half for the rows in order
            mark = replace(mark, ranges=max(1, math.ceil(2 * mark.rows * spill.row_bytes / self.memory)))
        with (
            row_files(self.folder, arrangement, mark.rows_sorted) as files,
            Bar(self.progress, "sorting", mark.rows * row_bytes, "B") as bar,
        ):
            bar.update(mark.rows_sorted * row_bytes)
            for number in range(mark.ranges_done, mark.ranges):
                count = 0
                for name, rows in spill.in_range(number, mark.ranges, mark.rows):
                    files[name].append(rows)
                    files[name].sync()
                    count = len(rows)
                mark = self._noted(replace(mark, ranges_done=number + 1, rows_sorted=mark.rows_sorted + count))
                bar.update(count * row_bytes)
            return self._noted(replace(mark, checksums={name: file.sha256() for name, file in files.items()}))

    def _header(self, mark: Bookmark) -> Header:
        arrangement, checksums = mark.arrangement, mark.checksums
        assert arrangement is not None
        assert checksums is not None
        arrays = {
            name: ArrayEntry(dtype, arrangement.row_shapes[name], mark.rows * arrangement.row_bytes[name], checksums[name])
            for name, dtype in arrangement.dtypes.items()
        }
        return Header(mark.rows, arrays, self.seed)

    def _noted(self, mark: Bookmark) -> Bookmark:
        write_json(self.folder / PROGRESS, asdict(mark))
        return mark


def read_bookmark(folder: Path) -> Bookmark | None:
    """How far the conversion in a folder is, if there is one."""
    try:
        mark = checked_json((folder / PROGRESS).read_bytes(), folder / PROGRESS)
        arrangement = None if mark["arrangement"] is None else Arrangement.from_record(mark["arrangement"])
        return Bookmark(**mark | {"tables": tuple(mark["tables"]), "arrangement": arrangement})
    except (FileNotFoundError, NotADirectoryError, DamagedFileError, KeyError, TypeError):
        return None


def clear(folder: Path) -> None:
    """Remove what a conversion makes, the header first: without it nobody takes the rest for data."""
    (folder / HEADER).unlink(missing_ok=True)
    sync_folder(folder)
    for path in [*folder.glob("*.rows"), folder / SPILL, *folder.glob(draft_of(Path("*.json")).name), folder / PROGRESS]:
        path.unlink(missing_ok=True)


def total(counts: Iterable[int | None]) -> int | None:
    """Their sum, where all are known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def how_it_differs(found: Bookmark | None, call: dict[str, Any]) -> str:
    """What another call asked for, and what this one does."""
    if found is None:
        return "its record is missing or damaged"
    pairs = {key: (call.get(key), found.call.get(key)) for key in call | found.call}
    told = {key: [shortened(json.dumps(value, ensure_ascii=False), 120) for value in pair] for key, pair in pairs.items()}
    return "; ".join(f"{key} is {told[key][0]}, there it was {told[key][1]}" for key, (now, was) in pairs.items() if now != was)
