"""All models by name, each also in a small version that shows that it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.everyday.cases import Case
from benchmarks.models import classics, families, hierarchies, regressions

SMALL = " (small)"
"""What the name of a small version ends with."""

PATIENCE = 900.0
"""Seconds after which a fit counts as not ended."""


@dataclass(frozen=True)
class Model:
    """How its case is built: from a seed and sizes, those of the table and small ones; `bar` is for its seconds."""

    build: Callable[..., Case]
    sizes: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    bar: float | None = None


MODELS: dict[str, Model] = {
    "Poisson, varying intercepts": Model(
        hierarchies.poisson_intercepts, {"rows": 300_000, "groups": 300}, {"rows": 20_000, "groups": 30}, 60.0
    ),
    "Poisson, varying intercepts and slopes": Model(
        hierarchies.poisson_slopes, {"rows": 300_000, "groups": 300}, {"rows": 20_000, "groups": 30}, 60.0
    ),
    "Poisson, intercepts and slopes of 10,000 groups": Model(
        hierarchies.many_groups, {"rows": 1_000_000, "groups": 10_000}, {"rows": 20_000, "groups": 200}, 180.0
    ),
    "logistic, intercepts not centred": Model(
        hierarchies.logistic_not_centred, {"rows": 50_000, "groups": 200}, {"rows": 5_000, "groups": 20}, 60.0
    ),
    "item response": Model(hierarchies.item_response, {"persons": 500, "items": 40}, {"persons": 100, "items": 10}),
    "horseshoe logistic": Model(regressions.horseshoe_logistic, {"rows": 50_000, "columns": 200}, {"rows": 5_000, "columns": 20}),
    "linear, 300 columns": Model(
        regressions.linear_many, {"rows": 100_000, "columns": 300}, {"rows": 20_000, "columns": 30}, 20.0
    ),
    "logistic, 2,500 columns": Model(
        regressions.logistic_many, {"rows": 100_000, "columns": 2_500}, {"rows": 10_000, "columns": 50}, 60.0
    ),
    "logistic, rare levels": Model(families.rare_levels, {"rows": 100_000}, {"rows": 4_000}),
    "Poisson, exposures and rare columns": Model(families.exposures, {"rows": 100_000}, {"rows": 4_000}),
    "Student-t regression": Model(families.student, {"rows": 50_000}, {"rows": 4_000}),
    "negative binomial": Model(families.negative_binomial, {"rows": 50_000}, {"rows": 4_000}),
    "ordinal": Model(families.ordinal, {"rows": 50_000}, {"rows": 4_000}),
    "Weibull, censored": Model(families.weibull, {"rows": 50_000}, {"rows": 4_000}),
    "mixture of two normals": Model(families.mixture, {"rows": 50_000}, {"rows": 4_000}),
    "kidiq: linear with a product": Model(classics.kidiq),
    "earnings: logarithms, own units": Model(classics.earnings),
    "diamonds: nearly equal columns": Model(classics.diamonds),
    "nes: logistic": Model(classics.nes),
    "wells: logistic with a product": Model(classics.wells),
    "radon: varying intercepts": Model(classics.radon),
    "election88: crossed effects": Model(classics.election),
}


def build(name: str, seed: int) -> Case:
    """The case of a name, small where that says so."""
    model = MODELS[name.removesuffix(SMALL)]
    small = name.endswith(SMALL)
    case = model.build(seed, **(model.small if small else model.sizes))
    return replace(case, most_seconds=None if small else model.bar, patience=PATIENCE)


def names(small: bool = False) -> list[str]:
    """Of all models, in the order of the table; in their small versions, where they are not small anyway."""
    return [f"{name}{SMALL}" if small and model.small else name for name, model in MODELS.items()]
