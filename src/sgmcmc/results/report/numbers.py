"""Which numbers of a result a page has room for: all of few, the worst of many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas

from sgmcmc.core.trees import PyTree
from sgmcmc.results import diagnostics
from sgmcmc.results.tables import COLUMNS, INFLATION, Summary, described
from sgmcmc.results.words import APART, FEW, OFF

if TYPE_CHECKING:
    from sgmcmc.results.result import Result

ALL, WORST = 100, 40
"""So many numbers are all shown; of more, so many of the worst."""

SMALL, FIRST = 12, 20
"""Parameters of at most so many numbers are shown whole before the worst of the others, so many numbers of them at most."""

TRACED = 6
"""Numbers whose traces are drawn."""

CANDIDATES = 100
"""Of very many numbers, those looked at closely."""


@dataclass(frozen=True)
class Numbers:
    """Some numbers of a result: `draws` are (chain, draw, number), `table` has a row for each, `total` is how many there are."""

    names: list[str]
    parameters: list[str]
    draws: np.ndarray
    table: pandas.DataFrame
    total: int
    weights: np.ndarray | None

    @property
    def complete(self) -> bool:
        """Whether these are all."""
        return len(self.names) == self.total

    def worst(self) -> list[int]:
        """Their places, worst first."""
        return np.argsort(-badness(self.table), kind="stable").tolist()

    def some(self, places: list[int]) -> Numbers:
        """Those at these places."""
        names, parameters = ([texts[i] for i in places] for texts in (self.names, self.parameters))
        return Numbers(names, parameters, self.draws[..., places], self.table.iloc[places], self.total, self.weights)


def shown(result: Result, draws: dict[str, np.ndarray]) -> Numbers:
    """Those that the page shows; `draws` are by parameter, with axes chain, draw, and the parameter's own."""
    total = sum(math.prod(array.shape[2:]) for array in draws.values())
    leading = [] if total <= ALL else _leading(result, draws)
    found = _of(result, draws, None if total <= ALL else _candidates(result, draws) | set(leading), total)
    if found.complete:
        return found
    first = [found.names.index(name) for name in leading]
    return found.some(first + [place for place in found.worst() if place not in first][: WORST - len(first)])


def badness(table: pandas.DataFrame) -> np.ndarray:
    """How near a number is to being flagged, by what is worst about it: 1 where it is."""
    apart = (table["r_hat"].to_numpy() - 1) / (APART - 1)
    few = FEW / np.maximum(table["ess"].to_numpy(), 1e-9)
    off = np.full(len(table), np.nan)
    if INFLATION[0] in table:
        value, error = (table[column].to_numpy() for column in INFLATION)
        off = (np.abs(value - 1) - 2 * error) / OFF
    return np.nan_to_num(np.stack([apart, few, off]), nan=0.0).max(axis=0)


def _of(result: Result, draws: dict[str, np.ndarray], chosen: set[str] | None, total: int) -> Numbers:
    names, parameters, columns = [], [], []
    for parameter, array in draws.items():
        flat = array.reshape(*array.shape[:2], -1)
        labels = result.names.labels(parameter, array.shape[2:])
        places = [i for i, label in enumerate(labels) if chosen is None or label in chosen]
        names += [labels[i] for i in places]
        parameters += [parameter] * len(places)
        columns.append(np.asarray(flat[..., places], np.float64))
    together = np.concatenate(columns, axis=-1)
    table = pandas.DataFrame(described(together, result.weights), names, list(COLUMNS))
    if result.diagnosable and result.pairs is not None:
        found = result.inflation()
        for column, values in zip(INFLATION, (found.value, found.error), strict=True):
            table[column] = pandas.Series(values, index=result.pairs.names).reindex(names)
    return Numbers(names, parameters, together, Summary(table), total, result.weights)


def _leading(result: Result, draws: dict[str, np.ndarray]) -> list[str]:
    """Names of the numbers of small parameters: what a model is about, beside its effects of groups."""
    small = [(name, array.shape[2:]) for name, array in draws.items() if math.prod(array.shape[2:]) <= SMALL]
    return [label for name, shape in small for label in result.names.labels(name, shape)][:FIRST]


def _candidates(result: Result, draws: PyTree) -> set[str]:
    """Names of numbers that mix slowly, and of those whose inflation is furthest from 1."""
    slow = [one for parameter, array in draws.items() for one in _slowness(result, parameter, array)]
    chosen = {name for _, name in sorted(slow, key=lambda one: -one[0])[:CANDIDATES]}
    if result.diagnosable and result.pairs is not None:
        found = result.inflation()
        beyond = np.nan_to_num(np.abs(found.value - 1) - 2 * found.error, nan=-np.inf)
        chosen |= {result.pairs.names[i] for i in np.argsort(-beyond, kind="stable")[: CANDIDATES // 2]}
    return chosen


def _slowness(result: Result, parameter: str, array: np.ndarray) -> Iterator[tuple[float, str]]:
    """The slowest numbers of a parameter, from every so-manyth draw where these are many."""
    thin = max(1, array.size // diagnostics.MOST_LOOKED_AT)
    flat = array[:, ::thin].reshape(len(array), -1, math.prod(array.shape[2:])).astype(np.float32)
    slowness = diagnostics.slowness(flat)
    labels = result.names.labels(parameter, array.shape[2:])
    for place in np.argsort(-slowness, kind="stable")[:CANDIDATES]:
        yield float(slowness[place]), labels[place]
