"""Tuning constants: one number, one per parameter, or (for step sizes) a function of the iteration."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, leaf_names, on_host, tree_map
from sgmcmc.problem.steps import Steps, share_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Schedule:
    """A step size for every parameter at every iteration, normalised once."""

    constant: PyTree | None
    function: Callable[[Any], Any] | None = field(default=None, metadata={"static": True})

    @property
    def varies(self) -> bool:
        return self.function is not None

    def at(self, t: Any, position: PyTree) -> PyTree:
        """The step sizes of iteration `t` (the first is 1), a tree like `position`."""
        return self.constant if self.function is None else broadcast(self.function(t), position)

    def weight(self, t: Any, position: PyTree) -> jax.Array:
        """What the draw of iteration `t` counts for in an average: its step size, averaged over the parameters; less where the
        step sizes themselves say so.
        """
        sizes = [jnp.mean(leaf) for leaf in jax.tree.leaves(self.at(t, position))]
        return jnp.mean(jnp.stack(sizes)) * share_of(self.function, t)

    def describe(self) -> Any:
        """The step sizes for the record: one number if all agree, else by parameter."""
        if self.function is not None:
            if isinstance(self.function, Steps):
                return f"{self.function}"
            return f"function of t, {np.float32(self.first):.3g} at t = 1"
        values = [_shortest(leaf) for leaf in jax.tree.leaves(self.constant)]
        if all(value == values[0] for value in values):
            return values[0]
        return dict(zip(leaf_names(self.constant), values, strict=True))

    @property
    def first(self) -> float:
        """The largest step size of iteration 1."""
        leaves = jax.tree.leaves(self.constant if self.function is None else self.function(1))
        return float(max(np.max(np.asarray(leaf)) for leaf in leaves))


def _shortest(leaf: Any) -> Any:
    """Numbers as the user wrote them: 0.001, not what float32 makes of it."""
    array = np.asarray(leaf)
    return [_shortest(row) for row in array] if array.ndim else float(str(array))


def step_schedule(stepsize: Any, position: PyTree, name: str = "stepsize") -> Schedule:
    """Check a step size as the user gave it and make a schedule of it."""
    # A tree of step sizes may be callable too: a module of Equinox is.
    structure = jax.tree.structure(stepsize)
    if not callable(stepsize) or (structure == jax.tree.structure(position) and not jax.tree_util.treedef_is_leaf(structure)):
        return Schedule(per_parameter(stepsize, position, name))
    try:
        first = stepsize(1)
        jax.eval_shape(lambda t: broadcast(stepsize(t), position, name), jnp.int32(1))
    except InputError:
        raise
    except Exception as error:
        expected = f"a function of the iteration written with jax.numpy, such as {name}=lambda t: 1e-4 * (10 + t) ** -0.33"
        failed = f"failed at t = 1 ({type(error).__name__}: {error})"
        raise InputError(f"{name} is a function that {failed}; expected {expected}") from error
    per_parameter(first, position, f"{name}(1)")
    return Schedule(None, stepsize)


def per_parameter(value: Any, position: PyTree, name: str, below: float = np.inf) -> PyTree:
    """One positive number less than `below` for each leaf of `position`, from one number or a (prefix of a) tree of numbers."""
    tree = broadcast(value, position, name)
    for number, leaf in enumerate(jax.tree.leaves(tree)):
        array = np.asarray(leaf)
        if not ((array > 0) & (array < below)).all():
            leaf_name = leaf_names(position)[number]
            expected = "a positive number" if below == np.inf else f"a number between 0 and {below:g}"
            raise InputError(f"{name} for parameter {leaf_name!r} is {describe(array.tolist())}; expected {expected}")
    return tree


def broadcast(value: Any, position: PyTree, name: str = "stepsize") -> PyTree:
    """Copy a number, or a prefix of the tree, to every leaf it covers."""
    _compare_names(value, position, name)
    try:
        whole = jax.tree.broadcast(value, position)
    except ValueError as error:
        expected = f"one number, or a tree of numbers like params (leaves {', '.join(leaf_names(position))})"
        raise InputError(f"{name} does not fit params: {describe(value)}; expected {expected}") from error
    return tree_map(lambda x, like: _as_number(x, like, name), whole, position)


def _compare_names(value: Any, position: PyTree, name: str) -> None:
    if not (isinstance(value, Mapping) and isinstance(position, Mapping)):
        return
    unknown, missing = sorted(set(value) - set(position)), sorted(set(position) - set(value))
    if unknown:
        raise InputError(f"{name} names an unknown parameter {unknown[0]!r}; params has {', '.join(map(str, position))}")
    if missing:
        raise InputError(f"{name} is missing for parameter {missing[0]!r}; give one number for all, or add {missing[0]!r} to it")
    for key in position:
        _compare_names(value[key], position[key], f"{name}[{key!r}]")


def _as_number(x: Any, like: Any, name: str) -> jax.Array:
    with suppress(TypeError, ValueError):
        dtype = jnp.result_type(like)
        array = jnp.asarray(on_host(x, dtype), dtype)
        if np.broadcast_shapes(array.shape, like.shape) == like.shape:
            return array
    raise InputError(f"{name} is {describe(x)} for a parameter of shape {like.shape}; expected a number or that shape")
