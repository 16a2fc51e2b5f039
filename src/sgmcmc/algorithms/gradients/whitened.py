"""Any estimator in whitened variables."""

from dataclasses import dataclass, replace
from typing import Any

import jax

from sgmcmc.algorithms.gradients.around import Around
from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.algorithms.gradients.held import within
from sgmcmc.algorithms.kernel import Estimate, Passes
from sgmcmc.core.trees import Batch, PyTree
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import AnyWhitening, whitened


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WhitenedState:
    """What `Whitened` carries: the change of variables, and what its estimator carries in these variables."""

    whitening: AnyWhitening
    inner: PyTree


@dataclass(frozen=True)
class Whitened(Around):
    """Any estimator in the variables z of a whitening."""

    carries = WhitenedState

    @property
    def per_chain(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.per_chain

    @property
    def chain_axes(self) -> PyTree:
        axes: Any = (None, self.inner.chain_axes)
        return WhitenedState(*axes) if self.per_chain else None

    def renewed(self, posterior: Posterior, position: PyTree, passes: Passes, state: WhitenedState) -> WhitenedState:
        inner = self.inner.renewed(self.posterior_at(posterior, state), position, passes, state.inner)
        return replace(state, inner=inner)

    def posterior_at(self, posterior: Posterior, state: WhitenedState) -> Posterior:
        return whitened(posterior, state.whitening)

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: WhitenedState) -> Estimate:
        gradient, inner, stats = self.inner.estimate(self.posterior_at(posterior, state), position, batch, state.inner)
        return gradient, replace(state, inner=inner), stats


def whitened_centre(centre: Centre, whitening: AnyWhitening) -> Centre:
    """A centre in the variables of a whitening that starts there."""
    return replace(centre, position=whitening.zero(), gradient=whitening.pull_back(centre.gradient))


def whitening_of_state(est_state: Any) -> AnyWhitening | None:
    """The change of variables that an estimator's state holds, if any."""
    carried = within(est_state)
    return carried.whitening if isinstance(carried, WhitenedState) else None


def centre_of(est_state: Any) -> Centre | None:
    """The centre that an estimator's state holds, if any."""
    carried = within(est_state)
    inner = carried.inner if isinstance(carried, WhitenedState) else carried
    return inner if isinstance(inner, Centre) else None
