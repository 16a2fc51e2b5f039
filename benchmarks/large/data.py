"""A folder of logistic regression rows of any size, made in blocks."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.problem import COLUMNS, FEATURE_RANGE, Dataset

ROW_BYTES = 4 * (COLUMNS + 1)
BLOCK = 50_000
SHUFFLING, MARGIN = 2.2, 2 * 10**9
"""Disk that a conversion takes in sizes of the data (its rows, and the rows with their keys), and what is left to others."""


def rows_of(gigabytes: float) -> int:
    """How many rows make up so much."""
    return max(1, int(gigabytes * 1e9 / ROW_BYTES))


def affordable(gigabytes: float, folder: Path) -> float:
    """The size asked for, or the largest that can be made where `folder` will be."""
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return min(gigabytes, max(0.0, (shutil.disk_usage(place).free - MARGIN) / SHUFFLING / 1e9))


def synthetic_blocks(n_rows: int) -> Iterator[Dataset]:
    """The rows, a block at a time; fewer rows are the first of more."""
    beta = np.random.default_rng(1).normal(size=COLUMNS).astype(np.float32)
    for start in range(0, n_rows, BLOCK):
        random = np.random.default_rng([1, start])
        X = random.random((BLOCK, COLUMNS), np.float32)
        X *= FEATURE_RANGE
        y = (random.random(BLOCK, np.float32) < 1 / (1 + np.exp(-(X @ beta)))).astype(np.float32)
        yield {"X": X[: n_rows - start], "y": y[: n_rows - start]}


def make_folder(folder: str, n_rows: int) -> Iterator[dict[str, Any]]:
    """A job: convert the rows, or say that they are there."""
    import sgmcmc.data

    begin = time.perf_counter()
    found = sgmcmc.data.convert(partial(synthetic_blocks, n_rows), folder, overwrite=not (Path(folder) / "header.json").exists())
    yield {"seconds": time.perf_counter() - begin, "rows": found.n_rows, "bytes": found.nbytes}


def forget(folder: Path) -> bool:
    """Have the system drop what it holds of the files in memory. False where it cannot be asked to.

    Pages that some process has mapped stay, so this comes before the process that is to find them gone.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in folder.glob("*.rows"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    return True
