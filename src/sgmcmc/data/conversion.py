"""One conversion, from an empty folder to a finished one, in steps that are on record so that any of them may be the last.

Data are on the disk before the record says so; on the next attempt whatever lies beyond the record is cut off.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sgmcmc.core.errors import InputError, SgmcmcError
from sgmcmc.core.files import draft_of, sync_folder
from sgmcmc.core.progress import Bar, Progress
from sgmcmc.data.files import Collected, GrowingFile, Rows, alone, check_space, row_files, write_failure
from sgmcmc.data.layout import Choice, Columns, Layout, Place, settle
from sgmcmc.data.shuffle import Runs, SpilledRows
from sgmcmc.data.sources import Source
from sgmcmc.rows.header import HEADER, PROGRESS, ArrayEntry, Header, write_header, write_json

SPILL = "shuffling.tmp"

Found: TypeAlias = tuple[Columns, Place, tuple[int, ...]]
"""A block, where it comes from, and the lengths of the parts that were read to the end before it."""


@dataclass(frozen=True)
class Record:
    """How far a conversion is. `parts` has the numbers of rows of those parts of the source that were read to the end."""

    call: dict[str, Any]
    features: int | None = None
    layout: dict[str, Any] | None = None
    run_rows: int = 0
    rows: int = 0
    parts: tuple[int, ...] = ()
    all_read: bool = False
    ranges: int = 0
    ranges_done: int = 0
    rows_sorted: int = 0
    checksums: dict[str, str] | None = None


@dataclass(frozen=True)
class Conversion:
    """What is to be done, and where."""

    source: Source
    folder: Path
    call: dict[str, Any]
    columns: Choice | None
    dtype: Any
    seed: int | None
    memory: int
    progress: Progress

    def run(self, overwrite: bool) -> None:
        """Do it, or what is left of it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with alone(self.folder, self.progress):
                record = self._begin(overwrite)
                if record is not None:
                    record = self._read_all(record)
                    record = record if self.seed is None else self._sort(record, self.seed)
                    write_header(self.folder, self._header(record))
                (self.folder / SPILL).unlink(missing_ok=True)
        except OSError as error:
            raise write_failure(self.folder, error) from error

    def _begin(self, overwrite: bool) -> Record | None:
        """Where to begin; None if all is done."""
        finished, found = (self.folder / HEADER).exists(), read_record(self.folder)
        same = found is not None and found.call == self.call
        if same and not finished:
            return found
        if same and not overwrite:
            return None
        self._check_folder(found, finished, overwrite)
        clear(self.folder)
        return self._noted(Record(self.call))

    def _check_folder(self, found: Record | None, finished: bool, overwrite: bool) -> None:
        """Nothing is lost that somebody may want."""
        ours = finished or (self.folder / PROGRESS).exists()
        others = [path.name for path in self.folder.iterdir() if path.name != draft_of(self.folder / PROGRESS).name]
        if not ours and others:
            raise InputError(f"{self.folder} is not empty and not a folder of rows (it has {others[0]!r}); choose another folder")
        if ours and not overwrite:
            state = "holds the data" if finished else "has an unfinished conversion"
            raise InputError(
                f"{self.folder} {state} of another call: {differences(found, self.call)}; choose another folder, "
                "or say overwrite=True to replace what is there"
            )

    def _read_all(self, record: Record) -> Record:
        """All rows of the source into the spill file, or into the arrays' files where they are not shuffled."""
        if record.all_read:
            return record
        try:
            record, source = self._complete_source(record)
            found = self._blocks(source, record)
            first = next(found, None)
            if record.layout is None:
                record = self._settled(record, first, source.n_rows)
            return self._keep_all(record, itertools.chain([] if first is None else [first], found))
        except InputError:  # these data cannot be converted, now or later
            clear(self.folder)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            raise

    def _complete_source(self, record: Record) -> tuple[Record, Source]:
        if self.source.count_features is None or self.source.with_features is None:
            return record, self.source
        if record.features is None:
            record = self._noted(replace(record, features=self.source.count_features(self.progress)))
        assert record.features is not None
        return record, self.source.with_features(record.features)

    def _settled(self, record: Record, first: Found | None, n_rows: int | None) -> Record:
        if first is None:
            raise InputError("the source has no rows")
        layout = settle(first[0], self.columns, self.dtype, first[1])
        runs = Runs(layout, 1)
        if n_rows is not None:
            row_bytes = sum(layout.row_bytes.values())
            check_space(self.folder, n_rows * (row_bytes if self.seed is None else row_bytes + runs.row_bytes))
        return self._noted(replace(record, layout=layout.record(), run_rows=max(1, self.memory // 4 // runs.row_bytes)))

    def _blocks(self, source: Source, record: Record) -> Iterator[Found]:
        """What the record does not have yet."""
        skip, number = record.rows, 0
        while number < len(record.parts) and skip >= record.parts[number]:
            skip -= record.parts[number]
            number += 1
        lengths = record.parts[:number]
        with Bar(self.progress, "reading", source.size, "B") as bar:
            bar.update(sum(part.size or 0 for part in source.parts[:number]))
            for part in source.parts[number:]:
                row, before = skip, 0
                try:
                    for columns, read in part.read(skip):
                        yield columns, Place(part.name, row + 1), lengths
                        row += len(next(iter(columns.values())))
                        bar.update(read - before)
                        before = read
                except OSError as error:
                    raise SgmcmcError(
                        f"{part.name} could not be read ({error}); what was converted so far is kept: check the file and run the "
                        "same call again"
                    ) from error
                bar.update((part.size or before) - before)
                lengths, skip = (*lengths, row), 0

    def _keep_all(self, record: Record, found: Iterator[Found]) -> Record:
        layout = self._layout(record)
        runs, collected = Runs(layout, record.run_rows), Collected(layout, record.run_rows)
        with self._sink(record, layout) as files:
            for columns, place, parts in found:
                for rows in collected.add(layout.arrays(columns, place)):
                    self._keep(rows, files, runs, record.rows)
                    record = self._noted(replace(record, rows=record.rows + record.run_rows, parts=parts))
            self._keep(collected.rest(), files, runs, record.rows)
            checksums = {name: file.sha256() for name, file in files.items()} if self.seed is None else None
            n_rows = record.rows + collected.filled
            if n_rows == 0:
                raise InputError("the source has no rows")
            return self._noted(replace(record, rows=n_rows, all_read=True, checksums=checksums))

    def _keep(self, rows: Rows, files: dict[str, GrowingFile], runs: Runs, first_row: int) -> None:
        if self.seed is None:
            for name, values in rows.items():
                files[name].append(values)
        else:
            runs.write(files[SPILL], rows, self.seed, first_row)
        for file in files.values():
            file.sync()

    @contextlib.contextmanager
    def _sink(self, record: Record, layout: Layout) -> Iterator[dict[str, GrowingFile]]:
        """The files that grow while the source is read."""
        if self.seed is None:
            with row_files(self.folder, layout, record.rows) as files:
                yield files
        else:
            with contextlib.closing(GrowingFile(self.folder / SPILL, Runs(layout, record.run_rows).end(record.rows))) as spill:
                yield {SPILL: spill}

    def _sort(self, record: Record, seed: int) -> Record:
        """From the spill file to the arrays' files, one range of keys after the other."""
        if record.checksums is not None:
            return record
        layout = self._layout(record)
        runs, row_bytes = Runs(layout, record.run_rows), sum(layout.row_bytes.values())
        check_space(self.folder, (record.rows - record.rows_sorted) * row_bytes)
        if not record.ranges:
            record = replace(record, ranges=runs.ranges_for(record.rows, self.memory))
        with (
            row_files(self.folder, layout, record.rows_sorted) as files,
            contextlib.closing(SpilledRows(self.folder / SPILL, runs, record.rows)) as spilled,
            Bar(self.progress, "sorting", record.rows * row_bytes, "B") as bar,
        ):
            bar.update(record.rows_sorted * row_bytes)
            for number in range(record.ranges_done, record.ranges):
                count, arrays = spilled.in_range(number, record.ranges)
                for name, rows in arrays:
                    files[name].append(rows)
                    files[name].sync()
                record = self._noted(replace(record, ranges_done=number + 1, rows_sorted=record.rows_sorted + count))
                bar.update(count * row_bytes)
            return self._noted(replace(record, checksums={name: file.sha256() for name, file in files.items()}))

    def _header(self, record: Record) -> Header:
        layout = self._layout(record)
        assert record.checksums is not None
        arrays = {
            name: ArrayEntry(dtype, layout.row_shapes[name], record.rows * layout.row_bytes[name], record.checksums[name])
            for name, dtype in layout.dtypes.items()
        }
        return Header(record.rows, arrays, self.seed)

    def _layout(self, record: Record) -> Layout:
        assert record.layout is not None
        return Layout.from_record(record.layout)

    def _noted(self, record: Record) -> Record:
        write_json(self.folder / PROGRESS, asdict(record))
        return record


def read_record(folder: Path) -> Record | None:
    """How far the conversion in a folder is, if there is one."""
    try:
        record = json.loads((folder / PROGRESS).read_bytes())
        return Record(**{**record, "parts": tuple(record["parts"])})
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def clear(folder: Path) -> None:
    """Remove what a conversion makes, the header first: without it nobody takes the rest for data."""
    (folder / HEADER).unlink(missing_ok=True)
    sync_folder(folder)
    for path in [*folder.glob("*.rows"), folder / SPILL, *folder.glob(draft_of(Path("*.json")).name), folder / PROGRESS]:
        path.unlink(missing_ok=True)


def differences(found: Record | None, call: dict[str, Any]) -> str:
    """What another call asked for, and what this one does."""
    if found is None:
        return "its record is missing or damaged"
    return "; ".join(
        f"{key} is {_short(call.get(key))}, there it was {_short(found.call.get(key))}"
        for key in dict.fromkeys([*call, *found.call])
        if call.get(key) != found.call.get(key)
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
