"""What dynamics with a momentum share.

In their formulas numbers that are known before the step are multiplied with each other first, in brackets: as compilers do with
constants, so that arguments give the same bits.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.trees import PyTree, tree_map


class Persistent(Dynamics):
    """Dynamics that never draw their momentum anew, and may carry an estimate of the gradient noise, to inject as much less.

    The estimate is the running mean of the estimator's own variance over the first `warmup` iterations; with 0 it stays as it
    was set.
    """

    warmup: int

    @property
    def carries_variance(self) -> bool:
        return self.warmup > 0

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        carried = {"momentum": momentum(eps, noise)}
        return carried | {"variance": tree_map(jnp.zeros_like, position)} if self.carries_variance else carried

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        return rescale_momentum(motion, eps, before)

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        return learnt(replace(motion, gradient=gradient), stats, t, self.warmup)


class HalfKicks(Dynamics):
    """Leaps that are symmetric in time, with a half-kick at either end: then friction, `alpha` per leap."""

    alpha: PyTree

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        nu = half_kicked(motion, motion.gradient, eps)
        position = tree_map(jnp.add, motion.position, nu)
        return replace(motion, position=position, auxiliary=motion.auxiliary | {"momentum": nu})

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        def rub(v: Any, e: Any, z: Any, alpha: Any) -> Any:
            return (1 - alpha) * v + jnp.sqrt(renewed(alpha) * e) * z

        nu = tree_map(rub, half_kicked(motion, gradient, eps), eps, noise, self.alpha)
        return replace(motion, gradient=gradient, auxiliary=motion.auxiliary | {"momentum": nu})


def half_kicked(motion: Motion, gradient: PyTree, eps: PyTree) -> PyTree:
    """ν + (ε/2) ĝ."""
    return tree_map(lambda v, g, e: v + e / 2 * g, motion.auxiliary["momentum"], gradient, eps)


def learnt(motion: Motion, stats: dict[str, Any], t: Any, warmup: int) -> Motion:
    """With the mean of the estimator's own variance over the first `warmup` iterations, if there are any, up to iteration `t`."""
    if not warmup:
        return motion
    share = jnp.where(t <= warmup, 1 / t, 0.0)
    mean = tree_map(lambda m, v: m + share.astype(m.dtype) * (v - m), motion.auxiliary["variance"], stats["variance"])
    return replace(motion, auxiliary=motion.auxiliary | {"variance": mean})


def momentum(eps: PyTree, noise: PyTree | None) -> PyTree:
    """ν ~ N(0, ε).

    >>> from sgmcmc.algorithms import momentum
    >>> round(float(momentum(eps=0.04, noise=-1.0)), 4)
    -0.2
    """
    return tree_map(lambda e, z: jnp.sqrt(e) * z, eps, noise)


def rescale_momentum(motion: Motion, eps: PyTree, before: PyTree) -> Motion:
    """ν has variance ε: where a schedule changes ε, a momentum that is kept changes with it.

    >>> from sgmcmc.algorithms import Motion, rescale_momentum
    >>> motion = Motion(position=1.0, gradient=0.0, auxiliary={"momentum": 0.2})
    >>> round(float(rescale_momentum(motion, eps=0.01, before=0.04).auxiliary["momentum"]), 4)
    0.1
    """
    nu = tree_map(lambda v, e, b: v * jnp.sqrt(e / b), motion.auxiliary["momentum"], eps, before)
    return replace(motion, auxiliary=motion.auxiliary | {"momentum": nu})


def left(share: Any) -> Any:
    """What is left to be injected where the minibatch noise pays for a share: never less than nothing."""
    return jnp.maximum(1 - share, 0)


def renewed(alpha: Any) -> Any:
    """1 - (1-α)²: the part of a momentum's variance that friction takes and noise gives back.

    The bound never binds. It keeps the square and the difference from becoming one operation that rounds once, which compilers
    make of them where α is an argument and not where it is a constant: so both give the same bits.

    >>> from sgmcmc.algorithms.dynamics.momentum import renewed
    >>> renewed(0.5).item()
    0.75
    """
    return 1 - jnp.minimum((1 - alpha) ** 2, 1)
