"""Numbers about draws. All take arrays with axes chain, draw, and then the parameter's own."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Pairs:
    """Every draw of what moved, with the chain's own estimate of the gradient of the log posterior there.

    Attributes:
        positions: chain, draw, number.
        gradients: likewise.
        names: of the unconstrained numbers that the positions stand for.
        factor: the matrix or the scales L of a whitening, those numbers being origin + L z; None where they moved themselves.
        origin: of that whitening.
    """

    positions: np.ndarray
    gradients: np.ndarray
    names: list[str]
    factor: np.ndarray | None
    origin: np.ndarray | None


def flat_draws(tree: Any, chained: bool) -> np.ndarray:
    """The draws of a tree in one array: chain, draw, number."""
    leaves = [np.asarray(leaf) if chained else np.asarray(leaf)[None] for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], math.prod(leaf.shape[2:])) for leaf in leaves], axis=-1)


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


def autocorrelation_time(draws: np.ndarray) -> np.ndarray:
    """Draws for one independent draw's worth of the mean, for every number of (chain, draw, number)."""
    from arviz_stats.base.array import array_stats

    with np.errstate(invalid="ignore", divide="ignore"):
        ess = [array_stats.ess(draws[..., i], chain_axis=0, draw_axis=1, method="mean") for i in range(draws.shape[2])]
    return np.nan_to_num(draws.shape[0] * draws.shape[1] / np.asarray(ess), nan=1.0)


def monte_carlo_error(draws: np.ndarray) -> np.ndarray:
    """Standard error of the mean of every number of (chain, draw, number)."""
    if draws.shape[1] < 4:
        return np.full(draws.shape[2], np.nan)
    draws = np.asarray(draws, np.float64)
    return draws.std(axis=(0, 1)) * np.sqrt(autocorrelation_time(draws) / (draws.shape[0] * draws.shape[1]))


def noise_ratio(positions: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """The variance of each gradient about its own line in its position, over the line's: noise over curvature."""
    z, g = (x - x.mean(axis=(0, 1)) for x in (positions.astype(np.float64), gradients.astype(np.float64)))
    square = np.maximum((z**2).mean(axis=(0, 1)), 1e-300)
    line = (z * g).mean(axis=(0, 1)) ** 2 / square
    return ((g**2).mean(axis=(0, 1)) - line) / np.maximum(line, 1e-300)


def _halves(draws: np.ndarray) -> np.ndarray:
    """One chain as two, its halves, so that R-hat has something to compare."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _shares(draws: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    weights = np.ones(draws.shape[1]) if weights is None else np.asarray(weights, np.float64)
    every = np.broadcast_to(weights, draws.shape[:2])
    return every / every.sum()
