"""Two normal components in the plane with unknown means (section 6.1): x ~ ½ N(θ₁, I) + ½ N(θ₂, I).

The article's text gives θ₁, θ₂ the prior N(0, 10 I); its code passes 10 as a standard deviation. `log_prior` is the text's,
`log_prior_as_coded` the code's.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def log_lik(params: Any, batch: Any) -> jax.Array:
    """One value per row."""
    first = -0.5 * jnp.sum((batch["X"] - params["theta1"]) ** 2, axis=1)
    second = -0.5 * jnp.sum((batch["X"] - params["theta2"]) ** 2, axis=1)
    return jnp.logaddexp(first, second) + jnp.log(0.5 / (2 * jnp.pi))


def log_prior(params: Any) -> jax.Array:
    """θ₁, θ₂ ~ N(0, 10 I): 10 is the variance."""
    return -0.5 * (jnp.sum(params["theta1"] ** 2) + jnp.sum(params["theta2"] ** 2)) / 10


def log_prior_as_coded(params: Any) -> jax.Array:
    """θ₁, θ₂ ~ N(0, 10² I): 10 is the standard deviation."""
    return -0.5 * (jnp.sum(params["theta1"] ** 2) + jnp.sum(params["theta2"] ** 2)) / 100
