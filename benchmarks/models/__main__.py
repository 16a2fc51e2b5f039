"""The table of models: `sample` beside NUTS, against reference posteriors; code 1 where a fit is silently wrong, falsely refused
or does not end.

References are made once and kept in references/models. Runs of NUTS are kept in build/models, as are fits, these with the state
of the library that made them: a library that was changed since is run again.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.common.freshly import ROOT, NotEndedError, freshly
from benchmarks.common.kept import Fits, Shelf, asked_for, library
from benchmarks.common.stages import say
from benchmarks.everyday import fitting, reference
from benchmarks.everyday.cases import Case
from benchmarks.everyday.judge import judge
from benchmarks.models import everything
from benchmarks.models.report import Line, bad, figure, page, report

FOLDER, REFERENCES = ROOT / "build" / "models", ROOT / "references" / "models"
SHELF, NUTS = Shelf(FOLDER / "results.json"), Shelf(FOLDER / "nuts.json")
PAGE, PICTURE = ROOT / "docs" / "development" / "models.md", ROOT / "docs" / "assets" / "models.png"

NUTS_DRAWS, NUTS_LONGER, NUTS_SECONDS = 1_000, 2.0, 120.0
"""Draws of each chain of NUTS; and after how many times the seconds of `sample` it is stopped, and after how many at least."""

REFERENCE_SECONDS = 3_600.0


def main() -> None:
    chosen = options()
    every = everything.names(chosen.small)
    fits = {} if chosen.again else SHELF.stored(chosen.old)
    lines = []
    for name in (name for name in every if asked_for(name, chosen.only)):
        line = run(name, chosen.seed, fits, chosen)
        if line is not None:
            lines.append(line)
            say(" | ".join(line.cells()))
    if chosen.references:
        return
    print(report(lines, len(every)))
    if chosen.write:
        write(lines, len(every))
    sys.exit(1 if bad(lines) else 0)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="models whose name has this in it, or matches it: 'item response*'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="small versions of the large ones: shows that they run")
    parser.add_argument("--no-nuts", action="store_true", help="without NUTS, unless it was run before")
    parser.add_argument("--again", action="store_true", help="fits of the library as it is now are made again too")
    parser.add_argument("--old", action="store_true", help="fits of earlier states of the library count too")
    parser.add_argument("--references", action="store_true", help="make the references only")
    parser.add_argument("--write", action="store_true", help="write docs/development/models.md and its picture")
    return parser.parse_args()


def run(name: str, seed: int, fits: Fits, chosen: argparse.Namespace) -> Line | None:
    """One model: its reference, its fit and that of NUTS unless they are there, and the judgement."""
    case = everything.build(name, seed)
    truth = referenced(name, seed, case)
    if chosen.references:
        return None
    key = f"{name}, seed {seed}"
    if key not in fits:
        fits[key] = fitted(name, seed, case) | {"library": library()}
        SHELF.keep({key: fits[key]})
    beside = by_nuts(name, seed, case, fits[key]["seconds"], chosen.no_nuts)
    return Line(name, case, fits[key], judge(case, fits[key], truth), beside, truth)


def referenced(name: str, seed: int, case: Case) -> dict[str, Any] | None:
    """The reference posterior, made now if it was not before; None where there is no good one."""
    found = reference.known(case, REFERENCES)
    if found is None:
        options = {"folder": str(REFERENCES), "where": everything.__name__, "most_seconds": REFERENCE_SECONDS}
        made = freshly(reference.made, name=name, seed=seed, **options)
        say(f"reference of {name}: {made['seconds']:.0f} s" + ("" if made["good"] else ", and not good"))
        found = reference.known(case, REFERENCES)
    return found


def fitted(name: str, seed: int, case: Case) -> dict[str, Any]:
    """By `sample`."""
    try:
        return freshly(fitting.fitted, name=name, seed=seed, where=everything.__name__, patience=case.patience)
    except NotEndedError:
        return {"outcome": "endless", "message": f"no answer after {case.patience:.0f} s", "seconds": case.patience}


def by_nuts(name: str, seed: int, case: Case, seconds: float, only_known: bool) -> dict[str, Any] | None:
    """By NumPyro's NUTS, once for a target: this library has no part in it but for the `seconds` that it took."""
    assert case.target is not None
    key = f"{name}, seed {seed}, target {case.target.key()}"
    known = NUTS.stored(old=True)
    if key not in known and not only_known:
        try:
            patience = max(NUTS_LONGER * seconds, NUTS_SECONDS)
            arguments = {"where": everything.__name__, "draws": NUTS_DRAWS, "patience": patience}
            found = {"outcome": "draws"} | freshly(fitting.plain_nuts, name=name, seed=seed, **arguments)
        except NotEndedError:
            found = {"outcome": "endless", "seconds": patience}
        known[key] = found
        NUTS.keep({key: found | {"library": ""}})
    return known.get(key)


def write(lines: list[Line], total: int) -> None:
    from sgmcmc.results.pictures import save_png

    PAGE.write_text(page(lines, total))
    save_png(figure(lines), PICTURE)


if __name__ == "__main__":
    main()
