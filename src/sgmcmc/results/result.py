"""What a run returns: draws by parameter, what was kept instead of them, and how they came about."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgmcmc.algorithms.gradients.whitened import whitening_of_state
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, warn
from sgmcmc.core.files import replacing
from sgmcmc.core.html import Markup
from sgmcmc.core.names import Coords, Dims, Names
from sgmcmc.core.trees import Dataset, PyTree, Rows, State, children, join, leaf_names, size
from sgmcmc.problem.arrow import ArrowWhitening
from sgmcmc.problem.model import Model
from sgmcmc.results import diagnostics
from sgmcmc.results.diagnostics import Inflation, Pairs, flat_draws
from sgmcmc.results.judging import Judge, by_nuts
from sgmcmc.results.keeps import MOST_PAIRED, paired_numbers
from sgmcmc.results.stein import SteinDiscrepancy, stein_discrepancy, zero_variance_mean
from sgmcmc.results.words import Decisions, Health

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from sgmcmc.results.after.checking import Check
    from sgmcmc.results.after.densities import LogScore

LONGEST_SUMMARY = 200
"""Numbers a summary describes unless told otherwise."""

LEAST_DRAWS = 20
"""Draws of a chain below which nothing can be judged by them."""


@dataclass(frozen=True)
class Result(Mapping[str, Any]):
    """The draws of a run: a mapping of the parameters' names to arrays.

    Without chains `result["beta"]` has shape `(draws, *shape of beta)`; with them the chains come first.

    Attributes:
        draws: the draws as a tree like `params`, or None where `keep` replaced them.
        kept: what the objects of `keep` returned, by name; the object's own value where `keep` was one object.
        final_state: where to continue from, with `run` of the matching `*_setup` sampler.
        settings: what the run was told and what it decided, with the versions of the software.
        weights: one weight per draw under a step-size schedule, else None. `summary` uses it.
        decisions: what the library decided, with reasons: `print(result.decisions)`.
        pairs: draws and gradients for the diagnostics, where the run was asked to `diagnose`.
        names: what axes and numbers of the parameters are called, from `coords` and `dims`.
        model: the model that was sampled; None after `sgmcmc.load`, unless that was given it.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=500, n_chains=2, seed=1)
    >>> out["mu"].shape
    (2, 500)
    >>> list(out.summary().columns)
    ['mean', 'sd', 'mcse', '5%', '50%', '95%', 'ess', 'r_hat']
    """

    draws: PyTree | None
    kept: Any
    final_state: State
    settings: dict[str, Any]
    weights: np.ndarray | None = None
    chained: bool = False
    pairs: Pairs | None = field(default=None, repr=False)
    decisions: Decisions = field(default_factory=Decisions)
    names: Names = field(default_factory=Names, repr=False)
    model: Model | None = field(default=None, repr=False)

    @cached_property
    def _children(self) -> dict[str, Any]:
        return {} if self.draws is None else children(self.draws)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._children[name]
        except KeyError:
            raise KeyError(f"{name!r}; this result has {', '.join(map(repr, self._children)) or 'no draws, see .kept'}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without the model, whose functions another process may not have, nor what can be worked out again."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"model": None}

    def __repr__(self) -> str:
        names, leaves = leaf_names(self.draws), jax.tree.leaves(self.draws)
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in zip(names, leaves, strict=True))
        return f"<Result of {self.settings.get('sampler')}: {shapes or 'no draws kept, see .kept'}>"

    def _repr_html_(self) -> Markup:
        from sgmcmc.results.report.page import in_brief

        return in_brief(self)

    def summary(self, max_rows: int = LONGEST_SUMMARY) -> pandas.DataFrame:
        """Mean, standard deviation, Monte Carlo error of the mean, quantiles, effective sample size and R-hat of every number.

        The last two measure how well the chain mixes, not whether its law is the posterior. That is what `inflation` says, with
        its standard error, where the run was asked to `diagnose`: the variance of the chain over that of the posterior (of the
        unconstrained number, under constraints). NaN: not determined. With one chain, R-hat compares its halves. Under a
        step-size schedule mean, sd and quantiles weight each draw by its step size.

        Args:
            max_rows: describe only the first so many numbers (a network has too many to read).
        """
        import pandas

        from sgmcmc.results.tables import COLUMNS, INFLATION, Summary, described

        total = sum(math.prod(draws.shape[2:]) for draws in self._named_draws().values())
        if total > max_rows:
            warn(f"summary shows {max_rows} of {total} numbers; raise max_rows to see all")
        rows, left = {}, max_rows
        for name, draws in self._named_draws().items():
            flat = draws.reshape(*draws.shape[:2], -1)[..., : max(left, 0)]
            if flat.shape[2] == 0:
                break
            rows.update(dict(zip(self.names.labels(name, draws.shape[2:]), described(flat, self.weights), strict=False)))
            left -= flat.shape[2]
        summary = Summary.from_dict(rows, orient="index", columns=list(COLUMNS))
        if self.diagnosable and (pairs := self.pairs) is not None:
            found = self.inflation()
            for column, values in zip(INFLATION, (found.value, found.error), strict=True):
                summary[column] = pandas.Series(values, index=pairs.names).reindex(summary.index)
        return summary

    def inflation(self) -> Inflation:
        """The variance of the chain over the posterior's, for every unconstrained number, with standard errors.

        NaN: not determined, for draws that are too few, too noisy or too far out. Needs a run with `diagnose=True`, as those of
        `sample` are.
        """
        return self._inflation.where_determined()

    @cached_property
    def _inflation(self) -> Inflation:
        pairs = self._diagnosed("inflation")
        with np.errstate(all="ignore"):  # what came of it is asked of the value
            return diagnostics.parameter_inflation(pairs.positions, pairs.gradients, pairs.factor)

    def zero_variance_means(self) -> pandas.DataFrame:
        """Posterior means of the unconstrained numbers with the gradients as control variates, and their Monte Carlo errors.

        The chain's gradients have mean 0 under the posterior, so what their mean in the run happens to be is taken off. `gain`
        is how many times more draws the plain mean would need. Needs a run with `diagnose=True`.
        """
        import pandas

        pairs = self._diagnosed("zero_variance_means")
        found = zero_variance_mean(pairs.positions, pairs.gradients, pairs.factor, pairs.origin)
        gain = (found.plain_mcse / found.mcse) ** 2
        return pandas.DataFrame({"mean": found.mean, "mcse": found.mcse, "gain": gain}, index=pairs.names)

    def stein_discrepancy(self) -> SteinDiscrepancy:
        """Kernel Stein discrepancy of the draws from the posterior: 0 on average for perfect draws, with a z-score.

        One number for the whole law, where `inflation` looks at variances. Needs a run with `diagnose=True`, and variables of
        one scale, as `sample` and `precondition` make them: others are divided by their standard deviations first.
        """
        pairs = self._diagnosed("stein_discrepancy")
        scale = pairs.positions.std(axis=(0, 1)) if pairs.factor is None else 1.0
        positions, gradients = pairs.positions / scale, pairs.gradients * scale
        return stein_discrepancy(positions, gradients, diagnostics.autocorrelation_time(positions))

    def health(self) -> Health:
        """What is wrong with this result and what to do about it, in plain words: `print(result.health())`.

        Needs a run with `diagnose=True`, as those of `sample` are. A good result is flagged for its variances, or for excursions,
        less than once in a hundred times.

        >>> import numpy as np, sgmcmc
        >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
        >>> data = {"x": np.random.default_rng(0).normal(size=1000)}
        >>> out = sgmcmc.sgldcv(log_lik, data, {"mu": 0.0}, 1.0, precondition="laplace", minibatch_size=100,
        ...                     n_iters=20_000, seed=1, diagnose=True, progress=False)
        >>> out.health().kinds
        ('step',)
        """
        return self._health

    @cached_property
    def _health(self) -> Health:
        bare = by_nuts(self) and self.pairs is None
        pairs, inflation = (None, None) if bare else (self._diagnosed("health").looked_at(), self._inflation)
        with np.errstate(all="ignore"):
            return Judge(self, pairs, inflation).health()

    @property
    def in_model(self) -> Result:
        """The draws as parameters of the model: this very result, unless it shows others."""
        return self

    def predict(
        self, new: Dataset | None = None, kind: str = "mean", *, function: Callable[[PyTree, Rows], Any] | None = None,
        level: float = 0.9, draws: int = 500, seed: Any = 0, progress: Progress = True,
    ) -> Any:  # fmt: skip
        """What is to be expected in new rows, from the model's own `mean` and `simulate`, or any function of params and rows.

        `kind="mean"` is the average of the expected value over the posterior: of the model's `mean`, or of what it simulates.
        `"draws"` are observations that the model simulates, one for each of its draws, and an `"interval"` holds so much of
        them: both have the spread of the posterior and that of single observations. With a `function` all three are of what it
        returns: `function=fit.model.mean` has the spread of the posterior alone.

        Rows are read in blocks, with a bar where it takes long; what comes out for a row is the same however they are cut.

        Args:
            new: a dict of arrays, memory maps, the path of a folder of rows: all that a dataset may be, with the columns that
                the function asks for. None: the rows of the fit.
            kind: `"mean"`, `"draws"` (draws first, then rows) or `"interval"` (a pair: lower and upper ends).
            function: `function(params, rows)`: an array with rows first, or a tree of them.
            level: how much of the draws the interval holds, as much below it as above.
            draws: so many of the draws, spread evenly over chains and iterations.
            seed: of the simulated observations.
            progress: False shows no bar; a function is called with what it would show.

        >>> import jax, numpy as np, sgmcmc
        >>> x = np.random.default_rng(0).normal(3.0, 1.0, 1000)
        >>> model = sgmcmc.Model(
        ...     lambda params, rows: -0.5 * ((rows["x"] - params["mu"]) ** 2).sum(), {"x": x}, {"mu": 3.0},
        ...     observed=("x",), mean=lambda params, rows: params["mu"] + 0 * rows["x"],
        ...     simulate=lambda key, params, rows: {"x": params["mu"] + jax.random.normal(key, rows["x"].shape)},
        ... )
        >>> fit = sgmcmc.sgld(model, 1e-4, minibatch_size=100, n_iters=2000, seed=1, progress=False)
        >>> fit.predict().shape, fit.predict(kind="draws").shape
        ((1000,), (500, 1000))
        >>> lower, upper = fit.predict({"x": [0.0]}, "interval")
        >>> bool(lower[0] < 3 < upper[0])
        True
        """
        from sgmcmc.results.after.predicting import predict

        return predict(self.in_model, new, kind, function, level, draws, seed, progress)

    def posterior_predictive(
        self, new: Dataset | None = None, *, draws: int = 500, seed: Any = 0, progress: Progress = True
    ) -> dict[str, np.ndarray]:
        """Observations as the model would make them, by column: draws first, then rows. Arguments are those of `predict`.

        The random numbers of a row come from the seed, the draw's number and the row's: other rows do not change them.
        """
        from sgmcmc.results.after.predicting import posterior_predictive

        return posterior_predictive(self.in_model, new, draws, seed, progress)

    def log_score(self, new: Dataset, *, draws: int = 1000, progress: Progress = True) -> LogScore:
        """How well rows are foreseen that the fit has not seen: the log of their posterior predictive density, row by row.

        The mean over the rows with its standard error, and the sum: higher is better. `log_lik` must have its constants, where
        fits of different models are compared. Rows may be anywhere, as in `predict`.

        >>> import numpy as np, sgmcmc
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> log_lik = lambda params, rows: sgmcmc.distributions.Normal(params["mu"], 1.0).log_prob(rows["x"])
        >>> fit = sgmcmc.sgldcv(log_lik, {"x": x[:1000]}, {"mu": 0.0}, 1e-3, minibatch_size=100, n_iters=2000, seed=1)
        >>> score = fit.log_score({"x": x[1000:]})
        >>> bool(abs(score.mean + 0.5 * np.log(2 * np.pi) + 0.5) < 4 * score.se)
        True
        """
        from sgmcmc.results.after.densities import log_score

        return log_score(self.in_model, new, draws, progress)

    def check(
        self, *, by: str | Sequence[str] = (), rows: int = 10_000, draws: int = 400, seed: int = 0, progress: Progress = True
    ) -> Check:
        """What was observed beside what the model simulates for the same rows: `print(fit.check())`, and its `figure`.

        The figure has densities for continuous outcomes, a rootogram for counts, the calibration for what is 0 or 1, and the
        ranks of observations among those simulated for their rows; `table` has the statistics behind it.

        Args:
            by: a column of the dataset, or several: means of residuals in each of its groups, or tenths.
            rows: so many rows of the dataset, drawn at random; wherever it is, these alone are in memory.
            draws: so many draws of the posterior, spread evenly.
            seed: of the rows and of the simulated observations.
            progress: as in `predict`.

        >>> import jax, numpy as np, sgmcmc
        >>> x = np.random.default_rng(0).standard_t(3, 1000)
        >>> model = sgmcmc.Model(
        ...     lambda params, rows: -0.5 * ((rows["x"] - params["mu"]) ** 2).sum(), {"x": x}, {"mu": 0.0}, observed=("x",),
        ...     simulate=lambda key, params, rows: {"x": params["mu"] + jax.random.normal(key, rows["x"].shape)},
        ... )
        >>> fit = sgmcmc.sgld(model, 1e-4, minibatch_size=100, n_iters=2000, seed=1, progress=False)
        >>> found = fit.check()
        >>> list(found.surprises.index)
        ['x: sd', 'x: smallest', 'x: largest']
        >>> found.figure.savefig("check.png")  # doctest: +SKIP
        """
        from sgmcmc.results.after.checking import check

        return check(self.in_model, by, rows, draws, seed, progress)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result into one file, bit for bit, for `sgmcmc.load(path)` in any process: `fit.save("fit.sgmcmc")`.

        The file holds all but the model: draws, what was kept, settings, decisions, names, what `health` needs, and where the
        chains stand. It is an npz of plain arrays and JSON, without pickle, written whole or not at all. What was at `path` is
        replaced. Hand the model to `load`, for what needs it: `sgmcmc.load(path, model=model)`.

        >>> import tempfile, numpy as np, sgmcmc
        >>> log_lik = lambda params, rows: -0.5 * ((rows["x"] - params["mu"]) ** 2).sum()
        >>> fit = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=500, seed=1)
        >>> fit.save(path := f"{tempfile.mkdtemp()}/fit.sgmcmc")
        >>> bool((sgmcmc.load(path)["mu"] == fit["mu"]).all())
        True
        """
        from sgmcmc.results.after.saving import save

        save(self, path)

    def deterministic(self) -> Result:
        """What follows from the parameters by the model's own words, as a result: its draws, summaries, pictures.

        Of a NumPyro model these are its deterministic sites, and what its reparametrised sites are made into, without those of
        single rows, which are predictions. While a run goes on, `keep=Expectation(model.deterministic)` averages them.

        >>> import numpy as np, sgmcmc
        >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
        >>> twice = lambda params: {"twice": 2 * params["mu"]}
        >>> model = sgmcmc.Model(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, deterministic=twice)
        >>> out = sgmcmc.sgld(model, 1e-2, minibatch_size=10, n_iters=50, seed=1)
        >>> bool((out.deterministic()["twice"] == 2 * out["mu"]).all())
        True
        """
        from sgmcmc.results.after.following import deterministic

        return deterministic(self)

    def to_arviz(
        self, groups: str | Sequence[str] = ("posterior", "sample_stats"), *, coords: Coords | None = None,
        dims: Dims | None = None, draws: int | None = None, rows: int = 1000, seed: int = 0, progress: Progress = True,
    ) -> Any:  # fmt: skip
        """The draws as an ArviZ `DataTree`; settings go to the attributes of its posterior, names with slashes have dots.

        For ArviZ before 1.0: `arviz.InferenceData.from_datatree(fit.to_arviz())`. To a file: `.to_zarr` with `zarr`, `.to_netcdf`
        with `netCDF4`, or `h5netcdf` and `h5py`.

        Args:
            groups: some of `"posterior"`, `"sample_stats"` (weights of draws, lengths of gradients), and of a result with its
                model `"log_likelihood"`, `"posterior_predictive"`, `"prior"`, `"prior_predictive"`, `"observed_data"`.
            coords: labels by axis, beside those of the result or in their place.
            dims: names of axes by parameter, likewise.
            draws: at most so many of all chains, every so-manyth, in all groups alike. None: all, or 1,000 if a group has rows.
            rows: so many rows of the dataset, drawn at random, for the groups that have rows; the axis `row` has their numbers.
            seed: of these rows, of simulated observations and draws from the prior.
            progress: as in `predict`.

        >>> import numpy as np, sgmcmc
        >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
        >>> data = {"x": np.zeros((100, 3))}
        >>> out = sgmcmc.sgld(log_lik, data, {"mu": np.zeros(3)}, 1e-2, minibatch_size=10, n_iters=50, seed=1)
        >>> dict(out.to_arviz().posterior.sizes)
        {'chain': 1, 'draw': 50, 'mu_dim_0': 3}
        >>> tree = out.to_arviz(["posterior", "log_likelihood"], dims={"mu": ["axis"]}, draws=10, rows=20)
        >>> dict(tree.log_likelihood.sizes), tree.posterior.sizes["axis"]
        ({'chain': 1, 'draw': 10, 'row': 20}, 3)
        """
        from sgmcmc.results.after.arviz_tree import to_arviz

        return to_arviz(self, groups, coords, dims, draws, rows, seed, progress)

    def plot(self, names: list[str] | None = None, max_rows: int | None = None) -> Figure:
        """A matplotlib figure to show or save.

        Traces and densities, a row for each number; after a run with `diagnose=True`, posterior intervals, the inflation of
        each variance, and the traces that mix worst.

        Args:
            names: the parameters to draw; None draws them all.
            max_rows: draw at most so many numbers; 12 when left out, or 30 intervals.
        """
        from sgmcmc.results.pictures import overview, traces_and_densities

        draws = self._named_draws()
        unknown = [name for name in names or [] if name not in draws]
        if unknown:
            raise InputError(f"plot was asked for {unknown[0]!r}; this result has {', '.join(draws)}")
        chosen = draws if names is None else {name: draws[name] for name in names}
        series = [
            (label, array.reshape(*array.shape[:2], -1)[..., i])
            for name, array in chosen.items()
            for i, label in enumerate(self.names.labels(name, array.shape[2:]))
        ]
        title = str(self.settings.get("sampler"))
        if self.pairs is None:
            return traces_and_densities(series[: max_rows or 12], title, self.weights)
        found = self.inflation()
        known = np.flatnonzero(found.determined)
        by_name = {self.pairs.names[i]: (found.value[i], found.error[i]) for i in known}
        return overview(series[: max_rows or 30], by_name, title, "all checks passed" if self.health().ok else "see health()")

    def report(self, path: str | Path = "report.html", title: str | None = None) -> Path:
        """Write a page about this result, in one file that needs no network: for a colleague, for a supplement, for later.

        Verdict and findings first, then summary, intervals, traces, ranks, inflation, `check` where the model can simulate, what
        was decided and what was set. Of more than a hundred numbers it shows the worst. The same result gives the same file,
        byte for byte.

        Args:
            path: where the page goes.
            title: its heading; by default the names of the parameters.

        >>> import tempfile, numpy as np, sgmcmc
        >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
        >>> out = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=500, seed=1)
        >>> page = out.report(f"{tempfile.mkdtemp()}/fit.html", title="A mean")
        >>> "A mean" in page.read_text()
        True
        """
        from sgmcmc.results.report.page import page

        target = Path(path).expanduser()
        if not target.parent.is_dir():
            raise InputError(f"report was asked for {target}, but there is no folder {target.parent}; make it first")
        contents = page(self, title)
        with replacing(target) as file:
            file.write(contents.encode())
        return target

    @property
    def diagnosable(self) -> bool:
        """Whether there are gradients at the draws, and enough of them to judge the draws by."""
        return self.pairs is not None and self.pairs.positions.shape[1] >= LEAST_DRAWS

    def _diagnosed(self, what: str) -> Pairs:
        if self.pairs is None:
            raise InputError(f"{what} needs the gradients at the draws, which this run did not keep; run it with diagnose=True")
        if not self.diagnosable:
            raise InputError(f"{what} needs at least {LEAST_DRAWS} draws; this run has {self.pairs.positions.shape[1]}")
        return self.pairs

    def _named_draws(self) -> dict[str, np.ndarray]:
        """Every leaf by name, with axes chain, draw, and its own."""
        if self.draws is None:
            raise InputError("this result kept no draws; leave keep out, or put sgmcmc.Trace() into it")
        leaves = jax.tree.leaves(self.draws)
        if leaves[0].shape[self.chained] == 0:
            raise InputError("this result has no draws: the run ended in its burn-in")
        return dict(zip(leaf_names(self.draws), (leaf if self.chained else leaf[None] for leaf in leaves), strict=True))


ALONE, PAIRS, BESIDE = "kept", "pairs of the diagnostics", "draws beside what is kept"
"""The names of a keep object that came without one, of the one that `diagnose` adds, and of the trace that `sample` does."""


@dataclass(frozen=True)
class Record:
    """What a result has beside what was kept: what the user asked to keep is `"draws"`, `"one"` object or objects by `"name"`,
    and `trace` the name of the one that kept the draws, if any.
    """

    settings: dict[str, Any]
    chained: bool
    keep: str
    trace: str | None
    pair_names: tuple[str, ...] = ()
    decisions: Decisions = field(default_factory=Decisions)
    names: Names = field(default_factory=Names)

    def packed(self) -> dict[str, Any]:
        """For a checkpoint."""
        settings = {name: _plain(value) for name, value in self.settings.items()}
        return vars(self) | {"settings": settings, "pair_names": list(self.pair_names), "names": self.names.packed()}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Record:
        """From a checkpoint."""
        names = Names.unpacked(packed["names"]) if "names" in packed else Names()
        return cls(**{**packed, "pair_names": tuple(packed["pair_names"]), "names": names})


def assemble(
    record: Record, state: State, values: Mapping[str, Any], weights: np.ndarray | None = None, model: Model | None = None
) -> Result:
    """The result: `values` are what the keep objects returned, by name."""
    named = {name: value for name, value in values.items() if name not in (PAIRS, BESIDE)}
    kept: Any = {} if record.keep == "draws" else named[ALONE] if record.keep == "one" else named
    draws = None if record.trace is None else values[record.trace]
    pairs = make_pairs(values[PAIRS], state, list(record.pair_names), record.chained) if PAIRS in values else None
    names, decisions = record.names, record.decisions
    return Result(draws, kept, state, record.settings, weights, record.chained, pairs, decisions, names, model)


def paired_names(every: list[str], state: State) -> list[str]:
    """The names of the numbers that are kept in pairs, of the names of all: many groups are in the order of their layout."""
    some = paired_numbers(len(every))
    whitening = whitening_of_state(state.estimator)
    if isinstance(whitening, ArrowWhitening) and len(every) > MOST_PAIRED:
        return [every[i] for i in whitening.layout.order(whitening.origin)[some]]
    return every[some]


def make_pairs(pairs: PyTree, state: State, names: list[str], chained: bool) -> Pairs:
    """Positions and gradients as the diagnostics take them: chain, draw, number."""
    factor = origin = None
    if (whitening := whitening_of_state(state.estimator)) is not None:
        some = paired_numbers(size(whitening.origin))
        if isinstance(whitening, ArrowWhitening) and size(whitening.origin) > MOST_PAIRED:
            factor, origin = whitening.scales[some], np.asarray(whitening.layout.vector(whitening.origin), np.float64)[some]
        else:
            factor = np.asarray(whitening.factor) if whitening.dense else join(whitening.factor)[some]
            origin = join(whitening.origin)[some]
    return Pairs(flat_draws(pairs["position"], chained), flat_draws(pairs["gradient"], chained), names, factor, origin)


def _plain(value: Any) -> Any:
    """A setting as a file can hold it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    if value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic):
        return value
    return np.asarray(value) if hasattr(value, "__array__") else str(value)
