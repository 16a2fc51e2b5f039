"""The core of a regression, without formulas: family, matrix and groups in, a `Model` out, and draws on the user's scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sgmcmc.core.trees import Dataset, PyTree
from sgmcmc.models.regression import predictor as functions
from sgmcmc.models.regression.families import Family
from sgmcmc.models.regression.families.base import Extra, Outcome
from sgmcmc.models.regression.predictor import COEFFICIENTS, INTERCEPT, Effects, Predictor
from sgmcmc.models.regression.priors import (
    CONCENTRATION,
    WIDTH,
    OfEffects,
    OfIntercept,
    Plain,
    Priors,
    check_priors,
    draw_prior,
    log_prior,
    of_coefficients,
    said_of,
)
from sgmcmc.problem.model import Model


@dataclass(frozen=True)
class Columns:
    """The matrix: what its columns are called, by term, and how they were standardised.

    Attributes:
        terms: name, labels and columns (first, and the one after the last) of each term; a term without labels is one number.
        names: of the columns.
        means: taken off each; zeros where there is no intercept.
        scales: by which each was divided then.
    """

    terms: tuple[tuple[str, tuple[str, ...], int, int], ...]
    names: tuple[str, ...]
    means: np.ndarray
    scales: np.ndarray

    @property
    def width(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Group:
    """Effects of the levels of a grouping.

    Attributes:
        effects: as the model has them.
        labels: the levels.
        parts: what varies; "1" is the intercept.
        means: of the columns that vary, as of `Columns`.
        scales: likewise.
    """

    effects: Effects
    labels: tuple[str, ...]
    parts: tuple[str, ...]
    means: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True)
class Core:
    """All that a regression is, but for its rows.

    Attributes:
        family: the family.
        link: the name of the link.
        columns: of the matrix.
        intercept: whether there is one.
        outcome: what was observed, in units of `shift` and `scale`.
        coded: of terms of many levels the name, the column of the rows, and the levels but the first.
        groups: what varies.
        shift: taken off the outcome.
        scale: by which it was divided then.
        classes: the classes of the outcome.
        offset: whether rows have one.
        weighted: whether rows have weights.
    """

    family: Family
    link: str
    columns: Columns
    intercept: bool
    outcome: Outcome
    coded: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    groups: tuple[Group, ...] = ()
    shift: float = 0.0
    scale: float = 1.0
    classes: tuple[str, ...] = ()
    offset: bool = False
    weighted: bool = False
    mean_offset: float = 0.0

    @property
    def others(self) -> int:
        """Linear predictors of a row, where it has more than one: of every class but the first."""
        return len(self.classes) - 1 if self.family.classes else 0

    @property
    def predictor(self) -> Predictor:
        coded = tuple((name, column) for name, column, _ in self.coded)
        effects = tuple(group.effects for group in self.groups)
        units = (self.shift, self.scale)
        width, has = self.columns.width, self.intercept and not self.family.ordered
        return Predictor(self.family.name, self.link, width, has, coded, effects, self.offset, self.weighted, *units)

    def start(self) -> PyTree:
        """Where the search for the posterior starts: no effects, the rest as observed."""
        others = (self.others,) if self.others else ()
        made: dict[str, Any] = {}
        if self.predictor.intercept:
            made[INTERCEPT] = np.asarray(self.family.start_of_intercept(self.link, self.outcome), float) - self.mean_offset
        if self.columns.width:
            made[COEFFICIENTS] = np.zeros((self.columns.width, *others))
        made |= {name: np.zeros(len(labels)) for name, _, labels in self.coded}
        for group in self.groups:
            made |= _start_of(group)
        return made | {extra.name: np.asarray(extra.start(self.outcome), float) for extra in self.family.extras}

    def constraints(self) -> dict[str, Any]:
        """Where parameters may live."""
        from numpyro.distributions import constraints

        known = {name: getattr(constraints, name) for name in ("positive", "unit_interval", "ordered_vector")}
        known["greater_than_one"] = constraints.greater_than(1.0)
        made = {extra.name: known[extra.constraint] for extra in self.family.extras}
        for group in self.groups:
            made[group.effects.scale_key] = constraints.positive
            if group.effects.correlated:
                made[group.effects.corr_key] = constraints.corr_cholesky
        return made

    def known_priors(self) -> list[str]:
        """The names that `priors` may have."""
        names = [INTERCEPT] if self.predictor.intercept else []
        names += [COEFFICIENTS, *(term[0] for term in self.columns.terms)] if self.columns.width else []
        names += [name for name in self.columns.names if name not in names]
        names += [name for name, _, _ in self.coded]
        for group in self.groups:
            names.append(f"sd({group.effects.name})")
            names += [f"corr({group.effects.name})"] if group.effects.correlated else []
        return [*names, *(extra.name for extra in self.family.extras)]

    def priors(self, told: Any = None) -> Priors:
        """Default priors, and in their place those that the user tells."""
        told = check_priors(told, self.known_priors())
        parts: list[Any] = []
        said: list[str] = []
        if self.columns.width:
            named = {name: (number, number + 1) for number, name in enumerate(self.columns.names)}
            named |= {name: (start, stop) for name, _, start, stop in self.columns.terms}
            found = of_coefficients(self.columns.width, self.others, named, told, self.scale / self.columns.scales)
            parts, said = found
        if self.predictor.intercept:
            parts.append(self._of_intercept(told, said))
        parts += [self._of_levels(name, len(labels), told, said) for name, _, labels in self.coded]
        for group in self.groups:
            parts += self._of_group(group, told, said)
        parts += [self._of_extra(extra, told, said) for extra in self.family.extras]
        return Priors(tuple(parts), tuple(said))

    def _of_intercept(self, told: dict[str, Any], said: list[str]) -> Any:
        from numpyro.distributions import Normal

        if INTERCEPT in told:
            said.append(f"Intercept ~ {said_of(told[INTERCEPT])}")
            slopes = self.columns.means * self.scale / self.columns.scales
            return OfIntercept(told[INTERCEPT], self.scale, self.shift, slopes)
        middle = np.asarray(self.family.start_of_intercept(self.link, self.outcome), float) - self.mean_offset
        return Plain(INTERCEPT, Normal(middle, WIDTH), np.shape(middle))

    def _of_levels(self, name: str, count: int, told: dict[str, Any], said: list[str]) -> Plain:
        from numpyro.distributions import Normal

        if name not in told:
            return Plain(name, Normal(0.0, WIDTH), (count,))
        said.append(f"{name} ~ {said_of(told[name])}")
        return Plain(name, told[name], (count,), unit=self.scale)

    def _of_group(self, group: Group, told: dict[str, Any], said: list[str]) -> list[Any]:
        from numpyro.distributions import HalfNormal, LKJCholesky

        one, parts = group.effects, []
        shape = () if one.parts == 1 else (one.parts,)
        name = f"sd({one.name})"
        if name in told:
            said.append(f"{name} ~ {said_of(told[name])}")
            factors = np.asarray(_units(group)) * self.scale
            parts.append(Plain(one.scale_key, told[name], shape, unit=factors if shape else float(factors[0])))
        else:
            parts.append(Plain(one.scale_key, HalfNormal(WIDTH), shape))
        if one.correlated:
            law = told.get(f"corr({one.name})", LKJCholesky(one.parts, CONCENTRATION))
            parts.append(Plain(one.corr_key, law, (one.parts, one.parts)))
        return [*parts, OfEffects(one, (len(group.labels), *shape))]

    def _of_extra(self, extra: Extra, told: dict[str, Any], said: list[str]) -> Plain:
        shape = np.shape(extra.start(self.outcome))
        ordered = extra.constraint == "ordered_vector"
        if extra.name not in told:
            said.append(extra.said)
            return Plain(extra.name, extra.prior(self.outcome), shape, ordered=ordered)
        said.append(f"{extra.name} ~ {said_of(told[extra.name])}")
        return Plain(extra.name, told[extra.name], shape, unit=self.scale if extra.unit else 1.0, ordered=ordered)

    def model(self, dataset: Dataset, priors: Priors) -> Model:
        """The regression as a model that samplers take: in standardised variables."""
        one, (coords, dims) = self.predictor, self.names()
        return Model(
            log_lik=partial(functions.log_lik, one),
            dataset=dataset,
            params=self.start(),
            log_prior=partial(log_prior, priors),
            constraints=self.constraints() or None,
            coords=coords,
            dims=dims,
            observed=("y",),
            simulate=partial(functions.simulate, one),
            mean=partial(functions.mean, one),
            draw_prior=partial(draw_prior, priors),
        )

    def names(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Labels by axis, and axes by parameter, of the standardised variables."""
        coords: dict[str, Any] = {}
        dims: dict[str, Any] = {}
        beyond = []
        if self.others:
            coords["class"], beyond = list(self.classes[1:]), ["class"]
            dims[INTERCEPT] = beyond
        if self.columns.width:
            coords["column"], dims[COEFFICIENTS] = list(self.columns.names), ["column", *beyond]
        for name, _, labels in self.coded:
            coords[f"{name} level"], dims[name] = list(labels), [f"{name} level"]
        for group in self.groups:
            one = group.effects
            coords[f"{one.name} group"] = list(group.labels)
            dims[one.key] = [f"{one.name} group"]
            if one.parts > 1:
                coords[f"{one.name} part"] = list(group.parts)
                dims[one.key], dims[one.scale_key] = [*dims[one.key], f"{one.name} part"], [f"{one.name} part"]
        return coords, dims


def _start_of(group: Group) -> dict[str, Any]:
    one, k = group.effects, group.effects.parts
    shape = () if k == 1 else (k,)
    made: dict[str, Any] = {one.scale_key: np.full(shape, 0.5), one.key: np.zeros((len(group.labels), *shape))}
    if one.correlated:
        made[one.corr_key] = np.eye(k)
    return made


def _units(group: Group) -> list[float]:
    """From effects inside to those of the user's columns."""
    return [1.0, *(1 / group.scales)] if group.effects.intercept else list(1 / group.scales)
