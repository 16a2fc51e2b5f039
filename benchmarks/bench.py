"""Speed, scaling, memory and cold start of sgmcmc beside a hand-written C loop, its import beside that of JAX, a network beside a
hand-written scan, data on disk beside data in memory, two devices beside one.

All numbers are measured here and now, in several minutes, or with `--quick` in about three. Tables go to
benchmarks/build/results.md and results.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `python benchmarks/bench.py`
from benchmarks import ratios
from benchmarks.common.problem import BUILD, COLUMNS
from benchmarks.fresh import cold, imports, memory
from benchmarks.large import comparison as large
from benchmarks.steps import devices, network, scaling, speed
from benchmarks.steps.limit import Limit, compile_limit


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    scaling_rounds: int
    scaling_sizes: tuple[int, ...]
    memory_rows: int
    import_rounds: int
    cold_repeats: int
    network_rounds: int
    network_steps: int
    large_gigabytes: float
    large_rounds: int
    device_rounds: int


FULL = Plan(
    rounds=9,
    scaling_rounds=7,
    scaling_sizes=(10**4, 10**5, 10**6, 10**7),
    memory_rows=10**7,
    import_rounds=9,
    cold_repeats=3,
    network_rounds=10,
    network_steps=1000,
    large_gigabytes=1.0,
    large_rounds=9,
    device_rounds=7,
)
QUICK = Plan(
    rounds=3,
    scaling_rounds=2,
    scaling_sizes=(10**4, 10**5, 10**6),
    memory_rows=10**6,
    import_rounds=3,
    cold_repeats=1,
    network_rounds=5,
    network_steps=400,
    large_gigabytes=0.25,
    large_rounds=3,
    device_rounds=3,
)

SECTIONS = ("speed", "large", "devices", "scaling", "memory", "import", "cold", "network")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, at most a million rows")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, metavar="SECTION", help=" ".join(SECTIONS))
    chosen = parser.parse_args()
    plan = affordable(QUICK if chosen.quick else FULL)
    BUILD.mkdir(exist_ok=True)
    limit = compile_limit()
    if limit is None:
        print("No C compiler (cc, gcc or clang) found: the C loop is left out, and with it all ratios to it.", file=sys.stderr)

    load_before, begin = os.getloadavg(), time.perf_counter()
    if load_before[0] > (os.cpu_count() or 1) / 2:
        print("Other work is running on this machine: a one-core loop suffers less than what uses all.", file=sys.stderr)
    results = {section: measured(section, plan, limit) for section in SECTIONS if section in chosen.only}
    about = {
        **machine(limit),
        "plan": asdict(plan),
        "minutes": round((time.perf_counter() - begin) / 60, 1),
        "load_before": [round(load, 2) for load in load_before],
        "load_after": [round(load, 2) for load in os.getloadavg()],
    }
    sections = [ratios.report(results), *(REPORTS[section](result) for section, result in results.items())]
    text = "\n\n".join(["# Benchmarks", describe(about), *filter(None, sections)])
    (BUILD / "results.md").write_text(text + "\n")
    (BUILD / "results.json").write_text(json.dumps({"machine": about, **results}, indent=1) + "\n")
    print(text)


REPORTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "speed": speed.report,
    "scaling": scaling.report,
    "memory": memory.report,
    "import": imports.report,
    "cold": cold.report,
    "network": network.report,
    "large": large.report,
    "devices": devices.report,
}


def affordable(plan: Plan) -> Plan:
    """Without the sizes this machine has no memory for: the data, a shuffled copy, the C loop's own, and some room."""
    installed_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    largest = installed_bytes // (4 * 4 * (COLUMNS + 1))
    sizes = tuple(size for size in plan.scaling_sizes if size <= largest)
    if sizes != plan.scaling_sizes or plan.memory_rows > largest:
        print(f"This machine has memory for datasets of at most {largest:,} rows: larger ones are left out.", file=sys.stderr)
    return replace(plan, scaling_sizes=sizes, memory_rows=min(plan.memory_rows, sizes[-1]))


def measured(section: str, plan: Plan, limit: Limit | None) -> dict[str, Any]:
    if section == "speed":
        return speed.measure(plan.rounds, limit)
    if section == "scaling":
        return scaling.measure(plan.scaling_rounds, plan.scaling_sizes, limit)
    if section == "memory":
        return memory.measure(plan.memory_rows)
    if section == "import":
        return imports.measure(plan.import_rounds)
    if section == "cold":
        return cold.measure(plan.cold_repeats)
    if section == "large":
        return large.measure(plan.large_gigabytes, BUILD / "rows", plan.large_rounds)
    if section == "devices":
        return devices.measure(plan.device_rounds)
    return network.measure(plan.network_rounds, plan.network_steps)


def machine(limit: Limit | None) -> dict[str, Any]:
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: installed(name) for name in ("sgmcmc", "jax", "numpy", "blackjax")},
        "c_compiler": limit.compiler if limit else None,
        "date": time.strftime("%Y-%m-%d"),
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe(about: dict[str, Any]) -> str:
    """The machine and the day, one per line."""
    shown = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in about.items()}
    return "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in shown.items() if name != "plan")


if __name__ == "__main__":
    main()
