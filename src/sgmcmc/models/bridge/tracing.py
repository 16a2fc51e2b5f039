"""Runs of a NumPyro model on rows that are given: under these handlers, and what its sites say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers, validation_enabled
from numpyro.distributions.util import is_identically_one

from sgmcmc.core.trees import Rows
from sgmcmc.models.bridge.handlers import AllRows, Drawn

Trace = Mapping[str, Any]
"""Sites by name, in the order of the model."""

FEW, MORE = 2, 5
"""Rows of the runs that show which sites grow with them. The prior is taken from the smaller run."""


@dataclass(frozen=True)
class Running:
    """A model with all that it is called with, but rows and values.

    Attributes:
        model: the user's model.
        static: what it is called with beside rows.
        columns: of every column of the data, the shape of a row and the type.
        total: rows of the whole dataset.
        plates: the names of the plates over rows; without any, these are known by their size.
    """

    model: Callable[..., Any]
    static: Mapping[str, Any]
    columns: Mapping[str, tuple[tuple[int, ...], Any]]
    total: int
    plates: tuple[str, ...] = field(default=())

    def shapes(self, count: int) -> dict[str, jax.ShapeDtypeStruct]:
        """So many rows, as shapes."""
        return {name: jax.ShapeDtypeStruct((count, *shape), dtype) for name, (shape, dtype) in self.columns.items()}

    def blank(self, count: int) -> Rows:
        """So many rows of zeros, for what does not depend on rows."""
        return {name: jnp.zeros((count, *shape), dtype) for name, (shape, dtype) in self.columns.items()}

    def trace(self, rows: Rows, values: Any = None, key: Any = None, start: Any = None, observed: bool = True) -> Trace:
        """The sites of one run: latent ones have the values given, or those of a strategy `start`, or else are drawn.

        Args:
            rows: all columns, with any number of rows.
            values: values of latent sites by name.
            key: random numbers come from it.
            start: a strategy of NumPyro's for the values of the others.
            observed: whether what is observed has the values of the rows; else it is drawn.
        """
        model = handlers.seed(self.model, jax.random.key(0) if key is None else key)
        model = handlers.substitute(model, data=values) if values else model
        model = handlers.substitute(model, substitute_fn=start) if start is not None else model
        model = model if observed else Drawn(model)
        traced = handlers.trace(model)
        count = len(next(iter(rows.values())))
        whole = AllRows(traced, self.total, count, self.plates)
        with validation_enabled(False):  # rows of zeros, for what does not depend on them, need not be valid
            whole(**self.static, **{name: jnp.asarray(column) for name, column in rows.items()})
        return traced.trace


def log_prob(site: Any) -> jax.Array:
    """What a site adds to the log density, by element, with the scale that the user gave it."""
    value = site["fn"].log_prob(site["value"])
    scale = site["scale"]
    return value if scale is None or is_identically_one(scale) else scale * value


def loc_and_scale(fn: Any) -> tuple[jax.Array, jax.Array] | None:
    """Location and scale of each number of a distribution that is no more than moved and stretched by them."""
    shape = fn.shape()
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    if not isinstance(fn, dist.Normal | dist.StudentT | dist.Cauchy | dist.Laplace | dist.Logistic):
        return None
    return jnp.broadcast_to(jnp.asarray(fn.loc), shape), jnp.broadcast_to(jnp.asarray(fn.scale), shape)
