"""Pictures of a regression: expected outcomes along columns, and effects of groups as they were drawn together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Rows, tree_map
from sgmcmc.models.regression.core import Group
from sgmcmc.models.regression.predictor import STANDARD, Predictor
from sgmcmc.models.regression.report import effects_of
from sgmcmc.problem.passes import all_rows
from sgmcmc.rows.table import check_dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sgmcmc.models.regression.result import Regression

OWN, TOGETHER = "tab:orange", "tab:blue"


def dependences(fit: Regression, columns: Sequence[str], level: float, draws: int) -> Figure:
    """As `Regression.plot_dependence` says."""
    from matplotlib.figure import Figure

    wide = min(3, len(columns))
    tall = -(-len(columns) // wide)
    figure = Figure(figsize=(4 * wide, 3 * tall), layout="constrained")
    for number, column in enumerate(columns):
        _dependence(figure.add_subplot(tall, wide, number + 1), fit.dependence(column, level=level, draws=draws), column)
    figure.supylabel(f"expected {fit.design.response.parsed.outcome}")
    return figure


def _dependence(axes: Any, table: Any, column: str) -> None:
    axes.set_xlabel(column)
    if table.index.nlevels > 1:
        for name, own in table.groupby(level=1, sort=False):
            _line(axes, own.droplevel(1), str(name))
        axes.legend(fontsize="small")
    else:
        _line(axes, table, None)


def _line(axes: Any, table: Any, label: str | None) -> None:
    if table.index.dtype.kind in "ifM" and len(table) > 2:
        axes.plot(table.index, table["mean"], label=label)
        axes.fill_between(table.index, table["lower"], table["upper"], alpha=0.25)
        return
    error = [table["mean"] - table["lower"], table["upper"] - table["mean"]]
    axes.errorbar([str(one) for one in table.index], table["mean"], error, fmt="o", label=label)
    axes.tick_params(axis="x", rotation=45 if len(table) > 4 else 0)


def find_group(fit: Regression, name: str | None) -> Group:
    """A grouping by its name."""
    known = [group.effects.name for group in fit.core.groups]
    if not known:
        raise InputError("this regression has no groups; give it some, such as (1 | region)")
    if name is None and len(known) == 1:
        return fit.core.groups[0]
    if name not in known:
        raise InputError(f"there is no grouping {name!r}; the formula has {', '.join(known)}")
    return fit.core.groups[known.index(name)]


def shrinkage(fit: Regression, name: str | None, part: str, most: int) -> Figure:
    """As `Regression.plot_groups` says."""
    from matplotlib.figure import Figure

    group = find_group(fit, name)
    if part not in group.parts:
        raise InputError(f"{part!r} does not vary over {group.effects.name!r}; there are {', '.join(map(repr, group.parts))}")
    place = group.parts.index(part)
    draws = effects_of(fit.core, group, fit.inner.draws)[..., place].reshape(-1, len(group.labels))
    counts = fit.design.facts.counts[tuple(fit.design.varying[fit.core.groups.index(group)].grouping.by)]
    shown = np.sort(np.argsort(-counts, kind="stable")[:most])
    shown = shown[np.argsort(draws[:, shown].mean(axis=0))]
    figure = Figure(figsize=(6.5, 1.5 + 0.16 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    middle, ends = draws.mean(axis=0)[shown], np.quantile(draws[:, shown], (0.05, 0.95), axis=0)
    places = np.arange(len(shown))
    axes.hlines(places, ends[0], ends[1], color=TOGETHER, alpha=0.6)
    axes.plot(middle, places, "o", color=TOGETHER, ms=4, label="drawn together, with 90% intervals")
    if part == "1":
        alone = unpooled(fit, group)[shown]
        sizes = 12 + 60 * counts[shown] / counts[shown].max()
        axes.scatter(alone, places, sizes, facecolors="none", edgecolors=OWN, label="by a group's rows alone, larger for more")
    axes.set_yticks(places, [group.labels[i] for i in shown], fontsize="x-small" if len(shown) > 20 else "small")
    axes.axvline(0, color="grey", lw=0.8)
    axes.set_xlabel(f"effect of {part} | {group.effects.name}")
    axes.legend(fontsize="small", loc="upper left")
    return figure


def unpooled(fit: Regression, group: Group) -> np.ndarray:
    """What every group's rows alone say of its intercept, the rest at its posterior mean: a Newton step from the effect."""
    model = fit.inner.model
    assert model is not None
    params = tree_map(lambda x: x.mean(axis=(0, 1)), fit.inner.draws)
    program = jax.jit(partial(_score_and_information, fit.core.predictor))
    total = np.zeros((2, len(group.labels)))
    for rows in all_rows(check_dataset(model.dataset)):
        found = np.asarray(program(params, rows), np.float64)
        for number in range(2):
            total[number] += np.bincount(rows[group.effects.rows_name], found[number], len(group.labels))
    effects = effects_of(fit.core, group, tree_map(lambda x: x[None, None], params))[0, 0, :, 0]
    return effects + fit.core.scale * total[0] / np.maximum(total[1], 1e-12)


def _score_and_information(predictor: Predictor, params: Any, rows: Rows) -> Any:
    """First and second derivative (with its sign turned) of every row's log likelihood by its linear predictor."""
    eta, own = predictor.eta(params, rows), predictor.own(params)

    def total(eta: Any) -> Any:
        each = predictor.family.log_density(predictor.link, eta, own, rows | {"y": rows.get(STANDARD, rows["y"])})
        return (rows["weight"] * each if predictor.weighted else each).sum()

    score, second = jax.jvp(jax.grad(total), (eta,), (jax.numpy.ones_like(eta),))
    return jax.numpy.stack([score, -second])
