"""One pass over a frame: what its columns hold, what is missing, which levels there are, and a sample of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.columns import (
    DATE,
    MOST_LEVELS,
    NUMBER,
    TEXT,
    Levels,
    as_kind,
    keys_of,
    kind_of,
    label_of,
    sorted_labels,
)
from sgmcmc.models.regression.sources import Frame, Series, Source

MOST_SAMPLED = 200_000
"""Rows from which knots of splines and the like are found: all rows, up to so many."""


@dataclass
class Column:
    """What a pass has found of a column; of numbers mean and variance, without those that are missing."""

    name: str
    kind: str | None = None
    missing: int = 0
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    order: tuple[str, ...] | None = None
    ordered: bool = False
    first_missing: int | None = None

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.squares / max(1, self.count - 1)))

    def add(self, values: Series, first_row: int) -> None:
        """Take a block in."""
        self._note_kind(kind_of(values), values, first_row)
        missing = values.isna().to_numpy()
        self.missing += int(missing.sum())
        if self.first_missing is None and missing.any():
            self.first_missing = first_row + int(np.argmax(missing))
        if self.kind == NUMBER and not missing.all():
            self._add_numbers(as_kind(values, NUMBER).to_numpy()[~missing], first_row)

    def _note_kind(self, kind: str | None, values: Series, first_row: int) -> None:
        if self.kind == NUMBER and kind in (TEXT, DATE):
            raise InputError(
                f"column {self.name!r} has numbers in its first rows and {kind} from row {first_row + 1} or later; "
                "mend these rows, or make all of it text before"
            )
        self.kind = self.kind or kind
        if hasattr(values.dtype, "categories"):
            self.order = tuple(map(label_of, values.dtype.categories))
            self.ordered = bool(values.dtype.ordered)

    def _add_numbers(self, numbers: np.ndarray, first_row: int) -> None:
        if not np.isfinite(numbers).all():
            row = first_row + int(np.argmin(np.isfinite(numbers)))
            raise InputError(f"column {self.name!r} is infinite near row {row + 1}; drop or mend such rows")
        n, mean = len(numbers), float(numbers.mean())
        total, shift = self.count + n, mean - self.mean
        self.squares += float(((numbers - mean) ** 2).sum()) + shift**2 * self.count * n / total
        self.mean += shift * n / total
        self.count, self.low, self.high = total, min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))


@dataclass
class Sample:
    """Rows at random out of a stream, as many as there is room for; in their order."""

    capacity: int
    seed: int = 0
    frames: list[Any] = field(default_factory=list)
    draws: list[np.ndarray] = field(default_factory=list)
    limit: float = 1.0
    beside: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def add(self, block: Frame) -> None:
        """Take a block in."""
        draws = self.rng.random(len(block))
        chosen = draws < self.limit
        self.frames.append(block[chosen])
        self.draws.append(draws[chosen])
        if sum(map(len, self.draws)) > 2 * self.capacity:
            self._thin()

    def _thin(self) -> None:
        import pandas

        draws = np.concatenate(self.draws)
        if len(draws) > self.capacity:
            self.limit = float(np.partition(draws, self.capacity)[self.capacity])
        kept = draws < self.limit
        self.frames, self.draws = [pandas.concat(self.frames, ignore_index=True)[kept]], [draws[kept]]

    def rows(self) -> Frame:
        """The sample."""
        self._thin()
        return self.frames[0].reset_index(drop=True)


@dataclass(frozen=True)
class Facts:
    """What a pass has found.

    Attributes:
        n_rows: rows, without those that were dropped.
        dropped: rows that were.
        columns: by name.
        levels: by the columns they are of.
        counts: how many rows each level has.
        sample: rows at random, columns as their kinds have them.
        corners: rows beside, that have every level and the ends of every column, where the sample is not all rows.
    """

    n_rows: int
    dropped: int
    columns: dict[str, Column]
    levels: dict[tuple[str, ...], Levels]
    counts: dict[tuple[str, ...], np.ndarray]
    sample: Any
    corners: Any

    def kind(self, name: str) -> str:
        return self.columns[name].kind or NUMBER

    def typed(self, block: Frame) -> Frame:
        """A block with its columns as their kinds have them."""
        import pandas

        return pandas.DataFrame({name: as_kind(block[name], self.kind(name)) for name in block.columns})


def look(
    source: Source,
    needed: list[str],
    keyed: Sequence[tuple[str, ...]],
    drop: Sequence[str] = (),
    order: dict[str, tuple[str, ...]] | None = None,
    dates: Sequence[str] = (),
) -> Facts:
    """One pass over the columns that are needed. Rows without a value in one of `drop` are left out; levels are those of text
    columns, but for `dates`, and of what is `keyed`.
    """
    columns = {name: Column(name) for name in needed}
    counted: dict[tuple[str, ...], Any] = {tuple(by): None for by in keyed}
    sample, first_row, n_rows = Sample(MOST_SAMPLED), 0, 0
    for raw in source.blocks(needed):
        kept = raw if not drop else raw[raw[list(drop)].notna().all(axis=1)]
        for name in needed:
            columns[name].add(raw[name], first_row) if name in drop else columns[name].add(kept[name], first_row)
        for name in needed:
            if columns[name].kind == TEXT and name not in dates:
                counted.setdefault((name,), None)
        sample.beside.append(_corners(kept, columns, counted))
        sample.add(kept)
        first_row, n_rows = first_row + len(raw), n_rows + len(kept)
    if n_rows == 0:
        raise InputError(f"the frame has no rows{' without missing values' if first_row else ''}; expected at least one")
    return _facts(columns, counted, sample, n_rows, first_row - n_rows, order or {})


def _corners(block: Frame, columns: dict[str, Column], counted: dict[tuple[str, ...], Any]) -> Frame:
    """Count levels; rows with a level that was not seen before, or the least or largest number of a column."""
    import pandas

    places = set[int]()
    for by, before in counted.items():
        keys = pandas.Series(keys_of(block, by)).dropna()
        counts = keys.value_counts(sort=False)
        new = counts.index if before is None else counts.index.difference(before.index, sort=False)
        if len(new):
            places.update(keys.drop_duplicates().loc[lambda k, new=new: k.isin(new)].index)
        counted[by] = counts if before is None else before.add(counts, fill_value=0)
        if len(counted[by]) > MOST_LEVELS:
            raise InputError(f"{':'.join(by)!r} has more than {MOST_LEVELS:,} levels; is it an identifier of rows? leave it out")
    for name, column in columns.items():
        if column.kind == NUMBER and block[name].notna().any():
            numbers = as_kind(block[name], NUMBER).to_numpy()
            places.update((int(np.nanargmin(numbers)), int(np.nanargmax(numbers))))
    return block.iloc[sorted(places)]


def _facts(
    columns: dict[str, Column],
    counted: dict[tuple[str, ...], Any],
    sample: Sample,
    n_rows: int,
    dropped: int,
    order: dict[str, Any],
) -> Facts:
    import pandas

    levels, counts = {}, {}
    for by, found in counted.items():
        one = by[0] if len(by) == 1 else None
        wanted = None if one is None else order.get(one, columns[one].order)
        labels = sorted_labels([] if found is None else list(found.index), wanted)
        if one in order and (extra := [label for label in labels if label not in order[one]]):
            raise InputError(f"levels[{one!r}] does not have {extra[0]!r}, which the frame has; name all of its levels")
        levels[by] = Levels(by, labels)
        counts[by] = np.zeros(0, int) if found is None else found.reindex(list(labels)).to_numpy(int)
    made = Facts(n_rows, dropped, columns, levels, counts, None, None)
    corners = pandas.concat(sample.beside, ignore_index=True) if n_rows > sample.capacity else sample.beside[0].iloc[:0]
    return Facts(n_rows, dropped, columns, levels, counts, made.typed(sample.rows()), made.typed(corners))
