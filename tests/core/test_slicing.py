"""Pieces of arrays: those of plain indexing, bit for bit, and copied as one run of memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.core import slicing
from sgmcmc.core.compiling import options
from sgmcmc.core.slicing import entry_of, stretch

RNG = np.random.default_rng(5)
ARRAYS = {
    "rows": RNG.normal(size=(40, 7)).astype(np.float32),
    "numbers": RNG.normal(size=40).astype(np.float32),
    "images": RNG.integers(0, 256, (40, 3, 5)).astype(np.uint8),
    "long rows": RNG.normal(size=(40, 200)).astype(np.float32),
    "one column": RNG.random((40, 1)) < 0.5,
    "no columns": np.empty((40, 0), np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_stretch_is_a_slice(name):
    array, starts = ARRAYS[name], np.array([0, 3, 30], np.int32)
    cut = jax.jit(lambda x, start: stretch(x, start, 10))
    for start in starts:
        np.testing.assert_array_equal(cut(array, start), array[start : start + 10])
    chains = jax.jit(jax.vmap(lambda x, start: stretch(x, start, 10), in_axes=(None, 0)))(array, starts)
    np.testing.assert_array_equal(chains, [array[start : start + 10] for start in starts])


def test_chains_with_rows_of_their_own():
    arrays, starts = RNG.normal(size=(3, 40, 7)).astype(np.float32), np.array([0, 30, 3], np.int32)
    together = jax.vmap(lambda x, start: stretch(x, start, 10))(arrays, starts)
    np.testing.assert_array_equal(together, [x[start : start + 10] for x, start in zip(arrays, starts, strict=True)])
    leaps = jax.jit(jax.vmap(entry_of, in_axes=(0, None)))(arrays, 11)
    np.testing.assert_array_equal(leaps, arrays[:, 11])


def test_entries_of_a_tree():
    tree = {"x": ARRAYS["images"], "y": (ARRAYS["numbers"], ARRAYS["rows"])}
    for number in (4, jnp.int32(4)):
        jax.tree.map(np.testing.assert_array_equal, entry_of(tree, number), jax.tree.map(lambda x: x[4], tree))


def test_an_array_too_long_to_be_flattened(monkeypatch):
    monkeypatch.setattr(slicing, "MOST_NUMBERS", 100)
    np.testing.assert_array_equal(stretch(ARRAYS["rows"], jnp.int32(5), 10), ARRAYS["rows"][5:15])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other backends copy as they like")
def test_the_compiled_copy_is_one_loop():
    """What this is for: the compiler keeps the run of memory apart from its shape. Plain slicing is the control."""

    x, starts, w = jnp.ones((400, 7)), jnp.arange(8, dtype=jnp.int32), jnp.ones(7)

    def shapes(cut):
        def whole(x, starts, w):
            return jax.lax.fori_loop(0, 8, lambda k, w: w + jnp.tanh(cut(x, starts[k]) @ w) @ cut(x, starts[k]), w)

        text = jax.jit(whole, compiler_options=options()).lower(x, starts, w).compile().as_text()
        lines = (line for line in text.splitlines() if "dynamic-slice" in line and "fusion(" in line)
        return [line.split("=")[1].split("{")[0].strip() for line in lines]

    assert "f32[700]" in shapes(lambda x, start: stretch(x, start, 100))
    assert "f32[700]" not in shapes(lambda x, start: jax.lax.dynamic_slice_in_dim(x, start, 100, 0))
