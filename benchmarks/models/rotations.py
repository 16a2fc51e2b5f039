"""Draws for the reference of a logistic regression with thousands of columns, where NUTS would take hours.

Hamiltonian Monte Carlo whose trajectories are those of the Gaussian at the mode, exactly, with kicks by what that leaves out. In
variables in which the Gaussian is the unit one they are rotations. A quarter of a turn takes a chain to a point that has nothing
to do with where it was, and what is left out is small where rows are many: a few gradients make an independent draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.everyday.cases import Draws

CHAINS, BLOCK, WARM_UP = 16, 20, 5
"""Products of the columns with so many chains cost hardly more than with one."""

KICKS = 4
"""In a quarter of a turn."""


class LeftOut:
    """What the Gaussian at `centre` with the scales `factor` leaves out of minus the log posterior, for many chains at once."""

    def __init__(self, rows: Mapping[str, Any], centre: np.ndarray, factor: np.ndarray) -> None:
        self.rows, self.centre, self.factor = rows, centre, factor

    def parameters(self, z: np.ndarray) -> np.ndarray:
        """Of chains on the first axis."""
        return self.centre + z @ self.factor.T

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients: products in the columns' precision, sums in double."""
        X, events, beta = self.rows["X"], self.rows["events"], self.parameters(z)
        eta = (X @ beta.T.astype(X.dtype)).astype(np.float64)
        value = np.logaddexp(0.0, eta).sum(axis=0) - beta @ events + (beta**2).sum(axis=1) / 2 - (z**2).sum(axis=1) / 2
        slope = (X.T @ (1 / (1 + np.exp(-eta))).astype(X.dtype)).T - events + beta
        return value, slope @ self.factor - z


def turned(z: np.ndarray, p: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Trajectories of a unit Gaussian."""
    return np.cos(angle) * z + np.sin(angle) * p, np.cos(angle) * p - np.sin(angle) * z


def wide_logistic(rows: Mapping[str, Any], centre: np.ndarray, factor: np.ndarray, seed: int = 0) -> Iterator[Draws]:
    """Blocks of draws of `beta`: y ~ Bernoulli(logit = X beta), beta ~ N(0, 1). Any centre and scales give the same law."""
    rng, left_out, angle = np.random.default_rng(seed), LeftOut(rows, centre, factor), np.pi / 2 / KICKS
    z = rng.standard_normal((CHAINS, len(left_out.centre)))
    value, slope = left_out(z)
    kept: list[np.ndarray] = []
    for draw in range(1, 1 << 62):
        p = rng.standard_normal(z.shape)
        at, total = (z, p - angle / 2 * slope, value, slope), value + (z**2 + p**2).sum(axis=1) / 2
        for kick in range(1, KICKS + 1):
            new, moving = turned(at[0], at[1], angle)
            found = left_out(new)
            at = (new, moving - (angle if kick < KICKS else angle / 2) * found[1], *found)
        ended = at[2] + (at[0] ** 2 + at[1] ** 2).sum(axis=1) / 2
        passed = np.log(rng.random(CHAINS)) < total - ended
        z, slope = (np.where(passed[:, None], *pair) for pair in ((at[0], z), (at[3], slope)))
        value = np.where(passed, at[2], value)
        if draw > WARM_UP:
            kept.append(left_out.parameters(z))
        if len(kept) == BLOCK:
            yield {"beta": np.stack(kept, axis=1)}
            kept = []
