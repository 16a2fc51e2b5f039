"""Everyday regressions on many rows, as users write them: rare levels, exposures, heavy tails, counts, grades, times."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import BernoulliLogits, Beta, Gamma, HalfNormal, LogNormal, NegativeBinomial2, Normal, StudentT

from benchmarks.everyday import models, targets
from benchmarks.everyday.cases import Case
from benchmarks.models import family_targets
from sgmcmc import constraints

COMMON, RARE = (0.4, 0.3, 0.15, 0.08, 0.04, 0.03), (5, 5, 4, 3, 2, 1)
"""Levels of a column: shares of the rows, and numbers of them."""


def levels_lik(params: Any, batch: Any) -> Any:
    return BernoulliLogits(params["a"] + params["b"] * batch["x"] + params["level"][batch["code"]]).log_prob(batch["y"])


def rare_levels(seed: int, rows: int) -> Case:
    """Twelve levels, six of them rare; of these the first has no event and the second nothing else."""
    rng = np.random.default_rng([seed, 12])
    sizes = [round(share * (rows - sum(RARE))) for share in COMMON]
    sizes[0] += rows - sum(RARE) - sum(sizes)
    code = rng.permutation(np.repeat(np.arange(len(sizes) + len(RARE)), [*sizes, *RARE])).astype(np.int32)
    count, x = len(sizes) + len(RARE), rng.normal(size=rows).round(1).astype(np.float32)
    y = models.draws_of(rng, rng.normal(-1.0, 1.0, count)[code] + 0.5 * x)
    y[code == len(sizes)], y[code == len(sizes) + 1] = 0.0, 1.0
    X = np.column_stack([np.ones(rows), x, np.eye(count)[code]])
    target = targets.regression_target(X, y, 2.5, {"a": (), "b": (), "level": (count,)})
    start, data = {"a": 0.0, "b": 0.0, "level": np.zeros(count)}, {"code": code, "x": x, "y": y}
    return Case(levels_lik, data, start, models.normal_prior(2.5), target=target)


def exposures(seed: int, rows: int) -> Case:
    """Counts with exposures, three measurements and rare columns that are 1 in 2, 4 and 8 rows."""
    rng, d = np.random.default_rng([seed, 13]), 6
    X = np.zeros((rows, d), np.float32)
    X[:, :3] = rng.normal(size=(rows, 3))
    for column, count in ((3, 2), (4, 4), (5, 8)):
        X[rng.choice(rows, count, replace=False), column] = 1.0
    exposure = rng.gamma(2.0, 0.5, rows).astype(np.float32)
    rate = exposure * np.exp(-2.0 + X @ np.array([0.4, -0.2, 0.1, 0.5, 0.5, 0.5]))
    data = {"X": X, "exposure": exposure, "y": rng.poisson(rate).astype(np.float32)}
    start, log_lik = {"a": 0.0, "beta": np.zeros(d)}, partial(models.exposed, models.poisson)
    return Case(log_lik, data, start, models.normal_prior(5.0), target=models.regression_on(data, 5.0))


def student_lik(params: Any, batch: Any) -> Any:
    return StudentT(params["nu"], batch["X"] @ params["beta"], params["sigma"]).log_prob(batch["y"])


def student_prior(params: Any) -> Any:
    scales = Gamma(2.0, 0.1).log_prob(params["nu"]) + HalfNormal(2.0).log_prob(params["sigma"])
    return scales + Normal(0.0, 2.0).log_prob(params["beta"]).sum()


def student(seed: int, rows: int) -> Case:
    """Heavy tails with unknown degrees of freedom; six columns, one of ones."""
    rng = np.random.default_rng([seed, 14])
    X = models.with_intercept(*rng.normal(size=(5, rows))).astype(np.float32)
    y = (X @ rng.normal(0.0, 0.7, 6) + 0.8 * rng.standard_t(4.0, rows)).astype(np.float32)
    start, support = {"beta": np.zeros(6), "nu": 10.0, "sigma": 1.0}, dict.fromkeys(("nu", "sigma"), constraints.positive)
    return Case(student_lik, {"X": X, "y": y}, start, student_prior, support, family_targets.student_target(X, y))


def overdispersed_lik(params: Any, batch: Any) -> Any:
    return NegativeBinomial2(jnp.exp(batch["X"] @ params["beta"]), params["phi"]).log_prob(batch["y"])


def overdispersed_prior(params: Any) -> Any:
    return Normal(0.0, 1.0).log_prob(params["beta"]).sum() + LogNormal(0.0, 1.0).log_prob(params["phi"])


def negative_binomial(seed: int, rows: int) -> Case:
    """Counts with more variance than Poisson's; six columns, one of ones."""
    rng, phi = np.random.default_rng([seed, 15]), 1.5
    X = models.with_intercept(*rng.normal(size=(5, rows))).astype(np.float32)
    mean = np.exp(X @ np.array([0.5, 0.4, -0.3, 0.2, 0.0, 0.1]))
    y = rng.negative_binomial(phi, phi / (phi + mean)).astype(np.float32)
    start, support = {"beta": np.zeros(6), "phi": 1.0}, {"phi": constraints.positive}
    target = family_targets.negative_binomial_target(X, y)
    return Case(overdispersed_lik, {"X": X, "y": y}, start, overdispersed_prior, support, target)


def ordinal(seed: int, rows: int) -> Case:
    """Five ordered answers, the last of them rare."""
    rng = np.random.default_rng([seed, 16])
    X = rng.normal(size=(rows, 4)).astype(np.float32)
    latent = X @ np.array([0.8, -0.4, 0.1, 0.3]) + rng.logistic(size=rows)
    y = np.searchsorted([-1.0, 0.5, 2.0, 6.0], latent).astype(np.int32)
    start, support = {"beta": np.zeros(4), "cuts": np.arange(4.0)}, {"cuts": constraints.ordered_vector}
    return Case(models.grades_lik, {"X": X, "y": y}, start, models.grades_prior, support, targets.ordinal_target(X, y))


def weibull(seed: int, rows: int) -> Case:
    """Times until an event; two thirds of the rows are censored."""
    rng = np.random.default_rng([seed, 17])
    x = rng.normal(size=rows).astype(np.float32)
    time, end = np.exp(1.0 + 0.5 * x) * rng.weibull(1.7, rows), rng.exponential(2.0, rows) + 0.01
    data = {"t": np.minimum(time, end).astype(np.float32), "x": x, "event": (time < end).astype(np.float32)}
    start, support = {"a": 0.0, "b": 0.0, "k": 1.0}, {"k": constraints.positive}
    return Case(models.survival_lik, data, start, models.survival_prior, support, targets.weibull_target(**data))


def mixture_lik(params: Any, batch: Any) -> Any:
    laws = Normal(params["mu"], params["sigma"]).log_prob(batch["y"][:, None])
    weights = jnp.stack([params["weight"], 1 - params["weight"]])
    return jax.nn.logsumexp(laws + jnp.log(weights), axis=1)


def mixture_prior(params: Any) -> Any:
    scales = HalfNormal(2.0).log_prob(params["sigma"]).sum() + Beta(2.0, 2.0).log_prob(params["weight"])
    return scales + Normal(0.0, 5.0).log_prob(params["mu"]).sum()


def mixture(seed: int, rows: int) -> Case:
    """Two normal laws, 2.5 standard deviations apart."""
    rng = np.random.default_rng([seed, 18])
    y = np.where(rng.random(rows) < 0.35, rng.normal(-1.0, 0.7, rows), rng.normal(1.5, 1.1, rows)).astype(np.float32)
    start = {"weight": 0.5, "mu": np.array([-0.5, 0.5]), "sigma": np.ones(2)}
    support = {"weight": constraints.unit_interval, "mu": constraints.ordered_vector, "sigma": constraints.positive}
    return Case(mixture_lik, {"y": y}, start, mixture_prior, support, family_targets.mixture_target(y))
