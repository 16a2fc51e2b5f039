"""Langevin dynamics whose steps follow the shape of the posterior: by a metric that is known, or by one that is learnt."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, flat, size, split, tree_map


@dataclass(frozen=True)
class PreconditionedLangevin(Dynamics):
    """θ' = θ + (ε/2) (G(θ) ĝ(θ) + Γ(θ)) + N(0, ε G(θ)), where G is a diagonal and Γ_i = ∂G_i/∂θ_i.

    Without Γ, as it is often written, it does not target the posterior π but π/G, however small the step: `gamma=False` is that.

    Args:
        metric: G, written with jax.numpy: a function from what moves to a tree like it of positive numbers, variances of the
            posterior there, such as `lambda params: {"theta": jnp.exp(params["log_s"]), ...}`.
        gamma: whether the term Γ is there. It is worked out by differentiation: one derivative of the metric for each number.

    >>> import numpy as np, jax.numpy as jnp
    >>> from sgmcmc.algorithms import Motion, PreconditionedLangevin
    >>> dynamics = PreconditionedLangevin(metric=lambda theta: theta**2)
    >>> still = Motion(position=jnp.array([1.0, 3.0]), gradient=jnp.zeros(2), auxiliary={})
    >>> dynamics.move(still, eps=jnp.full(2, 0.1), noise=jnp.zeros(2)).position  # Γ = 2 θ
    Array([1.1, 3.3], dtype=float32)

    Reference: Girolami and Calderhead (2011), JRSS B 73; Ma, Chen and Fox (2015), A complete recipe for stochastic gradient MCMC.
    """

    metric: Callable[[PyTree], PyTree]
    gamma: bool = True
    affine: ClassVar[bool] = False

    def fitted(self, position: PyTree) -> Self:
        made = jax.eval_shape(self.metric, position)
        alike = jax.tree.structure(made) == jax.tree.structure(position)
        if not alike or tree_map(jnp.shape, made) != tree_map(jnp.shape, position):
            raise InputError(f"metric returned {describe(made)}; expected a tree of positive numbers like what moves")
        return self

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        scale = self.metric(motion.position)
        turn = self._derivatives(motion.position) if self.gamma else tree_map(jnp.zeros_like, motion.position)

        def step(x: Any, g: Any, e: Any, z: Any, s: Any, c: Any) -> Any:
            return x + e / 2 * (s * g + c) + jnp.sqrt(e * s) * z

        return replace(motion, position=tree_map(step, motion.position, motion.gradient, eps, noise, scale, turn))

    def _derivatives(self, position: PyTree) -> PyTree:
        def along(one: Any) -> Any:
            return jnp.vdot(one, flat(jax.jvp(self.metric, (position,), (split(one, position),))[1]))

        return split(jax.vmap(along)(jnp.eye(size(position), dtype=flat(position).dtype)), position)


@dataclass(frozen=True)
class RMSLangevin(Dynamics):
    """θ' = θ + (ε/2) G ĝ(θ) + N(0, ε G), where G = 1/(λ + √v) and v is a running mean of ĝ², number by number.

    After the first `freeze` iterations v stays what it was: then it is `Langevin` with step sizes εG, of the same law. Never
    frozen, as published, it leaves out how G depends on θ and is biased however small the step: without memory it targets π/G.

    Args:
        freeze: iterations in which v is learnt, to be left out as `burn_in`; None learns for ever.
        decay: what v keeps from step to step once it has seen more than 1/(1 - decay) gradients.
        floor: λ, added to √v.

    >>> import jax.numpy as jnp
    >>> from sgmcmc.algorithms import Motion, RMSLangevin
    >>> dynamics, begun = RMSLangevin(floor=0.0), Motion(jnp.array([1.0, 1.0]), jnp.array([-2.0, -200.0]), {})
    >>> begun = Motion(begun.position, begun.gradient, dynamics.start(begun.position, None, None))
    >>> dynamics.move(begun, eps=jnp.full(2, 0.1), noise=jnp.zeros(2)).position  # steps of the same length
    Array([0.95, 0.95], dtype=float32)

    Reference: Li, Chen, Carlson and Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep neural networks.
    """

    freeze: int | None = 1000
    decay: float = 0.99
    floor: float = 1e-5
    affine: ClassVar[bool] = False

    def fitted(self, position: PyTree) -> Self:
        if not (0 <= self.decay < 1 and self.floor >= 0):
            raise InputError(f"decay is {self.decay} and floor {self.floor}; expected decay in [0, 1) and floor of at least 0")
        return self if self.freeze is None else replace(self, freeze=check_count("freeze", self.freeze))

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        return {"squares": tree_map(jnp.zeros_like, position), "seen": jnp.int32(0)}

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        seen = motion.auxiliary["seen"]
        share = jnp.maximum(1 / (seen + 1), 1 - self.decay)
        share = share if self.freeze is None else jnp.where(seen < self.freeze, share, 0.0)
        old = motion.auxiliary["squares"]
        squares = tree_map(lambda v, g: v + share.astype(g.dtype) * (g**2 - v), old, motion.gradient)

        def step(x: Any, g: Any, e: Any, z: Any, v: Any) -> Any:
            scale = 1 / (self.floor + jnp.sqrt(v))
            return x + e / 2 * scale * g + jnp.sqrt(e * scale) * z

        position = tree_map(step, motion.position, motion.gradient, eps, noise, squares)
        return replace(motion, position=position, auxiliary={"squares": squares, "seen": seen + 1})
