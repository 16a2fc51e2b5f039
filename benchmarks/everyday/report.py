"""The table, its totals, the bars of time and the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.table import table, verdict
from benchmarks.everyday.cases import Case
from benchmarks.everyday.judge import (
    ALARM,
    BAD,
    FLAGGED,
    MEANS,
    PREDICTIONS,
    REFUSED,
    RIGHT,
    SDS,
    SURE,
    Error,
    Judgement,
)  # fmt: skip
from sgmcmc.core.errors import shortened
from sgmcmc.results.pictures import COLOURS

NUTS_TIMES = 1.5
HEADER = ["case", "N", "d", "seed", "seconds", "engine", "error of means", "error of sds", "health", "verdict"]
BLUE, ORANGE, GREEN, RED = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[4]
LEGEND = {RIGHT: GREEN, ALARM: BLUE, FLAGGED: ORANGE, REFUSED: "#777777", "must not happen": RED}
FLOOR, CEILING = 1e-3, 1e2
"""Errors beyond are drawn at the edge."""


@dataclass(frozen=True)
class Line:
    """A case that was run: what it is, what came out, and what is said of it."""

    name: str
    seed: int
    case: Case
    fit: dict[str, Any]
    judgement: Judgement

    def cells(self) -> list[str]:
        found, fit = self.judgement, self.fit
        health = "" if fit["outcome"] != "draws" else ", ".join(fit["kinds"]) or "ok"
        errors = [_shown(found.means), _shown(found.sds)]
        if found.rmse is not None:
            errors = [f"rmse {found.rmse:.2f}", ""]
        sizes = [f"{self.case.rows:,}", str(self.case.numbers), str(self.seed), f"{fit['seconds']:.1f}"]
        return [self.name, *sizes, fit.get("engine", ""), *errors, health, found.word]


def _shown(error: Error | None) -> str:
    return "" if error is None else str(error)


def bad(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.judgement.word in BAD]


def report(lines: list[Line], total: int) -> str:
    """What is printed, and what the page has below its first words."""
    parts = [table(HEADER, [line.cells() for line in lines]), totals(lines, total), times(lines), messages(lines)]
    return "\n\n".join(part for part in parts if part)


def totals(lines: list[Line], total: int) -> str:
    count = Counter(line.judgement.word for line in lines)
    said = ", ".join(f"{number} {word}" for word, number in sorted(count.items(), key=lambda pair: (pair[0] != RIGHT, pair[0])))
    return f"{len(lines)} of {total} cases: {said}. What must not happen: {len(bad(lines))}."


def times(lines: list[Line]) -> str:
    """Where there is a bar for the time."""
    bars = [(line, bar, words) for line in lines for bar, words in _bars(line)]
    rows = [[line.name, str(line.seed), f"{line.fit['seconds']:.1f}", f"{words}: {_met(line, bar)}"] for line, bar, words in bars]
    return table(["time", "seed", "seconds", "bar"], rows) if rows else ""


def _bars(line: Line) -> Iterator[tuple[float, str]]:
    """Seconds, and how they come about."""
    most, nuts = line.case.most_seconds, line.fit.get("nuts_seconds")
    if most is not None:
        yield most, f"at most {most:.0f}"
    if nuts is not None:
        yield NUTS_TIMES * nuts, f"at most {NUTS_TIMES} times NUTS's {nuts:.1f}"


def _met(line: Line, bar: float) -> str:
    return verdict(line.fit["seconds"], bar) if line.fit["outcome"] == "draws" else "no draws"


def messages(lines: list[Line]) -> str:
    """What the refusals said, once for each case and verdict."""
    found = {}
    for line in lines:
        if "message" in line.fit:
            found.setdefault((line.name, line.judgement.word), line.fit["message"])
    said = [f"- {name} ({word}): {shortened(' '.join(message.split()), 400)}" for (name, word), message in found.items()]
    return "\n".join(["What was said where there are no draws, by the first seed of each case:", "", *said]) if said else ""


WORDS = f"""# Everyday models

`make check-everyday` runs `sgmcmc.sample` on models as users write them, from zeros where they would start there: named ones
with three seeds each and 50 regressions drawn at random. References: NumPyro's NUTS in float64 on all rows, the model written a
second time, at least 2,000 effective draws behind every mean; for the horseshoe (`SLOW=1`), at which NUTS diverges, Gibbs steps.
Each line is a fresh process in float32, nothing set but the seed; two run at a time, those with a bar for their time alone.

Errors are the largest over all parameters, with their standard errors: of means in posterior sds (bound {MEANS}), of sds relative
(bound {SDS}); for the network the error of predictions in sds of the noise (bound {PREDICTIONS}). A bound counts as broken when
an error is beyond it by {SURE:.0f} standard errors.

| verdict | |
|---|---|
| right | within the bounds, and `health()` is content |
| false alarm | surely within the bounds, and `health()` is not |
| flagged | beyond, or too few draws to tell, and `health()` says so |
| refused, rightly | no posterior, or not in float32, and the message names row, parameter or repair |
| in capitals | what must not happen: the command ends with code 1 |
"""

SHOWN = "![Error of means and of sds of every case, with the bounds, coloured by verdict.](../assets/everyday.png)"


def page(lines: list[Line], total: int) -> str:
    """With the table and the picture, once there are results."""
    return f"{WORDS}\n{SHOWN}\n\n{report(lines, total)}\n" if lines else WORDS


def figure(lines: list[Line]) -> Figure:
    """Two columns of points, a row for each class of cases."""
    names = list(dict.fromkeys(line.name for line in lines))
    picture = Figure(figsize=(11, 2.2 + 0.26 * len(names)), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    _panel(left, lines, names, "means", MEANS, "largest error of a mean (posterior sds)")
    _panel(right, lines, names, "sds", SDS, "largest relative error of an sd")
    left.set_yticks(range(len(names)), names, fontsize="small")
    left.invert_yaxis()
    for label, colour in LEGEND.items():
        left.plot([], [], "o", ms=5, color=colour, label=label)
    left.plot([], [], "--", color="#777777", lw=1, label="bound")
    picture.legend(loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    picture.suptitle("sample on everyday models: distance from the reference posterior")
    return picture


def _panel(axes: Axes, lines: list[Line], names: list[str], which: str, bound: float, label: str) -> None:
    for line, height in zip(lines, _heights(lines, names), strict=True):
        error, word = getattr(line.judgement, which), line.judgement.word
        colour = LEGEND.get(word, RED)
        if error is not None:
            axes.plot(min(max(error.value, FLOOR), CEILING), height, "o", ms=4.5, alpha=0.7, color=colour)
        elif line.judgement.rmse is None:
            axes.plot(CEILING, height, "x", ms=5, color=colour)
    axes.axvline(bound, color="#777777", ls="--", lw=1)
    axes.set(xscale="log", xlim=(FLOOR / 1.5, CEILING * 1.5), xlabel=f"{label}; ×: nothing to compare")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.5)


def _heights(lines: list[Line], names: list[str]) -> Iterator[float]:
    """The row of each line's name, the lines of one name a little apart."""
    count, seen = Counter(line.name for line in lines), Counter[str]()
    for line in lines:
        seen[line.name] += 1
        yield names.index(line.name) + 0.7 * (seen[line.name] / (count[line.name] + 1) - 0.5)
