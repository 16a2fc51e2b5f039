"""What Stein's identity E[g] = 0, E[f(z)·g + ∇·f(z)] = 0 gives for nothing: better means, and a distance to the posterior.

Positions and gradients as in `diagnostics`: shape (chains, draws, d), the gradients unbiased estimates at their positions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.results.diagnostics import checked_factor, checked_pairs, standard_error

DRAWS_PER_DIRECTION = 20
APART = 3.0
ROWS = 32


class ZeroVarianceMean(NamedTuple):
    """A posterior mean, its standard error, and the standard error the plain mean of the same draws has."""

    mean: np.ndarray
    mcse: np.ndarray
    plain_mcse: np.ndarray


@dataclass(frozen=True)
class SteinDiscrepancy:
    """How far the draws are from the posterior, as far as the kernel sees.

    Attributes:
        value: the squared discrepancy, unbiased: about 0, and negative as often as not, for draws from the posterior.
        z_score: `value` in standard deviations of what draws from the posterior would give. Its law has mean 0 and standard
            deviation 1 there, and a long right tail in few dimensions: beyond 4 the draws are not from the posterior.
        points: how many draws were compared.
    """

    value: float
    z_score: float
    points: int


def zero_variance_mean(
    positions: np.ndarray, gradients: np.ndarray, factor: np.ndarray | None = None, centre: np.ndarray | None = None
) -> ZeroVarianceMean:
    """The posterior mean of θ = centre + L z with gradients as control variates: θ̄ - Bḡ, B = Cov(θ, g) Cov(g)⁻¹.

    E[g] = 0, so any B will do. On a Gaussian with exact gradients nothing is left of the Monte Carlo error, whatever the chain;
    noise in the gradients makes this B smaller and the gain with it. B comes from the same draws, which biases the mean by
    O(d/K), less than its error. The error is that of the series θ - Bg, with its autocorrelation, and with what fitting B costs:
    the degrees of freedom, and the factor 1 + ḡᵀCov(g)⁻¹ḡ on the variance of a regression's intercept. With fewer than 20
    draws per direction B is 0: this is then the plain mean.

    `factor` is L of shape (p, d), d scales, or None for the identity; `centre` is p numbers, or None for 0.
    """
    z, g = checked_pairs(positions, gradients)
    L = checked_factor(factor, z.shape[2])
    mean, middle = g.mean(axis=(0, 1)), z.mean(axis=(0, 1))
    origin = np.zeros(len(middle) if L is None else len(L)) if centre is None else np.asarray(centre, np.float64)
    plain = _to_parameters(L, z - middle)
    plain_mcse = standard_error(plain)
    draws, d = z.shape[0] * z.shape[1], z.shape[2]
    if draws < DRAWS_PER_DIRECTION * d:
        return ZeroVarianceMean(origin + _to_parameters(L, middle), plain_mcse, plain_mcse)
    slope, far = _regression(z - middle, g - mean, mean)
    residual = _to_parameters(L, z - middle - (g - mean) @ slope)
    mcse = standard_error(residual) * np.sqrt(draws / (draws - d - 1) * (1 + far))
    return ZeroVarianceMean(origin + _to_parameters(L, middle - mean @ slope), mcse, plain_mcse)


def stein_discrepancy(
    positions: np.ndarray, gradients: np.ndarray, autocorrelation: float | np.ndarray, max_points: int = 1000
) -> SteinDiscrepancy:
    """Kernel Stein discrepancy with the inverse multiquadric kernel (1 + |x - y|²)^(-1/2), in whitened positions.

    A U-statistic: the mean of k0 over pairs of different draws, thinned evenly to `max_points`, without pairs of one chain closer
    than 3 autocorrelation times. Over such pairs gradient noise averages out (the mean with equal pairs, the V-statistic, is
    2d/m for m perfect draws, and more with noise). The standard deviation under the posterior is √(2·mean k0²)/m_eff, with
    m_eff = √pairs / τ', τ' = (1 + ρˢ)/(1 - ρˢ) the autocorrelation time of every s-th draw of an AR(1) series of autocorrelation
    time τ = (1 + ρ)/(1 - ρ). It is right for draws that are far apart, and on the safe side for others: what the kernel
    looks at forgets faster than the slowest direction.

    It sees any departure, and none of them sharply: of variances, `inflation` tells far more. Draws 1.3 times too wide in
    every direction, 1,000 of them, gradient noise 1, had an average z-score of 4.6 in 3 dimensions, 3.4 in 10, 1.7 in 55.

    Args:
        positions: z, whitened.
        gradients: at each of them.
        autocorrelation: the integrated autocorrelation time in draws, 1 + 2 Σ ρ_k: draws over effective sample size. Of an array
            the largest counts.
        max_points: how many draws to compare at most. The cost grows with its square.
    """
    z, g = checked_pairs(positions, gradients)
    tau = float(np.max(autocorrelation))
    if not np.isfinite(tau):
        expected = "a finite integrated autocorrelation time: the number of draws over the smallest effective sample size"
        raise InputError(f"autocorrelation is {describe(autocorrelation)}; expected {expected}")
    tau, (chains, draws, d) = max(1.0, tau), z.shape
    spacing = -(-draws // max(1, max_points // chains))
    kept = np.arange(0, draws, spacing)
    x, s = z[:, kept].reshape(-1, d), g[:, kept].reshape(-1, d)
    chain, moment = np.repeat(np.arange(chains), len(kept)), np.tile(kept, chains)
    pairs, total, squares = 0, 0.0, 0.0
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        near = (chain[rows, None] == chain) & (abs(moment[rows, None] - moment) < APART * tau)
        values = stein_kernel(x[rows], s[rows], x, s)[~near]
        pairs, total, squares = pairs + len(values), total + values.sum(), squares + (values**2).sum()
    if not pairs or not squares:
        return SteinDiscrepancy(float("nan"), float("nan"), len(x))
    faded = ((tau - 1) / (tau + 1)) ** spacing
    effective = np.sqrt(pairs) * (1 - faded) / (1 + faded)
    value = total / pairs
    return SteinDiscrepancy(float(value), float(value / np.sqrt(2 * squares / pairs) * effective), len(x))


def stein_kernel(x: np.ndarray, score_x: np.ndarray, y: np.ndarray, score_y: np.ndarray) -> np.ndarray:
    """k0(x, y) of each row of x with each row of y: the Langevin Stein operator on both sides of k = Q^(-1/2), Q = 1 + |r|².

    With r = x - y, k0 = g_x·g_y k + g_x·∇_y k + g_y·∇_x k + ∇_x·∇_y k, with ∇_x k = -∇_y k = -r Q^(-3/2):
    k0 = g_x·g_y Q^(-1/2) + [(g_x - g_y)·r + d] Q^(-3/2) - 3 |r|² Q^(-5/2).
    """
    squared = np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0.0)
    along = (score_x * x).sum(1)[:, None] + (score_y * y).sum(1) - score_x @ y.T - x @ score_y.T
    Q = 1 + squared
    return ((score_x @ score_y.T) + (along + x.shape[1] - 3 * squared / Q) / Q) / np.sqrt(Q)


def _to_parameters(L: np.ndarray | None, z: np.ndarray) -> np.ndarray:
    if L is None:
        return z
    return z * L if L.ndim == 1 else z @ L.T


def _regression(z: np.ndarray, g: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, float]:
    """Bᵀ, so that z ≈ g Bᵀ, and ḡᵀ Cov(g)⁻¹ ḡ. Directions without a gradient are left alone."""
    scale = g.std(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    unit = (g / scale).reshape(-1, g.shape[2])
    inverse = np.linalg.pinv(unit.T @ unit / len(unit), rcond=1e-12, hermitian=True)
    slope = inverse @ (unit.T @ z.reshape(unit.shape)) / len(unit)
    return slope / scale[:, None], float((mean / scale) @ inverse @ (mean / scale))
