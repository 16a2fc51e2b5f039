"""Running many short chains side by side and measuring their moments with honest standard errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Moment(NamedTuple):
    """An average over independent chains and its standard error."""

    value: np.ndarray
    error: np.ndarray

    def z(self, truth: Any) -> np.ndarray:
        return (self.value - truth) / self.error


def over_chains(per_chain: np.ndarray) -> Moment:
    """Chains are independent, so their spread gives the error whatever the autocorrelation within each."""
    return Moment(per_chain.mean(axis=0), per_chain.std(axis=0, ddof=1) / np.sqrt(len(per_chain)))


def mean_and_variance(draws: np.ndarray, about: Any) -> tuple[Moment, Moment]:
    """First moment, and second moment about a known point, of draws with axes chain, draw and the parameter's own."""
    draws = np.asarray(draws, np.float64)
    return over_chains(draws.mean(axis=1)), over_chains(((draws - about) ** 2).mean(axis=1))
