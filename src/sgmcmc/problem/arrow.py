"""Parameters of groups: each row knows those of its own group only, so that curvature has the shape of an arrow.

Of a hierarchy such as `params["u"][batch["group"]]` the second derivatives are a dense block for what all rows share, a small
block for each group, and the couplings of groups with what is shared. Between two groups there is nothing. So all that a change
of variables needs takes O(d k) for d numbers of which k are shared, not O(d³).
"""

from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import PyTree, flat, size, tree_map


@dataclass(frozen=True)
class Layout:
    """Which leaves of a tree belong to groups: for every leaf the axis that counts the groups, or None for what is shared.

    `shapes` are those of the leaves. Vectors in the order of a layout have what is shared first, then group after group.
    """

    axes: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def groups(self) -> int:
        return next(shape[axis] for axis, shape in zip(self.axes, self.shapes, strict=True) if axis is not None)

    @property
    def shared(self) -> int:
        """How many numbers belong to no group."""
        return sum(int(np.prod(shape)) for axis, shape in zip(self.axes, self.shapes, strict=True) if axis is None)

    @property
    def own(self) -> int:
        """How many numbers each group has."""
        sizes = (int(np.prod(shape)) for axis, shape in zip(self.axes, self.shapes, strict=True) if axis is not None)
        return sum(sizes) // self.groups

    @property
    def size(self) -> int:
        return self.shared + self.groups * self.own

    @property
    def per_row(self) -> int:
        """How many numbers a row has to do with."""
        return self.shared + self.own

    def parts(self, tree: PyTree) -> tuple[Any, Any]:
        """What is shared, as a vector, and what belongs to groups, as a matrix with a line for each."""
        pairs = list(zip(self.axes, jax.tree.leaves(tree), strict=True))
        shared = [jnp.ravel(leaf) for axis, leaf in pairs if axis is None] or [jnp.zeros(0, jnp.result_type(float))]
        own = [jnp.moveaxis(leaf, axis, 0).reshape(leaf.shape[axis], -1) for axis, leaf in pairs if axis is not None]
        return jnp.concatenate(shared), jnp.concatenate(own, axis=1)

    def tree(self, shared: jax.Array, own: jax.Array, like: PyTree) -> PyTree:
        """The tree that has these parts."""
        leaves, structure = jax.tree.flatten(like)
        made, first, column = [], 0, 0
        for axis, shape, leaf in zip(self.axes, self.shapes, leaves, strict=True):
            count = int(np.prod(shape))
            if axis is None:
                made.append(shared[first : first + count].reshape(shape).astype(leaf.dtype))
                first += count
                continue
            others = shape[:axis] + shape[axis + 1 :]
            width = count // shape[axis]
            block = own[:, column : column + width].reshape(shape[axis], *others)
            made.append(jnp.moveaxis(block, 0, axis).astype(leaf.dtype))
            column += width
        return jax.tree.unflatten(structure, made)

    def vector(self, tree: PyTree) -> jax.Array:
        """All numbers of a tree in the order of the layout."""
        shared, own = self.parts(tree)
        return jnp.concatenate([shared, own.ravel()])

    def of_vector(self, vector: jax.Array, like: PyTree) -> PyTree:
        """The tree with these numbers, in the order of the layout."""
        return self.tree(*self.cut(vector), like)

    def cut(self, vector: Any) -> tuple[Any, Any]:
        """The parts of a vector in the order of the layout."""
        return vector[: self.shared], vector[self.shared :].reshape(self.groups, self.own)

    def order(self, like: PyTree) -> np.ndarray:
        """For each number in the order of the layout, where it is among all numbers of the tree."""
        numbered = np.arange(size(like), dtype=np.int64)
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        leaves = [part.reshape(shape) for part, shape in zip(np.split(numbered, ends), self.shapes, strict=True)]
        shared = [leaf.ravel() for axis, leaf in zip(self.axes, leaves, strict=True) if axis is None]
        own = [np.moveaxis(x, a, 0).reshape(x.shape[a], -1) for a, x in zip(self.axes, leaves, strict=True) if a is not None]
        return np.concatenate([*shared, np.concatenate(own, axis=1).ravel()])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Arrow:
    """A symmetric matrix of that shape, for vectors in the order of a layout.

    Attributes:
        outer: of what is shared: (k, k).
        coupling: of each group with what is shared: (groups, own, k).
        within: of each group: (groups, own, own).
    """

    outer: Any
    coupling: Any
    within: Any

    @classmethod
    def of_products(cls, products: Any, layout: Layout) -> Self:
        """From the products of a matrix with the `probes` of its layout."""
        k = layout.shared
        outer = products[:k, :k]
        of_groups = products[:, k:].reshape(len(products), layout.groups, layout.own)
        within = np.moveaxis(of_groups[k:], 0, -1)
        return cls((outer + outer.T) / 2, np.moveaxis(of_groups[:k], 0, -1), (within + np.swapaxes(within, 1, 2)) / 2)

    def times(self, vector: Any) -> Any:
        k, (groups, own, _) = self.outer.shape[0], self.within.shape
        shared, of_groups = vector[:k], vector[k:].reshape(groups, own)
        top = self.outer @ shared + jnp.einsum("jqk,jq->k", self.coupling, of_groups)
        below = jnp.einsum("jqk,k->jq", self.coupling, shared) + jnp.einsum("jqr,jr->jq", self.within, of_groups)
        return jnp.concatenate([top, below.ravel()])

    def __add__(self, other: "Arrow") -> "Arrow":
        return tree_map(lambda a, b: a + b, self, other)

    def scaled(self, number: float) -> "Arrow":
        return tree_map(lambda a: number * a, self)

    @property
    def diagonal(self) -> np.ndarray:
        return np.concatenate([np.diagonal(self.outer), np.diagonal(self.within, axis1=1, axis2=2).ravel()])


def probes(layout: Layout) -> np.ndarray:
    """Vectors whose products with an arrow tell all of it: one for each shared number, and one for each number of all groups."""
    k, groups, own = layout.shared, layout.groups, layout.own
    found = np.zeros((k + own, layout.size))
    found[:k, :k] = np.eye(k)
    for number in range(own):
        found[k + number, k:].reshape(groups, own)[:, number] = 1
    return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ArrowWhitening:
    """position = origin + L z for the L of an arrow: groups given what is shared, and what is shared.

    z is one vector in the order of the layout. `outer`, `coupling` and `within` are L's.
    """

    origin: PyTree
    outer: Any
    coupling: Any
    within: Any
    layout: Layout = field(metadata={"static": True})

    dense = True
    """z is one vector, and all correlations are removed."""

    @classmethod
    def of(cls, precision: Arrow, origin: PyTree, layout: Layout) -> Self:
        """That of a positive definite precision: L Lᵀ is its inverse."""
        outer, coupling, within = (np.asarray(x, np.float64) for x in (precision.outer, precision.coupling, precision.within))
        own = np.swapaxes(np.linalg.inv(np.linalg.cholesky(within)), 1, 2)
        shift = np.linalg.solve(within, coupling)
        left = outer - np.einsum("jqk,jql->kl", coupling, shift)
        scale = np.sqrt(np.maximum(np.diag(left), np.finfo(float).tiny))
        shared = np.linalg.inv(np.linalg.cholesky(left / np.outer(scale, scale))).T / scale[:, None]
        arrays = tuple(jnp.asarray(x, jnp.result_type(float)) for x in (shared, -shift @ shared, own))
        return cls(origin, arrays[0], arrays[1], arrays[2], layout)

    def moved(self, z: jax.Array) -> PyTree:
        """L z, as a tree."""
        shared, own = self.layout.cut(z)
        of_groups = jnp.einsum("jqr,jr->jq", self.within, own) + jnp.einsum("jqk,k->jq", self.coupling, shared)
        return self.layout.tree(self.outer @ shared, of_groups, self.origin)

    def leave(self, z: jax.Array) -> PyTree:
        """From z to the position."""
        return tree_map(jnp.add, self.origin, self.moved(z))

    def enter(self, position: PyTree) -> jax.Array:
        """From the position to z."""
        shared, own = self.layout.parts(tree_map(jnp.subtract, position, self.origin))
        first = jnp.linalg.solve(self.outer, shared)
        rest = own - jnp.einsum("jqk,k->jq", self.coupling, first)
        return jnp.concatenate([first, jnp.linalg.solve(self.within, rest[..., None])[..., 0].ravel()])

    def leave_all(self, *several: jax.Array) -> tuple[PyTree, ...]:
        """The same for several z."""
        return tuple(map(self.leave, several))

    def pull_back(self, gradient: PyTree) -> jax.Array:
        """A gradient with respect to the position, as one with respect to z."""
        shared, own = self.layout.parts(gradient)
        first = self.outer.T @ shared + jnp.einsum("jqk,jq->k", self.coupling, own)
        return jnp.concatenate([first, jnp.einsum("jrq,jr->jq", self.within, own).ravel()])

    def zero(self) -> jax.Array:
        """The z of the origin."""
        return jnp.zeros(self.layout.size, self.outer.dtype)

    @property
    def factor(self) -> jax.Array:
        """L as a matrix, its rows in the order of the tree."""
        return jax.vmap(lambda z: flat(self.moved(z)))(jnp.eye(self.layout.size, dtype=self.outer.dtype)).T

    @property
    def scales(self) -> np.ndarray:
        """The standard deviation of every number, in the order of the layout."""
        shared = np.linalg.norm(np.asarray(self.outer), axis=1)
        own = np.sqrt(np.sum(np.asarray(self.coupling) ** 2, axis=2) + np.sum(np.asarray(self.within) ** 2, axis=2))
        return np.concatenate([shared, own.ravel()])

    def of_quadratic(self, matrix: Arrow) -> Arrow:
        """Lᵀ A L of an arrow A: an arrow again."""
        outer, coupling, within = (np.asarray(x, np.float64) for x in (self.outer, self.coupling, self.within))
        a, b, d = (np.asarray(x, np.float64) for x in (matrix.outer, matrix.coupling, matrix.within))
        bl = b @ outer
        dk = d @ coupling
        cross = np.einsum("jqk,jql->kl", coupling, bl)
        top = outer.T @ a @ outer + cross + cross.T + np.einsum("jqk,jql->kl", coupling, dk)
        below = np.swapaxes(within, 1, 2) @ (bl + dk)
        return Arrow(top, below, np.swapaxes(within, 1, 2) @ d @ within)
