"""Columns of a frame as regressions use them: numbers, texts with levels, dates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError, shortened
from sgmcmc.models.regression.sources import Frame, Series

NUMBER, TEXT, DATE = "number", "text", "date"

INFERRED = {
    "boolean": NUMBER,
    "integer": NUMBER,
    "floating": NUMBER,
    "decimal": NUMBER,
    "mixed-integer-float": NUMBER,
    "date": DATE,
    "datetime": DATE,
    "datetime64": DATE,
}
"""Of columns of Python objects, by what pandas says is in them; all else is text."""

MOST_LEVELS = 5_000_000


def kind_of(values: Series) -> str | None:
    """What a column holds; None where there is nothing but missing values."""
    import pandas
    from pandas.api import types

    if isinstance(values.dtype, pandas.CategoricalDtype):
        return TEXT
    if types.is_bool_dtype(values.dtype) or types.is_numeric_dtype(values.dtype):
        return None if values.isna().all() else NUMBER
    if types.is_datetime64_any_dtype(values.dtype):
        return DATE
    found = types.infer_dtype(values, skipna=True)
    return None if found == "empty" else INFERRED.get(found, TEXT)


def as_kind(values: Series, kind: str) -> Series:
    """A column as its kind has it: float64 (missing ones NaN), text, or dates."""
    import pandas

    if kind == NUMBER:
        return pandas.Series(_numbers(values), index=values.index, name=values.name)
    if kind == DATE:
        dates = _dates(values)
        return dates.dt.tz_localize(None) if dates.dt.tz is not None else dates
    return as_text(values)


def _dates(values: Series) -> Series:
    import pandas

    try:
        return pandas.to_datetime(values)
    except (TypeError, ValueError):
        made: Series = pandas.to_datetime(values, errors="coerce")
        wrong = values[made.isna() & values.notna()]
        found = "" if wrong.empty else f": {wrong.iloc[0]!r} in row {int(wrong.index[0]) + 1}"
        raise InputError(f"column {values.name!r} has dates in the fit, and here what is none{found}; expected dates") from None


def _numbers(values: Series) -> np.ndarray:
    import pandas

    try:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        made: Series = pandas.to_numeric(values, errors="coerce")
        wrong = values[made.isna() & values.notna()]
        found = "" if wrong.empty else f": {wrong.iloc[0]!r} in row {int(wrong.index[0]) + 1}"
        raise InputError(f"column {values.name!r} has numbers in the fit, and text here{found}; expected numbers") from None


def as_text(values: Series) -> Series:
    """Text as it is read; whole numbers without a point; missing values stay missing."""
    import pandas

    if isinstance(values.dtype, pandas.CategoricalDtype):
        labels = [label_of(one) for one in values.cat.categories]
        return pandas.Series(np.asarray([*labels, None], object)[values.cat.codes], index=values.index, name=values.name)
    if pandas.api.types.is_numeric_dtype(values.dtype):
        found, unique = pandas.factorize(values)
        return pandas.Series(np.asarray([*map(label_of, unique), None], object)[found], index=values.index, name=values.name)
    texts = values.astype(object)
    return texts.where(texts.isna(), texts.map(label_of)) if not _all_text(texts) else texts


def _all_text(values: Any) -> bool:
    from pandas.api.types import infer_dtype

    return infer_dtype(values, skipna=False) == "string"


def label_of(value: Any) -> str:
    """What a level is called: 2001 also where it was read as 2001.0."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


@dataclass(frozen=True)
class Levels:
    """The levels of one column, or of several together, in their order."""

    by: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        return ":".join(self.by)

    def codes(self, block: Frame) -> np.ndarray:
        """The number of every row's level; -1 for one that is not among them."""
        import pandas

        return pandas.Index(self.labels, dtype=object).get_indexer(pandas.Index(keys_of(block, self.by))).astype(np.int32)

    def known_codes(self, block: Frame, first_row: int = 0) -> np.ndarray:
        """The same; a level that is not among them is refused."""
        codes = self.codes(block)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise self.unseen(keys_of(block.iloc[row : row + 1], self.by)[0], first_row + row)
        return codes

    def unseen(self, label: str, row: int) -> InputError:
        """Of a level that the fit has not seen."""
        known = shortened(", ".join(self.labels[:12]) + (", ..." if len(self.labels) > 12 else ""), 80)
        remedy = f"drop such rows, or let it vary: (1 | {self.name}) draws new levels from the population"
        return InputError(f"{self.name!r} is {label!r} in row {row + 1}, a level that the fit has not seen ({known}); {remedy}")


def keys_of(block: Frame, by: Sequence[str]) -> np.ndarray:
    """What tells levels apart: the text of a column, or of several with colons between."""
    texts = [as_text(block[name]).to_numpy(object) for name in by]
    whole = texts[0]
    for more in texts[1:]:
        whole = whole + ":" + more
    return whole


def sorted_labels(labels: Sequence[str], order: Sequence[str] | None = None) -> tuple[str, ...]:
    """In a given order, else as numbers where all of them are, else by the alphabet."""
    if order is not None:
        place = {label: number for number, label in enumerate(order)}
        return tuple(sorted(labels, key=lambda label: place.get(label, len(place))))
    try:
        return tuple(sorted(labels, key=float))
    except ValueError:
        return tuple(sorted(labels))
