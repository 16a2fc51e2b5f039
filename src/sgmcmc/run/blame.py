"""Not finite? The row at fault, its values, the term, and the repair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import DivergenceError, InputError, describe
from sgmcmc.core.trees import Culprit, PyTree, Rows, all_finite, labels, leaf_names, size, tree_map
from sgmcmc.problem.passes import all_rows, compiled
from sgmcmc.problem.posterior import Posterior, one_row, rows_together
from sgmcmc.problem.schedules import Schedule
from sgmcmc.results.result import Result
from sgmcmc.rows.table import Stratum, Table, as_table
from sgmcmc.run.terms import COLUMN, PARAMETER, ROUNDING, Term, slope_at_fault, term_at_fault

AT_START = "at the starting values"

LOOKED_AT = 256 << 20
"""Bytes of data that are looked at in full where nothing else needs a full pass: less than a second."""

SHOWN = 5
"""Columns of a row, and numbers of a column, that a message has room for."""

STABLE = (
    "Write it so that digits cannot run out: jax.nn.log_sigmoid(z) for log(1 / (1 + exp(-z))), jax.nn.log_sigmoid(-z) for the "
    "log of 1 minus that, jax.nn.softplus(z) for log(1 + exp(z)), or sgmcmc.distributions.Bernoulli(logits=z) for all of it"
)
EXPONENT = "Use the exponent itself where log(exp(z)) is meant: for counts, y * z - exp(z)"
DOUBLE = 'jax.config.update("jax_enable_x64", True) before making arrays'


@dataclass(frozen=True)
class NotFinite:
    """What is not finite at a position, and why.

    Attributes:
        function: `log_lik` or `log_prior`.
        found: `-inf`, `inf`, `nan`, or that its gradient is not finite.
        row: the first row at fault; None where it is the prior.
        others: how many other rows are; None where that was not counted.
        values: the row's values, those at fault first.
        term: the term of the function, where it could be found.
        repair: what to do.
        rounded: whether it is rounding that makes the term so: in float64 it would be finite.
    """

    function: str
    found: str
    row: int | None
    others: int | None
    values: str
    term: Term | None
    repair: str
    rounded: bool = False

    def told(self, where: str) -> str:
        """The sentences for a message; `where` says at which parameters: `at the starting values`."""
        more = f", and for {self.others:,} other row{'s' if self.others > 1 else ''}" if self.others else ""
        of_row = "" if self.row is None else f" for row {self.row} ({self.values}){more}"
        term = "" if self.term is None else f": {self.term}"
        return f"{self.function} {self.found} {where}{of_row}{term}. {self.repair}"


def raise_if_not_finite(posterior: Posterior, position: PyTree, table: Mapping[str, Any], where: str) -> None:
    """Refuse a position at which the log prior, or the log likelihood of any row, or the gradient of one is not finite.

    One pass over all rows; of a stratum, over this process's, so that processes have to refuse together. `where` is part of
    the message: `at the starting values`.
    """
    found = blame(posterior, position, table)
    if found is not None:
        raise InputError(found.told(where))


def raise_if_rounded_away(posterior: Posterior, position: PyTree, table: Mapping[str, Any], where: str) -> None:
    """Refuse a position at which a term is not finite for want of digits, such as log(1 - p) where p is rounded to 1."""
    found = blame(posterior, position, table)
    if found is not None and found.rounded:
        raise InputError(found.told(where))


def check_start(
    value: Callable[..., Any], posterior: Posterior, position: PyTree, table: Table, suspects: list[int],
) -> None:  # fmt: skip
    """Refuse a start at which some row's log likelihood is not finite: of data in memory, any row, else one of the suspects.

    `value` is the posterior's `sum_of_rows`, compiled for as many rows as `check_log_lik` looked at.
    """
    if not table.in_memory or table.nbytes > LOOKED_AT:
        if suspects:
            raise InputError(_blame_row(posterior, position, table, suspects[0]).told(AT_START))
    elif suspects or not _sums_finite(value, position, table):
        raise_if_not_finite(posterior, position, table, AT_START)


def _sums_finite(value: Callable[..., Any], position: PyTree, table: Table) -> bool:
    """Whether the log likelihood is finite in all blocks, of one size: the last begins in the one before."""
    together, last = rows_together(table), table.n_rows - rows_together(table)
    starts = [*range(0, last, together), last]
    sums = [value(position, table.rows(start, start + together)) for start in starts]
    return bool(np.isfinite(np.asarray(jax.device_get(sums))).all())


def blame_later(posterior: Posterior, params: PyTree, arrays: Mapping[str, Any], where: str) -> str:
    """A sentence on the row at fault where a chain has gone, empty if there is none, or if the chain itself went too far.

    Rows of other processes, and data too large for a quick look, are not looked at. It never fails.
    """
    table = as_table(arrays)
    if table.in_strata or table.nbytes > LOOKED_AT or table.n_rows != posterior.n_rows or not _finite(params):
        return ""
    try:
        found = blame(posterior, posterior.transform.to_position(params), table)
    except Exception:  # whatever it is, the error being explained matters more
        return ""
    gone = found is not None and found.others == table.n_rows - 1 and (found.term is None or found.term.kind == "overflow")
    return "" if found is None or gone else found.told(where)


def and_why(sentence: str, reason: str) -> str:
    """A sentence, and the reason if one was found."""
    return f"{sentence}. {reason}" if reason else sentence


def divergence(culprit: Culprit, result: Result, schedule: Schedule, reason: str = "") -> DivergenceError:
    """The error of a chain that left the finite numbers, with its reason if one was found, the repair, and the draws so far."""
    state, step = result.final_state, int(result.final_state.step) + 1
    number = leaf_names(state.position).index(culprit.parameter)
    alike = jax.tree.structure(state.params) == jax.tree.structure(state.position)  # not where one whitened vector moves
    shown = (state.params if alike else state.position, schedule.at(step, state.position))
    last, eps = (np.asarray(jax.tree.leaves(tree)[number]) for tree in shown)
    last, where = (last, "") if culprit.chain is None else (last[culprit.chain], f" of chain {culprit.chain}")
    if result.settings.get("sampler") == "sample":
        repair = "Its posterior is no bowl there, whatever the step: expected engine='nuts', or a prior with lighter tails"
    elif (eps > 0).all():
        repair = f"Its step size, {np.max(eps):.3g}, is probably too large: try stepsize={np.max(eps) / 10:.2g}"
    else:
        repair = f"Its step size is {np.min(eps):.3g} there: expected a schedule that stays positive"
    found = f"parameter {culprit.parameter!r}{where} is not finite at iteration {step}"
    kept = "The draws so far are in the error's .result, the last finite state in .result.final_state"
    found = and_why(f"{found}; the last finite value was {describe(last.tolist())}", reason)
    message = f"{found}. {f'Or i{repair[1:]}' if reason else repair}. {kept}"
    return DivergenceError(message, parameter=culprit.parameter, step=step, chain=culprit.chain, result=result)


def blame(posterior: Posterior, position: PyTree, table: Mapping[str, Any]) -> NotFinite | None:
    """Why the log posterior or its gradient is not finite at a position, in one pass over all rows; None if it is.

    All rows at fault are counted where the data are small enough for a quick look; else the pass ends at the first.
    """
    return _blame_prior(posterior, position) or _blame_rows(posterior, position, as_table(table))


def _blame_prior(posterior: Posterior, position: PyTree) -> NotFinite | None:
    """The same of the log prior alone."""
    value, gradient = jax.value_and_grad(posterior.log_density_prior)(position)
    if posterior.log_prior is None or _finite((value, gradient)):
        return None
    given = {PARAMETER: posterior.transform.to_params(position)}
    term = _term(posterior.log_prior, given, bool(jnp.isfinite(value)))
    names = ", ".join(map(repr, term.parameters if term else leaf_names(position)))
    repair = f"It depends on {names}: start where it is finite, and keep parameters inside their support with constraints"
    return NotFinite("log_prior", _found(value), None, None, "", term, repair)


def _blame_rows(posterior: Posterior, position: PyTree, table: Table) -> NotFinite | None:
    """The same of the log likelihood."""
    first, count, start = None, 0, 0
    for rows in all_rows(table):
        length = len(next(iter(rows.values())))
        if not bool(compiled(_block_finite, posterior)(position, rows)):
            bad = start + np.flatnonzero(_bad_rows(posterior, position, rows))
            first, count = bad[0] if first is None and len(bad) else first, count + len(bad)
            if first is not None and table.nbytes > LOOKED_AT:
                return _blame_row(posterior, position, table, int(first))
        start += length
    return None if first is None else _blame_row(posterior, position, table, int(first), count - 1)


def _block_finite(posterior: Posterior, position: PyTree, rows: Rows) -> jax.Array:
    return all_finite(jax.value_and_grad(posterior.sum_of_rows)(position, rows))


def _bad_rows(posterior: Posterior, position: PyTree, rows: Rows) -> np.ndarray:
    """Which rows of a block are not finite, in parts that leave room for every row's gradient."""
    parts = [compiled(_each_bad, posterior)(position, part) for part in all_rows(rows, 4 * size(position))]
    return np.concatenate([np.asarray(part) for part in parts])


def _each_bad(posterior: Posterior, position: PyTree, rows: Rows) -> jax.Array:
    return jax.vmap(lambda row: ~_block_finite(posterior, position, one_row(row)))(rows)


def _blame_row(
    posterior: Posterior, position: PyTree, table: Table, number: int, others: int | None = None,
) -> NotFinite:  # fmt: skip
    """What is to be said of one row at fault."""
    row = tree_map(jnp.asarray, table.rows(number, number + 1))
    value = jax.jit(posterior.sum_of_rows)(position, row)
    given = {PARAMETER: posterior.transform.to_params(position), COLUMN: row}
    term = _term(posterior.log_lik, given, bool(jnp.isfinite(value)))
    culprits = [] if term is None else _culprits(posterior.log_lik, given, term)
    digits = jnp.result_type(float) != np.float64 and _finite_in_double(posterior.log_lik, given)
    rounded = digits and not culprits and term is not None and term.kind not in ("limit", "overflow")
    repair = _repair(given, term, culprits, digits)
    shown = _shown(row, culprits or ([] if term is None else term.columns))
    if isinstance(table, Stratum) and len(table.row_counts) > 1:
        shown = f"of process {table.process}; {shown}"
    return NotFinite("log_lik", _found(value), number, others, shown, term, repair, rounded)


def _found(value: Any) -> str:
    return "has a gradient that is not finite" if np.isfinite(value) else f"is {float(value)}"


def _term(function: Any, given: Mapping[str, PyTree], finite: bool) -> Term | None:
    """The term at fault, where the function can be taken apart."""
    try:
        return slope_at_fault(function, given) if finite else term_at_fault(function, given)
    except Exception:  # an operation that only works compiled, say: the sentence goes without
        return None


def _culprits(log_lik: Any, given: Mapping[str, PyTree], term: Term) -> list[str]:
    """Columns that alone make the row not finite: with their zeros and negative numbers replaced, it is."""

    def mended(name: str) -> bool:
        column = given[COLUMN][name]
        other = jnp.where(column == 0, jnp.ones_like(column), jnp.abs(column))
        return _row_finite(log_lik, {**given, COLUMN: {**given[COLUMN], name: other}})

    return [name for name in term.direct if given[COLUMN][name].dtype != bool and mended(name)]


def _row_finite(log_lik: Any, given: Mapping[str, PyTree]) -> bool:
    """Whether a row, in whatever type it came, is known to be finite with its gradient."""

    def total(params: PyTree, row: Rows) -> jax.Array:
        return jnp.sum(log_lik(params, row))

    try:
        return _finite(jax.value_and_grad(total)(*given.values()))
    except Exception:  # a function that insists on its own types, say
        return False


def _finite_in_double(log_lik: Any, given: Mapping[str, PyTree]) -> bool:
    """Whether the row is finite when computed in float64."""

    def double(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return jnp.asarray(array, np.float64) if array.dtype.kind == "f" else jnp.asarray(array)

    if not hasattr(jax, "enable_x64"):  # older versions of JAX
        return False
    with jax.enable_x64(True):
        return _row_finite(log_lik, {kind: tree_map(double, tree) for kind, tree in given.items()})


def _repair(given: Mapping[str, PyTree], term: Term | None, culprits: list[str], digits: bool) -> str:
    """What to do about a row; `digits` if it is finite in float64."""
    if culprits:
        return _repair_of_data(given, term, culprits[0])
    if term is not None and term.kind != "limit" and term.operations & ROUNDING and term.kind != "overflow":
        logistic = "logistic" in term.operations or term.operations & {"add", "sub"}
        return f"{STABLE if logistic else EXPONENT}{f', or compute in float64: {DOUBLE}' if digits else ''}"
    if digits:
        large = "which float64 can hold and float32 cannot: put columns and parameters on scales near 1, or compute in float64"
        return f"It has a value there {large}: {DOUBLE}"
    return _repair_of_parameters(term)


def _repair_of_data(given: Mapping[str, PyTree], term: Term | None, name: str) -> str:
    numbers = np.ravel(np.asarray(given[COLUMN][name]))
    worst = numbers[np.argmin(numbers > 0)]
    safe = "write the term so that it is finite there"
    if term is not None and term.kind == "hidden":
        safe = "choose what goes into the term, not what comes out: jnp.log(jnp.where(x > 0, x, 1.0)), say"
    return f"{name} is {_number(worst)} there: leave such rows out of the dataset, or {safe}"


def _repair_of_parameters(term: Term | None) -> str:
    if term is None or not term.parameters:
        return "Start params where every row has positive likelihood, or leave such rows out of the dataset"
    names = ", ".join(map(repr, term.parameters))
    support = f"constraints={{{term.parameters[0]!r}: sgmcmc.constraints.positive}}"
    return f"It depends on {names}: start elsewhere, and where a parameter has limits name them, for instance {support}"


def _shown(row: Rows, first: Any) -> str:
    """A row's values, some columns first, as many as there is room for."""
    names = [*first, *(name for name in row if name not in first)]
    shown = [_shown_column(name, np.asarray(row[name][0])) for name in names[:SHOWN]]
    return ", ".join([*shown, *([f"{len(names) - SHOWN} more columns"] if len(names) > SHOWN else [])])


def _shown_column(name: str, values: np.ndarray) -> str:
    """A column's value in a row; of many numbers, how many are 0, and the extremes."""
    if values.size <= SHOWN:
        return f"{name}={_number(values) if values.ndim == 0 else '[' + ', '.join(map(_number, values.flat)) + ']'}"
    zeros = np.count_nonzero(values == 0)
    low, high = (f"{labels(name, values.shape)[place]}={_number(values.flat[place])}" for place in _ends(values))
    return f"{name} with {values.size} numbers, {zeros} of them 0, from {low} to {high}"


def _number(value: Any) -> str:
    """Short, and still a float where it is one."""
    return str(float(f"{float(value):.6g}")) if np.asarray(value).dtype.kind == "f" else str(value)


def _ends(values: np.ndarray) -> tuple[int, int]:
    return int(np.argmin(values)), int(np.argmax(values))


def _finite(tree: PyTree) -> bool:
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))
