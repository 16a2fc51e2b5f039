"""Outcomes above zero: amounts, and times until something happens, which may not have happened yet."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from sgmcmc.models.regression.families.base import Extra, Family, Outcome, Own, positive_start


def _mean(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jnp.exp(eta)


def _gamma(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    """Of mean exp(eta) and variance exp(2 eta) / shape."""
    shape, log_y = own["shape"], jnp.log(rows["y"])
    return shape * (jnp.log(shape) + log_y - eta) - gammaln(shape) - log_y - shape * jnp.exp(log_y - eta)


def _simulate_gamma(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jnp.exp(eta) * jax.random.gamma(key, own["shape"], eta.shape) / own["shape"]


def _happened(rows: Any) -> Any:
    """1 where the time is that of the event, 0 where it had not happened by then."""
    return rows.get("event", 1.0)


def _exponential(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return -_happened(rows) * eta - jnp.exp(jnp.log(rows["y"]) - eta)


def _simulate_exponential(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jnp.exp(eta) * jax.random.exponential(key, eta.shape)


def _weibull(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    """Of scale exp(eta): log S = -(y / scale)^shape."""
    shape, log_y = own["shape"], jnp.log(rows["y"])
    power = shape * (log_y - eta)
    return _happened(rows) * (jnp.log(shape) + power - log_y) - jnp.exp(power)


def _weibull_mean(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jnp.exp(eta + gammaln(1 + 1 / own["shape"]))


def _simulate_weibull(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jnp.exp(eta) * jax.random.exponential(key, eta.shape) ** (1 / own["shape"])


def _wide_prior(_: Outcome) -> Any:
    from numpyro.distributions import LogNormal

    return LogNormal(0.0, 2.0)


def _shape_prior(_: Outcome) -> Any:
    from numpyro.distributions import LogNormal

    return LogNormal(0.0, 1.0)


GAMMA_SHAPE = Extra("shape", "positive", _wide_prior, positive_start(1.0), "shape ~ LogNormal(0, 2)")
WEIBULL_SHAPE = Extra("shape", "positive", _shape_prior, positive_start(1.0), "shape ~ LogNormal(0, 1)")

GAMMA = Family("gamma", ("log",), _gamma, _mean, _simulate_gamma, "positive", (GAMMA_SHAPE,))
EXPONENTIAL = Family("exponential", ("log",), _exponential, _mean, _simulate_exponential, "positive", censored=True)
WEIBULL = Family("weibull", ("log",), _weibull, _weibull_mean, _simulate_weibull, "positive", (WEIBULL_SHAPE,), censored=True)
