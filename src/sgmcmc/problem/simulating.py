"""What a model would have observed: its own simulator, for draws of the posterior or of the prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgmcmc.core.checks import Progress, as_key, check_count, check_progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Dataset, PyTree, Rows
from sgmcmc.problem.over_draws import OverDraws
from sgmcmc.rows.given import levels_of
from sgmcmc.rows.table import LARGE_SHARE, Table, check_dataset, physical_memory

if TYPE_CHECKING:
    from sgmcmc.problem.model import Model


def simulation(model: Model, draws: PyTree, seed: Any) -> OverDraws:
    """The model's own observations for every draw, a dict by column."""
    if model.simulate is None:
        how = "a function simulate(key, params, rows) of what it would have observed in these rows, a dict by column"
        raise InputError(f"this model cannot simulate; give sgmcmc.Model(..., simulate=...) {how}")
    return OverDraws("simulate", partial(_by_column, model.simulate), draws, as_key(seed))


def simulated(ask: OverDraws, table: Table, progress: Progress) -> dict[str, np.ndarray]:
    """All of it, in memory: draws first, then rows."""
    refuse_if_large(ask.bytes_of_row(table) * table.n_rows, ask.n_draws, table.n_rows)
    with Bar(check_progress(progress), "simulating", table.n_rows, "row") as bar:
        return ask.all(table, bar)


def prior_predictive(model: Model, new: Dataset | None, draws: int, seed: Any, progress: Progress) -> dict[str, np.ndarray]:
    """As `Model.prior_predictive` says."""
    root = as_key(seed)
    from_prior = prior_draws(model, draws, jax.random.fold_in(root, 1))
    table = check_dataset(model.dataset if new is None else new, levels_of(model.dataset))
    return simulated(simulation(model, from_prior, jax.random.fold_in(root, 2)), table, progress)


def prior_draws(model: Model, draws: int, seed: Any) -> PyTree:
    """Parameters from the prior, draws on the first axis."""
    check_count("draws", draws)
    if model.draw_prior is None:
        how = "a function draw_prior(key) of parameters from the prior, a tree like params"
        raise InputError(f"this model cannot draw from its prior; give sgmcmc.Model(..., draw_prior=...) {how}")
    found = jax.vmap(model.draw_prior)(jax.random.split(as_key(seed), draws))
    expected, got = jax.tree.structure(model.params), jax.tree.structure(found)
    if expected != got:
        raise InputError(f"draw_prior returned {got}; expected a tree like params, {expected}")
    return found


def refuse_if_large(n_bytes: int, draws: int, rows: int) -> None:
    """What would not fit into memory."""
    if n_bytes > LARGE_SHARE * physical_memory():
        found = f"{draws:,} draws for {rows:,} rows are {n_bytes / 2**30:.1f} GB, too much for this machine's memory"
        raise InputError(f"{found}; ask for fewer draws=, fewer rows, or kind='interval' or 'mean', which are streamed")


def _by_column(simulate: Callable[..., Any], key: jax.Array, params: PyTree, rows: Rows) -> dict[str, Any]:
    found = simulate(key, params, rows)
    if not isinstance(found, Mapping) or not found:
        raise InputError(f"simulate returned {describe(found)}; expected a dict by column, such as {{'y': y}}")
    return dict(found)
