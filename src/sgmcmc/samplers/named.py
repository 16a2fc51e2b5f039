"""The named samplers, the six of the paper and BAOA: each a docstring and a composition of dynamics × gradient."""

from typing import Any, Unpack

from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.dynamics.hamiltonian import PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.dynamics.nose_hoover import NoseHoover, SymmetricNoseHoover
from sgmcmc.algorithms.kernel import Dynamics
from sgmcmc.core.checks import check_choice, check_count
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Dataset, LogLik, PyTree
from sgmcmc.samplers.composing import Composition, RunOptions, about_centre, step_by_step, whole_chain


@whole_chain
def sgld(log_lik: LogLik, dataset: Dataset, params: PyTree, stepsize: Any, **options: Unpack[RunOptions]) -> Composition:
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
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgld(log_lik, {"x": x}, {"mu": 0.0}, 2e-5, minibatch_size=100, burn_in=1000, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: section 3.1 of the paper (Baker, Fearnhead, Fox and Nemeth, 2019); Welling and Teh (2011).
    """
    return Composition("sgld", Langevin())


sgld_setup = step_by_step(sgld)


@whole_chain
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
) -> Composition:
    """Stochastic gradient Hamiltonian Monte Carlo.

    L leaps between stored states, before which ν ~ N(0, ε) is drawn. Each leap: ν += (ε/2) ĝ(θ); θ += ν; ν += (ε/2) ĝ(θ);
    ν = (1-α) ν + N(0, (1 - (1-α)²) ε).

    With exact gradients the variance on a Gaussian of precision A is 1/(A(1 - εA/4)) for every L and α. The paper's own
    order of updates (`scheme="paper"`) gives L/(L-1) times the right variance as ε and α go to 0.

    Args:
        log_lik, dataset, params, stepsize: as in `sgld`.
        alpha: friction per leap, between 0 and 1: a number or a tree like `params`.
        L: leaps per iteration. None never draws the momentum anew: ν' = (1-α)ν + ε ĝ(θ) + N(0, 2(α-β̂)ε); θ' = θ + ν'.
        scheme: `"symmetric"`, or `"paper"` for the equations as the paper has them.
        noise_estimate: with `L=None`, `"fisher"` estimates the gradient noise V from the rows' own gradients and sets
            β̂ = εV/2, which makes up for it; None is β̂ = 0.
        noise_warmup: iterations over which V is averaged; then it is fixed.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sghmc(log_lik, {"x": x}, {"mu": 0.0}, 5e-6, minibatch_size=100, burn_in=500, n_iters=2000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((2000,), True)

    Reference: section 3.2 of the paper; Chen, Fox and Guestrin (2014).
    """
    dynamics, told = hamiltonian(alpha, L, scheme, noise_estimate, noise_warmup)
    return Composition("sghmc", dynamics, told=told)


sghmc_setup = step_by_step(sghmc)


@whole_chain
def sgnht(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    *,
    a: Any = 0.01,
    scheme: str = "paper",
    **options: Unpack[RunOptions],
) -> Composition:
    """Stochastic gradient Nosé-Hoover thermostat.

    θ' = θ + ν; ν' = (1-α) ν + ε ĝ(θ') + N(0, 2aε); α' = α + (ν'·ν'/p - ε), with a thermostat α for each named parameter
    of p numbers. The thermostats take up the gradient noise by themselves.

    E[ν·ν/p] = ε holds exactly at stationarity whatever the target. On a Gaussian of many dimensions the variance is 1 - α/2
    of the truth however small the step, α being what the thermostats settle at: a little above `a`, and more the noisier the
    gradients. `scheme="symmetric"`, at the same cost, has the truth but for a part of order εVα: `SymmetricNoseHoover`.

    Args:
        log_lik, dataset, params, stepsize: as in `sgld`.
        a: the injected noise and the thermostats' start: a number or a tree like `params`.
        scheme: `"paper"` (the default) for the equations as the paper has them, above; or `"symmetric"`.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgnht(log_lik, {"x": x}, {"mu": 0.0}, 1e-6, minibatch_size=100, burn_in=1000, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: section 3.3 of the paper; Ding et al. (2014).
    """
    return Composition("sgnht", thermostatted(a, scheme), told={"a": a, "scheme": scheme})


sgnht_setup = step_by_step(sgnht)


@whole_chain
def sgldcv(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    **options: Unpack[RunOptions],
) -> Composition:
    """Stochastic gradient Langevin dynamics with control variates.

    The update of `sgld` with ĝ(θ) = ∇log p(θ) + Σ_all ∇ℓ_i(θ̂) + (N/n) Σ_S [∇ℓ_i(θ) - ∇ℓ_i(θ̂)], whose noise vanishes as θ
    comes near the centre θ̂. It is unbiased for every centre; the chain starts there and needs no burn-in.

    Args:
        log_lik, dataset, stepsize: as in `sgld`; params is where the search for the centre starts.
        opt_stepsize: step size of the paper's search, `n_iters_opt` steps of stochastic gradient ascent; left out, the
            centre is found automatically.
        n_iters_opt: steps of the paper's search.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgldcv(log_lik, {"x": x}, {"mu": 0.0}, 1e-5, minibatch_size=100, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: section 3.4 of the paper; Baker, Fearnhead, Fox and Nemeth (2019), Statistics and Computing 29.
    """
    return about_centre(Composition("sgldcv", Langevin()), opt_stepsize, n_iters_opt)


sgldcv_setup = step_by_step(sgldcv)


@whole_chain
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
) -> Composition:
    """Stochastic gradient Hamiltonian Monte Carlo with control variates: the update of `sghmc`, the gradients of `sgldcv`.

    Args:
        log_lik, dataset, stepsize: as in `sgld`; params is where the search for the centre starts.
        opt_stepsize, n_iters_opt: as in `sgldcv`.
        alpha, L, scheme, noise_estimate, noise_warmup: as in `sghmc`; the variance is that of the rows' differences.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sghmccv(log_lik, {"x": x}, {"mu": 0.0}, 5e-6, minibatch_size=100, n_iters=2000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((2000,), True)

    Reference: sections 3.2 and 3.4 of the paper.
    """
    dynamics, told = hamiltonian(alpha, L, scheme, noise_estimate, noise_warmup)
    return about_centre(Composition("sghmccv", dynamics, told=told), opt_stepsize, n_iters_opt)


sghmccv_setup = step_by_step(sghmccv)


@whole_chain
def sgnhtcv(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    a: Any = 0.01,
    scheme: str = "paper",
    **options: Unpack[RunOptions],
) -> Composition:
    """Stochastic gradient Nosé-Hoover thermostat with control variates: the update of `sgnht`, the gradients of `sgldcv`.

    Args:
        log_lik, dataset, stepsize: as in `sgld`; params is where the search for the centre starts.
        opt_stepsize, n_iters_opt: as in `sgldcv`.
        a, scheme: as in `sgnht`.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.sgnhtcv(log_lik, {"x": x}, {"mu": 0.0}, 1e-6, minibatch_size=100, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: sections 3.3 and 3.4 of the paper.
    """
    return about_centre(
        Composition("sgnhtcv", thermostatted(a, scheme), told={"a": a, "scheme": scheme}), opt_stepsize, n_iters_opt
    )


sgnhtcv_setup = step_by_step(sgnhtcv)


@whole_chain
def baoa(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    *,
    alpha: Any = 0.5,
    noise_estimate: str | None = None,
    noise_warmup: int = 1000,
    **options: Unpack[RunOptions],
) -> Composition:
    """Underdamped Langevin dynamics, one gradient per step, with no discretisation error on a Gaussian.

    ν += ε ĝ(θ); θ += ν/2; ν' = (1-α) ν + N(0, (1 - (1-α)²) ε); θ' = θ + ν'/2.

    On a Gaussian of precision A, with exact gradients, the variance is exact for every ε below 4/A: `sgld` at the same cost
    is 33 % off where this is right. Gradient noise of variance V adds κV of it, κ = ε (2-α) / (4α (1 - εA/4)).

    Args:
        log_lik, dataset, params, stepsize: as in `sgld`.
        alpha: friction per step, at most 1: a number or a tree like `params`. With 1 the momentum is forgotten at once.
        noise_estimate: `"fisher"` estimates the gradient noise V from the rows' own gradients and injects as much less: exact
            under `precondition="laplace"`, where A is 1, and to first order in ε elsewhere.
        noise_warmup: iterations over which V is averaged; then it is fixed.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.baoa(log_lik, {"x": x}, {"mu": 0.0}, 1e-6, minibatch_size=100, burn_in=1000, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].mean() - x.mean()) < 0.01)
    ((4000,), True)

    Reference: Leimkuhler and Matthews (2013), Applied Mathematics Research eXpress; the order of its four parts names it.
    """
    dynamics, told = underdamped(alpha, noise_estimate, noise_warmup)
    return Composition("baoa", dynamics, told=told)


baoa_setup = step_by_step(baoa)


@whole_chain
def baoacv(
    log_lik: LogLik,
    dataset: Dataset,
    params: PyTree,
    stepsize: Any,
    opt_stepsize: Any = None,
    *,
    n_iters_opt: int = 10_000,
    alpha: Any = 0.5,
    noise_estimate: str | None = None,
    noise_warmup: int = 1000,
    **options: Unpack[RunOptions],
) -> Composition:
    """Underdamped Langevin dynamics with control variates: the update of `baoa`, the gradients of `sgldcv`.

    With `precondition="laplace"`, `rows="importance"` and `noise_estimate="fisher"` these are the chains of `sample`.

    Args:
        log_lik, dataset, stepsize: as in `sgld`; params is where the search for the centre starts.
        opt_stepsize, n_iters_opt: as in `sgldcv`.
        alpha, noise_estimate, noise_warmup: as in `baoa`; the variance is that of the rows' differences.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.baoacv(log_lik, {"x": x}, {"mu": 0.0}, 0.5, precondition="laplace", minibatch_size=100, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].std() - 0.01) < 0.001)
    ((4000,), True)

    Reference: that of `baoa`; section 3.4 of the paper.
    """
    dynamics, told = underdamped(alpha, noise_estimate, noise_warmup)
    return about_centre(Composition("baoacv", dynamics, told=told), opt_stepsize, n_iters_opt)


baoacv_setup = step_by_step(baoacv)


def hamiltonian(
    alpha: Any, L: int | None, scheme: str, noise_estimate: str | None, noise_warmup: int
) -> tuple[Dynamics, dict[str, Any]]:
    """The dynamics of SGHMC that its arguments ask for, and these for the record."""
    check_choice("scheme", scheme, ("symmetric", "paper"))
    told = {"L": L, "scheme": scheme if L else "persistent", "alpha": alpha, "noise_estimate": noise_estimate}
    warmup, learnt = learning(noise_estimate, noise_warmup)
    if L is not None:
        check_count("L", L)
        if noise_estimate is not None:
            raise InputError(f"noise_estimate={noise_estimate!r} came with L={L}; it is exact only with L=None, so pass L=None")
        return (SymmetricHamiltonian(alpha, L) if scheme == "symmetric" else PaperHamiltonian(alpha, L)), told
    if scheme == "paper":
        raise InputError("scheme='paper' came with L=None, which has one scheme only; leave scheme out, or give L")
    return PersistentHamiltonian(alpha, warmup), told | learnt


def thermostatted(a: Any, scheme: str) -> Dynamics:
    """The dynamics of SGNHT that its arguments ask for."""
    check_choice("scheme", scheme, ("paper", "symmetric"))
    return NoseHoover(a) if scheme == "paper" else SymmetricNoseHoover(a)


def learning(noise_estimate: str | None, noise_warmup: int) -> tuple[int, dict[str, Any]]:
    """The iterations in which the gradient noise is learnt, if it is to be; for the record where it is."""
    check_choice("noise_estimate", noise_estimate, (None, "fisher"))
    if noise_estimate is None:
        return 0, {}
    return check_count("noise_warmup", noise_warmup), {"noise_warmup": noise_warmup}


def underdamped(alpha: Any, noise_estimate: str | None, noise_warmup: int) -> tuple[Dynamics, dict[str, Any]]:
    """The dynamics of BAOA that its arguments ask for, and these for the record."""
    warmup, learnt = learning(noise_estimate, noise_warmup)
    return BAOA(alpha, corrected=warmup > 0, warmup=warmup), {"alpha": alpha, "noise_estimate": noise_estimate} | learnt


__test__ = {name: thing for name, thing in list(globals().items()) if name.startswith(("sg", "baoa"))}  # made functions
