"""Estimators of the gradient of the log posterior. They see rows and positions, never noise.

`estimate(position, batch, est_state)` returns the gradient, the estimator's next state, and what it knows of its own noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from sgmcmc._tree import tree_map
from sgmcmc._types import Batch, PyTree
from sgmcmc.posterior import Posterior


class Estimator(Protocol):
    """What a gradient estimator is."""

    @property
    def posterior(self) -> Posterior: ...

    def estimate(self, position: PyTree, batch: Batch, est_state: Any) -> tuple[PyTree, PyTree, dict[str, Any]]: ...


@dataclass(frozen=True)
class Minibatch:
    """The plain estimate: ∇log p(θ) + Σ_S w_i ∇ℓ_i(θ), where w_i = N/n for uniform rows."""

    posterior: Posterior
    with_variance: bool = False

    def estimate(self, position: PyTree, batch: Batch, est_state: PyTree) -> tuple[PyTree, PyTree, dict[str, Any]]:
        if self.with_variance:
            rows = self.posterior.row_gradients(position, batch.rows)
            prior = jax.grad(self.posterior.log_density_prior)(position)
            return (*_sum_of_rows(prior, rows, batch, self.posterior.n_rows, est_state),)
        return jax.grad(self.posterior.log_posterior)(position, batch), est_state, {}


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

    def estimate(self, position: PyTree, batch: Batch, est_state: Centre) -> tuple[PyTree, PyTree, dict[str, Any]]:
        centre = est_state
        prior = jax.grad(self.posterior.log_density_prior)(position)
        constant = tree_map(jnp.add, prior, centre.gradient)
        if self.with_variance:
            here, there = (self.posterior.row_gradients(p, batch.rows) for p in (position, centre.position))
            differences = tree_map(jnp.subtract, here, there)
            return (*_sum_of_rows(constant, differences, batch, self.posterior.n_rows, est_state),)
        gradient = jax.grad(self.posterior.log_likelihood)
        here, there = gradient(position, batch), gradient(centre.position, batch)
        return tree_map(lambda c, a, b: c + (a - b), constant, here, there), est_state, {}


def _sum_of_rows(
    constant: PyTree, rows: PyTree, batch: Batch, n_rows: int, est_state: PyTree
) -> tuple[PyTree, PyTree, dict[str, Any]]:
    """The estimate from its rows' terms, and its variance: (N²/n)(1 - n/N) times the sample variance of the terms."""
    n = batch.index.shape[0]
    weights = jnp.broadcast_to(batch.weight, (n,))
    gradient = tree_map(lambda c, g: c + jnp.tensordot(weights, g, axes=1), constant, rows)
    scale = n_rows**2 / n * (1 - n / n_rows)
    variance = tree_map(lambda g: scale * jnp.var(g, axis=0, ddof=1), rows)
    return gradient, est_state, {"variance": variance}
