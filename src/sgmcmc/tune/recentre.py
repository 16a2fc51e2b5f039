"""Effects that are better moved as products with their scales: which they are, and whether there are rows enough for it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import PyTree, leaf_names
from sgmcmc.problem.arrow import Arrow, Layout
from sgmcmc.problem.passes import compiled
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.recentring import Product, Recentred
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table
from sgmcmc.run.request import Problem
from sgmcmc.tune.structure import JITTER, LOOKED_AT, groups_of
from sgmcmc.tune.survey import Survey

ALIKE = 1e-4
"""Of a row's log likelihood: what rounding may change of it."""


@dataclass(frozen=True)
class Invariance:
    """Some rows near a position, for asking what their log likelihoods do not change with."""

    posterior: Posterior
    rows: Any
    leaves: list[Any]
    nudged: list[np.ndarray]
    structure: Any

    @classmethod
    def near(cls, posterior: Posterior, table: Table, position: PyTree, seed: int) -> "Invariance":
        rng, leaves = np.random.default_rng(seed), jax.tree.leaves(position)
        rows = gather_all(table, np.sort(rng.choice(table.n_rows, min(LOOKED_AT, table.n_rows), replace=False)))
        nudged = [np.asarray(x) + JITTER * rng.standard_normal(np.shape(x)) for x in leaves]
        return cls(posterior, rows, leaves, nudged, jax.tree.structure(position))

    def same(self, changed: dict[int, np.ndarray]) -> bool:
        """Whether no row's log likelihood changes with some leaves."""
        return bool(np.allclose(self._at(changed), self._at({}), rtol=ALIKE, atol=ALIKE))

    def _at(self, changed: dict[int, np.ndarray]) -> np.ndarray:
        every = [jnp.asarray(changed.get(i, x), self.leaves[i].dtype) for i, x in enumerate(self.nudged)]
        of_rows = compiled(_of_rows, self.posterior)
        return np.asarray(of_rows(jax.tree.unflatten(self.structure, every), self.rows), np.float64)

    def is_product(self, scale: int, effects: int, axis: int) -> bool:
        """Whether a scale that is made smaller and effects that are made larger by as much are all the same to rows; a scale that
        is no number belongs to effects of its own shape, or to each line along an axis of theirs.
        """
        of_scale, of_effects = self.nudged[scale], self.nudged[effects]
        factor = np.exp(0.5 * (1 + np.arange(of_scale.size).reshape(of_scale.shape) / max(4, of_scale.size)))
        bijection = self.posterior.transform.bijections[scale]
        if bijection is None:
            smaller = of_scale - np.log(factor)
        else:
            value = np.asarray(bijection(jnp.asarray(of_scale, float)), np.float64)
            if not (value > 0).all():
                return False
            smaller = np.asarray(bijection.inv(jnp.asarray(value / factor, float)), np.float64)
        fits = factor.ndim == 0 or factor.shape == of_effects.shape
        return self.same({scale: smaller, effects: of_effects * (factor if fits else np.expand_dims(factor, axis))})


def products_of(posterior: Posterior, table: Table, position: PyTree, layout: Layout, seed: int) -> tuple[Product, ...]:
    """Scales and effects of groups whose product is all that rows know of them: scale one up and the other down, and no
    row's log likelihood changes.
    """
    rows, bijections = Invariance.near(posterior, table, position, seed), posterior.transform.bijections
    found: list[Product] = []
    for effects, axis in enumerate(layout.axes):
        if axis is None or bijections[effects] is not None or rows.same({effects: 1.5 * rows.nudged[effects]}):
            continue
        shape, taken = layout.shapes[effects], {one.scale for one in found}
        fitting = ((), shape[:axis] + shape[axis + 1 :])
        scales = [i for i, own in enumerate(layout.axes) if own is None and i not in taken and layout.shapes[i] in fitting]
        found += [Product(i, effects, axis, bijections[i] is None) for i in scales if rows.is_product(i, effects, axis)][:1]
    return tuple(found)


def trading_off(problem: Problem, seed: int) -> list[tuple[str, str]]:
    """Names of scales and effects, of groups or not, of which rows know the product only."""
    posterior, position = problem.posterior, problem.position
    rows, names = Invariance.near(posterior, problem.table, position, seed), leaf_names(position)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(position)]
    free = [bijection is None for bijection in posterior.transform.bijections]
    known = [not rows.same({i: 1.5 * x}) for i, x in enumerate(rows.nudged)]
    pairs = [
        (scale, effects)
        for effects in range(len(names))
        for scale in range(len(names))
        if free[effects] and not free[scale] and known[effects] and known[scale] and shapes[scale] in ((), shapes[effects])
    ]
    return [(names[scale], names[effects]) for scale, effects in pairs if rows.is_product(scale, effects, 0)]


def recentred(problem: Problem, seed: int) -> tuple[Problem, str] | None:
    """The same problem with products in the place of effects, and a sentence on it; None where there are no such effects."""
    posterior, table, position = problem.posterior, problem.table, problem.position
    layout = groups_of(posterior, table, position, seed)
    products = () if layout is None else products_of(posterior, table, position, layout, seed)
    if not products:
        return None
    transform: Any = Recentred(posterior.transform, products)
    params, names = posterior.transform.to_params(position), leaf_names(position)
    said = ", ".join(f"{names[one.scale]} and {names[one.effects]}" for one in products)
    sentence = f"The rows tell the products of {said}, hardly either: the chains move the products instead."
    moved = replace(problem, posterior=posterior.behind(transform), position=transform.to_position(params))
    return moved, sentence


def told_by_rows(problem: Problem, survey: Survey) -> bool:
    """Whether rows tell the products better than the prior does: half of them at least, of every kind."""
    transform: Any = problem.posterior.transform
    if survey.layout is None or not isinstance(survey.likelihood, Arrow):
        return False
    position, told = survey.centre.position, jnp.asarray(survey.likelihood.diagonal, float)
    information, leaves = jax.tree.leaves(survey.layout.of_vector(told, position)), jax.tree.leaves(position)
    strength = (information[one.effects] * transform.scale(leaves, one) ** 2 for one in transform.products)
    return all(float(np.median(each)) > 1 for each in strength)


def _of_rows(posterior: Posterior, position: PyTree, rows: Any) -> jax.Array:
    return posterior.each_row(position, rows)
