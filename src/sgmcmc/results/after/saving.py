"""A result as one file: its draws, what it kept and decided, where its chains stand; not the model, which is code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgmcmc.core.array_files import write_arrays
from sgmcmc.core.errors import InputError, SgmcmcError, warn
from sgmcmc.core.trees import PyTree
from sgmcmc.results.packing import pack

if TYPE_CHECKING:
    from sgmcmc.results.result import Result

FORMAT, VERSION = "sgmcmc result", 2
"""Version 2 has something beside the result; files without it are written as version 1, for every release."""


def save(result: Result, path: str | os.PathLike[str], beside: PyTree = None) -> None:
    """As `Result.save` says; with what is to be kept `beside` the result."""
    file = Path(path).expanduser()
    if file.is_dir() or not file.parent.is_dir():
        why = "a folder" if file.is_dir() else f"in a folder that is not there, {file.parent}"
        raise InputError(f"save got {str(path)!r}, which is {why}; expected the name of a file, such as 'fit.sgmcmc'")
    like = result.draws if result.draws is not None else getattr(result.final_state, "params", None)
    whole = contents(result, like) | ({} if beside is None else {"beside": beside})
    tree, arrays = pack(whole, like)
    try:
        write_arrays(file, {"format": FORMAT, "version": VERSION if beside is not None else 1, "tree": tree}, arrays)
    except OSError as error:
        raise SgmcmcError(f"{file} could not be written: {error.strerror or error}; save to another place") from error


def contents(result: Result, like: PyTree = None) -> dict[str, Any]:
    """All that a file can hold of a result. Where the chains stand is left out, with a warning, if a part of it is code."""
    state = result.final_state
    if trouble := _refused(state, like):
        warn(f"the file has no final_state, from which a run goes on: {trouble}")
        state = None
    return {
        "draws": result.draws,
        "kept": result.kept,
        "state": state,
        "settings": {name: _plain(value) for name, value in result.settings.items()},
        "weights": result.weights,
        "chained": result.chained,
        "pairs": result.pairs,
        "decisions": result.decisions,
        "names": result.names.packed(),
    }


def _refused(tree: PyTree, like: PyTree = None) -> str:
    """Why a tree cannot be packed; nothing, if it can."""
    try:
        pack(tree, like)
    except InputError as error:
        return str(error)
    return ""


def _plain(value: Any) -> Any:
    """A setting as it is, or as text where it is code."""
    if not _refused(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return str(value)
