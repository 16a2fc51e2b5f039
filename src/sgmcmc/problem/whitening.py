"""Whitening: a linear change of variables in front of the posterior, after which it is near N(0, I) and steps have no units."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import PyTree, flat, size, split, tree_map
from sgmcmc.problem.arrow import ArrowWhitening
from sgmcmc.problem.posterior import Posterior, Transform


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whitening:
    """position = origin + L z, where z is what moves.

    Dense: `factor` is the matrix L and z one vector. Else `factor` is a tree of scales, and z a tree, like `origin`. Origin
    and factor are traced: another centre or another L needs no compilation.
    """

    origin: PyTree
    factor: PyTree
    dense: bool = field(metadata={"static": True})

    def leave(self, z: PyTree) -> PyTree:
        """From z to the position."""
        if self.dense:
            return tree_map(jnp.add, self.origin, split(self.factor @ z, self.origin))
        return tree_map(lambda o, s, x: o + s * x, self.origin, self.factor, z)

    def leave_all(self, *several: PyTree) -> tuple[PyTree, ...]:
        """The same for several z: a matrix is read once for all of them."""
        if not self.dense:
            return tuple(map(self.leave, several))
        away = self.factor @ jnp.stack(several, axis=1)
        return tuple(tree_map(jnp.add, self.origin, split(column, self.origin)) for column in away.T)

    def enter(self, position: PyTree) -> PyTree:
        """From the position to z."""
        away = tree_map(jnp.subtract, position, self.origin)
        return jnp.linalg.solve(self.factor, flat(away)) if self.dense else tree_map(jnp.divide, away, self.factor)

    def pull_back(self, gradient: PyTree) -> PyTree:
        """A gradient with respect to the position, as one with respect to z."""
        return flat(gradient) @ self.factor if self.dense else tree_map(jnp.multiply, self.factor, gradient)

    def zero(self) -> PyTree:
        """The z of the origin."""
        return jnp.zeros(size(self.origin), self.factor.dtype) if self.dense else tree_map(jnp.zeros_like, self.origin)


AnyWhitening: TypeAlias = Whitening | ArrowWhitening
"""By a matrix, by scales, or by an arrow."""


@dataclass(frozen=True)
class WhitenedTransform:
    """From z to the user's parameters: the whitening, then the constraints."""

    whitening: AnyWhitening
    outer: Transform

    def to_params(self, position: PyTree) -> PyTree:
        return self.outer.to_params(self.whitening.leave(position))

    def to_position(self, params: PyTree) -> PyTree:
        return self.whitening.enter(self.outer.to_position(params))

    def log_det(self, position: PyTree) -> jax.Array | float:
        """That of the constraints; the whitening's own is a constant."""
        return self.outer.log_det(self.whitening.leave(position))


def unwhitened(posterior: Posterior) -> tuple[Posterior, Callable[..., tuple[PyTree, ...]], Callable[[PyTree], PyTree]]:
    """The posterior behind its whitening, if it has one, the way of positions there, and that of gradients back: those that are
    added up are added there, so that one product with a matrix does for all of them.
    """
    transform: Any = posterior.transform
    if not isinstance(transform, WhitenedTransform):
        return posterior, lambda *positions: positions, lambda gradient: gradient
    return taken_apart(posterior)[0], transform.whitening.leave_all, transform.whitening.pull_back


def whitened(posterior: Posterior, whitening: AnyWhitening) -> Posterior:
    """The same posterior as a function of z."""
    transform: Any = WhitenedTransform(whitening, posterior.transform)
    return replace(posterior, transform=transform, same=(posterior.same, object()))


def taken_apart(posterior: Posterior) -> tuple[Posterior, AnyWhitening | None]:
    """The posterior behind its whitening, and that whitening, if it has one."""
    transform: Any = posterior.transform
    if not isinstance(transform, WhitenedTransform):
        return posterior, None
    same: Any = posterior.same
    return replace(posterior, transform=transform.outer, same=same[0]), transform.whitening
