"""SGNHT: thermostats that take up the gradient noise."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from sgmcmc.algorithms.dynamics.momentum import momentum, rescale_momentum
from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.problem.schedules import per_parameter


@dataclass(frozen=True)
class NoseHoover(Dynamics):
    """SGNHT: θ' = θ + ν;  ν' = (1-α) ν + ε ĝ(θ') + N(0, 2aε);  α' = α + (ν'·ν'/p - ε), one α per named parameter.

    Args:
        a: the injected noise and the thermostats' start: a number or a tree like what moves.

    What minibatches add, the thermostats take away: here gradients have a variance of half the precision.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import NoseHoover
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=0.5 * np.ones(1))
    >>> inflation(NoseHoover(a=0.01), 0.01, one).round(2)  # in many dimensions
    array([0.99])
    """

    a: PyTree = 0.01
    thermostat: ClassVar[str | None] = "thermostat"
    traced: ClassVar[tuple[str, ...]] = ("a",)

    def fitted(self, position: PyTree) -> Self:
        return replace(self, a=per_parameter(self.a, position, "a"))

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        return {"momentum": momentum(eps, noise), "thermostat": tree_map(jnp.mean, self.a)}

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        return rescale_momentum(motion, eps, before)

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        return replace(motion, position=tree_map(jnp.add, motion.position, motion.auxiliary["momentum"]))

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        def kick(v: Any, alpha: Any, g: Any, e: Any, z: Any, a: Any) -> Any:
            return (1 - alpha) * v + e * g + jnp.sqrt(2 * a * e) * z

        alpha = motion.auxiliary["thermostat"]
        nu = tree_map(kick, motion.auxiliary["momentum"], alpha, gradient, eps, noise, self.a)
        alpha = tree_map(lambda alpha, v, e: alpha + jnp.mean(v**2 - e), alpha, nu, eps)
        return replace(motion, gradient=gradient, auxiliary={"momentum": nu, "thermostat": alpha})
