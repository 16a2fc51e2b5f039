"""Posterior predictive checks: what was observed beside what the model would have observed in the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.core.checks import Progress, check_progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.problem.over_draws import OverDraws
from sgmcmc.problem.simulating import refuse_if_large, simulation
from sgmcmc.results.after.draws import some_draws
from sgmcmc.results.after.outcomes import MOST_GROUPS, Groups, Outcome, in_bins
from sgmcmc.results.after.predicting import average, model_of
from sgmcmc.results.after.some_rows import row_numbers, rows_at
from sgmcmc.rows.table import Table, check_dataset

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from sgmcmc.problem.model import Model
    from sgmcmc.results.result import Result

SURPRISING = 0.01
"""Probability below which an observed statistic is one that the model hardly ever makes."""


@dataclass(frozen=True)
class Check:
    """What was observed beside what the model would have observed. Printing it says where they differ; `figure` shows it.

    Attributes:
        outcomes: by column, the numbers behind it all.
        rows: how many rows were looked at.
        n_rows: of how many.
    """

    outcomes: dict[str, Outcome]
    rows: int
    n_rows: int
    title: str = field(default="model", repr=False)

    @cached_property
    def table(self) -> pandas.DataFrame:
        """For every statistic the observed value, mean and 90 % interval of the simulated ones, and `p`: how often the model is
        as far out on either side. Near 0 the model does not make what was observed. Distances of groups from what is expected
        surprise if they are too large: those of the rows that a model was fitted to may be as small as they like.
        """
        import pandas

        rows = {}
        for column, outcome in self.outcomes.items():
            for name, (observed, simulated) in outcome.statistics().items():
                above, below = (simulated >= observed).sum() + 1, (simulated <= observed).sum() + 1
                beyond = above if name in outcome.distances else min(above, below)
                p = min(1.0, 2 * beyond / (len(simulated) + 1))
                rows[f"{column}: {name}"] = [observed, simulated.mean(), *np.quantile(simulated, [0.05, 0.95]), p]
        return pandas.DataFrame.from_dict(rows, orient="index", columns=["observed", "simulated", "5%", "95%", "p"])

    @property
    def surprises(self) -> pandas.DataFrame:
        """The statistics that the model hardly ever makes as they were observed."""
        return self.table.loc[self.table["p"] < SURPRISING]

    @property
    def ok(self) -> bool:
        """Whether there are none."""
        return self.surprises.empty

    @cached_property
    def figure(self) -> Figure:
        """A row of pictures for every column: densities, a rootogram or the calibration, by its kind; ranks; groups."""
        from sgmcmc.results.after.check_pictures import figure

        return figure(self)

    def __str__(self) -> str:
        looked = f"{self.rows:,} of {self.n_rows:,} rows" if self.rows < self.n_rows else f"{self.rows:,} rows"
        said = [
            f"- {name}: observed {one['observed']:.4g}, the model's is {one['5%']:.4g} to {one['95%']:.4g} (p = {one['p']:.3f})."
            for name, one in self.surprises.iterrows()
        ]
        draws = len(next(iter(self.outcomes.values())).simulated)
        if 2 / (draws + 1) >= SURPRISING:
            said.append(f"- {draws} draws are too few to say what is surprising; ask for draws=400.")
        alike = f"- What was observed in {looked} is what the model makes, by all {len(self.table)} statistics."
        return "\n".join(said or [alike])

    def __repr__(self) -> str:
        kinds = ", ".join(f"{column} ({outcome.kind})" for column, outcome in self.outcomes.items())
        return f"<Check of {kinds}: {len(self.surprises)} of {len(self.table)} statistics surprise>"


def check(result: Result, by: Any, rows: int, draws: int, seed: int, progress: Progress) -> Check:
    """As `Result.check` says."""
    model = model_of(result, "check")
    whole = check_dataset(model.dataset)
    groups = (by,) if isinstance(by, str) else tuple(by)
    for name in groups:
        if name not in whole:
            raise InputError(f"by names the column {describe(name)}; the dataset has {', '.join(whole)}")
    table = rows_at(whole, row_numbers(whole, rows, seed))
    with Bar(check_progress(progress), "checking the model", table.n_rows, "row") as bar:
        outcomes = _outcomes(result, model, table, draws, seed, bar)
    grouped = tuple(_groups(name, table[name], model) for name in groups)
    outcomes = {column: replace(one, groups=_for_each(grouped, len(one.observed))) for column, one in outcomes.items()}
    return Check(outcomes, table.n_rows, whole.n_rows, str(result.settings.get("sampler", "model")))


def _outcomes(result: Result, model: Model, table: Table, draws: int, seed: int, bar: Bar) -> dict[str, Outcome]:
    ask = simulation(model, some_draws(result, draws), seed)
    made = ask.of_rows(table)
    columns = [column for column in model.observed or table if column in made and column in table]
    if not columns:
        found = f"simulate makes {', '.join(made)} and the dataset has {', '.join(table)}"
        raise InputError(f"{found}: nothing to compare; name the column that simulate makes as the dataset does")
    refuse_if_large(ask.bytes_of_row(table) * table.n_rows, ask.n_draws, table.n_rows)
    simulated, means = ask.all(table, bar), _means(model, ask, table)
    outcomes = {}
    for column in columns:
        observed = np.asarray(table[column], np.float64)
        if simulated[column].shape[1:] != observed.shape:
            found = f"simulate makes {column!r} of shape {simulated[column].shape[1:]}"
            raise InputError(f"{found}; the dataset has it of shape {observed.shape}: make them alike")
        drawn = simulated[column].astype(np.float32).reshape(ask.n_draws, -1)
        known = means.get(column)
        expected = drawn.mean(axis=0) if known is None or known.shape != observed.shape else known.ravel()
        outcomes[column] = Outcome(column, observed.ravel(), drawn, expected)
    return outcomes


def _means(model: Model, ask: OverDraws, table: Table) -> dict[str, np.ndarray]:
    """Expected values by column, where the model knows them."""
    if model.mean is None:
        return {}
    found = OverDraws("mean", model.mean, ask.draws, None, average).all(table)
    if isinstance(found, Mapping):
        return dict(found)
    column = model.observed[0] if model.observed else next(iter(ask.of_rows(table)))
    return {column: found}


def _groups(name: str, values: Any, model: Model) -> Groups:
    """Rows by what a column says: by its values, or where these are very many by tenths."""
    values = np.asarray(values)
    if values.ndim > 1:
        raise InputError(f"by names the column {name!r} of shape {values.shape}; expected one number for each row")
    found, number = np.unique(values, return_inverse=True)
    if len(found) > MOST_GROUPS:
        return in_bins(name, values)
    coords = (model.coords or {}).get(name, ())
    named = values.dtype.kind in "iu" and len(coords) > int(found.max()) and found.min() >= 0
    labels = [str(coords[int(one)]) if named else f"{one:g}" for one in found]
    return Groups(name, tuple(labels), number)


def _for_each(groups: tuple[Groups, ...], numbers: int) -> tuple[Groups, ...]:
    """Groups of the numbers of an outcome that has several in each row."""
    return tuple(replace(one, number=np.repeat(one.number, numbers // len(one.number))) for one in groups)
