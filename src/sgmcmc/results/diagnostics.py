"""Numbers about draws, and by how much a chain overstates posterior variances, from its own positions and gradients.

All take arrays with axes chain, draw, and then the parameter's own.

Integration by parts gives E[(z - E z) gᵀ] = -I under any smooth target, g being the gradient of its log density. So
M = -mean (z - z̄) gᵀ is I for a chain that samples the target, and S·A on a Gaussian of precision A when the chain has covariance
S. M is linear in g: gradients need only be unbiased, minibatch noise adds to the error and not to the value. What must not be is
a gradient that knows its position otherwise than through the target, as with the last minibatches of a reshuffled epoch.

Everywhere `positions` and `gradients` have shape (chains, draws, d): z, and an unbiased estimate of the gradient of the log
posterior at that very z. A `factor` L of shape (p, d) says that parameters are θ = centre + L z.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.results.convergence import bulk_effective_size, effective_size, r_hat

QUANTILES = (0.05, 0.5, 0.95)

CROWDED = 0.1
BATCHES = 20
SINGULAR = 1e8

MOST_RANKED, MANY = 120, 500
"""Numbers of which health looks at R-hat and effective sample size; where there are more, of the worst ones. And numbers beyond
which standard errors are those of batch means: an effective sample size for each would take longer than the chains."""

MOST_LOOKED_AT = 10_000_000
"""Draws × numbers that health looks at, where numbers are very many."""

NEIGHBOURS = 2000
"""Draws that are enough to tell gradient noise by."""

ABSURD = 1e4
"""A variance so many times the posterior's is no estimate any more."""


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

    @property
    def mixed(self) -> bool:
        """Whether what moved are directions of a dense whitening, not the numbers themselves."""
        return self.factor is not None and self.factor.ndim == 2

    @property
    def directions(self) -> list[str]:
        """Names for what moved: the numbers themselves, or, of a whitening's directions, the numbers with the largest parts."""
        if self.factor is None or not self.mixed:
            return self.names
        parts = np.abs(self.factor) / np.maximum(np.linalg.norm(self.factor, axis=1, keepdims=True), 1e-300)
        return [self._mostly(part) for part in parts.T]

    def looked_at(self) -> "Pairs":
        """Every so-manyth draw, where all of very many numbers would take longer to look at than the chains took."""
        thin = -(-self.positions.size // MOST_LOOKED_AT)
        if self.positions.shape[-1] <= MANY or thin == 1:
            return self
        return replace(self, positions=self.positions[:, ::thin], gradients=self.gradients[:, ::thin])

    def _mostly(self, part: np.ndarray) -> str:
        most = np.argsort(-part)[:2]
        shown = [self.names[i] for i in most if part[i] > part[most[0]] / 2]
        return f"a direction that is mostly {' and '.join(shown)}"

    def numbers(self) -> np.ndarray:
        """Every draw of the unconstrained numbers, origin + L z, in float64."""
        z = self.positions.astype(np.float64)
        moved = z if self.factor is None else z @ self.factor.T.astype(np.float64) if self.mixed else z * self.factor
        return moved if self.origin is None else moved + self.origin

    def gradient_noise(self) -> np.ndarray:
        """For every number, noise over curvature: the gradient's variance among neighbours, over its line's in the position."""
        thin = -(-_count(self.positions) // NEIGHBOURS)
        z, g = (x.reshape(-1, x.shape[-1])[::thin].astype(np.float64) for x in (self.positions, self.gradients))
        z, g = z - z.mean(axis=0), g - g.mean(axis=0)
        sorted_by_z = np.take_along_axis(g, np.argsort(z, axis=0), axis=0)
        noise = ((sorted_by_z[1:] - sorted_by_z[:-1]) ** 2).mean(axis=0) / 2
        line = (z * g).mean(axis=0) ** 2 / np.maximum((z**2).mean(axis=0), 1e-300)
        ratio = noise / np.maximum(line, 1e-300)
        if self.factor is None or not self.mixed:
            return ratio
        return self.factor**2 @ ratio / np.sum(self.factor**2, axis=1)


def flat_draws(tree: Any, chained: bool) -> np.ndarray:
    """The draws of a tree in one array: chain, draw, number."""
    leaves = [np.asarray(leaf) if chained else np.asarray(leaf)[None] for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], math.prod(leaf.shape[2:])) for leaf in leaves], axis=-1)


def weighted_mean_sd(draws: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over chains and draws, in float64."""
    draws = np.asarray(draws, np.float64)
    every = np.broadcast_to(np.ones(draws.shape[1]) if weights is None else np.asarray(weights, np.float64), draws.shape[:2])
    share = every / every.sum()
    away = draws - draws[:1, :1]  # so that what never moves has no variance
    mean = np.tensordot(share, away, axes=2)
    return draws[0, 0] + mean, np.sqrt(np.tensordot(share, (away - mean) ** 2, axes=2))


def weighted_quantiles(draws: np.ndarray, weights: np.ndarray | None, levels: Sequence[float] = QUANTILES) -> np.ndarray:
    """Quantiles over chains and draws, on the first axis."""
    flat = draws.reshape(-1, *draws.shape[2:])
    if weights is None:
        return np.quantile(flat, levels, axis=0)
    every = np.broadcast_to(weights, draws.shape[:2]).ravel()
    return np.quantile(flat, levels, axis=0, weights=every, method="inverted_cdf")


def mixing(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bulk effective sample size and R-hat (rank-normalised, split). They measure mixing only, never bias."""
    return _of_each(bulk_effective_size, draws), _of_each(r_hat, draws)


def mixing_of_worst(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of (chain, draw, number), where numbers are very many of those only that mix worst by the variance of batch means,
    of the number and of its distance from its mean; NaN for the others.
    """
    if draws.shape[2] <= MOST_RANKED or draws.shape[1] < 2 * BATCHES:
        return mixing(draws)
    worst = _slowest(draws)
    ess, r_hat = np.full((2, draws.shape[2]), np.nan)
    ess[worst], r_hat[worst] = mixing(draws[..., worst])
    return ess, r_hat


def slowest(draws: np.ndarray) -> np.ndarray:
    """Of (chain, draw, number), where numbers are very many, those that mix worst."""
    return draws if draws.shape[2] <= MOST_RANKED or draws.shape[1] < 2 * BATCHES else draws[..., _slowest(draws)]


def slowness(draws: np.ndarray) -> np.ndarray:
    """How badly every number mixes, by batch means of it or of its distance from its mean: to rank them by, quickly."""
    return _slowness_of_both(draws).max(axis=0) if draws.shape[1] >= 2 * BATCHES else np.zeros(draws.shape[2])


def _slowest(draws: np.ndarray) -> np.ndarray:
    return np.unique(np.argsort(_slowness_of_both(draws), axis=1)[:, -MOST_RANKED // 2 :])


def _slowness_of_both(draws: np.ndarray) -> np.ndarray:
    away = draws - draws.mean(axis=(0, 1))
    return np.stack([_variance_of_batches(x) for x in (away, np.abs(away))])


def _variance_of_batches(series: np.ndarray) -> np.ndarray:
    """Of the means of batches over all chains, beside that of the series itself."""
    return _batch_means(series).var(axis=(0, 1)) / np.maximum(series.var(axis=(0, 1)), 1e-30)


def _batch_means(series: np.ndarray) -> np.ndarray:
    """Of each chain's batches: chain, batch, number."""
    length = series.shape[1] // BATCHES
    return series[:, : length * BATCHES].reshape(series.shape[0], BATCHES, length, -1).mean(axis=2)


def autocorrelation_time(draws: np.ndarray) -> np.ndarray:
    """Draws for one independent draw's worth of the mean, for every number of (chain, draw, number)."""
    return np.nan_to_num(draws.shape[0] * draws.shape[1] / _of_each(effective_size, draws), nan=1.0)


def _of_each(statistic: Callable[[np.ndarray], float], draws: np.ndarray) -> np.ndarray:
    """A statistic of every number of (chain, draw, ...)."""
    flat = np.asarray(draws, np.float64).reshape(*draws.shape[:2], -1)
    with np.errstate(invalid="ignore", divide="ignore"):  # a number that never moves has no R-hat: NaN says so
        return np.array([statistic(one) for one in np.moveaxis(flat, 2, 0)]).reshape(draws.shape[2:])


@dataclass(frozen=True)
class Inflation:
    """Variance under the chain over variance under the posterior, estimated.

    Attributes:
        value: 1 where the chain has the posterior's variance.
        error: standard error of `value`, for Monte Carlo error and minibatch noise, autocorrelation included.
        joint: whether all of M was used, or its diagonal only.
    """

    value: np.ndarray
    error: np.ndarray
    joint: bool

    @property
    def determined(self) -> np.ndarray:
        """Which values say something: positive, not absurd, their error below 1 or a third of them."""
        known = np.isfinite(self.value) & np.isfinite(self.error) & (self.value > 0) & (self.value < ABSURD)
        return known & (self.error <= np.maximum(1.0, self.value / 3))

    def where_determined(self) -> "Inflation":
        """The same, with NaN for values that are not determined, and for their errors."""
        value, error = (np.where(self.determined, x, np.nan) for x in (self.value, self.error))
        return Inflation(value, error, self.joint)


def direction_inflation(positions: np.ndarray, gradients: np.ndarray) -> Inflation:
    """R_i = M_ii. It is the ratio of variances where directions are uncorrelated, as after whitening, and not elsewhere.

    Much gradient noise makes the error too wide, by up to a sixth in what was measured: it is made for series that are correlated
    positively. Short runs make the value too small, by the autocorrelation time over the number of draws.
    """
    z, g = centred_pairs(positions, gradients)
    return _average(-z * g)


def parameter_inflation(positions: np.ndarray, gradients: np.ndarray, factor: np.ndarray | None = None) -> Inflation:
    """Of each parameter of θ = centre + L z: diag(L S Lᵀ) / diag(L M⁻¹ S Lᵀ), right for correlated directions too.

    M⁻¹S is the posterior covariance as the chain's gradients tell it: the inverse of the slope of -g on z. Value and error are
    jackknifed, leaving out one at a time of about `BATCHES` contiguous batches. That takes away the second order bias of the
    inverse, about d·V/2K for K draws with gradient noise V on the scale of a whitened gradient: at d = 55, K = 4 × 2,500 of an
    SGLD chain with autocorrelation time 19 and V = 10 it was 0.016 before and 0.001 ± 0.002 after. The error is widened by
    √(19/17), the standard deviation of Student's t with 19 degrees of freedom, so that value ± 2 errors hold the truth 95 times
    in 100 (94 to 96 measured). Batches must be much longer than the autocorrelation time, or the error is too small: run at
    least 200 autocorrelation times in all.

    M can be inverted while its relative noise is small. That has squared spectral radius tr(C⁻¹ Cov g)/K, C = MᵀS⁻¹M being what
    positions explain of the gradients' covariance: d(1 + V)/K in a whitened target. Beyond `CROWDED`, or if M is singular, only
    the diagonal is used: the average of R_j with weights L_ij², exact if the whitening is, and `joint` is false. It is an average
    of R_j and not of 1/R_j because noise would make the latter explode.

    `factor` is L, or None or d scales if each parameter is a direction of z.
    """
    z, g = centred_pairs(positions, gradients)
    L = checked_factor(factor, z.shape[2])
    if L is not None and L.ndim == 1:  # scales alone leave ratios of variances as they are
        L = None
    scale = z.std(axis=(0, 1))
    if z.shape[2] <= CROWDED * _count(z) and scale.all() and _invertible(z / scale, g * scale):
        with suppress(np.linalg.LinAlgError):  # all of a direction may be in one batch
            return _joint(z / scale, g * scale, np.diag(scale) if L is None else L * scale)
    return _average(-z * g if L is None else -(z * g) @ (L**2 / (L**2).sum(axis=1, keepdims=True)).T)


def standard_error(series: np.ndarray) -> np.ndarray:
    """Standard error of the mean over chains and draws, by the effective sample size, or of very many numbers by the means of
    batches; 0 for what never moves.
    """
    if series.shape[1] < 4:
        return np.full(series.shape[2], np.nan)
    sd = series.std(axis=(0, 1))
    if series.shape[2] > MANY and series.shape[1] >= 5 * BATCHES:
        means = _batch_means(series)
        return np.sqrt(means.var(axis=(0, 1), ddof=1) / math.prod(means.shape[:2]))
    unit = (series - series.mean(axis=(0, 1))) / np.where(sd > 0, sd, 1.0)  # anything tiny is taken for a constant
    return sd / np.sqrt(_of_each(effective_size, unit))


def centred_pairs(positions: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both in float64, less their means over chains and draws; anything but pairs of finite vectors is refused."""
    z, g = checked_pairs(positions, gradients)
    return z - z.mean(axis=(0, 1)), g - g.mean(axis=(0, 1))


def checked_pairs(positions: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both in float64; anything but pairs of finite vectors is refused."""
    z, g = np.asarray(positions, np.float64), np.asarray(gradients, np.float64)
    if z.ndim != 3 or z.shape != g.shape or 0 in z.shape:
        expected = "expected one shape (chains, draws, d) for both; give a single chain as positions[None], gradients[None]"
        raise InputError(f"positions is {describe(positions)} and gradients is {describe(gradients)}; {expected}")
    for name, values in (("positions", z), ("gradients", g)):
        if not np.isfinite(values).all():
            chain, draw, direction = place = tuple(np.argwhere(~np.isfinite(values))[0])
            expected = f"expected finite numbers; leave out the draws from there on, as in {name}[:, :{draw}]"
            raise InputError(f"{name} has {values[place]} at chain {chain}, draw {draw}, direction {direction}; {expected}")
    return z, g


def checked_factor(factor: np.ndarray | None, d: int) -> np.ndarray | None:
    """L as it came, in float64, if it can multiply vectors of d numbers."""
    if factor is None:
        return None
    L = np.asarray(factor, np.float64)
    if L.ndim not in (1, 2) or L.shape[-1] != d:
        raise InputError(f"factor is {describe(factor)}; expected None, {d} scales or a matrix of shape ({d}, {d}), as positions")
    return L


def _count(z: np.ndarray) -> int:
    return z.shape[0] * z.shape[1]


def _average(series: np.ndarray) -> Inflation:
    return Inflation(series.mean(axis=(0, 1)), standard_error(series), joint=False)


def _invertible(z: np.ndarray, g: np.ndarray) -> bool:
    """Whether the noise in M is small enough for its inverse, see `parameter_inflation`."""
    S, M = _covariances(_moments(z, g))
    if np.linalg.cond(M, 1) > SINGULAR:
        return False
    products = np.tensordot(g, g, axes=((0, 1), (0, 1)))
    return bool((np.linalg.solve(M, np.linalg.solve(M, S).T) * products).sum() <= CROWDED * _count(z) ** 2)


def _joint(z: np.ndarray, g: np.ndarray, L: np.ndarray) -> Inflation:
    """The ratio, jackknifed over batches."""
    total = _moments(z, g)
    value = _ratio(total, L)
    without = np.array([_ratio(total - _moments(*batch), L) for batch in _batches(z, g)])
    freedom = len(without) - 1
    error = np.sqrt(freedom * without.var(axis=0) * freedom / (freedom - 2)) if freedom > 2 else np.full(len(value), np.nan)
    return Inflation(value + freedom * (value - without.mean(axis=0)), error, joint=True)


def _batches(z: np.ndarray, g: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Contiguous pieces of chains, about `BATCHES` in all, and at least two of each chain if it has two draws."""
    each = min(z.shape[1], max(2, round(BATCHES / len(z))))
    for chain in range(len(z)):
        yield from zip(np.array_split(z[chain], each), np.array_split(g[chain], each), strict=True)


def _moments(z: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Number, sums and sums of products of the pairs in one array, (1, z)ᵀ(1, z, g): those of batches add up."""
    z, g = z.reshape(-1, z.shape[-1]), g.reshape(-1, g.shape[-1])
    one = np.ones((len(z), 1))
    return np.hstack([one, z]).T @ np.hstack([one, z, g])


def _covariances(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S and M."""
    mean = moments / moments[0, 0]
    both = mean[1:, 1:] - np.outer(mean[1:, 0], mean[0, 1:])
    d = len(both)
    return both[:, :d], -both[:, d:]


def _ratio(moments: np.ndarray, L: np.ndarray) -> np.ndarray:
    S, M = _covariances(moments)
    above, below = (((L @ matrix) * L).sum(axis=1) for matrix in (S, np.linalg.solve(M, S)))  # diag(L matrix Lᵀ)
    return above / below
