"""How a named sampler is put together: arguments checked, dynamics and estimator paired, set up or run as a whole."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.dynamics.hamiltonian import PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.nose_hoover import NoseHoover
from sgmcmc.algorithms.gradients.control_variate import ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.whitened import Whitened
from sgmcmc.algorithms.kernel import Dynamics, Kernel
from sgmcmc.checkpoints.fingerprint import fingerprint, of_value
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.saving import check_keeps
from sgmcmc.core.checks import as_key, check_choice, check_count
from sgmcmc.core.errors import InputError, describe, warn
from sgmcmc.core.progress import Progress, check_progress
from sgmcmc.core.trees import size
from sgmcmc.core.types import Dataset, LogLik, LogPrior, PyTree
from sgmcmc.problem.posterior import Posterior, check_log_lik, check_log_prior, check_params, log_lik_shape, make_transform
from sgmcmc.problem.schedules import per_parameter, step_schedule
from sgmcmc.results.keeps import Keep
from sgmcmc.results.result import Result
from sgmcmc.results.words import Decisions
from sgmcmc.rows.importance import Importance
from sgmcmc.rows.sources import Source, check_minibatch, make_source, usual_rows
from sgmcmc.rows.strata import axis_of, is_spread, make_stratum_source
from sgmcmc.rows.table import Stratum, Table, check_dataset, physical_memory
from sgmcmc.run.hosts import together
from sgmcmc.run.passes import look_over
from sgmcmc.run.request import check_run, check_run_numbers, keep_texts, named_keeps
from sgmcmc.run.sampler import Prepared, Sampler
from sgmcmc.run.shared_folder import SharedFolder, open_folder
from sgmcmc.tune.mode import LARGEST_DENSE
from sgmcmc.tune.preparation import own_whitening, prepared_in
from sgmcmc.tune.starts import PaperOptimiser


class SetupOptions(TypedDict, total=False):
    """What every sampler takes beside the paper's arguments.

    Attributes:
        log_prior: `log_prior(params)`, a scalar; a flat prior when left out.
        minibatch_size: rows per gradient, a count or a proportion of the rows; 0.01 when left out. `"auto"`, together with
            `stepsize="auto"`, chooses them.
        rows: `"random"` draws rows without replacement; `"window"` takes a contiguous window at a uniform start of data
            shuffled once, which is faster; `"importance"`, for the control variate samplers, draws rows that matter more more
            often, which makes less noise. Left out: random, or windows where the data are on disk and larger than a quarter
            of the machine's memory.
        constraints: NumPyro constraints by parameter name, such as `{"sigma": constraints.positive}`. Sampling happens
            in unconstrained space; you see constrained values.
        precondition: a linear change of variables in which the posterior is near a unit ball, so that one step size, without
            units, fits all parameters: `"laplace"` (from the curvature at the mode), `"diagonal"` (its diagonal), your own
            covariance matrix of all numbers, or a tree like `params` of standard deviations. Chains start at the mode where it
            is looked for.
        progress: True (the default) shows bars, False nothing; a function is called with the figures.
    """

    log_prior: LogPrior | None
    minibatch_size: float | str
    rows: str | None
    constraints: Mapping[str, Any] | None
    precondition: Any
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
    """

    n_iters: int
    seed: Any
    n_chains: int | None
    burn_in: int
    thin: int
    keep: Keep | Mapping[str, Keep] | None
    diagnose: bool
    checkpoint: str | Path | None


USUAL = {"burn_in": 0, "thin": 1, "diagnose": False}
"""What a run does unless told otherwise, of what its draws depend on."""

MakeDynamics = Callable[[PyTree], Dynamics]


def hamiltonian(alpha: Any, L: int | None, scheme: str, noise_estimate: str | None, noise_warmup: int) -> MakeDynamics:
    """The dynamics of SGHMC that its arguments ask for."""
    check_choice("scheme", scheme, ("symmetric", "paper"))
    check_choice("noise_estimate", noise_estimate, (None, "fisher"))
    if L is not None:
        check_count("L", L)
        if noise_estimate is not None:
            raise InputError(f"noise_estimate={noise_estimate!r} came with L={L}; it is exact only with L=None, so pass L=None")
        if scheme == "paper" and L == 1:
            raise InputError("scheme='paper' with L=1 never uses the gradient; expected L of at least 2, or scheme='symmetric'")
    elif scheme == "paper":
        raise InputError("scheme='paper' came with L=None, which has one scheme only; leave scheme out, or give L")
    warmup = check_count("noise_warmup", noise_warmup) if noise_estimate == "fisher" else 0

    def make(position: PyTree) -> Dynamics:
        friction = per_parameter(alpha, position, "alpha", below=1.0)
        if L is None:
            return PersistentHamiltonian(friction, warmup)
        return SymmetricHamiltonian(friction, L) if scheme == "symmetric" else PaperHamiltonian(friction, L)

    return make


def underdamped(alpha: Any, noise_estimate: str | None, noise_warmup: int) -> MakeDynamics:
    """The dynamics of BAOA that its arguments ask for."""
    check_choice("noise_estimate", noise_estimate, (None, "fisher"))
    warmup = check_count("noise_warmup", noise_warmup) if noise_estimate == "fisher" else 0

    def make(position: PyTree) -> Dynamics:
        friction = per_parameter(alpha, position, "alpha", below=np.nextafter(1.0, 2.0))
        return BAOA(friction, corrected=warmup > 0, warmup=warmup)

    return make


def nose_hoover(a: Any) -> MakeDynamics:
    """The dynamics of SGNHT."""
    return lambda position: NoseHoover(per_parameter(a, position, "a"))


def check_problem(
    log_lik: LogLik, dataset: Dataset, params: PyTree, log_prior: LogPrior | None, constraints: Mapping[str, Any] | None,
    progress: Progress = False,
) -> tuple[Posterior, Table, PyTree]:  # fmt: skip
    """The posterior, the data and the unconstrained start, or what is wrong with them."""
    check = partial(_check_problem, log_lik, dataset, params, log_prior, constraints, progress)
    return together("checking the problem", check) if isinstance(dataset, Stratum) else check()


def _check_problem(
    log_lik: LogLik, dataset: Dataset, params: PyTree, log_prior: LogPrior | None, constraints: Mapping[str, Any] | None,
    progress: Progress,
) -> tuple[Posterior, Table, PyTree]:  # fmt: skip
    arrays, start = check_dataset(dataset), check_params(params)
    transform = make_transform(constraints, start)
    position = transform.to_position(start)
    check_log_prior(log_prior, start)
    posterior = Posterior(log_lik, log_prior, arrays.total_rows, transform, log_lik_shape(log_lik, start, arrays))
    check_log_lik(posterior, position, arrays)
    return posterior, look_over(arrays, progress), position


def set_up(
    name: str,
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    make_dynamics: MakeDynamics,
    options: SetupOptions,
    told: Mapping[str, Any] | None = None,
    centre: tuple[Any, int] | None = None,
    variance: bool = False,
) -> Sampler:
    """Check everything, then put the parts together."""
    opening: Opening | None = options.get("checkpoint")  # pyright: ignore[reportAssignmentType]: from `run_whole` only
    if opening is not None and not isinstance(opening, Opening):
        raise InputError(f"{name}_setup got checkpoint; it belongs to the run: sampler.run(state, checkpoint={opening!r})")
    _refuse_unknown([option for option in options if option != "checkpoint"], SetupOptions, f"{name}_setup")
    precondition, progress = options.get("precondition"), check_progress(options.get("progress", True))
    posterior, arrays, position = check_problem(
        log_lik, dataset, params, options.get("log_prior"), options.get("constraints"), progress
    )
    rows, decisions = _rows(options.get("rows"), arrays, name, centre is not None)
    if is_spread(arrays):
        _refuse_over_strata(rows, stepsize)
    batch_size = _batch_size(options.get("minibatch_size", 0.01), posterior.n_rows, stepsize)
    if variance and batch_size == 1:
        raise InputError("noise_estimate='fisher' needs a variance over rows; expected minibatch_size of at least 2")
    own = own_whitening(precondition, position)
    laplace = isinstance(precondition, str) and precondition == "laplace" and size(position) <= LARGEST_DENSE
    moving = jnp.zeros(size(position)) if laplace or (own is not None and own.dense) else position
    _check_numbers(stepsize, moving, position)
    dynamics = make_dynamics(moving)
    schedule = None if isinstance(stepsize, str) else step_schedule(stepsize, moving)
    optimiser = None if centre is None else _optimiser(*centre, position, precondition, rows, stepsize)

    prepared = None
    texts = {
        "sampler": name,
        "params": params,
        "stepsize": of_value(stepsize, jnp.int32(1)),
        **{option: options.get(option) for option in ("minibatch_size", "rows", "constraints", "precondition")},
        **(told or {}),
        **({} if centre is None else {"opt_stepsize": of_value(centre[0], jnp.int32(1)), "n_iters_opt": centre[1]}),
    }
    identity = partial(identify, posterior, arrays, params, texts)
    varies = schedule is not None and schedule.varies
    folder = None if opening is None else opening.open(identity(), position, posterior, varies, is_spread(arrays))
    if folder is not None:
        rows = folder.stage("rows", lambda: rows)  # decided once, whatever machine the run goes on on
    asked = (precondition, own, rows == "importance", schedule is None, progress)
    preparation = prepared_in(folder, posterior, arrays, centre is not None, position, *asked)
    if schedule is None:
        assert preparation is not None
        choose = partial(preparation.choose, make_dynamics, batch_size)
        eps, batch_size, chosen = choose() if folder is None else folder.stage("choice", choose)
        decisions += chosen
        schedule = step_schedule(eps, moving)
    assert batch_size is not None
    if preparation is not None:
        prepared = Prepared(preparation.position, preparation.est_state)
    choice = None if preparation is None else preparation.choice
    source = _source(arrays, batch_size, rows, choice)
    estimator: Any = (Minibatch if centre is None else ControlVariate)(posterior, variance, axis_of(source))
    if preparation is not None and preparation.whitening is not None:
        estimator = Whitened(estimator)
        if isinstance(dynamics, BAOA) and preparation.whitening.dense:
            dynamics = replace(dynamics, curvature=1.0)
    settings = {
        "stepsize": schedule.describe(),
        "minibatch_size": source.batch_size,
        "n_rows": posterior.n_rows,
        "rows": rows,
        **({} if precondition is None else {"precondition": precondition if isinstance(precondition, str) else "given"}),
        **(told or {}),
    }
    if centre is not None:
        settings["centre"] = "automatic" if optimiser is None else f"{centre[1]} steps of {optimiser.schedule.describe()}"
    kernel = Kernel(estimator, dynamics, schedule)
    return Sampler(name, kernel, source, position, settings, optimiser, prepared, decisions, identity, folder)


def identify(
    posterior: Posterior, arrays: Table, params: PyTree, values: Mapping[str, Any], extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The fingerprint of a problem and of how it is sampled."""
    count = min(3, arrays.n_rows)
    rows = {name: jax.ShapeDtypeStruct((count, *column.shape[1:]), column.dtype) for name, column in arrays.items()}
    start = check_params(params)
    if isinstance(arrays, Stratum):
        values = {**values, "strata": f"{arrays.row_counts} rows, each on {arrays.devices} devices"}
    functions = {"log_lik": (posterior.log_lik, start, rows), "log_prior": (posterior.log_prior, start)}
    return fingerprint(arrays, functions, values) | dict(extra or {})


@dataclass(frozen=True)
class Opening:
    """A run's folder that is to be opened as soon as it is known what the run depends on."""

    path: Any
    seed: Any
    parts: Mapping[str, Any]
    running: Mapping[str, Any]
    opened: ExitStack = field(default_factory=ExitStack, compare=False)

    def open(
        self, identity: Mapping[str, str], position: PyTree, posterior: Posterior, varies: bool, shared: bool
    ) -> RunFolder | SharedFolder:
        """Open it, or say what differs from the run in it. What the run would refuse is refused first, and leaves no folder."""
        params = jax.eval_shape(posterior.transform.to_params, position)
        check_run(params, varies, **self.running)
        keeps = named_keeps(self.running.get("keep"))
        check_keeps(keeps, params)
        texts = {**identity, **{name: of_value(value) for name, value in self.parts.items()}, **keep_texts(keeps, params)}
        return self.opened.enter_context(open_folder(self.path, texts, self.seed, position, shared))


def _rows(wanted: Any, table: Table, name: str, centred: bool) -> tuple[str, Decisions]:
    """How rows are drawn: as the user says, or as suits where they are."""
    check_choice("rows", wanted, (None, "random", "window", "importance"))
    if wanted == "importance" and not centred:
        raise InputError(f"rows='importance' came with {name}, which has no control variates; expected one of the cv samplers")
    if wanted == "importance" and (table.large or not table.seekable):
        raise InputError(
            f"rows='importance' came with {table.nbytes / 2**30:.1f} GB on disk, where rows cannot be drawn one by one; "
            "expected rows='window', or sgmcmc.sample, which draws a pool of rows by importance"
        )
    rows = usual_rows(table) if wanted is None else wanted
    if rows == "window" and not table.in_memory and not table.shuffled:
        warn(
            "windows are taken from rows that were not shuffled: where neighbours are alike, as in sorted data, gradients are "
            "much noisier. sgmcmc.data.convert shuffles the rows once"
        )
    if wanted is not None or table.in_memory:
        return rows, Decisions()
    how = "contiguous windows of the order they are in" if rows == "window" else "one by one at random"
    size = f"{table.nbytes / 2**30:.1f} GB on disk, on a machine with {physical_memory() / 2**30:.0f} GB of memory"
    return rows, Decisions().and_then("rows", rows, f"The data are {size}: rows are read as {how}.")


def _source(arrays: Table, batch_size: int, rows: str, choice: Importance | None) -> Source:
    if choice is not None:
        return choice.source(batch_size)
    if isinstance(arrays, Stratum) and arrays.count > 1:
        return make_stratum_source(arrays, batch_size, rows)
    return make_source(arrays, batch_size, rows)


def _refuse_over_strata(rows: str, stepsize: Any) -> None:
    """What needs to see single rows of other processes."""
    if rows == "importance":
        raise InputError("rows='importance' came with rows in strata; expected rows='random' or rows='window' there")
    if isinstance(stepsize, str):
        raise InputError(f"stepsize={stepsize!r} came with rows in strata; expected a number, for instance one found on a part")


def _batch_size(minibatch_size: Any, n_rows: int, stepsize: Any) -> int | None:
    """Rows per gradient; None where they are to be chosen, together with the step size."""
    if not isinstance(minibatch_size, str):
        return check_minibatch(minibatch_size, n_rows)
    if minibatch_size != "auto" or stepsize != "auto":
        raise InputError(
            f"minibatch_size is {minibatch_size!r}; expected a count, a proportion, or 'auto' together with stepsize='auto'"
        )
    return None


def _check_numbers(stepsize: Any, moving: PyTree, position: PyTree) -> None:
    if isinstance(stepsize, str):
        if stepsize != "auto":
            raise InputError(f"stepsize is {stepsize!r}; expected a positive number, a tree like params, a function, or 'auto'")
    elif moving is not position and not callable(stepsize) and (isinstance(stepsize, Mapping) or np.shape(stepsize) != ()):
        raise InputError(
            f"stepsize is {describe(stepsize)}; whitening mixes the parameters, so they share a step size: expected one number, "
            "or precondition='diagonal', which keeps them apart"
        )


def _optimiser(
    opt_stepsize: Any, n_iters_opt: Any, position: PyTree, precondition: Any, rows: str, stepsize: Any
) -> PaperOptimiser | None:
    check_count("n_iters_opt", n_iters_opt)
    if opt_stepsize is None:
        return None
    if precondition is not None or rows == "importance" or isinstance(stepsize, str):
        raise InputError(
            "opt_stepsize came with precondition, rows='importance' or stepsize='auto', for which the centre is found at set-up; "
            "leave opt_stepsize out"
        )
    return PaperOptimiser(step_schedule(opt_stepsize, position, "opt_stepsize"), n_iters_opt)


def run_whole(setup: Callable[..., Sampler], problem: tuple[Any, ...], specific: dict[str, Any], options: RunOptions) -> Result:
    """Set up, initialise, run."""
    _refuse_unknown(options, RunOptions, setup.__name__.removesuffix("_setup"))
    here: dict[str, Any] = dict(options)
    running: dict[str, Any] = {
        name: here.pop(name) for name in ("n_iters", "burn_in", "thin", "keep", "diagnose") if name in here
    }
    running["progress"] = here.get("progress", True)
    seed, n_chains, checkpoint = here.pop("seed", None), here.pop("n_chains", None), here.pop("checkpoint", None)
    numbers = {"n_iters": 10_000} | {name: value for name, value in running.items() if name != "keep"}
    check_run_numbers(n_chains=n_chains, **numbers)  # before a set-up that may look at all the data
    named_keeps(running.get("keep"))
    seed = None if seed is None else as_key(seed)
    if checkpoint is None:
        sampler = setup(*problem, **specific, **here)
        sampler.check_run(**running)
        state = sampler.init(seed, n_chains=n_chains, progress=running["progress"])
        return sampler.run(state, **running)
    parts = {"n_chains": n_chains} | {name: running.get(name, usual) for name, usual in USUAL.items()}
    opening = Opening(checkpoint, seed, parts, running)
    with opening.opened:
        sampler = setup(*problem, **specific, **here, checkpoint=opening)
        folder = sampler.folder
        assert folder is not None
        begin = partial(sampler.init, folder.key, n_chains=n_chains, progress=running["progress"])
        state = folder.stage("start", begin, sampler.start)
        return sampler.run_in(folder, state, **{"n_iters": 10_000, **running})


def _refuse_unknown(options: Iterable[str], known: type, name: str) -> None:
    names = list(get_type_hints(known))
    for option in options:
        if option not in names:
            close = difflib.get_close_matches(option, names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
            raise InputError(f"{name} got an unknown argument {option!r}; {hint}")
