"""What is observed: columns of a frame as numbers that a family knows, checked row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.columns import DATE, TEXT, Levels
from sgmcmc.models.regression.facts import Facts
from sgmcmc.models.regression.families import Family
from sgmcmc.models.regression.families.base import Outcome
from sgmcmc.models.regression.formula import Parsed
from sgmcmc.models.regression.functions import evaluate
from sgmcmc.models.regression.predictor import STANDARD as STANDARD_Y
from sgmcmc.models.regression.sources import Frame

Columns = dict[str, np.ndarray]

RULES: dict[str, tuple[Any, str]] = {
    "positive": (lambda y: y > 0, "numbers above 0"),
    "count": (lambda y: (y >= 0) & (y == np.floor(y)), "whole numbers from 0"),
    "trials": (lambda y: (y >= 0) & (y == np.floor(y)), "whole numbers from 0"),
    "truth": (lambda y: (y == 0) | (y == 1), "0 and 1, truth values, or two levels"),
    "share": (lambda y: (y > 0) & (y < 1), "numbers between 0 and 1, both excluded"),
    "real": (np.isfinite, "finite numbers"),
}
"""What outcomes of a kind are, and in words."""


STANDARD = Outcome(0.0, 1.0)
"""Of an outcome in standard units."""


@dataclass(frozen=True)
class Response:
    """The outcome of a regression.

    Attributes:
        parsed: the formula.
        family: the family.
        levels: of classes, or of two levels; None for numbers.
        shift: taken off the outcome, which is then divided by `scale`.
        outcome: mean and standard deviation, in these units.
    """

    parsed: Parsed
    family: Family
    levels: Levels | None
    shift: float = 0.0
    scale: float = 1.0
    outcome: Outcome = STANDARD

    @property
    def classes(self) -> int:
        return 0 if self.levels is None or self.family.kind == "truth" else len(self.levels.labels)

    @property
    def said(self) -> str:
        """Which level counts, in a sentence."""
        if self.levels is None:
            return ""
        first, last, name = self.levels.labels[0], self.levels.labels[-1], self.levels.name
        if self.family.kind == "truth":
            return f"1 stands for {name} = {last!r}, 0 for {first!r}."
        order = (
            " < ".join(self.levels.labels) if self.family.ordered else f"against {first!r}: {', '.join(self.levels.labels[1:])}"
        )
        return f"The classes of {name} are {order}."

    def columns(self, block: Frame, first_row: int = 0) -> Columns:
        """The outcome of some rows, with trials or events."""
        y = self._checked(block, first_row)
        made = {"y": y}
        if (self.shift, self.scale) != (0.0, 1.0):
            made[STANDARD_Y] = (y - self.shift) / self.scale
        if self.parsed.form == "proportion":
            made["trials"] = self._trials(block, y, first_row)
        if self.parsed.form == "censored":
            made["event"] = self._event(block, first_row)
        return made

    def _checked(self, block: Frame, first_row: int) -> np.ndarray:
        if self.levels is not None:
            return self.levels.known_codes(block, first_row).astype(np.float64)
        y = evaluate(self.parsed.outcome, block, "outcome")
        allowed, words = RULES[self.family.kind]
        with np.errstate(invalid="ignore"):
            _refuse(
                ~(allowed(y) & np.isfinite(y)),
                y,
                first_row,
                self.parsed.outcome,
                f"the family {self.family.name!r} needs {words}",
            )
        return y

    def trials(self, block: Frame, first_row: int = 0) -> np.ndarray:
        """The trials alone, of rows to predict."""
        return self._trials(block, None, first_row)

    def _trials(self, block: Frame, y: np.ndarray | None, first_row: int) -> np.ndarray:
        name = self.parsed.second or ""
        trials = evaluate(name, block, "trials")
        _refuse(~((trials >= 0) & (trials == np.floor(trials))), trials, first_row, name, "trials are whole numbers from 0")
        if y is not None:
            _refuse(y > trials, y, first_row, self.parsed.outcome, f"it cannot be more than {name!r}, the trials")
        return trials

    def _event(self, block: Frame, first_row: int) -> np.ndarray:
        name = self.parsed.second or ""
        event = evaluate(name, block, "event")
        _refuse(~((event == 0) | (event == 1)), event, first_row, name, "an event is 1 where it happened, 0 where not by then")
        return event


def _refuse(bad: np.ndarray, values: np.ndarray, first_row: int, name: str, why: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{name!r} is {values[row]:.6g} in row {first_row + row + 1}; {why}")


def find_response(parsed: Parsed, family: Family, link: str, facts: Facts, intercept: bool) -> Response:
    """The outcome as the family wants it, with its mean and spread; an `intercept` makes up for a mean that is taken off."""
    _check_form(parsed, family)
    response = Response(parsed, family, _levels(parsed, family, facts))
    found = _of_sample(response, facts)
    y = found["y"]
    if response.classes:
        shares = np.bincount(y.astype(int), minlength=response.classes) / len(y)
        return Response(parsed, family, response.levels, outcome=Outcome(0.0, 1.0, tuple(np.maximum(shares, 1e-6).tolist())))
    if family.scaled and link == "identity":
        return _standardised(response, y, intercept)
    mean = float(y.sum() / found["trials"].sum()) if "trials" in found else float(y.mean())
    sd = float(y.std()) or 1.0
    return Response(parsed, family, response.levels, outcome=Outcome(_inside(mean, family, len(y)), sd))


def _of_sample(response: Response, facts: Facts) -> Columns:
    """The outcome of the sample. What is wrong is told with the number of its row, and so later where these are not all rows."""
    whole = facts.n_rows == len(facts.sample) and not facts.dropped
    if whole:
        return response.columns(facts.sample)
    rows, kept = facts.sample, np.ones(len(facts.sample), bool)
    if response.levels is None:
        allowed, _ = RULES[response.family.kind]
        with np.errstate(invalid="ignore"):
            y = evaluate(response.parsed.outcome, rows, "outcome")
            kept = allowed(y) & np.isfinite(y)
    return response.columns(rows[kept]) if kept.any() else {"y": np.ones(1), "trials": np.ones(1)}


def _standardised(response: Response, y: np.ndarray, intercept: bool) -> Response:
    sd = float(y.std())
    if sd <= 1e-12 * abs(float(y.mean())):
        raise InputError(f"{response.parsed.outcome!r} is {y[0]:.6g} in all rows; expected an outcome that varies")
    shift, scale = (float(y.mean()), sd) if intercept else (0.0, float(np.sqrt(np.mean(y**2))))
    return Response(response.parsed, response.family, None, shift, scale, Outcome(0.0, 1.0))


def _inside(mean: float, family: Family, count: int) -> float:
    """A mean away from where the link has no value."""
    least = 0.5 / (count + 1)
    if family.kind in ("truth", "trials", "share"):
        return min(max(mean, least), 1 - least)
    return max(mean, least) if family.kind in ("count", "positive") else mean


def _check_form(parsed: Parsed, family: Family) -> None:
    if (parsed.form == "proportion") != (family.kind == "trials"):
        if family.kind == "trials":
            raise InputError(f"the family 'binomial' needs trials: write proportion({parsed.outcome}, trials) left of ~")
        raise InputError(f"proportion() is for the family 'binomial'; the family is {family.name!r}")
    if parsed.form == "censored" and not family.censored:
        raise InputError(f"censored() is for the families 'exponential' and 'weibull'; the family is {family.name!r}")


def _levels(parsed: Parsed, family: Family, facts: Facts) -> Levels | None:
    """The levels of the outcome, where it has some."""
    name = parsed.outcome.strip("`")
    column = facts.columns.get(name)
    if column is not None and column.kind == DATE:
        raise InputError(f"the outcome {name!r} has dates; expected numbers, such as days({name})")
    text = column is not None and column.kind == TEXT
    if not text and family.kind not in ("class", "order"):
        return None
    levels = facts.levels.get((name,))
    if levels is None:
        raise InputError(f"the family {family.name!r} needs a column of classes left of ~; it has {parsed.outcome!r}")
    count = len(levels.labels)
    if family.kind not in ("class", "order", "truth"):
        raise InputError(f"the outcome {name!r} is text ({levels.labels[0]!r}, ...); the family {family.name!r} needs numbers")
    if count < 2 or (family.kind == "truth" and count > 2) or count > 1000:
        more = "; the family 'categorical' takes more" if 2 < count <= 1000 else ""
        wanted = "two" if family.kind == "truth" else "2 to 1000"
        raise InputError(f"the outcome {name!r} has {count:,} levels ({', '.join(levels.labels[:5])}); expected {wanted}{more}")
    return levels


def check_order(name: str, facts: Facts, told: bool) -> None:
    """Classes in an order must say which."""
    column = facts.columns[name]
    if column.kind == TEXT and not column.ordered and not told:
        labels = list(facts.levels[(name,)].labels)
        said = f"levels={{{name!r}: {labels[:4]!r}}}" if len(labels) <= 4 else f"levels={{{name!r}: [...]}}"
        raise InputError(f"the outcome {name!r} is text without an order; say {said}, the lowest first, or make it ordered")
