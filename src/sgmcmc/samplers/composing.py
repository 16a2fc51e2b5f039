"""How a sampler is put together: dynamics × gradient × rows × variables, checked as a whole, then set up or run."""

from __future__ import annotations

import difflib
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, get_type_hints, overload

import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.dynamics.barker import Barker
from sgmcmc.algorithms.dynamics.hamiltonian import SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.dynamics.metropolis import MetropolisHamiltonian
from sgmcmc.algorithms.dynamics.nose_hoover import NoseHoover, SymmetricNoseHoover
from sgmcmc.algorithms.dynamics.obabo import OBABO
from sgmcmc.algorithms.dynamics.preconditioned import RMSLangevin
from sgmcmc.algorithms.dynamics.replicas import ReplicaExchange
from sgmcmc.algorithms.dynamics.scir import SCIR
from sgmcmc.algorithms.dynamics.sgrld import SGRLD
from sgmcmc.algorithms.gradients.control_variate import ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.saga import SAGA
from sgmcmc.algorithms.gradients.svrg import SVRG
from sgmcmc.algorithms.gradients.whitened import Whitened
from sgmcmc.algorithms.kernel import Dynamics, Estimator
from sgmcmc.checkpoints.fingerprint import of_value
from sgmcmc.checkpoints.places import Nowhere, Place, check_keeps
from sgmcmc.core.checks import Progress, as_key, check_choice, check_count, check_progress
from sgmcmc.core.errors import InputError, describe, warn
from sgmcmc.core.names import Coords, Dims
from sgmcmc.core.programs_on_disk import keep_programs
from sgmcmc.core.trees import Dataset, LogLik, LogPrior, PyTree, size
from sgmcmc.problem.model import MODEL_ARGUMENTS, Model, model_of_call, takes_model
from sgmcmc.problem.schedules import Schedule, step_schedule
from sgmcmc.results.keeps import Keep
from sgmcmc.results.result import Result
from sgmcmc.results.words import Decisions
from sgmcmc.rows.importance import Importance, RowLaw
from sgmcmc.rows.sources import make_source
from sgmcmc.rows.table import DRAWN, IMPORTANCE, WINDOW, Table, physical_memory, usual_rows
from sgmcmc.run.request import Problem, Request
from sgmcmc.run.sampler import FromParams, Sampler, Start, open_place
from sgmcmc.samplers.blocks import Blocks
from sgmcmc.samplers.latents import check_beside, completed, completing, latent_of, model_after
from sgmcmc.tune.preparation import AtMode, PaperSearch, Precondition, Wishes


class SetupOptions(TypedDict, total=False):
    """What every sampler takes beside the paper's arguments.

    Attributes:
        log_prior: `log_prior(params)`, a scalar; a flat prior when left out.
        minibatch_size: rows per gradient, a count or a proportion of the rows; 0.01 when left out. `"auto"`, together with
            `stepsize="auto"`, chooses them.
        rows: `"random"` draws rows without replacement; `"window"` takes a contiguous window at a uniform start of data
            shuffled once, which is faster; `"importance"`, for the control variate samplers, draws rows that matter more more
            often, which makes less noise; `sgmcmc.algorithms.Importance(scores)` does so by scores of yours, for any. Left
            out: random, or windows where the data are on disk and larger than a quarter of the machine's memory.
        constraints: NumPyro constraints by parameter name, such as `{"sigma": constraints.positive}`. Sampling happens
            in unconstrained space; you see constrained values.
        precondition: a linear change of variables in which the posterior is near a unit ball, so that one step size, without
            units, fits all parameters: `"laplace"` (from the curvature at the mode), `"diagonal"` (its diagonal), your own
            covariance matrix of all numbers, or a tree like `params` of standard deviations. Chains start at the mode where it
            is looked for.
        gibbs: parameters that updates of yours draw beside the dynamics, `{"z": update}`, whole numbers too; see `Gibbs`.
        latent: latent variables of the rows, drawn by `draw(key, params, rows)` for `log_lik(params, rows, z)`; see `Latent`.
        progress: True (the default) shows bars, False nothing; a function is called with the figures.
        coords: labels along every named axis, as ArviZ has them: `{"region": ["North", "South"]}`.
        dims: the names of each parameter's axes, `{"u": ["region"]}`: summaries and messages then say `u[North]`.
    """

    log_prior: LogPrior | None
    minibatch_size: float | str
    rows: str | Importance | None
    constraints: Mapping[str, Any] | None
    precondition: Any
    gibbs: Mapping[str, Any] | None
    latent: Any
    coords: Coords | None
    dims: Dims | None
    progress: Progress


class RunOptions(SetupOptions, total=False):
    """What every whole-chain call takes beside the paper's arguments.

    Attributes:
        n_iters: iterations stored, 10,000 when left out.
        seed: a whole number or a JAX key; left out, one is drawn and recorded in `settings`.
        n_chains: None (the default) gives arrays without a chain axis; a number, 1 included, puts the chains first.
        burn_in: iterations run before and not stored.
        thin: store every `thin`-th iteration.
        keep: what to store instead of every draw; see `Trace`, `Moments`, `Expectation`.
        diagnose: also keep the gradient at every draw, for `Result.health` and its companions.
        checkpoint: a folder in which the run is kept as it goes on. The same call again resumes it where it was, bit for bit,
            with more `n_iters` further; `sgmcmc.load` reads it at any time.
        allow_version_change: with a checkpoint of another version of JAX, NumPy or this library, go on all the same: the law
            of the chains stays what it was, their bits may not. It is recorded in the result's settings.
    """

    n_iters: int
    seed: Any
    n_chains: int | None
    burn_in: int
    thin: int
    keep: Keep | Mapping[str, Keep] | None
    diagnose: bool
    checkpoint: str | Path | None
    allow_version_change: bool


DYNAMICS: dict[str, Any] = {
    "langevin": Langevin, "rms-langevin": RMSLangevin, "barker": Barker, "hamiltonian": SymmetricHamiltonian, "baoa": BAOA,
    "obabo": OBABO, "nose-hoover": NoseHoover, "symmetric-nose-hoover": SymmetricNoseHoover, "metropolis": MetropolisHamiltonian,
    "replica-exchange": ReplicaExchange, "scir": SCIR, "sgrld": SGRLD,
}  # fmt: skip
GRADIENTS: dict[str, Any] = {"minibatch": Minibatch, "control-variates": ControlVariate, "saga": SAGA, "svrg": SVRG}
STARTS: dict[str, Callable[[PyTree], Start]] = {"params": FromParams, "mode": AtMode}
"""Short names, and what they stand for. Those of `rows` are in `rows.table`, those of `precondition` in `tune.preparation`."""

LARGE_PROPORTION = 100_000
"""Rows per minibatch above which a proportion is more likely an oversight than a choice."""


@dataclass(frozen=True)
class Composition:
    """What a sampler is made of, whatever it samples.

    `start` leads from the unconstrained values to where chains start; None is the mode for control variates, else the values.
    `told` are its own arguments and `search` those of a search for the centre, both for the record.
    """

    name: str
    dynamics: Dynamics
    gradient: Estimator = field(default_factory=Minibatch)
    start: Callable[[PyTree], Start] | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)


def about_centre(composition: Composition, opt_stepsize: Any, n_iters_opt: Any) -> Composition:
    """A composition with control variates; with an `opt_stepsize` their centre is looked for as the paper does."""
    check_count("n_iters_opt", n_iters_opt)

    def search(position: PyTree) -> Start:
        return PaperSearch(position, step_schedule(opt_stepsize, position, "opt_stepsize"), n_iters_opt)

    asked = {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt}
    return replace(composition, gradient=ControlVariate(), start=None if opt_stepsize is None else search, search=asked)


@takes_model
def sampler_setup(
    log_lik: LogLik | Model,
    dataset: Dataset | Any = None,
    params: PyTree = None,
    stepsize: Any = None,
    *,
    dynamics: Dynamics | str = "langevin",
    gradient: Estimator | str = "minibatch",
    start: Callable[[PyTree], Start] | str | None = None,
    name: str = "sampler",
    **options: Unpack[SetupOptions],
) -> Sampler:
    """A sampler of your own composition: dynamics × gradient × rows × variables, step by step.

    The named samplers are compositions of this kind: `sgldcv_setup` is `dynamics="langevin", gradient="control-variates"`. What
    you write yourself, a subclass of `sgmcmc.algorithms.Dynamics` or `sgmcmc.algorithms.Estimator`, is passed in the same way.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row; or a
            `Model`, which stands for the first three arguments.
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
        dynamics: an object of `sgmcmc.algorithms`, such as `BAOA(alpha=0.5)`, or a short name: `"langevin"`,
            `"rms-langevin"`, `"barker"`, `"hamiltonian"`, `"baoa"`, `"obabo"`, `"nose-hoover"`, `"symmetric-nose-hoover"`,
            `"metropolis"`, `"replica-exchange"`;
            for probabilities and positive numbers `"scir"`, `"sgrld"`.
        gradient: an object of `sgmcmc.algorithms`, such as `SAGA()`, or a short name: `"minibatch"`, `"control-variates"`,
            `"saga"`, `"svrg"`.
        start: `"params"`, `"mode"`, or a function from the unconstrained values to an object with such a `position` and
            `find(kernel, source, root, progress)`, which returns a position and what the estimator carries there. Left out: the
            mode for control variates, else `params`.
        name: what results and messages call it.
        **options: see `SetupOptions`.

    >>> import numpy as np, sgmcmc
    >>> from sgmcmc.algorithms import BAOA, SAGA
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.random.default_rng(0).normal(1.0, 1.0, 10_000)}
    >>> sampler = sgmcmc.sampler_setup(log_lik, data, {"mu": 0.0}, 1e-5, dynamics=BAOA(alpha=0.3), gradient=SAGA(),
    ...                                minibatch_size=100)
    >>> out = sampler.run(sampler.init(seed=1, n_chains=2), 2000, burn_in=500)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - data["x"].mean()) < 0.01)
    ((2, 2000), True)
    """
    _check_options(options, "sampler_setup", inspect.signature(sampler_setup))
    moves = _resolved("dynamics", dynamics, DYNAMICS, Dynamics)
    estimates = _resolved("gradient", gradient, GRADIENTS, Estimator)
    begins = start if start is None or callable(start) else STARTS[check_choice("start", start, (*STARTS,))]
    composition = Composition(name, moves, estimates, begins, {"dynamics": moves, "gradient": estimates})
    model = model_of_call("sampler_setup", log_lik, dataset, params, options)
    return Setup.of(composition, model, stepsize, options).build(Nowhere())


def _resolved(what: str, value: Any, named: Mapping[str, Callable[[], Any]], kind: type) -> Any:
    """What a short name stands for; an object of the kind as it is."""
    if isinstance(value, str):
        return named[check_choice(what, value, (*named,))]()
    if not isinstance(value, kind):
        expected = f"one of {', '.join(map(repr, named))}, or an object that is a sgmcmc.algorithms.{kind.__name__}"
        raise InputError(f"{what} is {describe(value)}; expected {expected}")
    return value


@dataclass(frozen=True)
class Setup:
    """A composition for a problem: everything that can be refused was, and nothing is computed yet.

    `options` are as the user gave them; `rows` is how rows are drawn; `moving`, a tree like what moves (one vector where they are
    mixed), for which `dynamics` have their constants. Rows per gradient (`batch_size`) and step sizes (`schedule`) are None
    where they are to be chosen. `decisions` are those made so far.
    """

    problem: Problem
    composition: Composition
    options: SetupOptions
    rows: str
    batch_size: int | None
    precondition: Precondition
    moving: PyTree
    dynamics: Dynamics
    schedule: Schedule | None
    decisions: Decisions
    stepsize: Any
    blocks: Blocks

    @classmethod
    def of(cls, composition: Composition, model: Model, stepsize: Any, options: SetupOptions) -> Setup:
        """Check everything; what the options say of the model is in it by now."""
        blocks, latent = Blocks.of(options.get("gibbs"), model.params), latent_of(options.get("latent"))
        model = completed(model, latent, blocks.owned)
        moves = composition.dynamics
        positive = type(moves).__name__ if moves.positive else None
        problem = Problem.of_model(model, options.get("progress", True), blocks.owned, positive)
        rows, decisions = _rows(options.get("rows"), problem.table, composition)
        batch_size = _batch_size(options.get("minibatch_size", 0.01), problem.posterior.n_rows, stepsize)
        given, position = options.get("precondition"), problem.position
        precondition = Precondition() if given is None else Precondition.of(given, position)
        composition = _with_variance(completing(composition, latent), batch_size)
        check_beside(latent, rows, stepsize == "auto", precondition.name)
        _check_stepsize(stepsize, precondition.dense)
        moving = jnp.zeros(size(position)) if precondition.dense else position
        setup = cls(
            problem, composition, options, rows, batch_size, precondition, moving, composition.dynamics.fitted(moving),
            schedule=None if isinstance(stepsize, str) else step_schedule(stepsize, moving),
            decisions=decisions, stepsize=stepsize, blocks=blocks,
        )  # fmt: skip
        setup._check()
        return setup

    @cached_property
    def start(self) -> Start:
        """Where chains start, unless a survey says so."""
        usual = AtMode if self.composition.gradient.centred else FromParams
        return (self.composition.start or usual)(self.problem.position)

    @property
    def asks_for_survey(self) -> bool:
        """Whether more is asked for than the sampler's own arguments."""
        unscored = self.importance is not None and self.importance.scores is None
        return self.precondition.name is not None or unscored or self.schedule is None

    @property
    def importance(self) -> Importance | None:
        """How rows are drawn by importance, where they are."""
        return _by_importance(self.options.get("rows"))

    def identity(self) -> dict[str, str]:
        """What the draws depend on."""
        kinds = ("minibatch_size", "rows", "precondition")
        own = {"stepsize": self.stepsize, **self.composition.told, **self.composition.search}
        model = self.problem.model
        asked = {"sampler": self.composition.name, "params": model.params, "constraints": model.constraints}
        asked |= {kind: self.options.get(kind) for kind in kinds}
        asked |= {name: of_value(value, jnp.int32(1)) for name, value in own.items()}
        return self.problem.identity(asked | self.blocks.texts(self.problem, self.batch_size))

    def build(self, place: Place) -> Sampler:
        """The sampler, set-up work done, or found in the place."""
        progress = self.options.get("progress", True)
        setup = replace(self, rows=place.stage("rows", lambda: self.rows))  # decided once, on whatever machine the run goes on
        if not setup.asks_for_survey:
            assert self.schedule is not None
            choice = None if self.importance is None else self.importance.law(self.problem.table)
            sampler = setup._sampler(self.start, self.schedule, self.composition.gradient, self.dynamics, choice)
            return self.blocks.beside(sampler, place, progress)
        gradient, dynamics, schedule = self.composition.gradient, self.dynamics, self.schedule
        wishes = Wishes(self.precondition, self.importance, schedule is None, gradient.centred)
        preparation = wishes.prepare(self.problem, place, progress)
        if schedule is None:
            choose = partial(preparation.choose, self.composition.dynamics, self.batch_size)
            eps, batch_size, told = place.stage("choice", choose)
            setup = replace(setup, batch_size=batch_size, decisions=self.decisions + told)
            schedule = step_schedule(eps, self.moving)
        if preparation.whitening is not None:
            gradient = Whitened(gradient)
            dynamics = dynamics.on_unit_ball() if preparation.whitening.dense else dynamics
        sampler = setup._sampler(preparation.start, schedule, gradient, dynamics, preparation.choice)
        return self.blocks.beside(sampler, place, progress)

    def _sampler(
        self, start: Start, schedule: Schedule, gradient: Estimator, dynamics: Dynamics, choice: RowLaw | None
    ) -> Sampler:
        problem, composition = self.problem, self.composition
        assert self.batch_size is not None
        source = make_source(problem.table, self.batch_size, self.rows) if choice is None else choice.source(self.batch_size)
        settings = {"stepsize": schedule.describe(), "minibatch_size": source.batch_size, "n_rows": problem.posterior.n_rows}
        settings["rows"] = self.rows
        if self.precondition.name is not None:
            settings["precondition"] = self.precondition.name
        settings |= composition.told
        if composition.search:
            settings["centre"] = "automatic" if composition.start is None else str(start)
        kernel = dynamics.kernel(problem.posterior, gradient, schedule)
        return Sampler(
            composition.name, kernel, source, like=problem.position, begin=start, settings=settings, decisions=self.decisions,
            identity=self.identity, model=model_after(problem.model),
        )  # fmt: skip

    def _check(self) -> None:
        """What only shows when the parts are seen together."""
        gradient, table = self.composition.gradient, self.problem.table
        self.blocks.check(self.problem, gradient, self.rows, self.schedule is None, self.batch_size, self.dynamics)
        if table.in_strata:
            _refuse_over_strata(self.rows, self.schedule is None, gradient)
        if self.dynamics.positive:
            _refuse_shapes(type(self.dynamics).__name__, self.precondition.name is not None, isinstance(self.start, AtMode))
        if self.schedule is None and not self.dynamics.affine:
            found = f"stepsize='auto' came with {type(self.dynamics).__name__}, whose law no step size can be chosen by"
            raise InputError(f"{found}; expected a number or a function of the iteration")
        if self.composition.start is not None and self.asks_for_survey:
            found = "opt_stepsize or start came with precondition, rows='importance' or stepsize='auto'"
            raise InputError(f"{found}, for which the centre is found at set-up; leave opt_stepsize and start out")
        _ = self.start


def _with_variance(composition: Composition, batch_size: int | None) -> Composition:
    """The composition with an estimator that knows its own variance, where the dynamics learn from it."""
    if not composition.dynamics.warmup:
        return composition
    if batch_size == 1:
        raise InputError("noise_estimate='fisher' needs a variance over rows; expected minibatch_size of at least 2")
    return replace(composition, gradient=composition.gradient.measuring_noise())


def _rows(wanted: Any, table: Table, composition: Composition) -> tuple[str, Decisions]:
    """How rows are drawn: as the user says, or as suits where they are."""
    wanted = _name_of_rows(wanted, table, composition)
    rows = usual_rows(table) if wanted is None else wanted
    if rows == WINDOW and not table.in_memory and not table.shuffled:
        price = "where neighbours are alike, as in sorted data, gradients are much noisier"
        warn(f"windows are taken from rows that were not shuffled: {price}. sgmcmc.data.convert shuffles the rows once")
    if wanted is not None or table.in_memory:
        return rows, Decisions()
    how = "contiguous windows of the order they are in" if rows == WINDOW else "one by one at random"
    large = f"{table.nbytes / 2**30:.1f} GB on disk, on a machine with {physical_memory() / 2**30:.0f} GB of memory"
    return rows, Decisions().and_then("rows", rows, f"The data are {large}: rows are read as {how}.")


def _by_importance(wanted: Any) -> Importance | None:
    """How rows are drawn by importance, if they are to be."""
    if isinstance(wanted, str) and wanted == IMPORTANCE:
        return Importance()
    return wanted if isinstance(wanted, Importance) else None


def _name_of_rows(wanted: Any, table: Table, composition: Composition) -> str | None:
    """One of the short names, or None; refused where it does not suit."""
    importance = _by_importance(wanted)
    if importance is None:
        if not isinstance(wanted, str | None):
            expected = f"one of {', '.join(map(repr, DRAWN))}, or sgmcmc.algorithms.Importance(scores)"
            raise InputError(f"rows is {describe(wanted)}; expected {expected}")
        return check_choice("rows", wanted, (None, *DRAWN))
    _check_importance(importance, table, composition)
    return IMPORTANCE


def _check_importance(wanted: Importance, table: Table, composition: Composition) -> None:
    """Rows drawn one by one, some more than once: not for every estimator, nor from every place."""
    gradient = composition.gradient
    if gradient.knows_rows:
        raise InputError(f"rows='importance' came with {type(gradient).__name__}, which needs distinct rows; leave rows out")
    if wanted.scores is not None:
        wanted.law(table)
    elif not gradient.centred:
        found = f"rows='importance' came with {composition.name}, which has no control variates"
        raise InputError(f"{found}; expected one of the cv samplers, or scores of yours: sgmcmc.algorithms.Importance(scores)")
    if table.large or not table.seekable:
        found = f"rows='importance' came with {table.nbytes / 2**30:.1f} GB on disk, where rows cannot be drawn one by one"
        raise InputError(f"{found}; expected rows='window', or sgmcmc.sample, which draws a pool of rows by importance")


def _refuse_over_strata(rows: str, auto: bool, gradient: Estimator) -> None:
    """What needs to see single rows of other processes."""
    if rows == IMPORTANCE:
        raise InputError("rows='importance' came with rows in strata; expected rows='random' or rows='window' there")
    if auto:
        raise InputError("stepsize='auto' came with rows in strata; expected a number, for instance one found on a part")
    if gradient.knows_rows:
        found = f"gradient={gradient} came with rows in strata, and must know every row"
        raise InputError(f"{found}; expected gradient='minibatch' or 'control-variates' there")


def _refuse_shapes(who: str, preconditioned: bool, at_mode: bool) -> None:
    """What is made for densities that are near a Gaussian, of dynamics of positive numbers."""
    if preconditioned:
        raise InputError(f"precondition came with {who}, which moves every number at its own pace; leave precondition out")
    if at_mode:
        found = f"start='mode' came with {who}, and near zero a mode says little about a posterior"
        raise InputError(f"{found}; expected start='params', which control variates and SVRG take too")


def _batch_size(minibatch_size: Any, n_rows: int, stepsize: Any) -> int | None:
    """Rows per gradient; None where they are to be chosen, together with the step size."""
    if not isinstance(minibatch_size, str):
        return check_minibatch(minibatch_size, n_rows)
    if minibatch_size != "auto" or stepsize != "auto":
        expected = "a count, a proportion, or 'auto' together with stepsize='auto'"
        raise InputError(f"minibatch_size is {minibatch_size!r}; expected {expected}")
    return None


def check_minibatch(minibatch_size: Any, n_rows: int) -> int:
    """The number of rows in a minibatch, from a count or a proportion."""
    count, share = isinstance(minibatch_size, numbers.Integral), isinstance(minibatch_size, numbers.Real)
    if isinstance(minibatch_size, bool) or not (count or share):
        expected = "a count such as 500 or a proportion such as 0.01"
        raise InputError(f"minibatch_size is {describe(minibatch_size)}; expected {expected}")
    if count:
        if not 1 <= minibatch_size <= n_rows:
            raise InputError(f"minibatch_size is {minibatch_size} for {n_rows} rows; expected a count from 1 to {n_rows}")
        return int(minibatch_size)
    if not 0 < minibatch_size < 1:
        expected = "a whole number (a count of rows) or a proportion between 0 and 1"
        raise InputError(f"minibatch_size is {minibatch_size}; expected {expected}")
    rows = max(1, round(float(minibatch_size) * n_rows))
    if rows > LARGE_PROPORTION:
        repair = "a count such as minibatch_size=1000 is usually enough"
        warn(f"minibatch_size={minibatch_size} of {n_rows} rows is {rows} rows for every step; {repair}")
    return rows


def _check_stepsize(stepsize: Any, mixed: bool) -> None:
    if isinstance(stepsize, str):
        if stepsize != "auto":
            raise InputError(f"stepsize is {stepsize!r}; expected a positive number, a tree like params, a function, or 'auto'")
    elif mixed and not callable(stepsize) and (isinstance(stepsize, Mapping) or np.shape(stepsize) != ()):
        found = f"stepsize is {describe(stepsize)}; whitening mixes the parameters, so they share a step size"
        raise InputError(f"{found}: expected one number, or precondition='diagonal', which keeps them apart")


def _check_options(options: SetupOptions, name: str, signature: inspect.Signature) -> None:
    """Refuse what is not for a set-up; those of a whole chain are a `Request`'s to check."""
    if "checkpoint" in options:
        repair = f"sampler.run(state, checkpoint={options['checkpoint']!r})"
        raise InputError(f"{name} got checkpoint; it belongs to the run: {repair}")
    refuse_unknown(options, SetupOptions, name, signature)
    check_progress(options.get("progress", True))


def refuse_unknown(options: Iterable[str], known: type, name: str, signature: inspect.Signature) -> None:
    """Refuse options that nobody reads, with the name that was probably meant: another option, or an argument of its own."""
    names = [own for own in signature.parameters if own not in (*PROBLEM, "options")] + list(get_type_hints(known))
    for option in options:
        if option not in names:
            close = difflib.get_close_matches(option, names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
            raise InputError(f"{name} got an unknown argument {option!r}; {hint}")


# A named sampler is one definition: a signature, a docstring, and the composition that its own arguments make. Its two forms,
# the whole chain and the set-up, are derived from that.

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made", covariant=True)
PROBLEM = ("log_lik", "dataset", "params", "stepsize")
_DEFINED: dict[Any, Callable[..., Composition]] = {}


class OfModel(Protocol[Arguments, Made]):
    """A call for the functions, data and parameters of a model, or for a `Model`, which stands for these three."""

    @property
    def __name__(self) -> str: ...

    @overload
    def __call__(self, model: Model, /, stepsize: Any, **options: Any) -> Made: ...

    @overload
    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Made: ...


def whole_chain(define: Callable[Arguments, Composition]) -> OfModel[Arguments, Result]:
    """The sampler that a definition describes, as one call: set up, initialise, run."""

    @wraps(define)
    @takes_model
    def sampler(*args: Any, **kwargs: Any) -> Result:
        composition, model, stepsize, options = _composed(define, args, kwargs)
        refuse_unknown(options, RunOptions, define.__name__, inspect.signature(define))
        return _run_whole(composition, model, stepsize, options)

    _as_documented(sampler, define, Result)
    _DEFINED[sampler] = define
    return sampler


def step_by_step(sampler: OfModel[Arguments, Result]) -> OfModel[Arguments, Sampler]:
    """The set-up form of a sampler made by `whole_chain`."""
    define = _DEFINED[sampler]

    @takes_model
    def setup(*args: Any, **kwargs: Any) -> Sampler:
        composition, model, stepsize, options = _composed(define, args, kwargs)
        _check_options(options, setup.__name__, inspect.signature(define))
        return Setup.of(composition, model, stepsize, options).build(Nowhere())

    setup.__module__, setup.__name__ = define.__module__, f"{define.__name__}_setup"
    setup.__qualname__, setup.__doc__ = setup.__name__, _SETUP_DOC.format(name=define.__name__)
    _as_documented(setup, define, Sampler)
    return setup


_SETUP_DOC = """`{name}` step by step: the same arguments, without those of a run. `init` finds the centre, if there is one.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.{name}_setup(log_lik, {{"x": np.ones(1000)}}, {{"mu": 0.0}}, 1e-5, minibatch_size=100)
    >>> state = sampler.step(sampler.init(seed=1))
    >>> int(state.step)
    1
    """


def _as_documented(function: Any, define: Callable[..., Composition], returns: type) -> None:
    function.__signature__ = inspect.signature(define).replace(return_annotation=returns)
    function.__dict__.pop("__wrapped__", None)  # else help() and doctest go on to the definition, which returns something else


def _composed(define: Callable[..., Composition], args: Any, kwargs: Any) -> tuple[Composition, Model, Any, Any]:
    """The composition that a call's own arguments make, its model, its step size, and its options."""
    bound = inspect.signature(define).bind(*args, **kwargs).arguments
    options = bound.get("options", {})
    log_lik, dataset, params = (bound[name] for name in MODEL_ARGUMENTS)
    model = model_of_call(define.__name__, log_lik, dataset, params, options)
    return define(*args, **kwargs), model, bound["stepsize"], options


def _run_whole(composition: Composition, model: Model, stepsize: Any, options: RunOptions) -> Result:
    """One request, one setup, one place; what would be refused is refused before there is a folder."""
    keep_programs()
    asked: dict[str, Any] = dict(options)
    seed, checkpoint, n_chains = (asked.pop(name, None) for name in ("seed", "checkpoint", "n_chains"))
    allow = asked.pop("allow_version_change", False)
    if n_chains is not None:
        check_count("n_chains", n_chains)
    fields = ("n_iters", "burn_in", "thin", "keep", "diagnose")
    request = Request(**{name: asked.pop(name) for name in fields if name in asked}, progress=asked.get("progress", True))
    seed = None if seed is None else as_key(seed)
    setup = Setup.of(composition, model, stepsize, asked)  # pyright: ignore[reportArgumentType]: what is left of them
    params = setup.problem.shapes
    request.check_for(params, setup.schedule is not None and setup.schedule.varies)

    def identity() -> dict[str, str]:
        check_keeps(request.keeps, params)
        return setup.identity() | {"n_chains": of_value(n_chains)} | request.texts(params)

    shared = setup.problem.table.in_strata
    with open_place(checkpoint, identity, seed, params, shared, allow) as place:
        sampler = setup.build(place)
        begin = partial(sampler.init, place.key, n_chains=n_chains, progress=request.progress)
        return sampler.carry_out(request, place.stage("start", begin, sampler.params), place)
