"""What to keep of a chain: its draws, some of them, or only what is to be known of them.

A keep object is asked, inside the compiled loop, to look at the parameters after every iteration. What it carries from
chunk to chunk stays on the device; what it hands over at the end of a chunk goes to a store on the host. Running averages
count from the first draw of a chunk, and the host adds chunks up in float64: in float32 the draws of a long run would vanish
beside their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import PyTree, State, shapes, size, tree_map, where

MOST_PAIRED = 3000
"""Numbers whose gradients are kept beside them."""


@runtime_checkable
class Keep(Protocol):
    """What `keep=` takes. `chained` says whether arrays have the chains on their first axis.

    >>> import sgmcmc
    >>> isinstance(sgmcmc.Moments(), sgmcmc.Keep)
    True
    """

    def begin(self) -> PyTree:
        """What is carried before the first iteration."""
        ...

    def open(self, carry: PyTree, params: PyTree, capacity: int, chained: bool) -> PyTree:
        """What the loop works on, at the start of a chunk of at most `capacity` iterations."""
        ...

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        """Look at the parameters; only where `hit` do they count, for `weight`."""
        ...

    def close(self, work: PyTree) -> tuple[PyTree, PyTree]:
        """What to carry on, and what to hand to the store."""
        ...

    def store(self, params: PyTree, total: int, chained: bool) -> Any:
        """A place on the host for what `total` looks hand over, or None. Its `add(piece)` takes in what a chunk handed over.

        For checkpoints `state()` is all that is needed to go on: dicts and lists of NumPy arrays, floats and None, which later
        pieces do not change; `restore(tree)` makes a fresh store what that one was, to the last bit.
        """
        ...

    def finish(self, carry: PyTree, store: Any) -> Any:
        """What the user gets; with a checkpoint it is asked for at every save, at first before any look."""
        ...


def _over_chains(function: Callable[..., Any], chained: bool) -> Callable[..., Any]:
    return jax.vmap(function) if chained else function


def _zeros(like: PyTree, *front: int) -> PyTree:
    return tree_map(lambda x: jnp.zeros((*front, *x.shape), x.dtype), like)


def _vectors(tree: PyTree, chains: tuple[int, ...]) -> jax.Array:
    """All numbers of each chain in one vector."""
    return jnp.concatenate([leaf.reshape(*chains, -1) for leaf in jax.tree.leaves(tree)], axis=-1)


class _Thinned:
    """Objects that look at every `thin`-th iteration that is not burn-in, and carry how many there were since the last."""

    thin: int

    def __post_init__(self) -> None:
        check_count(f"thin of {type(self).__name__}", self.thin)

    def begin(self) -> PyTree:
        return jnp.int32(0)

    def _next_turn(self, seen: jax.Array, hit: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Hits since the last turn (a count of all of them would overflow in a long run), and whether it is a turn now."""
        seen = (seen + hit) % self.thin
        return seen, hit & (seen == 0)


class Looks(_Thinned):
    """Rows of a function of the parameters, one for every look."""

    function: Callable[[PyTree], PyTree] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function is not None:
            check_function(type(self).__name__, self.function)

    def open(self, carry: PyTree, params: PyTree, capacity: int, chained: bool) -> PyTree:
        rows = -(-capacity // self.thin) + 1  # one more: the row that is written but does not count yet
        return carry, jnp.int32(0), _zeros(self.stored_shapes(params, chained), rows)

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        seen, count, buffer = work
        seen, stored = self._next_turn(seen, hit)
        if self.function is not None:
            look, blank = _over_chains(self.function, chained), self.stored_shapes(params, chained)
            params = tree_map(jnp.asarray, jax.lax.cond(stored, look, lambda _: _zeros(blank), params))
        buffer = tree_map(lambda rows, x: jax.lax.dynamic_update_index_in_dim(rows, x, count, 0), buffer, params)
        return seen, count + stored, buffer

    def close(self, work: PyTree) -> tuple[PyTree, PyTree]:
        seen, count, buffer = work
        return seen, (count, buffer)

    def stored_shapes(self, params: PyTree, chained: bool) -> PyTree:
        """Shapes and types of what is stored of one draw."""
        if self.function is None:
            return params
        look = _over_chains(self.function, chained)
        return jax.eval_shape(lambda p: tree_map(jnp.asarray, look(p)), shapes(params))


@dataclass(frozen=True)
class Trace(Looks):
    """Keep the draws, or a function of each.

    Args:
        function: what to store of the parameters; None stores them as they are.
        thin: store every `thin`-th of the iterations that are not burn-in.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-3, minibatch_size=10, n_iters=100, seed=1,
    ...                   keep={"square": sgmcmc.Trace(lambda params: params["mu"] ** 2, thin=10)})
    >>> out.kept["square"].shape
    (10,)
    """

    function: Callable[[PyTree], PyTree] | None = None
    thin: int = 1

    def store(self, params: PyTree, total: int, chained: bool) -> TraceStore:
        return TraceStore(self.stored_shapes(params, chained), total // self.thin, chained)

    def finish(self, carry: PyTree, store: TraceStore) -> PyTree:
        return store.draws()


@dataclass(frozen=True)
class PairTrace(Trace):
    """Keep what moves and its gradient there, as pairs: what the diagnostics work on.

    Of more than `most` numbers, every so-manyth is kept.
    """

    most: int = MOST_PAIRED

    def view(self, state: State) -> PyTree:
        position, gradient = (_vectors(tree, state.key.shape[:-1]) for tree in (state.position, state.gradient))
        some = paired_numbers(position.shape[-1], self.most)
        return {"position": position[..., some], "gradient": gradient[..., some]}


def paired_numbers(total: int, most: int = MOST_PAIRED) -> slice:
    """Which of so many numbers are kept in pairs."""
    return slice(None, None, -(-total // most))


def seen_by(keep: Keep, state: State) -> PyTree:
    """What a keep object looks at: the parameters, unless it asks for more of the state."""
    return keep.view(state) if isinstance(keep, PairTrace) else state.params


class TraceStore:
    """Draws on the host, in arrays of the size they will need (memory is touched only as draws arrive), or of twice that where
    a run is made longer. They are too many for a checkpoint.
    """

    def __init__(self, like: PyTree, rows: int, chained: bool) -> None:
        self.filled, self._rows, self._like, self._axis = 0, rows, like, int(chained)
        self._arrays = self._empty()

    def _empty(self) -> PyTree:
        """Arrays that are written draw by draw; in memory the draws come after the chains."""
        axis = self._axis
        arrays = tree_map(lambda x: np.empty((*x.shape[:axis], self._rows, *x.shape[axis:]), x.dtype), self._like)
        return tree_map(lambda array: np.moveaxis(array, axis, 0), arrays)

    def add(self, piece: tuple[Any, PyTree]) -> None:
        start, end = self.filled, self.filled + int(piece[0])
        if end > self._rows:
            before, self._rows = self._arrays, max(end, 2 * self._rows)
            self._arrays = self._empty()
            tree_map(lambda new, old: np.copyto(new[:start], old[:start]), self._arrays, before)
        tree_map(lambda array, rows: np.copyto(array[start:end], np.asarray(rows)[: end - start]), self._arrays, piece[1])
        self.filled = end

    def draws(self) -> PyTree:
        return tree_map(lambda array: np.moveaxis(array[: self.filled], 0, self._axis), self._arrays)


class RunningStore:
    """Weighted means (and what else adds up) of chunks, merged on the host in float64: no draw is too small to count."""

    def __init__(self, like: PyTree) -> None:
        self.weight, self.mean, self.square, self.cross = 0.0, None, None, None
        self._structure, self._like = jax.tree.structure(like), like

    @property
    def nothing(self) -> PyTree:
        """The mean of no draws at all."""
        return tree_map(lambda x: np.full(x.shape, np.nan), self._like)

    def add(self, piece: dict[str, PyTree]) -> None:
        """Merge a chunk's weight, mean (counted from its origin) and sums of squares about that mean."""
        weight = float(piece["weight"])
        if weight == 0:
            return
        chunk = {name: tree_map(lambda x: np.asarray(x, np.float64), piece.get(name)) for name in ("mean", "square", "cross")}
        chunk["mean"] = tree_map(lambda origin, m: np.asarray(origin, np.float64) + m, piece["origin"], chunk["mean"])
        if self.mean is None:
            self.weight, self.mean, self.square, self.cross = weight, chunk["mean"], chunk["square"], chunk["cross"]
            return
        total, between = self.weight + weight, self.weight * weight / (self.weight + weight)
        apart = tree_map(np.subtract, chunk["mean"], self.mean)
        self.mean = tree_map(lambda m, a: m + weight / total * a, self.mean, apart)
        if self.square is not None:
            self.square = tree_map(lambda s, t, a: s + t + between * a**2, self.square, chunk["square"], apart)
        if self.cross is not None:
            vector = np.concatenate([a.reshape(*self.cross.shape[:-2], -1) for a in jax.tree.leaves(apart)], axis=-1)
            self.cross = self.cross + chunk["cross"] + between * vector[..., :, None] * vector[..., None, :]
        self.weight = total

    def state(self) -> dict[str, Any]:
        """Trees as lists of their leaves, so that parameters of any type can be written to a file."""
        trees = (self.mean, self.square)
        mean, square = (None if tree is None else list(map(np.asarray, jax.tree.leaves(tree))) for tree in trees)
        return {"weight": self.weight, "mean": mean, "square": square, "cross": self.cross}

    def restore(self, tree: dict[str, Any]) -> None:
        self.weight, self.cross = float(tree["weight"]), tree["cross"]
        self.mean, self.square = (
            None if leaves is None else jax.tree.unflatten(self._structure, [np.asarray(x)[()] for x in leaves])
            for leaves in (tree["mean"], tree["square"])
        )


class _Running(_Thinned):
    """Objects that start afresh with every chunk and leave adding up to the host."""

    def open(self, carry: PyTree, params: PyTree, capacity: int, chained: bool) -> PyTree:
        zeros = _zeros(self._shapes(params, chained))
        weight = jnp.zeros((), jnp.result_type(float))
        return carry, {"weight": weight, "origin": zeros, "mean": zeros} | self._sums(zeros, chained)

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        seen, running = work
        seen, looked = self._next_turn(seen, hit)

        def look(running: PyTree) -> PyTree:
            return _merged(running, self._value(params, chained), weight)

        return seen, jax.lax.cond(looked, look, lambda running: running, running)

    def close(self, work: PyTree) -> tuple[PyTree, PyTree]:
        return work

    def store(self, params: PyTree, total: int, chained: bool) -> RunningStore:
        return RunningStore(self._shapes(params, chained))

    def _value(self, params: PyTree, chained: bool) -> PyTree:
        """What is averaged: whole numbers as floats."""
        return tree_map(lambda x: x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.result_type(float)), params)

    def _sums(self, zeros: PyTree, chained: bool) -> dict[str, PyTree]:
        """What adds up besides the mean: squares about it, the products of all numbers."""
        return {}

    def _shapes(self, params: PyTree, chained: bool) -> PyTree:
        return jax.eval_shape(lambda p: self._value(p, chained), shapes(params))


def _merged(running: dict[str, PyTree], value: PyTree, weight: jax.Array) -> dict[str, PyTree]:
    """The mean and the sums after one more value."""
    total = running["weight"] + weight
    share = weight / jnp.where(total > 0, total, 1)
    origin = where(running["weight"] == 0, value, running["origin"])
    value = tree_map(jnp.subtract, value, origin)
    before = tree_map(jnp.subtract, value, running["mean"])
    mean = tree_map(lambda m, b: m + share.astype(m.dtype) * b, running["mean"], before)
    after = tree_map(jnp.subtract, value, mean)
    merged = {"weight": total, "origin": origin, "mean": mean}
    if "square" in running:
        merged["square"] = tree_map(lambda s, a, b: s + weight.astype(s.dtype) * a * b, running["square"], before, after)
    if "cross" in running:
        x, y = (_vectors(tree, running["cross"].shape[:-2]) for tree in (before, after))
        merged["cross"] = running["cross"] + weight * x[..., :, None] * y[..., None, :]
    return merged


@dataclass(frozen=True)
class MomentValues:
    """What `Moments` returns: trees like the parameters (chains first, where there are chains).

    Attributes:
        mean: the (weighted) mean of the draws.
        sd: their standard deviation.
        covariance: the covariance matrix of all parameters in one vector, or None.
        weight: the sum of the weights; the number of draws where the step size is constant.
    """

    mean: PyTree
    sd: PyTree
    covariance: np.ndarray | None
    weight: float


@dataclass(frozen=True)
class Moments(_Running):
    """Keep the running mean and standard deviation, in memory that does not grow.

    Args:
        covariance: also keep the whole covariance matrix (d² numbers).
        thin: look at every `thin`-th of the iterations that are not burn-in.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=4000, seed=1,
    ...                   keep={"moments": sgmcmc.Moments()})
    >>> bool(abs(out.kept["moments"].mean["mu"]) < 0.05)
    True
    """

    covariance: bool = False
    thin: int = 1

    def finish(self, carry: PyTree, store: RunningStore) -> MomentValues:
        if store.mean is None:
            return MomentValues(store.nothing, store.nothing, None, 0.0)
        sd = tree_map(lambda s: np.sqrt(s / store.weight), store.square)
        return MomentValues(store.mean, sd, None if store.cross is None else store.cross / store.weight, store.weight)

    def _sums(self, zeros: PyTree, chained: bool) -> dict[str, PyTree]:
        if not self.covariance:
            return {"square": zeros}
        chains = jax.tree.leaves(zeros)[0].shape[:chained]
        d = size(zeros) // math.prod(chains)
        return {"square": zeros, "cross": jnp.zeros((*chains, d, d), jnp.result_type(float))}


@dataclass(frozen=True)
class Expectation(_Running):
    """Keep the running mean of any function of the parameters, such as predictions on a test set.

    Args:
        function: a function of the parameters, written with jax.numpy, returning an array or a tree of arrays.
        thin: look at every `thin`-th of the iterations that are not burn-in; the function is called for those only.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=4000, seed=1,
    ...                   keep={"second moment": sgmcmc.Expectation(lambda params: params["mu"] ** 2)})
    >>> bool(0.005 < out.kept["second moment"] < 0.05)
    True
    """

    function: Callable[[PyTree], PyTree]
    thin: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_function("Expectation", self.function)

    def finish(self, carry: PyTree, store: RunningStore) -> PyTree:
        return store.nothing if store.mean is None else store.mean

    def _value(self, params: PyTree, chained: bool) -> PyTree:
        return tree_map(lambda x: jnp.asarray(x, jnp.result_type(float)), _over_chains(self.function, chained)(params))


def check_function(name: str, function: Any) -> None:
    """Refuse what a keep object cannot call."""
    if not callable(function):
        raise InputError(f"{name} got {function!r}; expected a function of the parameters, such as lambda params: params['mu']")
