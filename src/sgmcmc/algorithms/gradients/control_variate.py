"""Control variates: differences to a centre whose full gradient is known."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.gradients.minibatch import sum_of_rows
from sgmcmc.algorithms.kernel import Estimate, Estimator, Passes
from sgmcmc.core.trees import Batch, PyTree, Rows, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import unwhitened


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
class ControlVariate(Estimator):
    """∇log p(θ) + Σ_all ∇ℓ_i(θ̂) + Σ_S w_i [∇ℓ_i(θ) - ∇ℓ_i(θ̂)], unbiased for any centre θ̂.

    The prior's gradient at the centre, which the paper adds and takes away again, never appears.

    Args:
        with_variance: also estimate its variance, from the differences of every row.

    >>> import sgmcmc
    >>> sgmcmc.algorithms.ControlVariate().centred
    True
    """

    with_variance: bool = False
    carries, centred = Centre, True

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> Centre:
        gradient = passes.sum(gradient_of_rows, posterior, position)
        gradient = tree_map(lambda x, like: jnp.asarray(x, like.dtype), gradient, position)
        return Centre(position, gradient, jnp.asarray(jnp.nan, float), jnp.asarray(True))

    def measuring_noise(self) -> Self:
        return replace(self, with_variance=True)

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: Centre) -> Estimate:
        if self.with_variance:
            constant = tree_map(jnp.add, posterior.prior_gradient(position), state.gradient)
            here, there = (posterior.row_gradients(p, batch.rows) for p in (position, state.position))
            gradient, variance = sum_of_rows(posterior, constant, tree_map(jnp.subtract, here, there), batch)
            return gradient, state, {"variance": variance}
        behind, forward, back = unwhitened(posterior)
        here, there = forward(position, state.position)
        gradient = jax.grad(behind.log_likelihood)
        differences = behind.over_strata(tree_map(jnp.subtract, gradient(here, batch), gradient(there, batch)))
        moving = back(tree_map(jnp.add, behind.prior_gradient(here), differences))
        return tree_map(jnp.add, moving, state.gradient), state, {}


def gradient_of_rows(posterior: Posterior, position: PyTree, rows: Rows) -> PyTree:
    """The gradient of the log likelihood of some rows."""
    return jax.grad(posterior.sum_of_rows)(position, rows)
