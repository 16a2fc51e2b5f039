"""Missing values: counted and named, and refused, dropped or filled as the user says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sgmcmc.core.errors import InputError, describe
from sgmcmc.models.regression.columns import NUMBER, TEXT, kind_of
from sgmcmc.models.regression.facts import Facts
from sgmcmc.models.regression.sources import Frame, Series, Source

DROP, REFUSE = "drop", "refuse"
MIDDLES = ("mean", "median")
EXPECTED = "'drop', or by column what to put there: {'age': 'median', 'region': 'unknown', 'bmi': 'drop'}"


@dataclass(frozen=True)
class Missing:
    """What to do about missing values.

    Attributes:
        drop: columns whose missing values drop the row.
        fill: what goes in their place, by column: a number, a level, "mean" or "median".
    """

    drop: tuple[str, ...] = ()
    fill: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Any, needed: list[str]) -> Missing:
        """What the user says, for the columns that are needed."""
        if told is None or told == REFUSE:
            return cls()
        if told == DROP:
            return cls(tuple(needed))
        if not isinstance(told, Mapping):
            raise InputError(f"missing is {describe(told)}; expected {EXPECTED}")
        unknown = next((name for name in told if name not in needed), None)
        if unknown is not None:
            raise InputError(f"missing names {unknown!r}, which the formula does not use; it uses {', '.join(needed)}")
        drop = tuple(str(name) for name, value in told.items() if value == DROP)
        return cls(drop, {str(name): value for name, value in told.items() if value not in (DROP, REFUSE)})

    def filled(self, block: Frame) -> Frame:
        """A block with values in place of those that are missing."""
        gaps = {name: value for name, value in self.fill.items() if name in block and block[name].isna().any()}
        if not gaps:
            return block
        made = block.copy()
        for name, value in gaps.items():
            made[name] = _filled(block[name], name, value)
        return made

    def settled(self, facts: Facts) -> Missing:
        """Means and medians as numbers."""
        found = dict(self.fill)
        for name, value in self.fill.items():
            if value in MIDDLES and facts.kind(name) == NUMBER:
                found[name] = facts.columns[name].mean if value == "mean" else float(facts.sample[name].median())
        return replace(self, fill=found)

    def check(self, facts: Facts, whole: int, observed: list[str]) -> None:
        """Refuse what is missing and neither dropped nor filled; nobody is told to make up what was to be observed."""
        missing = {
            name: column.missing
            for name, column in facts.columns.items()
            if column.missing and name not in self.drop and name not in self.fill
        }
        if missing:
            example = {name: "median" if facts.kind(name) == NUMBER else "unknown" for name in missing}
            example |= dict.fromkeys((name for name in observed if name in missing), DROP)
            if set(example.values()) == {DROP}:
                raise InputError(f"{told_counts(missing, whole)}; say missing='drop' to leave such rows out")
            raise InputError(f"{told_counts(missing, whole)}; say missing='drop', or what to put there: missing={example}")

    def refuse(self, block: Frame, first_row: int = 0) -> None:
        """Refuse what is missing in rows to predict."""
        missing = {name: int(block[name].isna().sum()) for name in block if block[name].isna().any()}
        if missing:
            name = next(iter(missing))
            row = first_row + int(block[name].isna().to_numpy().argmax())
            told = told_counts(missing, len(block))
            raise InputError(
                f"{told}, first in row {row + 1}; fill them, or fit with missing={{{name!r}: ...}}, which fills here too"
            )

    def said(self, facts: Facts) -> str:
        """In a sentence."""
        parts = [f"{facts.dropped:,} rows with missing values were dropped"] if facts.dropped else []
        counted = {name: self.fill[name] for name in self.fill if facts.columns[name].missing}
        parts += [f"{facts.columns[name].missing:,} missing values of {name} became {_short(v)}" for name, v in counted.items()]
        return "" if not parts else f"{'; '.join(parts)}."


def told_counts(missing: Mapping[str, int], whole: int) -> str:
    """How many values columns miss."""
    parts = ", ".join(f"{name!r} misses {count:,}" for name, count in missing.items())
    return f"of {whole:,} rows, {parts}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _filled(values: Series, name: str, value: Any) -> Series:
    kind = kind_of(values)
    if kind == NUMBER and value in MIDDLES:
        return values
    if kind == NUMBER and isinstance(value, str):
        raise InputError(f"missing[{name!r}] is {value!r}, but {name!r} has numbers; expected a number, 'mean' or 'median'")
    if kind == TEXT or kind is None:
        plain = values.astype(object)
        return plain.where(plain.notna(), value)
    return values.fillna(value)


def filling(source: Source, missing: Missing, counts: dict[str, int]) -> Source:
    """A source whose gaps are filled where what goes there is known; how many there were goes to `counts`."""

    def read(columns: list[str]) -> Iterator[Frame]:
        for block in source.blocks(columns):
            for name in missing.fill:
                if name in block:
                    counts[name] = counts.get(name, 0) + int(block[name].isna().sum())
            yield missing.filled(block)

    return Source(source.names, read, source.in_memory) if missing.fill else source
