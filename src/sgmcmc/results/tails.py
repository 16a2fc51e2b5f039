"""Tails too heavy for the draws: whether what lies beyond the outermost ones would change a standard deviation.

Draws tell nothing of where no chain has been, gradients do: under any smooth target E[gᵢ | zᵢ = x] is the slope of the log
marginal density of zᵢ at x. Where that falls like r^-κ with the distance r from the median, the slope times the distance is -κ.
"""

import math

import numpy as np

from sgmcmc.results.diagnostics import standard_error
from sgmcmc.results.excursions import along_numbers

OUTER, FEWEST = 0.01, 20
"""The part of the draws, and how many at least, from which the fall of a tail is told."""

TELLING = 1000
"""So many draws tell a tail: the outermost of fewer are no tail yet, and there a Gaussian falls like a heavy power.
Of independent normal draws 0.1% are called heavy with 500, 2% with 400, 43% with 200."""

SURE = 4.0
"""Standard errors by which the fall may be steeper than it seems."""


def unseen(positions: np.ndarray, gradients: np.ndarray, factor: np.ndarray | None = None) -> np.ndarray:
    """The variance of each number of θ = centre + L z that the outermost draws lack, in one of its tails, over that of the draws.

    It is the second moment of a tail r^-κ from where the outermost draws begin, as heavy as the gradients of these say, less
    their own; infinite where such a tail has no variance. Gaussian and exponential tails fall faster than any power, and lack
    next to nothing; of fewer than 1,000 draws nothing can be said, and nothing is. That of Student's t with 3 degrees of freedom
    lacks a tenth in 10,000 independent draws, and much more in those of a chain, which goes there rarely and stays long.
    """
    return lacking(*along_numbers(positions, gradients, factor))


def lacking(z: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The same from draws and gradients `along_numbers`."""
    count, variance = min(len(z), max(FEWEST, round(OUTER * len(z)))), z.var(axis=0)
    if len(z) < TELLING:
        return np.zeros(z.shape[1])
    order, worst = np.argsort(z, axis=0), np.zeros(z.shape[1])
    for side, outer in ((1, order[-count:]), (-1, order[:count])):
        r = np.maximum(side * np.take_along_axis(z, outer, axis=0), 0.0)
        falls = -r * side * np.take_along_axis(g, outer, axis=0)
        fall = falls.mean(axis=0) + SURE * falls.std(axis=0) / math.sqrt(count)
        beyond = np.where(fall > 3, (fall - 1) / np.maximum(fall - 3, 1e-300), np.inf)
        nearest = np.maximum(r.min(axis=0), 1e-300)
        more = (count * nearest**2 * beyond - (r**2).sum(axis=0)) / len(z)
        worst = np.maximum(worst, np.where(variance > 0, more / np.where(variance > 0, variance, 1.0), 0.0))
    return worst


def sd_error(draws: np.ndarray) -> np.ndarray:
    """The Monte Carlo error of every number's standard deviation, relative to it; draws are (chain, draw, number)."""
    sd = draws.std(axis=(0, 1))
    squares = ((draws - draws.mean(axis=(0, 1))) / np.where(sd > 0, sd, 1.0)) ** 2
    return standard_error(squares) / 2
