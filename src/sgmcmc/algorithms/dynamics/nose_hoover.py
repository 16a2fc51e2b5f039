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
    """SGNHT as the paper has it: θ' = θ + ν;  ν' = (1-α) ν + ε ĝ(θ') + N(0, 2aε);  α' = α + (ν'·ν'/p - ε), an α for each name.

    However small the step, in many dimensions its variance is 1 - α/2 of the truth; `SymmetricNoseHoover` has the truth.

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


@dataclass(frozen=True)
class SymmetricNoseHoover(NoseHoover):
    """SGNHT, each step symmetric in time: kick, half a drift, half of the thermostat, friction, and the halves again.

    ν += ε ĝ(θ);  θ += ν/2;  α += (ν·ν/p - ε)/2;  ν = e^(-α/2) ν;  ν += N(0, 2aε);  ν = e^(-α/2) ν;  α' = α + (ν·ν/p - ε)/2;
    θ' = θ + ν/2, one α per named parameter of p numbers. One gradient per step.

    On a Gaussian of precision A in many dimensions, where α comes to rest, the variance is exact for every ε below 4/A when
    gradients are; those with a noise of variance V leave (1/A) (1 - εV tanh(α/2) / (4 - εA)).

    Args:
        a: the injected noise and the thermostats' start: a number or a tree like what moves.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import NoseHoover, SymmetricNoseHoover
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=0.2 * np.ones(1))
    >>> [inflation(dynamics(a=0.1), 0.2, one).round(3).item() for dynamics in (NoseHoover, SymmetricNoseHoover)]
    [0.932, 0.999]

    Reference: Leimkuhler and Shang (2016), Adaptive thermostats for noisy gradient systems, SIAM J. Scientific Computing 38.
    """

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        def rub(v: Any, alpha: Any, e: Any, z: Any, a: Any) -> Any:
            kept = jnp.exp(-alpha / 2)
            return kept * (kept * v + jnp.sqrt(2 * a * e) * z)

        nu = tree_map(lambda v, g, e: v + e * g, motion.auxiliary["momentum"], motion.gradient, eps)
        half = tree_map(lambda x, v: x + v / 2, motion.position, nu)
        alpha = half_heated(motion.auxiliary["thermostat"], nu, eps)
        nu = tree_map(rub, nu, alpha, eps, noise, self.a)
        carried = {"momentum": nu, "thermostat": half_heated(alpha, nu, eps)}
        return replace(motion, position=tree_map(lambda x, v: x + v / 2, half, nu), auxiliary=carried)

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        return replace(motion, gradient=gradient)


def half_heated(alpha: PyTree, nu: PyTree, eps: PyTree) -> PyTree:
    """Thermostats after half a step in which the momentum is what it is."""
    return tree_map(lambda alpha, v, e: alpha + jnp.mean(v**2 - e) / 2, alpha, nu, eps)
