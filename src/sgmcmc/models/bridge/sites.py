"""What the sites of a NumPyro model are: rows, parameters, or what cannot be sampled by minibatches and is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sgmcmc.core.errors import InputError
from sgmcmc.models.bridge.tracing import FEW, MORE, Running, log_prob


@dataclass(frozen=True)
class Site:
    """One site of a run, by its shapes.

    Attributes:
        kind: NumPyro's word for it: `sample`, `param`, `deterministic`, ...
        observed: whether its value is given.
        auxiliary: whether it is a factor and no distribution of anything.
        discrete: whether its values have no gradient.
        shape: of its value.
        each: of what it adds to the log density.
        plates: name, axis from the right, and size of every plate it is in.
        axes: names that the user gave to axes of its events.
        choices: how many values it may have, where it is discrete and these can be counted.
    """

    kind: str
    observed: bool = False
    auxiliary: bool = False
    discrete: bool = False
    shape: tuple[int, ...] = ()
    each: tuple[int, ...] = ()
    plates: tuple[tuple[str, int, int], ...] = ()
    axes: tuple[str, ...] = ()
    choices: int = 0

    @classmethod
    def of(cls, site: Any) -> Site:
        plates = tuple((frame.name, frame.dim, frame.size) for frame in site.get("cond_indep_stack", ()))
        if site["type"] != "sample":
            return cls(site["type"], plates=plates, shape=_shape(site["value"]))
        infer = site["infer"]
        auxiliary, axes = bool(infer.get("is_auxiliary")), tuple(infer.get("event_dims", ()))
        discrete = not auxiliary and bool(site["fn"].support.is_discrete)
        shapes = jnp.shape(site["value"]), jnp.shape(log_prob(site))
        counted = discrete and site["fn"].has_enumerate_support and site["fn"].event_dim == 0
        choices = site["fn"].enumerate_support(expand=False).shape[0] if counted else 0
        return cls("sample", site["is_observed"], auxiliary, discrete, *shapes, plates, axes, choices)

    @property
    def latent(self) -> bool:
        return self.kind == "sample" and not self.observed


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


@dataclass(frozen=True)
class Sites:
    """Every site of a model on few rows and on more of them: where these differ, rows are."""

    few: Mapping[str, Site]
    more: Mapping[str, Site]

    @classmethod
    def of(cls, running: Running, start: Any) -> Sites:
        few, more = (_sites(running, start, count) for count in (FEW, MORE))
        if list(few) != list(more):
            name = sorted({*few} ^ {*more})[0]
            raise InputError(f"site {name!r} is there for some numbers of rows only; write the model the same for any number")
        return cls(few, more)

    @property
    def parameters(self) -> list[str]:
        """Latent sites with one value for all rows."""
        return [name for name, site in self.few.items() if site.latent and not self.in_rows(name)]

    @property
    def rows(self) -> list[str]:
        """Sites of which every row has a part."""
        return [name for name, site in self.few.items() if site.kind == "sample" and self.in_rows(name)]

    @property
    def observed(self) -> list[str]:
        """Those of them whose values are observed."""
        return [name for name in self.rows if self.few[name].observed and not self.few[name].auxiliary]

    @property
    def summed(self) -> dict[str, int]:
        """Those of them that are latent and are summed over: how many values each may have."""
        return {name: self.few[name].choices for name in self.rows if self.few[name].latent}

    @property
    def others(self) -> list[str]:
        """Sites that are no rows: the prior."""
        return [name for name, site in self.few.items() if site.kind == "sample" and not self.in_rows(name)]

    @property
    def plates(self) -> list[str]:
        """Plates that grow with the rows."""
        pairs = (pair for name, site in self.few.items() for pair in zip(site.plates, self.more[name].plates, strict=False))
        return list(dict.fromkeys(few[0] for few, more in pairs if few != more))

    def in_rows(self, name: str) -> bool:
        """Whether a site grows with the rows."""
        few, more = self.few[name], self.more[name]
        return few.each != more.each or (few.shape != more.shape and not few.observed)

    def row_axis(self, name: str) -> int:
        """Which axis of what it adds counts the rows, from the right."""
        few, more = self.few[name].each, self.more[name].each
        return next(k for k in range(-len(few), 0) if few[k] != more[k])


def _sites(running: Running, start: Any, count: int) -> dict[str, Site]:
    found: dict[str, Site] = {}

    def look(rows: Any) -> None:
        trace = running.trace(rows, start=start)
        found.update({name: Site.of(site) for name, site in trace.items() if site["type"] != "plate"})

    traced(running, look, running.shapes(count))
    return found


def traced(running: Running, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` on shapes. What the model raises is told in words."""
    try:
        return jax.eval_shape(function, *arguments)
    except InputError:
        raise
    except jax.errors.JAXTypeError as error:
        found = f"the model computes with values of the data while it is traced ({_line(error)})"
        repair = "work out sizes, levels and flags before, and give them as static={'n_groups': 8}"
        raise InputError(f"{found}; {repair}") from error
    except Exception as error:
        count = len(jax.tree.leaves(arguments)[0])
        found = f"the model failed on {count} of the {running.total:,} rows: {type(error).__name__}: {_line(error)}"
        repair = "every column and every plate over rows must go with the rows given: arrays of all rows belong in data, not in"
        raise InputError(f"{found}. {repair} static or in the model itself") from error


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
