"""What the command line tells of a regression, as arguments of `glm`; and its summary, as text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.laws import said_law
from sgmcmc.models.regression.missing import DROP

if TYPE_CHECKING:
    from sgmcmc.models.regression.result import Regression

MOST_SHOWN = 40
"""Numbers in a terminal's summary; the page has all that matter."""


def files(told: Sequence[str]) -> Any:
    """One path, or several."""
    return told[0] if len(told) == 1 else list(told)


def missing(told: Sequence[str]) -> Any:
    """`drop`, or `age=median` and its like."""
    if not told or tuple(told) == (DROP,):
        return DROP if told else None
    return {name: _number(value) for name, value in (_pair("missing", one, "drop, or age=median") for one in told)}


def levels(told: Sequence[str]) -> Any:
    """`grade=low,middle,high`."""
    pairs = (_pair("levels", one, "grade=low,middle,high") for one in told)
    return {name: text.split(",") for name, text in pairs} or None


def priors(told: Sequence[str]) -> dict[str, Any] | None:
    """`age=Normal(0, 0.1)`."""
    return dict(map(said_law, told)) or None


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise InputError(f"--{option} {text!r} is not understood; expected {example}")
    return name, value


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def summary(fit: Regression) -> str:
    """The first numbers of a regression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = fit.summary(max_rows=MOST_SHOWN)
    total = sum(int(draws[0, 0].size) for draws in fit.values())
    more = f"\n{total - len(table):,} more numbers are in summary()" if total > len(table) else ""
    return f"{table.iloc[:, :8].to_string(float_format='{:.4g}'.format)}{more}"
