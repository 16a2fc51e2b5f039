"""What depends on what in a NumPyro model: asked of the program that JAX makes of it, of which nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.interpreters import partial_eval

from sgmcmc.models.bridge.sites import Sites
from sgmcmc.models.bridge.tracing import FEW, Running, loc_and_scale, log_prob

EACH, VALUE, SUPPORT, SCALE, DERIVED = "each", "value", "support", "scale", "derived"
"""What is asked of a site."""

ROW, PARAMETER = "column", "parameter"


@dataclass(frozen=True)
class Program:
    """A model as one program from parameters and rows to all that its sites say.

    Attributes:
        outputs: what each number that comes out is: the site's name and what was asked of it.
        inputs: what each that goes in is: a parameter or a column, and its name.
        shapes: of what comes out.
        supports: structures of the supports, by parameter.
    """

    closed: Any
    outputs: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]
    shapes: tuple[tuple[int, ...], ...]
    supports: Mapping[str, Any]

    @classmethod
    def of(cls, running: Running, sites: Sites, count: int) -> Program:
        """That for so many rows."""
        supports: dict[str, Any] = {}

        def said(values: Any, rows: Any) -> Any:
            trace = running.trace(rows, values)
            asked = {(name, what): value for name in trace for what, value in _asked(sites, name, trace[name]).items()}
            for name in sites.parameters:
                leaves, supports[name] = jax.tree.flatten(trace[name]["fn"].support)
                asked[name, SUPPORT] = [jnp.asarray(leaf) for leaf in leaves]
            return {f"{name} {what}": (value,) for (name, what), value in asked.items()}

        some = sites.few if count == FEW else sites.more
        values = {name: jax.ShapeDtypeStruct(some[name].shape, jnp.result_type(float)) for name in sites.parameters}
        rows = running.shapes(count)
        closed, out = jax.make_jaxpr(said, return_shape=True)(values, rows)
        named = [str(path[0].key).rsplit(" ", 1) for path, _ in jax.tree_util.tree_leaves_with_path(out)]
        inputs = [(PARAMETER, name) for name in sorted(values)] + [(ROW, name) for name in sorted(rows)]
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(out))
        return cls(closed, tuple((a, b) for a, b in named), tuple(inputs), shapes, supports)

    def has(self, name: str, what: str) -> bool:
        return (name, what) in self.outputs

    def shape(self, name: str, what: str) -> tuple[int, ...]:
        return self.shapes[self.outputs.index((name, what))]

    def needs(self, kind: str, names: Iterable[str], *what: str) -> list[str]:
        """The parameters or columns on which something of these sites depends."""
        used = self._only(names, what)[2]
        return [name for (of, name), needed in zip(self.inputs, used, strict=True) if needed and of == kind]

    def text(self, names: Iterable[str], *what: str) -> tuple[Any, ...]:
        """What makes two programs for something of these sites the same."""
        left, constants, _ = self._only(names, what)
        return (str(left), *(np.asarray(one).tobytes() for one in constants))

    def evaluated(self, names: Iterable[str], what: str, rows: Mapping[str, Any]) -> list[Any]:
        """Something of these sites that depends on columns alone."""
        left, constants, used = self._only(names, (what,))
        given = [rows.get(name) for (_, name), needed in zip(self.inputs, used, strict=True) if needed]
        return eval_jaxpr(left, constants, *given)

    def _only(self, names: Iterable[str], what: tuple[str, ...]) -> tuple[Any, list[Any], list[bool]]:
        """What is left of the program, the constants of that, and which inputs it needs."""
        names = set(names)
        wanted = [name in names and asked in what for name, asked in self.outputs]
        left, constants, inputs = partial_eval.dce_jaxpr_consts(self.closed.jaxpr, wanted)
        return left, [one for one, needed in zip(self.closed.consts, constants, strict=True) if needed], inputs


def _asked(sites: Sites, name: str, site: Any) -> dict[str, Any]:
    if site["type"] == "deterministic":
        return {DERIVED: site["value"]}
    if site["type"] != "sample":
        return {}
    found: dict[str, Any] = {EACH: log_prob(site)}
    if name in sites.observed:
        found[VALUE] = site["value"]
    if name in sites.parameters and (both := loc_and_scale(site["fn"])) is not None:
        found[SCALE] = jnp.stack(both)
    return found


def columns_needed(running: Running, function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The columns on which `function(*arguments, rows)` depends."""
    closed = jax.make_jaxpr(function)(*arguments, running.shapes(FEW))
    _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals))
    names = sorted(running.columns)
    return [name for name, needed in zip(names, used[-len(names) :], strict=True) if needed]
