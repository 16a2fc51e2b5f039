"""A frame for each family, of outcomes that the family would make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

TERMS = "x + group + x:group + z"


def frame_of(family: str, n_rows: int, seed: int = 0) -> tuple[str, pd.DataFrame]:
    """The formula and the frame."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], n_rows, p=[0.6, 0.3, 0.1])
    frame = pd.DataFrame({"x": rng.normal(40, 12, n_rows), "z": rng.exponential(1.0, n_rows), "group": group})
    eta = -0.5 + 0.02 * (frame.x - 40) + 0.4 * (group == "b") - 0.3 * (group == "c") + 0.2 * frame.z
    left, made = OUTCOMES[family](eta.to_numpy(), rng)
    return f"{left} ~ {TERMS}", frame.assign(**made)


def _classes(eta: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    weights = np.exp(np.column_stack([np.zeros_like(eta), eta, 0.5 - eta]))
    below = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    return {"y": np.array(["high", "low", "middle"])[(rng.random(len(eta))[:, None] > below[:, :-1]).sum(axis=1)]}


def _grades(eta: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    latent = eta + rng.logistic(size=len(eta))
    return {"y": np.digitize(latent, [-1.0, 0.3, 1.5])}


def _times(eta: np.ndarray, rng: np.random.Generator, shape: float) -> dict[str, Any]:
    time, end = np.exp(eta) * rng.exponential(size=len(eta)) ** (1 / shape), rng.exponential(3.0, len(eta))
    return {"time": np.minimum(time, end), "event": time <= end}


def _trials(eta: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    trials = rng.integers(1, 12, len(eta))
    return {"y": rng.binomial(trials, _share(eta)), "n": trials}


def _share(eta: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-eta))


def _beta(eta: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    mean = _share(eta)
    return {"y": np.clip(rng.beta(5 * mean, 5 * (1 - mean)), 1e-5, 1 - 1e-5)}


OUTCOMES: dict[str, Any] = {
    "gaussian": lambda eta, rng: ("y", {"y": 100 + 20 * eta + rng.normal(0, 15, len(eta))}),
    "student": lambda eta, rng: ("y", {"y": 100 + 20 * eta + 10 * rng.standard_t(4, len(eta))}),
    "bernoulli": lambda eta, rng: ("y", {"y": rng.random(len(eta)) < _share(eta)}),
    "binomial": lambda eta, rng: ("proportion(y, n)", _trials(eta, rng)),
    "categorical": lambda eta, rng: ("y", _classes(eta, rng)),
    "ordinal": lambda eta, rng: ("y", _grades(eta, rng)),
    "poisson": lambda eta, rng: ("y", {"y": rng.poisson(np.exp(eta))}),
    "negative binomial": lambda eta, rng: ("y", {"y": rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, len(eta)))}),
    "zero inflated poisson": lambda eta, rng: ("y", {"y": rng.poisson(np.exp(eta)) * (rng.random(len(eta)) > 0.3)}),
    "gamma": lambda eta, rng: ("y", {"y": np.exp(eta) * rng.gamma(2.0, 0.5, len(eta))}),
    "beta": lambda eta, rng: ("y", _beta(eta, rng)),
    "weibull": lambda eta, rng: ("censored(time, event)", _times(eta, rng, 1.4)),
    "exponential": lambda eta, rng: ("censored(time, event)", _times(eta, rng, 1.0)),
}
