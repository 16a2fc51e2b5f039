"""Where chains with control variates start: at a mode that is searched for, or where a survey found one."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.dynamics.langevin import Ascent
from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState, whitened_centre
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError, warn
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule
from sgmcmc.problem.whitening import Whitening, whitened
from sgmcmc.rows.sources import Source
from sgmcmc.rows.table import as_table
from sgmcmc.run.loop import Loop
from sgmcmc.run.passes import FullPasses
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import Begun, FromParams
from sgmcmc.tune.mode import find_mode

SEARCH_CHAIN = 2**31 - 1
"""The chain number whose random numbers serve the search: no real chain has it."""


@dataclass(frozen=True)
class Surveyed:
    """At the centre that a survey found at set-up, in the variables of a whitening if there is one."""

    centre: Centre | None
    whitening: Whitening | None

    @property
    def position(self) -> PyTree:
        if self.whitening is not None:
            return self.whitening.zero()
        assert self.centre is not None
        return self.centre.position

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Begun:
        estimator, posterior, whitening = kernel.estimator, kernel.posterior, self.whitening
        if isinstance(estimator, Whitened) and whitening is not None:
            estimator, posterior = estimator.inner, whitened(posterior, whitening)
        if estimator.centred:
            assert self.centre is not None
            inner = self.centre if whitening is None else whitened_centre(self.centre, whitening)
        else:
            inner = estimator.init(posterior, self.position, FullPasses(source.arrays, progress))
        return Begun(self.position, inner if whitening is None else WhitenedState(whitening, inner))


@dataclass(frozen=True)
class AtMode:
    """At the mode, searched for from `position` with nothing to tune."""

    position: PyTree

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Begun:
        seed = int(jax.random.randint(jax.random.fold_in(root, SEARCH_CHAIN), (), 0, 2**31 - 1))
        mode = find_mode(kernel.posterior, as_table(source.arrays), self.position, seed, progress)
        if not mode.converged:
            warn_of_distance(mode.distance)
        begun = FromParams(mode.position).find(kernel, source, root, progress)
        if not isinstance(begun.est_state, Centre):
            return begun
        found = {"distance": jnp.asarray(mode.distance, float), "converged": jnp.asarray(mode.converged)}
        return begun._replace(est_state=replace(begun.est_state, **found))


@dataclass(frozen=True)
class PaperSearch:
    """As the paper searches: so many stochastic gradient steps of a given size from `position`."""

    position: PyTree
    schedule: Schedule
    n_iters: int

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Begun:
        end = self._ascend(kernel.posterior, source, jax.random.fold_in(root, SEARCH_CHAIN), progress)
        return FromParams(end).find(kernel, source, root, progress)

    def _ascend(self, posterior: Posterior, source: Source, key: jax.Array, progress: Progress) -> PyTree:
        loop, raw = Loop.of(Kernel(posterior, Minibatch(), Ascent(), self.schedule), source), jax.random.key_data(key)
        state = loop.call(loop.programs.start, (raw, self.position, (), raw), loop.prepare(raw, -1))
        with Bar(progress, "centre", self.n_iters) as bar:
            outcome = loop.trial(state, Request(self.n_iters, keep={}), bar)
        if outcome.attempted is not None:
            raise SgmcmcError(
                f"the search for the centre left the finite numbers at step {int(outcome.state.step) + 1} with opt_stepsize "
                f"{self.schedule.describe()}; give a smaller one, or leave opt_stepsize out for an automatic search"
            )
        return outcome.state.position


def warn_of_distance(distance: float) -> None:
    """A centre that is far from the mode costs noise, and scales taken there may not fit."""
    warn(
        f"the search for the centre of the control variates stopped at a mean squared distance of {distance:.3g} "
        "posterior variances from the mode (goal 0.05). Estimates stay unbiased but are noisier: start params nearer "
        "the mode, scale the data, or give opt_stepsize to search as the paper does"
    )
