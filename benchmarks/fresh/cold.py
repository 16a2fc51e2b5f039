"""Seconds from `import sgmcmc` to the result, in a fresh process: import, compilation and all."""

from __future__ import annotations

from statistics import median
from typing import Any

from tqdm import tqdm

from benchmarks.common.freshly import freshly
from benchmarks.common.problem import ITERATIONS, MINIBATCH, covertype
from benchmarks.common.table import spread, table, verdict
from benchmarks.fresh import jobs

LIMITS = {"sgld": 8.0, "sgldcv": 15.0}
"""Seconds."""


def measure(repeats: int) -> dict[str, Any]:
    with tqdm(total=1 + repeats * len(LIMITS), desc="cold", unit="run") as bar:
        bar.set_postfix_str("data")
        path = covertype()
        bar.update()
        runs: dict[str, list[dict[str, Any]]] = {sampler: [] for sampler in LIMITS}
        for number in range(1, repeats + 1):
            for sampler, found in runs.items():
                bar.set_postfix_str(f"{sampler}, round {number}")
                found.append(freshly(jobs.cold, sampler=sampler, path=str(path or "synthetic")))
                bar.update()
    return {"data": "real covertype" if path else "synthetic data of covertype's shape", "runs": runs}


def report(result: dict[str, Any]) -> str:
    lines = []
    for sampler, runs in result["runs"].items():
        seconds, limit = [run["seconds"] for run in runs], LIMITS[sampler]
        imports = [run["import_seconds"] for run in runs]
        lines.append([sampler, spread(seconds), spread(imports), f"{limit:g}", verdict(median(seconds), limit)])
    n_rows = next(iter(result["runs"].values()))[0]["rows"]
    return "\n".join([
        "## Cold start",
        "",
        f"Seconds from `import sgmcmc` to the result of {ITERATIONS:,} iterations on {result['data']} ({n_rows:,} rows already "
        f"in memory), minibatches of {MINIBATCH}; `sgldcv` finds its centre too. Median (range) of fresh processes.",
        "",
        table(["", "seconds", "of these import", "limit", ""], lines),
    ])  # fmt: skip
