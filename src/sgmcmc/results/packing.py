"""Trees as JSON and plain arrays, and back: bit for bit, without pickle.

Packed are dicts with string keys, lists, tuples, None, Python numbers and strings, arrays of NumPy and JAX, and the library's
own records. Other nodes (modules of Equinox, named tuples) cannot be rebuilt from a file: where a subtree is built like one of
the trees handed over as `likes`, its leaves are stored, and its nodes taken from there again.
"""

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import treedef_is_leaf

from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.algorithms.gradients.held import HeldState
from sgmcmc.algorithms.gradients.second_order import BesidePrior, CurvedCentre, Matrix
from sgmcmc.algorithms.gradients.svrg import Anchor
from sgmcmc.algorithms.gradients.whitened import WhitenedState
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, State, leaf_names
from sgmcmc.problem.arrow import Arrow, ArrowWhitening, Layout
from sgmcmc.problem.whitening import Whitening
from sgmcmc.results.diagnostics import Pairs
from sgmcmc.results.keeps import MomentValues
from sgmcmc.results.quantiles import QuantileValues
from sgmcmc.results.words import Decision, Decisions

Packable = TypeVar("Packable")

SHAPES = (Whitening, ArrowWhitening, Arrow, Layout, Matrix, BesidePrior)
STATES = (State, Centre, CurvedCentre, Anchor, WhitenedState, HeldState)
OURS = (*STATES, *SHAPES, Decision, Decisions, MomentValues, QuantileValues, Pairs)
SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple}
NUMBERS: dict[str, Any] = {"int": int, "float": float}
RECORDS: dict[str, Any] = {record.__name__: record for record in OURS}


def packable(record: type[Packable]) -> type[Packable]:
    """A class decorator: dataclasses of rooms below this one that may be packed."""
    RECORDS[record.__name__] = record
    return record


def pack(tree: PyTree, *likes: PyTree) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What `json.dumps` takes, and the arrays it counts on; `np.save` keeps each without pickle.

    `likes` are trees whose nodes need not be dicts, lists and tuples, the user's params above all; None counts for nothing.
    """
    arrays: list[np.ndarray] = []
    structures = [jax.tree.structure(like) for like in likes]

    def packed(node: Any, place: str) -> Any:
        structure = jax.tree.structure(node)
        if structure in structures and structure.num_leaves and not treedef_is_leaf(structure):  # one leaf is like many things
            leaves = zip(leaf_names(node), jax.tree.leaves(node), strict=True)
            return {"like": structures.index(structure), "leaves": [packed(leaf, f"{place}.{name}") for name, leaf in leaves]}
        if node is None or isinstance(node, bool | str):
            return node
        if isinstance(node, jax.Array | np.ndarray | np.generic):
            plain, told = _plain(node, place)
            arrays.append(plain)
            return {"array": len(arrays) - 1, **told}
        if isinstance(node, numbers.Real):
            return {"int": int(node)} if isinstance(node, numbers.Integral) else {"float": repr(float(node))}
        if type(node) is dict and all(isinstance(key, str) for key in node):
            return {"dict": {key: packed(child, f"{place}.{key}") for key, child in node.items()}}
        if type(node) in (list, tuple):
            return {type(node).__name__: [packed(child, f"{place}[{k}]") for k, child in enumerate(node)]}
        name = type(node).__name__
        if RECORDS.get(name) is type(node):
            values = {one.name: packed(getattr(node, one.name), f"{place}.{one.name}") for one in fields(RECORDS[name])}
            return {"record": name, "values": values}
        raise _refusal(node, place)

    return {"root": packed(tree, ""), "likes": [None if like is None else outline(like) for like in likes]}, arrays


def unpack(spec: dict[str, Any], arrays: Sequence[np.ndarray], *likes: PyTree) -> PyTree:
    """The tree again. `likes` as they were given to `pack`; where one is left out, other nodes than dicts, lists and tuples
    become dicts of their leaves by name.
    """

    def again(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if "like" in node:
            number, leaves = node["like"], [again(leaf) for leaf in node["leaves"]]
            return _built(spec["likes"][number], likes[number] if number < len(likes) else None, leaves)
        if "record" in node:
            return RECORDS[node["record"]](**{name: again(value) for name, value in node["values"].items()})
        if "array" in node:
            return _array(arrays[node["array"]], node["dtype"], node["kind"])
        ((kind, value),) = node.items()
        if kind == "dict":
            return {key: again(child) for key, child in value.items()}
        return NUMBERS[kind](value) if kind in NUMBERS else SEQUENCES[kind](again(child) for child in value)

    return again(spec["root"])


def _built(recorded: Any, like: PyTree, leaves: list[Any]) -> PyTree:
    if like is None:
        return fill(recorded, iter(leaves))
    if outline(like) != recorded:
        raise InputError(f"the tree handed over to unpack has leaves {', '.join(leaf_names(like))}; expected the one packed")
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _array(plain: np.ndarray, dtype: str | None, kind: str) -> Any:
    plain = plain if dtype is None else plain.view(jnp.dtype(dtype))
    if kind == "scalar":
        return plain[()]
    representable = jax.dtypes.canonicalize_dtype(plain.dtype) == plain.dtype
    return jnp.asarray(plain) if kind == "jax" and representable else plain


def outline(tree: PyTree) -> Any:
    """How a tree is built, for JSON: what `fill` needs to build one of dicts, lists and tuples."""
    if tree is None:
        return None
    if type(tree) is dict and all(isinstance(key, str) for key in tree):
        return {"dict": {key: outline(tree[key]) for key in sorted(tree)}}  # sorted: the order of JAX's leaves
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [outline(child) for child in tree]}
    if treedef_is_leaf(jax.tree.structure(tree)):
        return "leaf"
    return {"names": leaf_names(tree)}


def fill(built: Any, leaves: Iterator[Any]) -> PyTree:
    """The tree of an outline with these leaves; nodes that are not dicts, lists and tuples become dicts by leaf name."""
    if built is None:
        return None
    if built == "leaf":
        return next(leaves)
    ((kind, children),) = built.items()
    if kind == "dict":
        return {key: fill(child, leaves) for key, child in children.items()}
    if kind == "names":
        return {name: next(leaves) for name in children}
    return SEQUENCES[kind](fill(child, leaves) for child in children)


def _plain(array: Any, place: str) -> tuple[np.ndarray, dict[str, Any]]:
    """An array as `np.save` takes it, and what it was before."""
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) or array.dtype.hasobject:
        raise _refusal(array, place)
    kind = "scalar" if isinstance(array, np.generic) else "jax" if isinstance(array, jax.Array) else "numpy"
    plain, dtype = np.asarray(array), array.dtype
    foreign = dtype.isbuiltin == 2  # bfloat16 and its like, of which np.save would forget the name
    return plain.view(f"u{dtype.itemsize}") if foreign else plain, {"dtype": dtype.name if foreign else None, "kind": kind}


def _refusal(node: Any, place: str) -> InputError:
    expected = "arrays, numbers and text in dicts with string keys, lists and tuples, or in a tree built like params"
    return InputError(f"{place.lstrip('.') or 'the tree'} is {describe(node)}, which cannot be saved; expected {expected}")
