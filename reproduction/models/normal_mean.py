"""The mean of normal data of known variance (section 2): x ~ N(θ, 1), θ ~ N(0, 10).

The article's "N(0, 10)" could be a variance or a standard deviation; here 10 is the variance.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PRIOR_VARIANCE = 10.0


def log_lik(params: Any, batch: Any) -> jax.Array:
    """Σ log N(x | θ, 1), without its constant."""
    return -0.5 * jnp.sum((batch["x"] - params["theta"]) ** 2)


def log_prior(params: Any) -> jax.Array:
    """log N(θ | 0, 10), without its constant."""
    return -0.5 * params["theta"] ** 2 / PRIOR_VARIANCE


def exact_posterior(x: np.ndarray) -> tuple[float, float]:
    """Mean and variance of the normal posterior.

    >>> exact_posterior(np.array([1.0, 3.0]))
    (1.9047619047619047, 0.47619047619047616)
    """
    precision = len(x) + 1 / PRIOR_VARIANCE
    return float(np.sum(x, dtype=np.float64) / precision), 1 / precision
