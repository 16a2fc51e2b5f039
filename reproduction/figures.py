"""How the experiments' pictures look: one colour and line for each method, everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgmcmc.results.pictures import COLOURS

_BLUE, _ORANGE, _GREEN, _PINK, _VERMILION, _SKY, _YELLOW, _BLACK = COLOURS
STYLES: dict[str, dict[str, Any]] = {
    "sgld": {"color": _BLUE},
    "sghmc": {"color": _ORANGE},
    "sgnht": {"color": _GREEN},
    "sgldcv": {"color": _SKY},
    "sghmccv": {"color": _VERMILION},
    "sgnhtcv": {"color": _PINK},
    "sghmc corrected": {"color": _ORANGE, "ls": "--"},
    "sghmccv corrected": {"color": _VERMILION, "ls": "--"},
    "sgldcv, ours": {"color": _SKY, "ls": "--"},
    "reference": {"color": _BLACK},
}
"""Okabe and Ito's colours. What is ours beside the article's methods has its method's colour and a dashed line."""

PANEL = (2.9, 2.6)
PANEL_ORDER = ("sgld", "sghmc", "sgnht", "sghmc corrected", "sgldcv", "sghmccv", "sgnhtcv", "sghmccv corrected")
"""Of eight panels in two rows: a plain method above its control variate twin."""

Share = bool | Literal["x", "y"]


def panels(rows: int, columns: int, title: str, *, share: Share = True) -> tuple[Figure, np.ndarray]:
    """A grid of axes under a title."""
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share in (True, "x"), sharey=share in (True, "y"))
    figure.suptitle(title)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def along_chains(title: str, y_label: str, below: str) -> tuple[Figure, np.ndarray]:
    """A panel for each of eight methods, iterations to the right; `below` explains the lines."""
    figure, axes = panels(2, 4, title, share="y")
    for panel in axes.flat:
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.tick_params(axis="x", labelsize="small")
    for panel in axes[:, 0]:
        panel.set_ylabel(y_label)
    for panel in axes[-1]:
        panel.set_xlabel("iteration after burn-in")
    figure.supxlabel(below, fontsize="small")
    return figure, axes


def band(axes: Axes, x: Sequence[float] | np.ndarray, runs: np.ndarray, label: str, **style: Any) -> None:
    """The mean of runs (first axis) as a line, their range as a band."""
    axes.plot(x, runs.mean(axis=0), marker="o", ms=4, label=label, **style)
    axes.fill_between(x, runs.min(axis=0), runs.max(axis=0), color=style["color"], alpha=0.15, lw=0)


def density(
    draws: np.ndarray, limits: tuple[float, float, float, float], cells: int = 60
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A smoothed histogram of points in the plane, as `Axes.contour` takes it; its heights are shares of the highest."""
    low_x, high_x, low_y, high_y = limits
    counts, xs, ys = np.histogram2d(*draws.T, bins=cells, range=[(low_x, high_x), (low_y, high_y)])
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / 1.8) ** 2)
    for axis in (0, 1):
        counts = np.apply_along_axis(lambda line: np.convolve(line, kernel, mode="same"), axis, counts)
    return (xs[1:] + xs[:-1]) / 2, (ys[1:] + ys[:-1]) / 2, counts.T / max(counts.max(), 1e-300)


def levels_of_mass(heights: np.ndarray, shares: Sequence[float] = (0.95, 0.75, 0.5, 0.25)) -> list[float]:
    """The heights above which these shares of the mass lie, lowest first."""
    ordered = np.sort(heights.ravel())[::-1]
    mass = np.cumsum(ordered) / ordered.sum()
    levels = [float(ordered[np.searchsorted(mass, share)]) for share in shares]
    return sorted(set(levels))
