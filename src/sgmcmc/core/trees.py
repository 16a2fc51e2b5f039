"""Arithmetic on parameter trees, and names for their leaves."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.types import PyTree

tree_map = jax.tree.map


def leaf_names(tree: PyTree) -> list[str]:
    """The leaves' names as a user would write them: `beta`, `layer.weights`; a bare array is `params`."""
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "params" for path, _ in paths]


def number_names(tree: PyTree) -> list[str]:
    """A name for every number of a tree: `beta[3]`."""
    leaves = zip(leaf_names(tree), jax.tree.leaves(tree), strict=True)
    return [label for name, leaf in leaves for label in labels(name, np.shape(leaf))]


def labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """A name for every number of an array."""
    return [name + (f"[{','.join(map(str, index))}]" if index else "") for index in np.ndindex(*shape)]


def children(tree: PyTree) -> dict[str, PyTree]:
    """The top level of a tree by name."""
    one_level = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    return {jax.tree_util.keystr(path, simple=True) or "params": child for path, child in one_level}


def size(tree: PyTree) -> int:
    """The number of numbers in a tree."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(tree))


def shapes(tree: PyTree) -> PyTree:
    """The tree with its arrays replaced by their shapes and dtypes."""
    return tree_map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tree)


def split(vector: jax.Array, like: PyTree) -> PyTree:
    """Cut the last axis of `vector` into a tree shaped like `like`; other axes stay in front."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    pieces = jnp.split(vector, ends[:-1], axis=-1)
    front = vector.shape[:-1]
    shaped = [piece.reshape(front + leaf.shape).astype(leaf.dtype) for piece, leaf in zip(pieces, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def flat(tree: PyTree) -> jax.Array:
    """All numbers of a tree in one vector, traced."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def join(tree: PyTree) -> np.ndarray:
    """All numbers of a tree in one float64 vector on the host."""
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def all_finite(*trees: PyTree) -> jax.Array:
    """Whether every number of every tree is finite."""
    checks = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(trees)]
    return jnp.stack(checks).all()


def where(condition: Any, yes: PyTree, no: PyTree) -> PyTree:
    """One tree or the other, leaf by leaf."""
    return tree_map(lambda a, b: jnp.where(condition, a, b), yes, no)


def pick(tree: PyTree, number: Any) -> PyTree:
    """One entry along the first axis of every leaf."""
    return tree_map(lambda x: x[number], tree)
