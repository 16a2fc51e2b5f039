"""Underdamped Langevin dynamics without discretisation error on a Gaussian."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.momentum import Persistent, left, renewed
from sgmcmc.algorithms.kernel import Motion
from sgmcmc.core.checks import check_count
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.problem.schedules import per_parameter


@dataclass(frozen=True)
class BAOA(Persistent):
    """Underdamped Langevin: kick, half a drift, friction, half a drift.

    ν += ε ĝ(θ);  θ += ν/2;  ν' = (1-α) ν + N(0, (1 - (1-α)²)(1 - κV) ε);  θ' = θ + ν'/2, where κ = ε (2-α) / (4α (1 - εA/4)).

    On a Gaussian of precision A the variance is exact for every ε below 4/A when the gradients are; a gradient noise of
    variance V adds κV of it, which the injected noise leaves out where `corrected`. V is carried by the motion: set from
    outside, or the running mean of the estimator's own variance over the first `warmup` iterations. A is `curvature`; with
    0, which is right to first order in ε, a fraction κV εA/(4 - εA) is left.

    Args:
        alpha: friction per step, at most 1: a number or a tree like what moves.
        curvature: A in κ; known where the posterior was whitened.
        corrected: whether the injected noise leaves out what a carried estimate of the gradient noise pays for.
        warmup: iterations in which that estimate is learnt; 0 leaves it as it was set.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import BAOA
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=np.zeros(1))
    >>> [inflation(BAOA(alpha=0.5), eps, one).round(6).item() for eps in (0.01, 1.0, 3.0)]
    [1.0, 1.0, 1.0]
    """

    alpha: PyTree = 0.5
    curvature: float = 0.0
    corrected: bool = False
    warmup: int = 0
    traced: ClassVar[tuple[str, ...]] = ("alpha",)

    def fitted(self, position: PyTree) -> Self:
        alpha = per_parameter(self.alpha, position, "alpha", below=np.nextafter(1.0, 2.0))
        return replace(self, alpha=alpha, warmup=check_count("warmup", self.warmup, least=0))

    def on_unit_ball(self) -> Self:
        return replace(self, curvature=1.0)

    @property
    def carries_variance(self) -> bool:
        return self.corrected or self.warmup > 0

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        kicked = tree_map(lambda v, g, e: v + e * g, motion.auxiliary["momentum"], motion.gradient, eps)
        nu = tree_map(
            lambda v, e, z, alpha, share: (1 - alpha) * v + jnp.sqrt(left(share) * (renewed(alpha) * e)) * z,
            kicked, eps, noise, self.alpha, self.noise_share(motion, eps),
        )  # fmt: skip
        position = tree_map(lambda x, v, w: x + (v + w) / 2, motion.position, kicked, nu)
        return replace(motion, position=position, auxiliary=motion.auxiliary | {"momentum": nu})

    def noise_share(self, motion: Motion, eps: PyTree) -> PyTree:
        """κV: the part of the variance that the minibatch noise already pays for."""
        if not self.corrected:
            return tree_map(jnp.zeros_like, self.alpha)
        variance = motion.auxiliary["variance"]
        return tree_map(lambda e, alpha, v: noise_amplification(e, alpha, self.curvature) * v, eps, self.alpha, variance)


def noise_amplification(eps: Any, alpha: Any, curvature: Any) -> Any:
    """κ of `BAOA`: how much of its variance a gradient noise of variance 1 adds."""
    return eps * (2 - alpha) / (4 * alpha * (1 - eps * curvature / 4))
