"""Seconds of `import sgmcmc` and of `import jax`, which is part of it: a new process for each, in turns."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Any

from tqdm import tqdm

from benchmarks.common.freshly import environment
from benchmarks.common.table import spread, table, verdict

OURS, THEIRS = "sgmcmc", "jax"
MOST_BEYOND = 1.0
"""Seconds that `import sgmcmc` may take beyond `import jax`."""

SCRIPT = "import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"


def measure(rounds: int) -> dict[str, Any]:
    """The first import of each writes its bytecode and is not counted."""
    seconds: dict[str, list[float]] = {THEIRS: [], OURS: []}
    with tqdm(total=(1 + rounds) * len(seconds), desc="import", unit="run") as bar:
        for number in range(1 + rounds):
            for module, found in seconds.items():
                bar.set_postfix_str(f"{module}, {f'round {number}' if number else 'warm-up'}")
                took = import_seconds(module)
                if number:
                    found.append(took)
                bar.update()
    return {"seconds": seconds}


def import_seconds(module: str) -> float:
    """By the clock of the process that imports it: starting Python is not part of it."""
    command = [sys.executable, "-c", SCRIPT.format(module=module)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment()).stdout)


def ratios(result: dict[str, Any]) -> list[float]:
    """Of our import to that of JAX, within each round."""
    return [ours / theirs for theirs, ours in _pairs(result)]


def beyond(result: dict[str, Any]) -> list[float]:
    """Seconds of our import beyond that of JAX, within each round."""
    return [ours - theirs for theirs, ours in _pairs(result)]


def _pairs(result: dict[str, Any]) -> list[tuple[float, float]]:
    return list(zip(result["seconds"][THEIRS], result["seconds"][OURS], strict=True))


def report(result: dict[str, Any]) -> str:
    seconds, more = result["seconds"], beyond(result)
    lines = [
        [f"import {THEIRS}", spread(seconds[THEIRS]), "", "", ""],
        [f"import {OURS}", spread(seconds[OURS]), spread(ratios(result)), spread(more), verdict(median(more), MOST_BEYOND)],
    ]
    return "\n".join([
        "## Import",
        "",
        f"Seconds of an import in a new process, in turns; `import {OURS}` imports JAX. Median (range) of {len(more)} rounds; "
        "ratio and difference are taken within a round.",
        "",
        table(["", "seconds", "ratio", f"beyond import {THEIRS}", f"bar {MOST_BEYOND:g}"], lines),
    ])  # fmt: skip
