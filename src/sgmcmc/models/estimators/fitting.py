"""From features and a target to draws: the core of a regression, sampled on rows of weights, on the features' own scale."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn import exceptions

from sgmcmc.core.errors import SgmcmcWarning, warn
from sgmcmc.core.trees import Rows
from sgmcmc.models.estimators.rows import check_size, filled, moments, standardised, unique
from sgmcmc.models.regression.core import Columns, Core
from sgmcmc.models.regression.families import FAMILIES, Family
from sgmcmc.models.regression.families.base import Outcome
from sgmcmc.models.regression.predictor import COEFFICIENTS, INTERCEPT, STANDARD
from sgmcmc.models.regression.priors import Priors
from sgmcmc.models.regression.report import reported, reported_names
from sgmcmc.problem.model import Model
from sgmcmc.results.result import Result
from sgmcmc.results.words import Decisions
from sgmcmc.samplers.sample import sample

LEAST_SIGMA = 1e-3
"""Of the outcome's standard deviation: features that foresee it without error would leave the posterior without a limit."""


class ConvergenceWarning(SgmcmcWarning, exceptions.ConvergenceWarning):
    """The draws behind an estimator are not to be trusted as they are: `result_.health()` says why.

    It is a warning of scikit-learn's kind and of this library's, for filters of either.

    >>> import sklearn.exceptions, sgmcmc
    >>> from sgmcmc.sklearn import ConvergenceWarning
    >>> issubclass(ConvergenceWarning, sgmcmc.SgmcmcWarning)
    True
    >>> issubclass(ConvergenceWarning, sklearn.exceptions.ConvergenceWarning)
    True
    """


@dataclass(frozen=True)
class Target:
    """What is to be foreseen.

    Attributes:
        family: what it is a draw of.
        y: numbers, or numbers of classes, a row each.
        outcome: their mean and spread, or how often each class is, by weight.
        classes: what the classes are called.
        shift: taken off y, which is then divided by `scale`.
        scale: 1 where y is as it came.
    """

    family: Family
    y: np.ndarray
    outcome: Outcome
    classes: tuple[str, ...] = ()
    shift: float = 0.0
    scale: float = 1.0

    @property
    def neutral(self) -> Outcome:
        """The outcome for which the intercept is 0 in the middle: what was observed is in an offset, among the rows, so that the
        functions of the model are the same for all targets.
        """
        return _neutral(self.family, len(self.classes))

    @property
    def middle(self) -> Any:
        """The intercept of a model without features."""
        link = self.family.links[0]
        return 0.0 if self.family.scaled else np.asarray(self.family.start_of_intercept(link, self.outcome), np.float64)


def _neutral(family: Family, classes: int) -> Outcome:
    if family.classes:
        return Outcome(0.0, 1.0, (1 / classes,) * classes)
    return Outcome({"truth": 0.5, "count": 1.0}.get(family.kind, 0.0), 1.0)


@lru_cache(maxsize=64)
def _default_priors(family: str, width: int, classes: int, intercept: bool, dtype: Any) -> Priors:
    """Kept, for numbers of a precision, so that the laws are the same objects: a program is known by what it is made of."""
    chosen = FAMILIES[family]
    columns = Columns((), tuple(map(str, range(width))), np.zeros(width, dtype), np.ones(width, dtype))
    made = Core(chosen, chosen.links[0], columns, intercept, _neutral(chosen, classes), classes=("",) * classes)
    return made.priors()


@dataclass(frozen=True)
class Fit(Result):
    """The result behind an estimator: draws by feature, on the scale of the features and of the target.

    Attributes:
        inner: the result of `sample`, in standardised variables: what its `model` works with.
    """

    inner: Result = field(kw_only=True, repr=False)

    @classmethod
    def of(cls, inner: Result, core: Core) -> Fit:
        """From the result of `sample`."""
        draws, names = reported(core, inner.draws)
        called = reported_names(core)
        pairs = inner.pairs and replace(inner.pairs, names=[called.get(name, name) for name in inner.pairs.names])
        told = {one.name: getattr(inner, one.name) for one in fields(Result)}
        return cls(**told | {"draws": draws, "names": names, "pairs": pairs}, inner=inner)

    @property
    def in_model(self) -> Result:
        return self.inner


@dataclass(frozen=True)
class Task:
    """A posterior to be drawn from.

    Attributes:
        core: the regression on the features' and the target's own scale.
        priors: of its standardised variables.
        middle: what the intercept inside is less than that of the core.
        rows: features and target in standard units, and weights; rows of weight 0 fill them up.
        count: how many rows were given.
    """

    core: Core
    priors: Priors
    middle: Any
    rows: Rows
    count: int

    @classmethod
    def of(
        cls, target: Target, X: Any, names: list[str], weight: np.ndarray, intercept: bool, told: Mapping[str, Any] | None
    ) -> Task:
        """That of a target given features, each row as often as its weight says."""
        check_size(X)
        family, (means, scales) = target.family, moments(X, weight, intercept)
        own = unique(names, (INTERCEPT, COEFFICIENTS, *(extra.name for extra in family.extras)))
        columns = Columns(tuple((name, (), i, i + 1) for i, name in enumerate(own)), own, means, scales)
        core = Core(
            family, family.links[0], columns, intercept, target.neutral, shift=target.shift, scale=target.scale,
            classes=target.classes, weighted=True,
        )  # fmt: skip
        middle = target.middle if intercept else 0.0
        rows = _rows(target, standardised(X, means, scales, filled(X.shape[0])), weight)
        kept = _default_priors(family.name, columns.width, len(core.classes), intercept, rows["x"].dtype)
        priors = kept if told is None else replace(core, shift=target.shift + middle).priors(told)
        return cls(core, priors, middle, rows, X.shape[0])

    def model(self) -> Model:
        """What is sampled. What is known of the target is in its rows, so that its functions are those of other targets too."""
        inside = replace(self.core, shift=0.0, scale=1.0, offset=not self.core.family.scaled)
        made = inside.model(self.rows | (self._offset(inside) if inside.offset else {}), self.priors)
        if self.core.family.scaled:
            made = replace(made, constraints={**(made.constraints or {}), "sigma": _above_least_sigma()})
        return made

    def _offset(self, core: Core) -> Rows:
        """The middle, for every row: of classes a line."""
        x, shape = self.rows["x"], (core.others,) if core.others else ()
        return {"offset": np.ascontiguousarray(np.broadcast_to(np.asarray(self.middle, x.dtype), (len(x), *shape)))}

    def finished(self, found: Result) -> Fit:
        """What was drawn, on the scale of features and target, with a model of the rows that were given."""
        draws: Any = found.draws
        if INTERCEPT in draws:
            draws = {**draws, INTERCEPT: (draws[INTERCEPT] + self.middle).astype(draws[INTERCEPT].dtype)}
        rows = {name: values[: self.count] for name, values in self.rows.items()}
        if self.core.predictor.scaled:
            y = self.core.shift + self.core.scale * rows["y"].astype(np.float64)
            rows |= {STANDARD: rows["y"], "y": y.astype(rows["y"].dtype)}
        told = self._filling() + found.decisions
        given = {"draws": draws, "model": self.core.model(rows, self.priors), "decisions": told}
        return Fit.of(replace(found, **given, settings=found.settings | {"n_rows": self.count}), self.core)

    def _filling(self) -> Decisions:
        made = len(self.rows["x"])
        if made == self.count:
            return Decisions()
        said = f"{made - self.count:,} rows of weight 0 fill up the {self.count:,} that were given"
        return Decisions().and_then("filled", made, f"{said}: programs of one number of rows serve all that are filled up to it.")


def fitted(task: Task, **sampling: Any) -> Fit:
    """Draws from a posterior, as `sample` is told."""
    with _as_convergence_warnings():
        found = sample(task.model(), **sampling)
    return task.finished(found)


def _rows(target: Target, x: np.ndarray, weight: np.ndarray) -> Rows:
    """Features, target and weights; those that fill up have weight 0."""

    def column(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.zeros(len(x) - len(values))]).astype(x.dtype)

    return {"x": x, "y": column((target.y - target.shift) / target.scale), "weight": column(weight)}


@lru_cache(maxsize=1)
def _above_least_sigma() -> Any:
    from numpyro.distributions import constraints

    return constraints.greater_than(LEAST_SIGMA)


@contextmanager
def _as_convergence_warnings() -> Iterator[None]:
    """Warnings of draws that are not to be trusted as scikit-learn has them; others as they are."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SgmcmcWarning)
        yield
    for one in caught:
        text = str(one.message).replace("health()", "result_.health()")
        if issubclass(one.category, SgmcmcWarning):
            warn(text, ConvergenceWarning)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def linear(core: Core, draws: Any, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Intercepts and slopes on the features' own scale in float64, draws first: `most` of them, evenly spread, or all."""
    slopes = _flat(draws[COEFFICIENTS], most)
    divided = slopes / core.columns.scales.reshape(-1, *[1] * bool(core.others))
    intercepts = _flat(draws[INTERCEPT], most) if INTERCEPT in draws else np.zeros((len(slopes), *slopes.shape[2:]))
    return (
        core.shift + core.scale * (intercepts - np.tensordot(divided, core.columns.means, axes=(1, 0))),
        core.scale * divided,
    )


def own(core: Core, draws: Any, most: int | None = None) -> dict[str, np.ndarray]:
    """The family's own parameters likewise."""
    return {extra.name: _flat(draws[extra.name], most) * (core.scale if extra.unit else 1.0) for extra in core.family.extras}


def _flat(values: Any, most: int | None) -> np.ndarray:
    found = np.asarray(values, np.float64)
    found = found.reshape(-1, *found.shape[2:])
    places = np.arange(len(found)) if most is None else np.linspace(0, len(found) - 1, min(most, len(found))).astype(int)
    return found[places]
