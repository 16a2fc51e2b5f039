"""Regressions drawn at random: rare levels, scales, correlations, intercepts and priors as they come."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.everyday import models, targets
from benchmarks.everyday.cases import Case
from sgmcmc import distributions

HOW_MANY = 50
ROWS, COLUMNS, RAREST = (300, 200_000), (2, 25), (1, 50)

PRIORS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda scale: distributions.Normal(0.0, scale),
    "laplace": lambda scale: distributions.Laplace(0.0, scale),
    "student": lambda scale: distributions.StudentT(4.0, 0.0, scale),
}
WAYS = {
    "logistic": (models.bernoulli_logits, models.log_sigmoid, models.logaddexp),
    "poisson": (models.poisson, models.poisson_formula),
}


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def measurements(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    """Columns of standard deviation 1 that share one factor."""
    shared = rng.uniform(0, 0.99)
    return np.sqrt(shared) * rng.normal(size=(n, 1)) + np.sqrt(1 - shared) * rng.normal(size=(n, count))


def indicators(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    """Columns of 0 and 1, each 1 in a few rows only."""
    found = np.zeros((n, count))
    for column in found.T:
        column[rng.choice(n, round(log_uniform(rng, *RAREST)), replace=False)] = 1.0
    return found


def predictor(rng: np.random.Generator, standard: np.ndarray, rare: np.ndarray) -> np.ndarray:
    """What the columns say, with a standard deviation of at most 1."""
    said = standard @ rng.normal(0.0, 0.4, standard.shape[1])
    return said / max(1.0, said.std()) + rare @ rng.normal(0.0, 1.0, rare.shape[1])


def random_regression(family: str, seed: int) -> Case:
    """A regression of the family, with everything else drawn; the start is zeros."""
    rng = np.random.default_rng([seed, 50])
    n, d = round(log_uniform(rng, *ROWS)), int(rng.integers(COLUMNS[0], COLUMNS[1] + 1))
    few = int(rng.integers(0, min(d, 5)))
    standard, rare = measurements(rng, n, d - few), indicators(rng, n, few)
    X = np.column_stack([standard * 10 ** rng.uniform(-3, 3, d - few), rare]).astype(np.float32)
    eta = predictor(rng, standard, rare) + rng.uniform(-7, 1)
    prior, scale = str(rng.choice(list(PRIORS), p=[0.7, 0.15, 0.15])), log_uniform(rng, 0.5, 10)
    way = WAYS[family][seed // len(WAYS) % len(WAYS[family])]
    exposure = np.exp(rng.normal(0, 1, n)).astype(np.float32) if family == "poisson" else None
    y = models.draws_of(rng, eta) if exposure is None else rng.poisson(exposure * np.exp(eta)).astype(np.float32)
    target = targets.regression_target(
        models.with_intercept(X), y, scale, {"a": (), "beta": (d,)}, exposure=exposure, family=family, prior=prior
    )
    data = {"X": X, "y": y} if exposure is None else {"X": X, "y": y, "exposure": exposure}
    log_lik = partial(models.columns if exposure is None else models.exposed, way)
    return Case(log_lik, data, {"a": 0.0, "beta": np.zeros(d)}, partial(alike, PRIORS[prior](scale)), target=target)


def alike(prior: Any, params: Any) -> Any:
    """One prior for the intercept and all coefficients."""
    return sum(prior.log_prob(value).sum() for value in params.values())


RANDOM: dict[str, Callable[[int], Case]] = {f"random {family}": partial(random_regression, family) for family in WAYS}
RANDOM_SEEDS = {f"random {family}": tuple(range(first, HOW_MANY, 2)) for first, family in enumerate(WAYS)}
