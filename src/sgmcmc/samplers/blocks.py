"""What `gibbs=` asks for: blocks of parameters drawn beside the dynamics, checked, given their data, and put into a sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from sgmcmc.algorithms.dynamics.replicas import ReplicaExchange
from sgmcmc.algorithms.gibbs import ALL, Beside, Gibbs
from sgmcmc.algorithms.gradients.held import Held, HeldState
from sgmcmc.algorithms.kernel import Dynamics, Estimator, Kernel
from sgmcmc.checkpoints.fingerprint import of_function
from sgmcmc.checkpoints.places import Place
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Batch, PyTree, Rows, leaf_names, tree_map
from sgmcmc.problem.passes import full_sum
from sgmcmc.rows.sources import Source, Take
from sgmcmc.rows.table import IMPORTANCE, Table, whole
from sgmcmc.run.request import Problem
from sgmcmc.run.sampler import Given, Sampler, Start

EXAMPLE = "gibbs={'z': update}, where update(key, params, data) returns new values of params['z']"


@dataclass(frozen=True)
class HoldingStart:
    """A start of what moves; what the blocks own begins where `params` has it."""

    inner: Start

    @property
    def position(self) -> PyTree:
        return self.inner.position

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        assert isinstance(kernel.estimator, Held)
        transform: Any = kernel.posterior.transform
        bare = Kernel(kernel.posterior, kernel.estimator.inner, kernel.dynamics, kernel.schedule)
        found = self.inner.find(bare, source, root, progress)
        return Given(found.position, HeldState(transform.held, found.est_state))


@dataclass(frozen=True)
class Blocks:
    """The blocks of a call by name, each with the names of what it owns."""

    by_name: dict[str, Gibbs] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, params: PyTree) -> Blocks:
        """From what a call says: functions or `Gibbs` objects by name."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"gibbs is {describe(given)}; expected a dict by parameter name: {EXAMPLE}")
        blocks = {name: _block(name, one) for name, one in given.items()}
        _check_owners(blocks, leaf_names(params))
        return cls(blocks)

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def owned(self) -> tuple[str, ...]:
        """The names of all that they own."""
        return tuple(name for block in self.by_name.values() for name in block.owns)

    def check(
        self,
        problem: Problem,
        gradient: Estimator,
        rows: str,
        auto: bool,
        batch_size: int | None,
        dynamics: Dynamics | None = None,
    ) -> None:
        """Refuse what does not go with blocks, and updates that do not do what they should."""
        if not self:
            return
        if problem.table.in_strata:
            raise InputError("gibbs came with rows in strata; expected a dataset on one process")
        if isinstance(dynamics, ReplicaExchange):
            found = "ReplicaExchange came with gibbs, whose draws given the coldest copy are none given the others"
            raise InputError(f"{found}; expected other dynamics, such as {dynamics.dynamics}")
        if rows == IMPORTANCE:
            raise InputError("rows='importance' came with gibbs; expected rows='random' or rows='window' there")
        if auto:
            raise InputError(
                "stepsize='auto' came with gibbs, whose draws change the curvature it is chosen by; expected a number"
            )
        if not gradient.follows_posterior and (seen := self._seen_by_rows(problem)):
            found = f"{type(gradient).__name__} keeps gradients of rows that were taken at other values of {', '.join(seen)}"
            repair = "expected gradient='minibatch' or 'saga' (sgld for sgldcv), or a log_lik that does not look at them"
            raise InputError(f"{found}, which gibbs draws anew; {repair}")
        for name, block in self.by_name.items():
            _check_update(f"gibbs[{name!r}]", block, problem, batch_size)

    def texts(self, problem: Problem, batch_size: int | None) -> dict[str, str]:
        """What the draws depend on, for the fingerprint of a run."""
        return {f"gibbs[{name!r}]": _text(block, problem, batch_size) for name, block in self.by_name.items()}

    def beside(self, sampler: Sampler, place: Place, progress: Progress) -> Sampler:
        """A sampler of what moves, with the blocks beside it."""
        if not self:
            return sampler
        table, data = sampler.source.table, dict[str, Any]()
        on_all = [name for name, block in self.by_name.items() if block.on_all_rows]
        for name, block in self.by_name.items():
            if block.statistics is not None:
                sums = place.stage(f"statistics of {name}", lambda block=block: _summed(block, table, progress))
                data[name] = tree_map(jnp.asarray, sums)
        rows = jax.device_put(whole(table)) if on_all else {}
        kernel = Beside.of(sampler.kernel, self.by_name, data | dict.fromkeys(on_all, rows))
        settings = sampler.settings | {"gibbs": {name: str(block) for name, block in self.by_name.items()}}
        return replace(sampler, kernel=kernel, begin=HoldingStart(sampler.begin), settings=settings)

    def _seen_by_rows(self, problem: Problem) -> list[str]:
        """Of what they own, the names that the log likelihood depends on."""
        program = jax.make_jaxpr(problem.posterior.log_lik)(problem.shapes, _few(problem.table))
        used = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals))[1]
        return [name for name, seen in zip(leaf_names(problem.shapes), used, strict=False) if seen and name in self.owned]


def _block(name: str, given: Any) -> Gibbs:
    """A block that says what it owns."""
    if not isinstance(given, Gibbs) and not callable(given):
        raise InputError(f"gibbs[{name!r}] is {describe(given)}; expected a function or a sgmcmc.Gibbs: {EXAMPLE}")
    block = given if isinstance(given, Gibbs) else Gibbs(given)
    return block if block.owns else replace(block, owns=(name,))


def _check_owners(blocks: Mapping[str, Gibbs], names: list[str]) -> None:
    """Every parameter has one owner, the dynamics or a block."""
    owners: dict[str, str] = {}
    for name, block in blocks.items():
        for owned in block.owns:
            if owned not in names:
                expected = f"expected one of {', '.join(names)}, as its name or in Gibbs(owns=(...))"
                raise InputError(f"gibbs[{name!r}] owns {owned!r}, which params does not have; {expected}")
            if owned in owners:
                raise InputError(f"gibbs[{owners[owned]!r}] and gibbs[{name!r}] both own {owned!r}; expected one owner for each")
            owners[owned] = name
    if len(owners) == len(names):
        raise InputError(f"gibbs owns all parameters, {', '.join(names)}, so that nothing is left for the sampler to move")


def _check_update(who: str, block: Gibbs, problem: Problem, batch_size: int | None) -> None:
    """It must return what it owns, of the same shapes and kinds."""
    table = problem.table
    if block.on_all_rows and not table.in_memory:
        found = f"{who} looks at all rows, which are not in memory"
        raise InputError(f"{found}; expected Gibbs(statistics=...), sums over rows, or Gibbs(rows='minibatch')")
    what = f"key, params and {'statistics' if block.statistics else 'rows'}"
    if block.statistics is not None:
        _called(f"{who}.statistics", "a few rows", block.statistics, _few(table))
    given = _given(block, table, batch_size)
    came = _called(who, "key and params" if given is None else what, block.drawn, _key(), problem.shapes, given)
    if set(came) != {*block.owns}:
        expected = ", ".join(f"{owned!r}: ..." for owned in block.owns)
        raise InputError(f"{who} returned {describe(came.get('', came))}; expected a dict {{{expected}}} of what it owns")
    wanted = dict(zip(leaf_names(problem.shapes), jax.tree.leaves(problem.shapes), strict=True))
    for owned, value in came.items():
        _check_value(who, owned, value, wanted[owned])


def _check_value(who: str, owned: str, value: Any, wanted: Any) -> None:
    """One array, of the shape of the parameter, whole numbers where that has whole numbers."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != wanted.shape or dtype is None:
        found = f"{who} returned {describe(value)} for {owned!r}"
        raise InputError(f"{found}; expected an array of shape {wanted.shape}, as in params")
    if jnp.issubdtype(wanted.dtype, jnp.integer) and jnp.issubdtype(dtype, jnp.inexact):
        found = f"{who} returned {dtype} for {owned!r}, which are whole numbers in params"
        raise InputError(f"{found}; expected whole numbers, such as .astype(int), or start params[{owned!r}] at floats")


def _called(who: str, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the user's returns, as shapes."""
    try:
        return jax.eval_shape(function, *arguments)
    except Exception as error:
        raise InputError(f"{who} failed when called with {what}: {type(error).__name__}: {error}") from error


def _text(block: Gibbs, problem: Problem, batch_size: int | None) -> str:
    """A block for the fingerprint of a run."""
    table = problem.table
    update = of_function(block.drawn, _key(), problem.shapes, _given(block, table, batch_size))
    sums = "" if block.statistics is None else f", statistics: {of_function(block.statistics, _few(table))}"
    return f"{block} by {update}, of {block.rows} rows{sums}"


def _given(block: Gibbs, table: Table, batch_size: int | None) -> Any:
    """What a block's update looks at, as shapes."""
    if block.statistics is not None:
        return jax.eval_shape(block.statistics, _few(table))
    if not block.on_minibatches:
        return _rows(table, table.n_rows) if block.rows == ALL else None
    count = table.n_rows if batch_size is None else batch_size
    weight: Any = jax.eval_shape(Take(table.n_rows, count).weight)
    numbers: Any = jax.ShapeDtypeStruct((count,), jnp.int32)
    return Batch(_rows(table, count), weight, numbers)


def _summed(block: Gibbs, table: Table, progress: Progress) -> PyTree:
    """The sums over all rows of a block's statistics."""
    assert block.statistics is not None
    like = jax.eval_shape(block.statistics, _few(table))
    with Bar(progress, "statistics", table.n_rows, "row") as bar:
        sums = full_sum(jax.jit(block.statistics), table, bar)
    return tree_map(lambda total, one: jnp.asarray(total, one.dtype), sums, like)


def _key() -> Any:
    """A key, as a shape."""
    return jax.eval_shape(lambda: jax.random.key(0))


def _few(table: Table) -> Rows:
    return _rows(table, min(3, table.n_rows))


def _rows(table: Table, count: int) -> Rows:
    """So many rows, as shapes."""
    dtypes = {name: jax.dtypes.canonicalize_dtype(column.dtype) for name, column in table.items()}
    return {name: jax.ShapeDtypeStruct((count, *column.shape[1:]), dtypes[name]) for name, column in table.items()}
