"""Leave-one-out: how well each row is foreseen by all the others.

Of all rows, the log density at the posterior mean is summed in one pass; what it lacks is found from some rows, drawn at random,
by Pareto-smoothed importance sampling. The estimate is unbiased over the draw of rows, and comes with its error: Magnusson,
Andersen, Jonasson and Vehtari (2019), Vehtari, Simpson, Gelman, Yao and Gabry (2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgmcmc.core.checks import Progress, check_progress
from sgmcmc.core.errors import InputError, SgmcmcError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.sameness import digest
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.problem.over_draws import OverDraws
from sgmcmc.results.after.densities import Sums, each_row, sums_of
from sgmcmc.results.after.draws import like_params, some_draws
from sgmcmc.results.after.pareto import log_sum_exp, smoothed
from sgmcmc.results.after.predicting import model_of
from sgmcmc.results.after.some_rows import row_numbers, rows_at
from sgmcmc.results.convergence import effective_size
from sgmcmc.results.diagnostics import flat_draws, slowest, weighted_mean_sd
from sgmcmc.rows.table import Stratum, Table, check_dataset

if TYPE_CHECKING:
    import pandas

    from sgmcmc.results.result import Result

FEWEST_DRAWS = 100
"""Draws without which no tail can be fitted."""


@dataclass(frozen=True)
class Loo:
    """What leaving one row out at a time says of a fit: log densities of rows given all the others.

    Attributes:
        elpd: their sum over all rows.
        se: its standard error as a forecast for as many new rows: from row to row.
        error: how far it may be from what all rows would have given: from the draw of rows.
        p_loo: by how much the rows are foreseen better where they are not left out: an effective number of parameters.
        p_error: the error of that from the draw of rows.
        rows: numbers of the rows that were drawn.
        pointwise: the log density of each of them given the others.
        at_mean: its log density at the posterior mean.
        pareto_k: of each, how heavy the tail of its importance weights is: above `good_k` its density is not to be trusted.
        good_k: where that begins for so many draws.
        n_draws: of the posterior.
        n_rows: of the dataset.
    """

    elpd: float
    se: float
    error: float
    p_loo: float
    p_error: float
    rows: np.ndarray = field(repr=False)
    pointwise: np.ndarray = field(repr=False)
    at_mean: np.ndarray = field(repr=False)
    pareto_k: np.ndarray = field(repr=False)
    good_k: float
    n_draws: int
    n_rows: int
    of_all: Sums = field(repr=False, default_factory=Sums)
    observed: Any = field(repr=False, default=None)

    @property
    def ok(self) -> bool:
        """Whether all tails are light enough."""
        return not (self.pareto_k > self.good_k).any()

    def __str__(self) -> str:
        some = f"{len(self.rows):,} of {self.n_rows:,} rows, {self.n_draws:,} draws"
        bad = int((self.pareto_k > self.good_k).sum())
        said = [
            f"elpd_loo {self.elpd:.1f}, standard error {self.se:.1f} (of the subsample {self.error:.1f}), from {some}.",
            f"p_loo {self.p_loo:.1f} (± {self.p_error:.1f}).",
            f"Pareto k is good (at most {self.good_k:.2f}) in all rows."
            if not bad
            else f"Pareto k is above {self.good_k:.2f} in {bad} rows ({bad / len(self.rows):.1%}), worst in row "
            f"{self.rows[np.argmax(self.pareto_k)]} ({self.pareto_k.max():.2f}): they may be foreseen worse than this says.",
        ]
        return "\n".join(said)


def loo(fit: Result, rows: int = 1000, *, draws: int = 1000, seed: int = 0, progress: Progress = True) -> Loo:
    """Leave-one-out cross-validation without fitting again: the expected log predictive density of a fit, `print(loo(fit))`.

    One pass over all rows at the posterior mean, and Pareto-smoothed importance sampling for `rows` of them, drawn at random: the
    difference estimator, with an error of its own beside the standard error. `log_lik` must have its constants, as those of
    `sgmcmc.distributions` have, where models of different kinds are compared.

    Args:
        fit: a result that has its model.
        rows: how many are left out in turn; a count as large as the dataset takes all.
        draws: so many draws of the posterior, spread evenly over chains and iterations.
        seed: of the rows that are drawn. The same seed draws the same rows for another fit.
        progress: as in `Result.predict`.

    >>> import numpy as np, sgmcmc
    >>> data = {"x": np.random.default_rng(0).normal(size=5000)}
    >>> log_lik = lambda params, rows: sgmcmc.distributions.Normal(params["mu"], 1.0).log_prob(rows["x"])
    >>> fit = sgmcmc.sgldcv(log_lik, data, {"mu": 0.0}, 1e-4, minibatch_size=100, n_iters=4000, seed=1, progress=False)
    >>> found = sgmcmc.loo(fit, rows=200)
    >>> found.ok, found.pareto_k.shape, bool(abs(found.p_loo - 1) < 0.5)
    (True, (200,), True)
    """
    fit = fit.in_model
    model = model_of(fit, "loo")
    table = check_dataset(model.dataset)
    if isinstance(table, Stratum) and table.in_strata:
        raise InputError("loo got rows that are spread over processes; load the fit in one process, with a model of all rows")
    if (fitted := fit.settings.get("n_rows", table.n_rows)) != table.n_rows:
        raise InputError(f"loo has a model of {table.n_rows:,} rows, and the fit was of {fitted:,}; expected the rows of the fit")
    chosen = some_draws(fit, draws)
    count = len(jax.tree.leaves(chosen)[0])
    if count < FEWEST_DRAWS:
        raise InputError(f"loo has {count} draws; expected at least {FEWEST_DRAWS}, for the tails of importance weights")
    numbers = row_numbers(table, rows, seed)
    some = rows_at(table, numbers)
    centre, of_all = _at_a_centre(fit, chosen, table, progress)
    at_mean = each_row(model, centre, some).all(some)[0].astype(np.float64)
    pointwise, foreseen, pareto_k = left_out(each_row(model, chosen, some), some, numbers, _efficiency(fit, count), progress)
    elpd, error = _difference(of_all.total, pointwise - at_mean, table.n_rows)
    p_loo, p_error = _difference(0.0, foreseen - pointwise, table.n_rows)
    return Loo(
        elpd, _standard_error(of_all, pointwise, at_mean, elpd, error), error, p_loo, p_error, numbers, pointwise, at_mean,
        pareto_k, min(0.7, 1 - 1 / np.log10(count)), count, table.n_rows, of_all, _observed(model.observed, some),
    )  # fmt: skip


def compare(
    fits: Mapping[str, Result | Loo], rows: int = 1000, *, draws: int = 1000, seed: int = 0, progress: Progress = True
) -> pandas.DataFrame:
    """Fits of the same rows beside one another, the one that foresees best first, by the same rows left out.

    `difference` is by how much the sum of log densities falls short of the first's, `difference_se` its standard error from row
    to row, and `difference_error` the part of its error that comes from the draw of rows: take more `rows` if it is large. A
    difference of less than about 4, or than twice its standard error, is none that rows can tell.

    Args:
        fits: results, or what `loo` made of them, by name.
        rows: as in `loo`, with what follows it.

    >>> import numpy as np, sgmcmc
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=5000)
    >>> data = {"x": x, "y": 0.3 * x + rng.normal(size=5000)}
    >>> with_x = lambda params, rows: sgmcmc.distributions.Normal(params["b"] * rows["x"], 1.0).log_prob(rows["y"])
    >>> without = lambda params, rows: sgmcmc.distributions.Normal(params["b"], 1.0).log_prob(rows["y"])
    >>> call = {"minibatch_size": 100, "n_iters": 2000, "seed": 1, "progress": False}
    >>> fits = {"with": sgmcmc.sgldcv(with_x, data, {"b": 0.0}, 1e-4, **call),
    ...         "without": sgmcmc.sgldcv(without, data, {"b": 0.0}, 1e-4, **call)}
    >>> table = sgmcmc.compare(fits, rows=200, progress=False)
    >>> list(table.index), bool(table["difference"]["without"] < -5 * table["difference_se"]["without"])
    (['with', 'without'], True)
    """
    import pandas

    if not isinstance(fits, Mapping) or len(fits) < 2:
        raise InputError(f"compare got {describe(fits)}; expected two fits or more by name, such as {{'a': fit, 'b': other}}")
    known = {
        name: one if isinstance(one, Loo) else loo(one, rows, draws=draws, seed=seed, progress=progress)
        for name, one in fits.items()
    }
    order = sorted(known, key=lambda name: -known[name].elpd)
    best = known[order[0]]
    table = {}
    for name in order:
        one = known[name]
        _refuse_others(order[0], best, name, one)
        short, error = _shortfall(best, one)
        se = np.sqrt(one.n_rows * np.var(one.pointwise - best.pointwise, ddof=1))
        bad = int((one.pareto_k > one.good_k).sum())
        table[name] = [one.elpd, one.se, one.error, one.p_loo, short, se, error, bad]
    columns = ["elpd", "se", "error", "p_loo", "difference", "difference_se", "difference_error", "bad_k"]
    return pandas.DataFrame.from_dict(table, orient="index", columns=columns)


def _at_a_centre(fit: Result, draws: PyTree, table: Table, progress: Progress) -> tuple[PyTree, Sums]:
    """The posterior mean with the log densities of all rows there; a draw near it, where the mean is no place for parameters."""
    model = model_of(fit, "loo")
    leaves, structure = jax.tree.leaves(draws), jax.tree.structure(fit.draws)
    every = (np.asarray(x if fit.chained else x[None]) for x in jax.tree.leaves(fit.draws))
    means = [weighted_mean_sd(x, fit.weights)[0].astype(x.dtype)[None] for x in every]
    centre = like_params(fit, jax.tree.unflatten(structure, means))
    try:
        return centre, sums_of(each_row(model, centre, table), table, progress, "leave-one-out")
    except SgmcmcError:
        away = [((x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-30)) ** 2 for x in leaves]
        nearest = int(np.argmin(sum(x.reshape(len(x), -1).sum(axis=1) for x in away)))
        centre = tree_map(lambda x: x[nearest : nearest + 1], draws)
        return centre, sums_of(each_row(model, centre, table), table, progress, "leave-one-out")


def left_out(
    ask: OverDraws, some: Table, numbers: np.ndarray, efficiency: float, progress: Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of these rows the log density given the others, that given all rows, and Pareto k."""
    found = np.empty((3, some.n_rows))
    with Bar(check_progress(progress), "leaving rows out", some.n_rows, "row") as bar:
        for place, values in ask.blocks(some):
            by_row = values.T.astype(np.float64)
            if not np.isfinite(by_row).all():
                what = f"log_lik of row {numbers[place][~np.isfinite(by_row).all(axis=1)][0]} is not finite for a draw"
                raise SgmcmcError(f"{what} of the posterior; leave the row out, or mend log_lik")
            weights, k = smoothed(-by_row, efficiency)
            found[:, place] = log_sum_exp(weights + by_row), log_sum_exp(by_row) - np.log(by_row.shape[1]), k
            bar.update(len(by_row))
    return found[0], found[1], found[2]


def _efficiency(fit: Result, count: int) -> float:
    """Independent draws for each that is used, one at most."""
    sizes = [effective_size(x) for x in np.moveaxis(slowest(flat_draws(fit.draws, fit.chained)), -1, 0)]
    known = [size for size in sizes if np.isfinite(size)]
    return float(min(1.0, max(np.mean(known) / count, 1 / count))) if known else 1.0


def _difference(total: float, differences: np.ndarray, n_rows: int) -> tuple[float, float]:
    """A sum over all rows, from one that is near it and the differences in rows drawn at random; and its error."""
    drawn = len(differences)
    spread = differences.var(ddof=1) if drawn > 1 else 0.0
    return float(total + n_rows * differences.mean()), float(np.sqrt(n_rows * (n_rows - drawn) / drawn * spread))


def _standard_error(of_all: Sums, pointwise: np.ndarray, at_mean: np.ndarray, elpd: float, error: float) -> float:
    """From the variance over all rows of what only some rows are known of, by the difference estimator for squares."""
    n, middle = of_all.count, of_all.mean
    squares = of_all.squares + n * np.mean((pointwise - middle) ** 2 - (at_mean - middle) ** 2)
    variance = squares / n - ((elpd - of_all.total) ** 2 - error**2) / n**2
    return float(np.sqrt(n * max(variance, 0.0)))


def _shortfall(best: Loo, other: Loo) -> tuple[float, float]:
    """By how much a fit falls short of another, from the same rows, and the error from their draw."""
    beyond = (other.pointwise - other.at_mean) - (best.pointwise - best.at_mean)
    return _difference(other.of_all.total - best.of_all.total, beyond, best.n_rows)


def _refuse_others(first: str, best: Loo, name: str, other: Loo) -> None:
    """Fits of other data, or looked at in other rows."""
    if best.n_rows != other.n_rows or not np.array_equal(best.rows, other.rows):
        found = f"{first!r} has {len(best.rows)} of {best.n_rows} rows and {name!r} {len(other.rows)} of {other.n_rows}"
        raise InputError(
            f"compare needs the same rows left out: {found}; call loo with one rows= and seed= for fits of one dataset"
        )
    if None not in (best.observed, other.observed) and best.observed != other.observed:
        raise InputError(f"{first!r} and {name!r} observed different values in the same rows; compare fits of one dataset")


def _observed(columns: tuple[str, ...], table: Table) -> Any:
    """What is observed in some rows, short; None where the model does not say."""
    there = tuple((name, digest(table[name])) for name in sorted(columns) if name in table)
    return there or None
