"""Any estimator in whitened variables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.core.types import Batch, PyTree
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening, whitened


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
