"""Pictures of draws. The colours are Okabe and Ito's, which colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
LONGEST_LINE = 2000
"""Points drawn of a trace: more than the pixels of a figure only make the file larger."""


def traces_and_densities(series: Sequence[tuple[str, np.ndarray]], title: str, weights: np.ndarray | None) -> Figure:
    """A row for each series (label, array of chains × draws): its trace on the left, its density on the right."""
    rows = max(1, len(series))
    figure = Figure(figsize=(10, 1.2 + 1.7 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, gridspec_kw={"width_ratios": [2.2, 1]})
    for (trace, density), (label, draws) in zip(axes, series, strict=True):
        for chain, values in enumerate(draws):
            colour = COLOURS[chain % len(COLOURS)]
            shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), LONGEST_LINE)).astype(int))
            trace.plot(shown + 1, values[shown], lw=0.6, color=colour, label=f"chain {chain + 1}")
            centres, heights = histogram(values, weights)
            density.plot(centres, heights, lw=1.4, color=colour)
            density.fill_between(centres, heights, alpha=0.12, color=colour, lw=0)
        trace.set_ylabel(label)
        density.set_yticks([])
        density.set_xlabel(label)
        for side in ("top", "right"):
            trace.spines[side].set_visible(False)
            density.spines[side].set_visible(False)
    axes[-1][0].set_xlabel("stored draw")
    if series and len(series[0][1]) > 1:
        axes[0][0].legend(loc="upper right", ncols=4, fontsize="small", frameon=False)
    figure.suptitle(f"{title}: traces and posterior densities")
    return figure


def histogram(values: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Bin centres and smoothed heights of a density estimate."""
    low, high = np.min(values), np.max(values)
    margin = 0.05 * (high - low) or 0.5
    heights, edges = np.histogram(values, bins=80, range=(low - margin, high + margin), weights=weights, density=True)
    kernel = np.exp(-0.5 * (np.arange(-8, 9) / 2.5) ** 2)
    return (edges[1:] + edges[:-1]) / 2, np.convolve(heights, kernel / kernel.sum(), mode="same")


def save_png(figure: Figure, path: Path) -> None:
    """Write a PNG of 256 colours, which is less than half the size of one with all of them."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)
