"""Bad input is refused here, before anything is compiled: what arrived, what was expected, where, and the repair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.checks import check_callable
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import leaf_names, tree_map
from sgmcmc.core.types import LogLik, LogPrior, PyTree, Rows
from sgmcmc.posterior import Posterior
from sgmcmc.rows.sources import gather_all
from sgmcmc.rows.table import as_table


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
