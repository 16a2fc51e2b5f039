"""Draws for a reference where NUTS would diverge: Gibbs steps for a linear regression under a horseshoe prior.

A half-Cauchy scale s with scale c is an inverse gamma mixture: s² | a ~ IG(1/2, 1/a), a ~ IG(1/2, 1/c²). Given all scales the
coefficients are normal, and given the coefficients all scales are inverse gamma; only the noise, whose prior is half-normal,
needs a test of Metropolis and Hastings, which nearly always passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.everyday.cases import Draws

CHAINS, BLOCK, WARM_UP, THIN = 4, 500, 1000, 10
"""Chains side by side, draws of a block, iterations before the first and for each."""


def inverse_gamma(rng: np.random.Generator, shape: float, scale: Any) -> np.ndarray:
    return scale / rng.gamma(shape, size=np.shape(scale))


def coefficients(rng: np.random.Generator, rows: Mapping[str, Any], prior: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Normal, given the variances of the prior (chain, coefficient) and of the noise (chain)."""
    d = prior.shape[1]
    root = np.linalg.cholesky(rows["XX"] / noise[:, None, None] + np.eye(d) / prior[:, :, None])
    upper = np.swapaxes(root, 1, 2)
    half = np.linalg.solve(root, (rows["Xy"] / noise[:, None])[..., None])
    return np.linalg.solve(upper, half + rng.standard_normal((*prior.shape, 1)))[..., 0]


def noise_variance(
    rng: np.random.Generator, rows: Mapping[str, Any], beta: np.ndarray, before: np.ndarray, width: float
) -> np.ndarray:
    """σ² under σ ~ HalfNormal(width): proposed from what the rows alone say, then tested for the prior."""
    squares = rows["yy"] - 2 * beta @ rows["Xy"] + np.einsum("ci,ij,cj->c", beta, rows["XX"], beta)
    proposed = inverse_gamma(rng, (rows["n"] - 1) / 2, squares / 2)
    accepted = np.log(rng.random(len(before))) < (before - proposed) / (2 * width**2)
    return np.where(accepted, proposed, before)


def horseshoe(rows: Mapping[str, Any], width: float, scale: float, seed: int = 0) -> Iterator[Draws]:
    """Blocks of draws of z, lam, tau and sigma, for y ~ N(X (z lam tau), sigma²) with z ~ N(0, 1), lam ~ HalfCauchy(1),
    tau ~ HalfCauchy(scale), sigma ~ HalfNormal(width), and `rows` the sums of squares and products.
    """
    rng, d = np.random.default_rng(seed), len(rows["Xy"])
    local, total, noise = np.ones((CHAINS, d)), np.full((CHAINS, 1), scale**2), np.full(CHAINS, rows["yy"] / rows["n"])
    kept: list[tuple[np.ndarray, ...]] = []
    for step in range(1, 1 << 62):
        beta = coefficients(rng, rows, local * total, noise)
        noise = noise_variance(rng, rows, beta, noise, width)
        local = inverse_gamma(rng, 1.0, 1 / inverse_gamma(rng, 1.0, 1 + 1 / local) + beta**2 / (2 * total))
        mixing = inverse_gamma(rng, 1.0, 1 / scale**2 + 1 / total)
        total = inverse_gamma(rng, (d + 1) / 2, 1 / mixing + (beta**2 / local).sum(axis=1, keepdims=True) / 2)
        if step > WARM_UP and step % THIN == 0:
            kept.append((np.sqrt(local), np.sqrt(noise), np.sqrt(total[:, 0]), beta / np.sqrt(local * total)))
        if len(kept) == BLOCK:
            yield dict(zip(("lam", "sigma", "tau", "z"), (np.stack(x, axis=1) for x in zip(*kept, strict=True)), strict=True))
            kept = []
