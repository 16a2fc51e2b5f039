"""Simulation-based calibration of `sample`: a table, and code 1 where ranks are not uniform, or those of the control pass for it.

Replications are kept in build/calibration with the state of the library that made them, so that an interrupted run goes on where
it was; a library that was changed since is run again.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from benchmarks.calibration.fits import CONTROL, SAMPLE, replications
from benchmarks.calibration.models import MODELS
from benchmarks.calibration.report import Line, failed, figure, page, report
from benchmarks.common.freshly import ROOT
from benchmarks.common.kept import Shelf, asked_for, library
from benchmarks.common.stages import say
from benchmarks.common.workers import Worker

FOLDER = ROOT / "build" / "calibration"
PAGE, PICTURE = ROOT / "docs" / "development" / "calibration.md", ROOT / "docs" / "assets" / "calibration.png"
REPLICATIONS, QUICK = 200, 3


def main() -> None:
    chosen = options()
    every = QUICK if chosen.quick else chosen.replications
    models = [name for name in MODELS if asked_for(name, chosen.only)]
    both = [(name, kind) for name in models for kind in (SAMPLE, CONTROL) if kind == SAMPLE or MODELS[name].has_mode]
    jobs = [job for name, kind in both for job in shared(name, kind, missing(name, kind, every, chosen.old), chosen.jobs)]
    with ThreadPoolExecutor(chosen.jobs) as threads:
        list(threads.map(lambda job: carry_out(*job), jobs))
    lines = [Line(name, kind, kept(name, kind, every, chosen.old)) for name, kind in both]
    print(report(lines))
    if chosen.write:
        write(lines)
    sys.exit(1 if failed(lines) else 0)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=REPLICATIONS, help="of each model")
    parser.add_argument("--only", metavar="PATTERN", help="models whose name has this in it, or matches it: 'Poisson*'")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} replications: shows that it runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--old", action="store_true", help="replications of earlier states of the library count too")
    parser.add_argument("--write", action="store_true", help="write docs/development/calibration.md and its picture")
    return parser.parse_args()


def shelf(model: str, kind: str) -> Shelf:
    return Shelf(FOLDER / f"{model}, {kind}.json".replace(" ", "_").replace(",", ""))


def kept(model: str, kind: str, every: int, old: bool) -> list[dict[str, object]]:
    """Of the first so many replications, those that are there."""
    return [fit for number, fit in shelf(model, kind).stored(old).items() if int(number) < every]


def missing(model: str, kind: str, every: int, old: bool) -> list[int]:
    """Numbers of the replications that are not there yet."""
    there = shelf(model, kind).stored(old)
    return [number for number in range(every) if str(number) not in there]


def shared(model: str, kind: str, numbers: list[int], parts: int) -> list[tuple[str, str, list[int]]]:
    """The numbers of one model, for so many processes."""
    return [(model, kind, numbers[first::parts]) for first in range(parts) if numbers[first::parts]]


def carry_out(model: str, kind: str, numbers: list[int]) -> None:
    """In one process, each kept as it is made; a process that dies costs the replication that it was at."""
    place, left = shelf(model, kind), list(numbers)
    while left:
        with Worker(replications, model=model, kind=kind, chosen=left) as worker:
            try:
                worker.turn()
                for number in list(left):
                    found = worker.turn()
                    left.remove(number)
                    place.keep({str(number): found | {"library": library()}})
                    say(f"{model}, {kind}: {number}, {found['outcome']}, {found['seconds']:.1f} s")
            except RuntimeError as error:
                ended = {"outcome": "crashed", "message": str(error), "seconds": 0.0}
                place.keep({str(left.pop(0)): ended | {"library": library()}})


def write(lines: list[Line]) -> None:
    from sgmcmc.results.pictures import save_png

    PAGE.write_text(page(lines))
    save_png(figure(lines), PICTURE)


if __name__ == "__main__":
    main()
