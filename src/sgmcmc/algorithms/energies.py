"""What a minibatch knows of a difference of log posteriors, and moves that are accepted by such a difference.

An estimate that is off by a normal error of variance σ² is accepted too often by the usual test. With σ²/2 taken off the
estimate the test is exact: whatever Δ is, E min(1, exp(Δ̂ - σ²/2)) is e^Δ times that of -Δ, where Δ̂ ~ N(Δ, σ²).

Reference: Ceperley and Dewing (1999), The penalty method for random walks with uncertain energies, J. Chemical Physics 110.
"""

from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.gradients.minibatch import sum_of_rows
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Batch, PyTree
from sgmcmc.problem.posterior import Posterior


def log_ratio(posterior: Posterior, here: PyTree, there: PyTree, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """How much higher the log posterior is `there`, and the variance of that estimate: 0 where the batch has all rows."""
    if len(batch.index) == 1 < posterior.n_rows:
        raise InputError("a test by minibatches needs a variance over rows; expected minibatch_size of at least 2")
    rows = posterior.each_row(there, batch.rows) - posterior.each_row(here, batch.rows)
    prior = posterior.log_density_prior(there) - posterior.log_density_prior(here)
    ratio, variance = sum_of_rows(posterior, prior, rows, batch)
    return ratio, jnp.zeros_like(variance) if posterior.n_rows == 1 else variance


def acceptance(ratio: Any, variance: Any) -> jax.Array:
    """The probability with which a move is accepted, by an estimate of the log ratio of the densities and its variance."""
    return jnp.exp(jnp.minimum(ratio - variance / 2, 0.0))
