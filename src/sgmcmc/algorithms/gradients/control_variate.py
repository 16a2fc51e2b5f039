"""Differences to a centre whose full gradient is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.gradients.minibatch import _sum_of_rows, over_strata
from sgmcmc.core.trees import tree_map
from sgmcmc.core.types import Batch, PyTree
from sgmcmc.problem.posterior import Posterior


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Centre:
    """Where the control variates are anchored.

    Attributes:
        position: the centre θ̂.
        gradient: the gradient of the full log likelihood there.
        distance: mean squared distance to the mode in posterior standard deviations, as the search saw it, or NaN.
        converged: whether the search met its criterion; true where the user set the number of steps.
    """

    position: PyTree
    gradient: PyTree
    distance: Any
    converged: Any


@dataclass(frozen=True)
class ControlVariate:
    """∇log p(θ) + Σ_all ∇ℓ_i(θ̂) + Σ_S w_i [∇ℓ_i(θ) - ∇ℓ_i(θ̂)], unbiased for any centre θ̂.

    The prior's gradient at the centre, which the paper adds and takes away again, never appears.
    """

    posterior: Posterior
    with_variance: bool = False
    axis: str | None = None
    centred = True

    def posterior_at(self, est_state: Any) -> Posterior:
        return self.posterior

    def estimate(self, position: PyTree, batch: Batch, est_state: Centre) -> tuple[PyTree, PyTree, dict[str, Any]]:
        centre = est_state
        prior = jax.grad(self.posterior.log_density_prior)(position)
        constant = tree_map(jnp.add, prior, centre.gradient)
        if self.with_variance:
            here, there = (self.posterior.row_gradients(p, batch.rows) for p in (position, centre.position))
            differences = tree_map(jnp.subtract, here, there)
            return (*_sum_of_rows(constant, differences, batch, self.axis, est_state),)
        gradient = jax.grad(self.posterior.log_likelihood)
        here, there = gradient(position, batch), gradient(centre.position, batch)
        differences = over_strata(tree_map(jnp.subtract, here, there), self.axis)
        return tree_map(jnp.add, constant, differences), est_state, {}
