"""What is done in a new process: to its peak memory, or to its result."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.problem import ITERATIONS, ROWS, arguments, options, synthetic


def peak_bytes() -> int:
    """The largest resident memory so far. (Linux counts a parent's memory in a child's ru_maxrss, so not that one there.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def memory(rows: str, n_rows: int) -> dict[str, Any]:
    data = synthetic(n_rows)
    before = peak_bytes()
    import sgmcmc

    out = sgmcmc.sgld(*arguments(data), **options(rows), n_iters=ITERATIONS, seed=1, progress=False)
    return {
        "data_bytes": sum(array.nbytes for array in data.values()),
        "draws_bytes": sum(out[name].nbytes for name in ("bias", "beta")),
        "peak_before_bytes": before,
        "peak_bytes": peak_bytes(),
    }


def network(steps: int) -> dict[str, Any]:
    from benchmarks.steps.network_problem import KEEP, images, network_sampler

    data = images()[1]
    before = peak_bytes()
    sampler = network_sampler(data)
    sampler.run(sampler.init(1), steps, keep=KEEP, progress=False)
    return {"steps": steps, "peak_before_bytes": before, "peak_bytes": peak_bytes()}


def cold(sampler: str, path: str) -> dict[str, Any]:
    data = synthetic(ROWS) if path == "synthetic" else dict(np.load(path))
    begin = time.perf_counter()
    import sgmcmc

    imported = time.perf_counter()
    out = getattr(sgmcmc, sampler)(*arguments(data), **options(), n_iters=ITERATIONS, seed=1, progress=False)
    end = time.perf_counter()
    return {"seconds": end - begin, "import_seconds": imported - begin, "rows": len(data["y"]), "draws": len(out["beta"])}
