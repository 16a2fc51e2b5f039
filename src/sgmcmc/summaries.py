"""What to keep of a chain: its draws, some of them, or only what is to be known of them.

A keep object is asked, inside the compiled loop, to look at the parameters after every iteration. What it carries from
chunk to chunk stays on the device; what it hands over at the end of a chunk goes to a store on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc._tree import shapes, size, tree_map
from sgmcmc._types import PyTree
from sgmcmc.errors import InputError


@runtime_checkable
class Keep(Protocol):
    """What `keep=` takes. `chained` says whether arrays have the chains on their first axis."""

    def begin(self, params: PyTree, chained: bool) -> PyTree:
        """What is carried before the first iteration; `params` gives shapes only."""
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
        """A place on the host for what `total` looks hand over, or None."""
        ...

    def finish(self, carry: PyTree, store: Any, chained: bool) -> Any:
        """What the user gets."""
        ...


def _over_chains(function: Callable[..., Any], chained: bool) -> Callable[..., Any]:
    return jax.vmap(function) if chained else function


@dataclass(frozen=True)
class Trace:
    """Keep the draws, or a function of each.

    Args:
        function: what to store of the parameters; None stores them as they are.
        thin: store every `thin`-th of the iterations that are not burn-in.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-3, minibatch_size=10, n_iters=100, seed=1,
    ...                   keep={"square": sgmcmc.Trace(lambda params: params["mu"] ** 2, thin=10)})
    >>> out.kept["square"].shape
    (10,)
    """

    function: Callable[[PyTree], PyTree] | None = None
    thin: int = 1

    def __post_init__(self) -> None:
        _check_function("Trace", self.function, optional=True)
        if isinstance(self.thin, bool) or not isinstance(self.thin, int) or self.thin < 1:
            raise InputError(f"thin is {self.thin!r} in Trace; expected a whole number of at least 1")

    def begin(self, params: PyTree, chained: bool) -> PyTree:
        return jnp.int32(0)

    def open(self, carry: PyTree, params: PyTree, capacity: int, chained: bool) -> PyTree:
        rows = -(-capacity // self.thin) + 1  # one more: the row that is written but does not count yet
        buffer = tree_map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), self._shapes(params, chained))
        return carry, jnp.int32(0), buffer

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        seen, count, buffer = work
        seen = seen + hit
        stored = hit & (seen % self.thin == 0)
        if self.function is None:
            value = params
        else:
            look = _over_chains(self.function, chained)
            blank = self._shapes(params, chained)
            value = jax.lax.cond(stored, look, lambda _: tree_map(lambda x: jnp.zeros(x.shape, x.dtype), blank), params)
            value = tree_map(jnp.asarray, value)
        buffer = tree_map(lambda rows, x: jax.lax.dynamic_update_index_in_dim(rows, x, count, 0), buffer, value)
        return seen, count + stored, buffer

    def close(self, work: PyTree) -> tuple[PyTree, PyTree]:
        seen, count, buffer = work
        return seen, (count, buffer)

    def store(self, params: PyTree, total: int, chained: bool) -> TraceStore:
        return TraceStore(self._shapes(params, chained), total // self.thin, chained)

    def finish(self, carry: PyTree, store: TraceStore, chained: bool) -> PyTree:
        return store.draws()

    def _shapes(self, params: PyTree, chained: bool) -> PyTree:
        if self.function is None:
            return shapes(params)
        look = _over_chains(self.function, chained)
        return jax.eval_shape(lambda p: tree_map(jnp.asarray, look(p)), shapes(params))


class TraceStore:
    """Draws on the host, in arrays of their final size (memory is touched only as draws arrive)."""

    def __init__(self, like: PyTree, rows: int, chained: bool) -> None:
        self.filled = 0
        self._axis = 1 if chained else 0
        self._arrays = tree_map(lambda x: np.empty(self._shape(x.shape, rows), x.dtype), like)

    def _shape(self, shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
        return (*shape[: self._axis], rows, *shape[self._axis :])

    def add(self, piece: tuple[Any, PyTree]) -> None:
        count = int(piece[0])
        place = (slice(None),) * self._axis + (slice(self.filled, self.filled + count),)

        def copy(array: np.ndarray, rows: Any) -> None:
            array[place] = np.moveaxis(np.asarray(rows)[:count], 0, self._axis)

        tree_map(copy, self._arrays, piece[1])
        self.filled += count

    def draws(self) -> PyTree:
        place = (slice(None),) * self._axis + (slice(self.filled),)
        return tree_map(lambda array: array[place], self._arrays)


class _Running:
    """Objects that only carry: nothing to store, nothing per chunk."""

    def open(self, carry: PyTree, params: PyTree, capacity: int, chained: bool) -> PyTree:
        return carry

    def close(self, work: PyTree) -> tuple[PyTree, PyTree]:
        return work, ()

    def store(self, params: PyTree, total: int, chained: bool) -> None:
        return None


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

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=4000, seed=1,
    ...                   keep={"moments": sgmcmc.Moments()})
    >>> bool(abs(out.kept["moments"].mean["mu"]) < 0.05)
    True
    """

    covariance: bool = False

    def begin(self, params: PyTree, chained: bool) -> PyTree:
        zeros = tree_map(lambda x: jnp.zeros(x.shape, x.dtype), shapes(params))
        chains = jax.tree.leaves(params)[0].shape[:1] if chained else ()
        d = size(params) // (chains[0] if chains else 1)
        dtype = jnp.result_type(float)
        cross = jnp.zeros((*chains, d, d), dtype) if self.covariance else None
        return {"weight": jnp.zeros((), dtype), "mean": zeros, "square": zeros, "cross": cross}

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        weight = jnp.where(hit, weight, 0)
        total = work["weight"] + weight
        share = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1), 0)
        before = tree_map(jnp.subtract, params, work["mean"])
        mean = tree_map(lambda m, b: m + share.astype(m.dtype) * b, work["mean"], before)
        after = tree_map(jnp.subtract, params, mean)
        square = tree_map(lambda s, a, b: s + weight.astype(s.dtype) * a * b, work["square"], before, after)
        cross = work["cross"]
        if self.covariance:
            flat = _over_chains(lambda tree: jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)]), chained)
            cross = cross + weight * flat(before)[..., :, None] * flat(after)[..., None, :]
        return {"weight": total, "mean": mean, "square": square, "cross": cross}

    def finish(self, carry: PyTree, store: None, chained: bool) -> MomentValues:
        total = float(carry["weight"])
        sd = tree_map(lambda s: np.sqrt(np.maximum(np.asarray(s), 0) / total), carry["square"])
        covariance = np.asarray(carry["cross"]) / total if self.covariance else None
        return MomentValues(tree_map(np.asarray, carry["mean"]), sd, covariance, total)


@dataclass(frozen=True)
class Expectation(_Running):
    """Keep the running mean of any function of the parameters, such as predictions on a test set.

    Args:
        function: a function of the parameters, written with jax.numpy, returning an array or a tree of arrays.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=4000, seed=1,
    ...                   keep={"second moment": sgmcmc.Expectation(lambda params: params["mu"] ** 2)})
    >>> bool(0.005 < out.kept["second moment"] < 0.05)
    True
    """

    function: Callable[[PyTree], PyTree]

    def __post_init__(self) -> None:
        _check_function("Expectation", self.function)

    def begin(self, params: PyTree, chained: bool) -> PyTree:
        look = _over_chains(self.function, chained)
        like = jax.eval_shape(lambda p: tree_map(lambda x: jnp.asarray(x, jnp.result_type(float)), look(p)), shapes(params))
        return jnp.zeros((), jnp.result_type(float)), tree_map(lambda x: jnp.zeros(x.shape, x.dtype), like)

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        look = _over_chains(self.function, chained)

        def seen(work: PyTree) -> PyTree:
            total = work[0] + weight
            share = weight / total
            return total, tree_map(lambda m, x: m + (share * (x - m)).astype(m.dtype), work[1], look(params))

        return jax.lax.cond(hit, seen, lambda work: work, work)

    def finish(self, carry: PyTree, store: None, chained: bool) -> PyTree:
        return tree_map(np.asarray, carry[1])


def _check_function(name: str, function: Any, optional: bool = False) -> None:
    if not (callable(function) or (optional and function is None)):
        raise InputError(
            f"{name} got {function!r}; expected a function of the parameters, such as lambda params: params['mu'] ** 2"
        )
