"""Effective sample size and R-hat, rank-normalised and split: Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021).

All take the draws of one number, (chain, draw). They are as ArviZ has them; its import takes longer than a short run.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np


def effective_size(draws: np.ndarray) -> float:
    """Independent draws that would know the mean as well."""
    return _effective(_halves(draws)) if _enough(draws) else math.nan


def bulk_effective_size(draws: np.ndarray) -> float:
    """The same of normal scores: how well the bulk is known, even where there is no variance."""
    return _effective(_scores(_halves(draws))) if _enough(draws) else math.nan


def r_hat(draws: np.ndarray) -> float:
    """How much wider halves of chains are together than each alone, in place or in spread, whichever is worse."""
    if not _enough(draws):
        return math.nan
    halves = _halves(draws)
    return max(_wider(_scores(x)) for x in (halves, np.abs(halves - np.median(halves))))


def _enough(draws: np.ndarray) -> bool:
    return draws.shape[1] >= 4 and not np.isnan(draws).any()


def _halves(draws: np.ndarray) -> np.ndarray:
    """Each half as a chain: those of one chain are compared as well. A draw in the middle is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _scores(draws: np.ndarray) -> np.ndarray:
    """What normal draws of these ranks would be expected to be, by Blom's formula."""
    _, which, times = np.unique(draws, return_inverse=True, return_counts=True)
    twice = 2 * np.cumsum(times) - times + 1  # the average rank of those that are alike
    return _blom(draws.size)[twice][which.reshape(draws.shape)]


@lru_cache(maxsize=4)
def _blom(size: int) -> np.ndarray:
    """The score of every rank, by twice the rank."""
    inverse = NormalDist().inv_cdf
    upper = [inverse((twice / 2 - 0.375) / (size + 0.25)) for twice in range(size + 1, 2 * size + 1)]
    return np.array([0.0, 0.0, *(-x for x in upper[:0:-1]), *upper])


def _wider(chains: np.ndarray) -> float:
    n = chains.shape[1]
    within, between = chains.var(axis=1, ddof=1).mean(), chains.mean(axis=1).var(ddof=1)
    return float(np.sqrt(between / within + (n - 1) / n))


def _effective(chains: np.ndarray) -> float:
    """By Geyer's initial monotone sequence, the autocorrelations being those of all chains."""
    if np.ptp(chains) < np.finfo(float).resolution:
        return float(chains.size)
    pairs = _autocorrelations(chains)
    sums = pairs.sum(axis=1)
    ends = np.append(np.flatnonzero(sums <= 0), len(sums))[0]
    last = min(ends, max(0, (chains.shape[1] - 3) // 2))
    even = pairs[last, 0] if pairs[last, 0] > 0 or sums[last] >= 0 else 0.0
    time = 2 * np.minimum.accumulate(sums[:last]).sum() + even - 1
    return float(chains.size / np.maximum(time, 1 / np.log10(chains.size)))


def _autocorrelations(chains: np.ndarray) -> np.ndarray:
    """At lags 0 and 1, 2 and 3, ..., of draws about the mean of all chains."""
    n = chains.shape[1]
    padded = 1 << (2 * n - 1).bit_length()
    means = chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(chains - means, padded)
    covariances = np.fft.irfft((np.abs(spectrum) ** 2).mean(axis=0), padded)[:n] / n
    within = covariances[0] * n / (n - 1)
    found = 1 - (within - covariances) / (covariances[0] + means.var(ddof=1))
    found[0] = 1.0
    return found[: n // 2 * 2].reshape(-1, 2)
