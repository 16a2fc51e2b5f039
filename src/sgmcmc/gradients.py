"""Estimators of the gradient of the log posterior. They see rows and positions, never noise.

`estimate(position, batch, est_state)` returns the gradient, the estimator's next state, and what it knows of its own noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from sgmcmc._tree import tree_map
from sgmcmc._types import Batch, PyTree
from sgmcmc.posterior import Posterior
from sgmcmc.whitening import Whitening, whitened


class Estimator(Protocol):
    """What a gradient estimator is."""

    @property
    def posterior(self) -> Posterior: ...

    @property
    def centred(self) -> bool:
        """Whether its state holds a `Centre`."""
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
    centred = False

    def posterior_at(self, est_state: Any) -> Posterior:
        return self.posterior

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
            return (*_sum_of_rows(constant, differences, batch, self.posterior.n_rows, est_state),)
        gradient = jax.grad(self.posterior.log_likelihood)
        here, there = gradient(position, batch), gradient(centre.position, batch)
        return tree_map(lambda c, a, b: c + (a - b), constant, here, there), est_state, {}


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


def _sum_of_rows(
    constant: PyTree, rows: PyTree, batch: Batch, n_rows: int, est_state: PyTree
) -> tuple[PyTree, PyTree, dict[str, Any]]:
    """The estimate from its rows' terms, and its variance, n times the sample variance of the weighted terms.

    That is for rows drawn independently; uniform rows, drawn without replacement, have 1 - n/N of it.
    """
    n = batch.index.shape[0]
    alike = batch.weight.ndim == 0
    weights = jnp.broadcast_to(batch.weight, (n,))
    gradient = tree_map(lambda c, g: c + jnp.tensordot(weights, g, axes=1), constant, rows)
    scale = n * (1 - n / n_rows if alike else 1)
    variance = tree_map(lambda g: scale * jnp.var(jax.vmap(jnp.multiply)(weights, g), axis=0, ddof=1), rows)
    return gradient, est_state, {"variance": variance}
