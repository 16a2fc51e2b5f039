"""Stochastic gradient Riemannian Langevin dynamics of positive numbers, reflected at zero."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp

from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.trees import PyTree, tree_map


@dataclass(frozen=True)
class SGRLD(Dynamics):
    """ω' = |ω + (ε/2) ĝ(x) + N(0, ε ω)|, where x = log ω is what moves and ĝ the gradient of its log density.

    That is `PreconditionedLangevin` of ω with G = ω, reflected at zero. Simplices move as θ = ω/Σω; parameters and likelihoods
    may be those of `SCIR`: where Gamma(â, 1) is the target, ĝ = â - ω.

    The law has an error of order ε; but where ω is no larger than ε, the reflection takes the place of the posterior, and small
    probabilities come out too large. `SCIR` has no such error.

    >>> import numpy as np, jax.numpy as jnp
    >>> from sgmcmc.algorithms import SGRLD, Motion
    >>> at_one = Motion(position=jnp.zeros(2), gradient=jnp.full(2, -0.5), auxiliary={})
    >>> after = SGRLD().move(at_one, eps=jnp.full(2, 0.04), noise=jnp.array([0.0, -10.0]))
    >>> np.asarray(jnp.exp(after.position)).round(4)  # 1 - 0.02 · 0.5, and |0.99 - 0.2 · 10|
    array([0.99, 1.01], dtype=float32)

    Reference: Patterson and Teh (2013), Stochastic gradient Riemannian Langevin dynamics on the probability simplex.
    """

    positive: ClassVar[bool] = True
    affine: ClassVar[bool] = False

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        def step(x: Any, g: Any, e: Any, z: Any) -> Any:
            omega = jnp.exp(x)
            reached = jnp.abs(omega + e / 2 * g + jnp.sqrt(e * omega) * z)
            return jnp.log(jnp.maximum(reached, jnp.finfo(x.dtype).tiny))

        return replace(motion, position=tree_map(step, motion.position, motion.gradient, eps, noise))
