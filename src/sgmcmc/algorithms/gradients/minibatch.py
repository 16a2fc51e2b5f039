"""The plain estimate, and what all estimators share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import flat, split, tree_map
from sgmcmc.core.types import Batch, PyTree
from sgmcmc.algorithms.kernel import Estimator
from sgmcmc.problem.posterior import Posterior


@dataclass(frozen=True)
class Minibatch:
    """The plain estimate: ∇log p(θ) + Σ_S w_i ∇ℓ_i(θ), where w_i = N/n for uniform rows."""

    posterior: Posterior
    with_variance: bool = False
    axis: str | None = None
    centred = False

    def posterior_at(self, est_state: Any) -> Posterior:
        return self.posterior

    def estimate(self, position: PyTree, batch: Batch, est_state: PyTree) -> tuple[PyTree, PyTree, dict[str, Any]]:
        if self.with_variance:
            rows = self.posterior.row_gradients(position, batch.rows)
            prior = jax.grad(self.posterior.log_density_prior)(position)
            return (*_sum_of_rows(prior, rows, batch, self.axis, est_state),)
        if self.axis is None:
            return jax.grad(self.posterior.log_posterior)(position, batch), est_state, {}
        prior = jax.grad(self.posterior.log_density_prior)(position)
        likelihood = over_strata(jax.grad(self.posterior.log_likelihood)(position, batch), self.axis)
        return tree_map(jnp.add, prior, likelihood), est_state, {}


def log_posterior(estimator: Estimator, est_state: Any, position: PyTree, batch: Batch) -> jax.Array:
    """The estimate from one minibatch of the log posterior, of all strata where there are several."""
    posterior = estimator.posterior_at(est_state)
    if estimator.axis is None:
        return posterior.log_posterior(position, batch)
    return over_strata(posterior.log_likelihood(position, batch), estimator.axis) + posterior.log_density_prior(position)


def over_strata(tree: PyTree, axis: str | None) -> PyTree:
    """The sum of a tree over the strata, in one message however many leaves it has."""
    return tree if axis is None else split(jax.lax.psum(flat(tree), axis), tree)


def _sum_of_rows(
    constant: PyTree, rows: PyTree, batch: Batch, axis: str | None, est_state: PyTree
) -> tuple[PyTree, PyTree, dict[str, Any]]:
    """The estimate from its rows' terms, and its variance, n times the sample variance of the weighted terms.

    That is for rows drawn independently; uniform rows, drawn without replacement, have 1 - n/N of it, N/n being their weight.
    """
    n = batch.index.shape[0]
    alike = batch.weight.ndim == 0
    weights = jnp.broadcast_to(batch.weight, (n,))
    likelihood = tree_map(lambda g: jnp.tensordot(weights, g, axes=1), rows)
    scale = n * (1 - 1 / batch.weight if alike else 1)
    variance = tree_map(lambda g: scale * jnp.var(jax.vmap(jnp.multiply)(weights, g), axis=0, ddof=1), rows)
    likelihood, variance = over_strata((likelihood, variance), axis)
    return tree_map(jnp.add, constant, likelihood), est_state, {"variance": variance}
