"""Bad input is refused here, before anything is compiled: what arrived, what was expected, where, and the repair."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import check_callable
from sgmcmc.core.errors import InputError, SgmcmcWarning, describe
from sgmcmc.core.trees import leaf_names, tree_map
from sgmcmc.core.types import Dataset, LogLik, LogPrior, PyTree, Rows
from sgmcmc.posterior import Posterior
from sgmcmc.rowfiles import AnyFolder, FileColumn, open_rows
from sgmcmc.sources import gather_all
from sgmcmc.table import Elsewhere, Mapped, Table, as_table, is_mapped

BLOCK = 1 << 22
"""Numbers looked at together when searching an array for NaN: bounds the memory the search takes."""

LARGE_PROPORTION = 100_000
"""Rows per minibatch above which a proportion is more likely an oversight than a choice."""


def check_params(params: Any) -> PyTree:
    """The starting values as arrays of the default float type."""
    leaves = jax.tree.leaves(params)
    if not leaves:
        raise InputError(f"params is {describe(params)}; expected a dict (or any tree) of floats, such as {{'theta': 0.0}}")
    for name, leaf in zip(leaf_names(params), leaves, strict=True):
        try:
            dtype = np.asarray(leaf).dtype
        except Exception as error:
            raise InputError(f"params[{name!r}] is {describe(leaf)}; expected a number or an array of floats") from error
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"params[{name!r}] is {describe(leaf)}, not a float; expected floats, "
                f"such as jnp.asarray(params[{name!r}], float)"
            )
        if np.size(leaf) == 0:
            raise InputError(f"params[{name!r}] has shape {np.shape(leaf)}, which holds no number; leave it out")
        if not np.isfinite(np.asarray(leaf, np.float64)).all():
            raise InputError(f"params[{name!r}] starts at a value that is not finite; start it at a number")
    return tree_map(lambda x: jnp.array(x, dtype=jax.dtypes.canonicalize_dtype(np.asarray(x).dtype)), params)


def check_dataset(dataset: Dataset) -> Table:
    """The dataset as C-ordered columns of types JAX computes with.

    What is in memory is copied only where that needs a copy; what is not is left where it is.
    """
    if isinstance(dataset, Table):
        return dataset
    if isinstance(dataset, str | Path):
        dataset = open_rows(dataset)
    if not isinstance(dataset, Mapping) and not hasattr(dataset, "items"):
        raise InputError(
            f"dataset is {describe(dataset)}; expected a dict of arrays with rows on the first axis, such as {{'x': x}}, or the "
            "path of a folder made by sgmcmc.data.convert"
        )
    columns = {str(name): _check_column(str(name), values) for name, values in dataset.items()}
    if not columns:
        raise InputError('dataset has no arrays; expected a dict such as {"X": X, "y": y}, rows on the first axis')
    if check_row_counts(columns) >= 2**31:
        raise InputError(
            f"dataset has {check_row_counts(columns):,} rows; expected fewer than 2**31, JAX's usual whole numbers: "
            "spread the rows over several processes"
        )
    if isinstance(dataset, AnyFolder):
        return Table(columns, dataset.shuffled, dataset.checksum, checked=True)
    return Table(columns, checked=all(isinstance(column, np.ndarray) for column in columns.values()))


def check_row_counts(arrays: Mapping[str, Any]) -> int:
    """The number of rows, which all arrays must have."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            "dataset arrays have different numbers of rows: "
            + ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            + "; expected one first axis for all (transpose the one that has rows elsewhere)"
        )
    return next(iter(lengths.values()))


def _check_column(name: str, values: Any) -> Any:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"dataset[{name!r}] has masked values; drop or fill such rows first, for instance with .compressed()")
    if is_elsewhere(values):
        _check_kind(name, values)
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(values.dtype))
        if isinstance(values, FileColumn):
            return values if values.dtype == dtype else Mapped(values, dtype)
        return (Mapped if isinstance(values, np.ndarray) else Elsewhere)(values, dtype)
    array = np.asarray(values)
    _check_kind(name, array)
    return _check_array(f"dataset[{name!r}]", array)


def is_elsewhere(values: Any) -> bool:
    """Whether a column is not in memory: a file, a memory map, or what has rows to slice but is no array of a known kind."""
    if isinstance(values, np.ndarray):
        return is_mapped(values)
    sliceable = all(hasattr(values, name) for name in ("shape", "dtype", "__getitem__"))
    in_memory = isinstance(values, jax.Array) or any(
        hasattr(values, name) for name in ("__array_interface__", "to_numpy", "numpy")
    )
    return isinstance(values, FileColumn) or (sliceable and not in_memory)


def _check_kind(name: str, values: Any) -> None:
    where = f"dataset[{name!r}]"
    if values.dtype == object or np.dtype(values.dtype).kind not in "fiub":
        raise InputError(
            f"{where} has dtype {values.dtype}; expected numbers (encode text as integers, drop or fill missing values)"
        )
    if len(values.shape) == 0:
        raise InputError(f"{where} is a single number; expected rows on the first axis (put constants into log_lik itself)")
    if values.shape[0] == 0:
        raise InputError(f"{where} is empty: shape {values.shape}; expected at least one row")


def check_block(name: str, column: Any, start: int, stop: int) -> None:
    """Look at some rows of a column that is not in memory as `check_dataset` looks at arrays that are."""
    block = np.asarray(getattr(column, "values", column)[start:stop])
    if block.dtype.kind in "iu" and block.dtype != column.dtype and not _fits(block, column.dtype):
        raise InputError(f"dataset[{name!r}] has integers that do not fit {column.dtype}; renumber them from 0")
    row = first_bad_row(block) if block.dtype.kind == "f" else None
    if row is not None:
        raise InputError(f"dataset[{name!r}] has a value that is not finite in row {start + row}; drop or fill such rows first")


def _check_array(where: str, array: np.ndarray) -> np.ndarray:
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.dtype.kind in "iu" and array.dtype != dtype and not _fits(array, dtype):
        raise InputError(f"{where} has integers that do not fit {dtype}; renumber them from 0, or turn on JAX's 64-bit mode")
    array = np.ascontiguousarray(array, dtype=dtype)
    if array.dtype.kind == "f":
        row = first_bad_row(array)
        if row is not None:
            raise InputError(f"{where} has a value that is not finite in row {row}; drop or fill such rows first")
    return array


def _fits(array: np.ndarray, dtype: Any) -> bool:
    return bool(array.min() >= np.iinfo(dtype).min and array.max() <= np.iinfo(dtype).max)


def first_bad_row(array: np.ndarray) -> int | None:
    """The first row with a NaN or an infinity. Sums find it (they are not finite either) without a mask as big as the data."""
    rows = max(1, BLOCK // max(1, array[0].size))
    with np.errstate(all="ignore"):
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            if not np.isfinite(block.sum(dtype=block.dtype)):
                bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
                if bad.any():
                    return start + int(np.argmax(bad))
    return None


def check_minibatch(minibatch_size: Any, n_rows: int) -> int:
    """The number of rows in a minibatch, from a count or a proportion."""
    count, share = isinstance(minibatch_size, numbers.Integral), isinstance(minibatch_size, numbers.Real)
    if isinstance(minibatch_size, bool) or not (count or share):
        raise InputError(
            f"minibatch_size is {describe(minibatch_size)}; expected a count such as 500 or a proportion such as 0.01"
        )
    if count:
        if not 1 <= minibatch_size <= n_rows:
            raise InputError(f"minibatch_size is {minibatch_size} for {n_rows} rows; expected a count from 1 to {n_rows}")
        return int(minibatch_size)
    if not 0 < minibatch_size < 1:
        raise InputError(
            f"minibatch_size is {minibatch_size}; expected a whole number (a count of rows) or a proportion between 0 and 1"
        )
    size = max(1, round(float(minibatch_size) * n_rows))
    if size > LARGE_PROPORTION:
        warnings.warn(
            f"minibatch_size={minibatch_size} of {n_rows} rows is {size} rows for every step; "
            "a count such as minibatch_size=1000 is usually enough",
            SgmcmcWarning,
            stacklevel=2,
        )
    return size


def log_lik_shape(log_lik: LogLik, params: PyTree, arrays: Mapping[str, Any]) -> bool:
    """Whether `log_lik` returns one value per row; refuses anything that is neither that nor one scalar."""
    check_callable("log_lik", log_lik, "lambda params, batch: ...")
    n_rows = len(next(iter(arrays.values())))
    count = min(3, n_rows)
    rows = {name: jax.ShapeDtypeStruct((count, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
    result = _trace("log_lik", lambda: jax.eval_shape(log_lik, params, rows))
    shape = getattr(result, "shape", None)
    if shape == (count,) and (count > 1 or shape != ()):
        return True
    if shape != ():
        raise InputError(
            f"log_lik returned {describe(result)} for {count} rows; expected the sum over rows (a scalar, end it with .sum()) "
            f"or one value per row (shape ({count},))"
        )
    return False


def check_log_prior(log_prior: LogPrior | None, params: PyTree) -> None:
    """A scalar, finite at the start."""
    if log_prior is None:
        return
    check_callable("log_prior", log_prior, "lambda params: -0.5 * (params['theta'] ** 2).sum()")
    result = _trace("log_prior", lambda: jax.eval_shape(log_prior, params))
    if getattr(result, "shape", None) != ():
        raise InputError(f"log_prior returned {describe(result)}; expected a scalar (end it with .sum())")
    value = float(log_prior(params))
    if not np.isfinite(value):
        raise InputError(f"log_prior is {value} at the starting values; start params where the prior is positive")


def check_log_lik(posterior: Posterior, position: PyTree, arrays: Mapping[str, Any]) -> None:
    """The rows must add up: a mean, or an (n,) against (n, 1) broadcast, is caught on a handful of rows."""
    rows = _few_rows(arrays)
    count = len(next(iter(rows.values())))
    singles = [{name: array[i : i + 1] for name, array in rows.items()} for i in range(count)]
    points = (position, _nudged(position))
    value = jax.jit(posterior.sum_of_rows)
    for number, point in enumerate(points):
        together, *apart = _trace("log_lik", lambda p=point: [float(value(p, part)) for part in (rows, *singles)])
        if not np.isfinite([together, *apart]).all():
            if number == 0:
                bad = together if not np.isfinite(together) else next(x for x in apart if not np.isfinite(x))
                raise InputError(f"log_lik is {bad} at the starting values; start params where every row has positive likelihood")
            continue
        total = sum(apart)
        if abs(together - total) > 1e-3 * (abs(together) + sum(map(abs, apart))):
            raise InputError(_not_a_sum(together, total, count))


def _not_a_sum(together: float, total: float, count: int) -> str:
    found = f"log_lik of {count} rows is {together:.6g}, but the {count} rows one by one add up to {total:.6g}"
    if np.isclose(together * count, total, rtol=1e-3):
        return f"{found}: it returns a mean over rows; expected the sum (write .sum() for .mean())"
    return (
        f"{found}; expected a sum over rows. Often an (n,) array met an (n, 1) array and became (n, n): "
        "make both the same shape, for instance with jnp.squeeze"
    )


def _few_rows(arrays: Mapping[str, Any], count: int = 5) -> Rows:
    n_rows = len(next(iter(arrays.values())))
    index = np.unique(np.linspace(0, n_rows - 1, min(count, n_rows)).astype(np.int64))
    return tree_map(jnp.asarray, gather_all(as_table(arrays), index))


def _nudged(position: PyTree) -> PyTree:
    """A second point, so that rows that happen to agree at the start (all zeros, say) do not hide a wrong sum."""
    rng = np.random.default_rng(0)
    return tree_map(lambda x: jnp.asarray(np.asarray(x) + 0.1 * rng.normal(size=x.shape), x.dtype), position)


def _trace(name: str, call: Any) -> Any:
    """Run a user's function abstractly and put its name on whatever it raises."""
    try:
        return call()
    except KeyError as error:
        raise InputError(f"{name} asks for {error.args[0]!r}, which neither params nor dataset has") from error
    except Exception as error:
        raise InputError(f"{name} failed when called with params and a few rows: {type(error).__name__}: {error}") from error
