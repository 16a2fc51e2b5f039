"""How the cost of an iteration grows with the number of rows, beside the growth of the C loop (caches, not algorithms)."""

from __future__ import annotations

from statistics import median
from typing import Any

from tqdm import tqdm

from benchmarks.common.problem import COLUMNS, ITERATIONS, MINIBATCH, synthetic
from benchmarks.common.table import spread, table, verdict
from benchmarks.steps.limit import Limit
from benchmarks.steps.speed import sgld_job

MODES = ("random", "window")
BAR = 1.3
"""How much more than the C loop's our cost may grow from the smallest dataset to any other."""

Times = dict[int, list[float]]


def measure(rounds: int, sizes: tuple[int, ...], limit: Limit | None) -> dict[str, Any]:
    """One array serves all sizes: smaller ones are its first rows. The C loop's data live in its own, short-lived process."""
    whole = synthetic(max(sizes))
    ours: dict[str, Times] = {mode: {size: [] for size in sizes} for mode in MODES}
    theirs: dict[str, Times] = {mode: {size: [] for size in sizes} for mode in MODES} if limit else {}
    total = len(MODES) * (len(sizes) + rounds * (1 + len(sizes)))
    with tqdm(total=total, desc="scaling", unit="run") as bar:
        jobs = {}
        for mode in MODES:
            for size in sizes:
                bar.set_postfix_str(f"rows={mode}, N={size:,}, set-up")
                jobs[mode, size] = sgld_job({name: array[:size] for name, array in whole.items()}, mode)
                jobs[mode, size]()
                bar.update()
        for number in range(1, rounds + 1):
            for mode in MODES:
                if limit is not None:
                    bar.set_postfix_str(f"C loop, {mode}, round {number}")
                    for size, microseconds in limit.microseconds(mode, sizes).items():
                        theirs[mode][size].append(microseconds)
                bar.update()
                for size in sizes:
                    bar.set_postfix_str(f"rows={mode}, N={size:,}, round {number}")
                    ours[mode][size].append(jobs[mode, size]())
                    bar.update()
    return {"sizes": list(sizes), "iterations": ITERATIONS, "sgld_us_per_iteration": ours, "c_us_per_iteration": theirs}


def growths(times: Times, size: int) -> list[float]:
    """Relative to the smallest size, within each round."""
    return [here / base for here, base in zip(times[size], times[min(times)], strict=True)]


def report(result: dict[str, Any]) -> str:
    text = [
        "## Scaling",
        "",
        f"µs per iteration against the number of rows N ({COLUMNS} columns, minibatches of {MINIBATCH}, compilation excluded); "
        f"growth is relative to the smallest N, within a round. Medians (range) of rounds. Bar: our growth at most {BAR} times "
        "that of the C loop with the same kind of rows.",
    ]
    for mode in MODES:
        ours, theirs = result["sgld_us_per_iteration"][mode], result["c_us_per_iteration"].get(mode)
        text += ["", _mode_table(mode, ours, theirs)]
    return "\n".join(text)


def _mode_table(mode: str, ours: Times, theirs: Times | None) -> str:
    header = [f"N, rows={mode}", "sgld µs", "sgld growth"]
    header += ["C loop µs", "C loop growth", "ratio of growths", f"bar {BAR}"] if theirs else []
    lines = []
    for size in ours:
        our_growth = growths(ours, size)
        line = [f"{size:,}", spread(ours[size], 1), f"{median(our_growth):.2f}"]
        if theirs:
            their_growth = growths(theirs, size)
            ratio = [mine / its for mine, its in zip(our_growth, their_growth, strict=True)]
            judged = verdict(median(ratio), BAR) if size > min(ours) else ""
            line += [spread(theirs[size], 1), f"{median(their_growth):.2f}", spread(ratio), judged]
        lines.append(line)
    return table(header, lines)
