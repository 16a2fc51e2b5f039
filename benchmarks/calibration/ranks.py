"""Ranks of the truth among posterior draws, and whether they are uniform: χ² over bins, a band for their distribution function.

Under a right sampler each rank is uniform on 0, ..., DRAWS. Both tests know their laws by simulation, for as many ranks as there
are, and share one rate of false alarms over all parameters of all models.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import binom

DRAWS, BINS = 99, 20
"""Draws that a rank is taken among, and the bins of the χ² test: five ranks in each."""

FALSE_ALARMS = 0.01
"""The chance that any of the tests, two for each parameter, fails though all ranks are uniform."""

SIMULATED, AT_ONCE = 400_000, 20_000
"""Sets of uniform ranks behind the laws of the tests, and so many in memory."""


def thinned(draws: np.ndarray, count: int = DRAWS) -> np.ndarray:
    """Evenly spaced ones of (chain, draw), over all chains."""
    flat = np.asarray(draws).ravel()
    return flat[np.linspace(0, len(flat) - 1, count).round().astype(int)]


def rank(draws: np.ndarray, truth: float) -> int:
    """How many of the thinned draws lie below the truth."""
    return int((thinned(draws) < truth).sum())


def level(tests: int, rate: float = FALSE_ALARMS) -> float:
    """Of each of so many independent tests, that together fail falsely at the rate."""
    return float(-np.expm1(np.log1p(-rate) / tests))


def counted(ranks: np.ndarray) -> np.ndarray:
    """How many ranks have each value."""
    return np.bincount(np.asarray(ranks, int), minlength=DRAWS + 1)


def chi_squared(counts: np.ndarray) -> np.ndarray:
    """Of counts by rank, on the last axis."""
    binned = counts.reshape(*counts.shape[:-1], BINS, -1).sum(axis=-1)
    expected = binned.sum(axis=-1, keepdims=True) / BINS
    return ((binned - expected) ** 2 / expected).sum(axis=-1)


@lru_cache
def _tails(n: int) -> np.ndarray:
    """Of the number of n ranks below each value: the smaller of the chances of at most, and of at least, so many."""
    chance, number = np.arange(1, DRAWS + 1)[:, None] / (DRAWS + 1), np.arange(n + 1)
    return np.minimum(binom.cdf(number, n, chance), binom.sf(number - 1, n, chance))


def departure(counts: np.ndarray) -> np.ndarray:
    """The least likely value of the distribution function anywhere: the smallest of the tails."""
    n = int(counts[..., :].sum(axis=-1).ravel()[0])
    below = np.cumsum(counts, axis=-1)[..., :-1]
    return _tails(n)[np.arange(DRAWS), below].min(axis=-1)


@dataclass(frozen=True)
class Laws:
    """Sorted values of both statistics under uniform ranks."""

    chi_squared: np.ndarray
    departure: np.ndarray

    def p_chi_squared(self, counts: np.ndarray) -> float:
        return _share(len(self.chi_squared) - np.searchsorted(self.chi_squared, chi_squared(counts)), len(self.chi_squared))

    def p_departure(self, counts: np.ndarray) -> float:
        return _share(np.searchsorted(self.departure, departure(counts), side="right"), len(self.departure))

    def tail(self, level: float) -> float:
        """What the smallest tail falls below with a chance of at most `level`."""
        return float(self.departure[int(level * len(self.departure))])


def _share(beyond: np.integer, simulated: int) -> float:
    """With the set itself among those simulated, so that it is never 0."""
    return (int(beyond) + 1) / (simulated + 1)


@lru_cache
def laws(n: int, simulated: int = SIMULATED) -> Laws:
    """Of both tests, for n ranks."""
    rng, parts = np.random.default_rng(20), []
    for first in range(0, simulated, AT_ONCE):
        counts = rng.multinomial(n, np.full(DRAWS + 1, 1 / (DRAWS + 1)), min(AT_ONCE, simulated - first))
        parts.append((chi_squared(counts), departure(counts)))
    both = (np.sort(np.concatenate(values)) for values in zip(*parts, strict=True))
    return Laws(*both)


def band(n: int, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values between 0 and 1, and what the distribution function of n uniform ranks stays between, all along, but for `level`."""
    tail, at = laws(n).tail(level), np.arange(1, DRAWS + 1) / (DRAWS + 1)
    tails, number = _tails(n), np.arange(n + 1)
    within = tails >= tail
    low = np.array([number[row].min() for row in within]) / n
    high = np.array([number[row].max() for row in within]) / n
    return at, low, high


@dataclass(frozen=True)
class Verdict:
    """Of both tests on the ranks of one parameter."""

    n: int
    p_chi_squared: float
    p_band: float
    level: float

    @property
    def passed(self) -> bool:
        return min(self.p_chi_squared, self.p_band) > self.level


def judged(ranks: np.ndarray, tests: int) -> Verdict:
    """Whether ranks are uniform, as one of so many tests."""
    counts = counted(ranks)
    law = laws(len(ranks))
    return Verdict(len(ranks), law.p_chi_squared(counts), law.p_departure(counts), level(tests))
