"""The two-layer Bayesian network of section 6.3: P(digit) = softmax(softmax(xB + b)A + a), normal weights, Gamma precisions.

The article samples the precisions λ as they are, although they must be positive: a chain that steps below zero has left the
model. With `constraints()` the same functions sample log λ instead, which cannot.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WEIGHTS = ("A", "B", "a", "b")
PRECISIONS = tuple(f"lambda{name}" for name in WEIGHTS)


def log_probabilities(params: Any, X: jax.Array) -> jax.Array:
    """log P(class), a row for each image."""
    hidden = jax.nn.softmax(X @ params["B"] + params["b"])
    return jax.nn.log_softmax(hidden @ params["A"] + params["a"])


def log_lik(params: Any, batch: Any) -> jax.Array:
    """One value per row: the log probability of its label, which is one-hot."""
    return jnp.sum(batch["y"] * log_probabilities(params, batch["X"]), axis=1)


def log_prior(params: Any) -> jax.Array:
    """Each weight N(0, 1/λ) with the λ of its block, each λ ~ Gamma(1, 1); constants left out."""
    total = jnp.zeros(())
    for weight, precision in zip(WEIGHTS, PRECISIONS, strict=True):
        w, precision = params[weight], params[precision]
        total += 0.5 * w.size * jnp.log(precision) - 0.5 * precision * jnp.sum(w**2) - precision
    return total


def constraints() -> dict[str, Any]:
    """The precisions are positive: pass this as `constraints=` to sample their logarithms."""
    from numpyro.distributions import constraints

    return dict.fromkeys(PRECISIONS, constraints.positive)


def start(seed: int, n_inputs: int = 784, n_hidden: int = 100, n_classes: int = 10) -> dict[str, np.ndarray]:
    """Starting values as in the article: standard normal weights, Gamma(1, 1) precisions.

    >>> {name: value.shape for name, value in start(1, n_inputs=4, n_hidden=3, n_classes=2).items()}["B"]
    (4, 3)
    """
    rng = np.random.default_rng(seed)
    shapes = {"A": (n_hidden, n_classes), "B": (n_inputs, n_hidden), "a": (n_classes,), "b": (n_hidden,)}
    values = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    values.update({name: rng.gamma(1.0, 1.0, ()) for name in PRECISIONS})
    return {name: np.asarray(value, np.float32) for name, value in values.items()}
