"""Posteriors for the references, in float64 and written apart from the users' models: equal rows are summed first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.everyday import gibbs
from benchmarks.everyday.cases import Draws, Target

Rows = Mapping[str, Any]

PRIORS = {
    "normal": lambda u: -jnp.sum(u**2) / 2,
    "laplace": lambda u: -jnp.sum(jnp.abs(u)),
    "student": lambda u: -2.5 * jnp.sum(jnp.log1p(u**2 / 4)),
    "heavy": lambda u: -2 * jnp.sum(jnp.log1p(u**2 / 3)),
}
"""Log densities of parameters over their scales; Student's has 4 degrees of freedom, the heavy one 3."""


@jax.custom_jvp
def softplus(eta: Any) -> Any:
    """log(1 + exp(eta)), with one exponential for value and derivative: most of what a reference costs."""
    return jnp.maximum(eta, 0) + jnp.log1p(jnp.exp(-jnp.abs(eta)))


@softplus.defjvp
def _softplus_derivative(at: tuple[Any], along: tuple[Any]) -> tuple[Any, Any]:
    (eta,), (tangent,) = at, along
    small = jnp.exp(-jnp.abs(eta))
    return jnp.maximum(eta, 0) + jnp.log1p(small), tangent * jnp.where(eta >= 0, 1, small) / (1 + small)


MASS = {"logistic": softplus, "poisson": jnp.exp}
"""What a trial, or a unit of exposure, takes off the log likelihood."""


def regression(theta: Any, rows: Rows, family: str = "logistic", prior: str = "normal") -> Any:
    """Events times the predictor, less the trials (or the exposure) times their mass."""
    eta = rows["X"] @ theta
    return jnp.sum(rows["events"] * eta - rows["trials"] * MASS[family](eta)) + PRIORS[prior](theta / rows["scale"])


def regression_target(
    X: np.ndarray, y: np.ndarray, scale: Any, shapes: dict[str, tuple[int, ...]], *, exposure: Any = None,
    family: str = "logistic", prior: str = "normal",
) -> Target:  # fmt: skip
    """Of a regression: X has a column for each number of `shapes`, `scale` the scales of their priors."""
    trials = np.ones(len(y)) if exposure is None else np.asarray(exposure, np.float64)
    rows = collapsed(np.asarray(X, np.float64), trials, np.asarray(y, np.float64))
    rows["scale"] = np.broadcast_to(np.asarray(scale, np.float64), X.shape[1:]).copy()
    bowl = partial(regression, family=family, prior="normal")
    return Target(partial(regression, family=family, prior=prior), rows, shapes, bowl)


def collapsed(X: np.ndarray, trials: np.ndarray, events: np.ndarray) -> dict[str, np.ndarray]:
    """Rows with the same columns as one, with the sums of their trials and events."""
    distinct, which = np.unique(X, axis=0, return_inverse=True)
    if len(distinct) > len(X) / 2:
        return {"X": X, "trials": trials, "events": events}
    which = which.ravel()
    return {"X": distinct, "trials": np.bincount(which, trials), "events": np.bincount(which, events)}


def weibull(theta: Any, rows: Rows) -> Any:
    """Hazard where the event was seen, survival always; the logarithm of the shape is what moves."""
    a, b, log_k = theta
    log_ratio = jnp.log(rows["t"]) - a - b * rows["x"]
    k = jnp.exp(log_k)
    seen = rows["event"] * (log_k - jnp.log(rows["t"]) + k * log_ratio)
    prior = -(a**2 + b**2 + k**2) / 50 + log_k
    return jnp.sum(seen - jnp.exp(k * log_ratio)) + prior


def exponential_of(split: Draws, names: tuple[str, ...]) -> Draws:
    """The named ones moved as logarithms."""
    return {name: jnp.exp(value) if name in names else value for name, value in split.items()}


def weibull_target(t: np.ndarray, x: np.ndarray, event: np.ndarray) -> Target:
    rows = {"t": np.asarray(t, np.float64), "x": np.asarray(x, np.float64), "event": np.asarray(event, np.float64)}
    shapes: dict[str, tuple[int, ...]] = {"a": (), "b": (), "k": ()}
    return Target(weibull, rows, shapes, weibull, partial(exponential_of, names=("k",)))


def ordinal(theta: Any, rows: Rows) -> Any:
    """Differences of logistic distribution functions; cut points by the first and the logarithms of the gaps."""
    d = rows["X"].shape[1]
    beta, first, gaps = theta[:d], theta[d], theta[d + 1 :]
    cuts = jnp.concatenate([jnp.array([first]), first + jnp.cumsum(jnp.exp(gaps))])
    edges = jnp.concatenate([jnp.array([-jnp.inf]), cuts, jnp.array([jnp.inf])])
    eta = rows["X"] @ beta
    above, below = edges[rows["y"] + 1] - eta, edges[rows["y"]] - eta
    chances = jnp.log(jax.nn.sigmoid(above) - jax.nn.sigmoid(below))
    return jnp.sum(chances) - jnp.sum((beta / 2.5) ** 2) / 2 - jnp.sum((cuts / 5) ** 2) / 2 + jnp.sum(gaps)


def ordered(split: Draws) -> Draws:
    """Cut points from the first and the logarithms of the gaps."""
    first, gaps = split["cuts"][..., :1], split["cuts"][..., 1:]
    return {"beta": split["beta"], "cuts": jnp.concatenate([first, first + jnp.cumsum(jnp.exp(gaps), axis=-1)], axis=-1)}


def ordinal_target(X: np.ndarray, y: np.ndarray) -> Target:
    rows = {"X": np.asarray(X, np.float64), "y": np.asarray(y)}
    return Target(ordinal, rows, {"beta": (X.shape[1],), "cuts": (int(y.max()),)}, ordinal, ordered)


def linear(weights: Any, sigma: Any, rows: Rows) -> Any:
    """Normal log likelihood from sums of squares and products."""
    squares = rows["yy"] - 2 * rows["Xy"] @ weights + weights @ rows["XX"] @ weights
    return -rows["n"] * jnp.log(sigma) - squares / (2 * sigma**2)


def sums(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    return {"XX": X.T @ X, "Xy": X.T @ y, "yy": np.asarray(y @ y), "n": np.asarray(float(len(y)))}


def smooth(theta: Any, rows: Rows) -> Any:
    """A spline: normal second differences, a wide ridge, a half-normal noise."""
    log_sigma, weights = theta[0], theta[1:]
    bends = weights[2:] - 2 * weights[1:-1] + weights[:-2]
    prior = -jnp.sum((bends / rows["bend"]) ** 2) / 2 - jnp.sum((weights / 10) ** 2) / 2 - jnp.exp(2 * log_sigma) / 2 + log_sigma
    return linear(weights, jnp.exp(log_sigma), rows) + prior


def smooth_target(X: np.ndarray, y: np.ndarray, bend: float) -> Target:
    rows = sums(X, y) | {"bend": np.asarray(bend)}
    return Target(smooth, rows, {"sigma": (), "w": (X.shape[1],)}, smooth, partial(exponential_of, names=("sigma",)))


def bent(theta: Any, rows: Rows, fewer: int = 2) -> Any:
    """A spline whose smoothness is a parameter too; with as many `fewer` bends as there are weights, the mode is in the mass."""
    log_sigma, log_tau, weights = theta[0], theta[1], theta[2:]
    bends = weights[2:] - 2 * weights[1:-1] + weights[:-2]
    smoothness = -jnp.sum((bends * jnp.exp(-log_tau)) ** 2) / 2 - (len(weights) - fewer) * log_tau
    scales = log_sigma - jnp.exp(2 * log_sigma) / 2 + log_tau - jnp.exp(2 * log_tau) / 2
    return linear(weights, jnp.exp(log_sigma), rows) + smoothness + scales - jnp.sum((weights / 10) ** 2) / 2


def bent_target(X: np.ndarray, y: np.ndarray) -> Target:
    count = X.shape[1]
    constrained = partial(exponential_of, names=("sigma", "tau"))
    shapes: dict[str, tuple[int, ...]] = {"sigma": (), "tau": (), "w": (count,)}
    return Target(bent, sums(X, y), shapes, partial(bent, fewer=count), constrained)


def normal_sample(theta: Any, rows: Rows) -> Any:
    """Mean and logarithm of the standard deviation of a handful of numbers."""
    mu, log_sigma = theta
    prior = -((mu / 10) ** 2) / 2 - jnp.exp(2 * log_sigma) / 50 + log_sigma
    return -len(rows["x"]) * log_sigma - jnp.sum((rows["x"] - mu) ** 2) / (2 * jnp.exp(2 * log_sigma)) + prior


def normal_target(x: np.ndarray) -> Target:
    shapes: dict[str, tuple[int, ...]] = {"mu": (), "sigma": ()}
    constrained = partial(exponential_of, names=("sigma",))
    return Target(normal_sample, {"x": np.asarray(x, np.float64)}, shapes, normal_sample, constrained)


def horseshoe(theta: Any, rows: Rows) -> Any:
    """Non-centred, with half-Cauchy scales: the logarithms of the scales move."""
    d = rows["Xy"].shape[0]
    log_local, log_sigma, log_tau, z = theta[:d], theta[d], theta[d + 1], theta[d + 2 :]
    cauchy = jnp.sum(log_local - jnp.log1p(jnp.exp(2 * log_local))) + log_tau - jnp.log1p(jnp.exp(2 * log_tau) / 0.01)
    prior = cauchy - jnp.sum(z**2) / 2 - jnp.exp(2 * log_sigma) / 8 + log_sigma
    return linear(z * jnp.exp(log_local + log_tau), jnp.exp(log_sigma), rows) + prior


def horseshoe_target(X: np.ndarray, y: np.ndarray) -> Target:
    d = X.shape[1]
    constrained = partial(exponential_of, names=("lam", "sigma", "tau"))
    blocks = partial(gibbs.horseshoe, width=2.0, scale=0.1)
    return Target(horseshoe, sums(X, y), {"lam": (d,), "sigma": (), "tau": (), "z": (d,)}, None, constrained, blocks)
