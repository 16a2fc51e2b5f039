"""Tables of numbers: what is worked out of draws, and how much of it is worth printing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas

from sgmcmc.core.errors import shortened_inside
from sgmcmc.core.html import Markup, element
from sgmcmc.results import diagnostics
from sgmcmc.results.diagnostics import QUANTILES

WIDTH = 100
"""Columns of a terminal."""

COLUMNS = ("mean", "sd", "mcse", *(f"{q:.0%}" for q in QUANTILES), "ess", "r_hat")
LIKE_THE_MEAN = ("mean", "sd", *COLUMNS[3:6])
"""Columns in the units of the number, of which digits beyond the standard deviation's third say nothing."""

INFLATION = ("inflation", "inflation_se")
FORMATS = {"ess": ",.0f", "r_hat": ".3f", "mcse": ".2g"}
LEAST_NAME = 12
"""Letters of a name that are shown at least."""

MOST_DECIMALS, LARGEST = 7, 1e9
"""Beyond these a number is written with a power of ten."""


def described(draws: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """A row of `COLUMNS` for every number of (chain, draw, number)."""
    middle, error = diagnostics.weighted_mean_sd(draws, weights), diagnostics.standard_error(draws.astype(np.float64))
    return np.stack([*middle, error, *diagnostics.weighted_quantiles(draws, weights), *diagnostics.mixing(draws)], axis=1)


class Summary(pandas.DataFrame):
    """A table of pandas that prints whole: rounded to what the standard deviations say, at most 100 columns wide."""

    @property
    def _constructor(self) -> Callable[..., pandas.DataFrame]:  # pyright: ignore[reportIncompatibleMethodOverride]: as pandas allows
        return _summary

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> Markup:  # pyright: ignore[reportIncompatibleMethodOverride]: a string all the same
        return as_html(self)


def _summary(*args: Any, **kwargs: Any) -> pandas.DataFrame:
    """What is made of a summary: one again if it still has the columns, such as a few rows of it, else a plain table."""
    table = pandas.DataFrame(*args, **kwargs)
    whole = isinstance(table.columns, pandas.Index) and set(COLUMNS) <= set(table.columns)
    return Summary(table) if whole and table.columns.is_unique else table


def cells(table: pandas.DataFrame, digits: int = 3) -> tuple[list[str], list[list[str]]]:
    """Headings, and for every row its texts, to so many digits of the standard deviation; an inflation stands with its error."""
    headings = [name for name in table.columns if name != INFLATION[1]]
    values = table.to_dict("list")
    errors = values.get(INFLATION[1], [math.nan] * len(table))
    columns = [
        [_cell(name, *three, digits) for three in zip(values[name], values["sd"], errors, strict=True)] for name in headings
    ]
    return headings, [list(row) for row in zip(*columns, strict=True)]


def _cell(column: str, value: Any, sd: float, error: float, digits: int) -> str:
    if not isinstance(value, float | int) or not math.isfinite(value):
        return "–" if value != value else str(value)
    if column in LIKE_THE_MEAN:
        return _to_digits_of(value, sd, digits)
    if column == INFLATION[0]:
        return f"{value:.2f} ± {error:.2f}"
    return f"{value:{FORMATS.get(column, '.6g')}}"


def _to_digits_of(value: float, sd: float, digits: int) -> str:
    """A value to a standard deviation's first digits."""
    if not (math.isfinite(sd) and sd > 0):
        return f"{value:.6g}"
    place = digits - 1 - math.floor(math.log10(sd))
    if place <= MOST_DECIMALS and abs(value) < LARGEST:
        return f"{value:.{max(place, 0)}f}"
    power = place + math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{min(max(power, 0), 16)}e}"


def as_text(table: pandas.DataFrame, width: int = WIDTH) -> str:
    """The whole table, at most so many columns wide; names that are too long lose their middle."""
    longest = max((len(str(name)) for name in table.index), default=0)
    for digits in (3, 2):
        headings, rows = cells(table, digits)
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        room = width - sum(widths) - 2 * len(widths)
        if longest <= room:
            break
    names = [shortened_inside(str(name), max(room, LEAST_NAME)) for name in table.index]
    first = max(map(len, names), default=0)
    lines = [[" " * first, *headings]] + [[name.ljust(first), *row] for name, row in zip(names, rows, strict=True)]
    return "\n".join("  ".join([line[0], *map(str.rjust, line[1:], widths)]) for line in lines)


def as_html(table: pandas.DataFrame) -> Markup:
    """The whole table."""
    headings, rows = cells(table)
    head = element("tr", element("th"), *(element("th", name, scope="col") for name in headings))
    return element("table", element("thead", head), element("tbody", *map(_row, table.index, rows)))


def _row(name: str, texts: Sequence[str]) -> Markup:
    return element("tr", element("th", name, scope="row"), *(element("td", text, style="text-align: right") for text in texts))
