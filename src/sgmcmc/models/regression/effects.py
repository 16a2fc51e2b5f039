"""What a regression says on the scale of outcomes: rows of the frame with one column changed, averaged over rows and draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.models.regression.columns import DATE, NUMBER, TEXT
from sgmcmc.models.regression.functions import days
from sgmcmc.models.regression.sources import Frame

if TYPE_CHECKING:
    from sgmcmc.models.regression.result import Regression
    from sgmcmc.results.result import Result

QUANTILES = (0.05, 0.5, 0.95)

NUDGE = 0.05
"""Standard deviations of a column by which it is moved to see a slope; never beyond its ends, where splines have no value."""

MOST_COMPARED = 50
"""Levels that are compared unless they are named."""


def averages(fit: Regression, frame: Frame, draws: int) -> np.ndarray:
    """The expected outcome averaged over some rows, for every draw; of classes, their shares."""
    rows = fit.design.of_typed(frame, outcome=False)
    model = fit.inner.model
    assert model is not None
    each = fit.inner.predict(rows, "draws", function=model.mean, draws=draws, progress=False)
    return np.asarray(each, np.float64).mean(axis=1)


def levels_of(fit: Regression, column: str, asked: Sequence[Any] | None = None) -> list[Any]:
    """The levels of a column: those asked for, or all."""
    check_column(fit, column)
    if (column,) not in fit.design.facts.levels:
        kind = fit.design.facts.kind(column)
        if kind == NUMBER and set(np.unique(fit.design.facts.sample[column])) <= {0.0, 1.0}:
            return _zero_and_one(column, asked)
        instead = "dependence() for its course" if kind == DATE else "average_effects() for its slope"
        raise InputError(f"{column!r} is a {kind}; expected a column of levels, or {instead}")
    known = list(fit.design.facts.levels[(column,)].labels)
    for one in asked or []:
        if str(one) not in known:
            raise InputError(f"{column!r} has no level {one!r}; it has {', '.join(known[:12])}")
    chosen = known if asked is None else [str(one) for one in asked]
    if len(chosen) > MOST_COMPARED:
        raise InputError(f"{column!r} has {len(chosen):,} levels; name those to compare, at most {MOST_COMPARED}: levels=[...]")
    return chosen


def _zero_and_one(column: str, asked: Sequence[Any] | None) -> list[int]:
    """The levels of a column of 0 and 1."""
    for one in asked or ():
        if one not in (0, 1):
            raise InputError(f"{column!r} has no level {one!r}; it has 0, 1")
    return [0, 1] if asked is None else [int(one) for one in asked]


def check_column(fit: Regression, column: Any) -> None:
    """A column that the right-hand side uses."""
    known = [name for name in fit.design.needed if name not in fit.design.observed]
    if column not in known:
        raise InputError(f"column is {describe(column)}; expected one that the formula uses: {', '.join(known)}")


def with_value(fit: Regression, column: str, value: Any) -> Frame:
    """Rows of the frame with another value in a column."""
    frame = fit.design.facts.sample
    kind = fit.design.facts.kind(column)
    if kind == TEXT:
        return frame.assign(**{column: np.full(len(frame), value, object)})
    if kind == DATE:
        return frame.assign(**{column: np.full(len(frame), value.to_datetime64())})
    return frame.assign(**{column: float(value)})


def compared(fit: Regression, column: str, levels: Sequence[Any] | None, draws: int) -> Frame:
    """As `Regression.compare_levels` says."""
    import pandas

    chosen = levels_of(fit, column, levels)
    found = {level: averages(fit, with_value(fit, column, level), draws) for level in chosen}
    first = found[chosen[0]]
    parts = [_table(fit, level, found[level] - first, found[level]) for level in chosen]
    return pandas.concat(parts).rename_axis([column, *["class"] * (first.ndim - 1)] if first.ndim > 1 else column)


def with_columns(fit: Regression, columns: Sequence[str]) -> tuple[Result, list[str]]:
    """The result of `sample`, its model with rows of the frame that have these columns too, and what they are called there."""
    import pandas

    model, frame = fit.inner.model, fit.design.facts.sample
    assert model is not None
    rows, coords, names = dict(fit.design.of_typed(frame)), dict(model.coords or {}), list[str]()
    for column in columns:
        check_column(fit, column)
        name = column if column not in rows else f"column {column}"
        names.append(name)
        kind = fit.design.facts.kind(column)
        if kind == TEXT:
            codes, labels = pandas.factorize(frame[column], sort=True)
            rows[name], coords[name] = codes, list(labels)
        else:
            rows[name] = days(frame[column]) if kind == DATE else frame[column].to_numpy()
    return replace(fit.inner, model=replace(model, dataset=rows, coords=coords)), names


def slopes(fit: Regression, column: str, draws: int) -> Frame:
    """The average slope along a column of numbers, or of levels their differences from the first."""
    facts = fit.design.facts
    check_column(fit, column)
    numbers = facts.kind(column) == NUMBER and (column,) not in facts.levels
    if numbers and not set(np.unique(facts.sample[column])) <= {0.0, 1.0}:
        step = NUDGE * (facts.columns[column].sd or 1.0)
        low = facts.sample[column].sub(step).clip(facts.columns[column].low, facts.columns[column].high - 2 * step)
        ends = [averages(fit, facts.sample.assign(**{column: at}), draws) for at in (low, low + 2 * step)]
        return _table(fit, column, (ends[1] - ends[0]) / (2 * step))
    table = compared(fit, column, None, draws).drop(columns="expected")
    kept = table[table["sd"] > 0]
    return kept.set_axis([f"{column}[{':'.join(map(str, np.atleast_1d(place)))}]" for place in kept.index])


def dependence(fit: Regression, column: str, points: int, level: float, draws: int) -> Frame:
    """As `Regression.dependence` says."""
    import pandas

    facts = fit.design.facts
    check_column(fit, column)
    if facts.kind(column) == TEXT:
        grid: Any = levels_of(fit, column)
    elif facts.kind(column) == DATE:
        first, last = facts.sample[column].quantile([0.02, 0.98])
        grid = pandas.date_range(first, last, points).floor("D").unique()
    elif set(np.unique(facts.sample[column])) <= {0.0, 1.0}:
        grid = [0, 1]
    else:
        low, high = facts.sample[column].quantile([0.02, 0.98])
        grid = np.linspace(low, high, points) if (column,) not in facts.levels else sorted(facts.sample[column].unique())
    each = [averages(fit, with_value(fit, column, value), draws) for value in grid]
    tail = (1 - level) / 2
    parts = [(one.mean(axis=0), *np.quantile(one, (tail, 1 - tail), axis=0)) for one in each]
    if each[0].ndim == 1:
        return pandas.DataFrame(parts, index=pandas.Index(grid, name=column), columns=["mean", "lower", "upper"])
    index = pandas.MultiIndex.from_product([grid, fit.core.classes], names=[column, "class"])
    return pandas.DataFrame(np.concatenate([np.stack(part, axis=1) for part in parts]), index, ["mean", "lower", "upper"])


def _table(fit: Regression, label: Any, draws: np.ndarray, expected: np.ndarray | None = None) -> Frame:
    """Mean, sd and quantiles of some draws, in a line; of classes in a line each."""
    import pandas

    columns = {} if expected is None else {"expected": np.atleast_1d(expected.mean(axis=0))}
    columns |= {"mean": np.atleast_1d(draws.mean(axis=0)), "sd": np.atleast_1d(draws.std(axis=0, ddof=1))}
    columns |= {f"{q:.0%}": np.atleast_1d(np.quantile(draws, q, axis=0)) for q in QUANTILES}
    if draws.ndim == 1:
        return pandas.DataFrame(columns, index=[label])
    return pandas.DataFrame(columns, index=pandas.MultiIndex.from_product([[label], fit.core.classes]))


def with_effects(fit: Regression) -> list[str]:
    """Columns of the right-hand side that have a slope, or few levels."""
    facts, found = fit.design.facts, []
    for name in fit.design.needed:
        levels = facts.levels.get((name,))
        few = levels is None or len(levels.labels) <= MOST_COMPARED
        if name not in fit.design.observed and facts.kind(name) in (NUMBER, TEXT) and few:
            found.append(name)
    return found
