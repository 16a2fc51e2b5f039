"""A result as ArviZ takes it: one tree of groups, whose draws are thinned alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgmcmc.core.checks import Progress, check_count, check_progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.names import Coords, Dims
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, leaf_names, tree_map
from sgmcmc.problem.over_draws import OverDraws
from sgmcmc.problem.simulating import prior_draws, prior_predictive, refuse_if_large, simulation
from sgmcmc.results.after.densities import each_row
from sgmcmc.results.after.draws import like_params
from sgmcmc.results.after.predicting import model_of
from sgmcmc.results.after.some_rows import row_numbers, rows_at
from sgmcmc.rows.table import Table, check_dataset

if TYPE_CHECKING:
    from sgmcmc.results.result import Result

MOST_DRAWS = 1000
"""Draws of all chains, where rows are looked at for each of them."""

ROW = "row"
"""What the axis of rows is called; its labels are the numbers of the rows."""


def to_arviz(
    result: Result, groups: Sequence[str], coords: Coords | None, dims: Dims | None, draws: int | None, rows: int, seed: int,
    progress: Progress,
) -> Any:  # fmt: skip
    """As `Result.to_arviz` says."""
    from arviz_base import from_dict

    wanted = (groups,) if isinstance(groups, str) else tuple(groups)
    unknown = [one for one in wanted if one not in GROUPS]
    if unknown or not wanted:
        raise InputError(f"groups is {describe(groups)}; expected some of {', '.join(map(repr, GROUPS))}")
    along_call, axes_call = _named(coords, dims)
    each = Export(result, draws, rows, seed, progress, any(one not in PLAIN for one in wanted))
    found = {one: contents for one in wanted if (contents := _renamed(GROUPS[one](each)))}
    along, axes = result.names.axes(result.draws, result.chained)
    along, axes = along | each.coords | along_call, axes | each.dims | axes_call
    attributes = {name: str(value) for name, value in result.settings.items()}
    told = {one: attributes for one in ("posterior",) if one in found}
    return from_dict(
        found, attrs=told, coords=_renamed(along), dims={plain(name): [*map(plain, of)] for name, of in axes.items()}
    )


@dataclass
class Export:
    """What the groups are made of: some draws of every chain, and some rows, the same for all."""

    result: Result
    draws: int | None
    n_rows: int
    seed: int
    progress: Progress
    of_rows: bool

    def posterior(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(values[:, self.places]) for name, values in self.result._named_draws().items()}

    def sample_stats(self) -> dict[str, np.ndarray]:
        """What is known of every draw: its weight, the length of the gradient where it was kept."""
        shape, found, pairs = self._shape, {}, self.result.pairs
        if self.result.weights is not None:
            found["weight"] = np.broadcast_to(self.result.weights, shape)[:, self.places]
        if pairs is not None and pairs.gradients.shape[:2] == shape:
            found["gradient_norm"] = np.linalg.norm(pairs.gradients[:, self.places], axis=-1)
        return found

    def log_likelihood(self) -> dict[str, np.ndarray]:
        observed = self.model.observed
        values = self._all(each_row(self.model, self.params, self.table), "log likelihood")
        alone = len(observed) == 1 and len(self.table[observed[0]].shape) == 1
        return {observed[0] if alone else "log_lik": values}

    def posterior_predictive(self) -> dict[str, np.ndarray]:
        return self._all(simulation(self.model, self.params, self.seed), "simulating")

    def prior(self) -> dict[str, np.ndarray]:
        found = prior_draws(self.model, self.draws or MOST_DRAWS, self.seed)
        return dict(zip(leaf_names(found), (np.asarray(leaf)[None] for leaf in jax.tree.leaves(found)), strict=True))

    def prior_predictive(self) -> dict[str, np.ndarray]:
        made = prior_predictive(self.model, self.table, self.draws or MOST_DRAWS, self.seed, self.progress)
        return {name: values[None] for name, values in made.items()}

    def observed_data(self) -> dict[str, np.ndarray]:
        if not self.model.observed:
            raise InputError(
                "to_arviz was asked for observed_data; say which columns they are: sgmcmc.Model(..., observed=('y',))"
            )
        return {name: self.table[name] for name in self.model.observed if name in self.table}

    @cached_property
    def places(self) -> np.ndarray:
        """Of every chain every so-manyth draw, from the middle of the first such stretch."""
        chains, total = self._shape
        most = self.draws if self.draws is not None else MOST_DRAWS if self.of_rows else chains * total
        every = -(-chains * total // check_count("draws", most))
        return np.arange(min(every // 2, total - 1), total, every)

    @cached_property
    def model(self) -> Any:
        return model_of(self.result.in_model, "to_arviz with groups of rows")

    @cached_property
    def params(self) -> PyTree:
        """These draws as parameters of the model, on one axis."""
        inner = self.result.in_model
        front = 1 + inner.chained
        picked = tree_map(lambda x: np.asarray(x[:, self.places] if inner.chained else x[self.places]), inner.draws)
        return like_params(inner, tree_map(lambda x: x.reshape(-1, *x.shape[front:]), picked))

    @cached_property
    def numbers(self) -> np.ndarray:
        return row_numbers(self._whole, self.n_rows, self.seed)

    @cached_property
    def table(self) -> Table:
        return rows_at(self._whole, self.numbers)

    @property
    def coords(self) -> dict[str, list[int]]:
        return {ROW: self.numbers.tolist()} if self.of_rows and "numbers" in vars(self) else {}

    @property
    def dims(self) -> dict[str, list[str]]:
        """Axes of what has rows: further ones of a column have names after it."""
        if not self.coords:
            return {}
        shapes = {name: column.shape[1:] for name, column in self.table.items() if name in self.model.observed}
        axes = {name: [ROW, *(f"{name}_dim_{k + 1}" for k in range(len(shape)))] for name, shape in shapes.items()}
        return {"log_lik": [ROW]} | axes

    @cached_property
    def _whole(self) -> Table:
        return check_dataset(self.model.dataset)

    @property
    def _shape(self) -> tuple[int, int]:
        return next(iter(self.result._named_draws().values())).shape[:2]

    def _all(self, ask: OverDraws, stage: str) -> Any:
        """For all rows, chains apart."""
        refuse_if_large(ask.bytes_of_row(self.table) * self.table.n_rows, ask.n_draws, self.table.n_rows)
        with Bar(check_progress(self.progress), stage, self.table.n_rows, "row") as bar:
            found = ask.all(self.table, bar)
        return tree_map(lambda x: x.reshape(self._shape[0], len(self.places), *x.shape[1:]), found)


PLAIN = ("posterior", "sample_stats")
"""Groups that need no rows."""

GROUPS = {
    "posterior": Export.posterior,
    "sample_stats": Export.sample_stats,
    "log_likelihood": Export.log_likelihood,
    "posterior_predictive": Export.posterior_predictive,
    "prior": Export.prior,
    "prior_predictive": Export.prior_predictive,
    "observed_data": Export.observed_data,
}


def plain(name: str) -> str:
    """A name as trees of groups take it: with dots in place of slashes, which would be paths."""
    return name.replace("/", ".")


def _renamed(contents: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in contents.items():
        if plain(name) in found:
            raise InputError(f"{name!r} would be {plain(name)!r} for ArviZ, which is another name already; rename one of them")
        found[plain(name)] = value
    return found


def _named(coords: Coords | None, dims: Dims | None) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
    """What the call says; shapes are looked at by ArviZ."""
    along = {str(axis): list(values) for axis, values in (coords or {}).items()}
    return along, {str(name): [of] if isinstance(of, str) else list(of) for name, of in (dims or {}).items()}
