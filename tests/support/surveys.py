"""A logistic regression of three correlated columns, and looks at problems as the tests of `tune` take them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from sgmcmc.run.request import Problem
from sgmcmc.tune.survey import take_survey


def logistic(params, batch):
    z = batch["x"] @ params["beta"]
    return batch["y"] * z - jnp.logaddexp(0.0, z)


def normal_prior(params):
    return -0.5 * (params["beta"] ** 2).sum()


def classes(x, beta, seed=0):
    return (np.random.default_rng(seed).random(len(x)) < 1 / (1 + np.exp(-x @ beta))).astype(float)


def problem(log_lik, data, params, log_prior=None):
    found = Problem.of(log_lik, data, params, log_prior)
    return found.posterior, found.table, found.position


def surveyed(log_lik, data, params, log_prior=None, **options):
    return take_survey(Problem.of(log_lik, data, params, log_prior), seed=0, progress=False, **options)


def hessian(x, beta, prior=1.0):
    p = 1 / (1 + np.exp(-x @ beta))
    return (x * (p * (1 - p))[:, None]).T @ x + prior * np.eye(len(beta))


X = np.random.default_rng(3).normal(size=(500, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.3, 5.0]])
Y = classes(X, np.array([1.0, -0.5, 0.1]))
