"""What a NumPyro model shows of itself, and the parts of a `Model` that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from sgmcmc.core.compiling import options
from sgmcmc.core.errors import InputError
from sgmcmc.models.bridge.density import Density
from sgmcmc.models.bridge.dependence import DERIVED, EACH, PARAMETER, ROW, SCALE, SUPPORT, VALUE, Program, columns_needed
from sgmcmc.models.bridge.refusals import ONE_VALUE_PER_ROW
from sgmcmc.models.bridge.sites import Site, Sites
from sgmcmc.models.bridge.tracing import FEW, MORE, Running
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table


@dataclass(frozen=True)
class Look:
    """A model, its sites, and its programs on few rows and on more of them."""

    running: Running
    sites: Sites
    few: Program
    more: Program

    @classmethod
    def at(cls, running: Running, sites: Sites) -> Look:
        """Both programs."""
        return cls(running, sites, Program.of(running, sites, FEW), Program.of(running, sites, MORE))

    def check(self) -> None:
        """Refuse a prior that reads rows and supports that move."""
        for name in self.sites.others:
            self._check_prior(name)
        for name in self.sites.parameters:
            moving = [*self.few.needs(PARAMETER, [name], SUPPORT), *self.few.needs(ROW, [name], SUPPORT)]
            if moving:
                instead = (
                    f"sample a number u with a fixed support, such as (0, 1), and make {name!r} of it: low + (high - low) * u"
                )
                raise InputError(f"the support of {name!r} depends on {moving[0]!r}; {instead}")

    def _check_prior(self, name: str) -> None:
        columns = self.few.needs(ROW, [name], EACH)
        named = " and ".join(map(repr, columns))
        if columns and not self.sites.few[name].latent:
            raise InputError(f"site {name!r} adds up all rows of {named} to one number; {ONE_VALUE_PER_ROW}")
        if columns:
            instead = "work out what it needs of all rows before, and give it as static={'spread': ...}"
            raise InputError(f"the prior of {name!r} depends on {named}, of which a minibatch has a part; {instead}")
        if self.few.text([name], EACH) != self.more.text([name], EACH):
            instead = "a minibatch has fewer: give their number as static={'n_rows': ...}"
            raise InputError(f"site {name!r} depends on how many rows there are; {instead}")

    def density(self, table: Table) -> Density:
        """The functions of the model."""
        sites = self.sites
        derived = tuple(
            name for name, site in sites.few.items()
            if site.kind == "deterministic" and site.shape == sites.more[name].shape
            and not self.few.needs(ROW, [name], DERIVED) and self.few.text([name], DERIVED) == self.more.text([name], DERIVED)
        )  # fmt: skip
        axes = {name: sites.row_axis(name) for name in sites.rows}
        moved = tuple(name for name in sites.parameters if self.few.has(name, SCALE) and self.few.needs(PARAMETER, [name], SCALE))
        spared, summed = {"simulate": (), "mean": ()}, sites.summed
        latent, others = tuple(sites.parameters), tuple(sites.others)
        return Density(self.running, axes, others, latent, self._columns(table), spared, derived, moved, summed)

    def _columns(self, table: Table) -> dict[str, str]:
        """The column that every observed site has as it is; else the site's own name."""
        some = gather_all(table, np.arange(min(FEW, table.n_rows)))
        rows = {name: np.resize(column, (FEW, *column.shape[1:])) for name, column in some.items()}
        return {name: self._column(name, rows) or name for name in self.sites.observed}

    def _column(self, name: str, rows: Mapping[str, Any]) -> str | None:
        columns = self.few.needs(ROW, [name], VALUE)
        if len(columns) != 1 or self.few.needs(PARAMETER, [name], VALUE):
            return None
        [value] = self.few.evaluated([name], VALUE, rows)
        column = rows[columns[0]]
        return columns[0] if np.shape(value) == column.shape and np.array_equal(value, column) else None

    def starting_values(self, start: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Where the parameters start, and the supports of those that are not free."""
        supports = dict[str, Any]()

        def run() -> Any:
            trace = self.running.trace(self.running.blank(FEW), start=start)
            supports.update({name: trace[name]["fn"].support for name in self.sites.parameters})
            numbers = {name: [jnp.asarray(one) for one in jax.tree.leaves(support)] for name, support in supports.items()}
            return {name: jnp.asarray(trace[name]["value"], float) for name in supports}, numbers

        values, numbers = jax.tree.map(np.asarray, jax.jit(run, compiler_options=options(in_a_hurry=True))())
        fixed = {name: jax.tree.unflatten(jax.tree.structure(one), numbers[name]) for name, one in supports.items()}
        return {name: values[name] for name in supports}, {name: one for name, one in fixed.items() if not _free(one)}

    def dims(self, derived: tuple[str, ...]) -> dict[str, list[str]]:
        """Names of the axes of parameters in plates, and of what follows from these: those of the plates."""
        named = {name: _axes(name, self.sites.few[name]) for name in (*self.sites.parameters, *derived)}
        return {name: axes for name, axes in named.items() if axes}

    def simulate(self, density: Density) -> Any:
        """How to draw what is observed, where it can be drawn."""
        return self._sparing(density, "simulate", jax.random.key(0))

    def mean(self, density: Density) -> Any:
        """The expected value of what is observed, where all of it has one."""
        return self._sparing(density, "mean")

    def draw_prior(self, density: Density) -> Any:
        """How to draw from the prior, where all of it can be drawn."""
        try:
            jax.eval_shape(density.draw_prior, jax.random.key(0))
        except NOT_THERE:
            return None
        return jax.jit(density.draw_prior)

    def _sparing(self, density: Density, call: str, *before: Any) -> Any:
        """A function of rows that may lack the columns that it does not need; None where the distributions do not have it."""
        if not density.observed:
            return None
        values = {name: jax.ShapeDtypeStruct(self.sites.few[name].shape, jnp.result_type(float)) for name in density.parameters}
        try:
            needed = columns_needed(self.running, getattr(density, call), *before, values)
        except NOT_THERE:
            return None
        spared = tuple(name for name in self.running.columns if name not in needed)
        return jax.jit(getattr(replace(density, spared=dict(density.spared) | {call: spared}), call))


NOT_THERE = (AttributeError, NotImplementedError, TypeError, ValueError)
"""What distributions of NumPyro raise where they have no mean, or cannot be drawn from."""


def _free(support: Any) -> bool:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return isinstance(support, type(constraints.real))


def _axes(name: str, site: Site) -> list[str]:
    """Names of the axes of a value, where one of them is a plate's or has a name of the user's."""
    events = len(site.shape) - len(site.each) if site.kind == "sample" else 0
    places = {len(site.shape) - events + dim: (plate, size) for plate, dim, size in site.plates}
    named = {axis: plate for axis, (plate, size) in places.items() if axis >= 0 and site.shape[axis] == size}
    named |= {len(site.shape) - events + k: axis for k, axis in enumerate(site.axes[:events])}
    return [named.get(k, f"{name}_dim_{k}") for k in range(len(site.shape))] if named else []
