"""Models of the kind that posteriordb collects, written from their mathematics, with data simulated in the same shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpyro.distributions import BernoulliLogits, HalfNormal, Normal

from benchmarks.everyday import models, targets
from benchmarks.everyday.cases import Case
from benchmarks.models import family_targets
from benchmarks.models.regressions import normal_regression, wide_lik
from sgmcmc import constraints


def logistic(X: np.ndarray, y: np.ndarray, scale: float) -> Case:
    """All coefficients with one normal prior, from zeros."""
    X = X.astype(np.float32)
    target = targets.regression_target(X, y, scale, {"beta": (X.shape[1],)})
    return Case(wide_lik, {"X": X, "y": y}, {"beta": np.zeros(X.shape[1])}, models.normal_prior(scale), target=target)


def kidiq(seed: int) -> Case:
    """Test scores of 434 children by their mothers' schooling, IQ, and the product of both, in their own units."""
    rng, n = np.random.default_rng([seed, 434]), 434
    schooled, iq = rng.random(n) < 0.79, rng.normal(100.0, 15.0, n)
    X = models.with_intercept(schooled, iq, schooled * iq).astype(np.float32)
    y = (X @ np.array([-11.0, 51.0, 0.97, -0.48]) + 18.0 * rng.normal(size=n)).astype(np.float32)
    return normal_regression(X, y, np.array([50.0, 50.0, 5.0, 5.0]), 25.0)


def earnings(seed: int) -> Case:
    """Logarithms of earnings of 1,192 people by height in inches, sex, and the product of both."""
    rng, n = np.random.default_rng([seed, 1192]), 1_192
    male = rng.random(n) < 0.4
    height = rng.normal(64.5 + 5.5 * male, 2.7)
    X = models.with_intercept(height, male, height * male).astype(np.float32)
    y = (X @ np.array([8.4, 0.017, -0.08, 0.0074]) + 0.88 * rng.normal(size=n)).astype(np.float32)
    return normal_regression(X, y, np.array([10.0, 1.0, 10.0, 1.0]), 2.0)


def diamonds(seed: int) -> Case:
    """Prices of 5,000 diamonds by 24 columns, many of which are nearly the same."""
    rng, n, d = np.random.default_rng([seed, 24]), 5_000, 24
    shared = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d))
    X = shared + 0.3 * rng.normal(size=(n, d))
    X = np.column_stack([np.ones(n), X / X.std(axis=0)]).astype(np.float32)
    y = (X @ np.r_[7.8, rng.normal(0.0, 0.3, d)] + 0.13 * rng.normal(size=n)).astype(np.float32)
    return normal_regression(X, y, np.r_[10.0, np.ones(d)], 1.0)


def nes(seed: int) -> Case:
    """Votes of 1,179 people by income (five levels), ideology, race, sex, and three of four ages."""
    rng, n = np.random.default_rng([seed, 1179]), 1_179
    income, ideology = rng.choice(np.arange(1.0, 6.0), n, p=(0.15, 0.19, 0.35, 0.26, 0.05)), rng.integers(1, 8, n)
    race, sex, age = rng.random(n) < 0.13, rng.random(n) < 0.55, np.eye(4)[rng.integers(0, 4, n)][:, 1:]
    X = models.with_intercept(income, ideology, race, sex, *age.T)
    y = models.draws_of(rng, X @ np.array([-3.5, 0.3, 0.6, -2.3, 0.1, -0.2, 0.1, 0.2]))
    return logistic(X, y, 5.0)


def wells(seed: int) -> Case:
    """Whether 3,020 households changed their well: distance, arsenic, their product, and schooling, about their means."""
    rng, n = np.random.default_rng([seed, 3020]), 3_020
    distance, arsenic = rng.gamma(1.6, 0.3, n), 0.5 + rng.gamma(1.2, 0.95, n)
    schooling = rng.choice(np.arange(18) / 4, n)
    d, a, s = (column - column.mean() for column in (distance, arsenic, schooling))
    X = models.with_intercept(d, a, s, d * a)
    y = models.draws_of(rng, X @ np.array([0.35, -0.9, 0.5, 0.17, -0.12]))
    return logistic(X, y, 5.0)


def radon_lik(params: Any, batch: Any) -> Any:
    mean = params["u"][batch["county"]] + params["beta"] * batch["x"]
    return Normal(mean, params["sigma"]).log_prob(batch["y"])


def radon_prior(params: Any) -> Any:
    scales = HalfNormal(1.0).log_prob(params["sigma"]) + HalfNormal(1.0).log_prob(params["tau"])
    above = Normal(0.0, 2.0).log_prob(params["mu"]) + Normal(0.0, 2.0).log_prob(params["beta"])
    return scales + above + Normal(params["mu"], params["tau"]).log_prob(params["u"]).sum()


def radon(seed: int) -> Case:
    """Logarithms of radon in 919 houses of 85 counties, many of which have few houses; on the ground floor there is less."""
    rng, n, count = np.random.default_rng([seed, 919]), 919, 85
    county = np.sort(rng.choice(count, n, p=rng.dirichlet(np.full(count, 0.8)))).astype(np.int32)
    x = (rng.random(n) < 0.17).astype(np.float32)
    y = (rng.normal(1.46, 0.33, count)[county] - 0.69 * x + 0.76 * rng.normal(size=n)).astype(np.float32)
    start = {"beta": 0.0, "mu": 0.0, "sigma": 1.0, "tau": 1.0, "u": np.zeros(count)}
    data, support = {"x": x, "county": county, "y": y}, dict.fromkeys(("sigma", "tau"), constraints.positive)
    target = family_targets.counties_target(x, county, y, 0.58, count)
    return Case(radon_lik, data, start, radon_prior, support, target)


CROSSED = {"age": (4, 0.3), "education": (4, 0.3), "state": (51, 0.4)}
"""Groupings of the people who were asked: how many groups, and the standard deviation of their effects."""


def election_lik(params: Any, batch: Any) -> Any:
    eta = params["a"] + batch["X"] @ params["beta"] + sum(params[name][batch[name]] for name in CROSSED)
    return BernoulliLogits(eta).log_prob(batch["y"])


def election_prior(params: Any) -> Any:
    lines = Normal(0.0, 2.0).log_prob(params["a"]) + Normal(0.0, 1.0).log_prob(params["beta"]).sum()
    every = [Normal(0.0, params["tau"][k]).log_prob(params[name]).sum() for k, name in enumerate(CROSSED)]
    return lines + HalfNormal(1.0).log_prob(params["tau"]).sum() + sum(every)


def election(seed: int) -> Case:
    """Votes of 11,566 people: sex, race and their product, with effects of age, education and state, centred."""
    rng, n = np.random.default_rng([seed, 11566]), 11_566
    female, black = rng.random(n) < 0.55, rng.random(n) < 0.08
    X = np.column_stack([female, black, female * black]).astype(np.float32)
    sizes = tuple(size for size, _ in CROSSED.values())
    codes = {
        name: rng.choice(size, n, p=rng.dirichlet(np.full(size, 2.0))).astype(np.int32) for name, (size, _) in CROSSED.items()
    }
    eta = 0.3 + X @ np.array([-0.1, -1.6, -0.2])
    for name, (size, spread) in CROSSED.items():
        eta = eta + rng.normal(0.0, spread, size)[codes[name]]
    y = models.draws_of(rng, eta)
    start = {"a": 0.0, "beta": np.zeros(3), "tau": np.ones(3)} | {name: np.zeros(size) for name, (size, _) in CROSSED.items()}
    target = family_targets.crossed_target(X, codes, y, sizes)
    return Case(election_lik, {"X": X, **codes, "y": y}, start, election_prior, {"tau": constraints.positive}, target)
