"""The words the other rooms use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax

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

    >>> import jax.numpy as jnp, sgmcmc
    >>> sgmcmc.Batch(rows={"x": jnp.ones(2)}, weight=jnp.float32(50.0), index=jnp.array([3, 41])).weight.item()
    50.0
    """

    rows: Rows
    weight: jax.Array
    index: jax.Array


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
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
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
