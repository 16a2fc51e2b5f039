"""Quantiles of a chain in memory that does not grow: a sketch of the draws of every number, with a proven error.

The sketch has a fixed number of buffers. When all are full, those of the lowest level are collapsed into one (Manku, Rajagopalan
and Lindsay, 1998): what they hold is sorted, its weight W cut into `size` equal slices, and of each slice the value in its middle
kept. That changes the weight at or below any value by at most half a slice, W / (2 size), whatever the values and their order;
the sum over all collapses bounds the error of the sketch. Nothing is random. Draws of unequal weight need nothing of their own,
and as all numbers share the weights, one set of buffers serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree
from sgmcmc.results.keeps import Looks

BUFFERS = 8
"""Buffers of a sketch. At the same memory 8 give nearly the smallest bound for 10⁶ to 10⁸ draws, 4 or 20 a larger one."""

SORTED_AT_ONCE = 1 << 20
"""Values sorted at a time, so that scratch memory stays small beside the sketches of many numbers."""


class Buffer(NamedTuple):
    """Values of every number (number, item), and the weights that an item has in all of them."""

    level: int
    values: np.ndarray
    weights: np.ndarray


class Sketch:
    """The draws of many numbers side by side, compressed. What it holds depends on the draws, never on how they were chunked."""

    def __init__(self, n_numbers: int, size: int, dtype: Any) -> None:
        self._size, self._dtype = size, np.dtype(dtype)
        self._full: list[Buffer] = []
        self._fresh = np.empty((n_numbers, 0), self._dtype)
        self._fresh_weights = np.empty(0)
        self._lost = 0.0  # weight that may lie on the wrong side of a value

    def add(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """Take in draws (draw, number) and their weights."""
        start = 0
        while start < len(rows):
            taken = slice(start, start + self._size - len(self._fresh_weights))
            self._fresh = np.concatenate([self._fresh, np.ascontiguousarray(rows[taken].T, self._dtype)], axis=1)
            self._fresh_weights = np.concatenate([self._fresh_weights, np.asarray(weights[taken], np.float64)])
            start = taken.stop
            if len(self._fresh_weights) == self._size:
                self._put_away()

    @property
    def weight(self) -> float:
        """The weight of all draws taken in."""
        return math.fsum(float(one.weights.sum()) for one in self._all())

    @property
    def rank_error(self) -> float:
        """A bound on the share of the weight by which a quantile's rank is off its level."""
        heaviest = max(float(one.weights.max()) for one in self._all())  # interpolation stays within one value
        return min(1.0, (self._lost + heaviest) / self.weight)

    def items(self) -> tuple[list[np.ndarray], np.ndarray]:
        """All values held, in arrays (number, item), and the weights of all items together."""
        held = self._all()
        return [one.values for one in held], np.concatenate([one.weights for one in held])

    def state(self) -> dict[str, Any]:
        return {
            "levels": [float(one.level) for one in self._full],
            "values": [one.values for one in self._full],
            "weights": [one.weights for one in self._full],
            "fresh": self._fresh,
            "fresh_weights": self._fresh_weights,
            "lost": self._lost,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        held = zip(tree["levels"], tree["values"], tree["weights"], strict=True)
        self._full = [Buffer(int(level), np.asarray(values), np.asarray(weights)) for level, values, weights in held]
        self._fresh, self._fresh_weights = np.asarray(tree["fresh"]), np.asarray(tree["fresh_weights"])
        self._lost = float(tree["lost"])

    def _all(self) -> list[Buffer]:
        fresh = Buffer(0, self._fresh, self._fresh_weights)
        return [*self._full, fresh] if len(fresh.weights) else self._full

    def _put_away(self) -> None:
        """The fresh draws are a buffer's worth: give them one."""
        if len(self._full) == BUFFERS:
            self._collapse_lowest()
        # In the last free buffer they join the lowest level, which then has two buffers at least to collapse.
        level = min(one.level for one in self._full) if len(self._full) == BUFFERS - 1 else 0
        self._full.append(Buffer(level, self._fresh, self._fresh_weights))
        self._fresh, self._fresh_weights = self._fresh[:, :0], self._fresh_weights[:0]

    def _collapse_lowest(self) -> None:
        lowest = min(one.level for one in self._full)
        together = [one for one in self._full if one.level == lowest]
        weights = np.concatenate([one.weights for one in together])
        slice_weight = float(weights.sum()) / self._size
        blocks = _in_blocks([one.values for one in together])
        values = np.concatenate([collapsed(block, weights, self._size) for block in blocks])
        higher = [one for one in self._full if one.level > lowest]
        self._full = [*higher, Buffer(lowest + 1, values, np.full(self._size, slice_weight))]
        self._lost += slice_weight / 2


def collapsed(values: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """The values in the middle of `size` slices of equal weight, for every row of `values`, in order."""
    values, weights = _sorted(values, weights)
    below = np.cumsum(weights, axis=-1)
    slices = np.floor(below * (size / below[:, -1:]) + 0.5)  # whose middle has been reached
    slices[:, -1] = size
    times = np.diff(slices, axis=-1, prepend=0).astype(np.int64)
    if len(times) == 1:  # of equal weights: the same places in every row
        return values[:, np.repeat(np.arange(values.shape[1]), times[0])]
    return np.repeat(values.ravel(), times.ravel()).reshape(len(values), size)


def sketch_quantiles(parts: list[np.ndarray], weights: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Quantiles (row, level) of arrays side by side, between the middles of the values' weights: NumPy's if all weigh alike."""
    found = []
    for block in _in_blocks(parts):
        values, along = _sorted(block, weights)
        middle = np.cumsum(along, axis=-1) - along / 2
        place = (middle - middle[:, :1]) / np.maximum(middle[:, -1:] - middle[:, :1], np.finfo(float).tiny)
        found += map(partial(np.interp, levels), np.broadcast_to(place, values.shape), values)
    return np.stack(found)


def _sorted(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every row in order, with the weights along; one row of weights for all where they are equal."""
    if (weights == weights[0]).all():
        return np.sort(values, axis=-1), weights[None]
    order = np.argsort(values, axis=-1, kind="stable")
    return np.take_along_axis(values, order, axis=-1), weights[order]


def _in_blocks(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Arrays (number, item) side by side, so many numbers at a time."""
    numbers_at_once = max(1, SORTED_AT_ONCE // sum(part.shape[1] for part in parts))
    for start in range(0, len(parts[0]), numbers_at_once):
        yield np.concatenate([part[start : start + numbers_at_once] for part in parts], axis=1)


class SketchStore:
    """Sketches of every number of a tree (chains first, where there are chains)."""

    def __init__(self, like: PyTree, size: int, chained: bool) -> None:
        leaves, self._structure = jax.tree.flatten(like)
        self._front = leaves[0].shape[:chained]
        self._chains = math.prod(self._front)
        self._shapes = [leaf.shape[chained:] for leaf in leaves]
        self._sizes = [math.prod(shape) for shape in self._shapes]
        dtype = np.result_type(np.float32, *(leaf.dtype for leaf in leaves))
        self.sketch = Sketch(self._chains * sum(self._sizes), size, dtype)

    def add(self, piece: tuple[Any, Any, PyTree]) -> None:
        """Take in the rows that a chunk stored: how many, their weights, their values."""
        count = int(piece[0])
        weights = np.asarray(piece[1], np.float64)[:count]
        leaves = zip(jax.tree.leaves(piece[2]), self._sizes, strict=True)
        rows = np.concatenate([np.asarray(leaf)[:count].reshape(count, self._chains, n) for leaf, n in leaves], axis=-1)
        self.sketch.add(rows.reshape(count, self._chains * sum(self._sizes))[weights > 0], weights[weights > 0])

    def state(self) -> dict[str, Any]:
        return self.sketch.state()

    def restore(self, tree: dict[str, Any]) -> None:
        self.sketch.restore(tree)

    def quantiles(self, levels: tuple[float, ...]) -> QuantileValues:
        """Of every chain, and of all chains together."""
        weight = self.sketch.weight
        if weight == 0:
            nothing = np.full((self._chains, sum(self._sizes), len(levels)), np.nan)
            return QuantileValues(levels, self._tree(nothing, self._front), self._tree(nothing[:1], ()), np.nan, 0.0)
        held, weights = self.sketch.items()
        n = sum(self._sizes)
        chains = [[values[c * n : (c + 1) * n] for values in held] for c in range(self._chains)]
        each = np.stack([sketch_quantiles(parts, weights, levels) for parts in chains])
        pooled = sketch_quantiles([part for parts in chains for part in parts], np.tile(weights, self._chains), levels)
        return QuantileValues(levels, self._tree(each, self._front), self._tree(pooled[None], ()), self.sketch.rank_error, weight)

    def _tree(self, values: np.ndarray, front: tuple[int, ...]) -> PyTree:
        """The tree again, of an array (chain, number, level)."""
        parts = zip(np.split(values, np.cumsum(self._sizes)[:-1], axis=1), self._shapes, strict=True)
        return jax.tree.unflatten(self._structure, [part.reshape(*front, *shape, -1) for part, shape in parts])


@dataclass(frozen=True)
class QuantileValues:
    """What `Quantiles` returns: trees like the parameters (or what the function returned) with the levels on the last axis.

    Attributes:
        levels: the levels asked for.
        values: the quantiles; chains first, where there are chains.
        pooled: the quantiles of all chains together; the same as `values` where there are none.
        rank_error: how far at most a quantile's rank is from its level: at most a share of `level + rank_error` of the draws (by
            weight) lies below it, and at least `level - rank_error` at or below. Proven for these draws, not estimated; it holds
            for each chain and for all together. It says nothing of the Monte Carlo error of the chain itself.
        weight: the sum of the weights of a chain's draws; their number where the step size is constant.
    """

    levels: tuple[float, ...]
    values: PyTree
    pooled: PyTree
    rank_error: float
    weight: float


@dataclass(frozen=True)
class Quantiles(Looks):
    """Keep quantiles of every parameter, or of a function of them, in memory that does not grow.

    Every number has a sketch of fewer than `9 * size` values. As long as there are no more draws, quantiles are exact, and
    interpolated as `numpy.quantile` does it. Later the rank of a quantile is off its level by at most the result's `rank_error`,
    whatever the order of the draws: with the default `size` by less than 0.0042 up to 10⁵ draws, 0.0057 up to 10⁶, 0.0088 up to
    10⁷, and in proportion to `1 / size`. Under a step-size schedule draws count by their step size, in quantiles and bound alike.
    NaN counts as the largest number.

    Args:
        levels: which quantiles, as shares between 0 and 1.
        function: what to look at, as a function of the parameters written with jax.numpy; None takes them as they are.
        thin: look at every `thin`-th of the iterations that are not burn-in.
        size: values in a buffer; memory and accuracy grow with it.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=4000, seed=1,
    ...                   keep={"interval": sgmcmc.Quantiles((0.05, 0.95))})
    >>> low, high = out.kept["interval"].values["mu"]
    >>> bool(low < 0 < high)
    True
    """

    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    function: Callable[[PyTree], PyTree] | None = None
    thin: int = 1
    size: int = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("size of Quantiles", self.size, least=2)
        try:
            levels = tuple(float(level) for level in self.levels)
        except (TypeError, ValueError):
            levels = ()
        if not levels or not all(0 <= level <= 1 for level in levels):
            expected = "expected numbers between 0 and 1, such as (0.05, 0.5, 0.95)"
            raise InputError(f"levels of Quantiles is {describe(self.levels)}; {expected}")
        object.__setattr__(self, "levels", levels)

    def open(self, carry: PyTree, params: PyTree, capacity: int, chained: bool) -> PyTree:
        trace = super().open(carry, params, capacity, chained)
        rows = jax.tree.leaves(trace[2])[0].shape[0]
        return trace, jnp.zeros(rows, jnp.result_type(float))

    def update(self, work: PyTree, params: PyTree, weight: jax.Array, hit: jax.Array, chained: bool) -> PyTree:
        trace, weights = work
        _, row, _ = trace  # written at every iteration, as the trace's values are; it counts once the trace moves on
        return super().update(trace, params, weight, hit, chained), weights.at[row].set(weight)

    def close(self, work: PyTree) -> tuple[PyTree, PyTree]:
        carry, (count, values) = super().close(work[0])
        return carry, (count, work[1], values)

    def store(self, params: PyTree, total: int, chained: bool) -> SketchStore:
        return SketchStore(self.stored_shapes(params, chained), self.size, chained)

    def finish(self, carry: PyTree, store: SketchStore) -> QuantileValues:
        return store.quantiles(self.levels)
