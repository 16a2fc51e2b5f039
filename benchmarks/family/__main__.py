"""The samplers of the family on four targets: a table of what an effective draw costs at equal bias.

What is measured is kept in build/family with the state of the library, so that an interrupted run goes on where it was; a library
that was changed since is measured again.
"""

from __future__ import annotations

import argparse
import json
from functools import cache

from benchmarks.common.freshly import ROOT
from benchmarks.common.kept import Shelf, asked_for, library
from benchmarks.common.stages import say
from benchmarks.family.fitting import best
from benchmarks.family.report import Fits, cell, figure, page, report
from benchmarks.family.samplers import SAMPLERS
from benchmarks.family.targets import TARGETS

PAGE, ASSETS = ROOT / "docs" / "methods" / "which-one.md", ROOT / "docs" / "assets"
QUICK = 0.1
"""The part of the rows that a quick run looks at."""


def main() -> None:
    chosen = options()
    fits = {target: found for target in TARGETS if (found := measured(target, chosen))}
    print(report(fits))
    if chosen.write:
        write(fits, chosen.quick)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="targets whose name has this in it, or matches it: 'Gauss*'")
    parser.add_argument("--samplers", metavar="PATTERN", help="likewise")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows: shows that it runs")
    parser.add_argument("--old", action="store_true", help="what was measured with earlier states of the library counts too")
    parser.add_argument("--write", action="store_true", help="write docs/methods/which-one.md, its picture and its numbers")
    return parser.parse_args()


def measured(target: str, chosen: argparse.Namespace) -> dict[str, dict[str, object]]:
    """All samplers on one target, from the shelf where they are there; nothing where its data are missing."""
    if not asked_for(target, chosen.only):
        return {}
    shelf = Shelf(ROOT / "build" / "family" / f"{target}{', quick' if chosen.quick else ''}.json")
    known, build = shelf.stored(chosen.old), cache(TARGETS[target])  # covertype is read and whitened: only where it is needed
    names = [name for name in SAMPLERS if asked_for(name, chosen.samplers)]
    for name in names:
        if name in known:
            continue
        if (posterior := build()) is None:
            say(f"{target}: the data are missing")
            return {}
        known[name] = best(name, posterior, QUICK if chosen.quick else 1.0) | {"library": library()}
        shelf.keep({name: known[name]})
        say(f"{target}: {name}: {cell(known[name])}")
    return {name: known[name] for name in names}


def write(fits: Fits, quick: bool) -> None:
    from sgmcmc.results.pictures import save_png

    PAGE.write_text(page(fits, quick))
    save_png(figure(fits), ASSETS / "family.png")
    told = {
        target: {name: fit | {"tried": None} for name, fit in found.items()} for target, found in fits.items()
    }  # the shelf has all
    (ASSETS / "family.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
