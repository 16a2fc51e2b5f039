"""Stochastic gradient Barker: the gradient chooses the direction of a step, not its length."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from sgmcmc.algorithms.dynamics.momentum import learnt
from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.checks import check_count
from sgmcmc.core.trees import PyTree, tree_map

C_SQUARED = 2.0
"""With this the drift is right to second order in the noise; 1.702², which fits the logistic curve as a whole, leaves a part."""


@dataclass(frozen=True)
class Barker(Dynamics):
    """θ' = θ ± |z|, z ~ N(0, ε), every number by itself: up with probability 1/(1 + exp(-|z| ĝ)), else down.

    The first order of this is `Langevin`, and so is what it targets as ε → 0. But however steep the posterior and however large
    ε, a step is no longer than |z|: too large steps cost efficiency, and do not diverge.

    The noise of gradients adds nothing to the length of steps; it makes their direction less certain, a drift too weak. With a
    `warmup` its variance V is learnt and |z| ĝ / √(1 - z²V/2) stands in the place of |z| ĝ; where z²V is 2 or more, the sign of ĝ
    decides.

    Args:
        warmup: iterations in which V is learnt from the estimator's own variance; 0 corrects nothing.

    >>> import sgmcmc
    >>> from sgmcmc.algorithms import Barker
    >>> float(Barker().chance(1.0, 0.0, 0.0)), round(float(Barker().chance(0.1, 2.0, 0.0)), 4)  # 1 / (1 + exp(-0.2))
    (0.5, 0.5498)

    Reference: Livingstone and Zanella (2022), JRSS B 84; Mauri and Zanella (2024), Robust approximate sampling via stochastic
    gradient Barker dynamics, which has 1.702² for the 2 of the correction.
    """

    warmup: int = 0
    refreshes: ClassVar[bool] = True
    affine: ClassVar[bool] = False

    def fitted(self, position: PyTree) -> Self:
        return replace(self, warmup=check_count("warmup", self.warmup, least=0))

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        coins = {"coin": noise}
        return coins | {"variance": tree_map(jnp.zeros_like, position)} if self.warmup else coins

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        return replace(motion, auxiliary=motion.auxiliary | {"coin": noise})

    def chance(self, length: Any, gradient: Any, variance: Any) -> Any:
        """The probability that a step of some length goes up."""
        certain = jnp.maximum(1 - length**2 * variance / C_SQUARED, 0.0)
        return jax.nn.sigmoid(length * gradient / jnp.sqrt(jnp.maximum(certain, 1e-12)))

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        def step(x: Any, g: Any, e: Any, z: Any, coin: Any, v: Any) -> Any:
            length = jnp.sqrt(e) * jnp.abs(z)
            return x + jnp.where(ndtr(coin) < self.chance(length, g, v), length, -length)

        variance = motion.auxiliary["variance"] if self.warmup else tree_map(jnp.zeros_like, motion.position)
        coins = motion.auxiliary["coin"]
        return replace(motion, position=tree_map(step, motion.position, motion.gradient, eps, noise, coins, variance))

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        return learnt(replace(motion, gradient=gradient), stats, t, self.warmup)
