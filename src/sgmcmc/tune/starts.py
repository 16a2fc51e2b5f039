"""The centre of the control variates: found, then measured exactly by one pass over the data."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.langevin import Ascent
from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.core.errors import SgmcmcError, warn
from sgmcmc.core.progress import Bar, Progress
from sgmcmc.core.types import Batch, PyTree, State
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule
from sgmcmc.rows.sources import Source
from sgmcmc.rows.strata import axis_of
from sgmcmc.rows.table import as_table
from sgmcmc.run.loop import Loop
from sgmcmc.run.passes import full_gradient
from sgmcmc.tune.mode import find_mode

SEARCH_CHAIN = 2**31 - 1
"""The chain number whose random numbers serve the search: no real chain has it."""


@dataclass(frozen=True)
class PaperOptimiser:
    """The paper's search: so many stochastic gradient steps of a given size."""

    schedule: Schedule
    n_iters: int


def find_centre(
    posterior: Posterior, source: Source, start: PyTree, optimiser: PaperOptimiser | None, root: jax.Array, progress: Progress
) -> Centre:
    """Search from `start`, automatically or as the paper does, then take the full gradient at the end point."""
    key = jax.random.fold_in(root, SEARCH_CHAIN)
    if optimiser is None:
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        mode = find_mode(posterior, as_table(source.arrays), start, seed, progress)
        if not mode.converged:
            warn_of_distance(mode.distance)
        position, distance, converged = mode.position, mode.distance, mode.converged
    else:
        position, distance, converged = _stochastic_ascent(posterior, source, start, optimiser, key, progress), np.nan, True
    with Bar(progress, "full gradient", source.n_rows, "row") as bar:
        gradient = full_gradient(posterior, position, source.arrays, bar)
    return Centre(position, gradient, jnp.asarray(distance, float), jnp.asarray(converged))


def warn_of_distance(distance: float) -> None:
    """A centre that is far from the mode costs noise, and scales taken there may not fit."""
    warn(
        f"the search for the centre of the control variates stopped at a mean squared distance of {distance:.3g} "
        "posterior variances from the mode (goal 0.05). Estimates stay unbiased but are noisier: start params nearer "
        "the mode, scale the data, or give opt_stepsize to search as the paper does"
    )


def _stochastic_ascent(
    posterior: Posterior, source: Source, start: PyTree, optimiser: PaperOptimiser, key: jax.Array, progress: Progress
) -> PyTree:
    loop = Loop(Kernel(Minibatch(posterior, axis=axis_of(source)), Ascent(), optimiser.schedule), source)
    raw = jax.random.key_data(key)
    data, plan = source.data, loop.prepare(raw, -1)

    def begin(start: PyTree, batch: Batch) -> State:
        return loop.kernel.start(raw, raw, start, batch, ())

    state = loop.on_one_batch(begin, None, None)(start, data, plan, chained=False)
    with Bar(progress, "centre", optimiser.n_iters) as bar:
        outcome = loop.run(state, optimiser.n_iters, 0, 1, (), bar).whole()
    if outcome.failed_at is not None:
        raise SgmcmcError(
            f"the search for the centre left the finite numbers at step {int(outcome.state.step) + 1} with opt_stepsize "
            f"{optimiser.schedule.describe()}; give a smaller one, or leave opt_stepsize out for an automatic search"
        )
    return outcome.state.position
