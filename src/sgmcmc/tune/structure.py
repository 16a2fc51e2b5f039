"""What a model shows of itself before anything is searched: parameters that no row knows, and parameters of groups."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from sgmcmc.core.trees import PyTree, shapes, size
from sgmcmc.problem.arrow import Layout
from sgmcmc.problem.passes import compiled
from sgmcmc.problem.posterior import Posterior
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table

LOOKED_AT, MOST_LOOKED_AT = 256, 20_000_000
"""Rows whose gradients show which parameters they know, and how many numbers these may have in all."""

FEWEST_GROUPED, MOST_SHARED = 64, 500
"""Numbers of a model from which the shape of an arrow pays; and how many of them may be shared."""

JITTER = 0.1
"""How far from the start gradients are looked at: at the start itself some may vanish."""


def unseen_by_rows(posterior: Posterior, table: Table, position: PyTree) -> tuple[bool, ...]:
    """For every leaf, whether the log likelihood does not depend on it at all, as on the mean and scale of effects."""
    few = {name: jax.ShapeDtypeStruct((2, *column.shape[1:]), column.dtype) for name, column in table.items()}
    program = jax.make_jaxpr(posterior.sum_of_rows)(shapes(position), few)
    _, used = partial_eval.dce_jaxpr(program.jaxpr, [True])
    of_products = {one.scale for one in getattr(posterior.transform, "products", ())}
    return tuple(not seen or i in of_products for i, seen in enumerate(used[: len(jax.tree.leaves(position))]))


def unseen_by_prior(posterior: Posterior, position: PyTree) -> tuple[bool, ...]:
    """For every leaf, whether the log prior does not depend on it."""
    count = len(jax.tree.leaves(position))
    if posterior.log_prior is None:
        return (True,) * count
    program = jax.make_jaxpr(posterior.log_prior)(jax.eval_shape(posterior.transform.to_params, position))
    return tuple(not seen for seen in partial_eval.dce_jaxpr(program.jaxpr, [True])[1][:count])


def groups_of(posterior: Posterior, table: Table, position: PyTree, seed: int) -> Layout | None:
    """The parameters of groups, where that pays: leaves of which every row knows one line only, the same one in all of them.

    Where leaves are of several groupings, the one with most numbers counts, and the others are shared.
    """
    d, rng = size(position), np.random.default_rng(seed)
    if d < FEWEST_GROUPED:
        return None
    count = int(min(LOOKED_AT, table.n_rows, max(MOST_LOOKED_AT // d, 16)))
    rows = gather_all(table, np.sort(rng.choice(table.n_rows, count, replace=False)))
    leaves, structure = jax.tree.flatten(position)
    nudged = [jnp.asarray(np.asarray(x) + JITTER * rng.standard_normal(np.shape(x)), x.dtype) for x in leaves]
    gradients = compiled(_row_gradients, posterior)(jax.tree.unflatten(structure, nudged), rows)
    known: list[tuple[int, np.ndarray, dict[int, int]]] = []
    for number, gradient in enumerate(jax.tree.leaves(gradients)):
        for axis, line in _lines(np.asarray(gradient)):
            _note(known, number, axis, gradient.shape[1 + axis], line)
    layouts = [_layout(grouping, leaves) for _, _, grouping in known]
    fitting = [layout for layout in layouts if layout.shared <= MOST_SHARED and layout.groups > 2 * layout.own]
    return max(fitting, key=lambda layout: layout.size - layout.shared, default=None)


def _lines(gradient: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Axes of a leaf along which every row knows one line at most, and which one that is, for gradients of several rows."""
    for axis in range(gradient.ndim - 1):
        blocks: Any = np.moveaxis(gradient, 1 + axis, 1).reshape(len(gradient), gradient.shape[1 + axis], -1)
        lines = blocks.any(axis=2)
        if lines.shape[1] > 1 and lines.any() and lines.sum(axis=1).max() <= 1:
            yield axis, np.where(lines.any(axis=1), lines.argmax(axis=1), -1)


def _note(known: list[tuple[int, np.ndarray, dict[int, int]]], number: int, axis: int, count: int, line: np.ndarray) -> None:
    """Add a leaf to the grouping whose lines are its own, wherever rows know both; or begin another."""
    for groups, seen, members in known:
        agree = (seen == line) | (seen < 0) | (line < 0)
        if groups == count and number not in members and agree.all():
            members[number] = axis
            np.copyto(seen, np.maximum(seen, line))
            return
    known.append((count, line, {number: axis}))


def _layout(grouping: dict[int, int], leaves: list[Any]) -> Layout:
    return Layout(tuple(grouping.get(i) for i in range(len(leaves))), tuple(np.shape(leaf) for leaf in leaves))


def _row_gradients(posterior: Posterior, position: PyTree, rows: Any) -> PyTree:
    return posterior.row_gradients(position, rows)
