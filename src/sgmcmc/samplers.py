"""The six samplers of the paper: each a docstring and a composition of dynamics × estimator."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack, get_type_hints

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
from sgmcmc.dynamics import Dynamics, Langevin, NoseHoover, PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
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


def sgld(log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, **options: Unpack[RunOptions]) -> Result:
    """Stochastic gradient Langevin dynamics.

    θ' = θ + (ε/2) ĝ(θ) + N(0, ε), where ĝ is the minibatch estimate of the gradient of the log posterior.

    Targets the posterior as ε → 0. On a Gaussian of precision A, with gradient noise of variance V and h = ε/2, the variance
    is (1 + hV/2)/(1 - hA/2) times the posterior's.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, or a function of the iteration.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgld(log_lik, {"x": x}, {"mu": 0.0}, 2e-5, minibatch_size=100, burn_in=1000, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: section 3.1 of the paper (Baker, Fearnhead, Fox and Nemeth, 2019); Welling and Teh (2011).
    """
    return _whole(sgld_setup, (log_lik, dataset, params, stepsize), {}, options)


def sgld_setup(log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, **options: Unpack[SetupOptions]) -> Sampler:
    """`sgld` step by step: the same arguments, without those of a run.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-4, minibatch_size=100)
    >>> state = sampler.step(sampler.init(seed=1))
    """
    return _setup("sgld", log_lik, dataset, params, stepsize, lambda _: Langevin(), options)


def sghmc(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    *,
    alpha: Any = 0.01,
    L: int | None = 5,
    scheme: str = "symmetric",
    noise_estimate: str | None = None,
    noise_warmup: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Stochastic gradient Hamiltonian Monte Carlo.

    L leaps between stored states, before which ν ~ N(0, ε) is drawn. Each leap: ν += (ε/2) ĝ(θ); θ += ν; ν += (ε/2) ĝ(θ);
    ν = (1-α) ν + N(0, (1 - (1-α)²) ε).

    With exact gradients the variance on a Gaussian of precision A is 1/(A(1 - εA/4)) for every L and α. The paper's own
    order of updates (`scheme="paper"`) gives L/(L-1) times the right variance as ε and α go to 0.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, or a function of the iteration.
        alpha: friction per leap, between 0 and 1: a number or a tree like `params`.
        L: leaps per iteration. None never draws the momentum anew: ν' = (1-α)ν + ε ĝ(θ) + N(0, 2(α-β̂)ε); θ' = θ + ν'.
        scheme: `"symmetric"`, or `"paper"` for the equations as the paper has them.
        noise_estimate: with `L=None`, `"fisher"` estimates the gradient noise V from the rows' own gradients and sets
            β̂ = εV/2, which makes up for it; None is β̂ = 0.
        noise_warmup: iterations over which V is averaged; then it is fixed.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sghmc(log_lik, {"x": x}, {"mu": 0.0}, 5e-6, minibatch_size=100, burn_in=500, n_iters=2000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((2000,), True)

    Reference: section 3.2 of the paper; Chen, Fox and Guestrin (2014).
    """
    specific = {"alpha": alpha, "L": L, "scheme": scheme, "noise_estimate": noise_estimate, "noise_warmup": noise_warmup}
    return _whole(sghmc_setup, (log_lik, dataset, params, stepsize), specific, options)


def sghmc_setup(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    *,
    alpha: Any = 0.01,
    L: int | None = 5,
    scheme: str = "symmetric",
    noise_estimate: str | None = None,
    noise_warmup: int = 1000,
    **options: Unpack[SetupOptions],
) -> Sampler:
    """`sghmc` step by step: the same arguments, without those of a run.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sghmc_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-4, L=None, alpha=0.1, minibatch_size=100)
    >>> state = sampler.step(sampler.init(seed=1))
    """
    dynamics = _hamiltonian(alpha, L, scheme, noise_estimate, noise_warmup)
    told = {"L": L, "scheme": scheme if L else "persistent", "alpha": alpha, "noise_estimate": noise_estimate}
    return _setup("sghmc", log_lik, dataset, params, stepsize, dynamics, options, told, variance=noise_estimate == "fisher")


def sgnht(
    log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, *, a: Any = 0.01, **options: Unpack[RunOptions]
) -> Result:
    """Stochastic gradient Nosé-Hoover thermostat.

    θ' = θ + ν; ν' = (1-α) ν + ε ĝ(θ') + N(0, 2aε); α' = α + (ν'·ν'/p - ε), with a thermostat α for each named parameter
    of p numbers. The thermostats take up the gradient noise by themselves.

    E[ν·ν/p] = ε holds exactly at stationarity whatever the target. On a Gaussian of many dimensions the variance is 1 - α/2
    of the truth, α being what the thermostats settle at: a little above `a`, and more the noisier the gradients.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, or a function of the iteration.
        a: the injected noise and the thermostats' start: a number or a tree like `params`.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgnht(log_lik, {"x": x}, {"mu": 0.0}, 1e-6, minibatch_size=100, burn_in=1000, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: section 3.3 of the paper; Ding et al. (2014).
    """
    return _whole(sgnht_setup, (log_lik, dataset, params, stepsize), {"a": a}, options)


def sgnht_setup(
    log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, *, a: Any = 0.01, **options: Unpack[SetupOptions]
) -> Sampler:
    """`sgnht` step by step: the same arguments, without those of a run.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sgnht_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-6, minibatch_size=100)
    >>> float(sampler.init(seed=1).auxiliary["thermostat"]["mu"]) > 0
    True
    """
    return _setup("sgnht", log_lik, dataset, params, stepsize, _nose_hoover(a), options, {"a": a})


def sgldcv(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Stochastic gradient Langevin dynamics with control variates.

    The update of `sgld` with ĝ(θ) = ∇log p(θ) + Σ_all ∇ℓ_i(θ̂) + (N/n) Σ_S [∇ℓ_i(θ) - ∇ℓ_i(θ̂)], whose noise vanishes as θ
    comes near the centre θ̂. It is unbiased for every centre; the chain starts there and needs no burn-in.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis.
        params: where the search for the centre starts: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, or a function of the iteration.
        opt_stepsize: step size of the paper's search, `n_iters_opt` steps of stochastic gradient ascent; left out, the
            centre is found automatically.
        n_iters_opt: steps of the paper's search.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgldcv(log_lik, {"x": x}, {"mu": 0.0}, 1e-5, minibatch_size=100, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: section 3.4 of the paper; Baker, Fearnhead, Fox and Nemeth (2019), Statistics and Computing 29.
    """
    specific = {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt}
    return _whole(sgldcv_setup, (log_lik, dataset, params, stepsize), specific, options)


def sgldcv_setup(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    **options: Unpack[SetupOptions],
) -> Sampler:
    """`sgldcv` step by step: the same arguments, without those of a run. `init` finds the centre.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sgldcv_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-5, minibatch_size=100)
    >>> bool(abs(sampler.init(seed=1).params["mu"] - 1.0) < 0.01)
    True
    """
    centre = (opt_stepsize, n_iters_opt)
    return _setup("sgldcv", log_lik, dataset, params, stepsize, lambda _: Langevin(), options, centre=centre)


def sghmccv(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    alpha: Any = 0.01,
    L: int | None = 5,
    scheme: str = "symmetric",
    noise_estimate: str | None = None,
    noise_warmup: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Stochastic gradient Hamiltonian Monte Carlo with control variates: the update of `sghmc`, the gradients of `sgldcv`.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis.
        params: where the search for the centre starts: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, or a function of the iteration.
        opt_stepsize: as in `sgldcv`.
        n_iters_opt: as in `sgldcv`.
        alpha: as in `sghmc`.
        L: as in `sghmc`.
        scheme: as in `sghmc`.
        noise_estimate: as in `sghmc`; the variance is that of the rows' differences.
        noise_warmup: as in `sghmc`.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sghmccv(log_lik, {"x": x}, {"mu": 0.0}, 5e-6, minibatch_size=100, n_iters=2000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((2000,), True)

    Reference: sections 3.2 and 3.4 of the paper.
    """
    specific = {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt, "alpha": alpha, "L": L, "scheme": scheme}
    noise = {"noise_estimate": noise_estimate, "noise_warmup": noise_warmup}
    return _whole(sghmccv_setup, (log_lik, dataset, params, stepsize), specific | noise, options)


def sghmccv_setup(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    alpha: Any = 0.01,
    L: int | None = 5,
    scheme: str = "symmetric",
    noise_estimate: str | None = None,
    noise_warmup: int = 1000,
    **options: Unpack[SetupOptions],
) -> Sampler:
    """`sghmccv` step by step: the same arguments, without those of a run. `init` finds the centre.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sghmccv_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-5, minibatch_size=100)
    >>> state = sampler.step(sampler.init(seed=1))
    """
    dynamics = _hamiltonian(alpha, L, scheme, noise_estimate, noise_warmup)
    told = {"L": L, "scheme": scheme if L else "persistent", "alpha": alpha, "noise_estimate": noise_estimate}
    centre = (opt_stepsize, n_iters_opt)
    variance = noise_estimate == "fisher"
    return _setup("sghmccv", log_lik, dataset, params, stepsize, dynamics, options, told, centre=centre, variance=variance)


def sgnhtcv(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    a: Any = 0.01,
    **options: Unpack[RunOptions],
) -> Result:
    """Stochastic gradient Nosé-Hoover thermostat with control variates: the update of `sgnht`, the gradients of `sgldcv`.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis.
        params: where the search for the centre starts: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, or a function of the iteration.
        opt_stepsize: as in `sgldcv`.
        n_iters_opt: as in `sgldcv`.
        a: as in `sgnht`.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgnhtcv(log_lik, {"x": x}, {"mu": 0.0}, 1e-6, minibatch_size=100, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: sections 3.3 and 3.4 of the paper.
    """
    specific = {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt, "a": a}
    return _whole(sgnhtcv_setup, (log_lik, dataset, params, stepsize), specific, options)


def sgnhtcv_setup(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    a: Any = 0.01,
    **options: Unpack[SetupOptions],
) -> Sampler:
    """`sgnhtcv` step by step: the same arguments, without those of a run. `init` finds the centre.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sgnhtcv_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-6, minibatch_size=100)
    >>> state = sampler.step(sampler.init(seed=1))
    """
    centre = (opt_stepsize, n_iters_opt)
    return _setup("sgnhtcv", log_lik, dataset, params, stepsize, _nose_hoover(a), options, {"a": a}, centre=centre)


MakeDynamics = Callable[[PyTree], Dynamics]


def _hamiltonian(alpha: Any, L: int | None, scheme: str, noise_estimate: str | None, noise_warmup: int) -> MakeDynamics:
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


def _nose_hoover(a: Any) -> MakeDynamics:
    return lambda position: NoseHoover(per_parameter(a, position, "a"))


def _setup(
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


def _whole(setup: Callable[..., Sampler], problem: tuple[Any, ...], specific: dict[str, Any], options: RunOptions) -> Result:
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
