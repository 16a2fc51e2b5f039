"""Any estimator while some parameters are held, each chain's at values of its own."""

from dataclasses import dataclass, replace
from typing import Any

import jax

from sgmcmc.algorithms.gradients.around import Around
from sgmcmc.algorithms.kernel import Estimate, Passes
from sgmcmc.core.trees import Batch, PyTree, leaf_names
from sgmcmc.problem.holding import holding
from sgmcmc.problem.posterior import Posterior


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HeldState:
    """What `Held` carries: the parameters that do not move, by name, and what its estimator carries."""

    held: dict[str, Any]
    inner: PyTree


@dataclass(frozen=True)
class Held(Around):
    """Any estimator of the gradient by what moves, given what each chain holds."""

    carries, per_chain = HeldState, True

    @property
    def chain_axes(self) -> PyTree:
        axes: Any = (0, self.inner.chain_axes)
        return HeldState(*axes)

    def renewed(self, posterior: Posterior, position: PyTree, passes: Passes, state: HeldState) -> HeldState:
        """Only where rows do not know what is held: then any values of it will do."""
        return replace(state, inner=self.inner.renewed(posterior, position, passes, state.inner))

    def posterior_at(self, posterior: Posterior, state: HeldState) -> Posterior:
        return self.inner.posterior_at(holding(posterior, state.held), state.inner)

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: HeldState) -> Estimate:
        gradient, inner, stats = self.inner.estimate(holding(posterior, state.held), position, batch, state.inner)
        return gradient, replace(state, inner=inner), stats


def within(est_state: Any) -> Any:
    """What an estimator carries, without what is held beside it."""
    return est_state.inner if isinstance(est_state, HeldState) else est_state


def holding_of(est_state: Any, params: PyTree) -> Any:
    """What an estimator carries, with what is held beside it, if anything, as these parameters have it."""
    if not isinstance(est_state, HeldState):
        return est_state
    by_name = dict(zip(leaf_names(params), jax.tree.leaves(params), strict=True))
    return replace(est_state, held={name: by_name[name] for name in est_state.held})
