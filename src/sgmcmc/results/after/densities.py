"""The log likelihood of every row: for many draws, at one point, averaged over the posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import Progress, check_progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Dataset, PyTree, Rows
from sgmcmc.problem.over_draws import OverDraws
from sgmcmc.problem.posterior import check_params, log_lik_shape, one_row
from sgmcmc.results.after.draws import some_draws
from sgmcmc.results.after.predicting import model_of
from sgmcmc.rows.given import levels_of
from sgmcmc.rows.table import Table, check_dataset

if TYPE_CHECKING:
    from sgmcmc.problem.model import Model
    from sgmcmc.results.result import Result


def each_row(model: Model, draws: PyTree, table: Table, reduce: Callable[[jax.Array], jax.Array] | None = None) -> OverDraws:
    """Each row's log likelihood for every draw: from `log_lik` itself, or from one row after the other where it returns sums."""
    per_row = log_lik_shape(model.log_lik, check_params(model.params), table.columns)
    return OverDraws("log_lik", partial(_as_they_come if per_row else _one_by_one, model.log_lik), draws, None, reduce)


def _as_they_come(log_lik: Callable[..., Any], params: PyTree, rows: Rows) -> jax.Array:
    return jnp.ravel(log_lik(params, rows))


def _one_by_one(log_lik: Callable[..., Any], params: PyTree, rows: Rows) -> jax.Array:
    return jax.vmap(lambda row: jnp.asarray(log_lik(params, one_row(row))))(rows)


@dataclass(frozen=True)
class LogScore:
    """How well rows were foreseen that the fit has not seen.

    Attributes:
        total: the sum over the rows of the log of their posterior predictive density.
        mean: that for one row.
        se: the standard error of the mean, from row to row.
        n_rows: the rows.
    """

    total: float
    mean: float
    se: float
    n_rows: int

    def __str__(self) -> str:
        return f"log score {self.mean:.4f} ± {self.se:.4f} a row, {self.total:.1f} in all {self.n_rows:,} rows"


def log_score(result: Result, new: Dataset, draws: int, progress: Progress) -> LogScore:
    """As `Result.log_score` says."""
    model = model_of(result, "log_score")
    table = check_dataset(new, levels_of(model.dataset))
    ask = each_row(model, some_draws(result, draws), table, log_mean_exp)
    found = sums_of(ask, table, progress, "log score")
    return LogScore(found.total, found.mean, found.sd / np.sqrt(table.n_rows), table.n_rows)


def log_mean_exp(values: jax.Array) -> jax.Array:
    """The log of the mean of exponentials, over draws."""
    return jax.nn.logsumexp(values, axis=0) - jnp.log(len(values))


@dataclass(frozen=True)
class Sums:
    """Count, mean and sum of squares about the mean of very many numbers, added up in float64."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def plus(self, values: np.ndarray) -> Sums:
        """With some more."""
        more = np.asarray(values, np.float64)
        count, shift = self.count + len(more), float(more.mean()) - self.mean
        squares = self.squares + float(((more - more.mean()) ** 2).sum()) + shift**2 * self.count * len(more) / count
        return Sums(count, self.mean + shift * len(more) / count, squares)

    @property
    def total(self) -> float:
        return self.count * self.mean

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.squares / max(self.count - 1, 1)))


def sums_of(ask: OverDraws, table: Table, progress: Progress, stage: str) -> Sums:
    """Of one number for each row, which is not kept; where one is not finite its row is named."""
    sums = Sums()
    with Bar(check_progress(progress), stage, table.n_rows, "row") as bar:
        for place, values in ask.blocks(table, bar):
            values = values if ask.reduce is not None else values[0]
            if not np.isfinite(values).all():
                row = place.start + int(np.argmin(np.isfinite(values)))
                raise SgmcmcError(
                    f"{ask.name} is {values[row - place.start]} in row {row}; leave the row out, or mend {ask.name}"
                )
            sums = sums.plus(values)
    return sums
