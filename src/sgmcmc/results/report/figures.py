"""The pictures of a page, small enough for a phone: what is wide on a desk stands side by side there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from sgmcmc.core.errors import shortened_inside
from sgmcmc.results.after.outcomes import Outcome
from sgmcmc.results.diagnostics import weighted_quantiles
from sgmcmc.results.report.numbers import Numbers
from sgmcmc.results.report.svg import BAND, CHAINS, FAINT, INK, PAPER
from sgmcmc.results.tables import INFLATION
from sgmcmc.results.words import OFF

WIDTH, ROW = 4.4, 0.21
"""Inches of a figure, and of a row in it."""

LONGEST_NAME = 24
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)

POINTS = 160
"""Stretches of a trace, of each of which the lowest and the highest draw are shown."""

MOST_CHAINS = 8
RANK_BINS = 20
LARGEST_SHOWN = 20.0
"""Inflation beyond which a picture says no more."""

APART = 8.0
"""Numbers this many times smaller than others have a scale of their own."""


def standardised(numbers: Numbers) -> Figure:
    """Intervals in standard deviations from zero, on a scale that has room for near and far."""
    sd = numbers.table["sd"].to_numpy()
    z = _quantiles(numbers) / np.where(sd > 0, sd, 1.0)
    figure, axes = _rows(numbers.names)
    axes.axvspan(-2, 2, color=BAND, lw=0)
    _intervals(axes, z)
    axes.set_xscale("symlog", linthresh=4, linscale=1.2)
    axes.set_xlim(min(1.15 * float(z.min()), -4), max(1.15 * float(z.max()), 4))
    far = math.ceil(math.log10(max(10.0, float(np.abs(z).max()))))
    ticks = [10**k for k in range(1, 1 + far)] if far > 2 else [10, 50]
    axes.xaxis.set_major_locator(FixedLocator([*(-tick for tick in ticks[::-1]), -2, 0, 2, *ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}".replace("-", "−"))
    axes.set_xlabel("posterior standard deviations from 0")
    return figure


def raw(numbers: Numbers) -> Figure:
    """Intervals in the numbers' own units."""
    figure, axes = _rows(numbers.names)
    _intervals(axes, _quantiles(numbers))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("value")
    return figure


def by_scale(numbers: Numbers) -> list[list[int]]:
    """Places of numbers that can share an axis: those of a parameter, unless some are many times larger than the others."""
    groups = []
    extents = np.abs(_quantiles(numbers)).max(axis=0)
    for parameter in dict.fromkeys(numbers.parameters):
        places = [i for i, one in enumerate(numbers.parameters) if one == parameter]
        group: list[int] = []
        for place in sorted(places, key=lambda i: -extents[i]):
            if group and extents[group[-1]] > APART * extents[place] > 0:
                groups.append(sorted(group))
                group = []
            group.append(place)
        groups.append(sorted(group))
    return _small_ones_together(groups, extents)


def _small_ones_together(groups: list[list[int]], extents: np.ndarray) -> list[list[int]]:
    """Neighbours of one scale share a figure."""
    merged: list[list[int]] = []
    for group in groups:
        both = [*merged[-1], *group] if merged else []
        if both and max(extents[both]) <= APART / 2 * max(min(max(extents[merged[-1]]), max(extents[group])), 1e-300):
            merged[-1] = both
        else:
            merged.append(group)
    return merged


def inflation(numbers: Numbers) -> Figure:
    """The variance of every number over the posterior's, with two standard errors to each side."""
    value, error = (numbers.table[column].to_numpy() for column in INFLATION)
    figure, axes = _rows(numbers.names)
    axes.axvspan(1 - OFF, 1 + OFF, color=BAND, lw=0)
    axes.axvline(1, color=FAINT, lw=0.8)
    low, high, place = value - 2 * error, value + 2 * error, _places(len(value))
    axes.hlines(place, low, high, color=CHAINS[0], lw=1.4)
    axes.plot(value, place, "o", color=CHAINS[0], ms=4)
    axes.set_xlim(max(min(0.8, *low), -0.5) - 0.02, min(max(1.2, *high), LARGEST_SHOWN) + 0.02)
    axes.set_xlabel("variance of the chains / variance of the posterior")
    return figure


def trace_and_ranks(draws: np.ndarray) -> Figure:
    """Of (chain, draw): the trace, and how often each chain's draws are in each twentieth of all; one chain comes in halves."""
    figure = Figure(figsize=(WIDTH, 1.45))
    trace, ranks = figure.subplots(1, 2, gridspec_kw={"width_ratios": [2.1, 1]})
    figure.subplots_adjust(0.115, 0.24, 0.995, 0.96, 0.13)
    for number, chain in enumerate(draws[:MOST_CHAINS]):
        trace.plot(*_envelope(chain), lw=0.6, color=CHAINS[number])
    trace.set_xlim(0, draws.shape[1])
    for axis in (trace.xaxis, trace.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    trace.set_xlabel("draw", labelpad=1)
    half = draws.shape[1] // 2
    _ranks(ranks, draws if len(draws) > 1 else np.stack([draws[0, :half], draws[0, -half:]]))
    ranks.set_xlabel("rank" if len(draws) > 1 else "rank, by halves", labelpad=12)
    return figure


def _ranks(axes: Axes, chains: np.ndarray) -> None:
    order = np.argsort(np.argsort(chains, axis=None, kind="stable")).reshape(chains.shape)
    count = min(RANK_BINS, max(2, chains.shape[1] // 5))
    counts = np.stack([np.bincount(one, minlength=count) for one in (order * count // chains.size)[:MOST_CHAINS]])
    expected = chains.shape[1] / count
    axes.axhline(1, color=FAINT, lw=0.8)
    for number, one in enumerate(counts):
        axes.stairs(one / max(expected, 1e-9), color=CHAINS[number], lw=1.0, baseline=None)
    axes.set_ylim(0, max(2.0, 1.05 * counts.max() / max(expected, 1e-9)))
    axes.set_xlim(0, count)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _envelope(chain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A line through the lowest and the highest draw of every stretch, in their order."""
    if len(chain) <= 2 * POINTS:
        return np.arange(len(chain)), chain
    edges = np.arange(POINTS) * len(chain) // POINTS
    stretches = np.split(chain, edges[1:])
    places = [
        sorted((start + int(np.argmin(one)), start + int(np.argmax(one)))) for start, one in zip(edges, stretches, strict=True)
    ]
    shown = np.unique(np.concatenate(places))
    return shown, chain[shown]


def of_check(draw: Callable[[Axes, Outcome], None], outcome: Outcome) -> Figure:
    """One picture of a posterior predictive check."""
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    draw(figure.subplots(), outcome)
    return figure


def _rows(names: Sequence[str]) -> tuple[Figure, Axes]:
    """A row for every name, from the top."""
    shown = [shortened_inside(name, LONGEST_NAME) for name in names]
    height = ROW * len(names) + 0.55
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots()
    left = min(0.45, (0.12 + 0.075 * max(map(len, shown))) / WIDTH)
    figure.subplots_adjust(left, 0.47 / height, 0.975, 1 - 0.05 / height)
    axes.set_yticks(_places(len(names)), shown)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure, axes


def _places(count: int) -> np.ndarray:
    return np.arange(count)[::-1]


def _quantiles(numbers: Numbers) -> np.ndarray:
    return weighted_quantiles(numbers.draws, numbers.weights, LEVELS)


def _intervals(axes: Axes, quantiles: np.ndarray) -> None:
    low, lower, middle, upper, high = quantiles
    place = _places(len(middle))
    axes.axvline(0, color=FAINT, lw=0.8)
    axes.hlines(place, low, high, color=CHAINS[0], lw=1.4)
    axes.hlines(place, lower, upper, color=CHAINS[0], lw=4.6)
    axes.plot(middle, place, "o", ms=3.4, mfc=PAPER, mec=INK, mew=0.8)
    axes.set_xlim(*_limits(quantiles))


def _limits(quantiles: np.ndarray) -> tuple[float, float]:
    """With 0 where it is not far."""
    low, high = float(quantiles.min()), float(quantiles.max())
    if max(abs(low), abs(high)) < 4 * (high - low):
        low, high = min(low, 0.0), max(high, 0.0)
    margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
