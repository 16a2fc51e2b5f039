"""What is asked for, the problem and the run: refused before anything is compiled or written, known again in a checkpoint."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from sgmcmc.checkpoints.fingerprint import fingerprint, known, of_function, of_value
from sgmcmc.core.checks import Progress, check_choice, check_count, check_progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.names import Names
from sgmcmc.core.programs_on_disk import keep_programs
from sgmcmc.core.trees import Dataset, LogLik, LogPrior, PyTree, Rows
from sgmcmc.problem.holding import part_from
from sgmcmc.problem.model import Model
from sgmcmc.problem.passes import compiled, look_over
from sgmcmc.problem.posterior import (
    Posterior,
    Transform,
    check_log_lik,
    check_log_prior,
    check_params,
    check_prior_at_start,
    log_lik_shape,
    log_prior_of_params,
    look_at,
    make_transform,
)
from sgmcmc.problem.simplices import check_counts, counts, of_positive
from sgmcmc.results.keeps import Keep, PairTrace, Trace
from sgmcmc.results.result import ALONE, BESIDE, PAIRS
from sgmcmc.rows.hosts import together
from sgmcmc.rows.sources import STRATA
from sgmcmc.rows.table import Stratum, Table, check_dataset
from sgmcmc.run.blame import check_start

DRAWS = Trace()
"""What is kept unless told otherwise: every draw."""


@dataclass(frozen=True)
class Request:
    """What a run is asked for, in the words of `Sampler.run`.

    `beside` if every draw is kept beside what `keep` says, not replaced by it; `or_more` if the place may have gone further
    before: then the result has all of that. What is wrong for every sampler is refused here; for one, by `check_for`.
    """

    n_iters: int = 10_000
    burn_in: int = 0
    thin: int = 1
    keep: Keep | Mapping[str, Keep] | None = None
    diagnose: bool = False
    progress: Progress = True
    chunk_size: int | None = None
    or_more: bool = False
    beside: bool = False

    def __post_init__(self) -> None:
        check_count("n_iters", self.n_iters)
        check_count("burn_in", self.burn_in, least=0)
        if check_count("thin", self.thin) > self.n_iters:
            raise InputError(f"thin is {self.thin} for {self.n_iters} iterations, which stores nothing; expected at most n_iters")
        check_progress(self.progress)
        check_choice("diagnose", self.diagnose, (True, False))
        if self.chunk_size is not None:
            check_count("chunk_size", self.chunk_size)
        for name, one in self.keeps.items():
            if not isinstance(one, Keep):
                expected = "an object such as Trace(), Moments() or Expectation(function)"
                raise InputError(f"keep[{name!r}] is {describe(one)}; expected {expected}")

    @cached_property
    def keeps(self) -> dict[str, Keep]:
        """The keep objects by name; without any, a trace of the parameters."""
        wanted, named = DRAWS if self.keep is None else self.keep, dict[str, Keep]()
        if self.beside and self.keep is not None:
            named[BESIDE] = DRAWS
        named |= wanted if isinstance(wanted, Mapping) else {ALONE: wanted}
        return named | {PAIRS: PairTrace()} if self.diagnose else named

    @cached_property
    def trace(self) -> str | None:
        """The name of the first object that keeps the parameters themselves, if one does."""
        traces = ((name, keep) for name, keep in self.keeps.items() if name != PAIRS and isinstance(keep, Trace))
        return next((name for name, keep in traces if keep.function is None), None)

    @cached_property
    def total(self) -> int:
        """Iterations, burn-in included."""
        return self.burn_in + self.n_iters

    @cached_property
    def looks(self) -> int:
        """How often the keep objects are shown the parameters."""
        return self.n_iters // self.thin

    def check_for(self, params: PyTree, varies: bool) -> None:
        """Refuse what does not suit a sampler; `params` gives shapes, `varies` says whether its step size changes."""
        if self.diagnose and varies:
            raise InputError("diagnose=True came with a stepsize that changes; diagnostics need a chain with one law, so fix it")
        for name, one in self.keeps.items():
            if name == PAIRS:
                continue
            every = getattr(one, "thin", 1)
            if every > self.looks:
                raise InputError(f"keep[{name!r}] has thin={every} for {self.looks} looks, which stores nothing; make it smaller")
            try:
                jax.eval_shape(lambda p, one=one: one.open(one.begin(), p, 1, False), params)
            except Exception as error:
                raise InputError(f"keep[{name!r}] failed on params: {type(error).__name__}: {error}") from error

    def texts(self, params: PyTree) -> dict[str, str]:
        """What the draws depend on, for the fingerprint of a run; a run may become longer."""
        kept = {f"keep[{name!r}]": of_value(keep, params) for name, keep in self.keeps.items() if name != PAIRS}
        return {name: of_value(getattr(self, name)) for name in ("burn_in", "thin", "diagnose")} | kept


@dataclass(frozen=True)
class Problem:
    """What is to be sampled, checked: the `model` as it came, its rows, and `position`, its starting values unconstrained;
    without those `owned` by Gibbs blocks, which the posterior holds where they start. `shapes` are those of all parameters.
    """

    model: Model
    posterior: Posterior
    table: Table
    position: PyTree
    shapes: PyTree
    owned: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, log_lik: LogLik, dataset: Dataset, params: PyTree, log_prior: LogPrior | None = None,
        constraints: Mapping[str, Any] | None = None, progress: Progress = False,
    ) -> Problem:  # fmt: skip
        """That of a log likelihood, data and starting values."""
        return cls.of_model(Model(log_lik, dataset, params, log_prior, constraints), progress)

    @classmethod
    def of_model(
        cls, model: Model, progress: Progress = False, owned: tuple[str, ...] = (), positive: str | None = None
    ) -> Problem:
        """The problem, or what is wrong with it; processes that share one refuse it together. `positive` is the name of dynamics
        that move logarithms of positive numbers."""
        keep_programs()
        log_lik, log_prior, dataset = model.log_lik, model.log_prior, model.dataset

        def check() -> Problem:
            table = check_dataset(dataset)
            n_rows, start = table.total_rows, check_params(model.params, owned)
            transform = make_transform(model.constraints, start, owned)
            transform = transform if positive is None else of_positive(transform, start, positive, owned)
            names = Names.of({**table.levels, **(model.coords or {})}, model.dims, model.named(start))
            position = transform.to_position(start)
            shapes = jax.eval_shape(transform.to_params, position)
            check_log_prior(log_prior, start)
            per_row, axis = log_lik_shape(log_lik, start, table.columns), STRATA if table.in_strata else None
            same = _sameness_of_model(log_lik, log_prior, transform, table, start, position)
            posterior = Posterior(log_lik, log_prior, n_rows, transform, per_row, axis, same, look_at(log_lik, log_prior), names)
            if log_prior is not None:
                check_prior_at_start(compiled(log_prior_of_params, posterior)(start))
            suspects = check_log_lik(value := compiled(Posterior.sum_of_rows, posterior), position, table)
            check_start(value, posterior, position, table, suspects)
            if owned:
                posterior, position = part_from(posterior, position, owned)
            if positive is not None:
                check_counts(compiled(counts, posterior), posterior, position, table.rows(0, min(5, table.n_rows)))
            return cls(model, posterior, table if table.checked else look_over(table, progress), position, shapes, owned)

        return together("checking the problem", check) if isinstance(dataset, Stratum) else check()

    @property
    def params(self) -> PyTree:
        """The user's starting values as they came."""
        return self.model.params

    def identity(self, values: Mapping[str, Any]) -> dict[str, str]:
        """The fingerprint of the problem and of how it is sampled."""
        table, start = self.table, check_params(self.params, self.owned)
        rows = _few_rows(table)
        if isinstance(table, Stratum):
            values = {**values, "strata": f"{table.row_counts} rows, each on {table.devices} devices"}
        functions = {"log_lik": (self.posterior.log_lik, start, rows), "log_prior": (self.posterior.log_prior, start)}
        return fingerprint(table, functions, values)


def _few_rows(table: Table) -> Rows:
    """Some rows of a table, as shapes."""
    count = min(3, table.n_rows)
    return {name: jax.ShapeDtypeStruct((count, *column.shape[1:]), column.dtype) for name, column in table.items()}


def _sameness_of_model(
    log_lik: LogLik, log_prior: LogPrior | None, transform: Transform, table: Table, params: PyTree, position: PyTree
) -> Hashable:
    """What makes two models one for the programs compiled for them: the user's functions and the constraints."""
    functions = known(log_lik, params, _few_rows(table), gradient=True), known(log_prior, params, gradient=True)
    there, volume, back = transform.to_params, transform.log_det, transform.to_position
    bijections = of_function(there, position), of_function(volume, position), of_function(back, params)
    return functions, bijections
