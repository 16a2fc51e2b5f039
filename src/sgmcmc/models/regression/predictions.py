"""Predictions of a regression for rows of any frame."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.core.checks import check_choice
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Rows
from sgmcmc.models.regression.columns import Levels, keys_of
from sgmcmc.models.regression.design import Design
from sgmcmc.models.regression.sources import Source, find_source
from sgmcmc.results.result import Result

if TYPE_CHECKING:
    from sgmcmc.models.regression.result import Regression

OUTCOME, MEAN = OF = ("outcome", "mean")


def predict(fit: Regression, new: Any, kind: str, of: str, options: dict[str, Any]) -> Any:
    """As `Regression.predict` says."""
    check_choice("of", of, OF)
    if new is None and not fit.has_its_rows:
        raise InputError("predict was given no rows, and this regression came without those of its fit; give predict a frame")
    inner, rows = (fit.inner, None) if new is None else encoded(fit, new, options.get("seed", 0))
    if inner.model is None:
        raise InputError("predict needs the model, which this result does not have")
    if of == MEAN and kind != "mean":
        options = options | {"function": inner.model.mean}
    return inner.predict(rows, kind, **options)


def encoded(fit: Regression, new: Any, seed: Any, first_row: int = 0) -> tuple[Result, Rows]:
    """The rows of a frame, and the result with effects of the levels that it was not fitted to: drawn from the population."""
    source = find_source(new)
    design, inner = fit.design, fit.inner
    for number, group in enumerate(fit.core.groups):
        fresh = _fresh_levels(design, source, number)
        if fresh:
            design = _with_levels(design, number, fresh)
            draws: Any = inner.draws
            inner = replace(inner, draws=draws | {group.effects.key: _drawn(draws, group, fresh, seed)})
    parts = list(design.blocks(source, outcome=False, first_row=first_row))
    if not parts:
        raise InputError("the new frame has no rows; expected at least one")
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return inner, rows or {"row": np.zeros(_count(source), np.int32)}


def _count(source: Source) -> int:
    return sum(len(block) for block in source.blocks(source.names[:1]))


def _fresh_levels(design: Design, source: Source, number: int) -> list[str]:
    """Levels of a grouping that the fit has not seen, in the order in which they come."""
    levels, found = design.varying[number].levels, dict[str, None]()
    design.predicting(source.names)
    for block in source.blocks(list(levels.by)):
        typed = design.typed(block)
        codes = levels.codes(typed)
        if (codes < 0).any():
            found |= dict.fromkeys(keys_of(typed, levels.by)[codes < 0])
    return list(found)


def _with_levels(design: Design, number: int, fresh: list[str]) -> Design:
    varying = list(design.varying)
    levels = varying[number].levels
    varying[number] = replace(varying[number], levels=Levels(levels.by, (*levels.labels, *fresh)))
    return replace(design, varying=tuple(varying))


def _entropy(of: Any) -> list[int]:
    """Whole numbers for a generator: of the seed, and of a level, so that its effect is the same beside whatever other levels."""
    digest = hashlib.blake2b(str(of).encode(), digest_size=16).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]


def _drawn(draws: Any, group: Any, fresh: list[str], seed: Any) -> np.ndarray:
    """Effects for every draw, those of new groups after those that there are."""
    one = group.effects
    effects = np.asarray(draws[one.key])
    shape = (*effects.shape[:2], *effects.shape[3:])
    each = [np.random.default_rng([*_entropy(seed), *_entropy(label)]).standard_normal(shape) for label in fresh]
    more = np.stack(each, axis=2).astype(effects.dtype)
    if one.centred:
        more = more @ np.swapaxes(np.asarray(draws[one.corr_key]), -1, -2) if one.correlated else more
        scale = np.asarray(draws[one.scale_key])
        more = more * scale[..., None] if one.parts == 1 else more * scale[..., None, :]
    return np.concatenate([effects, more], axis=2)
