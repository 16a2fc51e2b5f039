"""Which rows a minibatch has: row numbers from random keys, on the device or by the host.

A minibatch is the first n distinct values of a stream of independent uniform row numbers. That is sampling without replacement
done one row at a time, so every subset of n rows is equally likely: exactly, not approximately. Where there is a compiled
function for it the host makes the streams, the same numbers as JAX's, while the device does something else.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import PyTree
from sgmcmc.rows import native


def stream_length(n_rows: int, batch_size: int) -> int:
    """Draws after which n distinct rows have come up, but for a chance of about 1e-15 (then the stream is drawn again)."""
    share = batch_size / n_rows
    mean = -n_rows * math.log1p(-share)
    deviation = math.sqrt(n_rows * max(0.0, share / (1 - share) + math.log1p(-share)))
    return math.ceil(mean + 8 * deviation) + 8


def per_key(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Map a function of one key and other arguments over keys with any number of axes, flattened: nested maps compile slowly."""

    @wraps(function)
    def mapped(keys: jax.Array, *others: Any) -> jax.Array:
        values = jax.vmap(lambda key: function(key, *others))(keys.ravel())
        return values.reshape(*keys.shape, *values.shape[1:])

    return mapped


@partial(jax.jit, static_argnums=(2, 3))
@per_key
def streams(key: jax.Array, attempt: Any, n_rows: int, length: int) -> jax.Array:
    """Independent uniform row numbers, for every key."""
    return jax.random.randint(jax.random.fold_in(key, attempt), (length,), 0, n_rows, jnp.int32)


@partial(jax.jit, static_argnums=(1, 2))
@per_key
def permutations(key: jax.Array, n_rows: int, batch_size: int) -> jax.Array:
    """n of the N rows by shuffling all of them, for every key: O(n) where n is more than half of N."""
    return jax.random.permutation(key, n_rows)[:batch_size].astype(jnp.int32)


@partial(jax.jit, static_argnums=1)
@per_key
def starts(key: jax.Array, n_rows: int) -> jax.Array:
    """A uniform row number, for every key."""
    return jax.random.randint(key, (), 0, n_rows, jnp.int32)


@partial(jax.jit, static_argnums=(1, 2))
@per_key
def distinct_rows(key: jax.Array, n_rows: int, batch_size: int) -> jax.Array:
    """Minibatches of row numbers, computed on the device for every key."""
    if 2 * batch_size > n_rows:
        return permutations(key, n_rows, batch_size)
    length = stream_length(n_rows, batch_size)

    def draw(attempt: Any) -> tuple[Any, jax.Array, jax.Array]:
        stream = streams(key, attempt, n_rows, length)
        order = jnp.argsort(stream, stable=True)
        ordered = stream[order]
        again = jnp.concatenate([jnp.zeros(1, bool), ordered[1:] == ordered[:-1]])
        new = jnp.zeros(length, bool).at[order].set(~again)
        return attempt + 1, stream[jnp.argsort(~new, stable=True)[:batch_size]], new.sum() >= batch_size

    return jax.lax.while_loop(lambda carry: ~carry[2], lambda carry: draw(carry[0]), draw(0))[1]


@jax.jit
def plain(keys: jax.Array) -> jax.Array:
    """Keys as plain numbers."""
    return jax.random.key_data(keys)


def host_draws(keys: jax.Array) -> bool:
    """Whether the host can make the streams of these keys itself."""
    known = str(jax.random.key_impl(keys)) == "threefry2x32" and getattr(jax.config, "jax_threefry_partitionable", True)
    return known and native.library() is not None


def draw_distinct(keys: jax.Array, n_rows: int, batch_size: int) -> PyTree:
    """What the host needs to know minibatches of distinct rows, for every key: the rows themselves; the keys as plain numbers; or
    keys and streams.
    """
    if 2 * batch_size > n_rows:
        return permutations(keys, n_rows, batch_size)
    if host_draws(keys):
        return plain(keys)
    return keys, streams(keys, 0, n_rows, stream_length(n_rows, batch_size))


def distinct(drawn: PyTree, count: int, n_rows: int, batch_size: int) -> tuple[int, np.ndarray]:
    """How many minibatches were drawn, and the row numbers of the first `count` of them."""
    if isinstance(drawn, tuple):
        keys, numbers = drawn
        return len(keys), first_distinct(keys, np.asarray(numbers)[:count], n_rows, batch_size)
    numbers = np.asarray(drawn)[:count]
    return len(drawn), distinct_of_keys(numbers, n_rows, batch_size) if numbers.dtype == np.uint32 else numbers


def distinct_of_keys(keys: np.ndarray, n_rows: int, batch_size: int) -> np.ndarray:
    """Minibatches from keys as plain numbers, by the compiled function."""
    every, length = keys.reshape(-1, 2), stream_length(n_rows, batch_size)
    bits = (8 * batch_size - 1).bit_length()  # mostly empty: collisions would make it as slow as sorting
    seen = np.empty((1 << bits, 2), np.int32)

    def draw(places: Any, attempt: int, out: np.ndarray) -> np.ndarray:
        found, keys, poor = native.library(), np.ascontiguousarray(every[places]), np.empty(len(out), bool)
        assert found is not None
        numbers = (len(out), attempt, n_rows, length, batch_size)
        found.draw_distinct(keys.ctypes.data, *numbers, out.ctypes.data, seen.ctypes.data, bits, poor.ctypes.data)
        return np.flatnonzero(poor)

    return _enough(len(every), batch_size, draw).reshape(*keys.shape[:-1], batch_size)


def first_distinct(keys: jax.Array, drawn: jax.Array | np.ndarray, n_rows: int, batch_size: int) -> np.ndarray:
    """Minibatches from their streams."""
    every = np.asarray(drawn).reshape(-1, drawn.shape[-1])

    def draw(places: Any, attempt: int, out: np.ndarray) -> np.ndarray:
        again = attempt > 0
        found = np.asarray(streams(keys.ravel()[places], attempt, n_rows, every.shape[1])) if again else every
        return take_first_distinct(found, out)

    return _enough(len(every), batch_size, draw).reshape(*drawn.shape[:-1], batch_size)


def _enough(count: int, batch_size: int, draw: Callable[[Any, int, np.ndarray], np.ndarray]) -> np.ndarray:
    """So many minibatches: `draw(places, attempt, out)` makes those of some places, and returns which of them have too few rows.
    These are drawn again.
    """
    rows = np.empty((count, batch_size), np.int32)
    poor, attempt = draw(slice(None), 0, rows), 0
    while len(poor):
        attempt += 1
        again = np.empty((len(poor), batch_size), np.int32)
        still = draw(poor, attempt, again)
        rows[poor], poor = again, poor[still]
    return rows


def take_first_distinct(streams: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the first distinct numbers of every stream into its row of `out`, as many as that has room for. Returns the places of
    the streams that have too few; their rows may hold anything.

    By sorting: most streams begin without a repetition, and order shows which do not.
    """
    wanted = out.shape[1]
    np.copyto(out, streams[:, :wanted])
    ordered = np.sort(out, axis=1)
    repeated = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    pending = streams[repeated]
    packed = np.sort(pending.astype(np.int64) << 32 | np.arange(pending.shape[1]), axis=1)  # plain integers are sorted fast
    number, place = packed >> 32, packed & (2**32 - 1)
    fresh = np.ones(pending.shape, bool)
    fresh[:, 1:] = number[:, 1:] != number[:, :-1]
    new = np.empty_like(fresh)  # where a number comes up first
    np.put_along_axis(new, place, fresh, axis=1)
    enough = new.sum(axis=1) >= wanted
    new &= np.cumsum(new, axis=1) <= wanted
    out[repeated[enough]] = pending[enough][new[enough]].reshape(-1, wanted)
    return repeated[~enough]
