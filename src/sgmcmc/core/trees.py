"""Trees of arrays: the words for them, the two that go through every room (`Batch`, `State`), arithmetic, and names of leaves."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

PyTree: TypeAlias = Any
"""Any nesting of dicts, lists, tuples or registered classes with arrays at the leaves."""

Rows: TypeAlias = dict[str, Any]
"""Some rows of the dataset: the dataset's names, each array with the rows on its first axis."""

Dataset: TypeAlias = Mapping[str, Any] | str | Path
"""What the user hands over: a mapping of names to arrays that share their first axis, or the path of a folder of rows."""

LogLik: TypeAlias = Callable[[PyTree, Rows], Any]
"""`log_lik(params, rows)`: the sum of the rows' log likelihoods, or one value per row."""

LogPrior: TypeAlias = Callable[[PyTree], Any]
"""`log_prior(params)`: a scalar, up to a constant."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """A minibatch: some rows, what each counts for, and where they came from.

    Attributes:
        rows: the dataset's names, each array with `n` rows.
        weight: a scalar when every row counts the same (`N/n`), else one number per row. The estimate
            of the full log likelihood is the weighted sum of the rows' log likelihoods.
        index: the rows' numbers in the user's dataset.
        key: a random key, for estimators that draw something themselves; else None.

    >>> import jax.numpy as jnp, sgmcmc
    >>> sgmcmc.Batch(rows={"x": jnp.ones(2)}, weight=jnp.float32(50.0), index=jnp.array([3, 41])).weight.item()
    50.0
    """

    rows: Rows
    weight: jax.Array
    index: jax.Array
    key: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Where a chain is: an ordinary pytree of arrays.

    With several chains every leaf but `step`, `seed` and what the chains share of `estimator` has them on its first axis.

    Attributes:
        step: iterations done so far.
        key: the chain's random key, as plain numbers; iteration `t` uses the key folded with `t`.
        params: the current parameters, the same tree as the user's `params`.
        position: what moves: the parameters after their constraints are removed. Without constraints, `params` itself.
        gradient: the estimate of the gradient of the log posterior at `position`.
        auxiliary: what else the dynamics carry, such as `"momentum"` and `"thermostat"`.
        estimator: what the gradient estimator carries, such as the centre of the control variates.
        seed: the key that all chains and the search for the centre come from, as plain numbers.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sghmc_setup(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, 1e-4, minibatch_size=10)
    >>> state = sampler.step(sampler.init(seed=1))
    >>> int(state.step), sorted(state.auxiliary)
    (1, ['momentum'])
    """

    step: jax.Array
    key: jax.Array
    params: PyTree
    position: PyTree
    gradient: PyTree
    auxiliary: dict[str, PyTree]
    estimator: PyTree
    seed: jax.Array

    @property
    def n_chains(self) -> int | None:
        """How many chains there are, or None where there is no chain axis."""
        return self.key.shape[0] if self.chained else None

    @property
    def chained(self) -> bool:
        """Whether there is a chain axis."""
        return self.key.ndim == 2


tree_map = jax.tree.map


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Fixed:
    """A function among parameters, such as the activation of a network: part of the tree's structure, and no number of it."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def tree_flatten(self) -> tuple[tuple[()], Callable[..., Any]]:
        return (), self.function

    @classmethod
    def tree_unflatten(cls, function: Callable[..., Any], _: Any) -> "Fixed":
        return cls(function)


def with_functions_fixed(tree: PyTree) -> PyTree:
    """The tree with its functions in the structure, so that a whole module can be sampled."""
    leaves = jax.tree.leaves(tree)
    if not any(callable(leaf) for leaf in leaves) or not any(hasattr(leaf, "dtype") for leaf in leaves):
        return tree
    return tree_map(lambda leaf: Fixed(leaf) if callable(leaf) else leaf, tree)


def leaf_names(tree: PyTree) -> list[str]:
    """The leaves' names as a user would write them: `beta`, `layer.weights`; a bare array is `params`."""
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "params" for path, _ in paths]


def labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """A name for every number of an array."""
    return [name + (f"[{','.join(map(str, index))}]" if index else "") for index in np.ndindex(*shape)]


def children(tree: PyTree) -> dict[str, PyTree]:
    """The top level of a tree by name."""
    one_level = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    return {jax.tree_util.keystr(path, simple=True) or "params": child for path, child in one_level}


def size(tree: PyTree) -> int:
    """The number of numbers in a tree."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(tree))


def shapes(tree: PyTree) -> PyTree:
    """The tree with its arrays replaced by their shapes and dtypes."""
    return tree_map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tree)


def split(vector: jax.Array, like: PyTree) -> PyTree:
    """Cut the last axis of `vector` into a tree shaped like `like`; other axes stay in front."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    pieces = jnp.split(vector, ends[:-1], axis=-1)
    front = vector.shape[:-1]
    shaped = [piece.reshape(front + leaf.shape).astype(leaf.dtype) for piece, leaf in zip(pieces, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def flat(tree: PyTree) -> jax.Array:
    """All numbers of a tree in one vector, traced."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def join(tree: PyTree) -> np.ndarray:
    """All numbers of a tree in one float64 vector on the host."""
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def on_host(x: Any, dtype: Any) -> Any:
    """Numbers of the host converted there: to have JAX do it is one more program to compile. Anything else as it is."""
    plain = x if isinstance(x, jax.Array) else np.asarray(x)
    return plain.astype(dtype) if isinstance(plain, np.ndarray) and plain.dtype.kind in "fiub" else x


def all_finite(*trees: PyTree) -> jax.Array:
    """Whether every number of every tree is finite."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(trees)]).all()


def where(condition: Any, yes: PyTree, no: PyTree) -> PyTree:
    """One tree or the other, leaf by leaf."""
    return tree_map(lambda a, b: jnp.where(condition, a, b), yes, no)


def pick(tree: PyTree, number: Any) -> PyTree:
    """One entry along the first axis of every leaf."""
    return tree_map(lambda x: x[number], tree)


class Culprit(NamedTuple):
    """The first parameter that is not finite, and its chain where there are chains."""

    parameter: str
    chain: int | None


def first_not_finite(position: PyTree, gradient: PyTree, chained: bool) -> Culprit | None:
    """Who left the finite numbers first: by position, else by gradient."""
    for tree in (position, gradient):
        for name, leaf in zip(leaf_names(position), jax.tree.leaves(tree), strict=True):
            bad = ~np.isfinite(np.asarray(leaf))
            if bad.any():
                return Culprit(name, int(np.argwhere(bad)[0][0]) if chained else None)
    return None
