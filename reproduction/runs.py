"""A method of the table, set up on a model and data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

import sgmcmc
from reproduction.settings import Method, setting, stepsize
from sgmcmc.core.trees import Dataset, LogLik, LogPrior, PyTree, State


def set_up(
    experiment: str,
    method: Method,
    log_lik: LogLik,
    log_prior: LogPrior,
    data: Dataset,
    start: PyTree,
    quick: bool,
    **changes: Any,
) -> sgmcmc.Sampler:
    """The sampler with the table's settings; `changes` replaces some of them."""
    options: dict[str, Any] = {
        "stepsize": stepsize(experiment, method),
        "minibatch_size": setting(experiment, "minibatch_size", quick),
        **method.options,
    }
    if method.control_variates:
        options["opt_stepsize"] = setting(experiment, "opt_stepsize", quick)
        options["n_iters_opt"] = setting(experiment, "n_iters_opt", quick)
    setup = getattr(sgmcmc, f"{method.sampler}_setup")
    return setup(log_lik, data, start, log_prior=log_prior, **{**options, **changes})


def standard_normal(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Starting values as in the article."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def start_chains(
    sampler: sgmcmc.Sampler, method: Method, starts: list[dict[str, np.ndarray]], seed: int, progress: bool
) -> State:
    """A chain from each start; with control variates all start at the one centre, as the method has it."""
    state = sampler.init(seed, n_chains=len(starts), progress=progress)
    if method.control_variates:
        return state
    return sampler.replace(state, jax.tree.map(lambda *leaves: np.stack(leaves), *starts))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and how long it takes."""
    clock = time.perf_counter()
    return work(), time.perf_counter() - clock
