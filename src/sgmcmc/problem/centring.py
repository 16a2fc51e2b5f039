"""Effects with a location and a scale of their own, moved relative to these: a centred hierarchy without its funnel.

With c = 1 an effect moves as it is, with c = 0 as its number of standard deviations from its location (Papaspiliopoulos, Roberts
and Sköld 2007; Gorinova, Moore and Hoffman 2020). Draws are of the user's parameters all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import PyTree, leaf_names
from sgmcmc.problem.model import LocScale


@dataclass(frozen=True)
class PartlyCentred:
    """A transform behind which z moves in the place of u = loc + scale^(1-c) (z - c loc).

    `centred` has the c of each number of some leaves, by name, in an order in which none depends on a later one.
    """

    outer: Any
    loc_scale: LocScale
    centred: tuple[tuple[str, Any], ...]

    @property
    def bijections(self) -> tuple[Any, ...]:
        return self.outer.bijections

    def to_params(self, position: PyTree) -> PyTree:
        params = self.outer.to_params(position)
        for name, c in self.centred:
            loc, scale = self.loc_scale(params)[name]
            params = _changed(params, name, lambda z, c=c, loc=loc, scale=scale: loc + scale ** (1 - c) * (z - c * loc))
        return params

    def to_position(self, params: PyTree) -> PyTree:
        beside, moved = self.loc_scale(params), params
        for name, c in self.centred:
            loc, scale = beside[name]
            moved = _changed(moved, name, lambda u, c=c, loc=loc, scale=scale: c * loc + (u - loc) * scale ** (c - 1))
        return self.outer.to_position(moved)

    def log_det(self, position: PyTree) -> jax.Array | float:
        beside = self.loc_scale(self.to_params(position))
        stretched = sum(jnp.sum((1 - c) * jnp.log(beside[name][1])) for name, c in self.centred)
        return self.outer.log_det(position) + stretched


def _changed(tree: PyTree, name: str, function: Any) -> PyTree:
    """A tree with one leaf changed."""
    leaves, structure = jax.tree.flatten(tree)
    named = zip(leaf_names(tree), leaves, strict=True)
    return jax.tree.unflatten(structure, [function(leaf).astype(leaf.dtype) if one == name else leaf for one, leaf in named])
