"""Small models with Gibbs steps whose posterior is known by enumeration or quadrature."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

import sgmcmc


@dataclass(frozen=True)
class Case:
    """A model, its blocks, what is looked at in every draw, and the posterior means of that."""

    log_lik: Callable[..., Any]
    log_prior: Callable[..., Any]
    data: dict[str, np.ndarray]
    params: dict[str, Any]
    gibbs: dict[str, Any]
    seen: Callable[[Any], np.ndarray]
    truth: np.ndarray


# Spike and slab: y = X (z ∘ beta) + e, beta_j ~ N(0, 1), z_j ~ Bernoulli(0.3), e ~ N(0, 1).

ODDS = np.log(0.3 / 0.7)


def products(rows):
    return {"G": rows["X"].T @ rows["X"], "r": rows["X"].T @ rows["y"]}


def indicators(key, params, sums, lean=0.0):
    """Each z_j in turn from its conditional; `lean` is a mistake in the odds."""
    beta, uniforms = params["beta"], jax.random.uniform(key, params["beta"].shape)

    def one(j, z):
        others = sums["G"][j] @ (z.at[j].set(0) * beta)
        log_odds = ODDS + lean + beta[j] * (sums["r"][j] - others) - 0.5 * sums["G"][j, j] * beta[j] ** 2
        return z.at[j].set((uniforms[j] < jax.nn.sigmoid(log_odds)).astype(z.dtype))

    return jax.lax.fori_loop(0, len(beta), one, params["z"])


def spike_and_slab(d=10, n=60, update=indicators) -> Case:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d))
    y = X @ (np.array([0.45, 0.4, 0.35, 0.3, *[0.0] * (d - 4)])) + rng.normal(size=n)

    def log_lik(params, rows):
        return -0.5 * ((rows["y"] - rows["X"] @ (params["z"] * params["beta"])) ** 2).sum()

    def log_prior(params):
        return -0.5 * (params["beta"] ** 2).sum() + ODDS * params["z"].sum()

    models = np.array(list(itertools.product([0, 1], repeat=d)))
    weights = np.array([_log_marginal(X[:, z == 1], y) + ODDS * z.sum() for z in models])
    truth = np.exp(weights - logsumexp(weights)) @ models
    gibbs = {"z": sgmcmc.Gibbs(update, statistics=products)}
    params = {"beta": np.zeros(d), "z": np.ones(d, int)}
    return Case(log_lik, log_prior, {"X": X, "y": y}, params, gibbs, lambda out: out["z"], truth)


# The same with spikes that have a width: beta_j ~ N(0, 1) or N(0, 0.1²), so that rows do not see the indicators.

NARROW = 0.1


def of_coefficients(key, params):
    """Each z_j from its conditional: they are independent given beta."""
    b2 = params["beta"] ** 2
    log_odds = ODDS - 0.5 * b2 + 0.5 * b2 / NARROW**2 + np.log(NARROW)
    return jax.random.bernoulli(key, jax.nn.sigmoid(log_odds))


def narrow_and_wide(d=10, n=60) -> Case:
    case = spike_and_slab(d, n)
    X, y = case.data["X"], case.data["y"]

    def log_lik(params, rows):
        return -0.5 * ((rows["y"] - rows["X"] @ params["beta"]) ** 2).sum()

    def log_prior(params):
        width = jnp.where(params["z"] == 1, 1.0, NARROW)
        return (-0.5 * (params["beta"] / width) ** 2 - jnp.log(width)).sum() + ODDS * params["z"].sum()

    models = np.array(list(itertools.product([0, 1], repeat=d)))
    weights = np.array([_log_marginal(X * np.where(z == 1, 1.0, NARROW), y) + ODDS * z.sum() for z in models])
    truth = np.exp(weights - logsumexp(weights)) @ models
    gibbs = {"z": sgmcmc.Gibbs(of_coefficients, rows="none")}
    return Case(log_lik, log_prior, case.data, case.params, gibbs, case.seen, truth)


def _log_marginal(X, y):
    """log N(y; 0, I + X Xᵀ) but for what all models share."""
    precision = np.eye(X.shape[1]) + X.T @ X
    r = X.T @ y
    return 0.5 * r @ np.linalg.solve(precision, r) - 0.5 * np.linalg.slogdet(precision)[1]


# A scale: beta_j ~ N(0, 1/tau), tau ~ Gamma(2, 1), y = X beta + e.


def draw_tau(key, params, shape=2.0):
    beta = params["beta"]
    return jax.random.gamma(key, shape + beta.shape[0] / 2) / (1 + 0.5 * (beta**2).sum())


def scale(update=draw_tau) -> Case:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 4))
    y = X @ np.array([1.0, -0.5, 0.3, 0.0]) + rng.normal(size=40)

    def log_lik(params, rows):
        return -0.5 * ((rows["y"] - rows["X"] @ params["beta"]) ** 2).sum()

    def log_prior(params):
        tau = params["tau"]
        return (2 + 2 - 1) * jnp.log(tau) - tau * (1 + 0.5 * (params["beta"] ** 2).sum())

    tau = np.linspace(1e-3, 30, 4000)
    log_p = [np.log(t) - t - 0.5 * np.linalg.slogdet(np.eye(40) + X @ X.T / t)[1] for t in tau]
    quadratic = [y @ np.linalg.solve(np.eye(40) + X @ X.T / t, y) for t in tau]
    p = np.exp(np.array(log_p) - 0.5 * np.array(quadratic) + 0.5 * min(quadratic))
    p /= p.sum()
    truth = np.array([p @ tau, p @ np.log(tau)])

    def seen(out):
        return np.stack([out["tau"], np.log(out["tau"])], axis=-1)

    gibbs = {"tau": sgmcmc.Gibbs(update, rows="none")}
    return Case(log_lik, log_prior, {"X": X, "y": y}, {"beta": np.zeros(4), "tau": 1.0}, gibbs, seen, truth)


# A change point: y_t ~ N(mean_0, 1) before c, N(mean_1, 1) from c on; means N(0, 1), c uniform on 1, ..., T - 1.

LENGTH = 30


def location(key, params, rows, shift=0):
    """c from its conditional, by the log likelihood of every place; `shift` is a mistake."""
    before, after = (-0.5 * (rows["y"] - params["mean"][k]) ** 2 for k in (0, 1))
    places = jnp.arange(1, LENGTH)
    log_p = jnp.cumsum(before)[:-1] + after.sum() - jnp.cumsum(after)[:-1]
    return places[jax.random.categorical(key, log_p)] + shift


def change_point(update=location) -> Case:
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(-0.5, 1.0, 12), rng.normal(0.7, 1.0, LENGTH - 12)])

    def log_lik(params, rows):
        mean = jnp.where(rows["t"] < params["c"], params["mean"][0], params["mean"][1])
        return -0.5 * ((rows["y"] - mean) ** 2).sum()

    def log_prior(params):
        return -0.5 * (params["mean"] ** 2).sum()

    def piece(part):
        return 0.5 * part.sum() ** 2 / (len(part) + 1) - 0.5 * np.log(len(part) + 1)

    log_p = np.array([piece(y[:c]) + piece(y[c:]) for c in range(1, LENGTH)])
    p = np.exp(log_p - logsumexp(log_p))
    places = np.arange(1, LENGTH)
    likely = places[np.argsort(-p)[:4]]

    def seen(out):
        c = np.asarray(out["c"])
        return np.stack([c, *(c == place for place in likely)], axis=-1).astype(float)

    truth = np.array([p @ places, *p[likely - 1]])
    data = {"y": y, "t": np.arange(LENGTH)}
    return Case(log_lik, log_prior, data, {"mean": np.zeros(2), "c": 10}, {"c": update}, seen, truth)
