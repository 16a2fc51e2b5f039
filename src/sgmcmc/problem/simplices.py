"""Positive numbers and simplices, for dynamics that move the logarithms of positive numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import PyTree, Rows, leaf_names, tree_map
from sgmcmc.problem.posterior import Posterior, Transform

SMALLEST = 0.8
"""The smallest number that is shown is this power of the smallest that there is, 1e-30 in float32; what moves may be smaller."""

NEARLY = 1e-3


@dataclass(frozen=True)
class Shares:
    """θ = ω/Σω along the last axis, where x = log ω is what moves.

    The sum is taken for a constant in derivatives: the derivative of log p(θ) in x_k is θ_k ∂_k log p, whatever the sum is, and
    that of Σ c_k log θ_k is c_k. With the density of x, under which the ω of a uniform θ are exponential, ω are Gamma variables.
    """

    def __call__(self, x: Any) -> Any:
        log_theta = x - jax.lax.stop_gradient(jax.nn.logsumexp(x, axis=-1, keepdims=True))
        return shown(log_theta)

    def inv(self, theta: Any) -> Any:
        return moved(theta)

    def log_abs_det_jacobian(self, x: Any, theta: Any) -> Any:
        return x - jnp.exp(x)


@dataclass(frozen=True)
class Numbers:
    """ω = exp(x)."""

    def __call__(self, x: Any) -> Any:
        return shown(x)

    def inv(self, omega: Any) -> Any:
        return moved(omega)

    def log_abs_det_jacobian(self, x: Any, omega: Any) -> Any:
        return x


def shown(x: Any) -> Any:
    """exp(x), where that is not too small for logarithms and their derivatives: these are as if it were."""
    return jnp.exp(x + jax.lax.stop_gradient(jnp.maximum(x, _least(x)) - x))


def moved(number: Any) -> Any:
    """The other way round."""
    return jnp.log(jnp.maximum(number, jnp.exp(_least(number))))


def _least(like: Any) -> Any:
    return SMALLEST * jnp.log(jnp.finfo(like.dtype).tiny)


def of_positive(transform: Transform, params: PyTree, who: str, owned: tuple[str, ...] = ()) -> Transform:
    """The transform for dynamics of positive numbers, which are called `who`: simplices are moved as shares. What is `owned` by a
    Gibbs block does not move."""
    from numpyro.distributions.transforms import ExpTransform, StickBreakingTransform

    for name, bijection in zip(leaf_names(params), transform.bijections, strict=True):
        if name not in owned and not isinstance(bijection, ExpTransform | StickBreakingTransform):
            found = f"{who} moves probabilities and positive numbers, and params[{name!r}] is constrained to neither"
            expected = f"constraints={{{name!r}: constraints.simplex}} or constraints.positive"
            raise InputError(f"{found}; expected {expected}, or other dynamics for all, such as dynamics='langevin'")
    moving = {ExpTransform: Numbers(), StickBreakingTransform: Shares()}
    return Transform(tuple(None if one is None else moving[type(one)] for one in transform.bijections))


def counts(posterior: Posterior, position: PyTree, rows: Rows) -> dict[str, jax.Array]:
    """What each row, and the prior, adds to the shapes of the Gamma variables of simplices: axes row and number."""
    prior = tree_map(lambda g, x: (g + jnp.exp(x))[None], posterior.prior_gradient(position), position)
    found = {"log_lik": posterior.row_gradients(position, rows), "log_prior": prior}
    simplex = [isinstance(one, Shares) for one in posterior.transform.bijections]
    return {
        who: jnp.concatenate(
            [leaf.reshape(len(leaf), -1) for leaf, one in zip(jax.tree.leaves(tree), simplex, strict=True) if one], axis=1
        )
        for who, tree in found.items()
    }


def check_counts(
    value: Callable[[PyTree, Rows], dict[str, jax.Array]], posterior: Posterior, position: PyTree, rows: Rows
) -> None:
    """Of simplices likelihoods and priors have to be those of counts: no count is negative, and their sum is the same for all θ.

    `value` is a posterior's `counts`, compiled.
    """
    simplices = [isinstance(one, Shares) for one in posterior.transform.bijections]
    if not any(simplices):
        return
    name = leaf_names(position)[simplices.index(True)]
    rng = np.random.default_rng(0)
    away = tree_map(lambda x: x + jnp.asarray(rng.normal(size=x.shape), x.dtype), position)
    here, there = (value(point, rows) for point in (position, away))
    for who in here:
        one, other = (np.asarray(found[who], np.float64) for found in (here, there))
        allowed = NEARLY * (1 + np.abs(one).sum(axis=1).max())
        negative = min(one.min(), other.min()) < -allowed
        if negative or np.abs(one.sum(axis=1) - other.sum(axis=1)).max() > allowed:
            found = f"{who} is not that of counts in params[{name!r}]: the number of observations that it stands for is"
            told = "negative for some probability" if negative else "another for other probabilities"
            expected = f"a sum of logarithms of probabilities, such as (counts * jnp.log(params[{name!r}])).sum()"
            raise InputError(f"{found} {told}; expected {expected}, or other dynamics, such as dynamics='langevin'")
