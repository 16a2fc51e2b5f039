"""Section 6.1, figure 3: two normal components, six methods over a full HMC run.

The article's text puts the second component at (0.1, 0.1) with prior variance 10; its published code puts it at (0.5, 0.5) with
prior standard deviation 10. All four combinations are run; the figures show the text's and the code's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import sgmcmc
from reproduction.figures import PANEL_ORDER, STYLES, density, levels_of_mass, panels
from reproduction.models import gaussian_mixture as model
from reproduction.rivals import nuts
from reproduction.runs import set_up, standard_normal, start_chains, timed
from reproduction.settings import METHODS, Method, lengths, setting, stepsize
from reproduction.workbook import Workbook
from sgmcmc.core.trees import LogPrior
from sgmcmc.results.diagnostics import mixing

NAME = "gaussian-mixture"
TITLE = "Gaussian mixture (section 6.1, figure 3)"
DATASET = None
FIGURES = {
    "figure-3-text": "Contours of the posterior of θ₁ by eight methods over full HMC, data and prior as the text has them",
    "figure-3-code": "The same with data and prior as the published code has them",
}
REMARKS = """
The text puts the second component at (0.1, 0.1) and gives the prior variance 10; the published code puts it at (0.5, 0.5) and
passes 10 as a standard deviation. All four combinations are run. With (0.1, 0.1) the two components cannot be told apart and
the posterior has one mode, so the article's remarks on two modes are about the code's data; the claims are judged there. The
prior makes no visible difference.

The article's steps are halved where a chain diverges. Numbers are medians and ranges over chains from different starts; the
figures show the first. `spread` is the sd of θ₁ over HMC's, `spread within` the same within one labelling of the components,
`distance` the energy distance to HMC's draws (HMC: between its own halves).
"""
SHAPES = {"theta1": (2,), "theta2": (2,)}
LIMITS = {"text": (-0.75, 0.85, -0.75, 0.85), "code": (-0.7, 1.3, -0.7, 1.3)}


class Variant(NamedTuple):
    """Which of the article's two accounts of data and prior."""

    name: str
    second: float
    log_prior: LogPrior


VARIANTS = (
    Variant("text", 0.1, model.log_prior),
    Variant("text, coded prior", 0.1, model.log_prior_as_coded),
    Variant("code, written prior", 0.5, model.log_prior),
    Variant("code", 0.5, model.log_prior_as_coded),
)
SHOWN = ("text", "code")


def make_data(second: float, rows: int, seed: int) -> np.ndarray:
    """Rows of ½ N(0, I) + ½ N((second, second), I)."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, 2)) + second * rng.integers(0, 2, (rows, 1))).astype(np.float32)


def measure(book: Workbook) -> dict[str, Any]:
    quick, data_seed = book.quick, setting(NAME, "data seed", book.quick)
    numbers: dict[str, Any] = {"variants": {}, "draws": {}}
    for variant in VARIANTS[-1:] if quick else VARIANTS:
        data = make_data(variant.second, setting(NAME, "rows", quick), data_seed)
        test = make_data(variant.second, setting(NAME, "test rows", quick), data_seed + 1)
        truth = book.part(f"{variant.name} HMC", lambda v=variant, x=data: _hmc(v, x, quick))
        halves = np.split(truth["draws"], 2)
        found: dict[str, Any] = {"HMC": judged(halves[0], halves[1], test)}
        found["HMC"].update({name: float(truth[name]) for name in ("r_hat", "seconds")})
        contours = {"HMC": truth["draws"]}
        repeats = setting(NAME, "repeats", quick) if variant.name in SHOWN else 1
        for method in METHODS:
            part = book.part(
                f"{variant.name} {method.label}", lambda v=variant, x=data, m=method, r=repeats: _chains(v, x, m, r, book)
            )
            runs = [judged(draws[None], truth["draws"], test) for draws in part["draws"]]
            found[method.label] = {name: [run[name] for run in runs] for name in runs[0]}
            found[method.label].update({name: part[name].item() for name in ("sampling", "stepsize", "repeatable", "seconds")})
            contours[method.label] = part["draws"][:1]
        numbers["variants"][variant.name] = found
        if variant.name in SHOWN:
            numbers["draws"][variant.name] = {label: contour(draws, variant.name) for label, draws in contours.items()}
    return numbers


def contour(draws: np.ndarray, variant: str) -> list[list[float]]:
    """The smoothed histogram of θ₁ that the figure draws."""
    heights = density(draws.reshape(-1, draws.shape[-1])[:, :2], LIMITS[variant])[2]
    return np.round(heights, 3).tolist()


def side(draws: np.ndarray) -> np.ndarray:
    """Which of the two labellings a draw of (θ₁, θ₂) is on."""
    return draws[..., 0] + draws[..., 1] > draws[..., 2] + draws[..., 3]


def spread(draws: np.ndarray, *, within: bool = False) -> float:
    """Standard deviation of θ₁, of both coordinates together; `within`: about the mean of its own labelling."""
    flat, upper = draws.reshape(-1, 4), side(draws).ravel()
    groups = [flat[upper], flat[~upper]] if within else [flat]
    squares = sum(((group[:, :2] - group[:, :2].mean(axis=0)) ** 2).sum() for group in groups if len(group))
    return float(np.sqrt(squares / len(flat) / 2))


def energy_distance(one: np.ndarray, other: np.ndarray) -> float:
    """2 E|X-Y| - E|X-X'| - E|Y-Y'| of points in the plane: 0 for the same law. At most 800 points of each are used."""
    one, other = (points[:: max(1, len(points) // 800)] for points in (one, other))

    def mean_distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=-1)).mean())

    return 2 * mean_distance(one, other) - mean_distance(one, one) - mean_distance(other, other)


def judged(draws: np.ndarray, truth: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """How draws (chain, draw, four numbers) compare with those of HMC."""
    flat, true = draws.reshape(-1, 4), truth.reshape(-1, 4)
    share = float(side(draws).mean())
    return {
        "smaller side": min(share, 1 - share),
        "spread": spread(draws) / spread(truth),
        "spread within": spread(draws, within=True) / spread(truth, within=True),
        "distance": energy_distance(flat[:, :2], true[:, :2]),
        "excess log loss": float(np.mean(log_losses(flat, test)) - np.mean(log_losses(true, test))),
        "excess predictive log loss": predictive_log_loss(flat, test) - predictive_log_loss(true, test),
    }


def log_densities(draws: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Of test rows, a row for each of at most 200 draws."""
    some = draws[:: max(1, len(draws) // 200)]
    return np.stack([model.log_lik({"theta1": one[:2], "theta2": one[2:]}, {"X": test}) for one in some])


def log_losses(draws: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Minus the mean log density of the test rows, for each draw."""
    return -log_densities(draws, test).mean(axis=1)


def predictive_log_loss(draws: np.ndarray, test: np.ndarray) -> float:
    """The same of the mean of the densities."""
    densities = log_densities(draws, test).astype(np.float64)
    return -float(np.mean(np.logaddexp.reduce(densities, axis=0) - np.log(len(densities))))


def _hmc(variant: Variant, data: np.ndarray, quick: bool) -> dict[str, Any]:
    chains, warm_up, n_draws = setting(NAME, "HMC", quick)
    starts = [standard_normal(SHAPES, seed) for seed in range(chains)]
    start = {name: jnp.stack([one[name] for one in starts]) for name in SHAPES}
    run = nuts(model.log_lik, {"X": jnp.asarray(data)}, start, variant.log_prior, chains, warm_up, n_draws, seed=2)
    draws = np.concatenate([run.draws["theta1"], run.draws["theta2"]], axis=-1)
    return {"draws": draws, "r_hat": np.max(mixing(draws)[1])}


def _chains(variant: Variant, data: np.ndarray, method: Method, repeats: int, book: Workbook) -> dict[str, Any]:
    """Chains from different starts: draws of (θ₁, θ₂), the seconds of a compiled run, the step size.

    The step is the article's, halved until no chain diverges.
    """
    burn_in, n_iters = lengths(NAME, method, book.quick)
    seed = setting(NAME, "seed", book.quick) if book.seed is None else book.seed
    starts = [standard_normal(SHAPES, seed + repeat) for repeat in range(repeats)]
    step = stepsize(NAME, method)
    while True:
        sampler = set_up(NAME, method, model.log_lik, variant.log_prior, {"X": data}, starts[0], book.quick, stepsize=step)
        state = start_chains(sampler, method, starts, seed, book.progress)
        try:
            out = sampler.run(state, n_iters, burn_in=burn_in, progress=book.progress)
            break
        except sgmcmc.DivergenceError:
            step /= 2
    draws = np.concatenate([out["theta1"], out["theta2"]], axis=-1)
    again, seconds = zip(*(timed(lambda: sampler.run(state, n_iters, progress=False)) for _ in range(3)), strict=True)
    repeatable = all(np.array_equal(again[0]["theta1"], other["theta1"]) for other in again[1:])
    return {"draws": draws, "sampling": min(seconds), "stepsize": step, "repeatable": repeatable}


def draw(numbers: dict[str, Any]) -> dict[str, Figure]:
    return {f"figure-3-{name}": _contours(numbers["draws"][name], name) for name in numbers["draws"]}


def _contours(heights: dict[str, Any], variant: str) -> Figure:
    where = {"text": "(0.1, 0.1), prior variance 10", "code": "(0.5, 0.5), prior sd 10"}[variant]
    figure, axes = panels(2, 4, f"Posterior of θ₁ over that of full HMC (black): second component at {where}")
    low_x, high_x, low_y, high_y = LIMITS[variant]
    truth = np.asarray(heights["HMC"])
    xs, ys = np.linspace(low_x, high_x, truth.shape[1]), np.linspace(low_y, high_y, truth.shape[0])
    for panel, method in zip(axes.flat, PANEL_ORDER, strict=True):
        one = np.asarray(heights[method])
        style = STYLES[method]
        panel.contour(xs, ys, truth, levels=levels_of_mass(truth), colors="black", linewidths=0.9)
        panel.contourf(xs, ys, one, levels=[*levels_of_mass(one), 1.01], colors=[style["color"]], alpha=0.22)
        panel.contour(
            xs, ys, one, levels=levels_of_mass(one), colors=style["color"], linewidths=1.4, linestyles=style.get("ls", "-")
        )
        panel.set_title(method, fontsize="medium", color="black")
        panel.set_aspect("equal")
    for panel in axes[:, 0]:
        panel.set_ylabel("θ₁, second coordinate")
    for panel in axes[-1]:
        panel.set_xlabel("θ₁, first coordinate")
    black = Line2D([], [], color="black", lw=0.9, label="full HMC; contours hold 25, 50, 75 and 95 % of the draws")
    figure.legend(handles=[black], loc="outside lower center", frameon=False, fontsize="small")
    return figure


def table(numbers: dict[str, Any]) -> list[list[str]]:
    names = ("smaller side", "spread", "spread within", "distance", "excess log loss", "excess predictive log loss")
    rows = [["data and prior", "method", "visits to the rarer labelling", *names[1:]]]
    for variant, found in numbers["variants"].items():
        for label, figures in found.items():
            rows.append([variant, label, *(_range(figures[name]) for name in names)])
    return rows


def _range(values: float | list[float]) -> str:
    """One number, or the median and the range of several."""
    array = np.atleast_1d(values)
    middle = f"{np.median(array):.2g}"
    return middle if len(array) == 1 else f"{middle} ({array.min():.2g} to {array.max():.2g})"
