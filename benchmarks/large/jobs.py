"""What is measured on a folder of rows, each in a process of its own: samplers from the folder or from memory, and `sample`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common.problem import ITERATIONS, log_lik, options, start, stepsize
from benchmarks.common.stages import Stages
from benchmarks.large.exact import log_prior


def sampling(
    sampler: str, rows: str, folder: str, in_memory: int | None = None, iterations: int = ITERATIONS
) -> Iterator[dict[str, Any]]:
    """A job: a sampler from the folder, or from its first `in_memory` rows as arrays. Rounds are that many iterations."""
    import sgmcmc

    data = dataset(folder, in_memory)
    n_rows, stages = len(data["y"]), Stages(f"{sampler} rows={rows}, {'folder' if in_memory is None else 'memory'}")
    made = getattr(sgmcmc, f"{sampler}_setup")(log_lik, data, start(), stepsize(n_rows), **options(rows))
    state = made.init(1, progress=stages)
    init_seconds = stages.finish()
    by_stage = {("first gradient" if name == "checks" else name): seconds for name, seconds in stages.seconds.items()}
    made.run(state, iterations, progress=False)  # compiles
    yield {"rows": n_rows, "init_seconds": init_seconds, "seconds_by_stage": by_stage}
    while True:
        begin = time.perf_counter()
        out = made.run(state, iterations, progress=False)
        seconds = time.perf_counter() - begin
        digest = hashlib.sha256(np.ascontiguousarray(out["beta"]).tobytes()).hexdigest()
        yield {"us_per_iteration": 1e6 * seconds / iterations, "draws_sha256": digest}


def dataset(folder: str, in_memory: int | None) -> Any:
    """The folder, all of it in memory, or its first rows there (which the library shuffles once more for windows)."""
    import sgmcmc.data

    rows = sgmcmc.data.open(folder)
    if in_memory is None:
        return rows
    if in_memory >= rows.n_rows:
        return sgmcmc.data.open(folder, in_memory=True)
    return {name: column[:in_memory] for name, column in rows.items()}


def nothing_to_tune(folder: str, seed: int = 1) -> Iterator[dict[str, Any]]:
    """A job: `sample` with nothing set and a smooth prior: its time by stage, what it decided and the moments of its draws."""
    import sgmcmc
    import sgmcmc.data
    from sgmcmc.results.diagnostics import standard_error

    stages = Stages("sample, folder")
    fit = sgmcmc.sample(log_lik, sgmcmc.data.open(folder), start(), log_prior=log_prior, seed=seed, progress=stages)
    seconds = stages.finish()
    draws = np.concatenate([np.asarray(fit["bias"])[..., None], np.asarray(fit["beta"])[..., 0]], axis=-1).astype(np.float64)
    yield {
        "seconds": seconds,
        "seconds_by_stage": stages.seconds,
        "mean": draws.mean((0, 1)).tolist(),
        "sd": draws.std((0, 1)).tolist(),
        "monte_carlo_error": standard_error(draws).tolist(),
        "pool": fit.decisions.get("pool"),
        "healthy": fit.health().ok,
        "decisions": str(fit.decisions),
    }
