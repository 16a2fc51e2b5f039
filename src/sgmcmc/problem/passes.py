"""Full passes over the data: streamed in blocks, each block's sum on the device, their total in float64 on the host.

Rows that are not in memory are read by a thread, a block ahead.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.compiling import options
from sgmcmc.core.errors import InputError
from sgmcmc.core.progress import Bar
from sgmcmc.core.sameness import Recent, sameness
from sgmcmc.core.trees import PyTree, Rows, size, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import AnyWhitening, taken_apart, whitened
from sgmcmc.rows.hosts import sum_over_processes
from sgmcmc.rows.sources import block_rows, blocks
from sgmcmc.rows.table import LARGE_SHARE, Stratum, Table, as_table, check_block, physical_memory

FEW_ROWS = 200_000
"""Up to which all passes over the rows together cost less than to optimise their programs."""

MOST_KEPT = 256
"""Functions that are kept compiled while the process lives, those last asked for."""

FEW_PROGRAMS = 4
"""Of one who passes over the rows."""

_KEPT = Recent(MOST_KEPT)


def compiled(function: Callable[..., Any], posterior: Posterior, *fixed: Any) -> Callable[..., Any]:
    """`function(posterior, *fixed, ...)`, compiled once for all that are the same; what is left to give are arrays."""
    key = sameness(function), posterior, fixed

    def traced(*arguments: PyTree) -> Any:
        if not posterior.unchanged:  # what is traced now is of no use to others
            _KEPT.drop(key)
        return function(posterior, *fixed, *arguments)

    traced.__name__ = getattr(function, "__name__", "traced")
    chosen = options(in_a_hurry=True) if posterior.n_rows <= FEW_ROWS else None
    return _KEPT.get(key, lambda: jax.jit(traced, compiler_options=chosen))


def all_rows(arrays: Mapping[str, Any], extra: int = 0, least: int = 1) -> Iterator[Rows]:
    """The whole dataset in order, in blocks small enough for a device that needs `extra` bytes beside each row, but of so many
    rows at `least`, or nearly.
    """
    table = as_table(arrays)
    every = blocks(table, block_rows(table, extra, least))
    return every if table.in_memory else ahead(every)


def ahead(items: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows, each block read by a thread while the one before is in use."""
    end: Any = object()
    with ThreadPoolExecutor(1, thread_name_prefix="sgmcmc-rows") as thread:
        upcoming = thread.submit(next, items, end)
        while (item := upcoming.result()) is not end:
            upcoming = thread.submit(next, items, end)
            yield item


def look_over(table: Table, progress: Progress) -> Table:
    """A table all of whose numbers are known to be finite: what is not in memory is read once."""
    rows = block_rows(table)
    with Bar(progress, "checking rows", table.n_rows, "row") as bar:
        for start in range(0, table.n_rows, rows):
            stop = min(start + rows, table.n_rows)
            for name, column in table.items():
                if not isinstance(column, np.ndarray):
                    check_block(name, column, start, stop)
            bar.update(stop - start)
    return replace(table, checked=True)


def full_sum(
    function: Callable[[Rows], PyTree], arrays: Mapping[str, Any], bar: Bar | None = None, extra: int = 0, least: int = 1
) -> PyTree:
    """Σ over blocks of `function(rows)`, a compiled function of the rows, in float64; of a stratum, over all processes' rows."""
    total: Any = None
    for rows in all_rows(arrays, extra, least):
        part = tree_map(lambda x: np.asarray(x, np.float64), function(rows))
        total = part if total is None else tree_map(np.add, total, part)
        if bar is not None:
            bar.update(len(next(iter(rows.values()))))
    return sum_over_processes(total) if isinstance(arrays, Stratum) else total


@dataclass(frozen=True)
class FullPasses:
    """The whole dataset, as estimators ask for it when they begin. Functions take posterior and position first, and rows last.

    Where `chained`, positions have the chains in front, and so has what comes back.
    """

    arrays: Mapping[str, Any]
    progress: Progress = False
    chained: bool = False
    _programs: Recent = field(default_factory=lambda: Recent(FEW_PROGRAMS), repr=False, compare=False)

    def sum(self, function: Callable[..., PyTree], posterior: Posterior, position: PyTree, *shared: Any) -> PyTree:
        """The sum over all rows, in float64."""
        with self._bar() as bar:
            return full_sum(self._program(function, posterior, position, *shared), self.arrays, bar)

    def each(self, function: Callable[..., PyTree], posterior: Posterior, position: PyTree, *shared: Any) -> PyTree:
        """What `function` returns for every row, rows on the first axis, or the one after that of the chains."""
        program, parts = self._program(function, posterior, position, *shared), []
        with self._bar() as bar:
            for rows in all_rows(self.arrays, 4 * size((position, shared))):
                parts.append(tree_map(np.asarray, program(rows)))
                self._refuse_if_large(parts[-1], count := len(next(iter(rows.values()))))
                bar.update(count)
        return tree_map(lambda *blocks: np.concatenate(blocks, axis=int(self.chained)), *parts)

    def _program(self, function: Callable[..., PyTree], posterior: Posterior, *given: Any) -> Callable[[Rows], PyTree]:
        """Compiled once for all positions, and for all whitenings in front of a posterior: these are arguments too. Who passes
        over the rows again and again has the programs at hand.
        """
        bare, whitening = taken_apart(posterior)
        chained = self.chained

        def of_rows(bare: Posterior, whitening: AnyWhitening | None, position: PyTree, *others: Any) -> PyTree:
            whole = bare if whitening is None else whitened(bare, whitening)

            def one(position: PyTree) -> PyTree:
                return function(whole, position, *others)

            return jax.vmap(one)(position) if chained else one(position)

        program = self._programs.get((function, bare, chained), lambda: compiled(of_rows, bare))
        return partial(program, whitening, *given)

    def _refuse_if_large(self, block: PyTree, rows: int) -> None:
        """Where what a block gives shows that all of it would not fit."""
        total = as_table(self.arrays).n_rows // rows * sum(leaf.nbytes for leaf in jax.tree.leaves(block))
        if total > LARGE_SHARE * physical_memory():
            found = f"the estimator keeps {total / 2**30:.1f} GB for each chain, something of every row"
            raise InputError(f"{found}, too much for this machine's memory; expected gradient='control-variates'")

    def _bar(self) -> Bar:
        return Bar(self.progress, "full gradient", as_table(self.arrays).n_rows, "row")
