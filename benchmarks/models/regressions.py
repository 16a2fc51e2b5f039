"""Regressions as users write them, with data made on the spot: shrinkage, many columns, other families."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import BernoulliLogits, HalfCauchy, HalfNormal, Normal

from benchmarks.everyday.cases import Case, Draws
from benchmarks.everyday.models import draws_of
from benchmarks.models import regression_targets as targets
from sgmcmc import constraints

EFFECTS = (1.0, -1.0, 1.0, 0.7, -0.5, 0.3, 0.15, -0.1)
"""The others are 0."""


def horseshoe_lik(params: Any, batch: Any) -> Any:
    beta = params["z"] * params["lam"] * params["tau"]
    return BernoulliLogits(params["a"] + batch["X"] @ beta).log_prob(batch["y"])


def horseshoe_prior(params: Any) -> Any:
    scales = HalfCauchy(1.0).log_prob(params["lam"]).sum() + HalfCauchy(0.1).log_prob(params["tau"])
    return scales + Normal(0.0, 5.0).log_prob(params["a"]) + Normal().log_prob(params["z"]).sum()


def horseshoe_seen(draws: Draws) -> Draws:
    """Coefficients, and logarithms of the scales: those have no moments themselves."""
    beta = draws["z"] * draws["lam"] * np.asarray(draws["tau"])[..., None]
    return {"a": draws["a"], "beta": beta, "log lam": np.log(draws["lam"]), "log tau": np.log(draws["tau"])}


def horseshoe_logistic(seed: int, rows: int, columns: int) -> Case:
    rng = np.random.default_rng([seed, 201])
    X = rng.normal(size=(rows, columns)).astype(np.float32)
    y = draws_of(rng, -0.5 + X[:, : len(EFFECTS)] @ np.array(EFFECTS))
    start = {"a": 0.0, "lam": np.ones(columns), "tau": 0.1, "z": np.zeros(columns)}
    support, target = dict.fromkeys(("lam", "tau"), constraints.positive), targets.horseshoe_logistic_target(X, y)
    naming, data = r"\b(lam|tau|z)\b", {"X": X, "y": y}
    return Case(horseshoe_lik, data, start, horseshoe_prior, support, target, seen=horseshoe_seen, naming=naming)


def normal_lik(params: Any, batch: Any) -> Any:
    return Normal(batch["X"] @ params["beta"], params["sigma"]).log_prob(batch["y"])


def normal_prior(scale: Any, width: float, params: Any) -> Any:
    return Normal(0.0, jnp.asarray(scale)).log_prob(params["beta"]).sum() + HalfNormal(width).log_prob(params["sigma"])


def normal_regression(X: np.ndarray, y: np.ndarray, scale: Any = 2.0, width: float = 2.0) -> Case:
    """With an unknown noise, from zeros."""
    start, support = {"beta": np.zeros(X.shape[1]), "sigma": 1.0}, {"sigma": constraints.positive}
    data, target = {"X": X, "y": y}, targets.normal_regression_target(X, y, scale, width)
    return Case(normal_lik, data, start, partial(normal_prior, scale, width), support, target)


def linear_many(seed: int, rows: int, columns: int) -> Case:
    """Columns that share a tenth of what they say, one of them of ones."""
    rng = np.random.default_rng([seed, 300])
    X = (rng.normal(size=(rows, columns)) + rng.normal(size=(rows, 1)) / 3).astype(np.float32)
    X[:, 0] = 1.0
    y = (X @ rng.normal(0.0, 0.2, columns) + 1.3 * rng.normal(size=rows)).astype(np.float32)
    return normal_regression(X, y)


def wide_lik(params: Any, batch: Any) -> Any:
    return BernoulliLogits(batch["X"] @ params["beta"]).log_prob(batch["y"])


def wide_prior(params: Any) -> Any:
    return Normal(0.0, 1.0).log_prob(params["beta"]).sum()


def logistic_many(seed: int, rows: int, columns: int) -> Case:
    """Very many columns, one of them of ones; together they move the logit by a standard deviation of 1."""
    rng = np.random.default_rng([seed, 2_500])
    X = rng.standard_normal((rows, columns), np.float32)
    X[:, 0] = 1.0
    y = draws_of(rng, X @ rng.normal(0.0, columns**-0.5, columns).astype(np.float32))
    target, start = targets.wide_logistic_target(X, y), {"beta": np.zeros(columns)}
    return Case(wide_lik, {"X": X, "y": y}, start, wide_prior, target=target, naming=r"\bbeta\b")
