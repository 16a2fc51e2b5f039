"""Stochastic gradient Cox-Ingersoll-Ross: steps of positive numbers that are draws from the exact law of a diffusion."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.dynamics.gamma import exponential, log_gamma_number
from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.problem.schedules import per_parameter

LEAST = 1e-6
"""Shapes below zero by rounding are taken for this."""

ROUNDING = 10
"""Units in the last place by which a shape may be below zero."""


@dataclass(frozen=True)
class SCIR(Dynamics):
    """ω' = (1-e)/r · Gamma(â + K),  K ~ Poisson(ω r e/(1-e)),  e = exp(-r ε/2),  every number by itself.

    That is the law at time ε/2 of dω = (â - r ω) dt + √(2ω) dW, which leaves Gamma(â, r) alone: to first order in ε the step of
    `SGRLD`, but without discretisation error and never below zero. What moves is x = log ω, and â = ĝ(x) + r ω, with ĝ the
    gradient of the log density of x: for counts of categories c and a Dirichlet prior, â = α + (N/n) Σ_S c.

    Simplices, `constraints={"theta": constraints.simplex}`, one in each row of a matrix, move as θ = ω/Σω with r = 1. The log
    likelihood has to be one of counts: logarithms of probabilities, or of sums of products of them. Positive parameters are ω
    themselves, with an r of no less than their posterior's. Others are refused.

    Where â does not depend on ω the law is exact for every ε, when the gradients are. Minibatches leave the mean of ω alone and
    add Var(â) (1-e)/(1+e) to its variance a. Where â depends on ω, there is an error of order ε. And where simplices share
    observations, as topics do, their sums follow how many each has, which leaves a bias of some hundredths of a posterior
    standard deviation however small the step, the less the more observations there are.

    Args:
        rate: r, a number or a tree like what moves; 1 for simplices. With an r too small for the posterior, or an estimator that
            is not a sum of positive terms, â may fall below zero: there is no such law, and a `DivergenceError` says so.

    >>> import jax, jax.numpy as jnp
    >>> from sgmcmc.algorithms import SCIR, Motion
    >>> at_one = Motion(position=jnp.zeros(100_000), gradient=jnp.full(100_000, -0.5), auxiliary={})  # ω = 1, so that â = 1/2
    >>> after = SCIR().fitted(at_one.position).move(at_one, eps=jnp.asarray(1.0), noise=jax.random.key(0))
    >>> mean = float(jnp.exp(after.position).mean())  # e ω + (1-e) â with e = exp(-1/2): 0.803
    >>> abs(mean - 0.803) < 0.01
    True

    Reference: Baker, Fearnhead, Fox and Nemeth (2018), Large-scale stochastic sampling from the probability simplex.
    """

    rate: PyTree = 1.0
    keyed: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    affine: ClassVar[bool] = False
    traced: ClassVar[tuple[str, ...]] = ("rate",)
    pitfall: ClassVar[str] = "SCIR has no step where ĝ + rω is negative: expected a larger rate, or gradient='minibatch'"

    def fitted(self, position: PyTree) -> Self:
        return replace(self, rate=per_parameter(self.rate, position, "rate"))

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        leaves, structure = jax.tree.flatten(motion.position)
        keys = jax.tree.unflatten(structure, list(jax.random.split(noise, len(leaves))))

        def step(x: Any, g: Any, e: Any, rate: Any, key: Any) -> Any:
            return drawn(key, *transition(x, g, rate, e / 2))

        return replace(motion, position=tree_map(step, motion.position, motion.gradient, eps, self.rate, keys))


def transition(x: Any, gradient: Any, rate: Any, span: Any) -> tuple[Any, Any, Any]:
    """Where numbers are after a span of time: scale · Gamma(shape + K), K ~ Poisson(mean); returns shape, mean and scale."""
    omega = rate * jnp.exp(x)
    shape = gradient + omega
    below_zero = shape < -ROUNDING * jnp.finfo(x.dtype).eps * (1 + omega + jnp.abs(gradient))
    shape = jnp.where(below_zero, jnp.nan, jnp.maximum(shape, LEAST))
    stays, goes = jnp.exp(-rate * span), -jnp.expm1(-rate * span)
    return shape, omega * stays / goes, goes / rate


def drawn(key: jax.Array, shape: Any, mean: Any, scale: Any) -> Any:
    """The logarithm of such a number.

    Without a Poisson number, of which there is none exact for large means in float32: of a Poisson process on [0, mean] the first
    time τ is exponential. With none, Gamma(shape) is left. Else Gamma(shape + 1 + K') is, where K' are those after τ, and
    that is half a noncentral χ²: (Z + √(2 (mean - τ)))²/2 + Gamma(shape + 1/2).
    """
    times, gamma = jax.random.split(key)
    z, *pair = jax.lax.optimization_barrier(jax.random.normal(times, (3, *mean.shape), mean.dtype))  # or it makes them twice
    left = mean - exponential(pair)
    some = left > 0
    shifted = (z + jnp.sqrt(2 * jnp.where(some, left, 1.0))) ** 2 / 2
    log_gamma = log_gamma_number(gamma, jnp.where(some, shape + 0.5, shape))
    return jnp.log(scale) + jnp.where(some, jnp.log(shifted + jnp.exp(log_gamma)), log_gamma)
