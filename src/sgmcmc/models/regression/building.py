"""From formula and frame to a design, and from it to the regression that it stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.core import Columns, Core, Group
from sgmcmc.models.regression.design import Design, check_levels, common_parts, expression_columns, varying_parts
from sgmcmc.models.regression.facts import look
from sgmcmc.models.regression.families import Family
from sgmcmc.models.regression.formula import Parsed, parse
from sgmcmc.models.regression.functions import DATE_FUNCTIONS, unknown_name
from sgmcmc.models.regression.matrix import factors_of, level_column, terms_of, variables_of
from sgmcmc.models.regression.missing import Missing, filling
from sgmcmc.models.regression.predictor import Effects
from sgmcmc.models.regression.response import check_order, find_response
from sgmcmc.models.regression.sources import Source, find_source


def build_design(
    formula: str, frame: Any, family: Family, link: str, *, missing: Any = None, weights: str | None = None, levels: Any = None
) -> tuple[Design, Source]:
    """The design of a formula and the rows it is for, looked at once."""
    source = find_source(frame)
    parsed = written_out(parse(formula), source.names, weights)
    terms, needed, observed = needed_of(parsed, source.names, weights)
    told, order = Missing.of(missing, needed), check_levels(levels, needed)
    keyed = _keyed(parsed, terms, family, needed)
    counts: dict[str, int] = {}
    facts = look(filling(source, told, counts), needed, keyed, told.drop, order, _as_dates(parsed, terms))
    for name, count in counts.items():
        facts.columns[name].missing = max(count, facts.columns[name].missing)
    told.check(facts, facts.n_rows + facts.dropped, observed)
    told = told.settled(facts)
    facts = replace(facts, sample=told.filled(facts.sample), corners=told.filled(facts.corners))
    if family.ordered:
        check_order(parsed.outcome.strip("`"), facts, parsed.outcome in order)
    matrix, coded = common_parts(terms, facts, spread=not family.classes)
    response = find_response(parsed, family, link, facts, matrix.intercept)
    _check_suits(family, matrix.intercept, parsed)
    varying = varying_parts(parsed.groupings, facts)
    design = Design(matrix, coded, varying, parsed.offsets, response, weights, told, facts, tuple(needed), tuple(observed))
    return design, source


def needed_of(parsed: Parsed, names: list[str], weights: str | None) -> tuple[list[Any], list[str], list[str]]:
    """The common terms, the columns that are needed for all, and those that are observed only."""
    observed = _observed(parsed, names, weights)
    terms = terms_of(parsed.common)
    used = variables_of(terms, names)
    for grouping in parsed.groupings:
        used += variables_of(terms_of(grouping.varying), names)
        for name in grouping.by:
            if name.strip("`") not in names:
                raise unknown_name(name, names, f"({grouping.varying} | {grouping.name})")
        used += [name.strip("`") for name in grouping.by]
    used += [name for text in parsed.offsets for name in expression_columns({"offset": text}, names)]
    outcome = expression_columns({"outcome": parsed.outcome}, names)
    if parsed.form == "proportion" and parsed.second is not None:
        used += expression_columns({"trials": parsed.second}, names)
    if both := set(outcome) & set(used):
        raise InputError(f"formula has {sorted(both)[0]!r} on both sides of ~; leave it out of the right one")
    return terms, list(dict.fromkeys([*observed, *used])), [name for name in dict.fromkeys(observed) if name not in used]


def _observed(parsed: Parsed, names: list[str], weights: str | None) -> list[str]:
    """The columns of the outcome, of what stands beside it, and of the weights."""
    outcome = expression_columns({"outcome": parsed.outcome}, names)
    beside = [] if parsed.second is None else expression_columns({"outcome": parsed.second}, names)
    return [*outcome, *beside, *([] if weights is None else expression_columns({"weights": weights}, names))]


def written_out(parsed: Parsed, names: list[str], weights: str | None) -> Parsed:
    """All other columns in place of a dot."""
    if "." not in parsed.common.split():
        return parsed
    apart = _observed(parsed, names, weights)
    others = " + ".join(f"`{name}`" for name in names if name not in apart)
    return replace(parsed, common=" ".join(others if word == "." else word for word in parsed.common.split()))


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
