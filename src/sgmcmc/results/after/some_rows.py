"""Rows drawn from a dataset, in memory: enough to look at, wherever the others are."""

from __future__ import annotations

import numpy as np

from sgmcmc.core.checks import check_count
from sgmcmc.problem.passes import all_rows
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table


def row_numbers(table: Table, count: int, seed: int) -> np.ndarray:
    """Numbers of `count` different rows in order; of all of them, where there are no more."""
    if check_count("rows", count) >= table.n_rows:
        return np.arange(table.n_rows, dtype=np.int32)
    drawn = np.random.default_rng(check_count("seed", seed, least=0)).choice(table.n_rows, count, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int32)


def rows_at(table: Table, numbers: np.ndarray) -> Table:
    """These rows. Where only slices can be read, all are read once."""
    if table.seekable:
        return Table(gather_all(table, numbers), checked=table.checked)
    parts, start = [], 0
    for rows in all_rows(table):
        stop = start + len(next(iter(rows.values())))
        here = numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)] - start
        parts.append({name: column[here] for name, column in rows.items()})
        start = stop
    return Table({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, checked=table.checked)
