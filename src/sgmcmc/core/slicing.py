"""Pieces of arrays inside compiled loops, copied as fast as memory allows.

The CPU backend copies a slice by loops over its axes and, where the last axis is short, unrolls these number by number. Adjacent
rows are one run of memory: cut from the flattened array, and kept apart from what gives them their shape again, they are one loop
of wide copies, several times as fast. The bits are the same.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import PyTree, tree_map

LONGEST_UNROLLED = 96
"""Numbers on the last axis up to which the compiler may unroll its loop."""

MOST_NUMBERS = 2**31 - 1
"""Where a flattened array is longer than this, JAX's integers cannot say where a piece begins."""


def entry_of(tree: PyTree, number: Any) -> PyTree:
    """One entry along the first axis of every leaf."""
    return tree_map(lambda x: x[number] if isinstance(number, int) else stretch(x, number, 1)[0], tree)


def stretch(array: jax.Array, start: jax.Array, count: int) -> jax.Array:
    """`array[start : start + count]`, of which all are there."""
    if not unrolled(array.shape) or array.size > MOST_NUMBERS or jax.default_backend() != "cpu":
        return jax.lax.dynamic_slice_in_dim(array, start, count, 0)
    width = math.prod(array.shape[1:])
    return _run(array.reshape(-1), start * width, count * width).reshape(count, *array.shape[1:])


def _run(numbers: jax.Array, start: jax.Array, length: int) -> jax.Array:
    """So many adjacent numbers; where there are many starts (chains), for one after the other."""

    @jax.custom_batching.custom_vmap
    def run(numbers: jax.Array, start: jax.Array) -> jax.Array:
        return jax.lax.cond(  # always the first: what the compiler does not know, it does not merge with what comes after
            start >= 0,
            lambda: jax.lax.dynamic_slice_in_dim(numbers, start, length),
            lambda: jnp.zeros(length, numbers.dtype),
        )

    @run.def_vmap
    def runs(count: int, batched: list[bool], numbers: jax.Array, start: jax.Array) -> tuple[jax.Array, bool]:
        several, starts = batched

        def add(k: Any, out: jax.Array) -> jax.Array:
            mine, place = (numbers[k] if several else numbers), (start[k] if starts else start)
            return jax.lax.dynamic_update_slice_in_dim(out, jax.lax.dynamic_slice_in_dim(mine, place, length), k * length, 0)

        return jax.lax.fori_loop(0, count, add, jnp.zeros(count * length, numbers.dtype)).reshape(count, length), True

    return run(numbers, start)


def unrolled(shape: tuple[int, ...]) -> bool:
    """Whether entries of such an array are copied number by number: more than one of a short last axis each."""
    return len(shape) > 1 and 1 < shape[-1] <= LONGEST_UNROLLED
