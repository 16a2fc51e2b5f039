"""`glm` family by family: its maximum of the likelihood beside statsmodels', its posterior on minibatches beside NUTS'.

Lines are kept in build/regression/results.json as they come, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.common.freshly import ROOT
from benchmarks.regression import maxima, posteriors
from benchmarks.regression.frames import OUTCOMES

SHELF = ROOT / "build" / "regression" / "results.json"
PAGE = ROOT / "docs" / "development" / "regression.md"
MARKS = ("<!-- measured -->\n", "<!-- end -->\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the maxima of the likelihood")
    parser.add_argument("--few", type=int, default=20_000, help="rows of the posteriors")
    parser.add_argument("--only", choices=("maxima", "posteriors"))
    parser.add_argument("--families", nargs="*", default=list(OUTCOMES))
    parser.add_argument("--write", action="store_true", help="the tables into docs/development/regression.md")
    chosen = parser.parse_args()
    kept: dict[str, Any] = json.loads(SHELF.read_text()) if SHELF.exists() else {}
    for family in chosen.families:
        if family in maxima.OVERLAP and chosen.only != "posteriors":
            keep(kept, f"maxima of {family}, {chosen.rows}", lambda family=family: maxima.compare(family, chosen.rows))
    for family in chosen.families:
        if chosen.only != "maxima":
            keep(kept, f"posterior of {family}, {chosen.few}", lambda family=family: posteriors.compare(family, chosen.few))
    tables = report(kept)
    print(tables)
    if chosen.write:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        PAGE.write_text(before + MARKS[0] + "\n" + tables + "\n" + MARKS[1] + rest.partition(MARKS[1])[2])


def keep(kept: dict[str, Any], name: str, make: Any) -> None:
    """A line that is there, or made and kept."""
    if name not in kept:
        kept[name] = make()
        print(name, kept[name], flush=True)
        SHELF.parent.mkdir(parents=True, exist_ok=True)
        SHELF.write_text(json.dumps(kept, indent=1))


MAXIMA = ("family", "rows", "numbers", "farthest apart, standard errors", "seconds", "statsmodels")
SECONDS = ("seconds", "statsmodels")
POSTERIORS = ("family", "rows", "means, posterior sds", "sds", "seconds", "NUTS", "checks")


def report(kept: dict[str, Any]) -> str:
    """Both tables."""
    maxima = [
        (one["family"], f"{one['rows']:,}", one["numbers"], f"{one['apart']:.0e}", *(f"{one[k]:.0f}" for k in SECONDS))
        for name, one in kept.items()
        if name.startswith("maxima")
    ]
    posterior = [
        (
            *(one["family"], f"{one['rows']:,}", f"{one['means']:.3f}", f"{one['sds']:.1%}", f"{one['sgmcmc']:.0f}"),
            *(f"{one['nuts']:.0f}", "passed" if one["sgmcmc ok"] else "see health()"),
        )
        for name, one in kept.items()
        if name.startswith("posterior")
    ]
    return table(MAXIMA, maxima) + "\n" + table(POSTERIORS, posterior)


def table(heads: tuple[str, ...], lines: list[Any]) -> str:
    """In Markdown."""
    every = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in every)


if __name__ == "__main__":
    main()
