"""Draws on the user's scale: by term and level, for columns and outcomes as they came."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

import numpy as np

from sgmcmc.core.names import Names
from sgmcmc.core.trees import PyTree
from sgmcmc.models.regression.core import Core, Group
from sgmcmc.models.regression.predictor import COEFFICIENTS, INTERCEPT

CLASS = "class"


def reported(core: Core, draws: PyTree) -> tuple[dict[str, np.ndarray], Names]:
    """Draws by name with what their axes are called; `draws` have any axes in front."""
    made: dict[str, np.ndarray] = {}
    coords: dict[str, Any] = {CLASS: tuple(core.classes[1:])} if core.others else {}
    dims: dict[str, Any] = {}
    beyond, shifted = ((CLASS,) if core.others else ()), 0.0
    front, slopes, axis = 1 + bool(core.others), np.zeros(0), 0
    if core.columns.width:
        unit = (core.scale / core.columns.scales).reshape(-1, *[1] * bool(core.others))
        slopes = np.asarray(draws[COEFFICIENTS], np.float64) * unit
        axis = slopes.ndim - front
        shifted = np.moveaxis(slopes, axis, -1) @ core.columns.means
    if core.predictor.intercept:
        made[INTERCEPT] = _plain(core.shift + core.scale * np.asarray(draws[INTERCEPT], np.float64) - shifted)
        dims[INTERCEPT] = beyond
    for name, labels, start, stop in core.columns.terms:
        own: Any = np.take(slopes, np.arange(start, stop), axis=axis)
        made[name] = _plain(own if labels else np.take(own, 0, axis=axis))
        dims[name] = (*((f"{name} level",) if labels else ()), *beyond)
        coords |= {f"{name} level": labels} if labels else {}
    for name, _, labels in core.coded:
        made[name], dims[name], coords[f"{name} level"] = _plain(core.scale * draws[name]), (f"{name} level",), labels
    for extra in core.family.extras:
        value = np.asarray(draws[extra.name], np.float64) * (core.scale if extra.unit else 1.0)
        made[extra.name] = _plain(value + np.asarray(shifted)[..., None] if extra.constraint == "ordered_vector" else value)
        if extra.constraint == "ordered_vector":
            dims[extra.name], coords["threshold"] = ("threshold",), _between(core.classes)
    for group in core.groups:
        _add_scales(core, group, draws, made)
    for group in core.groups:
        _add_effects(core, group, draws, made, coords, dims)
    return OrderedDict(made), Names(coords, {name: axes for name, axes in dims.items() if axes})


def _between(classes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{low}|{high}" for low, high in itertools.pairwise(classes))


def effects_of(core: Core, group: Group, draws: PyTree) -> np.ndarray:
    """The effects on the user's scale: what varies last, groups before it."""
    one = group.effects
    effects, scale = np.asarray(draws[one.key]), np.asarray(draws[one.scale_key])
    if one.parts == 1:
        effects, scale = effects[..., None], scale[..., None]
    if not one.centred:
        effects = effects @ np.swapaxes(np.asarray(draws[one.corr_key]), -1, -2) if one.correlated else effects
        effects = effects * scale[..., None, :]
    return effects @ _to_user(core, group).T.astype(effects.dtype)


def _to_user(core: Core, group: Group) -> np.ndarray:
    """The matrix that takes effects inside to those of the user's columns."""
    k, has = group.effects.parts, group.effects.intercept
    matrix = np.diag([*([1.0] if has else []), *(1 / group.scales)])
    if has and k > 1:
        matrix[0, 1:] = -group.means / group.scales
    return core.scale * matrix


def _add_effects(
    core: Core, group: Group, draws: PyTree, made: dict[str, Any], coords: dict[str, Any], dims: dict[str, Any]
) -> None:
    effects, by = effects_of(core, group, draws), group.effects.name
    coords[f"{by} group"] = group.labels
    for number, part in enumerate(group.parts):
        made[f"{part}|{by}"], dims[f"{part}|{by}"] = _plain(effects[..., number]), (f"{by} group",)


def _add_scales(core: Core, group: Group, draws: PyTree, made: dict[str, Any]) -> None:
    """Standard deviations and correlations."""
    covariance, parts, by = _covariance(core, group, draws), group.parts, group.effects.name
    sds = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    for number, part in enumerate(parts):
        made[f"sd({part}|{by})"] = _plain(sds[..., number])
    for i, j in itertools.combinations(range(len(parts)), 2) if group.effects.correlated else ():
        made[f"corr({parts[i]},{parts[j]}|{by})"] = _plain(covariance[..., i, j] / (sds[..., i] * sds[..., j]))


def _covariance(core: Core, group: Group, draws: PyTree) -> np.ndarray:
    """Of effects on the user's scale, for every draw."""
    one = group.effects
    scale = np.asarray(draws[one.scale_key], np.float64)
    scale = scale[..., None] if one.parts == 1 else scale
    root = np.asarray(draws[one.corr_key], np.float64) if one.correlated else np.eye(one.parts)
    root = _to_user(core, group) @ (scale[..., :, None] * root)
    return root @ np.swapaxes(root, -1, -2)


def reported_names(core: Core) -> dict[str, str]:
    """What numbers inside are called outside."""
    found: dict[str, str] = {}
    beyond = [f",{one}" for one in core.classes[1:]] if core.others else [""]
    for name, labels, start, stop in core.columns.terms:
        for number in range(start, stop):
            for more in beyond:
                own = ",".join([*([labels[number - start]] if labels else []), *([more[1:]] if more else [])])
                found[f"{COEFFICIENTS}[{core.columns.names[number]}{more}]"] = f"{name}[{own}]" if own else name
    for group in core.groups:
        one = group.effects
        for part in group.parts:
            inner = "" if one.parts == 1 else f"[{part}]"
            found[f"{one.scale_key}{inner}"] = f"sd({part}|{one.name})"
            for label in group.labels:
                within = f"[{label}]" if one.parts == 1 else f"[{label},{part}]"
                found[f"{one.key}{within}"] = f"{part}|{one.name}[{label}]"
    return found


def _plain(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32) if np.asarray(values).dtype == np.float64 and not _wide() else np.asarray(values)


def _wide() -> bool:
    import jax

    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64
