"""What to say when a chain leaves the finite numbers."""

import jax
import numpy as np

from sgmcmc.core.errors import DivergenceError, SgmcmcError, describe
from sgmcmc.core.trees import Culprit, leaf_names
from sgmcmc.problem.schedules import Schedule
from sgmcmc.results.result import Result


def divergence(culprit: Culprit, result: Result, schedule: Schedule) -> DivergenceError:
    """The error, with the repair, and the draws made before."""
    state, step = result.final_state, int(result.final_state.step) + 1
    values = dict(zip(leaf_names(state.params), jax.tree.leaves(state.params), strict=True))
    last = np.asarray(values[culprit.parameter])
    last = last if culprit.chain is None else last[culprit.chain]
    where = "" if culprit.chain is None else f" of chain {culprit.chain}"
    steps = schedule.at(step, state.position)
    eps = np.asarray(dict(zip(leaf_names(state.position), jax.tree.leaves(steps), strict=True))[culprit.parameter])
    if (eps > 0).all():
        repair = f"Its step size, {np.max(eps):.3g}, is probably too large: try stepsize={np.max(eps) / 10:.2g}"
    else:
        repair = f"Its step size is {np.min(eps):.3g} there: expected a schedule that stays positive"
    message = (
        f"parameter {culprit.parameter!r}{where} is not finite at iteration {step}; the last finite value was "
        f"{describe(last.tolist())}. {repair}. The draws so far are in the error's .result, "
        "the last finite state in .result.final_state"
    )
    return DivergenceError(message, parameter=culprit.parameter, step=step, chain=culprit.chain, result=result)


def with_result(error: SgmcmcError, result: Result) -> SgmcmcError:
    """An error that ended a run, with the draws made before it."""
    error.result = result
    error.add_note("The draws made before are in the error's .result")
    return error
