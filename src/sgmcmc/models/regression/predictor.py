"""The model of a regression: linear predictor, log likelihood, mean and simulation, as functions of parameters and rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.trees import PyTree, Rows
from sgmcmc.models.regression.families import FAMILIES, Family

INTERCEPT, COEFFICIENTS = "Intercept", "coefficients"

STANDARD = "standardised y"
"""The column of an outcome in standard units."""


@dataclass(frozen=True)
class Effects:
    """Effects of groups, as the model has them."""

    name: str
    rows_name: str
    slopes_name: str
    parts: int
    intercept: bool
    centred: bool
    correlated: bool

    @property
    def key(self) -> str:
        """The parameter of the effects: themselves where they are centred, else in units of their scales."""
        return f"effects of {self.name}"

    @property
    def scale_key(self) -> str:
        return f"sd of {self.name}"

    @property
    def corr_key(self) -> str:
        return f"corr of {self.name}"

    def of(self, params: PyTree) -> jax.Array:
        """The effects: a number for each group, or a line."""
        effects = params[self.key]
        if self.centred:
            return effects
        if self.correlated:
            effects = effects @ params[self.corr_key].T
        return effects * params[self.scale_key]

    def added(self, params: PyTree, rows: Rows) -> jax.Array:
        """What they add to the linear predictor."""
        own = self.of(params)[rows[self.rows_name]]
        if own.ndim == 1:
            return own if self.intercept else own * rows[self.slopes_name][:, 0]
        if not self.intercept:
            return jnp.sum(own * rows[self.slopes_name], axis=1)
        return own[:, 0] + jnp.sum(own[:, 1:] * rows[self.slopes_name], axis=1)


@dataclass(frozen=True)
class Predictor:
    """What a regression is made of.

    Attributes:
        family_name: its family.
        link: its link.
        width: columns of the design matrix, `rows["x"]`.
        intercept: whether there is one.
        coded: of terms of many levels the parameter and the column of the rows.
        effects: of groups.
        offset: whether rows have one.
        weighted: whether rows have weights.
        shift: taken off the outcome, which is then divided by `scale`; rows have both, as they came and standardised.
        scale: 1 where it is as it came.
    """

    family_name: str
    link: str
    width: int
    intercept: bool
    coded: tuple[tuple[str, str], ...] = ()
    effects: tuple[Effects, ...] = ()
    offset: bool = False
    weighted: bool = False
    shift: float = 0.0
    scale: float = 1.0

    @property
    def scaled(self) -> bool:
        return (self.shift, self.scale) != (0.0, 1.0)

    @property
    def family(self) -> Family:
        return FAMILIES[self.family_name]

    def outwards(self, outcome: jax.Array) -> jax.Array:
        """An outcome as it came, of a standardised one."""
        return self.shift + self.scale * outcome if self.scaled else outcome

    def own(self, params: PyTree) -> dict[str, Any]:
        """The family's own parameters."""
        return {extra.name: params[extra.name] for extra in self.family.extras}

    def eta(self, params: PyTree, rows: Rows) -> jax.Array:
        """The linear predictor of every row."""
        total: Any = params[INTERCEPT] if self.intercept else 0.0
        if self.width:
            total = total + rows["x"] @ params[COEFFICIENTS]
        for name, column in self.coded:
            effects = params[name]
            total = total + jnp.where(rows[column] > 0, effects[jnp.maximum(rows[column] - 1, 0)], 0.0)
        for one in self.effects:
            total = total + one.added(params, rows)
        if self.offset:
            total = total + rows["offset"]
        if jnp.ndim(total) <= self.family.classes:  # an intercept alone
            count = len(next(iter(rows.values())))
            total = jnp.broadcast_to(total, (count, *jnp.shape(total)))
        return total


def log_lik(predictor: Predictor, params: PyTree, rows: Rows) -> jax.Array:
    """The log likelihood of every row, of the outcome as it came."""
    family, eta = predictor.family, predictor.eta(params, rows)
    own = predictor.own(params)
    if predictor.scaled:
        each = family.log_density(predictor.link, eta, own, rows | {"y": rows[STANDARD]}) - math.log(predictor.scale)
    else:
        each = family.log_density(predictor.link, eta, own, rows)
    return rows["weight"] * each if predictor.weighted else each


def mean(predictor: Predictor, params: PyTree, rows: Rows) -> jax.Array:
    """The expected outcome of every row; of classes the probabilities of all."""
    eta = predictor.eta(params, rows)
    return predictor.outwards(predictor.family.mean(predictor.link, eta, predictor.own(params), rows))


def simulate(predictor: Predictor, key: jax.Array, params: PyTree, rows: Rows) -> dict[str, jax.Array]:
    """An outcome of every row; whole numbers where outcomes are counts or classes, so that intervals of them are."""
    eta = predictor.eta(params, rows)
    made = predictor.outwards(predictor.family.simulate(key, predictor.link, eta, predictor.own(params), rows))
    return {"y": made.astype(jnp.int32) if predictor.family.whole else made}
