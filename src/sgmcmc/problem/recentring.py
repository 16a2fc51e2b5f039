"""Effects written as scale times a standard normal number, moved as their product instead.

Where many rows tell each effect, they tell the product of scale and number, hardly either of them: a bent ridge, on which no
linear change of variables helps. The product itself moves freely. Draws are of the user's parameters all the same.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import PyTree
from sgmcmc.problem.posterior import Transform


@dataclass(frozen=True)
class Product:
    """The leaves of a position, by number, that enter the likelihood as a product only.

    `axis` counts the groups of the effects; the scale is one for all of them, or one for each of their other numbers. It is the
    parameter itself, or if `logged` the exponential of a parameter without constraint.
    """

    scale: int
    effects: int
    axis: int
    logged: bool


@dataclass(frozen=True)
class Recentred:
    """A transform behind which products move in the place of their effects."""

    outer: Transform
    products: tuple[Product, ...]

    @property
    def bijections(self) -> tuple[Any, ...]:
        return self.outer.bijections

    def to_params(self, position: PyTree) -> PyTree:
        return self.outer.to_params(self._exchanged(position, jnp.divide))

    def to_position(self, params: PyTree) -> PyTree:
        return self._exchanged(self.outer.to_position(params), jnp.multiply)

    def log_det(self, position: PyTree) -> jax.Array | float:
        leaves = jax.tree.leaves(position)
        stretched = sum(
            jnp.sum(jnp.broadcast_to(jnp.log(self.scale(leaves, one)), leaves[one.effects].shape)) for one in self.products
        )
        return self.outer.log_det(self._exchanged(position, jnp.divide)) - stretched

    def _exchanged(self, position: PyTree, operation: Any) -> PyTree:
        leaves, structure = jax.tree.flatten(position)
        changed = list(leaves)
        for one in self.products:
            changed[one.effects] = operation(leaves[one.effects], self.scale(leaves, one))
        return jax.tree.unflatten(structure, changed)

    def scale(self, leaves: list[Any], one: Product) -> jax.Array:
        """The scale, shaped to go with its effects."""
        bijection, leaf = self.outer.bijections[one.scale], leaves[one.scale]
        value = jnp.exp(leaf) if one.logged else bijection(leaf)
        return value if value.ndim == 0 else jnp.expand_dims(value, one.axis)
