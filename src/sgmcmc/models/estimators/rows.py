"""Features as rows of a model: standardised block by block, sparse ones made dense, filled up to a number that repeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.rows.table import LARGE_SHARE, physical_memory

BLOCK = 1 << 20
"""Numbers of features that are looked at together."""

FEWEST, DOUBLED, STEPS = 64, 1024, 16
"""Rows are filled up to 64, then to powers of two up to 1,024, then to 16ths of these: programs of one number of rows serve all
that are filled up to it, such as the parts of a cross-validation.
"""


def filled(count: int) -> int:
    """As many rows as so many are filled up to."""
    if count <= DOUBLED:
        return max(FEWEST, 1 << (count - 1).bit_length())
    step = (1 << ((count - 1).bit_length() - 1)) // STEPS
    return -(-count // step) * step


def blocks(X: Any, size: int = BLOCK) -> Iterator[tuple[int, np.ndarray]]:
    """The rows of features in float64, dense, with the number of the first of each block."""
    step = max(1, size // X.shape[1])
    for start in range(0, X.shape[0], step):
        part = X[start : start + step]
        yield start, np.asarray(part.toarray() if hasattr(part, "toarray") else part, np.float64)


def moments(X: Any, weight: np.ndarray, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """What is taken off each feature, and by what it is divided then: 1 for features of 0 and 1, or of one value."""
    total, width = weight.sum(), X.shape[1]
    first = sum((weight[start : start + len(part)] @ part for start, part in blocks(X)), start=np.zeros(width)) / total
    second, two = np.zeros(width), np.ones(width, bool)
    for start, part in blocks(X):
        second += weight[start : start + len(part)] @ np.square(part - first)
        two &= ((part == 0) | (part == 1)).all(axis=0)
    scales = np.sqrt(second / total)
    scales = np.where(two | (scales <= 1e-12 * np.abs(first)), 1.0, scales)
    return first if centred else np.zeros(width), scales


def standardised(X: Any, means: np.ndarray, scales: np.ndarray, count: int) -> np.ndarray:
    """Features in standard units, and rows of zeros up to `count`."""
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    made = np.zeros((count, X.shape[1]), dtype)
    for start, part in blocks(X):
        made[start : start + len(part)] = (part - means) / scales
    return made


def check_size(X: Any) -> None:
    """Refuse features that would be too many numbers once they are dense."""
    needed, memory = 4 * X.shape[0] * X.shape[1], physical_memory()
    if needed > LARGE_SHARE * memory:
        found = f"X has {X.shape[0]:,} rows of {X.shape[1]:,} features, {needed / 2**30:.1f} GB as dense 32-bit numbers"
        limit = f"of at most {LARGE_SHARE:.0%} of the memory, {LARGE_SHARE * memory / 2**30:.1f} GB"
        raise InputError(f"{found}; expected rows {limit}: give fewer, or use sgmcmc.glm, which reads frames from disk")


def unique(names: list[str], taken: tuple[str, ...]) -> tuple[str, ...]:
    """Names of features as parameters have them: no two the same, and none a parameter's."""
    found: list[str] = []
    seen = set(taken)
    for number, name in enumerate(names):
        found.append(name if name not in seen else f"{name} (feature {number})")
        seen.add(found[-1])
    return tuple(found)
