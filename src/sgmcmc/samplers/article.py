"""The six samplers of the paper: each a docstring and a composition of dynamics × estimator."""

from __future__ import annotations

from typing import Any, Unpack

from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.core.types import Dataset, LogLik, PyTree
from sgmcmc.results.result import Result
from sgmcmc.run.sampler import Sampler
from sgmcmc.samplers.composing import RunOptions, SetupOptions, hamiltonian, nose_hoover, run_whole, set_up


def sgld(log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, **options: Unpack[RunOptions]) -> Result:
    """Stochastic gradient Langevin dynamics.

    θ' = θ + (ε/2) ĝ(θ) + N(0, ε), where ĝ is the minibatch estimate of the gradient of the log posterior.

    Targets the posterior as ε → 0. On a Gaussian of precision A, with gradient noise of variance V and h = ε/2, the variance
    is (1 + hV/2)/(1 - hA/2) times the posterior's.

    Args:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
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
    return run_whole(sgld_setup, (log_lik, dataset, params, stepsize), {}, options)


def sgld_setup(log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, **options: Unpack[SetupOptions]) -> Sampler:
    """`sgld` step by step: the same arguments, without those of a run.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.ones(1000)}, {"mu": 0.0}, 1e-4, minibatch_size=100)
    >>> state = sampler.step(sampler.init(seed=1))
    """
    return set_up("sgld", log_lik, dataset, params, stepsize, lambda _: Langevin(), options)


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
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
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
    return run_whole(sghmc_setup, (log_lik, dataset, params, stepsize), specific, options)


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
    dynamics = hamiltonian(alpha, L, scheme, noise_estimate, noise_warmup)
    told = {"L": L, "scheme": scheme if L else "persistent", "alpha": alpha, "noise_estimate": noise_estimate}
    return set_up("sghmc", log_lik, dataset, params, stepsize, dynamics, options, told, variance=noise_estimate == "fisher")


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
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
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
    return run_whole(sgnht_setup, (log_lik, dataset, params, stepsize), {"a": a}, options)


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
    return set_up("sgnht", log_lik, dataset, params, stepsize, nose_hoover(a), options, {"a": a})


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
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: where the search for the centre starts: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
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
    return run_whole(sgldcv_setup, (log_lik, dataset, params, stepsize), specific, options)


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
    return set_up("sgldcv", log_lik, dataset, params, stepsize, lambda _: Langevin(), options, centre=centre)


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
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: where the search for the centre starts: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
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
    return run_whole(sghmccv_setup, (log_lik, dataset, params, stepsize), specific | noise, options)


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
    dynamics = hamiltonian(alpha, L, scheme, noise_estimate, noise_warmup)
    told = {"L": L, "scheme": scheme if L else "persistent", "alpha": alpha, "noise_estimate": noise_estimate}
    centre = (opt_stepsize, n_iters_opt)
    variance = noise_estimate == "fisher"
    return set_up("sghmccv", log_lik, dataset, params, stepsize, dynamics, options, told, centre=centre, variance=variance)


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
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: where the search for the centre starts: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
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
    return run_whole(sgnhtcv_setup, (log_lik, dataset, params, stepsize), specific, options)


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
    return set_up("sgnhtcv", log_lik, dataset, params, stepsize, nose_hoover(a), options, {"a": a}, centre=centre)
