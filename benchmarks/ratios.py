"""The ratios of all sections in one table, each with its spread over rounds."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.common.table import reached, spread, table, verdict
from benchmarks.fresh import imports
from benchmarks.large import comparison as large
from benchmarks.steps import devices, speed


def report(results: dict[str, Any]) -> str:
    """Of the sections that were measured; empty if none has a ratio."""
    lines = [*speed_lines(results.get("speed")), *large_lines(results.get("large")), *device_lines(results.get("devices"))]
    lines += import_lines(results.get("import"))
    if not lines:
        return ""
    header = ["", "ratio", "rounds", "bar"]
    return "\n".join(["## Ratios", "", "Median (range) over rounds of the ratio within a round.", "", table(header, lines)])


def speed_lines(result: dict[str, Any] | None) -> list[list[str]]:
    lines = []
    for name, bar in speed.BARS.items() if result is not None else ():
        if found := speed.ratios(result or {}, name):
            judged = f"at most {bar:g}: {verdict(median(found), bar)}"
            lines.append([f"step of {name} / step of {speed.against(name)}", spread(found), str(len(found)), judged])
    return lines


def large_lines(result: dict[str, Any] | None) -> list[list[str]]:
    if result is None or "folder" not in result:
        return []
    size, bar = result["folder"]["bytes"] / 1e9, large.LEAST_RATIO
    lines = []
    for pair in result["pairs"]:
        against = large.ratios(result, pair)
        judged = f"at least {bar:g}: {reached(median(against), bar)}" if "window" in pair else ""
        lines.append([f"{pair}: speed from {size:.2f} GB on disk / in memory", spread(against), str(len(against)), judged])
    return lines


def device_lines(result: dict[str, Any] | None) -> list[list[str]]:
    if result is None:
        return []
    lines = []
    for rows, name in devices.KINDS.items():
        against, judged = devices.ratios(result, rows), devices.judged(result, rows)
        bar = f"at least {devices.LEAST_RATIO:g}: {judged}" if judged else ""
        what = f"{name}, {devices.CHAINS} chains: speed on two devices / on one"
        lines.append([what, spread(against), str(len(against)), bar])
    return lines


def import_lines(result: dict[str, Any] | None) -> list[list[str]]:
    if result is None:
        return []
    more = median(imports.beyond(result))
    bar = f"at most {imports.MOST_BEYOND:g} s more: {verdict(more, imports.MOST_BEYOND)}"
    against = imports.ratios(result)
    return [["import sgmcmc / import jax", spread(against), str(len(against)), bar]]
