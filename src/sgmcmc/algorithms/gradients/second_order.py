"""Control variates of second order: differences to a centre, and to how gradients change about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import sum_of_rows
from sgmcmc.algorithms.kernel import Estimate, Passes
from sgmcmc.core.trees import Batch, PyTree, Rows, flat, split, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import unwhitened


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Matrix:
    """A symmetric matrix that acts on vectors."""

    values: Any

    def times(self, vector: Any) -> Any:
        return self.values @ vector


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BesidePrior:
    """Where the posterior's second derivatives are minus the identity, as whitening makes them: what of that is the rows' part.

    `prior` are those of minus the log prior, a diagonal in the variables behind the whitening. So no matrix has to be read.
    """

    prior: PyTree

    def times(self, vector: Any) -> Any:
        """Without the part that `behind` has."""
        return -vector

    def behind(self, away: PyTree) -> PyTree:
        """To be added before a gradient is pulled back; of positions there, less the centre."""
        return tree_map(jnp.multiply, self.prior, away)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CurvedCentre(Centre):
    """A centre at which the second derivatives are known too.

    Attributes:
        hessian: that of the full log likelihood there: an object whose `times` takes a vector of all numbers of the position;
            some have a part of it `behind` a whitening.
    """

    hessian: Any


@dataclass(frozen=True)
class SecondOrder(ControlVariate):
    """∇log p(θ) + Σ_all [∇ℓ_i(θ̂) + H_i δ] + Σ_S w_i [∇ℓ_i(θ) - ∇ℓ_i(θ̂) - H_i δ], where δ = θ - θ̂ and H_i = ∇²ℓ_i(θ̂).

    Unbiased for any centre θ̂. A row costs about twice what it does without the H_i, whose products with δ are derivatives of
    gradients; what is left of its noise is of second order in δ. Where rows are many for each parameter a tenth of them or
    less does; where a single row moves a parameter by as much as its standard deviation, it does not pay.

    >>> import sgmcmc
    >>> sgmcmc.algorithms.SecondOrder().centred
    True
    """

    carries = CurvedCentre

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> CurvedCentre:
        centre = super().init(posterior, position, passes)
        hessian = jnp.asarray(passes.sum(hessian_of_rows, posterior, position), flat(position).dtype)
        return CurvedCentre(centre.position, centre.gradient, centre.distance, centre.converged, Matrix(hessian))

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: CurvedCentre) -> Estimate:  # pyright: ignore[reportIncompatibleMethodOverride]: what it carries has more
        away = tree_map(jnp.subtract, position, state.position)
        known = tree_map(jnp.add, state.gradient, split(state.hessian.times(flat(away)), away))
        behind, forward, back = unwhitened(posterior)
        here, there = forward(position, state.position)
        bent = state.hessian.behind(tree_map(jnp.subtract, here, there)) if isinstance(state.hessian, BesidePrior) else None

        def differences(gradient: Callable[[PyTree], PyTree], here: PyTree, there: PyTree) -> PyTree:
            at, turn = jax.jvp(gradient, (there,), (tree_map(jnp.subtract, here, there),))
            return tree_map(lambda a, b, c: a - b - c, gradient(here), at, turn)

        if self.with_variance:
            known = known if bent is None else tree_map(jnp.add, known, back(bent))
            constant = tree_map(jnp.add, posterior.prior_gradient(position), known)
            rows = differences(lambda x: posterior.row_gradients(x, batch.rows), position, state.position)
            gradient, variance = sum_of_rows(posterior, constant, rows, batch)
            return gradient, state, {"variance": variance}
        total = behind.over_strata(differences(jax.grad(lambda x: behind.log_likelihood(x, batch)), here, there))
        total = total if bent is None else tree_map(jnp.add, total, bent)
        moving = back(tree_map(jnp.add, behind.prior_gradient(here), total))
        return tree_map(jnp.add, moving, known), state, {}


def hessian_of_rows(posterior: Posterior, position: PyTree, rows: Rows) -> jax.Array:
    """∇²Σℓ over a block of rows, as a matrix."""
    gradient = jax.grad(posterior.sum_of_rows)
    return jax.jacfwd(lambda x: flat(gradient(split(x, position), rows)))(flat(position))
