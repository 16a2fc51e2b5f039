"""`glm`: a regression in one line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.core import Columns, Core, Group
from sgmcmc.models.regression.design import Design, check_levels, common_parts, expression_columns, varying_parts
from sgmcmc.models.regression.facts import look
from sgmcmc.models.regression.families import Family, find_family
from sgmcmc.models.regression.formula import Parsed, parse
from sgmcmc.models.regression.functions import DATE_FUNCTIONS, unknown_name
from sgmcmc.models.regression.matrix import factors_of, level_column, terms_of, variables_of
from sgmcmc.models.regression.missing import Missing, filling
from sgmcmc.models.regression.predictor import Effects
from sgmcmc.models.regression.response import check_order, find_response
from sgmcmc.models.regression.result import Regression
from sgmcmc.models.regression.sources import Source, find_source
from sgmcmc.models.regression.storing import removed_with, stored
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
    with stored(design, source, folder, checkpoint, progress) as (dataset, passing):
        inner = sample(core.model(dataset, found), seed=seed, checkpoint=checkpoint, progress=progress, **sampling)
        assert inner.model is not None
        removed_with(inner.model, passing)
    told = _decided(design, core, found.said)
    inner = replace(inner, decisions=told + inner.decisions)
    return Regression.of(inner, core, design.kept())


def _check_sampling(sampling: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(sample).parameters if name not in OURS]
    unknown = next((name for name in sampling if name not in known), None)
    if unknown is not None:
        here = [name for name in inspect.signature(glm).parameters if name not in ("formula", "frame", "sampling")]
        raise InputError(f"glm has no argument {unknown!r}; it has {', '.join(dict.fromkeys([*here, *known]))}")


def build_design(
    formula: str, frame: Any, family: Family, link: str, *, missing: Any = None, weights: str | None = None, levels: Any = None
) -> tuple[Design, Source]:
    """The design of a formula and the rows it is for, looked at once."""
    parsed, source = parse(formula), find_source(frame)
    terms, needed, observed = _needed(parsed, source, weights)
    told, order = Missing.of(missing, needed), check_levels(levels, needed)
    keyed = _keyed(parsed, terms, family, needed)
    counts: dict[str, int] = {}
    facts = look(filling(source, told, counts), needed, keyed, told.drop, order, _as_dates(parsed, terms))
    for name, count in counts.items():
        facts.columns[name].missing = max(count, facts.columns[name].missing)
    told.check(facts, facts.n_rows + facts.dropped)
    told = told.settled(facts)
    facts = replace(facts, sample=told.filled(facts.sample), corners=told.filled(facts.corners))
    if family.ordered:
        check_order(parsed.outcome.strip("`"), facts, parsed.outcome in order)
    response = find_response(parsed, family, link, facts)
    matrix, coded = common_parts(terms, facts, spread=not family.classes)
    _check_suits(family, matrix.intercept, parsed)
    varying = varying_parts(parsed.groupings, facts)
    design = Design(matrix, coded, varying, parsed.offsets, response, weights, told, facts, tuple(needed), tuple(observed))
    return design, source


def _needed(parsed: Parsed, source: Source, weights: str | None) -> tuple[list[Any], list[str], list[str]]:
    """The common terms, the columns that are needed for all, and those that are observed only."""
    names = source.names
    outcome = expression_columns({"outcome": parsed.outcome}, names)
    beside = [] if parsed.second is None else expression_columns({"outcome": parsed.second}, names)
    weighing = [] if weights is None else expression_columns({"weights": weights}, names)
    terms = terms_of(_without_dot(parsed, names, {*outcome, *beside, *weighing}))
    used = variables_of(terms, names)
    for grouping in parsed.groupings:
        used += variables_of(terms_of(grouping.varying), names)
        for name in grouping.by:
            if name.strip("`") not in names:
                raise unknown_name(name, names, f"({grouping.varying} | {grouping.name})")
        used += [name.strip("`") for name in grouping.by]
    used += [name for text in parsed.offsets for name in expression_columns({"offset": text}, names)]
    used += beside if parsed.form == "proportion" else []
    if outcome and (both := set(outcome) & set(used)):
        raise InputError(f"formula has {sorted(both)[0]!r} on both sides of ~; leave it out of the right one")
    observed = [name for name in dict.fromkeys([*outcome, *beside, *weighing]) if name not in used]
    return terms, list(dict.fromkeys([*outcome, *beside, *weighing, *used])), observed


def _without_dot(parsed: Parsed, names: list[str], apart: set[str]) -> str:
    """The common part, all other columns in place of a dot."""
    if "." not in parsed.common.split():
        return parsed.common
    others = " + ".join(f"`{name}`" for name in names if name not in apart)
    return " ".join(others if word == "." else word for word in parsed.common.split())


def _keyed(parsed: Parsed, terms: list[Any], family: Family, needed: list[str]) -> list[tuple[str, ...]]:
    """What has levels though it may not be text."""
    keyed = [grouping.by for grouping in parsed.groupings]
    for term in [*terms, *(one for grouping in parsed.groupings for one in terms_of(grouping.varying))]:
        columns = [level_column(factor) for factor in factors_of(term)]
        keyed += [(column,) for column in columns if column in needed]
    if family.kind in ("class", "order") and parsed.outcome.strip("`") in needed:
        keyed.append((parsed.outcome.strip("`"),))
    return list(dict.fromkeys(keyed))


def _as_dates(parsed: Parsed, terms: list[Any]) -> list[str]:
    """Columns that are dates wherever they are used, though they may be text."""
    texts = [factor for term in terms for factor in factors_of(term)] + list(parsed.offsets)
    words = [text.replace("(", " ( ").replace(")", " ) ").split() for text in texts]
    inside = [two for one in words for call, _, two in zip(one, one[1:], one[2:], strict=False) if call in DATE_FUNCTIONS]
    return list(dict.fromkeys(name.strip("`") for name in inside))


def _check_suits(family: Family, intercept: bool, parsed: Parsed) -> None:
    if family.classes and parsed.groupings:
        raise InputError("the family 'categorical' has no varying effects; use C(...) terms, or 'bernoulli' for one class")
    if family.ordered and not intercept:
        raise InputError("the family 'ordinal' has thresholds in place of an intercept; leave the 0 or -1 out of the formula")


def core_of(design: Design, family: Family, link: str) -> Core:
    """The regression that a design stands for."""
    matrix, response = design.matrix, design.response
    terms = tuple((term.name, term.labels, term.start, term.stop) for term in matrix.terms)
    classes = response.levels.labels if response.levels is not None and response.classes else ()
    coded = tuple((one.name, one.rows_name, one.levels.labels[1:]) for one in design.coded)
    return Core(
        family, link, Columns(terms, matrix.names, matrix.means, matrix.scales), matrix.intercept, response.outcome, coded,
        tuple(map(_group, design.varying)), response.shift, response.scale, classes, bool(design.offsets),
        design.weights is not None, _mean_offset(design, link),
    )  # fmt: skip


def _group(one: Any) -> Group:
    effects = Effects(one.name, one.rows_name, one.slopes_name, len(one.parts), one.matrix.intercept, one.centred, one.correlated)
    return Group(effects, one.levels.labels, one.parts, one.matrix.means, one.matrix.scales)


def _mean_offset(design: Design, link: str) -> float:
    """What offsets add in the middle, so that the intercept starts there."""
    if not design.offsets:
        return 0.0
    values = design.of_typed(design.facts.sample)["offset"].astype(np.float64)
    return float(np.log(np.mean(np.exp(values - values.max()))) + values.max()) if link == "log" else float(values.mean())


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
