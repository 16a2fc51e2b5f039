"""The noise of minibatch gradients, measured before sampling: which rows make it, and how much there is of it.

All in the variables z of a whitening, where the posterior is near N(0, I).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc._tree import flat, split
from sgmcmc._types import Rows
from sgmcmc.passes import block_rows
from sgmcmc.posterior import Posterior
from sgmcmc.progress import Bar
from sgmcmc.sources import blocks, gather
from sgmcmc.whitening import Whitening, whitened

TYPICAL, WIDE, WIDTH = 4, 2, 2.5
"""Points at which the rows are scored: some drawn from N(0, I), some from one `WIDTH` times as wide, for the tails."""

NOISE_ROWS, NOISE_POINTS = 8192, 8
"""Rows and points from which the noise is measured."""


@dataclass(frozen=True)
class Pilot:
    """Row gradients of a posterior in whitened variables: their differences to the centre's, where `centred`.

    The whitening is an argument of what is compiled: another one costs no compilation.
    """

    posterior: Posterior
    arrays: dict[str, np.ndarray]
    centred: bool

    def scores(self, whitening: Whitening, seed: int, bar: Bar) -> np.ndarray:
        """Root mean square length of every row's term over points of the posterior: what importance rows are drawn by."""
        d = _dimension(whitening)
        points = np.random.default_rng(seed).standard_normal((TYPICAL + WIDE, d))
        points[TYPICAL:] *= WIDTH
        found = []
        for rows in blocks(self.arrays, block_rows(self.arrays, 12 * d)):
            found.append(np.asarray(self._squares(whitening, jnp.asarray(points, float), rows)))
            bar.update(len(found[-1]))
        return np.sqrt(np.concatenate(found) / len(points))

    def noise(self, whitening: Whitening, points: np.ndarray, probabilities: np.ndarray | None, seed: int) -> np.ndarray:
        """The variance of an estimate from a single row drawn by `probabilities` (None: all alike), averaged over `points`.

        A matrix, or its diagonal where the whitening is one. An estimate from n rows drawn with replacement has 1/n of it.
        """
        rng, n_rows = np.random.default_rng(seed), self.posterior.n_rows
        index = np.sort(_draw(rng, n_rows, probabilities))
        weight = 1 / probabilities[index] if probabilities is not None else np.full(len(index), float(n_rows))
        rows = {name: gather(array, index) for name, array in self.arrays.items()}
        total: Any = 0.0
        for point in points:
            total = total + np.asarray(self._variance(whitening, jnp.asarray(point, float), rows, jnp.asarray(weight, float)))
        return total / len(points)

    @cached_property
    def _squares(self) -> Callable[..., jax.Array]:
        def squares(whitening: Whitening, points: jax.Array, rows: Rows) -> jax.Array:
            terms = self._terms(whitening, rows)
            return jax.lax.map(lambda z: jnp.sum(terms(z) ** 2, axis=1), points).sum(axis=0)

        return jax.jit(squares)

    @cached_property
    def _variance(self) -> Callable[..., jax.Array]:
        def variance(whitening: Whitening, point: jax.Array, rows: Rows, weight: jax.Array) -> jax.Array:
            weighted = weight[:, None] * self._terms(whitening, rows)(point)
            away = weighted - weighted.mean(axis=0)
            return away.T @ away / (len(weight) - 1) if whitening.dense else jnp.var(away, axis=0, ddof=1)

        return jax.jit(variance)

    def _terms(self, whitening: Whitening, rows: Rows) -> Callable[[jax.Array], jax.Array]:
        """Every row's term of the estimate at z, as one vector each."""
        posterior, like = whitened(self.posterior, whitening), whitening.zero()

        def gradients(z: jax.Array) -> jax.Array:
            return jax.vmap(flat)(posterior.row_gradients(split(z, like), rows))

        if not self.centred:
            return gradients
        there = gradients(flat(like))
        return lambda z: gradients(z) - there


def posterior_points(whitening: Whitening, seed: int) -> np.ndarray:
    """Points of N(0, I) to measure the noise at before there are draws."""
    return np.random.default_rng(seed + 1).standard_normal((NOISE_POINTS, _dimension(whitening)))


def _draw(rng: np.random.Generator, n_rows: int, probabilities: np.ndarray | None) -> np.ndarray:
    if probabilities is None:
        return rng.integers(0, n_rows, min(NOISE_ROWS, 4 * n_rows))
    edges = np.cumsum(probabilities)
    return np.minimum(np.searchsorted(edges, rng.random(NOISE_ROWS) * edges[-1], side="right"), n_rows - 1)


def _dimension(whitening: Whitening) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(whitening.origin))
