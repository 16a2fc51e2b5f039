"""Predictions for frames of any size: block by block, from files to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.core.checks import Progress, check_progress
from sgmcmc.core.errors import InputError
from sgmcmc.core.files import replacing
from sgmcmc.core.progress import Bar
from sgmcmc.models.regression.predictions import MEAN, OUTCOME, encoded
from sgmcmc.models.regression.sources import Frame, find_source

if TYPE_CHECKING:
    from sgmcmc.models.regression.result import Regression

OF_PROBABILITIES = ("class", "order", "truth")
"""Kinds of outcomes of which an interval would say nothing."""

PARQUET, CSV = ".parquet", ".csv"

ENDS = ("mean", "lower", "upper")


def predictions_to_file(
    fit: Regression, frame: Any, out: Path, *, of: str | None = None, level: float = 0.9, draws: int = 500, seed: int = 0,
    keep: Sequence[str] = (), progress: Progress = True,
) -> int:  # fmt: skip
    """Mean and interval of every row of a frame, into a Parquet or CSV file that is there whole or not at all; how many rows."""
    if out.suffix not in (PARQUET, CSV):
        raise InputError(f"out is {str(out)!r}; expected the name of a {PARQUET} or {CSV} file")
    if not out.parent.is_dir():
        raise InputError(f"out is {str(out)!r}, in a folder that is not there; expected one that is")
    of = of or (MEAN if fit.core.family.kind in OF_PROBABILITIES else OUTCOME)
    options = {"level": level, "draws": draws}
    blocks, bar = predicted(fit, frame, of, seed, keep, options), Bar(check_progress(progress), "predicting", None, "row")
    with bar, replacing(out) as file, _writer(out.suffix, file) as write:
        for block in blocks:
            write(block)
            bar.update(len(block))
    return bar.done


def predicted(fit: Regression, frame: Any, of: str, seed: int, keep: Sequence[str], options: dict[str, Any]) -> Iterator[Frame]:
    """Frames of `mean`, `lower` and `upper` for blocks of rows; each block's outcomes have a seed of their own."""
    import pandas

    source = find_source(frame)
    wanted = fit.design.predicting(source.names)
    if absent := [name for name in keep if name not in source.names]:
        raise InputError(f"the frame has no column {absent[0]!r}, which is to be kept; it has {', '.join(source.names[:15])}")
    if taken := [name for name in keep if name in _made_columns(fit)]:
        raise InputError(f"{taken[0]!r} is to be kept, and is what predictions are called; expected columns of other names")
    model, first_row = fit.inner.model, 0
    assert model is not None
    for number, block in enumerate(source.blocks(list(dict.fromkeys([*wanted, *keep])))):
        inner, rows = encoded(fit, block[wanted], seed, first_row)
        told = options | {"seed": seed + number, "progress": False}
        ends = inner.predict(rows, "interval", function=model.mean if of == MEAN else None, **told)
        made = {name: block[name].to_numpy() for name in keep}
        for name, values in zip(ENDS, (inner.predict(rows, **told), *ends), strict=True):
            made |= _columns(name, np.asarray(values), fit.core.classes)
        first_row += len(block)
        yield pandas.DataFrame(made)


def _made_columns(fit: Regression) -> list[str]:
    """The names of predictions."""
    return [f"{name}[{one}]" if fit.core.classes else name for name in ENDS for one in fit.core.classes or ("",)]


def _columns(name: str, values: np.ndarray, classes: Sequence[str]) -> dict[str, np.ndarray]:
    """One column; of classes one for each."""
    return {name: values} if values.ndim == 1 else {f"{name}[{one}]": values[:, k] for k, one in enumerate(classes)}


@contextmanager
def _writer(kind: str, file: Any) -> Iterator[Callable[[Frame], None]]:
    """Takes frames one after another."""
    if kind == CSV:
        begun: list[bool] = []

        def write_text(block: Frame) -> None:
            file.write(block.to_csv(index=False, header=not begun).encode())
            begun.append(True)

        yield write_text
        return
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    open_: list[Any] = []

    def write_table(block: Frame) -> None:
        schema = open_[0].schema if open_ else None
        try:
            table = pyarrow.Table.from_pandas(block, schema, preserve_index=False)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            found = f"a column that is to be kept has values of other kinds further down: {error.args[0]}"
            raise InputError(f"{found}; expected a .csv file as out, or a frame with one kind in each column") from error
        if not open_:
            open_.append(ParquetWriter(file, table.schema))
        open_[0].write_table(table)

    try:
        yield write_table
    finally:
        for one in open_:
            one.close()
