"""Peak memory of a whole `sgld` call on a large dataset, in a fresh process."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from benchmarks.common.freshly import freshly
from benchmarks.common.problem import COLUMNS, ITERATIONS
from benchmarks.common.table import gigabytes, table, verdict
from benchmarks.fresh import jobs

HEADROOM = 10**9
"""Beyond the data, one copy of them on the device and the draws: Python, JAX, the compiler and a chunk's minibatches."""


def measure(n_rows: int) -> dict[str, Any]:
    peaks = {}
    with tqdm(total=2, desc="memory", unit="run") as bar:
        for rows in ("random", "window"):
            bar.set_postfix_str(f"rows={rows}, N={n_rows:,}")
            peaks[rows] = freshly(jobs.memory, rows=rows, n_rows=n_rows)
            bar.update()
    return {"rows": n_rows, "peaks": peaks}


def allowed(peak: dict[str, int]) -> int:
    return 2 * peak["data_bytes"] + peak["draws_bytes"] + HEADROOM


def report(result: dict[str, Any]) -> str:
    lines = [
        [
            f"rows={rows}",
            gigabytes(peak["data_bytes"]),
            gigabytes(peak["peak_before_bytes"]),
            gigabytes(peak["peak_bytes"]),
            gigabytes(allowed(peak)),
            verdict(peak["peak_bytes"], allowed(peak)),
        ]
        for rows, peak in result["peaks"].items()
    ]
    return "\n".join([
        "## Memory",
        "",
        f"Peak resident memory in GB of `sgld`, {ITERATIONS:,} iterations, {result['rows']:,} rows of {COLUMNS} float32 and a "
        "label, in a fresh process. Allowed: the caller's arrays, one copy of them on the device, the draws, and 1 GB.",
        "",
        table(["", "caller's arrays", "peak before the call", "peak", "allowed", ""], lines),
    ])  # fmt: skip
