"""Draws that the posterior would never give: thrown far out by too large a step, and back soon after.

A few of them among thousands hardly move R-hat or a variance. But the gradients know: under any smooth target
E[gᵢ | zᵢ = x] is the slope of the log marginal density of zᵢ at x, so that gradients summed up along the sorted draws tell by how
much the log density has dropped at each.
"""

import math

import numpy as np

from sgmcmc.results.diagnostics import checked_factor, checked_pairs

RARE = 0.01
"""Expected number of draws taken for excursions, of all numbers together, in draws from the posterior."""

MANY = 500
"""Numbers beyond which single precision is enough for each."""

SURE = 4.0
"""Standard errors of the drop, for noise in the gradients, that must not explain it."""


def excursions(positions: np.ndarray, gradients: np.ndarray, factor: np.ndarray | None = None) -> np.ndarray:
    """How many draws of each number of θ = centre + L z lie where the posterior has nothing.

    A draw at distance r from the median m, where the log density is lower by D, has beyond it a tail of probability at most
    r·p(m)·e^-D, if tails are no heavier than Cauchy's (for tails x^-(ν+1) it is r/ν times the density, for lighter ones less).
    1/p(m) is no less than the interquartile range s, or nearly. So of K draws of each of q numbers, `RARE` at most have
    D - log(r/s) > log(K·q/RARE), counting from either side: Gaussian ones 6 standard deviations out.
    """
    moved = along_numbers(positions, gradients)
    return thrown_out(moved[0], *(moved if factor is None else along_numbers(positions, gradients, factor)))


def thrown_out(moved: np.ndarray, z: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The same from draws of what `moved` and from draws and gradients `along_numbers`."""
    square = ((moved / np.maximum(np.median(np.abs(moved), axis=0), 1e-300)) ** 2).mean(axis=1)
    growth = np.maximum(square / max(np.median(square), 1e-300), 1.0)
    limit, counts = math.log(z.size / RARE), np.zeros(z.shape[1], int)
    for i in np.flatnonzero((-z * g).max(axis=0) > limit):  # where -log p is convex, D is less than this product
        counts[i] = sum(np.count_nonzero(surprise(side * z[:, i], side * g[:, i], growth) > limit) for side in (1, -1))
    return counts


def along_numbers(positions: np.ndarray, gradients: np.ndarray, factor: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """Every draw of z along the directions of the numbers of θ = centre + L z, from its median, and the gradient along these.

    Rows of L are made unit vectors: any constant direction v with Lᵢ·v = 1 gives the slope of the marginal density of θᵢ, and in
    whitened variables the one in which it moves most has the least noise.
    """
    z, g = (x.reshape(-1, x.shape[-1]) for x in checked_pairs(positions, gradients))
    L = checked_factor(factor, z.shape[1])
    if L is not None and L.ndim == 2:
        along = (L / np.maximum(np.linalg.norm(L, axis=1, keepdims=True), 1e-300)).T
        if len(along) > MANY:  # each is a sum of so many that half the digits do, in half the time
            z, g, along = z.astype(np.float32), g.astype(np.float32), along.astype(np.float32)
        z, g = (np.asarray(x @ along, np.float64) for x in (z, g))
    return z - np.median(z, axis=0), g


def surprise(z: np.ndarray, g: np.ndarray, growth: np.ndarray) -> np.ndarray:
    """D - log(r/s) of the draws above the median, in ascending order, less `SURE` errors of D.

    Between neighbours the slope of log p is the mean of theirs; across a gap wider than s/2, the weaker one, and none where they
    disagree in sign, as about a valley. The noise is that of neighbours' differences in the bulk, times `growth` at each draw:
    that of control variates grows with the square of the distance.
    """
    order, n = np.argsort(z), len(z)
    bulk, above = order[n // 20 : n - n // 20], order[n // 2 :]
    width = max(z[order[3 * n // 4]] - z[order[n // 4]], 1e-300)
    noise = (np.diff(g[bulk]) ** 2).mean() / 2 * growth[above]
    z, g = z[above], g[above]
    gap, low, high = np.diff(z), g[:-1], g[1:]
    wide, lower = gap > width / 2, np.abs(low) < np.abs(high)
    weaker = np.where(low * high > 0, np.where(lower, low, high), 0.0)
    loudness = np.where(wide & lower, noise[:-1], np.where(wide, noise[1:], np.maximum(noise[:-1], noise[1:])))
    drop = -np.cumsum(gap * np.where(wide, weaker, (low + high) / 2))
    error = np.sqrt(np.cumsum(gap**2 * loudness))
    return drop - SURE * error - np.log(np.maximum((z[1:] - z[0]) / width, 1.0))
