"""What numbers are called: `beta[age]` in place of `beta[0]`, where the user names axes and what is along them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, labels, leaf_names

Coords = Mapping[str, Sequence[Any]]
"""The labels along every axis, by the axis's name: `{"region": ["North", "South"]}`."""

Dims = Mapping[str, Sequence[str]]
"""The names of every parameter's axes: `{"u": ["region"]}`."""


@dataclass(frozen=True)
class Names:
    """Names of axes by parameter, and labels by axis, both as ArviZ has them. Axes without labels are numbered."""

    coords: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, coords: Coords | None, dims: Dims | None, params: PyTree) -> Names:
        """Checked against the shapes of the parameters."""
        along = {str(axis): _labels(axis, values) for axis, values in _mapping("coords", coords, "['North', 'South']").items()}
        axes = {str(name): _axes(name, value) for name, value in _mapping("dims", dims, "['region']").items()}
        names = cls(along, axes)
        shapes = dict(zip(leaf_names(params), map(np.shape, jax.tree.leaves(params)), strict=True))
        for name, dims_of_one in axes.items():
            if name not in shapes:
                raise InputError(f"dims names an unknown parameter {name!r}; params has {', '.join(shapes)}")
            names._check(name, dims_of_one, shapes[name])
        return names

    def _check(self, name: str, axes: tuple[str, ...], shape: tuple[int, ...]) -> None:
        if len(axes) != len(shape):
            raise InputError(f"dims[{name!r}] names {len(axes)} axes, {describe(list(axes))}; params[{name!r}] has shape {shape}")
        for axis, length in zip(axes, shape, strict=True):
            if axis in self.coords and len(self.coords[axis]) != length:
                found = f"coords[{axis!r}] has {len(self.coords[axis])} labels"
                raise InputError(f"{found}, and params[{name!r}] has {length} numbers along it (shape {shape}); make them equal")

    def labels(self, name: str, shape: tuple[int, ...]) -> list[str]:
        """A name for every number of an array; by number where its shape is another than that of the parameter."""
        axes = self.dims.get(name, ())
        if len(axes) != len(shape) or any(len(self.coords.get(axis, range(n))) != n for axis, n in zip(axes, shape, strict=True)):
            return labels(name, shape)
        along = [[str(one) for one in self.coords.get(axis, range(n))] for axis, n in zip(axes, shape, strict=True)]
        places = np.ndindex(*shape)
        return [name + (f"[{','.join(along[k][i] for k, i in enumerate(place))}]" if place else "") for place in places]

    def axes(self, draws: PyTree, chained: bool) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Labels by axis and axes by parameter as ArviZ takes them: of those parameters whose draws have these axes."""
        shapes = zip(leaf_names(draws), (np.shape(leaf)[1 + chained :] for leaf in jax.tree.leaves(draws)), strict=True)
        dims = {name: list(self.dims[name]) for name, shape in shapes if len(self.dims.get(name, ())) == len(shape) > 0}
        used = {axis for axes in dims.values() for axis in axes}
        return {axis: list(along) for axis, along in self.coords.items() if axis in used}, dims

    def numbers(self, tree: PyTree) -> list[str]:
        """A name for every number of a tree: `beta[3]`, `u[North]`."""
        leaves = zip(leaf_names(tree), jax.tree.leaves(tree), strict=True)
        return [label for name, leaf in leaves for label in self.labels(name, np.shape(leaf))]

    def packed(self) -> dict[str, Any]:
        """For a file."""
        plain = {axis: [_plain(one) for one in along] for axis, along in self.coords.items()}
        return {"coords": plain, "dims": {name: list(axes) for name, axes in self.dims.items()}}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Names:
        """From a file."""
        return cls(*({name: tuple(values) for name, values in packed[kind].items()} for kind in ("coords", "dims")))


def _plain(label: Any) -> Any:
    return label if isinstance(label, int | float | str) else str(label)


def _mapping(what: str, value: Any, example: str) -> Mapping[str, Any]:
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise InputError(f"{what} is {describe(value)}; expected a dict, such as {{'u': {example}}}")


def _labels(axis: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InputError(f"coords[{axis!r}] is {describe(values)}; expected the labels along it, such as ['North', 'South']")
    along = tuple(one.item() if isinstance(one, np.generic) else one for one in values)
    if len(set(map(str, along))) < len(along):
        twice = next(one for number, one in enumerate(map(str, along)) if one in list(map(str, along[:number])))
        raise InputError(f"coords[{axis!r}] has the label {twice!r} more than once; expected labels that differ")
    return along


def _axes(name: str, value: Any) -> tuple[str, ...]:
    axes = (value,) if isinstance(value, str) else tuple(value) if hasattr(value, "__iter__") else ()
    if not axes or not all(isinstance(axis, str) for axis in axes):
        raise InputError(f"dims[{name!r}] is {describe(value)}; expected the names of its axes, such as ['region']")
    return axes
