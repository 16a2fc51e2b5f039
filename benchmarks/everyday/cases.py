"""What a case is: the model as a user writes it, and its posterior written a second time for the reference."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Draws = dict[str, Any]
"""Arrays by the names of the parameters, the parameter's own axes last."""


@dataclass(frozen=True)
class Target:
    """A log density of unconstrained numbers, in float64, that shares no line with the user's model.

    Attributes:
        density: `density(theta, rows)`, with rows that may be collapsed: equal ones once, or sums only.
        rows: what it needs of the data and of the prior.
        shapes: of the parameters, in their order in `theta`.
        bowl: the density whose mode and curvature give the scales; None for one that has no mode.
        constrained: from the split numbers to the parameters as the user has them.
        blocks: draws of the parameters, of several chains, from `rows`: for densities at which NUTS diverges.
        whitening: centre and scales (a matrix, or one for each number) from `rows`, where those of a bowl would take too long.
    """

    density: Callable[[Any, Mapping[str, Any]], Any]
    rows: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    bowl: Callable[[Any, Mapping[str, Any]], Any] | None
    constrained: Callable[[Draws], Draws] = dict
    blocks: Callable[[Mapping[str, Any]], Iterator[Draws]] | None = None
    whitening: Callable[[Mapping[str, Any]], tuple[np.ndarray, np.ndarray]] | None = None

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def parameters(self, theta: Any) -> Draws:
        """By name and in the user's terms, from an array whose last axis has the unconstrained numbers."""
        split, first = {}, 0
        for name, shape in self.shapes.items():
            count = math.prod(shape)
            split[name] = theta[..., first : first + count].reshape((*theta.shape[:-1], *shape))
            first += count
        return self.constrained(split)

    def key(self) -> str:
        """Of a file for the reference: another density or other data have another."""
        seen = hashlib.sha256()
        for function in (self.density, self.bowl, self.constrained, self.blocks):
            seen.update(_source(function).encode())
        seen.update(repr(self.shapes).encode())
        for name, array in sorted(self.rows.items()):
            seen.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return seen.hexdigest()[:24]


@dataclass(frozen=True)
class Predictions:
    """For models whose parameters mean nothing one by one: the function that predicts, new rows, the noise of their answers."""

    predict: Callable[[Draws, Any], Any]
    inputs: np.ndarray
    answers: np.ndarray
    noise: float


@dataclass(frozen=True)
class Case:
    """A model and data of a user, and what `sample` may say of it.

    Attributes:
        target: the posterior for the reference; None where there is none to compare with.
        seen: what of the parameters is compared: those without moments are taken in other units.
        naming: a pattern that the message of a rightful refusal has; empty where every refusal is false.
        proper: whether there is a posterior: else only a refusal is right.
        most_seconds: a bar for the time, if there is one.
        patience: seconds after which a fit counts as not ended.
        beside_nuts: whether plain NUTS is timed on the same model.
    """

    log_lik: Callable[[Any, Any], Any]
    data: dict[str, np.ndarray]
    start: dict[str, Any]
    log_prior: Callable[[Any], Any] | None
    constraints: dict[str, Any] | None = None
    target: Target | None = None
    predictions: Predictions | None = None
    seen: Callable[[Draws], Draws] = dict
    naming: str = ""
    proper: bool = True
    most_seconds: float | None = None
    patience: float = 400.0
    beside_nuts: bool = False

    @property
    def timed(self) -> bool:
        """Whether there is a bar for its time."""
        return self.most_seconds is not None or self.beside_nuts

    @property
    def rows(self) -> int:
        return len(next(iter(self.data.values())))

    @property
    def numbers(self) -> int:
        return sum(np.size(value) for value in self.start.values())


def together(draws: Draws) -> np.ndarray:
    """Chain, draw, number: the parameters by the order of their names, as the draws of `sample` are."""
    arrays = [np.asarray(draws[name], np.float64) for name in sorted(draws)]
    return np.concatenate([array.reshape(*array.shape[:2], -1) for array in arrays], axis=-1)


def labels(draws: Draws) -> list[str]:
    """Of the numbers that `together` puts side by side."""
    sizes = {name: math.prod(np.shape(draws[name])[2:]) for name in sorted(draws)}
    return [name if np.ndim(draws[name]) == 2 else f"{name}[{i}]" for name, size in sizes.items() for i in range(size)]


def _source(function: Any) -> str:
    if isinstance(function, partial):
        return _source(function.func) + repr(sorted(function.keywords.items()))
    return "" if function is None or inspect.isclass(function) else inspect.getsource(function)
