"""The functions of a `Model`, from the sites of a NumPyro model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import PyTree, Rows
from sgmcmc.models.bridge.tracing import FEW, Running, Trace, loc_and_scale, log_prob


@dataclass(frozen=True, eq=False)
class Density:
    """A model with what is known of its sites.

    Attributes:
        running: the model, and what it is called with.
        axes: of every site of rows, the axis that counts them, from the right.
        prior: sites that are no rows.
        parameters: latent ones.
        observed: the columns that observed sites have, by site; a site's own name where it has no column as it is.
        spared: columns that may be missing when rows are drawn, and when their mean is asked for.
        derived: deterministic sites that are no rows.
        summed: latent sites of rows, and how many values each may have: they are summed over.
        moved: parameters with a location and a scale, one of which depends on other parameters.
    """

    running: Running
    axes: Mapping[str, int]
    prior: tuple[str, ...]
    parameters: tuple[str, ...]
    observed: Mapping[str, str]
    spared: Mapping[str, tuple[str, ...]]
    derived: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    summed: Mapping[str, int] = field(default_factory=dict)

    def log_lik(self, params: PyTree, rows: Rows) -> jax.Array:
        """One value per row."""
        return jax.nn.logsumexp(self._each(lambda trace: self._by_row(trace, self.axes), rows, params), axis=0)

    def _by_row(self, trace: Trace, names: Iterable[str]) -> jax.Array:
        return sum((_by_row(log_prob(trace[name]), self.axes[name]) for name in names), start=jnp.zeros(()))

    def _each(self, said: Callable[[Trace], PyTree], rows: Rows, params: PyTree) -> PyTree:
        """What is said of a run, for all values that latent sites of rows may have together: these on the first axis."""
        choices = [jnp.arange(count) for count in self.summed.values()]
        together = dict(zip(self.summed, (grid.ravel() for grid in jnp.meshgrid(*choices)), strict=True)) if choices else {}

        def of_one(chosen: Mapping[str, Any]) -> PyTree:
            return said(self.running.trace(rows, params, start=partial(_choice, chosen)))

        return jax.vmap(of_one)(together) if together else jax.tree.map(lambda x: x[None], of_one({}))

    def log_prior(self, params: PyTree) -> jax.Array:
        """The sum of all that is no row."""
        trace = self._without_rows(params)
        return sum((jnp.sum(log_prob(trace[name])) for name in self.prior), start=jnp.zeros(()))

    def draw_prior(self, key: jax.Array) -> PyTree:
        """Parameters from the prior."""
        trace = self.running.trace(self.running.blank(FEW), key=key)
        return {name: jnp.asarray(trace[name]["value"], float) for name in self.parameters}

    def simulate(self, key: jax.Array, params: PyTree, rows: Rows) -> dict[str, jax.Array]:
        """What would have been observed in these rows."""
        trace = self.running.trace(self._filled(rows, "simulate"), params, key, observed=False)
        drawn = {column: self._rows_first(trace[name], trace[name]["value"], name) for name, column in self.observed.items()}
        return {column: self._typed(column, values) for column, values in drawn.items()}

    def mean(self, params: PyTree, rows: Rows) -> Any:
        """The expected value of what is observed: an array, or a dict of them where several columns are."""

        def said(trace: Trace) -> Any:
            means = {column: self._rows_first(trace[name], _mean(trace[name]), name) for name, column in self.observed.items()}
            return means, jnp.exp(self._by_row(trace, self.summed))

        means, chances = self._each(said, self._filled(rows, "mean"), params)
        mean = {name: jnp.einsum("kn,kn...->n...", jnp.broadcast_to(chances, x.shape[:2]), x) for name, x in means.items()}
        return mean if len(mean) > 1 else next(iter(mean.values()))

    def deterministic(self, params: PyTree) -> dict[str, jax.Array]:
        """What follows from the parameters, by the names that the model gives it."""
        trace = self._without_rows(params)
        return {name: jnp.asarray(trace[name]["value"]) for name in self.derived}

    def loc_scale(self, params: PyTree) -> dict[str, Any]:
        """Location and scale of parameters that depend on other parameters."""
        return dict(zip(self.moved, jax.jit(self._locs_and_scales)(params), strict=True))  # in the order of the model

    def _locs_and_scales(self, params: PyTree) -> list[Any]:
        trace = self._without_rows(params)
        return [loc_and_scale(trace[name]["fn"]) for name in self.moved]

    def _without_rows(self, params: PyTree) -> Trace:
        return self.running.trace(self.running.blank(FEW), params)

    def _rows_first(self, site: Any, values: Any, name: str) -> jax.Array:
        """Values of a site with rows on the first axis."""
        return jnp.moveaxis(jnp.asarray(values), self.axes[name] - site["fn"].event_dim, 0)

    def _typed(self, column: str, values: jax.Array) -> jax.Array:
        return values.astype(self.running.columns[column][1]) if column in self.running.columns else values

    def _filled(self, rows: Rows, call: str) -> Rows:
        """The rows with zeros in the place of columns that do not matter."""
        missing = [name for name in self.running.columns if name not in rows]
        needed = [name for name in missing if name not in self.spared[call]]
        if needed:
            listed = ", ".join(name for name in self.running.columns if name not in self.spared[call])
            raise InputError(f"{call} came with rows without {needed[0]!r}; expected the columns {listed}")
        if not missing:
            return {name: rows[name] for name in self.running.columns}
        count = len(next(iter(rows.values())))
        blank = self.running.blank(count)
        return {name: rows.get(name, blank[name]) for name in self.running.columns}


def _by_row(values: jax.Array, axis: int) -> jax.Array:
    """The sum over all axes but that of the rows."""
    first = jnp.moveaxis(values, axis, 0)
    return first.reshape(first.shape[0], -1).sum(axis=1) if first.ndim > 1 else first


def _choice(chosen: Mapping[str, Any], site: Any) -> Any:
    """The value so far down the list of those that a site may have, in all rows."""
    if site["name"] not in chosen:
        return None
    values = site["fn"].enumerate_support(expand=False)[chosen[site["name"]]]
    return jnp.broadcast_to(values, site["fn"].batch_shape)


def _mean(site: Any) -> jax.Array:
    """The mean of a site whose distribution has one that says something."""
    if type(site["fn"]).__name__.startswith(("Categorical", "OrderedLogistic", "Multinomial")):
        raise NotImplementedError("categories have no mean")
    return jnp.broadcast_to(site["fn"].mean, jnp.shape(site["value"]))
