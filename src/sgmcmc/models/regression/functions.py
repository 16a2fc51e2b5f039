"""Functions that formulas may use, beside those of formulaic; and expressions of columns."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError, shortened
from sgmcmc.models.regression.expressions import check_expression
from sgmcmc.models.regression.sources import Frame


def _dates(values: Any) -> Any:
    import pandas

    return pandas.to_datetime(pandas.Series(values)).dt


def year(values: Any) -> np.ndarray:
    """The year of dates."""
    return _dates(values).year.to_numpy(float)


def month(values: Any) -> np.ndarray:
    """The month of dates, 1 to 12."""
    return _dates(values).month.to_numpy(float)


def weekday(values: Any) -> np.ndarray:
    """The day of the week of dates, 0 (Monday) to 6."""
    return _dates(values).dayofweek.to_numpy(float)


def days(values: Any) -> np.ndarray:
    """Days since 1 January 2000."""
    import pandas

    dates = pandas.to_datetime(pandas.Series(values))
    return ((dates - pandas.Timestamp("2000-01-01")) / pandas.Timedelta(days=1)).to_numpy(float)


DATE_FUNCTIONS = {"year": year, "month": month, "weekday": weekday, "days": days}
PLAIN = {
    **DATE_FUNCTIONS, "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "exp": np.exp, "sqrt": np.sqrt,
    "abs": np.abs, "minimum": np.minimum, "maximum": np.maximum, "where": np.where, "np": np, "I": np.asarray,
}  # fmt: skip

COMMON = ("C", "bs", "cr", "poly", "center", "scale", "log", "exp", "sqrt", "abs", "I", *DATE_FUNCTIONS)
ELSEWHERE = {"factor": "C", "s": "bs", "ns": "cr", "te": "bs", "ln": "log", "pow": "poly", "standardize": "scale"}
"""What functions of R, brms and bambi are called here."""


def evaluate(expression: str, block: Frame, what: str) -> np.ndarray:
    """An expression of columns, such as an offset: one number for each row."""
    plain, columns = _plain(expression, list(block.columns))
    values = {alias: block[name] if block[name].dtype.kind in "MO" else block[name].to_numpy() for alias, name in columns.items()}
    try:
        with np.errstate(all="ignore"):
            found = eval(plain, {"__builtins__": {}, **PLAIN}, values)
            return np.broadcast_to(np.asarray(found, np.float64), (len(block),))
    except Exception as error:
        raise InputError(f"{what} {expression!r} failed: {type(error).__name__}: {error}") from error


def columns_of(expression: str, names: list[str], what: str, functions: Collection[str] = PLAIN) -> list[str]:
    """The columns that an expression uses; an unknown name is refused."""
    plain, columns = _plain(expression, names)
    try:
        tree = ast.parse(plain, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else error
        raise InputError(f"{what} {shortened(expression, 80)!r} cannot be read: {why}") from error
    check_expression(tree, expression, what)
    called = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    if wrong := [name for name in called if name not in functions]:
        raise _unknown_function(wrong[0], functions, what)
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = [name for name in used if name in columns or name not in functions]
    for name in used:
        if name not in columns:
            raise unknown_name(name, names, what)
    return list(dict.fromkeys(columns[name] for name in used))


def unknown_name(name: str, names: list[str], what: str) -> InputError:
    """Of a name that is neither a column nor a function."""
    close = difflib.get_close_matches(name, names, 1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    shown = ", ".join(names[:15]) + (", ..." if len(names) > 15 else "")
    return InputError(f"{what} names {name!r}, which is no column of the frame and no function{guess} (columns: {shown})")


def _unknown_function(name: str, functions: Collection[str], what: str) -> InputError:
    """Of a name that is called and is no function."""
    close = [ELSEWHERE[name]] if name in ELSEWHERE else difflib.get_close_matches(name, [*COMMON, *functions], 1)
    guess = f"; did you mean {close[0]}()?" if close else ""
    known = ", ".join(one for one in COMMON if one in functions)
    return InputError(f"{what} names {name!r} as a function, which it is not{guess} (functions: {known}, ...)")


def _plain(expression: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """The expression with a plain word for every column in backticks, and the column for every word."""
    columns = {name: name for name in names if name.isidentifier()}

    def alias(found: re.Match[str]) -> str:
        if found[1] not in names:
            raise unknown_name(found[1], names, "formula")
        word = f"column_{names.index(found[1])}"
        columns[word] = found[1]
        return word

    return re.sub(r"`([^`]*)`", alias, expression).strip(), columns
