"""Pareto-smoothed importance sampling, for many rows at once: Vehtari, Simpson, Gelman, Yao and Gabry (2024).

The largest weights of each row are replaced by quantiles of the generalised Pareto distribution fitted to them, by Zhang and
Stephens (2009). As ArviZ has it, which takes one row after another.
"""

from __future__ import annotations

import numpy as np

AT_ONCE = 500
"""Rows whose tails are fitted together: candidates × tail for each."""

PRIOR_DRAWS, PRIOR_K = 10, 0.5
"""The shape is drawn to this one as if so many more draws had had it."""

NEGLIGIBLE = 10 * np.finfo(float).eps


def smoothed(log_ratios: np.ndarray, efficiency: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log weights that add up to 1 in every row of rows × draws, and each row's Pareto k. A row whose tail is all one number is
    left as it is, with k = 0.
    """
    parts = [_of_some(log_ratios[start : start + AT_ONCE], efficiency) for start in range(0, len(log_ratios), AT_ONCE)]
    return np.concatenate([weights for weights, _ in parts]), np.concatenate([k for _, k in parts])


def _of_some(log_ratios: np.ndarray, efficiency: float) -> tuple[np.ndarray, np.ndarray]:
    weights = log_ratios - log_ratios.max(axis=1, keepdims=True)
    draws = weights.shape[1]
    length = int(3 * np.sqrt(draws / efficiency)) if draws * efficiency > 225 else draws // 5
    order = np.argsort(weights, axis=1)
    places = order[:, draws - length :]
    tail = np.take_along_axis(weights, places, axis=1)
    cutoff = np.exp(np.take_along_axis(weights, order[:, draws - length - 1 :][:, :1], axis=1))
    excess = np.exp(tail) - cutoff
    with np.errstate(all="ignore"):  # what came of it is asked of the value
        k, sigma = fitted(excess)
        better = np.log(cutoff + _quantiles(length, k, sigma))
    fits = np.isfinite(better).all(axis=1, keepdims=True)
    np.put_along_axis(weights, places, np.where(fits, np.minimum(better, tail[:, -1:]), tail), axis=1)
    k = np.where(excess[:, -1] > 0, k, 0.0)
    return weights - log_sum_exp(weights)[:, None], k


def fitted(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale of the generalised Pareto distribution of each row of sorted numbers above 0."""
    n = excess.shape[1]
    candidates = 30 + int(np.sqrt(n))
    quartile, largest = excess[:, int(n / 4 + 0.5) - 1, None], excess[:, -1:]
    b = 1 / largest + (1 - np.sqrt(candidates / (np.arange(1, candidates + 1) - 0.5))) / (3 * quartile)
    k = np.log1p(-b[:, :, None] * excess[:, None, :]).mean(axis=2)
    profile = n * (np.log(-b / k) - k - 1)
    weights = np.exp(profile - log_sum_exp(profile)[:, None])
    weights[weights < NEGLIGIBLE] = 0
    middle = (b * weights).sum(axis=1) / weights.sum(axis=1)
    shape = np.log1p(-middle[:, None] * excess).mean(axis=1)
    return (n * shape + PRIOR_DRAWS * PRIOR_K) / (n + PRIOR_DRAWS), -shape / middle


def _quantiles(count: int, k: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """At the middles of `count` equal parts."""
    log_above = np.log1p(-(np.arange(count) + 0.5) / count)
    k = np.where(k == 0, np.finfo(float).tiny, k)[:, None]
    return np.where(sigma[:, None] > 0, sigma[:, None] * np.expm1(-k * log_above) / k, np.nan)


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """The log of the sum of exponentials, over the last axis."""
    top = values.max(axis=-1, keepdims=True)
    return np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0]
