"""Design matrices: columns by formulaic, fitted on some rows, standardised, and remembered for others."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.models.regression.columns import DATE, Levels
from sgmcmc.models.regression.facts import Facts
from sgmcmc.models.regression.functions import DATE_FUNCTIONS, columns_of, unknown_name
from sgmcmc.models.regression.sources import Frame

MOST_COLUMNS = 3000
"""Columns of a design matrix beyond which something is a level that should not be one."""

MOST_SPREAD = 20
"""Levels up to which a term of levels has a column for each; beyond, the rows keep the number of their level."""

OF_ORDER = ("lag",)
"""Functions of formulaic whose value depends on the rows before."""

OF_CODINGS = "contrasts"
"""What formulaic remembers of codings for people to look at; it makes them anew from the formula."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Term:
    """A term: its name, and what its columns are called where there are several."""

    name: str
    labels: tuple[str, ...]
    start: int
    stop: int

    @property
    def single(self) -> bool:
        return self.stop - self.start == 1 and not self.labels


@dataclass(frozen=True)
class Matrix:
    """Columns of a design, without the intercept: `of` makes them of any rows."""

    spec: Any
    intercept: bool
    terms: tuple[Term, ...]
    means: np.ndarray
    scales: np.ndarray
    keyed: tuple[Levels, ...] = ()
    names: tuple[str, ...] = ()
    keep: tuple[int, ...] = field(default=(), repr=False)

    @property
    def width(self) -> int:
        return len(self.names)

    def raw(self, block: Frame, first_row: int = 0) -> np.ndarray:
        """The columns as they are."""
        if not self.width:
            return np.zeros((len(block), 0))
        for levels in self.keyed:
            levels.known_codes(block, first_row)
        made = _guarded(lambda: self.spec.get_model_matrix(as_categories(block, self.keyed), context=CONTEXT), "formula")
        values = np.asarray(made, np.float64)[:, list(self.keep)]
        check_finite(values, self.names, first_row)
        return values

    def of(self, block: Frame, first_row: int = 0) -> np.ndarray:
        """The columns, standardised."""
        return (self.raw(block, first_row) - self.means) / self.scales

    @classmethod
    def read(cls, terms: list[Any], facts: Facts, told: Mapping[str, Any]) -> Matrix:
        """Of these terms, as `written_matrix` wrote it: formulaic makes one row with what it had remembered."""
        from formulaic import ModelSpec
        from formulaic.materializers import NAAction
        from formulaic.parser.types import Factor

        keyed = keyed_levels(terms, facts)
        state = {factor: (Factor.Kind(kind), _read_state(inside)) for factor, (kind, inside) in told["encoders"].items()}
        spec = ModelSpec(
            formulaic().formula.SimpleFormula(terms), na_action=NAAction.IGNORE, transform_state=_read_state(told["transforms"]),
            encoder_state=state,
        )  # fmt: skip
        row = as_categories(facts.sample.iloc[:1], keyed)
        made = _guarded(lambda: spec.get_model_matrix(row, context=CONTEXT), "formula")
        columns = [str(name) for name in made.columns]
        if columns != list(told["columns"]):
            found = f"the formula makes the columns {', '.join(columns[:10])}, and the file has {', '.join(told['columns'][:10])}"
            raise InputError(f"{found}; use the release of formulaic that wrote it")
        keep = tuple(place for place, name in enumerate(columns) if name != "Intercept")
        intercept = any(not factors_of(term) for term in terms)
        names = tuple(pretty(columns[place]) for place in keep)
        means, scales = (np.asarray(told[name], np.float64).reshape(len(keep)) for name in ("means", "scales"))
        return cls(made.model_spec, intercept, _terms(made.model_spec, columns, keep), means, scales, keyed, names, keep)


def written_matrix(matrix: Matrix) -> dict[str, Any]:
    """What a matrix remembers, as numbers, text and arrays: of levels the order, from which formulaic makes the codings again."""
    spec = matrix.spec
    encoders = {factor: [kind.value, _written_state(inside, factor)] for factor, (kind, inside) in spec.encoder_state.items()}
    columns = [name for one in spec.structure for name in one.columns]
    told = {"encoders": encoders, "transforms": _written_state(dict(spec.transform_state), "formula"), "columns": columns}
    return told | {"means": matrix.means, "scales": matrix.scales}


def _written_state(state: Any, what: str) -> Any:
    """What formulaic remembers of a transform; keys may be numbers."""
    if isinstance(state, dict):
        kept = {key: value for key, value in state.items() if key != OF_CODINGS}
        return {"keys": list(kept), "values": [_written_state(value, str(key)) for key, value in kept.items()]}
    if isinstance(state, list | tuple):
        return [_written_state(value, what) for value in state]
    state = state.item() if isinstance(state, np.generic) else state
    if state is None or isinstance(state, bool | int | float | str | np.ndarray):
        return state
    raise InputError(f"{what} remembers {describe(state)}, which files cannot hold; use another transform")


def _read_state(told: Any) -> Any:
    if isinstance(told, dict):
        return dict(zip(told["keys"], map(_read_state, told["values"]), strict=True))
    return [_read_state(value) for value in told] if isinstance(told, list) else told


CONTEXT: dict[str, Any] = dict(DATE_FUNCTIONS)


def formulaic() -> Any:
    """The library of formulas, which is an extra."""
    try:
        return importlib.import_module("formulaic")
    except ImportError as error:
        raise InputError("formulas need formulaic, which is not installed; pip install 'sgmcmc[regression]'") from error


def terms_of(text: str) -> list[Any]:
    """The terms of a right-hand side, as formulaic has them."""
    found = _guarded(lambda: formulaic().Formula(text), f"formula {text!r}")
    if not isinstance(found, formulaic().formula.SimpleFormula):
        raise InputError(f"formula {text!r} has several parts; expected one right-hand side")
    return list(found)


def variables_of(terms: list[Any], names: list[str]) -> list[str]:
    """The columns that terms use; an unknown name is refused."""
    from formulaic.transforms import TRANSFORMS

    used = []
    for factor in (factor for term in terms for factor in term.factors):
        if factor.eval_method.name == "LOOKUP":
            if factor.expr not in names:
                raise unknown_name(factor.expr, names, "formula")
            used.append(factor.expr)
        elif factor.eval_method.name == "PYTHON":
            _refuse_order(factor.expr)
            used += columns_of(factor.expr, names, "formula", {*TRANSFORMS, *CONTEXT})
    return list(dict.fromkeys(used))


def _refuse_order(expression: str) -> None:
    for name in OF_ORDER:
        if re.search(rf"\b{name}\s*\(", expression):
            raise InputError(f"formula uses {name}(), which looks at other rows; make it a column of the frame before")


def factors_of(term: Any) -> list[str]:
    """What a term multiplies, without numbers."""
    return [factor.expr for factor in term.factors if factor.eval_method.name != "LITERAL"]


def level_column(factor: str) -> str | None:
    """The column of a factor `C(column)`."""
    found = re.match(r"C\(\s*`?([^,`()]+?)`?\s*[,)]", factor)
    return found[1] if found else None


def fit_matrix(terms: list[Any], facts: Facts, centred: bool = True) -> Matrix:
    """Transforms and columns of these terms, from the sample; numbers are centred where there is an intercept."""
    intercept = any(not factors_of(term) for term in terms)
    keyed = keyed_levels(terms, facts)
    _check_dates(terms, facts)
    _check_width(terms, keyed)
    rows, whole = _fitting_rows(facts)
    formula = formulaic().formula.SimpleFormula(terms)
    made = _guarded(lambda: formula.get_model_matrix(as_categories(rows, keyed), context=CONTEXT, na_action="ignore"), "formula")
    spec = made.model_spec
    if not whole:
        _use_exact_moments(spec, facts)
        made = spec.get_model_matrix(as_categories(rows, keyed), context=CONTEXT)
    columns = [str(name) for name in made.columns]
    keep = tuple(place for place, name in enumerate(columns) if name != "Intercept")
    values = np.asarray(made, np.float64)[: len(facts.sample)][:, list(keep)]
    names = tuple(pretty(columns[place]) for place in keep)
    check_finite(values, names, 0)
    means, scales = _moments(values, names, intercept)
    found = _terms(spec, columns, keep)
    return Matrix(spec, intercept, found, means if intercept and centred else 0 * means, scales, keyed, names, keep)


def keyed_levels(terms: list[Any], facts: Facts) -> tuple[Levels, ...]:
    """The levels of the columns that terms take apart."""
    used = {name for term in terms for factor in factors_of(term) for name in (factor, level_column(factor)) if name}
    return tuple(levels for by, levels in facts.levels.items() if len(by) == 1 and by[0] in used)


def as_categories(block: Frame, keyed: tuple[Levels, ...]) -> Frame:
    """A block whose text columns know all of their levels, with the same numbers in any block."""
    import pandas

    made = {name: block[name] for name in block}
    for levels in keyed:
        name = levels.name
        if block[name].dtype.kind == "O":
            made[name] = pandas.Series(pandas.Categorical(block[name], categories=list(levels.labels)), index=block.index)
    return pandas.DataFrame(made)


def pretty(column: str) -> str:
    """`region[North]` in place of `region[T.North]`, and 2001 for 2001.0."""
    return re.sub(r"\[(?:T\.)?([^\]]*?)(?<=[^.])(?:(?<=\d)\.0)?\]", r"[\1]", column)


def _terms(spec: Any, columns: list[str], keep: tuple[int, ...]) -> tuple[Term, ...]:
    place = {number: index for index, number in enumerate(keep)}
    found = []
    for one in spec.structure:
        numbers = [place[columns.index(name)] for name in one.columns if columns.index(name) in place]
        if numbers:
            names = [pretty(columns[keep[number]]) for number in numbers]
            labels = () if len(names) == 1 and "[" not in names[0] else tuple(map(_label, names))
            found.append(Term(str(one.term), labels, numbers[0], numbers[-1] + 1))
    return tuple(found)


def _label(name: str) -> str:
    """Of `C(a)[x]:C(b)[y]`, x:y."""
    return ":".join(re.findall(r"\[([^\]]*)\]", name)) or name


def _fitting_rows(facts: Facts) -> tuple[Frame, bool]:
    """Rows on which transforms are fitted, the sample first; and whether they are all rows."""
    import pandas

    if facts.n_rows <= len(facts.sample):
        return facts.sample, True
    return pandas.concat([facts.sample, facts.corners], ignore_index=True), False


def _use_exact_moments(spec: Any, facts: Facts) -> None:
    """`center` and `scale` of plain columns use means and variances of all rows."""
    for expression, state in spec.transform_state.items():
        found = re.fullmatch(r"(?:center|scale|standardize)\(\s*`?([^,`()]+?)`?\s*\)", expression)
        if found and found[1] in facts.columns and isinstance(state, dict):
            column = facts.columns[found[1]]
            state["center"] = column.mean if state.get("center") is not None else None
            state["scale"] = column.sd if state.get("scale") is not None else None


def _moments(values: np.ndarray, names: tuple[str, ...], intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Means, and standard deviations: 1 for columns of 0 and 1."""
    means, scales = values.mean(axis=0), values.std(axis=0)
    two = ((values == 0) | (values == 1)).all(axis=0)
    flat = scales <= 1e-12 * np.abs(means)
    for place in np.flatnonzero(flat & (means != 0)):
        if intercept:
            found = f"column {names[place]!r} is {means[place]:.6g} in all rows"
            raise InputError(f"{found}, so that nothing tells it from the intercept; leave it out of the formula")
    scales = np.where(flat, np.where(means == 0, 1.0, np.abs(means)), scales)
    return means, np.where(two, 1.0, scales)


def check_finite(values: np.ndarray, names: tuple[str, ...], first_row: int) -> None:
    """Refuse what a transform made of a number that it is not for."""
    if np.isfinite(values).all():
        return
    row, column = np.argwhere(~np.isfinite(values))[0]
    found = f"{names[column]!r} is {values[row, column]} in row {first_row + row + 1}"
    raise InputError(f"{found}; expected a finite number: mend the row, or use another transform")


def _check_dates(terms: list[Any], facts: Facts) -> None:
    for factor in (factor for term in terms for factor in factors_of(term)):
        if factor in facts.columns and facts.kind(factor) == DATE:
            raise InputError(f"column {factor!r} has dates; write days({factor}), C(month({factor})) or C(weekday({factor}))")


def _check_width(terms: list[Any], keyed: tuple[Levels, ...]) -> None:
    counts = {levels.name: len(levels.labels) for levels in keyed}
    for term in terms:
        sizes = {f: counts.get(level_column(f) or f, 1) for f in factors_of(term)}
        width = int(np.prod(list(sizes.values()) or [1]))
        if width > MOST_COLUMNS:
            worst = max(sizes, key=lambda factor: sizes[factor])
            others = " * ".join(factor for factor in sizes if factor != worst) or "1"
            name = level_column(worst) or worst
            instead = f"let it vary: ({others} | {name})"
            raise InputError(f"term {str(term)!r} would be {width:,} columns, as {worst} has {sizes[worst]:,} levels; {instead}")
    single = next((levels for levels in keyed if len(levels.labels) == 1), None)
    if single is not None:
        raise InputError(f"column {single.name!r} has one level, {single.labels[0]!r}; leave it out of the formula")


def _guarded(make: Callable[[], Made], what: str) -> Made:
    """Call formulaic, and put plain words on whatever it raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = make()
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{what}: {_plain_words(error)}") from error
    for warning in caught:
        if "outside of the nominated levels" in str(warning.message):
            label = str(warning.message).partition("{")[2].partition("}")[0]
            raise InputError(f"{what}: {label} is a level that the fit has not seen; drop such rows")
    return made


BEYOND = re.compile(r"Unable to evaluate factor `(bs\(.*)\)`\..*extend beyond")


def _plain_words(error: Exception) -> str:
    if found := BEYOND.match(str(error)):
        spline = f"{found[1]}, extrapolation='extend')"
        return f"{found[1]}) has no value beyond the ends of its column in the fit; drop such rows, or fit with {spline}"
    text = re.sub(r"\x1b\[[0-9;]*m|⧛\[?[0-9;]*m?|⧚", "", str(error))
    told = " ".join(text.split()).rstrip(".")
    return told.partition(". ")[0] + "; a name with spaces goes in backticks" if told.startswith("Missing operator") else told
