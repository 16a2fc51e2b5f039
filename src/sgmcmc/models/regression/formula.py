"""Formulas: what is observed, what it depends on, and what of that varies over groups."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sgmcmc.core.errors import InputError, describe

OPENING, CLOSING = "([{", ")]}"
QUOTES = "'\"`"
EXAMPLE = "'claims ~ age + C(region) + offset(log(exposure))'"


@dataclass(frozen=True)
class Grouping:
    """`(1 + x | region)`: what varies, over what, and whether its parts are correlated (`||` says no)."""

    varying: str
    by: tuple[str, ...]
    correlated: bool

    @property
    def name(self) -> str:
        return ":".join(self.by)


@dataclass(frozen=True)
class Parsed:
    """The parts of a formula.

    Attributes:
        text: all of it.
        outcome: what is observed.
        second: of `proportion(deaths, people)` the trials, of `censored(time, event)` the event.
        form: "plain", "proportion" or "censored".
        common: what is the same for all rows, as a right-hand side.
        offsets: what is added as it is.
        groupings: what varies over groups.
    """

    text: str
    outcome: str
    second: str | None
    form: str
    common: str
    offsets: tuple[str, ...]
    groupings: tuple[Grouping, ...]


def parse(text: object) -> Parsed:
    """The parts of a formula; refused where its shape is wrong."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"formula is {describe(text)}; expected a text such as {EXAMPLE}")
    sides = split(text, "~")
    if len(sides) != 2 or not sides[0].strip() or not sides[1].strip():
        raise InputError(f"formula {text!r} has {_found(sides)}; expected one ~ with something on either side, as in {EXAMPLE}")
    outcome, second, form = _outcome(sides[0].strip())
    common, offsets, groupings = [], [], []
    for sign, term in signed_terms(sides[1]):
        if (inside := _call(term, "offset")) is not None:
            offsets.append(_only(inside, sign, term))
        elif _in_brackets(term) and len(split(term[1:-1], "|")) > 1:
            groupings += _groupings(term[1:-1], sign)
        else:
            common.append(f"{sign} {term}")
    _check_groupings(groupings)
    return Parsed(text, outcome, second, form, " ".join(common).lstrip("+ ") or "1", tuple(offsets), tuple(groupings))


def split(text: str, sign: str) -> list[str]:
    """A text cut at a sign, but not inside brackets or quotes."""
    parts, start = [], 0
    for place in _outside(text):
        if text[place] == sign:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def signed_terms(text: str) -> list[tuple[str, str]]:
    """The terms of a right-hand side with their signs."""
    found, start, sign = [], 0, "+"
    for place in [*(i for i in _outside(text) if text[i] in "+-"), len(text)]:
        if term := text[start:place].strip():
            found.append((sign, term))
        elif start:
            raise InputError(f"formula has nothing between two signs, before {text[place:].strip()!r}; expected a term there")
        sign, start = text[place : place + 1], place + 1
    return found


def _outside(text: str) -> list[int]:
    """The places of a text that are in no brackets and no quotes."""
    found, open_, quote = [], list[str](), ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in QUOTES:
            quote = character
        elif character in OPENING:
            open_.append(CLOSING[OPENING.index(character)])
        elif character in CLOSING:
            if not open_ or open_.pop() != character:
                raise InputError(
                    f"formula {text!r} has a {character!r} too many, at place {place + 1}; expected pairs of brackets"
                )
        elif not open_:
            found.append(place)
    if open_ or quote:
        raise InputError(f"formula {text!r} ends before {(quote or open_[-1])!r}; close what was opened")
    return found


def _outcome(text: str) -> tuple[str, str | None, str]:
    """What is observed; with trials or an event."""
    for form in ("proportion", "censored"):
        if (inside := _call(text, form)) is not None:
            parts = [part.strip() for part in split(inside, ",")]
            if len(parts) != 2:
                both = "successes and trials" if form == "proportion" else "time and event"
                raise InputError(f"{form}() has {len(parts)} parts in {text!r}; expected {both}, as in {form}(a, b)")
            return parts[0], parts[1], form
    if len(signed_terms(text)) > 1:
        raise InputError(f"formula has several terms left of ~, {text!r}; expected one column, or I(a + b)")
    return text, None, "plain"


def _call(term: str, function: str) -> str | None:
    """What is inside of `function(...)`."""
    if not re.match(rf"{function}\s*\(", term) or not term.endswith(")"):
        return None
    return term[term.index("(") + 1 : -1].strip()


def _in_brackets(term: str) -> bool:
    return term.startswith("(") and term.endswith(")")


def _only(inside: str, sign: str, term: str) -> str:
    if sign == "-":
        raise InputError(f"formula takes {term} away; an offset is added: write offset(-({inside}))")
    if not inside:
        raise InputError("offset() is empty; expected a column or an expression, such as offset(log(exposure))")
    return inside


def _groupings(inside: str, sign: str) -> list[Grouping]:
    """Of `1 + x | region`, `1 | a/b` and `x || region`."""
    parts = split(inside, "|")
    correlated = len(parts) == 2
    varying, by = parts[0].strip(), parts[-1].strip()
    if sign == "-" or len(parts) > 3 or (len(parts) == 3 and parts[1].strip()) or not varying or not by:
        raise InputError(f"({inside}) is no varying effect; expected what varies and over what, such as (1 + x | region)")
    nested = [one.strip() for one in split(by, "/")]
    names = [tuple(part.strip() for one in nested[: n + 1] for part in split(one, ":")) for n in range(len(nested))]
    return [Grouping(varying, name, correlated) for name in names]


def _check_groupings(groupings: list[Grouping]) -> None:
    names = [grouping.name for grouping in groupings]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"formula varies twice over {twice!r}; put both into one, such as (1 + x | {twice}), or (1 + x || {twice})"
        )


def _found(sides: list[str]) -> str:
    if len(sides) != 2:
        return "no ~" if len(sides) == 1 else f"{len(sides) - 1} signs ~"
    empty = [side for side, part in zip(("left", "right"), sides, strict=True) if not part.strip()]
    return " and ".join(f"nothing to the {side} of ~" for side in empty)
