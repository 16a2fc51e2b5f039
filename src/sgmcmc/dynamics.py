"""The updates of the paper and their corrected forms, with gradient and noise as arguments.

An iteration is `refresh` (where momenta are drawn anew), then `leaps` times: `move` to the next position, a gradient
estimate there on a fresh minibatch, `settle`. Every motion carries the gradient at its own position. Noise arrives as
standard normals shaped like the position: one tree per leap, given to `move` and to `settle`, of which each dynamics
uses it in one; and one more for `refresh` where `refreshes` is true.

Dynamics see neither data nor model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import tree_map
from sgmcmc.core.types import PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Motion:
    """A position, the gradient estimate there, and whatever else the dynamics carry."""

    position: PyTree
    gradient: PyTree
    auxiliary: dict[str, PyTree]


class Dynamics:
    """What an update is. `eps` is a tree of step sizes like the position.

    As it stands: one leap, nothing drawn anew, nothing carried, and the new gradient simply taken over.
    """

    refreshes: ClassVar[bool] = False

    @property
    def leaps(self) -> int:
        """Leaps, and so gradients, per iteration."""
        return 1

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        """What is carried besides position and gradient, at the beginning."""
        return {}

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        """The start of an iteration; `before` holds the step sizes of the iteration before."""
        return motion

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        """To the next position."""
        raise NotImplementedError

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        """What remains to be done once the gradient at the next position is known, in iteration `t`."""
        return replace(motion, gradient=gradient)

    def noise_share(self, motion: Motion, eps: PyTree) -> PyTree:
        """The part of the noise to be injected that the minibatches already pay for, where an estimate of theirs is carried."""
        return tree_map(jnp.zeros_like, eps)


@dataclass(frozen=True)
class Langevin(Dynamics):
    """SGLD: θ' = θ + (ε/2) ĝ(θ) + N(0, ε)."""

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        position = tree_map(lambda x, g, e, z: x + e / 2 * g + jnp.sqrt(e) * z, motion.position, motion.gradient, eps, noise)
        return replace(motion, position=position)


@dataclass(frozen=True)
class Ascent(Dynamics):
    """Stochastic gradient ascent, θ' = θ + ε ĝ(θ): how the paper finds the centre of its control variates."""

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        position = tree_map(lambda x, g, e: x + e * g, motion.position, motion.gradient, eps)
        return replace(motion, position=position)


@dataclass(frozen=True)
class _Resampled(Dynamics):
    """Hamiltonian dynamics whose momentum is drawn anew, ν ~ N(0, ε), before every L leaps."""

    alpha: PyTree
    L: int

    refreshes: ClassVar[bool] = True

    @property
    def leaps(self) -> int:
        return self.L

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        return {"momentum": momentum(eps, noise)}

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        return replace(motion, auxiliary={"momentum": momentum(eps, noise)})


@dataclass(frozen=True)
class SymmetricHamiltonian(_Resampled):
    """SGHMC, each leap symmetric in time: half-kick, drift, half-kick, friction.

    ν += (ε/2) ĝ(θ);  θ' = θ + ν;  ν += (ε/2) ĝ(θ');  ν' = (1-α) ν + N(0, (1 - (1-α)²) ε).
    """

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        nu = tree_map(lambda v, g, e: v + e / 2 * g, motion.auxiliary["momentum"], motion.gradient, eps)
        return replace(motion, position=tree_map(jnp.add, motion.position, nu), auxiliary={"momentum": nu})

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        def kick_and_rub(v: Any, g: Any, e: Any, z: Any, alpha: Any) -> Any:
            return (1 - alpha) * (v + e / 2 * g) + jnp.sqrt((1 - (1 - alpha) ** 2) * e) * z

        nu = tree_map(kick_and_rub, motion.auxiliary["momentum"], gradient, eps, noise, self.alpha)
        return replace(motion, gradient=gradient, auxiliary={"momentum": nu})


@dataclass(frozen=True)
class PaperHamiltonian(_Resampled):
    """SGHMC as the paper writes it: θ' = θ + ν;  ν' = (1-α) ν + ε ĝ(θ') + N(0, 2αε).

    With the momentum drawn anew every L leaps its variance tends to L/(L-1) of the truth.
    """

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        return replace(motion, position=tree_map(jnp.add, motion.position, motion.auxiliary["momentum"]))

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        def kick(v: Any, g: Any, e: Any, z: Any, alpha: Any) -> Any:
            return (1 - alpha) * v + e * g + jnp.sqrt(2 * alpha * e) * z

        nu = tree_map(kick, motion.auxiliary["momentum"], gradient, eps, noise, self.alpha)
        return replace(motion, gradient=gradient, auxiliary={"momentum": nu})


class _Persistent(Dynamics):
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
        motion = replace(motion, gradient=gradient)
        return learn_variance(motion, stats, t, self.warmup) if self.warmup else motion


@dataclass(frozen=True)
class PersistentHamiltonian(_Persistent):
    """SGHMC whose momentum is never drawn anew: ν' = (1-α) ν + ε ĝ(θ) + N(0, 2(α-β̂)ε);  θ' = θ + ν'.

    β̂ = εV̄/2, where V̄ is the running mean, over the first `warmup` iterations, of the estimator's own variance;
    it is 0 where `warmup` is 0. It stays below α, so that some noise is always injected.
    """

    alpha: PyTree
    warmup: int = 0

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        def kick(v: Any, g: Any, e: Any, z: Any, alpha: Any, share: Any) -> Any:
            return (1 - alpha) * v + e * g + jnp.sqrt(2 * alpha * left(share) * e) * z

        share = self.noise_share(motion, eps)
        nu = tree_map(kick, motion.auxiliary["momentum"], motion.gradient, eps, noise, self.alpha, share)
        position = tree_map(jnp.add, motion.position, nu)
        return replace(motion, position=position, auxiliary=motion.auxiliary | {"momentum": nu})

    def noise_share(self, motion: Motion, eps: PyTree) -> PyTree:
        """β̂/α: the part of the friction that the minibatch noise already pays for."""
        if not self.warmup:
            return tree_map(jnp.zeros_like, self.alpha)
        return tree_map(lambda e, v, a: e * v / (2 * a), eps, motion.auxiliary["variance"], self.alpha)


@dataclass(frozen=True)
class BAOA(_Persistent):
    """Underdamped Langevin: kick, half a drift, friction, half a drift.

    ν += ε ĝ(θ);  θ += ν/2;  ν' = (1-α) ν + N(0, (1 - (1-α)²)(1 - κV) ε);  θ' = θ + ν'/2, where κ = ε (2-α) / (4α (1 - εA/4)).

    On a Gaussian of precision A the variance is exact for every ε below 4/A when the gradients are; a gradient noise of
    variance V adds κV of it, which the injected noise leaves out where `corrected`. V is carried by the motion: set from
    outside, or the running mean of the estimator's own variance over the first `warmup` iterations. A is `curvature`; with
    0, which is right to first order in ε, a fraction κV εA/(4 - εA) is left.
    """

    alpha: PyTree
    curvature: float = 0.0
    corrected: bool = False
    warmup: int = 0

    @property
    def carries_variance(self) -> bool:
        return self.corrected

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        kicked = tree_map(lambda v, g, e: v + e * g, motion.auxiliary["momentum"], motion.gradient, eps)
        nu = tree_map(
            lambda v, e, z, alpha, share: (1 - alpha) * v + jnp.sqrt((1 - (1 - alpha) ** 2) * left(share) * e) * z,
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


@dataclass(frozen=True)
class NoseHoover(Dynamics):
    """SGNHT: θ' = θ + ν;  ν' = (1-α) ν + ε ĝ(θ') + N(0, 2aε);  α' = α + (ν'·ν'/p - ε), one α per named parameter."""

    a: PyTree

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


def momentum(eps: PyTree, noise: PyTree | None) -> PyTree:
    """ν ~ N(0, ε)."""
    return tree_map(lambda e, z: jnp.sqrt(e) * z, eps, noise)


def rescale_momentum(motion: Motion, eps: PyTree, before: PyTree) -> Motion:
    """ν has variance ε: where a schedule changes ε, a momentum that is kept changes with it."""
    nu = tree_map(lambda v, e, b: v * jnp.sqrt(e / b), motion.auxiliary["momentum"], eps, before)
    return replace(motion, auxiliary=motion.auxiliary | {"momentum": nu})


def left(share: Any) -> Any:
    """What is left to be injected where the minibatch noise pays for a share: never less than nothing."""
    return jnp.maximum(1 - share, 0)


def learn_variance(motion: Motion, stats: dict[str, Any], t: Any, warmup: int) -> Motion:
    """The motion with the estimator's variance averaged in, in the first `warmup` iterations; then it is fixed."""
    share = jnp.where(t <= warmup, 1 / t, 0.0)
    mean = tree_map(lambda m, v: m + share.astype(m.dtype) * (v - m), motion.auxiliary["variance"], stats["variance"])
    return replace(motion, auxiliary=motion.auxiliary | {"variance": mean})
