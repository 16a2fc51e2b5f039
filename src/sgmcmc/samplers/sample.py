"""`sample`: nothing to tune."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.checkpoints.places import Place, check_keeps
from sgmcmc.checkpoints.reading import BESIDE
from sgmcmc.core.checks import Progress, as_key, check_choice, check_count, check_progress
from sgmcmc.core.errors import DivergenceError, InputError, warn
from sgmcmc.core.names import Coords, Dims
from sgmcmc.core.programs_on_disk import keep_programs
from sgmcmc.core.trees import Dataset, LogLik, LogPrior, PyTree, tree_map
from sgmcmc.problem.model import Model, model_of_call
from sgmcmc.problem.passes import compiled
from sgmcmc.problem.posterior import Posterior, log_prior_of_params
from sgmcmc.results.agreement import agreement
from sgmcmc.results.diagnostics import flat_draws, mixing
from sgmcmc.results.keeps import Keep
from sgmcmc.results.result import Result
from sgmcmc.results.words import OUTSIDE, REWRITING, Decisions
from sgmcmc.rows.sources import AllRows
from sgmcmc.run.request import Problem, Request
from sgmcmc.run.sampler import open_place
from sgmcmc.samplers.blocks import Blocks
from sgmcmc.tune.adaptation import ROUNDS, Adaptation, ChainsLeftError, Complaint, Trial, complaint_about, unsettled
from sgmcmc.tune.design import row_work
from sgmcmc.tune.exact import AUTO, ENGINES, MINIBATCHES, NUTS, Prediction, check_engine, exact_chains
from sgmcmc.tune.recentre import recentred, told_by_rows, trading_off
from sgmcmc.tune.rewriting import better, rewritten, troubled
from sgmcmc.tune.survey import Survey, take_survey

DRAWS_PER_TIME = 8
"""Draws stored per autocorrelation time, the longest of all numbers: more would add little to the shorter ones."""

LEAST_THIN, LONGEST_THIN = 2, 10
MOST_CHAIN_WORK = 2_000_000_000
"""Draws × rows × parameters of a chain beyond which steps are not spent on draws that are less alike."""

LONGEST_RUN = 32
"""Times the draws asked for, that a run may be made longer to reach `target_ess`."""

PRIORS_AT_ONCE = 256
"""Draws whose log prior is evaluated together: a prior may make a matrix of each."""

RETRIES = 3
"""How often a run that a chain left begins anew with half the step, beyond the rounds."""

BESIDE_BLOCKS = "chains on minibatches are tuned about one centre, which would move with every draw of the Gibbs steps"
"""Why it is NUTS where there are Gibbs steps."""

EXACT_CHUNK = 500
"""Iterations of NUTS per compiled call: the same for every run, so that one that is made longer compiles nothing."""


def sample(
    log_lik: LogLik | Model,
    dataset: Dataset | None = None,
    params: PyTree = None,
    *,
    log_prior: LogPrior | None = None,
    constraints: Mapping[str, Any] | None = None,
    coords: Coords | None = None,
    dims: Dims | None = None,
    draws: int = 2500,
    chains: int = 4,
    target_ess: int | None = None,
    engine: str = "auto",
    gibbs: Mapping[str, Any] | None = None,
    keep: Keep | Mapping[str, Keep] | None = None,
    seed: Any = None,
    checkpoint: str | Path | None = None,
    allow_version_change: bool = False,
    progress: Progress = True,
) -> Result:
    """Draws from the posterior with nothing to tune: no step size, no minibatch size, no optimiser.

    Finds the mode and the curvature there, changes variables so that the posterior is near a unit ball, measures which rows
    make the noise of minibatch gradients, and runs chains of `baoacv` with just enough rows. Then it checks, and where a
    check fails moves the centre, the scales and the rows to where the chains went. Posteriors that are no bowl, such as those
    of networks, are sampled with plain gradients. Where the rows are few, or minibatches would need most of them, it runs NUTS
    on all of them instead. What was decided is in `decisions`, and how far to trust it in `health()`: print both.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row; or a
            `Model`, which stands for the first three arguments.
        dataset: a dict of arrays, rows on the first axis, or a folder made by `sgmcmc.data.convert`. Of data on disk that do not
            fit into memory a pool of rows is drawn, at a price that `decisions` state.
        params: where the search for the mode starts: any tree of floats.
        log_prior: `log_prior(params)`, a scalar; a flat prior when left out.
        constraints: NumPyro constraints by parameter name, such as `{"sigma": constraints.positive}`.
        coords: labels along every named axis, as ArviZ has them: `{"region": ["North", "South"]}`.
        dims: the names of each parameter's axes, `{"u": ["region"]}`: summaries and messages then say `u[North]`.
        draws: stored per chain, after the warm-up.
        chains: started apart from each other, so that `r_hat` has something to say.
        target_ess: go on until every number's effective sample size is at least this, for at most 32 times `draws`.
        engine: `"nuts"` for exact chains on all rows, `"sgmcmc"` for chains on minibatches; `"auto"` takes what should be faster.
        gibbs: parameters drawn by updates of yours, whole numbers too, given those that NUTS moves: `{"z": update}`; see `Gibbs`.
        keep: what to keep beside the draws: an object such as `Expectation(function)`, or a dict of them by name; `kept` of the
            result has their values, over all draws that were made.
        seed: a whole number or a JAX key; left out, one is drawn and recorded in `settings`.
        checkpoint: a folder in which set-up and draws are kept as they are made. The same call again goes on where it was, and
            `sgmcmc.load` reads it at any time.
        allow_version_change: go on with a checkpoint of another version of JAX, NumPy or this library; see `RunOptions`.
        progress: True (the default) shows a bar for every stage, False nothing; a function is called with the figures.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 2.0, 20_000)
    >>> def log_lik(params, batch):
    ...     return sgmcmc.distributions.Normal(params["mu"], params["sigma"]).log_prob(batch["x"]).sum()
    >>> fit = sgmcmc.sample(log_lik, {"x": x}, {"mu": 0.0, "sigma": 1.0},
    ...                     constraints={"sigma": sgmcmc.constraints.positive}, seed=1, progress=False)
    >>> fit["mu"].shape, bool(abs(fit["mu"].std() / (2 / np.sqrt(20_000)) - 1) < 0.1)
    ((4, 2500), True)
    >>> fit.health().ok
    True
    """
    keep_programs()
    check_progress(progress)
    check_count("draws", draws, least=20)
    check_count("chains", chains)
    if target_ess is not None:
        check_count("target_ess", target_ess)
    check_choice("engine", engine, ENGINES)
    seed = None if seed is None else as_key(seed)
    given = {"log_prior": log_prior, "constraints": constraints, "coords": coords, "dims": dims}
    model = model_of_call("sample", log_lik, dataset, params, given)
    blocks = Blocks.of(gibbs, model.params)
    problem = Problem.of_model(model, progress, blocks.owned)
    if problem.table.in_strata:
        raise InputError("sample came with rows in strata; expected a dataset on one process, or a named sampler such as sgldcv")
    check_engine(NUTS if blocks else engine, problem, bool(blocks) and engine == MINIBATCHES)
    blocks.check(problem, Minibatch(), AllRows.kind, False, None)
    asked = {"sampler": "sample", "params": model.params, "constraints": model.constraints}
    asked |= {"draws": draws, "chains": chains, "engine": engine} | blocks.texts(problem, None)
    beside = Request(draws, keep=keep)
    beside.check_for(problem.shapes, False)

    def identity() -> dict[str, str]:
        check_keeps(beside.keeps, problem.shapes)
        return problem.identity(asked if keep is None else asked | beside.texts(problem.shapes))

    with open_place(checkpoint, identity, seed, problem.shapes, allow_version_change=allow_version_change) as place:
        if model.beside is not None:
            place.stage(BESIDE, lambda: model.beside)
        sampling = _Sampling(problem, draws, chains, target_ess, engine, place, progress, keep, blocks)
        result = _within_limits(sampling.settled(), problem.posterior)
    _warn(result)
    return result


@dataclass(frozen=True)
class _Sampling:
    """One call of `sample`: trials and runs until the checks pass, each kept in the place."""

    problem: Problem
    draws: int
    chains: int
    target_ess: int | None
    engine: str
    place: Place
    progress: Progress
    keep: Keep | Mapping[str, Keep] | None = None
    blocks: Blocks = field(default_factory=Blocks)
    told: Decisions = field(default_factory=Decisions)
    part: str = ""
    """Before the names of stages and runs, where these are not the first of the place."""

    def settled(self) -> Result:
        """The result; that in other variables, if it is better, where chains do not come to terms with scales of effects."""
        if self.blocks:
            return self._exactly(BESIDE_BLOCKS)
        result = self.suited().run()
        if _made(result) < self.draws or self.problem.table.large or not troubled(result):
            return result
        found = rewritten(self.problem, result, self.adaptation.seed)
        if found is None:
            return result
        problem, names, sentence = found
        told = Decisions().and_then("rewritten", names, sentence)
        other = replace(self, problem=problem, told=told, part="rewritten ").run()
        if better(other, result):
            return other
        vain = told.and_then("rewritten", (), "That was no better: the draws are of chains that move them as they are.")
        return replace(result, decisions=result.decisions + vain)

    def suited(self) -> "_Sampling":
        """The same in variables that suit the chains: products of scales and effects, where rows tell these."""
        if self.engine == NUTS or self.problem.table.large or (self.engine == AUTO and self._at_best.affordable):
            return self
        if (found := recentred(self.problem, self.adaptation.seed)) is None:
            return self
        moved = replace(self, problem=found[0], told=Decisions().and_then("recentred", True, found[1]))
        return moved if told_by_rows(moved.problem, moved.survey) else self

    @cached_property
    def adaptation(self) -> Adaptation:
        return Adaptation(self.problem, self.chains, self.place.key, self.progress, self.engine == AUTO)

    @cached_property
    def survey(self) -> Survey:
        """Mode and curvature, found in the place or looked for."""
        name = "survey, recentred" if "recentred" in self.told else "survey"
        look = partial(take_survey, self.problem, self.adaptation.seed, self.progress, anchored=True)
        return self.place.stage(f"{self.part}{name}", look, self.problem.position)

    @cached_property
    def _at_best(self) -> Prediction:
        """What NUTS would cost about a mode."""
        return Prediction.of(self.problem, self.chains, self.draws, mode=True)

    @cached_property
    def predicted(self) -> Prediction:
        """What NUTS would cost. A mode is only looked for where that may decide."""
        if not self._at_best.affordable or self.survey.peaked:
            return self._at_best
        return Prediction.of(self.problem, self.chains, self.draws, mode=False, anchored=self.survey.layout is not None)

    def run(self) -> Result:
        why = self._why_exact()
        return self._on_minibatches() if why is None else self._exactly(why)

    def _why_exact(self) -> str | None:
        """Why NUTS it is from the start, or None."""
        if self.engine == NUTS:
            return f"as asked for, {self.predicted}"
        if self.engine == MINIBATCHES or not self.problem.table.in_memory or not self.predicted.affordable:
            return None
        return self.predicted.beside

    def _exactly(self, why: str, attempt: int = 0) -> Result:
        """NUTS on all rows; the warm-up is the burn-in of the run."""
        place, like = self.place, self.problem.position
        survey = None if self.blocks else self.survey
        chosen = place.stage(f"{self.part}exact", partial(exact_chains, self.problem, survey, why), like)
        sampler = self.blocks.beside(chosen.sampler(self.problem, place.key), place, self.progress)
        state, part = sampler.init(place.key, n_chains=self.chains, progress=False), place.sub(f"run {self.part}{attempt}")

        def drawn(draws: int) -> Result:
            request = self._request(draws, burn_in=chosen.warm_up, chunk_size=EXACT_CHUNK)
            result = _first(sampler.carry_out(request, state, part), draws)
            return replace(result, decisions=self.told + result.decisions)

        return self._extended(drawn, drawn(self.draws))

    def _on_minibatches(self) -> Result:
        trial, attempt = self._trial(0, self._first_trial), 0
        while True:
            if trial is None or (self.engine == AUTO and trial.exact):
                return self._exactly("minibatches would need most of them, so that exact gradients cost no more", attempt)
            drawn, more = partial(self._drawn, trial, self.place.sub(f"run {self.part}{attempt}")), trial.round < ROUNDS + RETRIES
            attempt += 1
            try:
                result = drawn(self.draws)
                complaint, other = self._judged(trial, result, attempt)
                if other is None:
                    result = self._extended(drawn, result, last=not more)
                    break
                trial = other
            except DivergenceError:
                if not more:
                    raise
                trial = self._trial(attempt, partial(self.adaptation.slower, trial))
        told = result.decisions
        if complaint is not None and "unsettled" not in told:
            told = unsettled(told, complaint)
        if "fallback" in told:
            told = told + agreement(self.problem.posterior, self.problem.table, result.draws, self.adaptation.seed)
        if "unsettled" in told or "fallback" in told:
            told = told + self._rewriting()
        return replace(result, decisions=told)

    def _judged(self, trial: Trial, result: Result, attempt: int) -> tuple[Complaint | None, Trial | None]:
        """What is wrong with a run, if anything, and the trial of chains that may do better, if there may be any."""
        if _made(result) < self.draws or "fallback" in trial.decisions:
            return None, None
        shown = self.adaptation.shown_by(trial, result)
        complaint = complaint_about(shown)
        if complaint is None or trial.round >= ROUNDS:
            return complaint, None
        try:
            return complaint, self._trial(attempt, partial(self._again, shown, complaint))
        except ChainsLeftError:  # the draws that there are stay, with the complaint
            return complaint, None

    def _rewriting(self) -> Decisions:
        """Of scales and effects that trade off, which chains on minibatches did not come to terms with."""
        found = [] if self.problem.table.large else trading_off(self.problem, self.adaptation.seed)
        if not found:
            return Decisions()
        scales, effects = (list(dict.fromkeys(names)) for names in zip(*found, strict=True))
        instead = f"{effects[0]} ~ Normal(0, {' * '.join(scales)})"
        sentence = (
            f"{' and '.join([*scales, *effects])} trade off: rows tell their product, hardly any of them. Where rows tell each "
            f"effect well, write {instead} and leave the scales out of log_lik; else ask for engine='nuts', or fewer rows."
        )
        return Decisions().and_then(REWRITING, found, sentence)

    def _first_trial(self) -> Trial | None:
        return self.adaptation.adapt(self.survey)

    def _again(self, shown: Trial, complaint: Complaint) -> Trial:
        return self.adaptation.tuned(self.adaptation.again(shown, complaint))

    def _trial(self, attempt: int, make: Callable[[], Trial | None]) -> Trial | None:
        """A trial, or what is left of one that an earlier process made."""
        made: list[Trial | None] = []

        def packed() -> dict[str, Any] | None:
            made.append(make())
            return None if made[0] is None else made[0].packed()

        found = self.place.stage(f"{self.part}trial {attempt}", packed, self.problem.position)
        return made[0] if made else None if found is None else self.adaptation.unpacked(found)

    def _drawn(self, trial: Trial, place: Place, draws: int) -> Result:
        """The first so many draws; the place may have more, from a call that asked for more."""
        affordable = MOST_CHAIN_WORK // (self.draws * trial.design.source.batch_size * row_work(trial.design.whitening))
        thin = max(1, min(affordable, max(LEAST_THIN, min(LONGEST_THIN, round(trial.autocorrelation / DRAWS_PER_TIME)))))
        told = self._why_minibatches() + self.told + trial.decisions
        told = told.and_then("thin", thin, f"Of the steps one in {thin} is stored: neighbours are much alike.")
        request = self._request(draws * thin, thin=thin, chunk_size=trial.sampler.longest_chunk(trial.state))
        sampler = replace(trial.sampler.with_decisions(told), settings=trial.sampler.settings | {"engine": MINIBATCHES})
        return _first(sampler.carry_out(request, trial.state, place), draws)

    def _request(self, n_iters: int, **told: Any) -> Request:
        """A run of which draws and gradients are kept, and what the user asks for beside them."""
        return Request(n_iters, keep=self.keep, beside=True, diagnose=True, progress=self.progress, or_more=True, **told)

    def _why_minibatches(self) -> Decisions:
        if self.engine == MINIBATCHES:
            why = "as asked for"
        elif not self.problem.table.in_memory:
            why = "the rows are not in memory"
        else:
            why = f"NUTS on all {self.problem.posterior.n_rows:,} rows would take {self.predicted}"
        return Decisions().and_then("engine", MINIBATCHES, f"The chains run on minibatches: {why}.")

    def _extended(self, drawn: Callable[[int], Result], result: Result, last: bool = True) -> Result:
        """More draws, until the effective sample size is reached or the run is too long: the place has those so far.

        Of the `last` chains that are tried the draws are kept, should one leave.
        """
        target, made, most = self.target_ess, self.draws, LONGEST_RUN * self.draws
        if target is None or _made(result) < made:
            return result
        while (ess := _least_ess(result)) < target and made < most:
            made = min(made + max(math.ceil(1.1 * made * (target / max(ess, 1.0) - 1)), 20), most)
            try:
                result = drawn(made)
            except DivergenceError as left:
                if not last:
                    raise
                words = f"a chain left at iteration {left.step:,}, when the run was made longer"
                return replace(result, decisions=unsettled(result.decisions, Complaint("step", words)))
            if _made(result) < made:
                break
        sentence = f"{made:,} draws per chain were made for an effective sample size of {target:,}; the smallest is {ess:,.0f}."
        return replace(result, decisions=result.decisions.and_then("target_ess", ess, sentence))


def _first(result: Result, draws: int) -> Result:
    """The first so many draws of a run that an earlier call may have made longer."""
    if _made(result) <= draws:
        return result
    pairs = result.pairs
    if pairs is not None:
        pairs = replace(pairs, positions=pairs.positions[:, :draws], gradients=pairs.gradients[:, :draws])
    return replace(result, draws=tree_map(lambda x: x[:, :draws], result.draws), pairs=pairs)


def _made(result: Result) -> int:
    """Draws per chain: fewer than asked for after an interrupt."""
    return jax.tree.leaves(result.draws)[0].shape[1]


def _least_ess(result: Result) -> float:
    ess, _ = mixing(flat_draws(result.draws, True))
    return float(np.nanmin(ess))


def _log_priors(posterior: Posterior, draws: PyTree) -> jax.Array:
    return jax.lax.map(partial(log_prior_of_params, posterior), draws, batch_size=PRIORS_AT_ONCE)


def _within_limits(result: Result, posterior: Posterior) -> Result:
    """The result, with a word on draws that the prior excludes: chains do not feel a limit that has no gradient."""
    if posterior.log_prior is None:
        return result
    draws = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), result.draws)
    values = compiled(_log_priors, posterior)(draws)
    outside = int(np.count_nonzero(~np.isfinite(np.asarray(values))))
    if not outside:
        return result
    said = f"{outside:,} of {values.size:,} draws, which log_prior excludes"
    return replace(result, settings=result.settings | {OUTSIDE: said})


def _warn(result: Result) -> None:
    if result.pairs is None or result.pairs.positions.shape[1] < 20:
        return
    health = result.health()
    if not health.ok:
        warn(f"{health.findings[0]} See health() for all checks.")
