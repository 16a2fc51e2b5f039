"""BAOA, with and without control variates: the seventh composition, and the one that `sample` uses."""

from typing import Any, Unpack

from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.kernel import Dynamics
from sgmcmc.core.trees import Dataset, LogLik, PyTree
from sgmcmc.samplers.article import learning
from sgmcmc.samplers.composing import Composition, RunOptions, about_centre, step_by_step, whole_chain


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
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: starting values: any tree of floats.
        stepsize: ε, in squared units of the parameters: a number, a tree like `params`, a function of the iteration, or `"auto"`.
        alpha: friction per step, at most 1: a number or a tree like `params`. With 1 the momentum is forgotten at once.
        noise_estimate: `"fisher"` estimates the gradient noise V from the rows' own gradients and injects as much less: exact
            under `precondition="laplace"`, where A is 1, and to first order in ε elsewhere.
        noise_warmup: iterations over which V is averaged; then it is fixed.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
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
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch` of their log likelihoods, or one value per row.
        dataset: a dict of arrays, rows on the first axis, or the path of a folder made by `sgmcmc.data.convert`.
        params: where the search for the centre starts: any tree of floats.
        stepsize: as in `baoa`.
        opt_stepsize: as in `sgldcv`.
        n_iters_opt: as in `sgldcv`.
        alpha: as in `baoa`.
        noise_estimate: as in `baoa`; the variance is that of the rows' differences.
        noise_warmup: as in `baoa`.
        **options: see `RunOptions`.

    >>> import numpy as np, sgmcmc
    >>> x = np.random.default_rng(0).normal(1.0, 1.0, 10_000)
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> out = sgmcmc.baoacv(log_lik, {"x": x}, {"mu": 0.0}, 0.5, precondition="laplace", minibatch_size=100, n_iters=4000, seed=1)
    >>> out["mu"].shape, bool(abs(out["mu"].std() - 0.01) < 0.001)
    ((4000,), True)

    Reference: that of `baoa`; section 3.4 of the paper.
    """
    dynamics, told = underdamped(alpha, noise_estimate, noise_warmup)
    return about_centre(Composition("baoacv", dynamics, told=told), opt_stepsize, n_iters_opt)


baoacv_setup = step_by_step(baoacv)


def underdamped(alpha: Any, noise_estimate: str | None, noise_warmup: int) -> tuple[Dynamics, dict[str, Any]]:
    """The dynamics of BAOA that its arguments ask for, and these for the record."""
    warmup = learning(noise_estimate, noise_warmup)
    return BAOA(alpha, corrected=warmup > 0, warmup=warmup), {"alpha": alpha, "noise_estimate": noise_estimate}


__test__ = {name: thing for name, thing in list(globals().items()) if name.startswith("baoa")}  # doctests of made functions
