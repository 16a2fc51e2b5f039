"""Section 6.2, figure 4, and section 5.1, figure 2: logistic regression on covertype."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sgmcmc
from reproduction.figures import PANEL_ORDER, STYLES, along_chains, panels
from reproduction.models import logistic_regression as model
from reproduction.rivals import nuts
from reproduction.runs import set_up, standard_normal, start_chains
from reproduction.settings import METHODS, TWINS, Method, lengths, setting, stepsize
from reproduction.workbook import Workbook
from sgmcmc.results.diagnostics import mixing

NAME = "logistic-regression"
TITLE = "Logistic regression on covertype (section 6.2, figure 4; section 5.1, figure 2)"
DATASET = "covertype"
FIGURES = {
    "figure-4": "Test log loss along the chains of eight methods on covertype",
    "figure-2": "Test log loss of sgldcv in the set-up of section 5.1",
}
REMARKS = """
581,012 rows, 10,000 of them for testing. Chains start from standard normals; those of control variate methods at the centre.
The optimum is that of the penalised likelihood on all training rows, by SciPy in float64.
"""
CHANCE = float(np.log(2))
NUTS_ROWS = 1_000


def measure(book: Workbook) -> dict[str, Any]:
    table = sgmcmc.get_dataset(DATASET, progress=book.progress)
    data = {"X": table[:, 1:], "y": table[:, 0]}
    train, test = sgmcmc.train_test_split(
        data, setting(NAME, "test rows", book.quick), seed=setting(NAME, "data seed", book.quick)
    )
    del table, data
    numbers: dict[str, Any] = {"looks": setting(NAME, "looks", book.quick), "chains": {}}
    for method in METHODS:
        part = book.part(method.label, lambda m=method: _chains(m, train, test, book))
        numbers["chains"][method.label] = {
            "log loss": np.round(part["log loss"], 6).tolist(),
            "log loss of the mean": part["log loss of the mean"].tolist(),
            "sampling": float(part["sampling"]),
            "seconds": float(part["seconds"]),
        }
    optimum = book.part("optimum", lambda: _optimum(train, test, book.quick))
    numbers["optimum"] = float(optimum["log loss"])
    numbers["steepest curvature"] = float(optimum["curvature"])
    equal = book.part("equal steps", lambda: _equal_steps(train, test, book))
    numbers["equal steps"] = {name: value.tolist() for name, value in equal.items() if name != "seconds"}
    figure_2 = book.part("section 5.1", lambda: _section_5_1(train, test, book))
    numbers["section 5.1"] = {name: np.round(figure_2[name], 6).tolist() for name in ("log loss", "log loss of the mean")}
    ours = book.part("automatic centre", lambda: _automatic(train, test, book))
    numbers["automatic centre"] = {name: float(ours[name]) for name in ("log loss of the mean", "log loss")}
    rival = book.part("NUTS", lambda: _nuts(train, book.quick))
    numbers["NUTS"] = {name: float(rival[name]) for name in ("gradients per iteration", "seconds per gradient", "r_hat")}
    short = book.part("trajectories", lambda: _trajectories(train, test, book))
    numbers["trajectories"] = {name: value.tolist() for name, value in short.items() if name != "seconds"}
    return numbers


def _starts(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    return [standard_normal({"beta": (54,), "bias": ()}, seed + chain) for chain in range(count)]


def _log_losses(test: dict[str, np.ndarray]) -> Any:
    held = {name: jnp.asarray(values) for name, values in test.items()}
    return jax.jit(lambda params: model.log_loss(params, held))


def _chains(method: Method, train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    """Chains from different starts: test log loss every so many iterations, and that of the posterior mean; none is stored."""
    seed = setting(NAME, "seed", book.quick) if book.seed is None else book.seed
    burn_in, n_iters = lengths(NAME, method, book.quick)
    starts = _starts(setting(NAME, "repeats", book.quick), seed)
    sampler = set_up(NAME, method, model.log_lik, model.log_prior, train, starts[0], book.quick)
    state = start_chains(sampler, method, starts, seed, book.progress)
    log_loss = _log_losses(test)
    keep = {"log loss": sgmcmc.Trace(log_loss, thin=setting(NAME, "looks", book.quick)), "moments": sgmcmc.Moments()}
    clock = time.perf_counter()
    out = sampler.run(state, n_iters, burn_in=burn_in, keep=keep, progress=book.progress)
    seconds = time.perf_counter() - clock
    means = out.kept["moments"].mean
    of_means = [float(log_loss({name: value[c] for name, value in means.items()})) for c in range(len(starts))]
    return {"log loss": out.kept["log loss"], "log loss of the mean": of_means, "sampling": seconds}


def _section_5_1(train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    given = setting(NAME, "section 5.1", book.quick)
    scale = 10 if book.quick else 1
    log_loss = _log_losses(test)
    out = sgmcmc.sgldcv(
        model.log_lik, train, {"beta": np.zeros(54), "bias": 0.0}, given["stepsize"], given["opt_stepsize"],
        n_iters_opt=10_000 // scale, log_prior=model.log_prior, minibatch_size=500, seed=given["seed"],
        n_iters=given["n_iters"] // scale, burn_in=given["burn_in"] // scale, progress=book.progress,
        keep={"log loss": sgmcmc.Trace(log_loss, thin=10), "moments": sgmcmc.Moments()},
    )  # fmt: skip
    return {"log loss": out.kept["log loss"], "log loss of the mean": log_loss(out.kept["moments"].mean)}


def _automatic(train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    """The article's step with the library's own search for the centre."""
    log_loss = _log_losses(test)
    (start,) = _starts(1, 1)
    out = sgmcmc.sgldcv(
        model.log_lik, train, start, 1e-5, log_prior=model.log_prior, minibatch_size=500, seed=1,
        n_iters=setting(NAME, "n_iters", book.quick), progress=book.progress,
        keep={"log loss": sgmcmc.Trace(log_loss, thin=10), "moments": sgmcmc.Moments()},
    )  # fmt: skip
    return {"log loss": np.mean(out.kept["log loss"]), "log loss of the mean": log_loss(out.kept["moments"].mean)}


def _from_the_centre(train: Any, test: Any, book: Workbook) -> Any:
    """A function that runs a method from the mode and gives the standard deviation of its log loss, once settled."""
    (start,) = _starts(1, 1)
    search = sgmcmc.sgldcv_setup(model.log_lik, train, start, 1e-6, log_prior=model.log_prior, minibatch_size=500)
    at = {name: np.asarray(value) for name, value in search.init(1, progress=book.progress).params.items()}
    keep = {"log loss": sgmcmc.Trace(_log_losses(test), thin=setting(NAME, "looks", book.quick))}

    def spread(method: Method, **changes: Any) -> float:
        if method.control_variates:
            changes["opt_stepsize"] = None
        sampler = set_up(NAME, method, model.log_lik, model.log_prior, train, at, book.quick, **changes)
        state = sampler.init(1, progress=False)
        out = sampler.run(state, lengths(NAME, method, book.quick)[1], keep=keep, progress=book.progress)
        return float(np.std(late(out.kept["log loss"][None])))

    return spread


def _equal_steps(train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    """Spread of the log loss of twins with one step size, from one centre, for the article's two steps of a pair."""
    methods, spread = {method.label: method for method in METHODS}, _from_the_centre(train, test, book)
    found: dict[str, list[float]] = {}
    for pair in TWINS[:1] if book.quick else (*TWINS, ("sghmc corrected", "sghmccv corrected")):
        for label in pair[:1] if book.quick else pair:
            step = stepsize(NAME, methods[label])
            found[f"{', '.join(pair)} at {step:g}"] = [spread(methods[one], stepsize=step) for one in pair]
    return found


def _trajectories(train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    """Spread of the log loss from the centre, each with the article's step: the plain methods, and sghmc with fewer leaps."""
    methods, spread = {method.label: method for method in METHODS}, _from_the_centre(train, test, book)
    found = {label: spread(methods[label]) for label, _ in TWINS}
    return {**found, "sghmc, L = 2": spread(methods["sghmc"], L=2)}


def _optimum(train: Any, test: Any, quick: bool) -> dict[str, Any]:
    """The largest penalised likelihood, by SciPy on all training rows in float64.

    β = u - v with u, v ≥ 0 makes the absolute values linear, so that a method for smooth functions is exact.
    """
    from scipy.optimize import minimize

    X, y = np.column_stack([np.ones(len(train["y"])), train["X"]]), train["y"].astype(np.float64)
    d = X.shape[1]

    def objective(parts: np.ndarray) -> tuple[float, np.ndarray]:
        eta = X @ (parts[:d] - parts[d:])
        value = np.sum(np.logaddexp(0, eta) - y * eta) + parts.sum()
        gradient = X.T @ (1 / (1 + np.exp(-eta)) - y)
        return value / len(y), np.concatenate([gradient + 1, 1 - gradient]) / len(y)

    found = minimize(
        objective, np.zeros(2 * d), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * d),
        options={"maxiter": 50 if quick else 1_000, "maxfun": 10_000, "maxcor": 50, "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    coefficients = found.x[:d] - found.x[d:]
    at = {"bias": jnp.asarray(coefficients[0]), "beta": jnp.asarray(coefficients[1:])}
    p = 1 / (1 + np.exp(-(X @ coefficients)))
    curvature = np.linalg.eigvalsh((X * (p * (1 - p))[:, None]).T @ X)[-1]
    return {"log loss": _log_losses(test)(at), "objective": found.fun, "curvature": curvature}


def _nuts(train: Any, quick: bool) -> dict[str, Any]:
    """What a full-data sampler would need: gradients per iteration on few rows, seconds per gradient on all."""
    few = {name: jnp.asarray(values[:NUTS_ROWS]) for name, values in train.items()}
    start = {"beta": jnp.zeros((1, 54)), "bias": jnp.zeros((1,))}
    length = 20 if quick else 200
    run = nuts(model.log_lik, few, start, model.log_prior, 1, length, length, seed=1)
    everything = {name: jnp.asarray(values) for name, values in train.items()}
    gradient = jax.jit(jax.grad(lambda params, data: jnp.sum(model.log_lik(params, data))))
    params = {"beta": jnp.zeros(54), "bias": jnp.zeros(())}
    jax.block_until_ready(gradient(params, everything))
    clock = time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(gradient(params, everything))
    r_hat = np.nanmax(mixing(run.draws["beta"])[1])
    return {
        "r_hat": r_hat,
        "gradients per iteration": run.gradients / length,
        "seconds per gradient": (time.perf_counter() - clock) / 5,
    }


def draw(numbers: dict[str, Any]) -> dict[str, Figure]:
    return {"figure-4": _figure_4(numbers), "figure-2": _figure_2(numbers)}


def _figure_4(numbers: dict[str, Any]) -> Figure:
    figure, axes = along_chains(
        "Test log loss along the chains, covertype",
        "test log loss\nminus its lowest (nats)",
        "dashed: optimum of the penalised likelihood; bold: the article's seed; thin: other starts",
    )
    lowest = min(np.min(chain["log loss"]) for chain in numbers["chains"].values()) - 1e-4
    for panel, label in zip(axes.flat, PANEL_ORDER, strict=True):
        losses = np.asarray(numbers["chains"][label]["log loss"]) - lowest
        iterations = numbers["looks"] * (1 + np.arange(losses.shape[1]))
        for other in losses[1:]:
            panel.plot(iterations, other, lw=0.5, alpha=0.35, color=STYLES[label]["color"])
        panel.plot(iterations, losses[0], lw=1.0, color=STYLES[label]["color"], label=label)
        panel.axhline(numbers["optimum"] - lowest, color="black", lw=1, ls="--")
        panel.set_title(label, fontsize="medium")
    axes[0, 0].set_yscale("log")
    return figure


def _figure_2(numbers: dict[str, Any]) -> Figure:
    figure, axes = panels(1, 1, "Test log loss of sgldcv on covertype after 1,000 iterations of burn-in")
    figure.set_size_inches(7.5, 3.4)
    losses = np.asarray(numbers["section 5.1"]["log loss"])
    axes[0, 0].plot(10 * (1 + np.arange(len(losses))), losses, lw=1, color=STYLES["sgldcv"]["color"], label="sgldcv")
    axes[0, 0].axhline(numbers["optimum"], color="black", lw=1, ls="--", label="optimum of the penalised likelihood")
    axes[0, 0].set(xlabel="iteration", ylabel="log loss of the test set (nats)")
    axes[0, 0].xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def late(losses: Any) -> np.ndarray:
    """The second half of the looks, where chains have settled: chains first."""
    array = np.asarray(losses)
    return array[:, array.shape[1] // 2 :]


def table(numbers: dict[str, Any]) -> list[list[str]]:
    rows = [
        [
            "method",
            "mean log loss",
            "its sd along a chain",
            "log loss of the posterior mean",
            "seconds, all chains, compiling included",
        ]
    ]
    for label, chain in numbers["chains"].items():
        losses = np.asarray(chain["log loss"])
        rows.append([
            label, f"{losses.mean():.4f}", f"{np.median(losses.std(axis=1)):.4f}",
            f"{np.median(chain['log loss of the mean']):.4f}", f"{chain['seconds']:.1f}",
        ])  # fmt: skip
    automatic = numbers["automatic centre"]
    rows.append(["sgldcv, automatic centre", f"{automatic['log loss']:.4f}", "", f"{automatic['log loss of the mean']:.4f}", ""])
    rows.append(["optimum of the penalised likelihood", f"{numbers['optimum']:.4f}", "", "", ""])
    return rows
