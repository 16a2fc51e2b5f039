"""Some of a result's draws, as parameters that functions of the model take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from sgmcmc.core.checks import check_count
from sgmcmc.core.trees import PyTree, leaf_names, tree_map

if TYPE_CHECKING:
    from sgmcmc.results.result import Result


def some_draws(result: Result, count: int) -> PyTree:
    """`count` draws spread evenly over chains and iterations, on one first axis; all of them where there are no more.

    Of draws that do not count the same, those at even steps of their weight.
    """
    check_count("draws", count)
    shape = _shape(result)
    chain, draw = np.unravel_index(_places(shape, result.weights, count), shape)
    picked = tree_map(lambda x: np.asarray(x[chain, draw] if result.chained else x[draw]), result.in_model.draws)
    return like_params(result, picked)


def like_params(result: Result, tree: PyTree) -> PyTree:
    """A tree of draws built as the model's parameters are: what was read from a file may be built of dicts in their place."""
    params = None if result.model is None else result.model.params
    if params is None or jax.tree.structure(tree) == jax.tree.structure(params) or leaf_names(tree) != leaf_names(params):
        return tree
    return jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(tree))


def _shape(result: Result) -> tuple[int, int]:
    """Chains and draws; a result without any is refused."""
    return next(iter(result._named_draws().values())).shape[:2]


def _places(shape: tuple[int, int], weights: np.ndarray | None, count: int) -> np.ndarray:
    """Numbers of the draws, chain after chain."""
    total = shape[0] * shape[1]
    count = min(count, total)
    middle = np.arange(count) + 0.5
    if weights is None:
        return (middle * total / count).astype(np.int64)
    share = np.cumsum(np.broadcast_to(np.asarray(weights, np.float64), shape))
    return np.minimum(np.searchsorted(share, middle * share[-1] / count, side="right"), total - 1)
