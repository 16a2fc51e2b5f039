"""How a named sampler is put together: arguments checked, dynamics and estimator paired, set up or run as a whole."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, get_type_hints

from sgmcmc._types import Dataset, LogLik, LogPrior, PyTree
from sgmcmc.centre import PaperOptimiser
from sgmcmc.checks import (
    check_choice,
    check_count,
    check_dataset,
    check_log_lik,
    check_log_prior,
    check_minibatch,
    check_params,
    log_lik_shape,
)
from sgmcmc.dynamics import Dynamics, NoseHoover, PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.errors import InputError
from sgmcmc.gradients import ControlVariate, Minibatch
from sgmcmc.kernel import Kernel
from sgmcmc.posterior import Posterior, make_transform
from sgmcmc.progress import Progress
from sgmcmc.result import Result
from sgmcmc.sampler import Sampler
from sgmcmc.schedules import per_parameter, step_schedule
from sgmcmc.sources import make_source
from sgmcmc.summaries import Keep


class SetupOptions(TypedDict, total=False):
    """What every sampler takes beside the paper's arguments.

    Attributes:
        log_prior: `log_prior(params)`, a scalar; a flat prior when left out.
        minibatch_size: rows per gradient, a count or a proportion of the rows; 0.01 when left out.
        rows: `"random"` (the default) draws rows without replacement; `"window"` takes a contiguous window at a uniform
            start of data shuffled once, which is faster.
        constraints: NumPyro constraints by parameter name, such as `{"sigma": constraints.positive}`. Sampling happens
            in unconstrained space; you see constrained values.
    """

    log_prior: LogPrior | None
    minibatch_size: float
    rows: str
    constraints: Mapping[str, Any] | None


class RunOptions(SetupOptions, total=False):
    """What every whole-chain call takes beside the paper's arguments.

    Attributes:
        n_iters: iterations stored, 10,000 when left out.
        seed: a whole number or a JAX key; left out, one is drawn and recorded in `settings`.
        n_chains: None (the default) gives arrays without a chain axis; a number, 1 included, puts the chains first.
        burn_in: iterations run before and not stored.
        thin: store every `thin`-th iteration.
        keep: what to store instead of every draw; see `Trace`, `Moments`, `Expectation`.
        progress: True (the default) shows a bar, False nothing; a function is called with the figures.
    """

    n_iters: int
    seed: Any
    n_chains: int | None
    burn_in: int
    thin: int
    keep: Keep | Mapping[str, Keep] | None
    progress: Progress


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


def nose_hoover(a: Any) -> MakeDynamics:
    """The dynamics of SGNHT."""
    return lambda position: NoseHoover(per_parameter(a, position, "a"))


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
    _refuse_unknown(options, SetupOptions, f"{name}_setup")
    rows = check_choice("rows", options.get("rows", "random"), ("random", "window"))
    arrays = check_dataset(dataset)
    n_rows = len(next(iter(arrays.values())))
    batch_size = check_minibatch(options.get("minibatch_size", 0.01), n_rows)
    if variance and batch_size < 2:
        raise InputError("noise_estimate='fisher' needs a variance over rows; expected minibatch_size of at least 2")
    start = check_params(params)
    log_prior = options.get("log_prior")
    transform = make_transform(options.get("constraints"), start)
    position = transform.to_position(start)
    schedule = step_schedule(stepsize, position)
    dynamics = make_dynamics(position)
    check_log_prior(log_prior, start)
    posterior = Posterior(log_lik, log_prior, n_rows, transform, log_lik_shape(log_lik, start, arrays))
    check_log_lik(posterior, position, arrays)
    settings = {"stepsize": schedule.describe(), "minibatch_size": batch_size, "n_rows": n_rows, "rows": rows, **(told or {})}
    estimator, optimiser = Minibatch(posterior, variance), None
    if centre is not None:
        estimator = ControlVariate(posterior, variance)
        opt_stepsize, n_iters_opt = centre[0], check_count("n_iters_opt", centre[1])
        if opt_stepsize is not None:
            optimiser = PaperOptimiser(step_schedule(opt_stepsize, position, "opt_stepsize"), n_iters_opt)
        settings["centre"] = "automatic" if optimiser is None else f"{n_iters_opt} steps of {optimiser.schedule.describe()}"
    kernel = Kernel(estimator, dynamics, schedule)
    return Sampler(name, kernel, make_source(arrays, batch_size, rows), position, settings, optimiser)


def run_whole(setup: Callable[..., Sampler], problem: tuple[Any, ...], specific: dict[str, Any], options: RunOptions) -> Result:
    """Set up, initialise, run."""
    _refuse_unknown(options, RunOptions, setup.__name__.removesuffix("_setup"))
    here: dict[str, Any] = dict(options)
    running = {name: here.pop(name) for name in ("n_iters", "burn_in", "thin", "keep", "progress") if name in here}
    seed, n_chains = here.pop("seed", None), here.pop("n_chains", None)
    sampler = setup(*problem, **specific, **here)
    sampler.check_run(**running)
    state = sampler.init(seed, n_chains=n_chains, progress=running.get("progress", True))
    return sampler.run(state, **running)


def _refuse_unknown(options: Mapping[str, Any], known: type, name: str) -> None:
    names = list(get_type_hints(known))
    for option in options:
        if option not in names:
            close = difflib.get_close_matches(option, names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
            raise InputError(f"{name} got an unknown argument {option!r}; {hint}")
