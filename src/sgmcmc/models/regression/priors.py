"""Priors of a regression: weakly informative ones in units of the data, or the user's on the user's scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree
from sgmcmc.models.regression.predictor import COEFFICIENTS, INTERCEPT, Effects

WIDTH = 2.5
"""Standard deviation of coefficients' priors, for a change of one standard deviation of their column."""

CONCENTRATION = 2.0
"""Of the LKJ prior of correlations."""


@dataclass(frozen=True)
class Plain:
    """The prior of a parameter, or of some lines of it; the distribution is of the parameter times `unit`.

    Attributes:
        key: the parameter.
        law: a NumPyro distribution.
        shape: of what it is drawn for.
        lines: which lines; all where it is None.
        unit: from the parameter to the scale of the distribution.
        ordered: whether draws are put into order.
    """

    key: str
    law: Any
    shape: tuple[int, ...]
    lines: tuple[int, int] | None = None
    unit: Any = 1.0
    ordered: bool = False

    def log_density(self, params: PyTree) -> jax.Array:
        value = params[self.key]
        value = value if self.lines is None else value[slice(*self.lines)]
        return jnp.sum(self.law.log_prob(value * self.unit))

    def draw(self, key: jax.Array, made: dict[str, Any]) -> Any:
        batch = (*self.law.batch_shape, *self.law.event_shape)
        value = self.law.sample(key) if batch == self.shape else self.law.sample(key, self.shape)
        value = jnp.sort(value) if self.ordered else value
        return value / self.unit


@dataclass(frozen=True)
class OfIntercept:
    """The prior of the intercept as it is reported: where all columns are 0."""

    law: Any
    unit: float
    shift: float
    slopes: Any
    key: str = INTERCEPT

    def log_density(self, params: PyTree) -> jax.Array:
        return jnp.sum(self.law.log_prob(self.shift + self.unit * params[INTERCEPT] - self._of_columns(params)))

    def _of_columns(self, params: PyTree) -> Any:
        return self.slopes @ params[COEFFICIENTS] if COEFFICIENTS in params else 0.0

    def draw(self, key: jax.Array, made: dict[str, Any]) -> Any:
        of_columns = self._of_columns(made)
        shape = jnp.shape(of_columns) if self.law.batch_shape == () else ()
        return (self.law.sample(key, shape) - self.shift + of_columns) / self.unit


@dataclass(frozen=True)
class OfEffects:
    """The law of the effects of groups, given their scales and correlations."""

    effects: Effects
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        return self.effects.key

    def log_density(self, params: PyTree) -> jax.Array:
        import numpyro.distributions as dist

        value, one = params[self.key], self.effects
        if not one.centred:
            return jnp.sum(dist.Normal(0.0, 1.0).log_prob(value))
        if not one.correlated:
            return jnp.sum(dist.Normal(0.0, params[one.scale_key]).log_prob(value))
        root = params[one.scale_key][:, None] * params[one.corr_key]
        return jnp.sum(dist.MultivariateNormal(jnp.zeros(one.parts), scale_tril=root).log_prob(value))

    def draw(self, key: jax.Array, made: dict[str, Any]) -> Any:
        plain = jax.random.normal(key, self.shape)
        if not self.effects.centred:
            return plain
        plain = plain @ made[self.effects.corr_key].T if self.effects.correlated else plain
        return plain * made[self.effects.scale_key]


@dataclass(frozen=True)
class Priors:
    """All of them; `said` in words."""

    parts: tuple[Any, ...]
    said: tuple[str, ...] = field(default=(), compare=False)


def log_prior(priors: Priors, params: PyTree) -> jax.Array:
    """The log density of all priors."""
    return sum((part.log_density(params) for part in priors.parts), start=jnp.asarray(0.0))


def draw_prior(priors: Priors, key: jax.Array) -> PyTree:
    """Parameters from the priors; what depends on others comes after these."""
    made: dict[str, Any] = {}
    lines: dict[str, list[Any]] = {}
    for number, part in enumerate(sorted(priors.parts, key=lambda one: isinstance(one, OfIntercept | OfEffects))):
        value = part.draw(jax.random.fold_in(key, number), made)
        if getattr(part, "lines", None) is not None:
            lines.setdefault(part.key, []).append((part.lines[0], value))
            value = jnp.concatenate([one for _, one in sorted(lines[part.key], key=lambda pair: pair[0])])
        made[part.key] = value
    return made


def check_priors(told: Any, known: list[str]) -> dict[str, Any]:
    """`priors=` as it may be: distributions by the names of what they are of."""
    if told is None:
        return {}
    example = "{'age': sgmcmc.distributions.Normal(0, 0.1)}"
    if not isinstance(told, Mapping):
        raise InputError(f"priors is {describe(told)}; expected distributions by name, such as {example}")
    for name, law in told.items():
        if name not in known:
            shown = ", ".join(map(repr, known[:15])) + (", ..." if len(known) > 15 else "")
            raise InputError(f"priors names {name!r}, which the model does not have; it has {shown}")
        if not (hasattr(law, "log_prob") and hasattr(law, "sample")):
            raise InputError(f"priors[{name!r}] is {describe(law)}; expected a distribution of NumPyro, as in {example}")
    return dict(told)


def of_coefficients(
    width: int, classes: int, named: dict[str, tuple[int, int]], told: dict[str, Any], unit: np.ndarray
) -> tuple[list[Any], list[str]]:
    """The priors of a matrix's columns: those told for terms or for all, else the default."""
    from numpyro.distributions import Normal

    rest, parts, said = set(range(width)), [], []
    beyond = (classes,) if classes else ()
    whole = told.get(COEFFICIENTS)
    units = np.broadcast_to(unit.reshape(-1, *[1] * bool(classes)), (width, *beyond))
    for name, (start, stop) in named.items():
        if name in told and rest.issuperset(range(start, stop)):
            parts.append(Plain(COEFFICIENTS, told[name], (stop - start, *beyond), (start, stop), units[start:stop]))
            rest -= set(range(start, stop))
            said.append(f"{name} ~ {said_of(told[name])}")
    for start, stop in _runs(rest):
        law = Normal(0.0, WIDTH) if whole is None else whole
        scale = 1.0 if whole is None else units[start:stop]
        parts.append(Plain(COEFFICIENTS, law, (stop - start, *beyond), (start, stop), scale))
    if whole is not None:
        said.append(f"coefficients ~ {said_of(whole)}")
    return parts, said


def _runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Adjacent numbers together."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


def said_of(law: Any) -> str:
    """A distribution in words."""
    values = [getattr(law, name) for name in getattr(law, "arg_constraints", {}) if name in law.__dict__]
    return f"{type(law).__name__}({', '.join(f'{float(v):g}' if np.ndim(v) == 0 else '...' for v in values)})"
