"""Regressions for the references, in float64, from sums where the model has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.everyday.cases import Draws, Target
from benchmarks.everyday.targets import exponential_of, linear, softplus, sums
from benchmarks.models import gibbs, rotations
from benchmarks.models.hierarchy_targets import half_normal, normal, parts

Rows = Mapping[str, Any]


def normal_regression(theta: Any, rows: Rows) -> Any:
    """From sums of squares and products; coefficients have normal priors of their own scales, the noise a half-normal one."""
    log_sigma, beta = theta[0], theta[1:]
    return linear(beta, jnp.exp(log_sigma), rows) + normal(beta / rows["scale"], 1.0) + half_normal(log_sigma, rows["width"])


def normal_regression_target(X: np.ndarray, y: np.ndarray, scale: Any, width: float) -> Target:
    """Of `sigma` and `beta`; X has the column of ones too, if there is one."""
    d = X.shape[1]
    scales = np.broadcast_to(np.asarray(scale, np.float64), d).copy()
    rows = sums(X, y) | {"scale": scales, "width": np.asarray(float(width))}
    constrained = partial(exponential_of, names=("sigma",))
    return Target(normal_regression, rows, {"sigma": (), "beta": (d,)}, normal_regression, constrained)


def wide_logistic(theta: Any, rows: Rows) -> Any:
    """Products in float32, which the columns are in anyway, sums over rows in float64: half the memory, twice the speed."""
    eta = (rows["X"] @ theta.astype(jnp.float32)).astype(theta.dtype)
    return rows["events"] @ theta - jnp.sum(softplus(eta)) + normal(theta, 1.0)


def wide_scales(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Of `wide_logistic`: its mode, by Newton's steps with a curvature that is renewed once, and the curvature there."""
    X = rows["X"]

    def chances(theta: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-(X @ theta.astype(np.float32))))

    def curvature(theta: np.ndarray) -> np.ndarray:
        chance = chances(theta)
        return (X.T @ (X * (chance * (1 - chance))[:, None])).astype(np.float64) + np.eye(X.shape[1])

    theta = np.zeros(X.shape[1])
    for _ in range(2):
        precision = curvature(theta)
        for _ in range(15):
            theta = theta + np.linalg.solve(precision, rows["events"] - X.T @ chances(theta) - theta)
    return theta, np.linalg.inv(np.linalg.cholesky(curvature(theta))).T


def wide_draws(rows: Rows) -> Iterator[Draws]:
    return rotations.wide_logistic(rows, *wide_scales(rows))


def wide_logistic_target(X: np.ndarray, y: np.ndarray) -> Target:
    """Of `beta` alone."""
    rows = {"X": X, "events": X.T.astype(np.float64) @ y}
    return Target(wide_logistic, rows, {"beta": (X.shape[1],)}, None, blocks=wide_draws, whitening=wide_scales)


def horseshoe_logistic(theta: Any, rows: Rows) -> Any:
    """Not centred, with half-Cauchy scales: the logarithms of the scales move. The first column of X is that of ones."""
    d = rows["X"].shape[1] - 1
    a, log_local, log_tau, z = parts(theta, 1, d, 1, d)
    cauchy = jnp.sum(log_local - jnp.log1p(jnp.exp(2 * log_local))) + log_tau - jnp.log1p(jnp.exp(2 * log_tau) / 0.01)
    eta = a + rows["X"][:, 1:] @ (z * jnp.exp(log_local + log_tau))
    return jnp.sum(rows["y"] * eta - softplus(eta)) + cauchy + normal(z, 1.0) + normal(a, 5.0)


def horseshoe_logistic_target(X: np.ndarray, y: np.ndarray) -> Target:
    d = X.shape[1]
    rows = {"X": np.column_stack([np.ones(len(X), np.float32), X]), "y": np.asarray(y, np.float64)}
    shapes: dict[str, tuple[int, ...]] = {"a": (), "lam": (d,), "tau": (), "z": (d,)}
    constrained = partial(exponential_of, names=("lam", "tau"))
    blocks = partial(gibbs.horseshoe_logistic, width=5.0, scale=0.1)
    return Target(horseshoe_logistic, rows, shapes, None, constrained, blocks)
