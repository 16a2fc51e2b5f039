"""`glm`: a regression in one line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.building import build_design, core_of
from sgmcmc.models.regression.core import Core
from sgmcmc.models.regression.design import Design
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.result import Regression
from sgmcmc.models.regression.storing import removed_with, stored
from sgmcmc.models.regression.written import written
from sgmcmc.results.words import Decisions
from sgmcmc.samplers.sample import sample

OURS = ("log_lik", "dataset", "params", "log_prior", "constraints", "coords", "dims")
"""Arguments of `sample` that a formula stands for."""


def glm(
    formula: str,
    frame: Any,
    *,
    family: str = "gaussian",
    link: str | None = None,
    priors: Mapping[str, Any] | None = None,
    missing: Any = None,
    weights: str | None = None,
    levels: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    seed: Any = None,
    checkpoint: str | Path | None = None,
    progress: Progress = True,
    **sampling: Any,
) -> Regression:
    """A regression by formula, with nothing to tune: draws from its posterior, by name and on the scale of the columns.

    The right-hand side is that of R and formulaic: `a * b`, `C(region)`, `poly(age, 2)`, `bs(age, df=5)`, `center(x)`, `log(x)`,
    `{x / y}`; text columns are levels. Beside it `offset(log(exposure))` adds as it is, `(1 + x | region)` varies over groups
    (`||` without correlations, `a/b` nested, `a:b` crossed), and of dates there are `year`, `month`, `weekday` and `days`. To
    the left of `~` stands a column, an expression, `proportion(deaths, people)` for counts among trials, or
    `censored(time, event)` for times that may not have been reached.

    Columns are standardised inside and reported as they came. What priors are, which level counts and what was done about
    missing values is in `decisions`.

    Args:
        formula: such as `"claims ~ age + C(region) + offset(log(exposure))"`.
        frame: a pandas or polars frame (lazy too), a pyarrow table, a dict of columns, or the path of CSV, Parquet or Arrow files
            (or several, or a pattern), which need not fit in memory.
        family: "gaussian", "student", "bernoulli", "binomial", "categorical", "ordinal", "poisson", "negative binomial", "zero
            inflated poisson", "gamma", "beta", "weibull" or "exponential".
        link: "identity", "log", "logit", "probit" or "cloglog", where the family has it; its usual one when left out.
        priors: NumPyro distributions by name, on the user's scale: of a term, `"Intercept"`, all `"coefficients"`, a parameter
            of the family such as `"sigma"`, `"sd(region)"`, `"corr(region)"`.
        missing: None refuses missing values, "drop" leaves such rows out, and a dict says by column what goes there:
            `{"age": "median", "region": "unknown", "bmi": "drop"}`.
        weights: a column, or an expression, that says how often each row counts.
        levels: the levels of text columns in their order, the baseline first: `{"grade": ["low", "middle", "high"]}`.
        folder: where rows go that do not fit in memory; left out, beside the checkpoint or into a temporary folder.
        seed: as of `sample`.
        checkpoint: as of `sample`.
        progress: as of `sample`.
        sampling: what else `sample` takes: `draws`, `chains`, `target_ess`, `engine`, `keep`.

    >>> import numpy as np, sgmcmc
    >>> rng = np.random.default_rng(0)
    >>> frame = {"age": rng.uniform(20, 80, 2_000), "region": rng.choice(["North", "South"], 2_000)}
    >>> frame["claims"] = rng.poisson(np.exp(-1 + 0.02 * frame["age"]))
    >>> fit = sgmcmc.glm("claims ~ age + region", frame, family="poisson", seed=1, progress=False)
    >>> list(fit.summary().index)
    ['Intercept', 'age', 'region[South]']
    """
    _check_sampling(sampling)
    chosen, link = find_family(family, link)
    design, source = build_design(formula, frame, chosen, link, missing=missing, weights=weights, levels=levels)
    core = core_of(design, chosen, link)
    found = core.priors(priors)
    told = _decided(design, core, found.said)
    beside = None if checkpoint is None else written(design, core, priors or {}, told)
    with stored(design, source, folder, checkpoint, progress) as (dataset, passing):
        model = replace(core.model(dataset, found), beside=beside)
        inner = sample(model, seed=seed, checkpoint=checkpoint, progress=progress, **sampling)
        assert inner.model is not None
        removed_with(inner.model, passing)
    inner = replace(inner, decisions=told + inner.decisions)
    return Regression.of(inner, core, design.kept(), priors)


def _check_sampling(sampling: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(sample).parameters if name not in OURS]
    unknown = next((name for name in sampling if name not in known), None)
    if unknown is not None:
        here = [name for name in inspect.signature(glm).parameters if name not in ("formula", "frame", "sampling")]
        raise InputError(f"glm has no argument {unknown!r}; it has {', '.join(dict.fromkeys([*here, *known]))}")


def _decided(design: Design, core: Core, said: tuple[str, ...]) -> Decisions:
    """What was decided about rows and priors."""
    told, facts = Decisions(), design.facts
    if sentence := design.missing.said(facts):
        told = told.and_then("missing", {name: column.missing for name, column in facts.columns.items()}, sentence)
    if design.response.said:
        told = told.and_then("levels", core.classes, design.response.said)
    for one in design.varying:
        how = "themselves" if one.centred else "multiples of their scale"
        why = f"{len(one.levels.labels):,} groups with {one.rows_each:,.0f} rows in the middle"
        told = told.and_then(f"effects of {one.name}", one.centred, f"The effects of {one.name} are written as {how}: {why}.")
    unit = " times the outcome's sd" if core.scale != 1 else ""
    default = f"Priors: a change of one sd of a column, or from 0 to 1 of a level, has an effect of Normal(0, 2.5){unit}"
    more = f"; {'; '.join(said)}" if said else ""
    return told.and_then("priors", said, f"{default}{more}.")
