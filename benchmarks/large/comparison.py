"""Steps per second from a folder and from memory, in turns; from a cold cache; and `sample` beside the exact posterior."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common.problem import COLUMNS, ITERATIONS, MINIBATCH
from benchmarks.common.stages import say
from benchmarks.common.table import gigabytes, reached, spread, table, verdict
from benchmarks.common.workers import PEAK, Job, Worker
from benchmarks.large.data import affordable, forget, make_folder, rows_of
from benchmarks.large.exact import ONE_THREAD, exact_posterior
from benchmarks.large.jobs import nothing_to_tune, sampling

SMALLEST, COMPARED = 1.0, 2.0
"""Gigabytes: a folder of less shows nothing, and as many are held in memory to compare with: windows cost the same of any N."""

MOST_ANONYMOUS = 2 * 10**9
LEAST_RATIO = 0.5
PAIRS = (("sgldcv", "window"), ("sgld", "window"), ("sgld", "random"))
"""What is run from the folder and from memory. The bar is one for windows: random rows are for data the system can hold."""

COLD_ROUNDS = 3


def measure(
    wanted: float,
    folder: Path,
    rounds: int,
    iterations: int = ITERATIONS,
    keep: bool = False,
    whole: bool = False,
    pairs: tuple[tuple[str, str], ...] = PAIRS,
) -> dict[str, Any]:
    """Speed from the folder and from memory, in turns; with `whole`, also from a cold cache, and `sample`."""
    size = wanted if (folder / "header.json").exists() else affordable(wanted, folder)
    if size < min(wanted, SMALLEST):
        return {
            "skipped": f"Skipped: {folder} has room for {size:.1f} GB (and twice that for shuffling); {SMALLEST:g} are needed."
        }
    if size < wanted:
        print(f"{wanted:g} GB were asked for; the largest folder that fits on this disk is {size:.1f} GB.", file=sys.stderr)
    load, begin, found_here = os.getloadavg()[0], time.perf_counter(), folder.exists()
    try:
        say(f"{size:.2f} GB into {folder}")
        made = alone(make_folder, folder=str(folder), n_rows=rows_of(size))
        compared = min(made["rows"], rows_of(COMPARED))
        found = {f"{name} rows={rows}": in_turns(name, rows, folder, compared, rounds, iterations) for name, rows in pairs}
        result = {"wanted": wanted, "folder": made, "iterations": iterations, "compared_rows": compared, "pairs": found}
        if whole:
            names = [(name, rows) for name, rows in pairs if name == "sgld"]
            result["cold"] = {f"{name} rows={rows}": cold(name, rows, folder, iterations) for name, rows in names}
            result["sample"] = alone(nothing_to_tune, folder=str(folder))
            say("exact posterior, by passes in float64")
            result["exact"] = alone(exact_posterior, ONE_THREAD, folder=str(folder))
    finally:
        if not (keep or found_here):
            shutil.rmtree(folder, ignore_errors=True)
    return result | {"load": [load, os.getloadavg()[0]], "minutes": (time.perf_counter() - begin) / 60}


def alone(job: Job, environment: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a job with one answer says."""
    with Worker(job, environment, **arguments) as worker:
        return worker.turn()


def in_turns(name: str, rows: str, folder: Path, compared: int, rounds: int, iterations: int) -> dict[str, Any]:
    """A sampler from the folder and from memory, one round of each after the other."""
    common = {"sampler": name, "rows": rows, "folder": str(folder), "iterations": iterations}
    with Worker(sampling, **common) as from_folder, Worker(sampling, **common, in_memory=compared) as from_memory:
        workers = {"folder": from_folder, "memory": from_memory}
        ready = {place: worker.turn() for place, worker in workers.items()}
        turns: dict[str, list[dict[str, Any]]] = {place: [] for place in workers}
        for _ in range(rounds):
            for place, worker in workers.items():
                turns[place].append(worker.turn())
    draws = {turn["draws_sha256"] for place in turns for turn in turns[place]}
    return {
        "ready": ready,
        "us": {place: [turn["us_per_iteration"] for turn in turns[place]] for place in turns},
        "peak": turns["folder"][-1][PEAK],
        "same_draws": len(draws) == 1,
    }


def cold(name: str, rows: str, folder: Path, iterations: int) -> list[float] | None:
    """Microseconds per iteration of fresh processes that find nothing of the folder in memory; None where it cannot be dropped.

    The files are dropped after set-up. Pages that a process has mapped are not, so random rows find those of its warm-up.
    """
    found = []
    for _ in range(COLD_ROUNDS):
        with Worker(sampling, sampler=name, rows=rows, folder=str(folder), iterations=iterations) as worker:
            worker.turn()
            if not forget(folder):
                return None
            found.append(worker.turn()["us_per_iteration"])
    return found


def ratios(result: dict[str, Any], pair: str) -> list[float]:
    """Speed from the folder over speed from memory, within each round."""
    us = result["pairs"][pair]["us"]
    return [memory / folder for folder, memory in zip(us["folder"], us["memory"], strict=True)]


def report(result: dict[str, Any]) -> str:
    return "\n".join(["## Data larger than memory", "", *(paragraphs(result) if "folder" in result else [result["skipped"]])])


def paragraphs(result: dict[str, Any]) -> list[str]:
    made, iterations = result["folder"], result["iterations"]
    same = made["rows"] == result["compared_rows"]
    beside = "the same rows" if same else f"the first {result['compared_rows']:,} of them"
    lines = []
    for pair, found in result["pairs"].items():
        against, judged = ratios(result, pair), "window" in pair
        lines.append([
            pair,
            spread(found["us"]["folder"], 1),
            spread(found["us"]["memory"], 1),
            spread(against),
            reached(median(against), LEAST_RATIO) if judged else "",
            gigabytes(found["peak"]),
            verdict(found["peak"], MOST_ANONYMOUS),
            f"{found['ready']['folder']['init_seconds']:.0f}",
        ])  # fmt: skip
    header = ["", "folder, µs", "memory, µs", "ratio", f"bar {LEAST_RATIO:g}", "peak", "bar 2.00", "set-up s"]
    rounds = len(next(iter(result["pairs"].values()))["us"]["folder"])
    text = [
        f"A folder of {made['bytes'] / 1e9:.2f} GB ({result['wanted']:g} wanted): {made['rows']:,} rows of {COLUMNS} float32 "
        f"and a label, made, converted and shuffled in {made['seconds']:.0f} s. Beside it {beside} in memory. Minibatches of "
        f"{MINIBATCH}, {iterations:,} iterations a round, every draw kept, compilation excluded; each a process of its own, in "
        f"turns, {rounds} rounds; median (range). Ratio: speed from the folder over speed from memory, within a round. Peak: of "
        "anonymous memory (RssAnon) in GB, from the folder. Set-up, from the folder: compilation, and for `sgldcv` the centre.",
        "",
        table(header, lines),
    ]
    if same:
        agree = all(found["same_draws"] for found in result["pairs"].values())
        text += ["", f"Draws from the folder and from memory: {'bitwise the same' if agree else 'DIFFERENT'}."]
    return text + cold_lines(result) + sample_lines(result)


def cold_lines(result: dict[str, Any]) -> list[str]:
    found = {pair: times for pair, times in result.get("cold", {}).items() if times}
    if not found:
        return []
    lines = [
        [pair, spread(times, 0), f"{median(result['pairs'][pair]['us']['memory']) / median(times):.2f}"]
        for pair, times in found.items()
    ]
    return [
        "",
        f"After the system was made to drop the files from memory, {COLD_ROUNDS} fresh processes each (what was read in a round "
        "is warm when it is read again):",
        "",
        table(["cold", "folder, µs", "ratio to memory"], lines),
    ]


def sample_lines(result: dict[str, Any]) -> list[str]:
    if "sample" not in result:
        return []
    fit, exact = result["sample"], result["exact"]
    sd = np.array(exact["sd"])
    means = np.abs(np.array(fit["mean"]) - exact["mean"]) / sd
    sds = np.abs(np.array(fit["sd"]) / sd - 1)
    expected = np.array(fit["monte_carlo_error"]) / sd
    pool = "all rows weighed, no pool" if fit["pool"] is None else f"price of its pool as stated at most {fit['pool']:.3f} sd"
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in fit["seconds_by_stage"].items())
    return [
        "",
        f"`sample` with nothing set and N(0, 1) priors: {fit['seconds']:.0f} s ({stages}), peak of anonymous memory "
        f"{gigabytes(fit[PEAK])} GB (bar 2.00: {verdict(fit[PEAK], MOST_ANONYMOUS)}), {pool}, health "
        f"{'ok' if fit['healthy'] else 'NOT ok'}. Beside the exact posterior (mode and derivatives in float64 from all rows, "
        f"{exact['seconds']:.0f} s; exact to order d/N):",
        "",
        table(
            ["error of `sample`", "rms", "largest"],
            [
                ["means, posterior sds", f"{rms(means):.4f}", f"{means.max():.4f}"],
                ["their Monte Carlo error as estimated", f"{rms(expected):.4f}", f"{expected.max():.4f}"],
                ["sds, relative", f"{rms(sds):.4f}", f"{sds.max():.4f}"],
            ],
        ),
        "",
        "What it decided:",
        "",
        fit["decisions"],
    ]


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
