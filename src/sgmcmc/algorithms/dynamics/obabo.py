"""Underdamped Langevin dynamics with the kicks at the ends: half-kick, drift, half-kick between two halves of friction."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.momentum import Persistent, renewed
from sgmcmc.algorithms.kernel import Motion
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.problem.schedules import per_parameter


@dataclass(frozen=True)
class OBABO(Persistent):
    """ν += (ε/2) ĝ(θ);  θ' = θ + ν;  ν += (ε/2) ĝ(θ');  ν' = (1-α) ν + N(0, (1 - (1-α)²) ε), ν never drawn anew.

    Two halves of friction that follow each other are one whole. (BAOAB would be `BAOA`, two half-kicks by the same gradient being
    a whole one.) On a Gaussian of precision A with gradient noise V the variance is (1/A) (1 + εV (2-α)/(4α)) / (1 - εA/4).

    Args:
        alpha: friction per step, at most 1: a number or a tree like what moves.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import OBABO
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=np.zeros(1))
    >>> inflation(OBABO(alpha=0.3), 0.4, one).round(4)  # 1 / (1 - 0.1)
    array([1.1111])

    Reference: Bussi and Parrinello (2007), Physical Review E 75.
    """

    alpha: PyTree = 0.5
    traced: ClassVar[tuple[str, ...]] = ("alpha",)
    warmup: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]: it learns nothing

    def fitted(self, position: PyTree) -> Self:
        return replace(self, alpha=per_parameter(self.alpha, position, "alpha", below=np.nextafter(1.0, 2.0)))

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        nu = tree_map(lambda v, g, e: v + e / 2 * g, motion.auxiliary["momentum"], motion.gradient, eps)
        return replace(motion, position=tree_map(jnp.add, motion.position, nu), auxiliary={"momentum": nu})

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        def kick_and_rub(v: Any, g: Any, e: Any, z: Any, alpha: Any) -> Any:
            return (1 - alpha) * (v + e / 2 * g) + jnp.sqrt(renewed(alpha) * e) * z

        nu = tree_map(kick_and_rub, motion.auxiliary["momentum"], gradient, eps, noise, self.alpha)
        return replace(motion, gradient=gradient, auxiliary={"momentum": nu})
