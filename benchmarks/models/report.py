"""The table of models, its counts, its page and its picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.table import table
from benchmarks.everyday.cases import Case
from benchmarks.everyday.judge import ALARM, BAD, MEANS, RIGHT, SDS, SURE, WRONG, Judgement, mean_error, sd_error
from benchmarks.everyday.report import LEGEND, RED
from sgmcmc.core.errors import shortened

MANY_ROWS = 20_000
"""Beyond which `sample` should take no longer than NUTS."""

HEADER = [
    "model", "rows", "parameters", "engine", "seconds", "NUTS", "time", "error of means", "error of sds", "NUTS's errors",
    "ESS/s", "NUTS's ESS/s", "health", "verdict",
]  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A model that was run: what came out of `sample` and of NUTS, and what is said of the first."""

    name: str
    case: Case
    fit: dict[str, Any]
    judgement: Judgement
    nuts: dict[str, Any] | None
    truth: dict[str, Any] | None

    def cells(self) -> list[str]:
        found, fit = self.judgement, self.fit
        health = "" if fit["outcome"] != "draws" else ", ".join(fit["kinds"]) or "ok"
        sizes = [f"{self.case.rows:,}", f"{self.case.numbers:,}", fit.get("engine", "")]
        seconds = [f"{fit['seconds']:.1f}", _seconds_of_nuts(self.nuts), self.bar()]
        errors = ["" if error is None else str(error) for error in (found.means, found.sds)]
        rates = [per_second(fit), "" if self.nuts is None else per_second(self.nuts)]
        return [self.name, *sizes, *seconds, *errors, self.errors_of_nuts(), *rates, health, found.word]

    def bar(self) -> str:
        """Whether the bars for its time are met: that of the model, and NUTS's seconds for many rows."""
        bars = [] if self.case.most_seconds is None else [self.case.most_seconds]
        if self.nuts is not None and self.case.rows > MANY_ROWS:
            bars.append(self.nuts["seconds"])
        return "" if not bars else "met" if self.fit["seconds"] <= min(bars) else f"MISSED {min(bars):.0f}"

    def errors_of_nuts(self) -> str:
        """Largest of means and of sds."""
        if self.nuts is None or self.truth is None or self.nuts["outcome"] != "draws":
            return ""
        return f"{mean_error(self.nuts, self.truth).value:.2f}, {sd_error(self.nuts, self.truth).value:.2f}"


def per_second(fit: dict[str, Any]) -> str:
    """The smallest effective sample size, by the seconds of the whole call."""
    return f"{min(fit['ess']) / fit['seconds']:.3g}" if fit["outcome"] == "draws" else ""


def _seconds_of_nuts(nuts: dict[str, Any] | None) -> str:
    if nuts is None:
        return ""
    return f"{nuts['seconds']:.1f}" if nuts["outcome"] == "draws" else f"more than {nuts['seconds']:.0f}"


def bad(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.judgement.word in BAD]


def report(lines: list[Line], total: int) -> str:
    """What is printed, and what the page has below its first words."""
    parts = [table(HEADER, [line.cells() for line in lines]), counts(lines, total), worst(lines), messages(lines)]
    return "\n\n".join(part for part in parts if part)


def counts(lines: list[Line], total: int) -> str:
    count = Counter(line.judgement.word for line in lines)
    said = ", ".join(f"{number} {word}" for word, number in sorted(count.items(), key=lambda pair: (pair[0] != RIGHT, pair[0])))
    late = [line.name for line in lines if line.bar().startswith("MISSED")]
    times = f"Bars for the time: {len(late)} missed" + (f" ({'; '.join(late)})." if late else ".")
    both = f"Silently wrong: {count[WRONG]}. False alarms: {count[ALARM]}. What must not happen: {len(bad(lines))}."
    return f"{len(lines)} of {total} models: {said}.\n\n{both} {times}"


def worst(lines: list[Line]) -> str:
    """Whose the largest errors are, where a fit is not right."""
    said = [
        f"- {line.name} ({line.judgement.word}): means {found.means.whose}, sds {found.sds.whose}"
        for line in lines
        if (found := line.judgement).word != RIGHT and found.means is not None and found.sds is not None
    ]
    return "\n".join(["Whose the largest errors are:", "", *said]) if said else ""


def messages(lines: list[Line]) -> str:
    """What was said where there are no draws."""
    said = [
        f"- {line.name} ({line.judgement.word}): {shortened(' '.join(line.fit['message'].split()), 400)}"
        for line in lines
        if "message" in line.fit
    ]
    return "\n".join(["What was said where there are no draws:", "", *said]) if said else ""


WORDS = f"""# The table of models

`make bench-models` runs `sgmcmc.sample` on hierarchies, shrinkage, many parameters, everyday regressions and models of the kind
that [posteriordb](https://github.com/stan-dev/posteriordb) collects, these written anew from their mathematics with data
simulated in the same shape. Beside it runs NumPyro's NUTS on the same two functions from the same start, 4 vectorised chains of
1,000 draws after 1,000 of warm-up, stopped when it has taken twice as long as `sample` and at least two minutes. Each fit is a
process of its own in float32, one at a time, nothing set but the seed; seconds are those of the whole call, compilation
included. `--only "item response*"` runs one model, `--small` small versions.

References: NumPyro's NUTS in float64, the model written a second time on sums where it has them, in variables in which the
posterior is near a unit ball, at least 2,000 effective draws behind every mean. Counts in groups are summed to cells of equal
columns; hierarchies are sampled centred, however the user wrote them; of 10,000 groups every 20th is compared; products of the
2,500 columns are in float32, their sums in float64, their draws trajectories of a Gaussian with kicks and an exact test
(`rotations.py` beside the table); the horseshoe, at which NUTS diverges, has Gibbs steps with an exact test (`gibbs.py`).

Errors are the largest over all parameters, with their standard errors: of means in posterior sds (bound {MEANS}), of sds relative
(bound {SDS}). A bound counts as broken when an error is beyond it by {SURE:.0f} standard errors. ESS/s is the smallest effective
sample size by the seconds of the call. The time is to be no more than NUTS's where there are more than {MANY_ROWS:,} rows, and
within the model's own bar, where it has one.

| verdict | |
|---|---|
| right | within the bounds, and `health()` is content |
| false alarm | surely within the bounds, and `health()` is not |
| flagged | beyond, or too few draws to tell, and `health()` says so |
| refused, rightly | the message names the parameters at which the model has to be rewritten |
| in capitals | what must not happen: the command ends with code 1 |
"""

SHOWN = "![Seconds of sample against seconds of NUTS, coloured by verdict.](../assets/models.png)"


def page(lines: list[Line], total: int) -> str:
    """With the table and the picture, once there are results."""
    return f"{WORDS}\n{SHOWN}\n\n{report(lines, total)}\n" if lines else WORDS


def figure(lines: list[Line]) -> Figure:
    """Seconds against seconds: below the diagonal `sample` is faster."""
    picture = Figure(figsize=(9, 7.5), layout="constrained")
    axes = picture.subplots()
    beside = [line for line in lines if line.nuts is not None]
    for number, line in enumerate(beside, 1):
        _point(axes, line, number)
    edges = (1.0, 1.5 * max([10.0, *(max(line.fit["seconds"], line.nuts["seconds"]) for line in beside if line.nuts)]))
    axes.plot(edges, edges, "--", color="#777777", lw=1, label="equal")
    for label, colour in LEGEND.items():
        axes.plot([], [], "o", ms=5, color=colour, label=label)
    axes.plot([], [], ">", ms=5, color="#777777", label="NUTS did not end")
    axes.set(xscale="log", yscale="log", xlim=edges, ylim=edges, xlabel="seconds of NUTS", ylabel="seconds of sample")
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    names = "\n".join(f"{number}  {line.name}" for number, line in enumerate(beside, 1))
    axes.text(1.02, 0.99, names, transform=axes.transAxes, va="top", fontsize="small")
    picture.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    picture.suptitle("sample beside NUTS")
    return picture


def _point(axes: Axes, line: Line, number: int) -> None:
    assert line.nuts is not None
    x, y, ended = line.nuts["seconds"], line.fit["seconds"], line.nuts["outcome"] == "draws"
    axes.plot(x, y, "o" if ended else ">", ms=6, alpha=0.8, color=LEGEND.get(line.judgement.word, RED))
    axes.annotate(str(number), (x, y), xytext=(5, 3), textcoords="offset points", fontsize="small")
