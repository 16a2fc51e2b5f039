"""Outcomes that are yes or no, counts of yes among trials, and shares."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from sgmcmc.models.regression.families.base import Extra, Family, Outcome, Own, positive_start
from sgmcmc.models.regression.links import INVERSES, log_no, log_yes

LINKS = ("logit", "probit", "cloglog")


def _probability(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return INVERSES[link](eta)


def _bernoulli(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    if link != "cloglog":
        return log_yes(link, jnp.where(rows["y"] > 0, eta, -eta))
    return jnp.where(rows["y"] > 0, log_yes(link, eta), log_no(link, eta))


def _simulate_bernoulli(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jax.random.bernoulli(key, INVERSES[link](eta)).astype(eta.dtype)


def _binomial(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    y, trials = rows["y"], rows["trials"]
    ways = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
    return ways + y * log_yes(link, eta) + (trials - y) * log_no(link, eta)


def _successes(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return rows["trials"] * INVERSES[link](eta)


def _simulate_binomial(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jax.random.binomial(key, rows["trials"], INVERSES[link](eta), shape=eta.shape).astype(eta.dtype)


def _parts(link: str, eta: jax.Array, own: Own) -> tuple[jax.Array, jax.Array]:
    """The two numbers of a beta distribution."""
    return jnp.exp(log_yes(link, eta)) * own["precision"], jnp.exp(log_no(link, eta)) * own["precision"]


def _beta(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    a, b = _parts(link, eta, own)
    constant = gammaln(a + b) - gammaln(a) - gammaln(b)
    return constant + (a - 1) * jnp.log(rows["y"]) + (b - 1) * jnp.log1p(-rows["y"])


def _simulate_beta(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return jax.random.beta(key, *_parts(link, eta, own), shape=eta.shape)


def _precision_prior(_: Outcome) -> Any:
    from numpyro.distributions import LogNormal

    return LogNormal(2.0, 2.0)


PRECISION = Extra("precision", "positive", _precision_prior, positive_start(10.0), "precision ~ LogNormal(2, 2)")

BERNOULLI = Family("bernoulli", LINKS, _bernoulli, _probability, _simulate_bernoulli, "truth")
BINOMIAL = Family("binomial", LINKS, _binomial, _successes, _simulate_binomial, "trials")
BETA = Family("beta", LINKS, _beta, _probability, _simulate_beta, "share", (PRECISION,))
