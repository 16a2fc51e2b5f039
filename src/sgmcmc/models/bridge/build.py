"""From a NumPyro model and data to a `Model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.infer import init_to_median

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.names import Coords, Dims
from sgmcmc.core.programs_on_disk import keep_programs
from sgmcmc.core.trees import Dataset
from sgmcmc.models.bridge.arguments import check_arguments
from sgmcmc.models.bridge.look import Look
from sgmcmc.models.bridge.refusals import check_sites
from sgmcmc.models.bridge.sites import Sites
from sgmcmc.models.bridge.tracing import Running
from sgmcmc.problem.model import Model
from sgmcmc.rows.table import check_dataset

Start = Callable[[Any], Any]
"""A strategy of NumPyro's: from a site to its value, or None."""


def build(
    model: Callable[..., Any], data: Dataset, static: Mapping[str, Any], plates: tuple[str, ...], init: Any,
    coords: Coords | None, dims: Dims | None,
) -> Model:  # fmt: skip
    """The model, or why it cannot be one."""
    keep_programs()
    table = check_dataset(data)
    check_arguments(model, table, static)
    columns = {name: (tuple(column.shape[1:]), column.dtype) for name, column in table.items()}
    running = Running(model, dict(static), columns, table.n_rows, plates)
    start = _strategy(init)
    sites = Sites.of(running, start)
    check_sites(running, sites)
    look = Look.at(running, sites)
    look.check()
    density = look.density(table)
    params, supports = look.starting_values(start)
    unknown = [name for name in (init if isinstance(init, Mapping) else ()) if name not in params]
    if unknown:
        raise InputError(f"init has {unknown[0]!r}, which is no parameter of the model; it has {', '.join(params)}")
    derived = density.deterministic if density.derived else None
    moved = density.loc_scale if density.moved else None
    named = look.dims(density.derived) | dict(dims or {})
    observed = tuple(column for column in density.observed.values() if column in columns)
    return Model(
        density.log_lik, data, params, density.log_prior, supports or None, coords, named or None, observed,
        look.simulate(density), look.mean(density), look.draw_prior(density), derived, moved,
    )  # fmt: skip


def _strategy(init: Any) -> Start:
    median: Any = init_to_median()
    if init is None:
        return median
    if isinstance(init, Mapping):
        return lambda site: _given(site, init[site["name"]]) if site["name"] in init else median(site)
    if not callable(init):
        raise InputError(
            f"init is {describe(init)}; expected a dict of values by name, or a strategy such as numpyro.infer.init_to_mean"
        )
    return init


def _given(site: Any, value: Any) -> Any:
    if np.shape(value) != site["fn"].shape():
        raise InputError(f"init[{site['name']!r}] has shape {np.shape(value)}; expected {site['fn'].shape()}")
    return jnp.asarray(value, float)
