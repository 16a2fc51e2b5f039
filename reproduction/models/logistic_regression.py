"""Logistic regression with Laplace priors (sections 5 and 6.2): P(y = 1) = 1 / (1 + exp(-β₀ - xβ))."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def log_lik(params: Any, batch: Any) -> jax.Array:
    """One value per row: log P(y), with y in {0, 1}."""
    eta = params["bias"] + batch["X"] @ params["beta"]
    return batch["y"] * eta - jnp.logaddexp(0.0, eta)


def log_prior(params: Any) -> jax.Array:
    """Every coefficient, the bias included, is Laplace with scale 1."""
    return -(jnp.sum(jnp.abs(params["beta"])) + jnp.abs(params["bias"]))


def log_loss(params: Any, testset: Any) -> jax.Array:
    """Minus the mean log likelihood of a test set."""
    return -jnp.mean(log_lik(params, testset))
