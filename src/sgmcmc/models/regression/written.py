"""A regression as data, for files and folders: all that turns rows of a frame into rows of the model, and back again.

Numbers, text and arrays alone. What a file says of a formula goes through the checks that a user's formula goes through, and
reaches columns and the known functions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError, SgmcmcError, describe
from sgmcmc.core.trees import PyTree
from sgmcmc.models.regression.building import core_of, needed_of
from sgmcmc.models.regression.columns import DATE, NUMBER, TEXT, Levels, as_text
from sgmcmc.models.regression.core import Core
from sgmcmc.models.regression.design import Coded, Design, Varying
from sgmcmc.models.regression.facts import Column, Facts
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.families.base import Outcome
from sgmcmc.models.regression.formula import parse
from sgmcmc.models.regression.laws import read_law, written_law
from sgmcmc.models.regression.matrix import Matrix, terms_of, written_matrix
from sgmcmc.models.regression.missing import Missing
from sgmcmc.models.regression.priors import said_of
from sgmcmc.models.regression.response import Response
from sgmcmc.models.regression.sources import Frame

KIND = "regression"


def written(design: Design, core: Core, priors: Mapping[str, Any], decisions: Any = None) -> PyTree:
    """A regression as a tree of numbers, text and arrays."""
    response = design.response
    return {
        "kind": KIND,
        "formula": {"text": response.parsed.text, "common": response.parsed.common},
        "family": core.family.name,
        "link": core.link,
        "weights": design.weights,
        "missing": {"drop": list(design.missing.drop), "fill": {name: _value(v) for name, v in design.missing.fill.items()}},
        "facts": _written_facts(design.kept().facts),
        "response": {
            "levels": response.levels is not None,
            "shift": response.shift,
            "scale": response.scale,
            "outcome": asdict(response.outcome),
        },
        "matrix": written_matrix(design.matrix),
        "coded": [{"name": one.name, "by": list(one.levels.by)} for one in design.coded],
        "varying": [
            {"matrix": written_matrix(one.matrix), "centred": one.centred, "rows each": one.rows_each} for one in design.varying
        ],
        "mean offset": core.mean_offset,
        "priors": {name: written_law(law) or {"said": said_of(law)} for name, law in priors.items()},
        "decisions": decisions,
    }


def read_design(tree: Any) -> tuple[Design, Core]:
    """The design and the regression that it stands for."""
    family, link = find_family(tree["family"], tree["link"])
    parsed = replace(parse(tree["formula"]["text"]), common=tree["formula"]["common"])
    facts, weights = _read_facts(tree["facts"]), tree["weights"]
    terms, needed, observed = needed_of(parsed, list(facts.columns), weights)
    told = tree["response"]
    name = parsed.outcome.strip("`")
    levels = facts.levels[(name,)] if told["levels"] else None
    response = Response(parsed, family, levels, told["shift"], told["scale"], Outcome(**told["outcome"]))
    coded = tuple(Coded(one["name"], facts.levels[tuple(one["by"])]) for one in tree["coded"])
    common = [term for term in terms if str(term) not in [one.name for one in coded]]
    varying = tuple(
        Varying(grouping, facts.levels[grouping.by], Matrix.read(terms_of(grouping.varying), facts, one["matrix"]),
                bool(one["centred"]), one["rows each"])
        for grouping, one in zip(parsed.groupings, tree["varying"], strict=True)
    )  # fmt: skip
    missing = Missing(tuple(tree["missing"]["drop"]), {key: _read_value(v) for key, v in tree["missing"]["fill"].items()})
    matrix = Matrix.read(common, facts, tree["matrix"])
    design = Design(matrix, coded, varying, parsed.offsets, response, weights, missing, facts, tuple(needed), tuple(observed))
    return design, replace(core_of(design, family, link), mean_offset=tree["mean offset"])


def read_priors(tree: Any) -> tuple[dict[str, Any], list[str]]:
    """The priors that the user told, and in words those that a file cannot hold."""
    laws = {name: read_law(one) for name, one in tree["priors"].items() if "law" in one}
    return laws, [f"{name} ~ {one['said']}" for name, one in tree["priors"].items() if "said" in one]


def check_kind(tree: Any) -> None:
    """Refuse what this release does not know."""
    kind = tree.get("kind") if isinstance(tree, Mapping) else None
    if not isinstance(kind, str) or kind != KIND:
        found = f"the run has something beside its draws that this release cannot read, {describe(tree)}"
        raise SgmcmcError(f"{found}; use the release that wrote it")


def _written_facts(facts: Facts) -> dict[str, Any]:
    columns = {name: asdict(column) | {"order": column.order and list(column.order)} for name, column in facts.columns.items()}
    levels = [
        {"by": list(by), "labels": list(one.labels), "counts": np.asarray(facts.counts[by])} for by, one in facts.levels.items()
    ]
    sample = {name: _written_column(facts.sample[name], facts.kind(name)) for name in facts.sample}
    return {"rows": facts.n_rows, "dropped": facts.dropped, "columns": columns, "levels": levels, "sample": sample}


def _read_facts(told: Any) -> Facts:
    import pandas

    columns = {
        name: Column(**(one | {"name": name, "order": None if one["order"] is None else tuple(one["order"])}))
        for name, one in told["columns"].items()
    }
    for name, column in columns.items():
        if column.kind not in (None, NUMBER, TEXT, DATE):
            raise InputError(f"the file says that the column {name!r} has {describe(column.kind)}")
    levels = {tuple(one["by"]): Levels(tuple(one["by"]), tuple(map(str, one["labels"]))) for one in told["levels"]}
    counts = {tuple(one["by"]): np.asarray(one["counts"]) for one in told["levels"]}
    sample = pandas.DataFrame({name: _read_column(one) for name, one in told["sample"].items()})
    if absent := [name for name in columns if name not in sample]:
        raise InputError(f"the file has no rows of the column {absent[0]!r}")
    return Facts(told["rows"], told["dropped"], columns, levels, counts, sample, sample.iloc[:0])


def _written_column(values: Any, kind: str) -> dict[str, Any]:
    """Text as numbers of its labels, dates as whole numbers of their unit."""
    import pandas

    if kind == TEXT:
        codes, labels = pandas.factorize(as_text(values))
        return {"codes": codes.astype(np.int32), "labels": [str(one) for one in labels]}
    if kind == DATE:
        dates = values.to_numpy()
        return {"dates": dates.astype(np.int64), "unit": np.datetime_data(dates.dtype)[0]}
    return {"numbers": values.to_numpy(np.float64)}


def _read_column(told: Any) -> Frame:
    import pandas

    if "codes" in told:
        return pandas.Series(np.asarray([*told["labels"], None], object)[np.asarray(told["codes"])], dtype=object)
    if "dates" in told:
        return pandas.Series(np.asarray(told["dates"]).view(f"datetime64[{told['unit']}]"))
    return pandas.Series(np.asarray(told["numbers"], np.float64))


def _value(value: Any) -> Any:
    """What goes in the place of missing values."""
    if hasattr(value, "isoformat"):
        return {"date": value.isoformat()}
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"missing has {describe(value)}, which a file cannot hold; expected a number, a text or a date")


def _read_value(value: Any) -> Any:
    import pandas

    return pandas.Timestamp(value["date"]) if isinstance(value, dict) else value
