"""Why chains mix badly or see too little, as far as their draws show it: a sentence with the repair for each cause, or None.

All take draws of the unconstrained numbers as (draw, number).
"""

from collections.abc import Sequence

import numpy as np

TAILS = (0.01, 0.5, 0.99)

COLLAPSED = 3.0
"""How far, in logs, the lower tail of a scale reaches below its median before the scale runs to 0: a factor of 20."""

LOPSIDED = 1.5
"""How many times longer one tail is than the other, at least, where draws run off to one side."""

TIED = 0.95
"""Correlation at which two numbers trade off."""

WIDE = 3.0
"""How many times wider than the others of its kind a number is that the data hardly tell."""


def cause(draws: np.ndarray, names: Sequence[str], scales: np.ndarray, number: int) -> str | None:
    """What the draws show of why this number does badly; `scales` says which numbers are logarithms of scales."""
    return collapsed_scale(draws, names, scales) or ridge(draws, names, scales, number) or separated_level(draws, names, number)


def collapsed_scale(draws: np.ndarray, names: Sequence[str], scales: np.ndarray) -> str | None:
    """A scale whose draws run to 0, which narrows all that it scales."""
    below, above = _tails(draws)
    runs = np.where(scales & (below > LOPSIDED * above), below, 0.0)
    worst = int(np.argmax(runs))
    if runs[worst] < COLLAPSED:
        return None
    tau = names[worst]
    repair = f"write the effects as {tau} * z with z ~ Normal(0, 1), or give {tau} a prior that keeps away from 0"
    return f"{tau} runs to 0, and what it scales gets too narrow to explore: {repair}."


def ridge(draws: np.ndarray, names: Sequence[str], scales: np.ndarray, number: int) -> str | None:
    """Another number that is all but a function of this one: by a line, or by a scale's product with it."""
    line = np.abs(_correlations(draws, draws[:, number]))
    line[number] = 0.0
    other = int(np.argmax(line))
    if line[other] > TIED:
        what = f"{names[number]} and {names[other]} trade off (correlation {line[other]:.3f} in size)"
        return f"{what}: the data tell one combination of them only. Centre the columns, drop one, or tighten a prior."
    product = _product(draws, scales, number)
    if product is None:
        return None
    what = f"{names[product]} and {names[number]} trade off: the data tell their product, hardly either"
    return f"{what}. Write the effects with their scale inside, as u ~ Normal(0, {names[product]}), or tighten a prior."


def separated_level(draws: np.ndarray, names: Sequence[str], number: int) -> str | None:
    """A coefficient that runs off to one side, far wider than the others of its parameter: the prior decides it."""
    stem = names[number].partition("[")[0] + "["
    others = [i for i, name in enumerate(names) if name.startswith(stem) and i != number]
    below, above = (tail[number] for tail in _tails(draws))
    one_sided = max(below, above) > LOPSIDED * min(below, above)
    if len(others) < 2 or not one_sided or draws[:, number].std() < WIDE * np.median(draws[:, others].std(axis=0)):
        return None
    return f"Few rows, with one outcome, say little of {names[number]}: merge the level with another, or tighten its prior."


def _tails(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far draws reach below and above their median."""
    low, middle, high = np.quantile(draws, TAILS, axis=0)
    return middle - low, high - middle


def _correlations(draws: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Of every number with one; 0 for what never moves."""
    z, one = draws - draws.mean(axis=0), one - one.mean()
    size = np.sqrt((z**2).sum(axis=0) * (one**2).sum())
    return np.where(size > 0, one @ z / np.where(size > 0, size, 1.0), 0.0)


def _product(draws: np.ndarray, scales: np.ndarray, number: int) -> int | None:
    """The scale whose product with this number, which never changes its sign, is all but fixed."""
    x = draws[:, number]
    if not scales.any() or scales[number] or x.min() * x.max() <= 0:
        return None
    tied = np.where(scales, -_correlations(draws, np.log(np.abs(x))), 0.0)
    return int(np.argmax(tied)) if tied.max() > TIED else None
