"""A result from the file that it was saved to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgmcmc.core.array_files import read_arrays
from sgmcmc.core.errors import InputError, SgmcmcError
from sgmcmc.core.files import DamagedFileError
from sgmcmc.core.names import Names
from sgmcmc.core.trees import PyTree, leaf_names
from sgmcmc.results.after.saving import FORMAT, VERSION
from sgmcmc.results.packing import outline, unpack
from sgmcmc.results.result import Result

if TYPE_CHECKING:
    from sgmcmc.problem.model import Model


def read_result(path: Path, model: Model | None = None) -> tuple[Result, PyTree]:
    """The result; with a `model`, parameters in trees like the model's, and the model in it. And what was kept beside it."""
    try:
        spec, arrays = read_arrays(path)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}, or it is no file that fit.save(path) wrote") from error
    if spec.get("format") != FORMAT:
        raise InputError(f"{path} is no file that fit.save(path) wrote; expected one, or the folder of a run with checkpoint=")
    if spec["version"] > VERSION:
        found = f"{path} has format version {spec['version']}, and this release of sgmcmc reads up to {VERSION}"
        raise SgmcmcError(f"{found}; use the release that wrote it, or a newer one")
    tree = spec["tree"]
    found = unpack(tree, arrays, *_likes(tree["likes"], model, path))
    beside = found.pop("beside", None)
    found |= {"names": Names.unpacked(found["names"]), "final_state": found.pop("state"), "model": model}
    return Result(**found), beside


def _likes(recorded: list[Any], model: Model | None, path: Path) -> list[Any]:
    """What trees of parameters are built like: the model's, which must be those of the file."""
    if model is None or recorded == [None]:
        return []
    if outline(model.params) != recorded[0]:
        saved = _leaves(recorded[0])
        found = f"the file has parameters {', '.join(saved)}, the model {', '.join(leaf_names(model.params))}"
        raise InputError(f"{path} holds the result of another model: {found}; load it without model=, or with its own")
    return [model.params]


def _leaves(built: Any, front: str = "") -> list[str]:
    """The names of the leaves of an outline."""
    if built == "leaf":
        return [front or "params"]
    ((kind, inside),) = built.items()
    if kind == "names":
        return [f"{front}.{name}" if front else name for name in inside]
    pairs = inside.items() if kind == "dict" else enumerate(inside)
    return [leaf for key, child in pairs if child is not None for leaf in _leaves(child, f"{front}.{key}" if front else str(key))]
