"""One measurement in a process of its own: peak memory, or the time from import to result. Prints JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from problem import ITERATIONS, ROWS, arguments, options, synthetic


def in_fresh_process(*command: str) -> dict[str, Any]:
    """Run this file and read what it prints. A cache of compiled programs would make a cold start warm: it is left out."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run([sys.executable, __file__, *command], stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


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
    from network_problem import KEEP, images, network_sampler

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for_memory = commands.add_parser("memory")
    for_memory.add_argument("rows", choices=("random", "window"))
    for_memory.add_argument("n_rows", type=int)
    for_network = commands.add_parser("network")
    for_network.add_argument("steps", type=int)
    for_cold = commands.add_parser("cold")
    for_cold.add_argument("sampler")
    for_cold.add_argument("data", help="an .npz file, or the word synthetic")
    chosen = parser.parse_args()
    print(json.dumps(measured(chosen)))


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.command == "memory":
        return memory(chosen.rows, chosen.n_rows)
    if chosen.command == "network":
        return network(chosen.steps)
    return cold(chosen.sampler, chosen.data)


if __name__ == "__main__":
    main()
