"""Pictures of posterior predictive checks: what the model makes in blue, what was observed in black."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgmcmc.results.after.outcomes import BINARY, CONTINUOUS, COUNTS, Groups, Outcome
from sgmcmc.results.pictures import COLOURS, Picture

if TYPE_CHECKING:
    from sgmcmc.results.after.checking import Check

BLUE, BLACK, GREY = COLOURS[0], COLOURS[-1], "#777777"
OVERLAID = 50
"""Draws whose densities are shown."""

MOST_BARS = 60
"""Bars of a rootogram: beyond that counts are taken together."""

BAND = (0.05, 0.95)


def figure(check: Check) -> Figure:
    """A row of pictures for every column."""
    drawn = [(outcome, panels(outcome)) for outcome in check.outcomes.values()]
    wide = max(len(some) for _, some in drawn)
    made = Picture(figsize=(4.2 * wide, 0.5 + 3.2 * len(drawn)), layout="constrained")
    axes = made.subplots(len(drawn), wide, squeeze=False)
    for row, (outcome, some) in zip(axes, drawn, strict=True):
        for one, draw in zip(row, some, strict=False):
            draw(one, outcome)
            one.spines[["top", "right"]].set_visible(False)
        for unused in row[len(some) :]:
            unused.set_axis_off()
    made.suptitle(f"{check.title}: observed (black) and simulated (blue, 90 %)", fontsize="medium")
    return made


def panels(outcome: Outcome) -> list[Callable[[Axes, Outcome], None]]:
    """What draws each picture of a column."""
    first = {CONTINUOUS: densities, COUNTS: rootogram, BINARY: calibration}[outcome.kind]
    second = separation if outcome.kind == BINARY else ranks
    return [first, second, *(_of_groups(groups) for groups in outcome.groups)]


def densities(axes: Axes, outcome: Outcome) -> None:
    """The density of what was observed over those of some draws."""
    low, high = np.quantile(outcome.observed, [0.001, 0.999])
    margin = 0.2 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, 101)
    for values in outcome.simulated[:: max(1, len(outcome.simulated) // OVERLAID)]:
        axes.plot(_middles(edges), _smooth(values, edges), color=BLUE, lw=0.5, alpha=0.35)
    axes.plot(_middles(edges), _smooth(outcome.observed, edges), color=BLACK, lw=1.6)
    axes.set_xlabel(outcome.column)
    axes.set_yticks([])
    axes.set_ylabel("density")


def rootogram(axes: Axes, outcome: Outcome) -> None:
    """How often each count was observed, as roots, so that rare counts show."""
    top = int(max(outcome.observed.max(), np.quantile(outcome.simulated, 0.999)))
    step = -(-(top + 1) // MOST_BARS)
    edges = np.arange(0, top + 1 + step, step) - 0.5
    observed = np.sqrt(np.histogram(outcome.observed, edges)[0])
    simulated = np.sqrt([np.histogram(values, edges)[0] for values in outcome.simulated])
    axes.bar(_middles(edges), observed, width=0.9 * step, color=GREY, alpha=0.45, lw=0)
    axes.fill_between(_middles(edges), *np.quantile(simulated, BAND, axis=0), color=BLUE, alpha=0.3, lw=0, step="mid")
    axes.step(_middles(edges), simulated.mean(axis=0), color=BLUE, lw=1.2, where="mid")
    axes.plot(_middles(edges), observed, "o", color=BLACK, ms=2.5)
    axes.set_xlabel(outcome.column)
    axes.set_ylabel("√ number of rows")


def calibration(axes: Axes, outcome: Outcome) -> None:
    """How often it happened where it was expected so often."""
    bins = outcome.bins
    expected, observed = bins.means(outcome.expected), bins.means(outcome.observed)
    low, high = np.quantile(bins.means(outcome.simulated), BAND, axis=0)
    axes.axline((0, 0), slope=1, color=GREY, lw=0.8)
    axes.vlines(expected, low, high, color=BLUE, lw=5, alpha=0.35)
    axes.plot(expected, observed, "o", color=BLACK, ms=4)
    axes.set_xlabel(f"expected {outcome.column}")
    axes.set_ylabel("observed share")


def separation(axes: Axes, outcome: Outcome) -> None:
    """What was expected of the rows where it happened, and of the others."""
    edges = np.linspace(0, 1, 41)
    for value, colour in ((0, GREY), (1, COLOURS[4])):
        heights = np.histogram(outcome.expected[outcome.observed == value], edges)[0]
        axes.stairs(heights, edges, fill=True, color=colour, alpha=0.5, label=f"{outcome.column} = {value}")
    axes.set_xlabel(f"expected {outcome.column}")
    axes.set_ylabel("rows")
    axes.legend(frameon=False, fontsize="small")


def ranks(axes: Axes, outcome: Outcome) -> None:
    """Where observations lie among those simulated for their rows: level, if the model is right."""
    bins = 20
    heights, edges = np.histogram(outcome.ranks, bins, (0, 1))
    each = len(outcome.ranks) / bins
    spread = 1.645 * np.sqrt(each * (1 - 1 / bins))
    axes.axhspan(each - spread, each + spread, color=BLUE, alpha=0.3, lw=0)
    axes.stairs(heights, edges, baseline=None, color=BLACK, lw=1.2)
    axes.set_ylim(0, None)
    axes.set_xlabel(f"rank of {outcome.column} in its row's simulations")
    axes.set_ylabel("rows")


def _of_groups(groups: Groups) -> Callable[[Axes, Outcome], None]:
    def residuals(axes: Axes, outcome: Outcome) -> None:
        place = np.arange(len(groups.labels))
        low, high = np.quantile(groups.means(outcome.simulated - outcome.expected), BAND, axis=0)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.vlines(place, low, high, color=BLUE, lw=5, alpha=0.35)
        axes.plot(place, groups.means(outcome.observed - outcome.expected), "o", color=BLACK, ms=4)
        axes.set_xticks(place, groups.labels, rotation=60 if len(place) > 6 else 0, fontsize="small")
        axes.set_xlabel(groups.column)
        axes.set_ylabel(f"mean of {outcome.column} − expected")

    return residuals


def _middles(edges: np.ndarray) -> np.ndarray:
    return (edges[1:] + edges[:-1]) / 2


def _smooth(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    heights = np.histogram(values, edges)[0] / (len(values) * (edges[1] - edges[0]))
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / 2) ** 2)
    return np.convolve(heights, kernel / kernel.sum(), mode="same")
