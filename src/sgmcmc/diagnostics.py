"""Numbers about draws. All take arrays with axes chain, draw, and then the parameter's own."""

from __future__ import annotations

import numpy as np

QUANTILES = (0.05, 0.5, 0.95)


def weighted_mean_sd(draws: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over chains and draws, in float64."""
    draws = np.asarray(draws, np.float64)
    share = _shares(draws, weights)
    mean = np.tensordot(share, draws, axes=2)
    return mean, np.sqrt(np.tensordot(share, (draws - mean) ** 2, axes=2))


def weighted_quantiles(draws: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """`QUANTILES` over chains and draws, on the first axis."""
    flat = draws.reshape(-1, *draws.shape[2:])
    if weights is None:
        return np.quantile(flat, QUANTILES, axis=0)
    every = np.broadcast_to(weights, draws.shape[:2]).ravel()
    return np.quantile(flat, QUANTILES, axis=0, weights=every, method="inverted_cdf")


def mixing(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bulk effective sample size and R-hat (rank-normalised, split), by ArviZ. They measure mixing only, never bias."""
    from arviz_stats.base.array import array_stats  # two seconds of import time, paid by those who ask

    if draws.shape[1] < 4:
        nothing = np.full(draws.shape[2:], np.nan)
        return nothing, nothing
    flat = np.asarray(draws, np.float64).reshape(*draws.shape[:2], -1)
    halves = flat if len(flat) > 1 else _halves(flat)
    with np.errstate(invalid="ignore", divide="ignore"):  # a number that never moves has no R-hat: NaN says so
        ess = np.array([array_stats.ess(flat[..., i], chain_axis=0, draw_axis=1) for i in range(flat.shape[2])])
        rhat = np.array([array_stats.rhat(halves[..., i], chain_axis=0, draw_axis=1) for i in range(flat.shape[2])])
    return ess.reshape(draws.shape[2:]), rhat.reshape(draws.shape[2:])


def _halves(draws: np.ndarray) -> np.ndarray:
    """One chain as two, its halves, so that R-hat has something to compare."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _shares(draws: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    weights = np.ones(draws.shape[1]) if weights is None else np.asarray(weights, np.float64)
    every = np.broadcast_to(weights, draws.shape[:2])
    return every / every.sum()
