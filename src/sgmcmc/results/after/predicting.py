"""Predictions: what a model, or any function of parameters and rows, says of rows, on average over the posterior or by draw."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress, check_choice, check_progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Dataset, PyTree, Rows, tree_map
from sgmcmc.problem.over_draws import OverDraws
from sgmcmc.problem.simulating import refuse_if_large, simulated, simulation
from sgmcmc.results.after.draws import some_draws
from sgmcmc.rows.given import levels_of
from sgmcmc.rows.table import Table, check_dataset

if TYPE_CHECKING:
    from sgmcmc.problem.model import Model
    from sgmcmc.results.result import Result

KINDS = MEAN, DRAWS, INTERVAL = ("mean", "draws", "interval")

HOW = "give it one with sgmcmc.load(path, model=model)"

ANY = "function=lambda params, rows: ..."


class Interval(NamedTuple):
    """The ends of an interval, for every row."""

    lower: Any
    upper: Any


def predict(
    result: Result, new: Dataset | None, kind: str, function: Callable[..., Any] | None, level: float, draws: int, seed: Any,
    progress: Progress,
) -> Any:  # fmt: skip
    """As `Result.predict` says."""
    check_choice("kind", kind, KINDS)
    if not isinstance(level, float) or not 0 < level < 1:
        raise InputError(f"level is {describe(level)}; expected a number between 0 and 1, such as 0.9")
    table = rows_of(result, new, "predict")
    ask = _asked(result, kind, function, draws, seed)
    with Bar(check_progress(progress), "predicting", table.n_rows, "row") as bar:
        if kind == INTERVAL:
            return _interval(ask, table, level, bar)
        if kind == DRAWS:
            refuse_if_large(ask.bytes_of_row(table) * table.n_rows, ask.n_draws, table.n_rows)
        return ask.all(table, bar)


def posterior_predictive(result: Result, new: Dataset | None, draws: int, seed: Any, progress: Progress) -> dict[str, np.ndarray]:
    """As `Result.posterior_predictive` says."""
    model, table = model_of(result, "posterior_predictive"), rows_of(result, new, "posterior_predictive")
    return simulated(simulation(model, some_draws(result, draws), seed), table, progress)


def rows_of(result: Result, new: Dataset | None, call: str) -> Table:
    """The rows that are asked for: new ones, or those of the fit."""
    if new is not None:
        return check_dataset(new, None if result.model is None else levels_of(result.model.dataset))
    if result.model is None:
        raise InputError(f"{call} was given no rows, and this result has no model to take them from; {HOW}, or give {call} rows")
    return check_dataset(result.model.dataset)


def model_of(result: Result, call: str, instead: str = "") -> Model:
    """The model of a result, which it may lack."""
    if result.model is None:
        raise InputError(f"{call} needs the model, which this result does not have; {HOW}{instead}")
    return result.model


def _asked(result: Result, kind: str, function: Callable[..., Any] | None, draws: int, seed: Any) -> OverDraws:
    """What is to be worked out: the function's values, else the expected value, else the model's own observations."""
    reduce = average if kind == MEAN else None
    if function is not None:
        if not callable(function):
            raise InputError(f"function is {describe(function)}; expected one of params and rows, such as {ANY}")
        return OverDraws("function", function, some_draws(result, draws), None, reduce)
    model = model_of(result, "predict", f", or give {ANY}")
    if kind == MEAN and model.mean is not None:
        return OverDraws("mean", model.mean, some_draws(result, draws), None, reduce)
    if model.simulate is None:
        instead = ANY if model.mean is None else "function=fit.model.mean, for its expected value"
        needs = "mean=...) or Model(..., simulate=..." if kind == MEAN else "simulate=..."
        raise InputError(f"predict of kind {kind!r} needs sgmcmc.Model(..., {needs}); give it that, or give predict {instead}")
    own = simulation(model, some_draws(result, draws), seed)
    return OverDraws(own.name, partial(_alone, own.function), own.draws, own.key, reduce)


def _alone(simulate: Callable[..., dict[str, Any]], key: jax.Array, params: PyTree, rows: Rows) -> Any:
    """The only column without its name."""
    found = simulate(key, params, rows)
    return next(iter(found.values())) if len(found) == 1 else found


def average(values: jax.Array) -> jax.Array:
    return jnp.mean(values, axis=0, dtype=jnp.result_type(values.dtype, float))


def _interval(ask: OverDraws, table: Table, level: float, bar: Bar) -> Interval:
    """Quantiles of every row's draws: of all rows only these are in memory."""
    tail = (1 - level) / 2
    parts = [tree_map(lambda x: _ends(x, tail), found) for _, found in ask.blocks(table, bar)]
    both = tree_map(lambda *some: np.concatenate(some, axis=1), *parts)
    return Interval(*(tree_map(lambda x, end=end: x[end], both) for end in (0, 1)))


def _ends(values: np.ndarray, tail: float) -> np.ndarray:
    """Of whole numbers, whole numbers between which lies as much at least."""
    by_row, whole = np.ascontiguousarray(np.moveaxis(values, 0, -1)), values.dtype.kind in "iub"
    numbers = by_row.astype(np.int32) if by_row.dtype == bool else by_row
    method = "inverted_cdf" if whole else "linear"
    return np.quantile(numbers, (tail, 1 - tail), axis=-1, method=method, overwrite_input=True).astype(numbers.dtype)
