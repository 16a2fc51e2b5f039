"""The problem: a log likelihood over rows, a log prior, and where the parameters may live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import leaf_names, tree_map
from sgmcmc.core.types import Batch, LogLik, LogPrior, PyTree, Rows


@dataclass(frozen=True)
class Transform:
    """The bijection between the user's constrained parameters and the position that moves.

    One entry per leaf: a NumPyro transform, or None where the parameter is free.
    """

    bijections: tuple[Any, ...]

    @property
    def trivial(self) -> bool:
        return all(bijection is None for bijection in self.bijections)

    def to_params(self, position: PyTree) -> PyTree:
        return self._apply(lambda bijection, x: bijection(x), position)

    def to_position(self, params: PyTree) -> PyTree:
        return self._apply(lambda bijection, x: bijection.inv(x), params)

    def log_det(self, position: PyTree) -> jax.Array | float:
        """Log volume change of `to_params`, the term that makes the position's density that of the parameters."""
        leaves = jax.tree.leaves(position)
        terms = [
            jnp.sum(bijection.log_abs_det_jacobian(x, bijection(x)))
            for bijection, x in zip(self.bijections, leaves, strict=True)
            if bijection is not None
        ]
        return sum(terms, start=0.0)

    def _apply(self, function: Any, tree: PyTree) -> PyTree:
        if self.trivial:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        moved = [x if bijection is None else function(bijection, x) for bijection, x in zip(self.bijections, leaves, strict=True)]
        return jax.tree.unflatten(structure, moved)


def make_transform(constraints: Mapping[str, Any] | None, params: PyTree) -> Transform:
    """Look up the bijection of every constrained parameter; refuse unknown names and values outside their support."""
    names = leaf_names(params)
    if constraints is None:
        return Transform((None,) * len(names))
    if not isinstance(constraints, Mapping):
        raise InputError(f"constraints is {describe(constraints)}; expected a dict by parameter name, such as {{'s': positive}}")
    from numpyro.distributions import biject_to  # imported here: a second of import time that most models do not need

    flat = _flatten(constraints)
    unknown = sorted(set(flat) - set(names))
    if unknown:
        raise InputError(f"constraints names an unknown parameter {unknown[0]!r}; params has {', '.join(names)}")
    bijections = []
    for name, value in zip(names, jax.tree.leaves(params), strict=True):
        constraint = flat.get(name)
        if constraint is None:
            bijections.append(None)
            continue
        try:
            inside = bool(jnp.all(constraint(value)))
            bijection = biject_to(constraint)
        except (NotImplementedError, TypeError, AttributeError) as error:
            raise InputError(
                f"constraints[{name!r}] is {describe(constraint)}; expected a constraint with a bijection, "
                "such as sgmcmc.distributions.constraints.positive"
            ) from error
        if not inside:
            raise InputError(
                f"params[{name!r}] starts at {describe(value.tolist())}, outside its constraint {constraint}; start it inside"
            )
        bijections.append(bijection)
    return Transform(tuple(bijections))


def _flatten(constraints: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in constraints.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{front}{name}."))
        else:
            flat[f"{front}{name}"] = value
    return flat


@dataclass(frozen=True, eq=False)
class Posterior:
    """The log posterior as a function of the position, on any minibatch.

    Attributes:
        log_lik: the user's log likelihood.
        log_prior: the user's log prior; None is a flat one.
        n_rows: how many rows the whole dataset has.
        transform: from position to parameters.
        per_row: whether `log_lik` returns one value per row instead of their sum.
    """

    log_lik: LogLik
    log_prior: LogPrior | None
    n_rows: int
    transform: Transform
    per_row: bool

    def log_likelihood(self, position: PyTree, batch: Batch) -> jax.Array:
        """The weighted sum over the batch: an unbiased estimate of the full log likelihood."""
        if batch.weight.ndim == 0:
            return batch.weight * self.sum_of_rows(position, batch.rows)
        return jnp.dot(batch.weight, self.each_row(position, batch.rows))

    def log_density_prior(self, position: PyTree) -> jax.Array:
        """The log prior of the position: that of the parameters and the volume change."""
        params = self.transform.to_params(position)
        prior = 0.0 if self.log_prior is None else self.log_prior(params)
        return jnp.asarray(prior + self.transform.log_det(position))

    def log_posterior(self, position: PyTree, batch: Batch) -> jax.Array:
        """The estimate from one minibatch of the log posterior, up to its constant."""
        return self.log_likelihood(position, batch) + self.log_density_prior(position)

    def sum_of_rows(self, position: PyTree, rows: Rows) -> jax.Array:
        """The log likelihood of some rows, unweighted."""
        value = self.log_lik(self.transform.to_params(position), rows)
        return jnp.sum(value) if self.per_row else jnp.asarray(value)

    def each_row(self, position: PyTree, rows: Rows) -> jax.Array:
        """The log likelihood of every row: from `log_lik` itself, or row by row where it returns sums."""
        if self.per_row:
            return self.log_lik(self.transform.to_params(position), rows)
        return jax.vmap(lambda row: self.sum_of_rows(position, one_row(row)))(rows)

    def row_gradients(self, position: PyTree, rows: Rows) -> PyTree:
        """The gradient of every row's log likelihood, rows on the first axis."""
        gradient = jax.grad(self.sum_of_rows)
        return jax.vmap(lambda row: gradient(position, one_row(row)))(rows)


def one_row(row: Rows) -> Rows:
    """A batch of one."""
    return tree_map(lambda x: x[None], row)
