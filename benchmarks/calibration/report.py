"""The table of ranks, its page and its picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.calibration.fits import CONTROL, CONTROL_ROWS, SAMPLE, TIMES, USUAL_STEP
from benchmarks.calibration.models import ROWS
from benchmarks.calibration.ranks import BINS, DRAWS, FALSE_ALARMS, Verdict, band, counted, judged, level
from benchmarks.common.table import table
from sgmcmc.results.pictures import COLOURS

HEADER = ["model", "chains", "parameter", "replications", "p of χ²", "p of the band", "ranks"]
FITS = ["model", "chains", "fits", "no draws", "health not ok", "few draws", "seconds per fit"]
LEAST = 20
"""Replications below which nothing is said of ranks."""

COLUMNS = 6
"""Of panels."""


@dataclass(frozen=True)
class Line:
    """The replications of one model, by `sample` or by the control."""

    model: str
    kind: str
    fits: list[dict[str, Any]]

    @property
    def drawn(self) -> list[dict[str, Any]]:
        return [fit for fit in self.fits if fit["outcome"] == "draws"]

    def ranks(self) -> dict[str, np.ndarray]:
        """By parameter; none where there are too few replications."""
        found = [fit["ranks"] for fit in self.drawn]
        return {name: np.array([ranks[name] for ranks in found]) for name in found[0]} if len(found) >= LEAST else {}

    def verdicts(self, tests: int) -> dict[str, Verdict]:
        return {name: judged(ranks, tests) for name, ranks in self.ranks().items()}


def tests_of(lines: list[Line], kind: str) -> int:
    """Two for each parameter of all models."""
    return 2 * sum(len(line.ranks()) for line in lines if line.kind == kind)


def judgements(lines: list[Line], kind: str) -> list[tuple[str, str, Verdict]]:
    """Model, parameter and verdict, of all that are there."""
    tests = tests_of(lines, kind)
    return [(line.model, name, found) for line in lines if line.kind == kind for name, found in line.verdicts(tests).items()]


def failed(lines: list[Line]) -> bool:
    """Whether ranks of `sample` are not uniform, or those of the control are."""
    ours, control = judgements(lines, SAMPLE), judgements(lines, CONTROL)
    return not all(found.passed for _, _, found in ours) or (bool(control) and all(found.passed for _, _, found in control))


def report(lines: list[Line]) -> str:
    """What is printed, and what the page has below its first words."""
    rows = [[model, kind, name, *_cells(found)] for kind in (SAMPLE, CONTROL) for model, name, found in judgements(lines, kind)]
    return "\n\n".join(part for part in (table(HEADER, rows) if rows else "", said(lines), fits(lines), messages(lines)) if part)


def _cells(found: Verdict) -> list[str]:
    word = "uniform" if found.passed else "NOT UNIFORM"
    return [str(found.n), f"{found.p_chi_squared:.2g}", f"{found.p_band:.2g}", word]


def said(lines: list[Line]) -> str:
    """One sentence for `sample`, one for the control."""
    parts = []
    for kind, name in ((SAMPLE, "`sample`"), (CONTROL, "the control")):
        found = [verdict for _, _, verdict in judgements(lines, kind)]
        if found:
            count = sum(not verdict.passed for verdict in found)
            parts.append(f"Ranks of {name} that are not uniform: {count} of {len(found)} parameters.")
    return " ".join(parts)


def fits(lines: list[Line]) -> str:
    rows = [
        [
            line.model, line.kind, str(len(line.fits)), _ends(line), str(sum(bool(fit["kinds"]) for fit in line.drawn)),
            str(sum(fit["few"] for fit in line.drawn)), f"{median(fit['seconds'] for fit in line.fits):.1f}",
        ]
        for line in lines
        if line.fits
    ]  # fmt: skip
    return table(FITS, rows) if rows else ""


def _ends(line: Line) -> str:
    count = Counter(fit["outcome"] for fit in line.fits if fit["outcome"] != "draws")
    return ", ".join(f"{number} {word}" for word, number in count.items()) or "0"


def messages(lines: list[Line]) -> str:
    """What was said where there are no draws, once for each model."""
    found = {}
    for line in lines:
        for fit in line.fits:
            if "message" in fit:
                found.setdefault((line.model, line.kind, fit["outcome"]), " ".join(fit["message"].split()))
    parts = [f"- {model}, {kind}, {outcome}: {message}" for (model, kind, outcome), message in found.items()]
    return "\n".join(["What was said where there are no draws:", "", *parts]) if parts else ""


WORDS = f"""# Calibration

`make sbc` asks whether the posteriors of `sgmcmc.sample` are calibrated, with no reference at all: parameters are drawn from
the prior, {ROWS:,} rows from the model, and the rank of the true value among {DRAWS} posterior draws is noted (Talts and others,
2018, *Validating Bayesian inference algorithms with simulation-based calibration*). If the draws are from the posterior, ranks
are uniform over many such replications. Draws too narrow push ranks to both ends, draws too wide to the middle.

`sample` runs on minibatches (`engine="sgmcmc"`), nothing else set but the seed. Its 10,000 draws are thinned evenly to {DRAWS};
fits with fewer than {2 * DRAWS} effective draws of some number are counted as few. Fits that `health()` is not content with
count like all others; those without draws cannot, and their number is given.

Two tests for every parameter: χ² over {BINS} bins, and a band that the distribution function of the ranks stays within all
along. The laws of both are simulated. Together, over all parameters of all models, they fail by chance in {FALSE_ALARMS:.0%} of
all campaigns: a p counts that is below the level of a single test, about {FALSE_ALARMS:.0%} divided by their number (Šidák).

The control must fail: Langevin chains about the mode in the variables that `sample` uses (`sgldcv`, `precondition="laplace"`,
{CONTROL_ROWS:,} rows), with a step ε of {TIMES * USUAL_STEP:.2f}, {TIMES:.0f} times the {USUAL_STEP} of `sample`. That makes the
variance of a normal posterior 1/(1 - ε/4), nearly twice what it should be, and its standard deviation 1.4 times: with 200
replications the tests catch every second parameter of such chains. (The chains of `sample` themselves are exact on a normal
posterior for every stable step.) A centred hierarchy has no mode, so no control.
"""

SHOWN = "![Distribution functions of ranks less the uniform one, with the band; control beside.](../assets/calibration.png)"


def page(lines: list[Line]) -> str:
    """With the table and the picture, once there are results."""
    return f"{WORDS}\n{SHOWN}\n\n{report(lines)}\n" if tests_of(lines, SAMPLE) else WORDS


def figure(lines: list[Line]) -> Figure:
    """A panel for each parameter: the distribution function of its ranks less the uniform one."""
    panels = [(line, name) for line in lines if line.kind == SAMPLE for name in line.ranks()]
    controls = {line.model: line.ranks() for line in lines if line.kind == CONTROL}
    rows = max(1, -(-len(panels) // COLUMNS))
    picture = Figure(figsize=(2.4 * COLUMNS, 0.9 + 2.1 * rows), layout="constrained")
    every = np.asarray(picture.subplots(rows, COLUMNS, sharex=True, sharey=True)).ravel()
    for axes, (line, name) in zip(every, panels, strict=False):
        _panel(axes, line.ranks()[name], controls.get(line.model, {}).get(name), level(tests_of(lines, SAMPLE)))
        axes.set_title(f"{line.model}\n{name}", fontsize="small")
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    picture.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    picture.suptitle("Distribution function of the ranks, less the uniform one")
    return picture


def _panel(axes: Axes, ranks: np.ndarray, control: np.ndarray | None, level: float) -> None:
    at, low, high = band(len(ranks), level)
    axes.fill_between(at, low - at, high - at, color="#cccccc", lw=0, label=f"band, {1 - FALSE_ALARMS:.0%} over all")
    for values, colour, label in ((control, COLOURS[1], CONTROL), (ranks, COLOURS[0], SAMPLE)):
        if values is not None:
            axes.plot(at, np.cumsum(counted(values))[:-1] / len(values) - at, color=colour, lw=1.2, label=label)
    axes.axhline(0, color="#777777", lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
