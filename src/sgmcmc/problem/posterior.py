"""The problem: a log likelihood over rows, a log prior, and where the parameters may live."""

import traceback
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import PACKAGE, InputError, describe
from sgmcmc.core.names import Names
from sgmcmc.core.sameness import sameness, sameness_of_traced
from sgmcmc.core.trees import (
    Batch,
    LogLik,
    LogPrior,
    PyTree,
    Rows,
    flat,
    leaf_names,
    on_host,
    split,
    tree_map,
    with_functions_fixed,
)
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table, as_table


@dataclass(frozen=True)
class Transform:
    """The bijection between the user's constrained parameters and the position that moves.

    One entry per leaf: a NumPyro transform, or None where the parameter is free.
    """

    bijections: tuple[Any, ...]

    def to_params(self, position: PyTree) -> PyTree:
        return self._apply(lambda bijection, x: bijection(x), position)

    def to_position(self, params: PyTree) -> PyTree:
        return self._apply(lambda bijection, x: bijection.inv(x), params)

    def log_det(self, position: PyTree) -> jax.Array | float:
        """Log volume change of `to_params`, the term that makes the position's density that of the parameters."""
        pairs = zip(self.bijections, jax.tree.leaves(position), strict=True)
        return sum((jnp.sum(b.log_abs_det_jacobian(x, b(x))) for b, x in pairs if b is not None), start=0.0)

    def _apply(self, function: Any, tree: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(tree)
        pairs = zip(self.bijections, leaves, strict=True)
        return jax.tree.unflatten(structure, [x if b is None else function(b, x) for b, x in pairs])


def make_transform(constraints: Mapping[str, Any] | None, params: PyTree, owned: tuple[str, ...] = ()) -> Transform:
    """Look up the bijection of every constrained parameter; refuse unknown names and values outside their support. What is
    `owned` by a Gibbs block does not move, and needs none.
    """
    if constraints is None:
        return Transform((None,) * len(jax.tree.leaves(params)))
    names = leaf_names(params)
    if not isinstance(constraints, Mapping):
        raise InputError(f"constraints is {describe(constraints)}; expected a dict by parameter name, such as {{'s': positive}}")
    from numpyro.distributions import biject_to  # imported here: a second of import time that most models do not need

    by_name = _flatten(constraints)
    unknown = sorted(set(by_name) - set(names))
    if unknown:
        raise InputError(f"constraints names an unknown parameter {unknown[0]!r}; params has {', '.join(names)}")
    bijections: list[Any] = [None] * len(names)
    for number, (name, value) in enumerate(zip(names, jax.tree.leaves(params), strict=True)):
        constraint = by_name.get(name)
        if constraint is None or name in owned:
            continue
        try:
            inside = bool(jnp.all(constraint(value)))
            bijections[number] = biject_to(constraint)
        except (NotImplementedError, TypeError, AttributeError) as error:
            expected = "a constraint with a bijection, such as sgmcmc.distributions.constraints.positive"
            raise InputError(f"constraints[{name!r}] is {describe(constraint)}; expected {expected}") from error
        if not inside:
            found = f"starts at {describe(value.tolist())}, outside its constraint {constraint}"
            raise InputError(f"params[{name!r}] {found}; start it inside")
    return Transform(tuple(bijections))


def _flatten(constraints: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    for name, value in constraints.items():
        by_name |= _flatten(value, f"{front}{name}.") if isinstance(value, Mapping) else {f"{front}{name}": value}
    return by_name


@dataclass(frozen=True)
class Posterior:
    """The log posterior as a function of the position, on any minibatch.

    Two are equal if what is compiled for the one serves the other.

    Attributes:
        log_lik: the user's log likelihood.
        log_prior: the user's log prior; None is a flat one.
        n_rows: how many rows the whole dataset has.
        transform: from position to parameters.
        per_row: whether `log_lik` returns one value per row instead of their sum.
        axis: the mesh axis over which likelihood terms are summed, where the rows are in strata.
        same: equal for the same functions and transform; as it is here, for no others.
        look: what the functions were made of when `same` was found.
        names: what the numbers of its parameters are called.
    """

    log_lik: LogLik = field(compare=False)
    log_prior: LogPrior | None = field(compare=False)
    n_rows: int
    transform: Transform = field(compare=False)
    per_row: bool
    axis: str | None = None
    same: Hashable = field(default_factory=object, repr=False)
    look: Hashable = field(default=None, repr=False, compare=False)
    names: Names = field(default_factory=Names, repr=False, compare=False)

    def behind(self, transform: Any) -> "Posterior":
        """The same posterior behind another transform."""
        return replace(self, transform=transform, same=(self.same, sameness(transform)))

    @property
    def unchanged(self) -> bool:
        """Whether the functions are still made of what they were: a global that one reads may have another value by now."""
        return self.look is None or self.look == look_at(self.log_lik, self.log_prior)

    def log_likelihood(self, position: PyTree, batch: Batch) -> jax.Array:
        """The weighted sum over the batch: an unbiased estimate of the full log likelihood."""
        if batch.weight.ndim == 0:
            return batch.weight * self.sum_of_rows(position, batch.rows)
        return jnp.dot(batch.weight, self.each_row(position, batch.rows))

    def log_density_prior(self, position: PyTree) -> jax.Array:
        """The log prior of the position: that of the parameters and the volume change."""
        params = self.transform.to_params(position)
        prior = 0.0 if self.log_prior is None else self.log_prior(params)
        return jnp.asarray(prior + self.transform.log_det(position))

    def log_posterior(self, position: PyTree, batch: Batch) -> jax.Array:
        """The estimate from one minibatch of the log posterior, up to its constant; of all strata where there are several."""
        return self.over_strata(self.log_likelihood(position, batch)) + self.log_density_prior(position)

    def prior_gradient(self, position: PyTree) -> PyTree:
        """The gradient of the log prior of the position."""
        return jax.grad(self.log_density_prior)(position)

    def gradient(self, position: PyTree, batch: Batch) -> PyTree:
        """The estimate from one minibatch of the gradient of the log posterior."""
        if self.axis is None:
            return jax.grad(self.log_posterior)(position, batch)
        likelihood = self.over_strata(jax.grad(self.log_likelihood)(position, batch))
        return tree_map(jnp.add, self.prior_gradient(position), likelihood)

    def over_strata(self, tree: PyTree) -> PyTree:
        """The sum of what each stratum's rows contribute, in one message however many leaves it has. It is taken of gradients,
        never differentiated: a derivative of it would count every stratum as often as there are strata.
        """
        return tree if self.axis is None else split(jax.lax.psum(flat(tree), self.axis), tree)

    def sum_of_rows(self, position: PyTree, rows: Rows) -> jax.Array:
        """The log likelihood of some rows, unweighted."""
        value = self.log_lik(self.transform.to_params(position), rows)
        return jnp.sum(value) if self.per_row else jnp.asarray(value)

    def each_row(self, position: PyTree, rows: Rows) -> jax.Array:
        """The log likelihood of every row: from `log_lik` itself, or row by row where it returns sums."""
        if self.per_row:
            return jnp.ravel(self.log_lik(self.transform.to_params(position), rows))
        return jax.vmap(lambda row: self.sum_of_rows(position, one_row(row)))(rows)

    def row_gradients(self, position: PyTree, rows: Rows) -> PyTree:
        """The gradient of every row's log likelihood, rows on the first axis."""
        gradient = jax.grad(self.sum_of_rows)
        return jax.vmap(lambda row: gradient(position, one_row(row)))(rows)


def look_at(log_lik: LogLik, log_prior: LogPrior | None) -> Hashable:
    """What functions are made of, as far as can be seen."""
    return sameness_of_traced(log_lik, ""), sameness_of_traced(log_prior, "")


def one_row(row: Rows) -> Rows:
    """A batch of one."""
    return tree_map(lambda x: x[None], row)


OFTEN = "an (n,) array met an (n, 1) array and became (n, n): make both the same shape, for instance with jnp.squeeze"


def check_params(params: Any, owned: tuple[str, ...] = ()) -> PyTree:
    """The starting values as arrays of the default float type; functions among them stay what they are. What is `owned` by a
    Gibbs block may be whole numbers, as which truth values count too.
    """
    params = with_functions_fixed(params)
    leaves = jax.tree.leaves(params)
    if not leaves:
        raise InputError(f"params is {describe(params)}; expected a dict (or any tree) of floats, such as {{'theta': 0.0}}")
    for name, leaf in zip(leaf_names(params), leaves, strict=True):
        wrong = _wrong_with(leaf, name in owned)
        if wrong is not None:
            raise InputError(wrong.replace("NAME", f"params[{name!r}]").replace("LEAF", repr(name)))
    dtypes = tree_map(_dtype, params)
    return tree_map(lambda x, dtype: jnp.array(on_host(x, dtype), dtype), params, dtypes)


def _dtype(leaf: Any) -> Any:
    """That of a starting value in the chains."""
    dtype = np.asarray(leaf).dtype
    return jax.dtypes.canonicalize_dtype(np.int32 if dtype.kind == "b" else dtype)


def _wrong_with(leaf: Any, owned: bool) -> str | None:
    """What is wrong with a starting value, if anything is."""
    try:
        dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
    except Exception:
        return f"NAME is {describe(leaf)}; expected a number or an array of floats"
    if jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == np.uint32:
        keys = "graph, params, rest = nnx.split(model, nnx.Param, ...), and nnx.merge(graph, params, rest) in log_lik"
        return f"NAME is {describe(leaf)}: random keys and counters, as dropout has them, are no parameters; of Flax: {keys}"
    if not jnp.issubdtype(dtype, jnp.floating) and not (owned and dtype.kind in "biu"):
        discrete = "" if owned else ", or gibbs={LEAF: update}, which draws whole numbers"
        return f"NAME is {describe(leaf)}, not a float; expected floats, such as jnp.asarray(NAME, float){discrete}"
    if np.size(leaf) == 0:
        return f"NAME has shape {np.shape(leaf)}, which holds no number; leave it out"
    if not np.isfinite(np.asarray(leaf, np.float64)).all():
        return "NAME starts at a value that is not finite; start it at a number"
    return None


def log_lik_shape(log_lik: LogLik, params: PyTree, arrays: Mapping[str, Any]) -> bool:
    """Whether `log_lik` returns one value per row; refuses anything that is neither that nor one scalar."""
    count = min(3, len(next(iter(arrays.values()))))
    rows = {name: jax.ShapeDtypeStruct((count, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
    result = _shape("log_lik", log_lik, "lambda params, batch: ...", params, rows)
    shape = getattr(result, "shape", None)
    if shape not in ((), (count,), (count, 1)):
        expected = f"the sum over rows (a scalar, end it with .sum()) or one value per row (shape ({count},))"
        often = f". Often {OFTEN}" if shape == (count, count) else ""
        raise InputError(f"log_lik returned {describe(result)} for {count} rows; expected {expected}{often}")
    return shape != ()


def check_log_prior(log_prior: LogPrior | None, params: PyTree) -> None:
    """A scalar."""
    if log_prior is None:
        return
    result = _shape("log_prior", log_prior, "lambda params: -0.5 * (params['theta'] ** 2).sum()", params)
    if getattr(result, "shape", None) != ():
        raise InputError(f"log_prior returned {describe(result)}; expected a scalar (end it with .sum())")


def log_prior_of_params(posterior: Posterior, params: PyTree) -> Any:
    """The user's own log prior, where there is one."""
    assert posterior.log_prior is not None
    return posterior.log_prior(params)


def check_prior_at_start(value: Any) -> None:
    """It must be finite there."""
    if not np.isfinite(float(value)):
        raise InputError(f"log_prior is {float(value)} at the starting values; start params where the prior is positive")


MOST_TOGETHER = 1000
"""Rows of the blocks in which a start is looked at: a model that makes (n, n) of n rows still fits into memory."""


def rows_together(table: Table) -> int:
    """The size of such a block."""
    return max(1, min(table.n_rows, MOST_TOGETHER, (4 << 20) // max(1, table.row_bytes)))


def check_log_lik(value: Callable[[PyTree, Rows], Any], position: PyTree, arrays: Mapping[str, Any]) -> list[int]:
    """The rows must add up: a mean, or an (n,) against (n, 1) broadcast, is caught on a handful of rows, repeated to a block.
    Returns the numbers of those whose log likelihood is not finite at the start.

    `value` is a posterior's `sum_of_rows`, compiled. It is called for one row and for a block, so that the program for blocks
    is there for the other rows.
    """
    table, rng = as_table(arrays), np.random.default_rng(0)
    index = np.unique(np.linspace(0, table.n_rows - 1, min(5, table.n_rows)).astype(np.int64))
    few = gather_all(table, index)
    copies = np.resize(np.arange(len(index)), rows_together(table))
    rows = {name: array[copies] for name, array in few.items()}
    singles = [{name: array[i : i + 1] for name, array in few.items()} for i in range(len(index))]
    suspects: list[int] = []
    # A second point, so that rows that happen to agree at the start (all zeros, say) do not hide a wrong sum.
    nudged = tree_map(lambda x: _nudged(x, rng), position)
    for point in (position, nudged):
        together, *apart = _trace("log_lik", lambda p=point: [float(value(p, part)) for part in (rows, *singles)])
        finite, every = np.isfinite(apart), np.asarray(apart)[copies]
        if point is position:
            suspects = index[~finite].tolist()
        if not finite.all() or np.abs(every).sum() > jnp.finfo(jnp.result_type(float)).max / len(copies):
            continue  # nothing to add up, or sums too large for the type
        if not np.isfinite(together):
            raise InputError(f"log_lik of {len(copies)} rows is {together}, but that of each is finite; expected a sum over rows")
        if abs(together - every.sum()) > 1e-3 * (abs(together) + np.abs(every).sum()):
            raise InputError(_not_a_sum(together, every, len(copies)))
    return suspects


def _nudged(x: Any, rng: np.random.Generator) -> Any:
    """Whole numbers stay where they are."""
    return jnp.asarray(np.asarray(x) + 0.1 * rng.normal(size=x.shape), x.dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _not_a_sum(together: float, every: np.ndarray, count: int) -> str:
    total = every.sum()
    found = f"log_lik of {count} rows is {together:.6g}, but the {count} rows one by one add up to {total:.6g}"
    if np.allclose(every, together, rtol=1e-3):
        either = "it returns a mean over rows, or looks at other rows than those of its second argument"
        return f"{found}: {either}; expected the sum over these (write .sum() for .mean())"
    if np.isclose(together * count, total, rtol=1e-3):
        return f"{found}: it returns a mean over rows; expected the sum (write .sum() for .mean())"
    return f"{found}; expected a sum over rows. Often {OFTEN}"


def _shape(name: str, function: Any, example: str, *arguments: PyTree) -> Any:
    """What a user's function returns, as shapes."""
    if not callable(function):
        raise InputError(f"{name} is {describe(function)}; expected a function such as {example}")
    return _trace(name, lambda: jax.eval_shape(function, *arguments))


def _trace(name: str, call: Callable[[], Any]) -> Any:
    """Call a user's function and put its name on whatever it raises."""
    try:
        return call()
    except KeyError as error:
        raise InputError(f"{name} asks for {error.args[0]!r}, which neither params nor dataset has") from error
    except jax.errors.TracerArrayConversionError as error:
        found = f"{name} gives what depends on params or rows to a function of NumPy{_own_line(error)}"
        raise InputError(f"{found}, which JAX cannot look into; write jnp for np there (import jax.numpy as jnp)") from error
    except jax.errors.TracerBoolConversionError as error:
        found = f"{name} decides by a number that depends on params or rows{_own_line(error)}"
        raise InputError(f"{found}; write jnp.where(condition, yes, no) for if and else") from error
    except jax.errors.ConcretizationTypeError as error:
        found = f"{name} asks for the value of what depends on params or rows{_own_line(error)}"
        raise InputError(
            f"{found}; use functions of jax.numpy there, such as jnp.log for math.log, and no float() or int()"
        ) from error
    except Exception as error:
        raise InputError(f"{name} failed when called with params and a few rows: {type(error).__name__}: {error}") from error


def _own_line(error: Exception) -> str:
    """Where in the user's code it happened: the last line that is neither ours nor of an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith(PACKAGE) and "site-packages" not in one.filename and one.line]
    return f" in line {own[-1].lineno} ({own[-1].line})" if own else ""
