"""A function of parameters and rows, for many draws and any number of rows: streamed in blocks, with a bar.

Inside a block rows go through the compiled program in cells of one size, one after the other, and the last cell is filled up.
Random numbers come from the number of the draw and of the cell. So what comes out for a row is the same, bit for bit, however
the rows are cut into blocks, and however many follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.sameness import Recent, sameness
from sgmcmc.core.trees import PyTree, Rows, pick, shapes, tree_map
from sgmcmc.problem.passes import ahead
from sgmcmc.rows.sources import blocks
from sgmcmc.rows.table import Table

CELL = 64
"""Rows that are worked on at once, with all draws."""

BLOCK_BYTES = 32 << 20
"""Rows and what comes out of them, at a time."""

MOST_KEPT = 64
"""Programs that are kept compiled, those last asked for."""

_KEPT = Recent(MOST_KEPT)


@dataclass(frozen=True)
class OverDraws:
    """What a function says of rows, for each of many draws.

    Attributes:
        name: what the function is called where it is at fault.
        function: `function(params, rows)`, or with a key `function(key, params, rows)`: arrays, or a tree of them, rows first.
        draws: parameters, draws on the first axis.
        key: of the random numbers, where the function takes any.
        reduce: of all draws (on the first axis), traced; None hands them all out.
        block_bytes: how much is worked on before it is handed out.
    """

    name: str
    function: Callable[..., PyTree]
    draws: PyTree
    key: jax.Array | None = None
    reduce: Callable[[jax.Array], jax.Array] | None = None
    block_bytes: int = BLOCK_BYTES

    @cached_property
    def n_draws(self) -> int:
        return len(jax.tree.leaves(self.draws)[0])

    def of_rows(self, table: Table) -> PyTree:
        """What comes of one draw for a cell of rows, as shapes; anything without rows first is refused."""
        rows = {name: jax.ShapeDtypeStruct((CELL, *column.shape[1:]), column.dtype) for name, column in table.items()}
        params = shapes(pick(self.draws, 0))
        try:
            found = jax.eval_shape(self.function, *([] if self.key is None else [self.key]), params, rows)
        except KeyError as error:
            there = f"params has {_names(params)} and the rows have {_names(rows)}"
            raise InputError(f"{self.name} asks for {error.args[0]!r}; {there}") from error
        except Exception as error:
            raise InputError(f"{self.name} failed for params and {CELL} rows: {type(error).__name__}: {error}") from error
        for leaf in jax.tree.leaves(found) or [None]:
            if getattr(leaf, "shape", ())[:1] != (CELL,):
                raise InputError(f"{self.name} returned {describe(leaf)} for {CELL} rows; expected rows on the first axis")
        return found

    def blocks(self, table: Table, bar: Bar | None = None) -> Iterator[tuple[slice, PyTree]]:
        """Places of adjacent rows, in order, and what comes of them: draws first where they are not reduced, then rows."""
        cells = self._cells_at_once(table)
        program = self._program(table, cells)
        arrays = tree_map(jnp.asarray, self.draws)
        every, start = blocks(table, cells * CELL), 0
        for rows in every if table.in_memory else ahead(every):
            count = len(next(iter(rows.values())))
            filled = tree_map(lambda column: _in_cells(column, cells), rows)
            found = program(self.key, arrays, np.uint32(start // CELL), filled)
            yield slice(start, start + count), tree_map(lambda x, n=count: self._unfolded(np.asarray(x), n), found)
            start += count
            if bar is not None:
                bar.update(count)

    def all(self, table: Table, bar: Bar | None = None) -> PyTree:
        """What comes of all rows."""
        parts = [found for _, found in self.blocks(table, bar)]
        return tree_map(lambda *some: np.concatenate(some, axis=int(self.reduce is None)), *parts)

    def bytes_of_row(self, table: Table) -> int:
        """Of all that comes out of a row for all draws."""
        leaves = jax.tree.leaves(self.of_rows(table))
        return self.n_draws * sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in leaves)

    def _cells_at_once(self, table: Table) -> int:
        """Blocks of one size, so that one program serves them all, with little to fill up in the last."""
        out = self.bytes_of_row(table) // (1 if self.reduce is None else self.n_draws)
        every, most = -(-table.n_rows // CELL), self.block_bytes // (CELL * (out + table.row_bytes))
        return -(-every // -(-every // max(1, most)))

    def _program(self, table: Table, cells: int) -> Callable[..., PyTree]:
        rows = tuple((name, column.shape[1:], str(column.dtype)) for name, column in table.items())
        key: Hashable = (sameness((self.function, self.reduce)), self.key is None, str(shapes(self.draws)), rows, cells)
        return _KEPT.get(key, lambda: jax.jit(_of_cells(self.function, self.reduce)))

    def _unfolded(self, found: np.ndarray, count: int) -> np.ndarray:
        """Rows of all cells side by side."""
        if self.reduce is not None:
            return found.reshape(-1, *found.shape[2:])[:count]
        draws_first = np.moveaxis(found, 1, 0)
        return draws_first.reshape(len(draws_first), -1, *found.shape[3:])[:, :count]


def _of_cells(function: Callable[..., PyTree], reduce: Callable[[jax.Array], jax.Array] | None) -> Callable[..., PyTree]:
    def of_cells(key: jax.Array | None, draws: PyTree, first: jax.Array, rows: Rows) -> PyTree:
        numbers = jnp.arange(len(jax.tree.leaves(draws)[0]), dtype=jnp.uint32)
        cells = len(next(iter(rows.values())))

        def of_cell(cell: tuple[jax.Array, Rows]) -> PyTree:
            def of_draw(number: jax.Array, params: PyTree) -> PyTree:
                if key is None:
                    return function(params, cell[1])
                return function(jax.random.fold_in(jax.random.fold_in(key, number), cell[0]), params, cell[1])

            found = tree_map(jnp.asarray, jax.vmap(of_draw)(numbers, draws))
            return found if reduce is None else tree_map(reduce, found)

        return jax.lax.map(of_cell, (first + jnp.arange(cells, dtype=jnp.uint32), rows))

    return of_cells


def _in_cells(column: np.ndarray, cells: int) -> np.ndarray:
    """Rows in cells, the last row again where too few are left."""
    if len(column) < cells * CELL:
        column = column[np.minimum(np.arange(cells * CELL), len(column) - 1)]
    return column.reshape(cells, CELL, *column.shape[1:])


def _names(tree: PyTree) -> str:
    return ", ".join(map(str, tree)) if isinstance(tree, dict) else describe(tree)
