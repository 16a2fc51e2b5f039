"""What the draws of a run depend on, as short texts by name, so that a run is only ever continued as the same run.

Functions are known by what JAX makes of them, not by their source: a renamed variable changes nothing, another constant does.
Texts are the same in every process, on every machine.
"""

import hashlib
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.sameness import itself, sameness_of_traced
from sgmcmc.core.trees import PyTree, leaf_names, shapes, size

WHOLE_BYTES = 256 << 20
"""An array up to this size is hashed whole."""

BLOCKS, BLOCK_BYTES = 64, 4 << 20
"""Of a larger one so many blocks of rows of about this size, the first and the last among them."""

FEW = 4
"""A tree of so many numbers is written out; of a larger one this many."""

DATA, ABSENT = "data", "not there"
VERSIONS = ("sgmcmc", "jax", "jaxlib", "numpy", "numpyro")
"""Software of which another version may round differently, or draw other random numbers: the law of a run stays the same."""


def fingerprint(dataset: Mapping[str, Any], functions: Mapping[str, Sequence[Any]], values: Mapping[str, Any]) -> dict[str, str]:
    """What a run depends on.

    Args:
        dataset: as in `of_data`.
        functions: what the chains climb: the function (or None) and its arguments or their shapes, the first of which it is
            differentiated by.
        values: everything else that `of_value` takes without arguments. Give what has functions in it as texts made by that.
    """
    data = {f"{DATA}.{name}" if name else DATA: text for name, text in of_data(dataset).items()}
    traced = {
        name: "None" if function is None else of_function(function, *arguments, gradient=True)
        for name, (function, *arguments) in functions.items()
    }
    return environment() | data | traced | {name: of_value(value) for name, value in values.items()}


def environment() -> dict[str, str]:
    """The software and settings that change bits.

    NumPy counts by its feature release, which may change random streams; Python not at all. Neither does the machine: another
    processor may round differently, but a run that moves to another node of a cluster goes on.
    """
    settings = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")
    versions = {name: version(name) for name in VERSIONS}
    versions["numpy"] = ".".join(versions["numpy"].split(".")[:2])
    return {**versions, "backend": jax.default_backend()} | {name: str(getattr(jax.config, name)) for name in settings}


def of_function(function: Callable[..., Any], *arguments: PyTree, gradient: bool = False) -> str:
    """A function of arrays, on arguments of these shapes: a hash of its jaxpr, and one of the arrays it captured.

    `gradient` includes the derivative by the first argument, for functions that define their own. What a callback to Python
    does is not seen.
    """
    return _of_jaxpr(_traced(function, arguments, gradient))


def known(function: Callable[..., Any] | None, *arguments: PyTree, gradient: bool = False) -> Hashable:
    """A function for the programs that this process keeps, which are called with other shapes too: by what JAX makes of it, as in
    `of_function`, and by its code and what that refers to. One that calls back to Python is the same as itself alone.
    """
    if function is None:
        return None
    try:
        jaxpr = _traced(function, arguments, gradient)
    except Exception:  # refused, if at all, by who calls it
        return object()
    alone = itself(function) if "callback[" in str(jaxpr) else None
    return sameness_of_traced(function, _of_jaxpr(jaxpr)), alone


def _traced(function: Callable[..., Any], arguments: Sequence[PyTree], gradient: bool) -> Any:
    def both(first: PyTree, *others: PyTree) -> PyTree:
        value, pull = jax.vjp(lambda params: jnp.asarray(function(params, *others)), first)
        return value, pull(jnp.ones_like(value))

    return jax.make_jaxpr(both if gradient else function)(*map(shapes, arguments))


def _of_jaxpr(traced: Any) -> str:
    # Addresses of function objects differ from process to process.
    code, captured = _hash(_without_addresses(str(traced)).encode()), _hash()
    for constant in _constants(traced):
        (captured if np.ndim(constant) else code).update(_bytes(constant))
    return f"function: {code.hexdigest()}, captured {captured.hexdigest()}"


def of_data(dataset: Mapping[str, Any]) -> dict[str, str]:
    """The dataset, one text for each array: its dtype, shape and a hash. A folder of rows is one text, named "".

    The hash is of all bytes of arrays up to 256 MB. Of larger ones it is of 64 blocks of 4 MB, evenly spaced: a change of a
    few rows between two blocks goes unseen. A folder of rows has a checksum of everything, made when it was written.
    """
    checksum = getattr(dataset, "checksum", None)
    if checksum is not None:
        n_rows, shuffled = getattr(dataset, "n_rows", "?"), getattr(dataset, "shuffled", "?")
        return {"": f"{n_rows} rows of {', '.join(dataset)}, shuffled: {shuffled}, checksum {checksum}"}
    return {name: _of_array(name, array) for name, array in dataset.items()}


def of_value(value: Any, *arguments: PyTree) -> str:
    """Any setting: numbers, text, None, constraints, trees and dataclasses of these.

    Functions anywhere in it are known by what they do with `arguments`, as in `of_function`.
    """
    if value is None or isinstance(value, str):
        return str(value)
    if _is_constraint(value):
        arrays = [_bytes(leaf) for leaf in jax.tree.leaves(value) if np.ndim(leaf)]  # which the repr may shorten
        return _without_addresses(repr(value)) + (f" (hash {_hash(*arrays).hexdigest()})" if arrays else "")
    ours = is_dataclass(value) and type(value).__module__.startswith("sgmcmc.")
    if ours or jax.tree_util.treedef_is_leaf(jax.tree.structure(value)):
        return _of_leaf(value, arguments)
    named = jax.tree_util.tree_leaves_with_path(value, is_leaf=_is_constraint)
    if not named:
        return _without_addresses(repr(value))
    if all(_is_number(leaf) for _, leaf in named):
        return _of_numbers(value)
    names = (jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in named)
    return ", ".join(f"{name}: {of_value(leaf, *arguments)}" for name, (_, leaf) in zip(names, named, strict=True))


def differences(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, each in a sentence; nothing if the two are the same."""
    pairs = {name: (recorded.get(name, ABSENT), now.get(name, ABSENT)) for name in {**recorded, **now}}
    return [_difference(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]


def _difference(name: str, was: str, now: str) -> str:
    if name == DATA or name.startswith(f"{DATA}."):
        return f"the data differ: {_data_difference(name[len(DATA) + 1 :] or 'the folder of rows', was, now)}"
    was_told, is_told = (re.sub(r"function: \w+, captured \w+", "a function", text) for text in (was, now))
    if was_told != is_told:
        return f"{name} was {was_told}, is {is_told}"
    codes, codes_now = (re.findall(r"function: (\w+)", text) for text in (was, now))
    if codes == codes_now:
        return f"{name} captures other arrays than when it made the run"
    return f"{name} is another function than the one that made the run"


def _data_difference(subject: str, was: str, now: str) -> str:
    if ABSENT in (was, now):
        return f"{subject} was {was}, is {now}"
    kind, kind_now = (text.rpartition(", ")[0] for text in (was, now))
    return f"{subject} has other values" if kind == kind_now else f"{subject} was {kind}, is {kind_now}"


def _constants(node: Any) -> Iterator[Any]:
    """All arrays and numbers in a jaxpr, and in those inside it, in its own order."""
    if hasattr(node, "consts"):
        yield from node.consts
        node = node.jaxpr
    if hasattr(node, "eqns"):
        for equation in node.eqns:
            yield from (variable.val for variable in equation.invars if hasattr(variable, "val"))
            for name in sorted(equation.params):
                yield from _constants(equation.params[name])
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _constants(item)
    elif isinstance(node, np.ndarray | jax.Array):
        yield node


def _of_array(name: str, array: Any) -> str:
    array = array if hasattr(array, "dtype") else np.asarray(array)
    shape, dtype = tuple(np.shape(array)), np.dtype(array.dtype)
    if dtype.hasobject:
        raise InputError(f"dataset[{name!r}] has dtype {dtype}; expected an array of numbers")
    digest = hashlib.sha1(usedforsecurity=False)  # twice as fast as others, and no one is to be kept from forging it
    for block in _blocks(array, shape, dtype):
        digest.update(np.ascontiguousarray(block).view(np.uint8).data if block.size else b"")
    return f"{dtype} {shape}, hash {digest.hexdigest()[:16]}"


def _blocks(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> Iterator[np.ndarray]:
    """All rows, or some of a large array, as far as possible without a copy."""
    if not shape:
        yield np.asarray(array)[None]
        return
    n_rows, per_row = shape[0], max(1, dtype.itemsize * math.prod(shape[1:]))
    rows = max(1, BLOCK_BYTES // per_row)
    if n_rows * per_row <= WHOLE_BYTES:
        starts = range(0, n_rows, rows)
    else:
        starts = np.unique(np.linspace(0, max(0, n_rows - rows), BLOCKS).astype(np.int64)).tolist()
    for start in starts:
        yield np.asarray(array[start : start + rows])


def _of_leaf(value: Any, arguments: Sequence[PyTree]) -> str:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if _is_number(value):
        return repr(np.asarray(value).item()) if np.ndim(value) == 0 else _of_numbers(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: getattr(value, one.name) for one in fields(value)}
        own = "__dataclass_fields__" in vars(type(value))  # else it has attributes beside the fields that it inherits
        return _of_parts(value, parts if own else parts | vars(value), arguments)
    if callable(value) and not isinstance(value, type):
        if not arguments:
            raise InputError(f"{describe(value)} cannot be told from other functions without arguments to trace it on")
        return of_function(value, *arguments)
    if type(value).__repr__ is object.__repr__ and getattr(value, "__dict__", None):
        return _of_parts(value, vars(value), arguments)  # an object of the user's that does not say what it is
    return _without_addresses(repr(value))


def _of_parts(value: Any, parts: Mapping[str, Any], arguments: Sequence[PyTree]) -> str:
    inside = (f"{name}={of_value(part, *arguments)}" for name, part in parts.items())
    return f"{type(value).__name__}({', '.join(inside)})"


def _of_numbers(tree: PyTree) -> str:
    leaves, names, total = jax.tree.leaves(tree), leaf_names(tree), size(tree)
    if total <= FEW and all(np.ndim(leaf) == 0 for leaf in leaves):
        return ", ".join(f"{name}: {np.asarray(leaf).item()!r}" for name, leaf in zip(names, leaves, strict=True))
    head = [repr(number) for leaf in leaves[:FEW] for number in np.ravel(np.asarray(leaf))[:FEW].tolist()][:FEW]
    digest = _hash(repr(names).encode(), *map(_bytes, leaves))
    return f"{', '.join(head)}{', ...' if total > len(head) else ''} ({total} numbers, hash {digest.hexdigest()})"


def _is_number(value: Any) -> bool:
    if isinstance(value, jax.Array):
        return not jnp.issubdtype(value.dtype, jax.dtypes.extended)
    if isinstance(value, np.ndarray | np.generic):
        return not value.dtype.hasobject
    return isinstance(value, bool | int | float | complex)


def _is_constraint(value: Any) -> bool:
    return any(base.__module__ == "numpyro.distributions.constraints" for base in type(value).__mro__)


def _bytes(array: Any) -> bytes:
    """An array's type, shape and contents."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    plain = np.asarray(array)
    return f"{plain.dtype} {plain.shape} ".encode() + plain.tobytes()


def _hash(*parts: bytes) -> Any:
    return hashlib.blake2b(b"".join(parts), digest_size=8)


def _without_addresses(text: str) -> str:
    return re.sub(r"( at)? ?0x[0-9a-fA-F]+", "", text)
