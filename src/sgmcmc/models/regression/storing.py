"""Where encoded rows are kept: in memory, or in a folder of rows where they are too many."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.trees import Dataset, Rows
from sgmcmc.data import convert
from sgmcmc.models.regression.design import Design
from sgmcmc.models.regression.sources import Source
from sgmcmc.rows.table import physical_memory

MEMORY_SHARE = 1 / 8
"""Encoded rows of more than this part of the memory go to a folder."""


@contextlib.contextmanager
def stored(
    design: Design, source: Source, folder: str | Path | None, checkpoint: str | Path | None, progress: Progress
) -> Iterator[Dataset]:
    """The rows of a source as a dataset: arrays, or a folder."""
    if folder is None and not _too_large(design):
        yield in_memory(design, source)
        return
    with contextlib.ExitStack() as stack:
        if folder is None and checkpoint is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sgmcmc-rows-"))
        place = Path(folder) if folder is not None else Path(f"{checkpoint}-rows")
        convert(lambda: design.blocks(source), place / "rows", progress=progress)
        yield str(place / "rows")


def _too_large(design: Design) -> bool:
    few = design.of_typed(design.facts.sample.iloc[:1])
    return design.facts.n_rows * sum(values.nbytes for values in few.values()) > MEMORY_SHARE * physical_memory()


def in_memory(design: Design, source: Source) -> Rows:
    """All rows as arrays, made block by block."""
    made: Rows = {}
    filled = 0
    for block in design.blocks(source):
        if not made:
            made = {name: np.empty((design.facts.n_rows, *values.shape[1:]), values.dtype) for name, values in block.items()}
        count = len(next(iter(block.values())))
        for name, values in block.items():
            made[name][filled : filled + count] = values
        filled += count
    return made
