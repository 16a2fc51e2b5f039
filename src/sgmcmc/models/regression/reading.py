"""A regression out of what a file or a folder has of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sgmcmc.core.errors import InputError, SgmcmcError
from sgmcmc.models.regression.result import Regression
from sgmcmc.models.regression.written import check_kind, read_design, read_priors
from sgmcmc.results.result import Result

STRUCTURAL = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError, MemoryError)
"""What reading raises where something is not of the kind or the size that it should be."""


def regression_of(result: Result, tree: Any, path: Path, of_folder: bool) -> Regression:
    """The regression, its model with those rows of the frame that were kept; a folder's run knows its own decisions only."""
    check_kind(tree)
    try:
        design, core = read_design(tree)
        told, unwritten = read_priors(tree)
        rows = design.of_typed(design.facts.sample)
        model = core.model(rows, core.priors(told))
    except STRUCTURAL as error:
        raise SgmcmcError(f"{path} has a regression that cannot be read: {type(error).__name__}: {error}") from error
    if unwritten:
        model = replace(model, **_without_priors(unwritten))
    if of_folder and tree["decisions"] is not None:
        result = replace(result, decisions=tree["decisions"] + result.decisions)
    return Regression.of(replace(result, model=model), core, design, told)


def _without_priors(unwritten: list[str]) -> dict[str, Any]:
    refuse: Any = partial(_refuse, "; ".join(unwritten))
    return {"log_prior": refuse, "draw_prior": refuse}


def _refuse(said: str, *_: Any) -> Any:
    raise InputError(f"the priors are in the file in words only ({said}); fit again for what needs them")
