"""Hierarchies for the references, in float64: rows summed to cells, effects centred, scales moved as logarithms.

The joint density of a centred hierarchy has no mode: it rises without bound as a scale goes to 0. The bowl that gives the
references their scales is the density times the width of every effect given its scale, about the density of the scale alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.everyday.cases import Draws, Target
from benchmarks.everyday.targets import exponential_of, softplus

Rows = Mapping[str, Any]


def parts(theta: Any, *sizes: int) -> list[Any]:
    """One number, where the size is 1, or a piece of the array for each size."""
    ends = np.cumsum(sizes)
    return [theta[end - 1] if size == 1 else theta[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def normal(value: Any, scale: float) -> Any:
    return -jnp.sum((value / scale) ** 2) / 2


def half_normal(log_scale: Any, width: float = 1.0) -> Any:
    """Of a scale whose logarithm moves."""
    return log_scale - jnp.exp(2 * log_scale) / (2 * width**2)


def effects(u: Any, mean: Any, log_tau: Any, information: Any = None) -> Any:
    """u ~ N(mean, tau); with the information that the rows have on every effect, times its width given tau."""
    density = -jnp.sum((u - mean) ** 2) * jnp.exp(-2 * log_tau) / 2 - len(u) * log_tau
    return density if information is None else density - jnp.sum(jnp.log(information + jnp.exp(-2 * log_tau))) / 2


def counted(group: np.ndarray, kind: np.ndarray, groups: int, kinds: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Rows, or sums of their weights, by group and kind."""
    flat = np.bincount(group.astype(np.int64) * kinds + kind, weights, groups * kinds)
    return flat.reshape(groups, kinds).astype(np.float64)


def poisson_intercepts(theta: Any, rows: Rows, bowl: bool = False) -> Any:
    """Counts with effects of groups: cells of equal columns are a matrix (group, cell) of row counts."""
    groups, d = rows["rows"].shape[0], rows["X"].shape[1]
    beta, mu, log_tau, u = parts(theta, d, 1, 1, groups)
    mass = jnp.exp(u) @ (rows["rows"] @ jnp.exp(rows["X"] @ beta))
    said = rows["events"] @ u + rows["events_X"] @ beta - mass
    prior = normal(beta, 1.0) + normal(mu, 2.0) + half_normal(log_tau)
    return said + prior + effects(u, mu, log_tau, rows["events"] if bowl else None)


def poisson_intercepts_target(X: np.ndarray, region: np.ndarray, y: np.ndarray, groups: int) -> Target:
    cells, which = np.unique(np.asarray(X, np.float64), axis=0, return_inverse=True)
    rows = {
        "X": cells,
        "rows": counted(region, which.ravel(), groups, len(cells)),
        "events": np.bincount(region, y, groups),
        "events_X": np.asarray(X, np.float64).T @ y,
    }
    shapes: dict[str, tuple[int, ...]] = {"beta": (X.shape[1],), "mu": (), "tau": (), "u": (groups,)}
    bowl = partial(poisson_intercepts, bowl=True)
    return Target(poisson_intercepts, rows, shapes, bowl, partial(exponential_of, names=("tau",)))


def poisson_slopes(theta: Any, rows: Rows, bowl: bool = False) -> Any:
    """The same with slopes of groups along a column of few values: row counts by (group, value, cell)."""
    groups, d = len(rows["events"]), rows["X"].shape[1]
    beta, mu, nu, log_tau, log_sigma, u, v = parts(theta, d, 1, 1, 1, 1, groups, groups)
    mass = jnp.sum(jnp.exp(u[:, None] + v[:, None] * rows["x"]) * (rows["rows"] @ jnp.exp(rows["X"] @ beta)))
    said = rows["events"] @ u + rows["events_x"] @ v + rows["events_X"] @ beta - mass
    prior = normal(beta, 1.0) + normal(mu, 2.0) + normal(nu, 1.0) + half_normal(log_tau) + half_normal(log_sigma)
    information = (rows["events"], rows["events_xx"]) if bowl else (None, None)
    return said + prior + effects(u, mu, log_tau, information[0]) + effects(v, nu, log_sigma, information[1])


def slopes_sums(x: np.ndarray, group: np.ndarray, y: np.ndarray, groups: int) -> dict[str, np.ndarray]:
    """What counts say of intercepts and slopes."""
    x = np.asarray(x, np.float64)
    return {
        "events": np.bincount(group, y, groups),
        "events_x": np.bincount(group, y * x, groups),
        "events_xx": np.bincount(group, y * x**2, groups),
    }


def poisson_slopes_target(X: np.ndarray, x: np.ndarray, region: np.ndarray, y: np.ndarray, groups: int) -> Target:
    cells, which = np.unique(np.asarray(X, np.float64), axis=0, return_inverse=True)
    values, place = np.unique(np.asarray(x, np.float64), return_inverse=True)
    kinds = len(cells) * len(values)
    rows = slopes_sums(x, region, y, groups) | {
        "X": cells,
        "x": values,
        "rows": counted(region, place * len(cells) + which.ravel(), groups, kinds).reshape(groups, len(values), len(cells)),
        "events_X": np.asarray(X, np.float64).T @ y,
    }
    single = dict.fromkeys(("mu", "nu", "tau", "sigma"), ())
    shapes: dict[str, tuple[int, ...]] = {"beta": (X.shape[1],), **single, "u": (groups,), "v": (groups,)}
    bowl = partial(poisson_slopes, bowl=True)
    return Target(poisson_slopes, rows, shapes, bowl, partial(exponential_of, names=("tau", "sigma")))


def many_groups(theta: Any, rows: Rows) -> Any:
    """Intercepts and slopes of very many groups, nothing else: row counts by (group, value)."""
    groups = len(rows["events"])
    mu, nu, log_tau, log_sigma, u, v = parts(theta, 1, 1, 1, 1, groups, groups)
    mass = jnp.sum(rows["rows"] * jnp.exp(u[:, None] + v[:, None] * rows["x"]))
    prior = normal(mu, 2.0) + normal(nu, 1.0) + half_normal(log_tau) + half_normal(log_sigma)
    said = rows["events"] @ u + rows["events_x"] @ v - mass
    return said + prior + effects(u, mu, log_tau) + effects(v, nu, log_sigma)


def group_scales(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Of `many_groups`: about the logarithms of the groups' rates, with scales from what the counts and a spread of 0.5 say."""
    groups = len(rows["events"])
    rates = np.log((rows["events"] + 1) / (rows["rows"].sum(axis=1) + 1))
    single = np.array([rates.mean(), 0.0, np.log(0.4), np.log(0.4)])
    widths = [(rows[name] + 4) ** -0.5 for name in ("events", "events_xx")]
    return np.concatenate([single, rates, np.zeros(groups)]), np.concatenate([np.full(4, groups**-0.5), *widths])


def many_groups_target(x: np.ndarray, group: np.ndarray, y: np.ndarray, groups: int) -> Target:
    values, place = np.unique(np.asarray(x, np.float64), return_inverse=True)
    rows = slopes_sums(x, group, y, groups) | {"x": values, "rows": counted(group, place, groups, len(values))}
    single = dict.fromkeys(("mu", "nu", "tau", "sigma"), ())
    shapes: dict[str, tuple[int, ...]] = {**single, "u": (groups,), "v": (groups,)}
    constrained = partial(exponential_of, names=("tau", "sigma"))
    return Target(many_groups, rows, shapes, None, constrained, whitening=group_scales)


def logistic_intercepts(theta: Any, rows: Rows, bowl: bool = False) -> Any:
    """Trials and events in cells, effects of groups about 0."""
    groups, d = len(rows["information"]), rows["X"].shape[1]
    a, beta, log_tau, u = parts(theta, 1, d, 1, groups)
    eta = a + rows["X"] @ beta + u[rows["group"]]
    said = jnp.sum(rows["events"] * eta - rows["trials"] * softplus(eta))
    prior = normal(a, 2.0) + normal(beta, 1.0) + half_normal(log_tau)
    return said + prior + effects(u, 0.0, log_tau, rows["information"] if bowl else None)


def not_centred(split: Draws) -> Draws:
    """Effects in units of their scale, as the user has them."""
    tau = jnp.exp(split["tau"])
    return {"a": split["a"], "beta": split["beta"], "tau": tau, "z": split["z"] / tau[..., None]}


def logistic_intercepts_target(X: np.ndarray, group: np.ndarray, y: np.ndarray, groups: int) -> Target:
    """Sampled centred; the user's effects are not."""
    cells, which = np.unique(np.column_stack([group, np.asarray(X, np.float64)]), axis=0, return_inverse=True)
    trials, chance = np.bincount(which.ravel()).astype(np.float64), float(np.mean(y))
    rows = {
        "X": cells[:, 1:],
        "group": cells[:, 0].astype(np.int32),
        "trials": trials,
        "events": np.bincount(which.ravel(), y),
        "information": np.bincount(cells[:, 0].astype(np.int64), trials, groups) * chance * (1 - chance),
    }
    shapes: dict[str, tuple[int, ...]] = {"a": (), "beta": (X.shape[1],), "tau": (), "z": (groups,)}
    return Target(logistic_intercepts, rows, shapes, partial(logistic_intercepts, bowl=True), not_centred)


def item_response(theta: Any, rows: Rows) -> Any:
    """Answers by (person, item): ability less difficulty, times discrimination."""
    persons, items = rows["y"].shape
    ability, difficulty, log_slope = parts(theta, persons, items, items)
    eta = jnp.exp(log_slope) * (ability[:, None] - difficulty)
    prior = normal(ability, 1.0) + normal(difficulty, 2.0) + normal(log_slope, 0.5)
    return jnp.sum(rows["y"] * eta - softplus(eta)) + prior


def item_response_target(y: np.ndarray) -> Target:
    persons, items = y.shape
    shapes = {"ability": (persons,), "difficulty": (items,), "slope": (items,)}
    constrained = partial(exponential_of, names=("slope",))
    return Target(item_response, {"y": np.asarray(y, np.float64)}, shapes, item_response, constrained)
