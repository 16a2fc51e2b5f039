"""Outcomes that are one of a few classes, in an order or without."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.models.regression.families.base import Extra, Family, Outcome, Own
from sgmcmc.models.regression.links import FORWARD, log_between

OUTERMOST = {"logit": 1e4, "probit": 1e4, "cloglog": 80.0}
"""Beyond the first and the last threshold, where a distribution function is 0 and 1."""


def _with_first(eta: jax.Array) -> jax.Array:
    """Linear predictors of all classes: that of the first is 0."""
    return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], axis=-1)


def _categorical(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    log_shares = jax.nn.log_softmax(_with_first(eta), axis=-1)
    return jnp.take_along_axis(log_shares, rows["y"].astype(jnp.int32)[..., None], axis=-1)[..., 0]


def _shares(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jax.nn.softmax(_with_first(eta), axis=-1)


def _simulate_categorical(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jax.random.categorical(key, _with_first(eta), axis=-1).astype(jnp.int32)


def _limits(link: str, thresholds: jax.Array) -> jax.Array:
    """The thresholds between classes, with one before the first and one after the last."""
    end = jnp.full((1,), OUTERMOST[link], thresholds.dtype)
    return jnp.concatenate([-end, thresholds, end])


def _ordinal(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    """P(y ≤ k) = F(threshold k - eta)."""
    limits, y = _limits(link, own["thresholds"]), rows["y"].astype(jnp.int32)
    first, last = y == 0, y == len(limits) - 2
    high = jnp.where(last, OUTERMOST[link], limits[y + 1] - eta)
    low = jnp.where(first, -OUTERMOST[link], limits[y] - eta)
    return log_between(link, high, low)


def _ordered_shares(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    classes = jnp.arange(len(own["thresholds"]) + 1)
    return jnp.exp(jax.vmap(lambda k: _ordinal(link, eta, own, {"y": jnp.full(eta.shape, k)}), out_axes=-1)(classes))


def _simulate_ordinal(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    shares = _ordered_shares(link, eta, own, rows)
    return jax.random.categorical(key, jnp.log(jnp.maximum(shares, 1e-30)), axis=-1).astype(jnp.int32)


def _threshold_prior(outcome: Outcome) -> Any:
    from numpyro.distributions import Normal

    return Normal(jnp.zeros(len(outcome.shares) - 1), 5.0)


def _threshold_start(outcome: Outcome) -> Any:
    below = np.cumsum(outcome.shares)[:-1]
    return np.asarray(FORWARD["logit"](np.clip(below, 1e-6, 1 - 1e-6)))


THRESHOLDS = Extra("thresholds", "ordered_vector", _threshold_prior, _threshold_start, "thresholds ~ Normal(0, 5)")

CATEGORICAL = Family("categorical", ("logit",), _categorical, _shares, _simulate_categorical, "class")
ORDINAL = Family("ordinal", ("logit", "probit", "cloglog"), _ordinal, _ordered_shares, _simulate_ordinal, "order", (THRESHOLDS,))
