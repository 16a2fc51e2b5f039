"""SGHMC: as the paper has it, symmetric in time, and with a momentum that is never drawn anew."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from sgmcmc.algorithms.dynamics.momentum import HalfKicks, Persistent, left, momentum
from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import PyTree, tree_map
from sgmcmc.problem.schedules import per_parameter


@dataclass(frozen=True)
class Resampled(Dynamics):
    """Hamiltonian dynamics whose momentum is drawn anew, ν ~ N(0, ε), before every L leaps."""

    alpha: PyTree = 0.01
    L: int = 5

    refreshes: ClassVar[bool] = True
    traced: ClassVar[tuple[str, ...]] = ("alpha",)

    @property
    def leaps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]: as L says
        return self.L

    def fitted(self, position: PyTree) -> Self:
        return replace(self, alpha=per_parameter(self.alpha, position, "alpha", below=1.0), L=check_count("L", self.L))

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        return {"momentum": momentum(eps, noise)}

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        return replace(motion, auxiliary=motion.auxiliary | {"momentum": momentum(eps, noise)})


@dataclass(frozen=True)
class SymmetricHamiltonian(HalfKicks, Resampled):
    """SGHMC, each leap symmetric in time: half-kick, drift, half-kick, friction.

    ν += (ε/2) ĝ(θ);  θ' = θ + ν;  ν += (ε/2) ĝ(θ');  ν' = (1-α) ν + N(0, (1 - (1-α)²) ε). The momentum is drawn anew,
    ν ~ N(0, ε), before every L leaps.

    Args:
        alpha: friction per leap, between 0 and 1: a number or a tree like what moves.
        L: leaps, and so gradients, per iteration.

    On a Gaussian of precision A, with exact gradients, its variance is 1/(1 - εA/4) of the truth:

    >>> import numpy as np
    >>> from sgmcmc.algorithms import SymmetricHamiltonian
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=np.zeros(1))
    >>> inflation(SymmetricHamiltonian(alpha=0.1, L=3), 0.4, one).round(4)
    array([1.1111])
    """


@dataclass(frozen=True)
class PaperHamiltonian(Resampled):
    """SGHMC as the paper writes it: θ' = θ + ν;  ν' = (1-α) ν + ε ĝ(θ') + N(0, 2αε).

    With the momentum drawn anew every L leaps its variance tends to L/(L-1) of the truth as ε and α go to 0.

    Args:
        alpha: friction per leap, between 0 and 1: a number or a tree like what moves.
        L: leaps, and so gradients, per iteration; at least 2.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import PaperHamiltonian
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=np.zeros(1))
    >>> inflation(PaperHamiltonian(alpha=1e-4, L=5), 1e-8, one).round(3)
    array([1.25])
    """

    def fitted(self, position: PyTree) -> Self:
        if self.L == 1:
            raise InputError("scheme='paper' with L=1 never uses the gradient; expected L of at least 2, or scheme='symmetric'")
        return super().fitted(position)

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        return replace(motion, position=tree_map(jnp.add, motion.position, motion.auxiliary["momentum"]))

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        def kick(v: Any, g: Any, e: Any, z: Any, alpha: Any) -> Any:
            return (1 - alpha) * v + e * g + jnp.sqrt(2 * alpha * e) * z

        nu = tree_map(kick, motion.auxiliary["momentum"], gradient, eps, noise, self.alpha)
        return replace(motion, gradient=gradient, auxiliary={"momentum": nu})


@dataclass(frozen=True)
class PersistentHamiltonian(Persistent):
    """SGHMC whose momentum is never drawn anew: ν' = (1-α) ν + ε ĝ(θ) + N(0, 2(α-β̂)ε);  θ' = θ + ν'.

    β̂ = εV̄/2, where V̄ is the running mean, over the first `warmup` iterations, of the estimator's own variance;
    it is 0 where `warmup` is 0. It stays below α, so that some noise is always injected.

    Args:
        alpha: friction per step, between 0 and 1: a number or a tree like what moves.
        warmup: iterations in which the gradient noise is learnt; 0 learns nothing.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import PersistentHamiltonian
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=np.zeros(1))
    >>> inflation(PersistentHamiltonian(alpha=0.1), 0.2, one).round(3)
    array([1.056])
    """

    alpha: PyTree = 0.01
    warmup: int = 0
    traced: ClassVar[tuple[str, ...]] = ("alpha",)

    def fitted(self, position: PyTree) -> Self:
        warmup = check_count("warmup", self.warmup, least=0)
        return replace(self, alpha=per_parameter(self.alpha, position, "alpha", below=1.0), warmup=warmup)

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        def kick(v: Any, g: Any, e: Any, z: Any, alpha: Any, share: Any) -> Any:
            return (1 - alpha) * v + e * g + jnp.sqrt(left(share) * (2 * alpha * e)) * z

        share = self.noise_share(motion, eps)
        nu = tree_map(kick, motion.auxiliary["momentum"], motion.gradient, eps, noise, self.alpha, share)
        position = tree_map(jnp.add, motion.position, nu)
        return replace(motion, position=position, auxiliary=motion.auxiliary | {"momentum": nu})

    def noise_share(self, motion: Motion, eps: PyTree) -> PyTree:
        """β̂/α: the part of the friction that the minibatch noise already pays for."""
        if not self.warmup:
            return tree_map(jnp.zeros_like, self.alpha)
        return tree_map(lambda e, v, a: v * (e * (1 / (2 * a))), eps, motion.auxiliary["variance"], self.alpha)
