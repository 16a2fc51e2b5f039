"""Pictures of draws. The colours are Okabe and Ito's, which colour-blind readers can tell apart."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgmcmc.core.errors import shortened_inside

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
LONGEST_LINE = 2000
"""Points drawn of a trace: more than the pixels of a figure only make the file larger."""

PLAIN = {"text.parse_math": False}
"""Names are what users call things: a dollar is a dollar."""

LONGEST_NAME = 30

SHARP = 144
"""Dots per inch in a notebook, which shows them at half their size."""

Series: TypeAlias = Sequence[tuple[str, np.ndarray]]
"""A label and an array of chains × draws for each number."""


class Picture(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        save_png(self, buffer, SHARP)
        width, height = (round(SHARP / 2 * inches) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


@matplotlib.rc_context(PLAIN)
def traces_and_densities(series: Series, title: str, weights: np.ndarray | None) -> Figure:
    """A row for each number: its trace on the left, its density on the right."""
    rows = max(1, len(series))
    figure = Picture(figsize=(10, 1.2 + 1.7 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, gridspec_kw={"width_ratios": [2.2, 1]})
    for (trace, density), (label, draws) in zip(axes, series, strict=True):
        for chain, values in enumerate(draws):
            colour = COLOURS[chain % len(COLOURS)]
            centres, heights = histogram(values, weights)
            density.plot(centres, heights, lw=1.4, color=colour)
            density.fill_between(centres, heights, alpha=0.12, color=colour, lw=0)
        _draw_trace(trace, label, draws, LONGEST_LINE)
        density.set_yticks([])
        density.set_xlabel(shortened_inside(label, LONGEST_NAME))
        for one in (trace, density):
            one.spines[["top", "right"]].set_visible(False)
    axes[-1][0].set_xlabel("stored draw")
    if series and len(series[0][1]) > 1:
        axes[0][0].legend(loc="upper right", ncols=4, fontsize="small", frameon=False)
    figure.suptitle(f"{title}: traces and posterior densities")
    return figure


@matplotlib.rc_context(PLAIN)
def overview(
    series: Series, inflation: Mapping[str, tuple[float, float]], title: str, verdict: str, xlabel: str = "value"
) -> Figure:
    """Posterior intervals, each variance's inflation (value and error by label), and the traces of those inflated most."""
    names = [name for name, _ in series]
    figure = Picture(figsize=(12, max(4.2, 1.6 + 0.24 * len(series))), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
    intervals, ratios = left.subplots(1, 2, gridspec_kw={"width_ratios": [1.2, 1]})
    traces = right.subplots(min(3, len(series)), sharex=True, squeeze=False)[:, 0]
    place = np.arange(len(series))[::-1]
    blue, grey = COLOURS[0], "#777777"
    low, lower, middle, upper, high = np.transpose([np.quantile(x, [0.025, 0.25, 0.5, 0.75, 0.975]) for _, x in series])
    intervals.axvline(0, color=grey, lw=0.8)
    intervals.hlines(place, low, high, color=blue, lw=1.6, label="95 % interval")
    intervals.hlines(place, lower, upper, color=blue, lw=5, label="50 % interval")
    intervals.plot(middle, place, "o", color="white", ms=3.5, mec=blue, label="median")
    intervals.set_yticks(place, [shortened_inside(name, LONGEST_NAME) for name in names], fontsize="small")
    intervals.set_xlabel(xlabel)
    intervals.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small", frameon=False, handlelength=1.2)

    known = [(y, *inflation[name]) for y, name in zip(place, names, strict=True) if name in inflation]
    ratios.axvspan(0.9, 1.1, color=COLOURS[2], alpha=0.12, lw=0, label="within 10 %")
    ratios.axvline(1, color=grey, lw=0.8)
    if known:
        y, value, error = np.transpose(known)
        ratios.errorbar(value, y, xerr=2 * error, fmt="o", ms=3.5, lw=1.2, color=COLOURS[4], label="±2 std. errors")
    ratios.set_yticks(place, [])
    ratios.set_ylim(intervals.get_ylim())
    ratios.set_xlabel("variance / posterior's variance")
    ratios.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize="small", frameon=False, handlelength=1.2)

    worst = sorted(series, key=lambda one: -abs(inflation.get(one[0], (1.0, 0.0))[0] - 1))[: len(traces)]
    for axes, (label, draws) in zip(traces, worst, strict=True):
        _draw_trace(axes, label, draws, 500)
        axes.margins(x=0.01)
    traces[-1].set_xlabel("stored draw")
    traces[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize="small", frameon=False)
    for axes in (intervals, ratios, *traces):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}: {verdict}")
    return figure


def _draw_trace(axes: Axes, label: str, draws: np.ndarray, most: int) -> None:
    for chain, values in enumerate(draws):
        shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), most)).astype(int))
        axes.plot(shown + 1, values[shown], lw=0.6, color=COLOURS[chain % len(COLOURS)], label=f"chain {chain + 1}")
    axes.set_ylabel(shortened_inside(label, LONGEST_NAME))


def histogram(values: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Bin centres and smoothed heights of a density estimate."""
    low, high = np.min(values), np.max(values)
    margin = 0.05 * (high - low) or 0.5
    heights, edges = np.histogram(values, bins=80, range=(low - margin, high + margin), weights=weights, density=True)
    kernel = np.exp(-0.5 * (np.arange(-8, 9) / 2.5) ** 2)
    return (edges[1:] + edges[:-1]) / 2, np.convolve(heights, kernel / kernel.sum(), mode="same")


def save_png(figure: Figure, path: Path | IO[bytes], dpi: int = 110) -> None:
    """Write a PNG of 256 colours, which is less than half the size of one with all of them."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi)
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)
