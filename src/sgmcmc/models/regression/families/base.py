"""What a family is: a log density for each row, a mean, draws, and the parameters that are its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import numpy as np

Own: TypeAlias = Mapping[str, Any]
"""A family's own parameters by name, such as `sigma`."""

Density: TypeAlias = Callable[[str, jax.Array, Own, Mapping[str, Any]], jax.Array]
"""`f(link, eta, own, rows)`, one value for each row; rows have the outcome as `y`."""

Draw: TypeAlias = Callable[[jax.Array, str, jax.Array, Own, Mapping[str, Any]], jax.Array]
"""`f(key, link, eta, own, rows)`."""


@dataclass(frozen=True)
class Outcome:
    """What was observed, in short: as many numbers as starts and priors need.

    Attributes:
        mean: of the outcome; for trials, the share of them.
        sd: its standard deviation.
        shares: how often each class is, where there are classes.
    """

    mean: float
    sd: float
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Extra:
    """A parameter of a family's own.

    Attributes:
        name: its name.
        constraint: the name of a NumPyro constraint.
        prior: makes the default prior, a NumPyro distribution, of what was observed.
        start: makes the starting value of it.
        unit: whether it is in units of the outcome.
        said: the default prior in words.
    """

    name: str
    constraint: str
    prior: Callable[[Outcome], Any]
    start: Callable[[Outcome], Any]
    said: str
    unit: bool = False


@dataclass(frozen=True)
class Family:
    """A family of distributions.

    Attributes:
        name: its name.
        links: the links it has, the usual one first.
        log_density: the log density of every row.
        mean: the expected outcome of every row; of classes, the probabilities of all.
        simulate: an outcome for every row.
        kind: what outcomes may be: "real", "positive", "count", "truth", "share", "trials", "class" or "order".
        extras: the family's own parameters.
        scaled: whether outcomes are standardised inside, where the link is the identity.
        censored: whether an outcome may be known to be larger only.
    """

    name: str
    links: tuple[str, ...]
    log_density: Density
    mean: Density
    simulate: Draw
    kind: str
    extras: tuple[Extra, ...] = ()
    scaled: bool = False
    censored: bool = False
    said: str = field(default="", repr=False)

    @property
    def whole(self) -> bool:
        """Whether outcomes are whole numbers."""
        return self.kind in ("count", "trials", "truth", "class", "order")

    @property
    def classes(self) -> bool:
        """Whether a row has a linear predictor for each class but the first."""
        return self.kind == "class"

    @property
    def ordered(self) -> bool:
        """Whether thresholds stand in place of an intercept."""
        return self.kind == "order"

    def start_of_intercept(self, link: str, outcome: Outcome) -> Any:
        """The intercept of a model without columns."""
        from sgmcmc.models.regression.links import FORWARD

        if self.ordered:
            return 0.0
        if self.classes:
            shares = np.asarray(outcome.shares)
            return np.log(shares[1:] / shares[0])
        return float(FORWARD[link](outcome.mean))


def positive_start(value: float) -> Callable[[Outcome], float]:
    """A start that does not depend on what was observed."""
    return lambda _: value
