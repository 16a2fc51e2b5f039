"""A regression's rows: from blocks of a frame to arrays, the same for old data and new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Rows
from sgmcmc.models.regression.columns import TEXT, Levels
from sgmcmc.models.regression.facts import Facts
from sgmcmc.models.regression.formula import Grouping
from sgmcmc.models.regression.functions import columns_of, evaluate
from sgmcmc.models.regression.matrix import MOST_SPREAD, Matrix, factors_of, fit_matrix, level_column, terms_of
from sgmcmc.models.regression.missing import Missing
from sgmcmc.models.regression.response import Response
from sgmcmc.models.regression.sources import Frame, Source, find_source

MOST_KEPT = 2_000
"""Rows of the frame that a result keeps, for effects and pictures."""


@dataclass(frozen=True)
class Coded:
    """A term of many levels: rows have the number of theirs, the first is the baseline."""

    name: str
    levels: Levels

    @property
    def rows_name(self) -> str:
        return f"level of {self.levels.name}"


@dataclass(frozen=True)
class Varying:
    """Effects of the levels of a grouping: an intercept of each, slopes of each, or both."""

    grouping: Grouping
    levels: Levels
    matrix: Matrix
    centred: bool
    rows_each: float

    @property
    def name(self) -> str:
        return self.grouping.name

    @property
    def parts(self) -> tuple[str, ...]:
        """What varies, the intercept as "1"."""
        return (("1",) if self.matrix.intercept else ()) + self.matrix.names

    @property
    def correlated(self) -> bool:
        return self.grouping.correlated and len(self.parts) > 1

    @property
    def rows_name(self) -> str:
        return f"group of {self.name}"

    @property
    def slopes_name(self) -> str:
        return f"slopes of {self.name}"


@dataclass(frozen=True)
class Design:
    """How rows of a frame become rows of the model."""

    matrix: Matrix
    coded: tuple[Coded, ...]
    varying: tuple[Varying, ...]
    offsets: tuple[str, ...]
    response: Response
    weights: str | None
    missing: Missing
    facts: Facts
    needed: tuple[str, ...]
    observed: tuple[str, ...] = field(default=())

    def rows(self, block: Frame, first_row: int = 0, outcome: bool = True) -> Rows:
        """The arrays of some rows; for rows to predict without the outcome."""
        return self.of_typed(self.typed(block, first_row), first_row, outcome)

    def typed(self, block: Frame, first_row: int = 0) -> Frame:
        """A block without gaps, its columns as their kinds have them."""
        filled = self.missing.filled(block[[name for name in self.needed if name in block]])
        self.missing.refuse(filled, first_row)
        return self.facts.typed(filled)

    def of_typed(self, block: Frame, first_row: int = 0, outcome: bool = True) -> Rows:
        """The same of a block that was looked at before."""
        made: dict[str, Any] = {}
        if self.matrix.width:
            made["x"] = self.matrix.of(block, first_row)
        for coded in self.coded:
            made[coded.rows_name] = coded.levels.known_codes(block, first_row)
        for one in self.varying:
            made[one.rows_name] = one.levels.codes(block)
            if one.matrix.width:
                made[one.slopes_name] = one.matrix.of(block, first_row)
        if self.offsets:
            made["offset"] = sum(self._offset(text, block, first_row) for text in self.offsets) / self.response.scale
        made |= self._outcome(block, first_row) if outcome else self._trials(block, first_row)
        return {name: _plain(values) for name, values in made.items()}

    def _offset(self, text: str, block: Frame, first_row: int) -> np.ndarray:
        values = evaluate(text, block, "offset")
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise InputError(f"offset({text}) is {values[row]} in row {first_row + row + 1}; expected a finite number")
        return values

    def _outcome(self, block: Frame, first_row: int) -> dict[str, np.ndarray]:
        made = self.response.columns(block, first_row)
        if self.weights is not None:
            made["weight"] = self._weights(block, first_row)
        return made

    def _weights(self, block: Frame, first_row: int) -> np.ndarray:
        weights = evaluate(self.weights or "", block, "weights")
        if not (np.isfinite(weights) & (weights >= 0)).all():
            row = int(np.argmin(np.isfinite(weights) & (weights >= 0)))
            raise InputError(f"weights {self.weights!r} is {weights[row]:.6g} in row {first_row + row + 1}; expected 0 or more")
        return weights

    def _trials(self, block: Frame, first_row: int) -> dict[str, np.ndarray]:
        return {"trials": self.response.trials(block, first_row)} if self.response.parsed.form == "proportion" else {}

    def blocks(self, source: Source, outcome: bool = True, first_row: int = 0) -> Iterator[Rows]:
        """All rows of a source, without those that are dropped; of rows to predict none is dropped."""
        for raw in source.blocks(list(self.needed if outcome else self.predicting(source.names))):
            drop = list(self.missing.drop)
            kept = raw[raw[drop].notna().all(axis=1)] if drop and outcome else raw
            if len(kept):
                yield self.rows(kept.reset_index(drop=True), first_row, outcome)
            first_row += len(raw)

    def dataset(self, new: Any) -> Rows:
        """All rows of a frame with their outcomes, in memory."""
        source = find_source(new)
        if absent := [name for name in self.needed if name not in source.names]:
            raise InputError(f"the new frame has no column {absent[0]!r}; it needs {', '.join(self.needed)}")
        parts = list(self.blocks(source))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def predicting(self, names: list[str]) -> list[str]:
        """The columns that rows to predict must have; one that is not there is refused."""
        wanted = [name for name in self.needed if name not in self.observed]
        absent = next((name for name in wanted if name not in names), None)
        if absent is not None:
            raise InputError(f"the new frame has no column {absent!r}; it needs {', '.join(wanted)}")
        return wanted

    def kept(self) -> Design:
        """The same, with a few of the rows only."""
        few = self.facts.sample
        if len(few) > MOST_KEPT:
            few = few.sample(MOST_KEPT, random_state=0).sort_index().reset_index(drop=True)
        return replace(self, facts=replace(self.facts, sample=few, corners=few.iloc[:0]))


def _plain(values: np.ndarray) -> np.ndarray:
    """As models want them: whole numbers of 32 bits, floats of the default type."""
    dtype = np.int32 if values.dtype.kind == "i" else jax.dtypes.canonicalize_dtype(np.float64)
    return np.ascontiguousarray(values, dtype)


def common_parts(terms: list[Any], facts: Facts, spread: bool = True) -> tuple[Matrix, tuple[Coded, ...]]:
    """The matrix of what is common, and apart from it terms of many levels, of which no other term has a part."""
    factors = [factors_of(term) for term in terms]
    intercept = any(not one for one in factors)
    coded, left = [], []
    for term, own in zip(terms, factors, strict=True):
        levels = _levels_of(own, facts)
        alone = sum(own[0] in others for others in factors) == 1 if own else False
        if spread and levels is not None and intercept and alone and len(levels.labels) > MOST_SPREAD:
            coded.append(Coded(str(term), levels))
        else:
            left.append(term)
    return fit_matrix(left, facts), tuple(coded)


def _levels_of(factors: list[str], facts: Facts) -> Levels | None:
    """Of a term that is one column of levels."""
    if len(factors) != 1:
        return None
    name = factors[0].strip("`")
    if name in facts.columns and facts.kind(name) == TEXT:
        return facts.levels.get((name,))
    column = level_column(factors[0])
    return facts.levels.get((column,)) if column and factors[0] == f"C({column})" else None


ENOUGH_EACH = 30.0
"""Rows of the middle group from which effects are written centred."""


def varying_parts(groupings: tuple[Grouping, ...], facts: Facts) -> tuple[Varying, ...]:
    """What varies over groups, and how it is written: with many rows each as the effects themselves, else as multiples of their
    scale.
    """
    made = []
    for grouping in groupings:
        levels, counts = facts.levels[grouping.by], facts.counts[grouping.by]
        if len(levels.labels) < 2:
            raise InputError(
                f"({grouping.varying} | {grouping.name}): {grouping.name!r} has one level; leave it out of the formula"
            )
        matrix = fit_matrix(terms_of(grouping.varying), facts)
        middle = float(np.median(counts))
        made.append(Varying(grouping, levels, matrix, middle >= ENOUGH_EACH, middle))
        if not made[-1].parts:
            raise InputError(f"({grouping.varying} | {grouping.name}) varies nothing; write (1 | {grouping.name})")
    return tuple(made)


def check_levels(told: Any, names: list[str]) -> dict[str, tuple[str, ...]]:
    """`levels=` as it may be."""
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise InputError(f"levels is {told!r}; expected levels by column, in their order, such as {{'grade': ['low', 'high']}}")
    unknown = next((name for name in told if name not in names), None)
    if unknown is not None:
        raise InputError(f"levels names {unknown!r}, which the formula does not use; it uses {', '.join(names)}")
    return {str(name): tuple(map(str, labels)) for name, labels in told.items()}


def expression_columns(expressions: Mapping[str, str], names: list[str]) -> list[str]:
    """The columns of the outcome, offsets and weights."""
    return [column for what, text in expressions.items() for column in columns_of(text, names, what)]
