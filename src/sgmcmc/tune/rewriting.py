"""The other way to write a hierarchy, where chains do not come to terms with scales and their effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import PyTree, leaf_names, size, tree_map
from sgmcmc.problem.centring import PartlyCentred
from sgmcmc.problem.model import LocScale
from sgmcmc.problem.passes import compiled
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.recentring import Product, Recentred
from sgmcmc.results.result import Result
from sgmcmc.rows.gathering import gather_all
from sgmcmc.run.request import Problem
from sgmcmc.tune.recentre import trading_off

MOST_WORK = 20_000_000
"""Rows times numbers whose gradients say what rows know of effects."""

CENTRED = 0.95
"""A hierarchy that rows centre so far gains nothing."""

TROUBLE = {"divergences", "apart", "short", "narrow", "excursions", "rounds"}
"""What a funnel or a ridge shows as."""


def troubled(result: Result) -> bool:
    """Whether the chains of a whole run did not come to terms with something. Health is asked where it may be of help."""
    if not {"unsettled", "fallback"}.isdisjoint(result.decisions):
        return True
    return result.model is not None and result.model.loc_scale is not None and not TROUBLE.isdisjoint(result.health().kinds)


def better(one: Result, other: Result) -> bool:
    """Whether the health of one result is better than that of another."""
    return (troubled(one), len(one.health().findings)) < (troubled(other), len(other.health().findings))


def rewritten(problem: Problem, result: Result, seed: int) -> tuple[Problem, tuple[str, ...], str] | None:
    """The problem in the other variables, the names of the effects, and a sentence on it; None without such effects."""
    if isinstance(problem.posterior.transform, Recentred | PartlyCentred):
        return None
    if problem.model.loc_scale is not None:
        return _relative(problem, problem.model.loc_scale, result, seed)
    return None if "recentred" in result.decisions else _as_products(problem, seed)


def _relative(problem: Problem, loc_scale: LocScale, result: Result, seed: int) -> tuple[Problem, tuple[str, ...], str] | None:
    """Effects relative to their locations and scales, as far as rows do not tell them."""
    posterior, axes = problem.posterior, tuple(range(1 + result.chained))
    params = tree_map(lambda draws: jnp.asarray(draws.mean(axis=axes, dtype=np.float64), draws.dtype), result.draws)
    free = [name for name, bijection in zip(leaf_names(params), posterior.transform.bijections, strict=True) if bijection is None]
    order: list[str] = []  # as the function has it: compiled, it would come back sorted

    def scales(params: PyTree) -> Mapping[str, Any]:
        beside = {name: scale for name, (_, scale) in loc_scale(params).items() if name in free}
        order[:] = beside
        return beside

    known, scale = _known_by_rows(problem, posterior.transform.to_position(params), seed), jax.jit(scales)(params)
    told = {name: centredness(known[name], np.asarray(scale[name], np.float64)) for name in order}
    if min((float(np.min(c)) for c in told.values()), default=1.0) > CENTRED:
        return None
    transform: Any = PartlyCentred(posterior.transform, loc_scale, tuple((name, told[name]) for name in order))
    moved = replace(problem, posterior=posterior.behind(transform), position=jax.jit(transform.to_position)(params))
    said = ", ".join(f"{name} (centred by {_range(told[name])})" for name in order)
    return (
        moved,
        tuple(order),
        f"Chains did not come to terms with scales of effects, which now move relative to these: {said}.",
    )


def centredness(known: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """How far rows centre effects of a scale that the prior gives them, from 0 to 1: their part of what is known of each."""
    told = known * scale**2
    return told / (1 + told)


def _known_by_rows(problem: Problem, position: PyTree, seed: int) -> dict[str, np.ndarray]:
    """Fisher's information of all rows on each number, by leaf; where they are many, that of some, the same for all of a leaf."""
    table, posterior = problem.table, problem.posterior
    count = int(min(table.n_rows, max(MOST_WORK // size(position), 16)))
    chosen = np.sort(np.random.default_rng(seed).choice(table.n_rows, count, replace=False))
    found = compiled(_squares, posterior)(position, gather_all(table, chosen))
    known = (np.asarray(leaf, np.float64) * table.n_rows / count for leaf in jax.tree.leaves(found))
    every = known if count == table.n_rows else (np.full(leaf.shape, leaf.mean()) for leaf in known)
    return dict(zip(leaf_names(position), every, strict=True))


def _squares(posterior: Posterior, position: PyTree, rows: Any) -> PyTree:
    return tree_map(lambda gradients: (gradients**2).sum(axis=0), posterior.row_gradients(position, rows))


def _range(values: np.ndarray) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.2f}" if high - low < 0.01 else f"{low:.2f} to {high:.2f}"


def _as_products(problem: Problem, seed: int) -> tuple[Problem, tuple[str, ...], str] | None:
    """Effects of which rows know the product with a scale only, as these products."""
    names, leaves = leaf_names(problem.position), jax.tree.leaves(problem.position)
    pairs = {effects: scale for scale, effects in trading_off(problem, seed) if np.ndim(leaves[names.index(scale)]) == 0}
    if not pairs:
        return None
    outer = problem.posterior.transform
    products = tuple(Product(names.index(scale), names.index(effects), 0, False) for effects, scale in pairs.items())
    transform: Any = Recentred(outer, products)
    position = transform.to_position(outer.to_params(problem.position))
    moved = replace(problem, posterior=problem.posterior.behind(transform), position=position)
    said = ", ".join(f"{scale} and {effects}" for effects, scale in pairs.items())
    return moved, tuple(pairs), f"Chains did not come to terms with {said}, of which rows tell the products: these move instead."
