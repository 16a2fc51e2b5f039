"""Outcomes that may be any number."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from sgmcmc.models.regression.families.base import Extra, Family, Outcome, Own, positive_start
from sgmcmc.models.regression.links import INVERSES


def _exponential(outcome: Outcome) -> Any:
    from numpyro.distributions import Exponential

    return Exponential(1 / outcome.sd)


def _degrees_prior(_: Outcome) -> Any:
    from numpyro.distributions import Gamma

    return Gamma(2.0, 0.1)


SIGMA = Extra("sigma", "positive", _exponential, lambda outcome: outcome.sd, "sigma ~ Exponential(mean sd(y))", unit=True)
NU = Extra("nu", "greater_than_one", _degrees_prior, positive_start(10.0), "nu ~ Gamma(2, 0.1), above 1")


def _mean(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return INVERSES[link](eta)


def _gaussian(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    z = (rows["y"] - INVERSES[link](eta)) / own["sigma"]
    return -0.5 * z * z - jnp.log(own["sigma"]) - 0.5 * math.log(2 * math.pi)


def _simulate_gaussian(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return INVERSES[link](eta) + own["sigma"] * jax.random.normal(key, eta.shape)


def _student(link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    nu, z = own["nu"], (rows["y"] - INVERSES[link](eta)) / own["sigma"]
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * math.pi) - jnp.log(own["sigma"])
    return constant - (nu + 1) / 2 * jnp.log1p(z * z / nu)


def _simulate_student(key: jax.Array, link: str, eta: jax.Array, own: Own, rows: Any) -> jax.Array:
    return INVERSES[link](eta) + own["sigma"] * jax.random.t(key, own["nu"], eta.shape)


GAUSSIAN = Family("gaussian", ("identity", "log"), _gaussian, _mean, _simulate_gaussian, "real", (SIGMA,), scaled=True)
STUDENT = Family("student", ("identity", "log"), _student, _mean, _simulate_student, "real", (SIGMA, NU), scaled=True)
