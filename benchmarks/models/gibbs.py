"""Draws for the reference of a logistic regression under a horseshoe prior, at which NUTS diverges: Gibbs steps.

Given all scales, the coefficients are proposed from the normal law that they would have if the log likelihood were its
parabola about the maximum, and tested with what the parabola leaves out: with 50,000 rows nearly all proposals pass. Given the
coefficients, all scales are inverse gamma, as in a linear regression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.everyday.cases import Draws
from benchmarks.everyday.gibbs import BLOCK, CHAINS, THIN, WARM_UP, coefficients, inverse_gamma

WIDE = 5.0


def log_likelihood(rows: Mapping[str, Any], beta: np.ndarray) -> np.ndarray:
    """Of (chain, coefficient): products in the columns' precision, sums in double."""
    eta = (rows["X"] @ beta.T.astype(rows["X"].dtype)).astype(np.float64)
    return rows["y"] @ eta - (np.maximum(eta, 0) + np.log1p(np.exp(-np.abs(eta)))).sum(axis=0)


def parabola(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The log likelihood about its maximum (a wide normal prior keeps that finite), as sums of squares and products."""
    X, d = rows["X"].astype(np.float64), rows["X"].shape[1]
    beta = np.zeros(d)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-X @ beta))
        precision = (X * (chance * (1 - chance))[:, None]).T @ X
        step = np.linalg.solve(precision + np.eye(d) / WIDE**2, X.T @ (rows["y"] - chance) - beta / WIDE**2)
        beta = beta + step
        if step @ precision @ step < 1e-16:
            break
    chance = 1 / (1 + np.exp(-X @ beta))
    precision = (X * (chance * (1 - chance))[:, None]).T @ X
    return {"XX": precision, "Xy": precision @ beta + X.T @ (rows["y"] - chance)}


def left_out(rows: Mapping[str, Any], bowl: Mapping[str, Any], beta: np.ndarray) -> np.ndarray:
    """Of the log likelihood by its parabola."""
    return log_likelihood(rows, beta) - beta @ bowl["Xy"] + np.einsum("ci,ij,cj->c", beta, bowl["XX"], beta) / 2


def horseshoe_logistic(rows: Mapping[str, Any], width: float, scale: float, seed: int = 0) -> Iterator[Draws]:
    """Blocks of draws of a, lam, tau and z: y ~ Bernoulli(logit = a + X (z lam tau)), a ~ N(0, width), z ~ N(0, 1),
    lam ~ HalfCauchy(1), tau ~ HalfCauchy(scale). The first column of X is that of ones.
    """
    rng, d = np.random.default_rng(seed), rows["X"].shape[1] - 1
    bowl, one = parabola(rows), np.ones(CHAINS)
    local, total, first = np.ones((CHAINS, d)), np.full((CHAINS, 1), scale**2), np.full((CHAINS, 1), width**2)
    beta = coefficients(rng, bowl, np.concatenate([first, local * total], axis=1), one)
    rest = left_out(rows, bowl, beta)
    kept: list[tuple[np.ndarray, ...]] = []
    for step in range(1, 1 << 62):
        proposed = coefficients(rng, bowl, np.concatenate([first, local * total], axis=1), one)
        new = left_out(rows, bowl, proposed)
        passed = np.log(rng.random(CHAINS)) < new - rest
        beta, rest = np.where(passed[:, None], proposed, beta), np.where(passed, new, rest)
        slopes = beta[:, 1:]
        local = inverse_gamma(rng, 1.0, 1 / inverse_gamma(rng, 1.0, 1 + 1 / local) + slopes**2 / (2 * total))
        mixing = inverse_gamma(rng, 1.0, 1 / scale**2 + 1 / total)
        total = inverse_gamma(rng, (d + 1) / 2, 1 / mixing + (slopes**2 / local).sum(axis=1, keepdims=True) / 2)
        if step > WARM_UP and step % THIN == 0:
            kept.append((beta[:, 0], np.sqrt(local), np.sqrt(total[:, 0]), slopes / np.sqrt(local * total)))
        if len(kept) == BLOCK:
            yield dict(zip(("a", "lam", "tau", "z"), (np.stack(x, axis=1) for x in zip(*kept, strict=True)), strict=True))
            kept = []
