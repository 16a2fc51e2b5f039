"""The plain estimate, and its variance from the rows' own gradients."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.kernel import Estimate, Estimator
from sgmcmc.core.trees import Batch, PyTree, tree_map
from sgmcmc.problem.posterior import Posterior


@dataclass(frozen=True)
class Minibatch(Estimator):
    """The plain estimate: ∇log p(θ) + Σ_S w_i ∇ℓ_i(θ), where w_i = N/n for uniform rows.

    Args:
        with_variance: also estimate its variance, from the gradient of every row.

    >>> import sgmcmc
    >>> sgmcmc.algorithms.Minibatch()
    Minibatch(with_variance=False)
    """

    with_variance: bool = False
    carries = tuple

    def measuring_noise(self) -> Self:
        return replace(self, with_variance=True)

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: Any) -> Estimate:
        if not self.with_variance:
            return posterior.gradient(position, batch), state, {}
        rows = posterior.row_gradients(position, batch.rows)
        gradient, variance = sum_of_rows(posterior, posterior.prior_gradient(position), rows, batch)
        return gradient, state, {"variance": variance}


def sum_of_rows(posterior: Posterior, constant: PyTree, rows: PyTree, batch: Batch) -> tuple[PyTree, PyTree]:
    """The estimate from its rows' terms, and its variance, n times the sample variance of the weighted terms.

    That is for rows drawn independently; uniform rows, drawn without replacement, have 1 - n/N of it, N/n being their weight.
    """
    n = batch.index.shape[0]
    alike = batch.weight.ndim == 0
    weights = jnp.broadcast_to(batch.weight, (n,))
    likelihood = tree_map(lambda g: jnp.tensordot(weights, g, axes=1), rows)
    scale = n * (1 - 1 / batch.weight if alike else 1)
    variance = tree_map(lambda g: scale * jnp.var(jax.vmap(jnp.multiply)(weights, g), axis=0, ddof=1), rows)
    likelihood, variance = posterior.over_strata((likelihood, variance))
    return tree_map(jnp.add, constant, likelihood), variance
