"""SGLD, and the ascent by which the paper finds its centre."""

from dataclasses import dataclass, replace

import jax.numpy as jnp

from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.trees import PyTree, tree_map


@dataclass(frozen=True)
class Langevin(Dynamics):
    """SGLD: θ' = θ + (ε/2) ĝ(θ) + N(0, ε).

    >>> from sgmcmc.algorithms import Langevin, Motion
    >>> after = Langevin().move(Motion(position=1.0, gradient=-2.0, auxiliary={}), eps=0.04, noise=0.5)
    >>> round(float(after.position), 4)  # 1 - 0.02 · 2 + 0.2 · 0.5
    1.06
    """

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        position = tree_map(lambda x, g, e, z: x + e / 2 * g + jnp.sqrt(e) * z, motion.position, motion.gradient, eps, noise)
        return replace(motion, position=position)


@dataclass(frozen=True)
class Ascent(Dynamics):
    """Stochastic gradient ascent, θ' = θ + ε ĝ(θ): how the paper finds the centre of its control variates."""

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        position = tree_map(lambda x, g, e: x + e * g, motion.position, motion.gradient, eps)
        return replace(motion, position=position)
