"""Estimators of the gradient of the log posterior. They see rows and positions, never noise.

`estimate(position, batch, est_state)` returns the gradient, the estimator's next state, and what it knows of its own noise.

Where the rows are in strata, each device estimates its own stratum's likelihood terms, and `axis` names the mesh axis over
which they are summed. The sum is taken of gradients, never differentiated: a derivative of it would count every stratum
as often as there are strata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import flat, split, tree_map
from sgmcmc.core.types import Batch, PyTree
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening, whitened


class Estimator(Protocol):
    """What a gradient estimator is."""

    @property
    def posterior(self) -> Posterior: ...

    @property
    def centred(self) -> bool:
        """Whether its state holds a `Centre`."""
        ...

    @property
    def axis(self) -> str | None:
        """The mesh axis over which likelihood terms are summed; None where one device sees the whole minibatch."""
        ...

    def posterior_at(self, est_state: Any) -> Posterior:
        """The posterior as a function of what moves."""
        ...

    def estimate(self, position: PyTree, batch: Batch, est_state: Any) -> tuple[PyTree, PyTree, dict[str, Any]]: ...


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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WhitenedState:
    """What `Whitened` carries: the change of variables, and what its estimator carries in these variables."""

    whitening: Whitening
    inner: PyTree


@dataclass(frozen=True)
class Whitened:
    """Any estimator in the variables z of a whitening."""

    inner: Minibatch | ControlVariate

    @property
    def posterior(self) -> Posterior:
        return self.inner.posterior

    @property
    def centred(self) -> bool:
        return self.inner.centred

    @property
    def axis(self) -> str | None:
        return self.inner.axis

    def posterior_at(self, est_state: WhitenedState) -> Posterior:
        return whitened(self.inner.posterior, est_state.whitening)

    def estimate(self, position: PyTree, batch: Batch, est_state: WhitenedState) -> tuple[PyTree, PyTree, dict[str, Any]]:
        estimator = replace(self.inner, posterior=self.posterior_at(est_state))
        gradient, inner, stats = estimator.estimate(position, batch, est_state.inner)
        return gradient, replace(est_state, inner=inner), stats


def whitened_centre(centre: Centre, whitening: Whitening) -> Centre:
    """A centre in the variables of a whitening that starts there."""
    return replace(centre, position=whitening.zero(), gradient=whitening.pull_back(centre.gradient))


def centre_of(est_state: Any) -> Centre | None:
    """The centre that an estimator's state holds, if any."""
    inner = est_state.inner if isinstance(est_state, WhitenedState) else est_state
    return inner if isinstance(inner, Centre) else None


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
