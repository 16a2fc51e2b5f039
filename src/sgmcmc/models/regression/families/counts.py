"""Outcomes that are counts, without a limit."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from sgmcmc.models.regression.families.base import Extra, Family, Outcome, Own, positive_start


def _rate(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jnp.exp(eta)


def _poisson(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return rows["y"] * eta - jnp.exp(eta) - gammaln(rows["y"] + 1)


def _simulate_poisson(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jax.random.poisson(key, jnp.exp(eta)).astype(eta.dtype)


def _negative_binomial(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    """Of mean μ = exp(eta) and variance μ + μ² / shape."""
    y, shape = rows["y"], own["shape"]
    log_total = jnp.logaddexp(jnp.log(shape), eta)
    ways = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1)
    return ways - shape * jnp.log1p(jnp.exp(eta) / shape) + y * (eta - log_total)


def _simulate_negative_binomial(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    of_rates, of_counts = jax.random.split(key)
    rates = jnp.exp(eta) * jax.random.gamma(of_rates, own["shape"], eta.shape) / own["shape"]
    return jax.random.poisson(of_counts, rates).astype(eta.dtype)


def _zero_inflated(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    counted = jnp.log1p(-own["zero"]) + _poisson(link, eta, own, rows)
    return jnp.where(rows["y"] == 0, jnp.logaddexp(jnp.log(own["zero"]), jnp.log1p(-own["zero"]) - jnp.exp(eta)), counted)


def _thinned_rate(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return (1 - own["zero"]) * jnp.exp(eta)


def _simulate_zero_inflated(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    of_zeros, of_counts = jax.random.split(key)
    counted = jax.random.bernoulli(of_zeros, 1 - own["zero"], eta.shape)
    return jnp.where(counted, _simulate_poisson(of_counts, link, eta, own, rows), 0.0)


def _shape_prior(_: Outcome) -> Any:
    from numpyro.distributions import LogNormal

    return LogNormal(0.0, 2.0)


def _zero_prior(_: Outcome) -> Any:
    from numpyro.distributions import Beta

    return Beta(1.0, 1.0)


SHAPE = Extra("shape", "positive", _shape_prior, positive_start(1.0), "shape ~ LogNormal(0, 2)")
ZERO = Extra("zero", "unit_interval", _zero_prior, positive_start(0.1), "zero ~ Uniform(0, 1)")

POISSON = Family("poisson", ("log",), _poisson, _rate, _simulate_poisson, "count")
NEGATIVE_BINOMIAL = Family(
    "negative binomial", ("log",), _negative_binomial, _rate, _simulate_negative_binomial, "count", (SHAPE,)
)
ZERO_INFLATED_POISSON = Family(
    "zero inflated poisson", ("log",), _zero_inflated, _thinned_rate, _simulate_zero_inflated, "count", (ZERO,)
)
