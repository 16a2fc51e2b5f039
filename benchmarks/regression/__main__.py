"""`glm` beside references: every family's maximum of the likelihood beside statsmodels', its posterior on minibatches beside
NUTS', the insurance task beside a reference posterior, bambi and scikit-learn, and frames with many levels and many rows.

Lines are kept in build/regression/results.json as they come, so that an interrupted run goes on; `--again` makes those asked for
anew. bambi is run if `--bambi` names an interpreter that has it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.common.freshly import ROOT, freshly
from benchmarks.regression import beside, insurance, maxima, posteriors, scale
from benchmarks.regression.frames import OUTCOMES
from benchmarks.regression.tables import tables

SHELF = ROOT / "build" / "regression" / "results.json"
PAGE = ROOT / "docs" / "development" / "regression.md"
MARKS = ("<!-- measured -->\n", "<!-- end -->\n")

PARTS = ("maxima", "posteriors", "insurance", "sklearn", "bambi", "levels", "disk")


def main() -> None:
    chosen = options()
    kept: dict[str, Any] = json.loads(SHELF.read_text()) if SHELF.exists() else {}
    for name, function, arguments in wanted(chosen):
        if name not in kept or chosen.again:
            kept[name] = freshly(function, **arguments)
            print(name, kept[name], flush=True)
            SHELF.parent.mkdir(parents=True, exist_ok=True)
            SHELF.write_text(json.dumps(kept, indent=1))
    found = tables(kept)
    print(found)
    if chosen.write:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        PAGE.write_text(before + MARKS[0] + "\n" + found + "\n" + MARKS[1] + rest.partition(MARKS[1])[2])


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="*", default=list(PARTS))
    parser.add_argument("--families", nargs="*", default=list(OUTCOMES))
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the maxima of the likelihood, and of ten thousand levels")
    parser.add_argument("--few", type=int, default=20_000, help="rows of the posteriors")
    parser.add_argument("--policies", type=int, default=300_000, help="rows of the insurance frame")
    parser.add_argument("--disk", type=int, default=10_000_000, help="rows of the Parquet file")
    parser.add_argument("--bambi", metavar="PYTHON", help="an interpreter that has bambi")
    parser.add_argument("--patience", type=float, default=7_200.0, help="seconds that bambi may take")
    parser.add_argument("--again", action="store_true", help="lines that are there are made anew")
    parser.add_argument("--write", action="store_true", help="the tables into docs/development/regression.md")
    return parser.parse_args()


def wanted(chosen: argparse.Namespace) -> list[tuple[str, Any, dict[str, Any]]]:
    """Lines by name: the functions that make them, each in a process of its own."""
    found: list[tuple[str, Any, dict[str, Any]]] = []
    if "maxima" in chosen.only:
        known = [family for family in chosen.families if family in maxima.OVERLAP]
        found += [(f"maxima of {one}, {chosen.rows}", maxima.compare, {"family": one, "n_rows": chosen.rows}) for one in known]
    if "posteriors" in chosen.only:
        few = {"n_rows": chosen.few}
        found += [(f"posterior of {one}, {chosen.few}", posteriors.compare, {"family": one} | few) for one in chosen.families]
    policies = {"n_rows": chosen.policies}
    if "insurance" in chosen.only:
        found.append((f"insurance, {chosen.policies}", insurance.compare, policies))
    if "sklearn" in chosen.only:
        found.append((f"beside scikit-learn, {chosen.policies}", beside.by_sklearn, policies))
    if "bambi" in chosen.only and chosen.bambi:
        told = {"python": chosen.bambi, "longest": chosen.patience}
        found.append((f"beside bambi, {chosen.policies}", beside.by_bambi, policies | told))
    if "levels" in chosen.only:
        found.append((f"levels, {chosen.rows}", scale.levels, {"n_rows": chosen.rows}))
    if "disk" in chosen.only:
        found.append((f"disk, {chosen.disk}", scale.disk, {"n_rows": chosen.disk}))
    return found


if __name__ == "__main__":
    main()
