"""`sample` on everyday models, against reference posteriors: one table, and code 1 where a fit is silently wrong, falsely refused
or refused without a name.

References are made once and kept in build/everyday. Fits are kept there too, with the state of the library that made them, so
that an interrupted run goes on where it was; a library that was changed since is run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.common.freshly import ROOT, NotEndedError, freshly
from benchmarks.common.kept import Fits, Shelf, asked_for, library
from benchmarks.common.stages import say
from benchmarks.everyday import fitting, reference
from benchmarks.everyday.cases import Case
from benchmarks.everyday.everything import build, names
from benchmarks.everyday.judge import judge
from benchmarks.everyday.report import Line, bad, figure, page, report

SHELF = Shelf(ROOT / "build" / "everyday" / "results.json")
PAGE, PICTURE = ROOT / "docs" / "development" / "everyday.md", ROOT / "docs" / "assets" / "everyday.png"


def main() -> None:
    chosen = options()
    every = names(chosen.slow, chosen.quick)
    cases = picked(every, chosen.only, chosen.seeds)
    fits = {} if chosen.again else SHELF.stored(chosen.old)
    lines = all_of(cases, lambda name, seed: run(name, seed, fits, chosen.references), chosen.jobs)
    print(report(lines, len(every)))
    if chosen.write:
        write(lines, len(every))
    sys.exit(1 if bad(lines) else 0)


def all_of(cases: list[tuple[str, int]], line_of: Callable[[str, int], Line | None], jobs: int) -> list[Line]:
    """The lines of the cases: those with a bar for their time one after the other, then the others, so many at a time."""
    found: dict[tuple[str, int], Line] = {}

    def ran(case: tuple[str, int]) -> None:
        line = line_of(*case)
        if line is not None:
            found[case] = line
            say(f"{len(found)} of {len(cases)}: {' | '.join(line.cells())}")

    timed = [case for case in cases if build(*case).timed]
    for case in timed:
        ran(case)
    with ThreadPoolExecutor(jobs) as workers:
        list(workers.map(ran, [case for case in cases if case not in timed]))
    return [found[case] for case in cases if case in found]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="cases whose name has this in it, or matches it: 'rare*'")
    parser.add_argument("--seeds", type=int, nargs="+", help="these seeds only")
    parser.add_argument("--quick", action="store_true", help="three small cases: shows that it runs")
    parser.add_argument("--slow", action="store_true", help="the horseshoe too")
    parser.add_argument("--again", action="store_true", help="fits of the library as it is now are made again too")
    parser.add_argument("--old", action="store_true", help="fits of earlier states of the library count too")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time; those with a bar for their time are run alone")
    parser.add_argument("--references", action="store_true", help="make the references only")
    parser.add_argument("--write", action="store_true", help="write docs/development/everyday.md and its picture")
    return parser.parse_args()


def picked(every: list[tuple[str, int]], pattern: str | None, seeds: list[int] | None) -> list[tuple[str, int]]:
    """The cases asked for."""

    def wanted(name: str, seed: int) -> bool:
        return asked_for(name, pattern) and (seeds is None or seed in seeds)

    return [(name, seed) for name, seed in every if wanted(name, seed)]


def run(name: str, seed: int, fits: Fits, references_only: bool) -> Line | None:
    """One case: its reference, its fit unless there is one, and the judgement."""
    case = build(name, seed)
    truth = referenced(name, seed, case)
    if references_only:
        return None
    key = f"{name}, seed {seed}"
    if key not in fits:
        fits[key] = fitted(name, seed, case) | {"library": library()}
        SHELF.keep({key: fits[key]})
    return Line(name, seed, case, fits[key], judge(case, fits[key], truth))


def referenced(name: str, seed: int, case: Case) -> dict[str, Any] | None:
    """The reference posterior, made now if it was not before; None where there is none, or no good one."""
    if case.target is not None and reference.known(case) is None:
        made = freshly(reference.made, name=name, seed=seed, folder=str(reference.FOLDER))
        say(f"reference of {name}, seed {seed}: {made['seconds']:.0f} s" + ("" if made["good"] else ", and not good"))
    return reference.known(case)


def fitted(name: str, seed: int, case: Case) -> dict[str, Any]:
    """By `sample`; beside it NUTS, where their times are compared."""
    try:
        found = freshly(fitting.fitted, name=name, seed=seed, patience=case.patience)
    except NotEndedError:
        return {"outcome": "endless", "message": f"no answer after {case.patience:.0f} s", "seconds": case.patience}
    if case.beside_nuts:
        found["nuts_seconds"] = freshly(fitting.plain_nuts, name=name, seed=seed)["seconds"]
    return found


def write(lines: list[Line], total: int) -> None:
    from sgmcmc.results.pictures import save_png

    PAGE.write_text(page(lines, total))
    save_png(figure(lines), PICTURE)


if __name__ == "__main__":
    main()
