"""Where encoded rows are kept: in memory, or in a folder of rows where they are too many."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.trees import Dataset, Rows
from sgmcmc.data import convert
from sgmcmc.models.regression.design import Design
from sgmcmc.models.regression.sources import Source
from sgmcmc.problem.model import Model
from sgmcmc.rows.table import physical_memory

MEMORY_SHARE = 1 / 8
"""Encoded rows of more than this part of the memory go to a folder."""


@contextlib.contextmanager
def stored(
    design: Design, source: Source, folder: str | Path | None, checkpoint: str | Path | None, progress: Progress
) -> Iterator[tuple[Dataset, Path | None]]:
    """The rows of a source as a dataset: arrays, or a folder; and that folder if it is temporary, for the result to remove."""
    if folder is None and not _too_large(design):
        yield in_memory(design, source), None
        return
    passing = Path(tempfile.mkdtemp(prefix="sgmcmc-rows-")) if folder is None and checkpoint is None else None
    place = passing or Path(folder if folder is not None else f"{checkpoint}-rows")
    try:
        convert(lambda: design.blocks(source), place / "rows", progress=progress)
        yield str(place / "rows"), passing
    except BaseException:
        if passing is not None:
            shutil.rmtree(passing, ignore_errors=True)
        raise


def removed_with(model: Model, folder: Path | None) -> None:
    """A temporary folder goes when the model goes that reads from it, or the process."""
    if folder is not None:
        weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)


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
