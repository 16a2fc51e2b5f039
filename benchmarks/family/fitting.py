"""One sampler on one target: the step size at which it is right at least cost."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

import sgmcmc
from benchmarks.family.samplers import BURN_IN, SAMPLERS, Entry
from benchmarks.family.targets import Target
from sgmcmc.results.convergence import effective_size

STEPS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0)
"""Step sizes, in units of the target's smallest variance."""

CHAINS, DRAWS = 8, 2000
ALLOWED = 0.1
"""The bias that all may have: of a mean in standard deviations, of a standard deviation in parts of it."""

MOST_REMEMBERED = 50_000_000
"""Numbers in a table of all rows' gradients."""

FEWEST = 100
"""Effective draws by which that can be told."""


def best(name: str, target: Target, share: float) -> dict[str, Any]:
    """Of the step sizes that are right, the one whose effective draws are cheapest; `share` of the target's rows are spent."""
    entry = SAMPLERS[name]
    if entry.needs_mode and not target.has_mode:
        return {"outcome": "needs a mode"}
    if entry.remembers and CHAINS * target.n_rows * len(target.mean) > MOST_REMEMBERED:
        return {"outcome": "table too large"}
    tried = [attempt(entry, target, eps, share) for eps in STEPS]
    right = [one for one in tried if one["bias"] <= ALLOWED and one["size"] >= FEWEST]
    told = {"tried": tried}
    if right:
        return told | {"outcome": "right"} | min(right, key=lambda one: one["rows_per_draw"])
    return told | {"outcome": "off"} | min(tried, key=lambda one: one["bias"])


def attempt(entry: Entry, target: Target, relative: float, share: float) -> dict[str, Any]:
    """The chains at one step size."""
    per_iteration = entry.rows(target.minibatch, target.n_rows)
    n_iters = max(200, int(share * target.rows / per_iteration))
    burn_in, thin = int(BURN_IN * n_iters), max(1, n_iters // DRAWS)
    options = {"minibatch_size": target.minibatch, "progress": False} | target.options
    parts = entry.parts(burn_in)
    if "precondition" in parts and "precondition" in target.options:
        del parts["precondition"]  # it is there for all
    eps = relative * (1.0 if "precondition" in parts else target.unit)
    failed = {"stepsize": relative, "bias": float("inf"), "size": 0.0, "rows_per_draw": float("inf")}
    try:
        sampler = sgmcmc.sampler_setup(target.log_lik, target.dataset, target.params, entry.steps(eps), **options, **parts)
        state = sampler.run(sampler.init(seed=1, n_chains=CHAINS, progress=False), burn_in, progress=False).final_state
        begun = time.perf_counter()
        out = sampler.run(state, n_iters, thin=thin, progress=False)
        seconds = time.perf_counter() - begun
    except sgmcmc.SgmcmcError as error:
        return failed | {"why": str(error).partition(";")[0][:200]}
    draws = target.look(jax.tree.map(np.asarray, out.draws)).astype(float)
    counts = weights_of(out, draws)
    bias, size = judged(draws, counts, target)
    spent = CHAINS * n_iters * per_iteration
    return {
        "stepsize": relative, "bias": bias, "size": size, "iterations": n_iters, "seconds": seconds,
        "rows_per_draw": spent / size, "seconds_per_1000": 1000 * seconds / size,
    }  # fmt: skip


def weights_of(out: Any, draws: np.ndarray) -> np.ndarray:
    """What draws count for."""
    weights = np.ones(draws.shape[1]) if out.weights is None else np.asarray(out.weights, float)
    return weights / weights.sum()


def judged(draws: np.ndarray, counts: np.ndarray, target: Target) -> tuple[float, float]:
    """The largest bias of any functional beyond two of its standard errors, and the smallest effective size."""
    means = np.tensordot(draws, counts, axes=(1, 0))
    squares = np.tensordot((draws - target.mean) ** 2, counts, axes=(1, 0))
    root = np.sqrt(squares.mean(axis=0))
    off = [np.abs(means.mean(axis=0) - target.mean) / target.sd, np.abs(root / target.sd - 1)]
    errors = [means.std(axis=0, ddof=1) / target.sd, squares.std(axis=0, ddof=1) / (2 * root * target.sd + 1e-300)]
    beyond = [np.maximum(one - 2 * error / np.sqrt(CHAINS), 0) for one, error in zip(off, errors, strict=True)]
    stuck = np.ptp(draws, axis=(0, 1)) == 0
    counted = counts > 0
    size = 1.0 if stuck.any() else min(effective_size(draws[:, counted, k]) for k in range(draws.shape[-1]))
    return float(np.max(np.where(stuck, np.maximum(off[0], off[1]), np.maximum(*beyond)))), float(max(size, 1.0))
