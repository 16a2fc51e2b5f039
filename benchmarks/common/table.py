"""Markdown tables that are also neat as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    widths = [max(len(line[k]) for line in (header, *rows)) for k in range(len(header))]
    rule = [("-" * width if k == 0 else "-" * (width - 1) + ":") for k, width in enumerate(widths)]
    lines = [
        [cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(zip(line, widths, strict=True))]
        for line in (header, *rows)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range."""
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))
    return f"{middle} ({low} to {high})"


def verdict(value: float, bar: float) -> str:
    return "met" if value <= bar else "MISSED"


def reached(value: float, bar: float) -> str:
    return "met" if value >= bar else "MISSED"


def gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2f}"
