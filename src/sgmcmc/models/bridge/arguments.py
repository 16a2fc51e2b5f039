"""Columns of the data and the arguments of a model, matched by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sgmcmc.core.errors import InputError, describe


def check_arguments(model: Callable[..., Any], columns: Iterable[str], static: Mapping[str, Any]) -> None:
    """Refuse a model that cannot be called with these columns and constants by name."""
    parameters, columns = _parameters(model), tuple(columns)
    both = sorted({*columns} & {*static})
    if both:
        raise InputError(f"static and data both have {both[0]!r}; leave it out of static, which has what is no row data")
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    for one in parameters:
        if one.kind is one.POSITIONAL_ONLY:
            expected = "columns are matched by name: write the model without '/' in its signature"
            raise InputError(f"the model takes {one.name!r} by position only; {expected}")
    names = [one.name for one in named]
    takes = f"the model takes {', '.join(names) or 'nothing'}"
    unknown = [name for name in (*columns, *static) if name not in names and not takes_all]
    if unknown and unknown[0] in static:
        raise InputError(f"static has {unknown[0]!r}, and {takes}; leave it out")
    if unknown:
        repair = "leave it out of the data, or make it an argument of the model, with the name of the column"
        raise InputError(f"the data have a column {unknown[0]!r}, and {takes}; {repair}")
    missing = [one.name for one in named if one.default is one.empty and one.name not in (*columns, *static)]
    if missing:
        raise InputError(_missing(missing[0], columns))


def _parameters(model: Callable[..., Any]) -> list[inspect.Parameter]:
    if not callable(model):
        raise InputError(f"model is {describe(model)}; expected a NumPyro model, a function with sample statements")
    return list(inspect.signature(model).parameters.values())


def _missing(name: str, columns: tuple[str, ...]) -> str:
    listed = ", ".join(columns)
    here = f"a column of the data (which have {listed}) or of static={{{name!r}: ...}}, for what is no row data"
    together = ", ".join(f"{column!r}: {column}" for column in columns)
    return (
        f"the model takes {name!r}; expected {here}. One that takes all columns together: lambda {listed}: model({{{together}}})"
    )
