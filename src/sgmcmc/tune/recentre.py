"""Effects that are better moved as products with their scales: which they are, and whether there are rows enough for it."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import PyTree, leaf_names
from sgmcmc.problem.arrow import Arrow, Layout
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.recentring import Product, Recentred
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import compiled
from sgmcmc.run.request import Problem
from sgmcmc.tune.structure import JITTER, LOOKED_AT, groups_of
from sgmcmc.tune.survey import Survey

ALIKE = 1e-4
"""Of a row's log likelihood: what rounding may change of it."""


def products_of(posterior: Posterior, table: Table, position: PyTree, layout: Layout, seed: int) -> tuple[Product, ...]:
    """Scales and effects of groups whose product is all that rows know of them: scale one up and the other down, and no
    row's log likelihood changes.
    """
    rng, leaves = np.random.default_rng(seed), jax.tree.leaves(position)
    rows = gather_all(table, np.sort(rng.choice(table.n_rows, min(LOOKED_AT, table.n_rows), replace=False)))
    nudged = [np.asarray(x) + JITTER * rng.standard_normal(np.shape(x)) for x in leaves]
    of_rows, structure = compiled(_of_rows, posterior), jax.tree.structure(position)

    def at(changed: dict[int, np.ndarray]) -> np.ndarray:
        every = [jnp.asarray(changed.get(i, x), leaves[i].dtype) for i, x in enumerate(nudged)]
        return np.asarray(of_rows(jax.tree.unflatten(structure, every), rows), np.float64)

    def same(changed: dict[int, np.ndarray]) -> bool:
        return bool(np.allclose(at(changed), at({}), rtol=ALIKE, atol=ALIKE))

    def is_product(scale: int, effects: int, axis: int) -> bool:
        factor = np.exp(0.5 * (1 + np.arange(np.size(nudged[scale])).reshape(np.shape(nudged[scale])) / 4))
        bijection = posterior.transform.bijections[scale]
        if bijection is None:
            smaller = nudged[scale] - np.log(factor)
        else:
            value = np.asarray(bijection(jnp.asarray(nudged[scale], float)), np.float64)
            if not (value > 0).all():
                return False
            smaller = np.asarray(bijection.inv(jnp.asarray(value / factor, float)), np.float64)
        larger = nudged[effects] * (factor if factor.ndim == 0 else np.expand_dims(factor, axis))
        return same({scale: smaller, effects: larger})

    found: list[Product] = []
    for effects, axis in enumerate(layout.axes):
        if axis is None or posterior.transform.bijections[effects] is not None or same({effects: 1.5 * nudged[effects]}):
            continue
        shape, taken = layout.shapes[effects], {one.scale for one in found}
        fitting = ((), shape[:axis] + shape[axis + 1 :])
        scales = [i for i, own in enumerate(layout.axes) if own is None and i not in taken and layout.shapes[i] in fitting]
        found += [
            Product(i, effects, axis, posterior.transform.bijections[i] is None) for i in scales if is_product(i, effects, axis)
        ][:1]
    return tuple(found)


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
