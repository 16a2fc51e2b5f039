"""Links: how a linear predictor becomes a mean, and the logarithms of probabilities that need no detour through them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr, ndtri

HIGHEST = 80.0
"""An exponent beyond which float32 is near its end."""


def _exp(eta: Any) -> jax.Array:
    return jnp.exp(jnp.clip(eta, -HIGHEST, HIGHEST))


def _cloglog(eta: Any) -> jax.Array:
    return -jnp.expm1(-_exp(eta))


INVERSES: dict[str, Callable[[Any], jax.Array]] = {
    "identity": jnp.asarray,
    "log": jnp.exp,
    "logit": jax.nn.sigmoid,
    "probit": ndtr,
    "cloglog": _cloglog,
}
"""From the linear predictor to the mean."""

FORWARD: dict[str, Callable[[Any], jax.Array]] = {
    "identity": jnp.asarray,
    "log": jnp.log,
    "logit": lambda p: jnp.log(p) - jnp.log1p(-p),
    "probit": ndtri,
    "cloglog": lambda p: jnp.log(-jnp.log1p(-p)),
}
"""From the mean to the linear predictor."""


def log_yes(link: str, eta: jax.Array) -> jax.Array:
    """The logarithm of the probability that a linear predictor stands for."""
    if link == "logit":
        return jax.nn.log_sigmoid(eta)
    if link == "probit":
        return log_ndtr(eta)
    return jnp.log(_cloglog(eta))


def log_no(link: str, eta: jax.Array) -> jax.Array:
    """That of the rest of 1."""
    return -_exp(eta) if link == "cloglog" else log_yes(link, -eta)


def log_between(link: str, high: jax.Array, low: jax.Array) -> jax.Array:
    """log(F(high) - F(low)) of the distribution function that is a link's inverse, for high > low."""
    if link == "logit":
        return jax.nn.log_sigmoid(high) + jax.nn.log_sigmoid(-low) + jnp.log(-jnp.expm1(low - high))
    if link == "probit":
        flip = low > 0
        a, b = log_ndtr(jnp.where(flip, -low, high)), log_ndtr(jnp.where(flip, -high, low))
        return a + jnp.log(-jnp.expm1(b - a))
    return -_exp(low) + jnp.log(-jnp.expm1(_exp(low) - _exp(high)))
