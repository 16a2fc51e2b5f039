"""`sample`, which has nothing to tune: accuracy against time on covertype, and growth with the number of rows.

Everything is measured here and now, in about half an hour, or with `--quick` in a few minutes. Covertype is found as
`sgmcmc.get_dataset("covertype")` finds it; the environment variable SGMCMC_DATA may name a folder that has it. Tables are
printed; the raw figures go to auto.json and the figure to auto.png.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.auto import growth, race
from benchmarks.bench import describe, installed, machine
from benchmarks.common.freshly import ROOT
from benchmarks.common.problem import BUILD

ASSETS = ROOT / "docs" / "assets"
SECTIONS = ("covertype", "growth")
FULL: dict[str, dict[str, Any]] = {
    "covertype": {"draws": (50, 250, 2_500, 10_000), "rounds": 3, "nuts_seconds": 240.0, "peer_seconds": 60.0, "quick": False},
    "growth": {"sizes": (10**4, 10**5, 10**6, 10**7), "draws": 2_500, "seeds": 3, "steps": 5_000, "rounds": 7},
}
QUICK: dict[str, dict[str, Any]] = {
    "covertype": {"draws": (20, 50), "rounds": 1, "nuts_seconds": 25.0, "peer_seconds": 8.0, "quick": True},
    "growth": {"sizes": (5_000, 20_000), "draws": 20, "seeds": 1, "steps": 100, "rounds": 1},
}
MODULES: dict[str, Any] = {"covertype": race, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="everything small: shows that it runs, not how fast")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, metavar="SECTION", help=" ".join(SECTIONS))
    parser.add_argument("--out", type=Path, help="folder of auto.json and auto.png; docs/assets, or benchmarks/build if --quick")
    chosen = parser.parse_args()
    folder = chosen.out or (BUILD if chosen.quick else ASSETS)
    folder.mkdir(parents=True, exist_ok=True)
    load_before, begin = os.getloadavg(), time.perf_counter()
    results = {}
    for section in chosen.only:
        print(f"{section}:", file=sys.stderr, flush=True)
        results[section] = MODULES[section].measure(**(QUICK if chosen.quick else FULL)[section])
    about = {
        **{name: value for name, value in machine(None).items() if name not in ("blackjax", "c_compiler")},
        "numpyro": installed("numpyro"),
        "minutes": round((time.perf_counter() - begin) / 60, 1),
        "load_before": [round(load, 2) for load in load_before],
        "load_after": [round(load, 2) for load in os.getloadavg()],
    }
    keep(folder / "auto.json", {"machine": about, **results})
    if "covertype" in results:
        from sgmcmc.results.pictures import save_png

        save_png(race.figure(results["covertype"]), folder / "auto.png")
    print("\n\n".join(["# sample", describe(about), *(MODULES[name].report(result) for name, result in results.items())]))


def keep(path: Path, results: dict[str, Any]) -> None:
    """Into the file, beside the sections that were not measured now."""
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(rounded(before | results), indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Six digits of every number: more says nothing."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
