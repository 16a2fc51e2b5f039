"""Logistic regression on a million rows: data made on the spot, sampled by `sgmcmc.sgldcv`, compared with the truth.

Run it with `make demo` or `sgmcmc demo`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import sgmcmc
from sgmcmc.pictures import COLOURS, save_png

D = 10
NAMES = ["bias", *(f"beta[{j}]" for j in range(D))]


def make_data(n_rows: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows with correlated columns, and the true values: the bias, then the coefficients."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0.0, 0.5, 1 + D).astype(np.float32)
    common = rng.standard_normal((n_rows, 1), np.float32)
    X = np.sqrt(0.85) * rng.standard_normal((n_rows, D), np.float32) + np.sqrt(0.15) * common
    X = X.astype(np.float32)
    p = 1 / (1 + np.exp(-(truth[0] + X @ truth[1:])))
    return {"X": X, "y": rng.random(n_rows, np.float32) < p}, truth


def log_lik(params: Any, batch: Any) -> jax.Array:
    eta = params["bias"] + batch["X"] @ params["beta"]
    return jax.numpy.where(batch["y"], jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta)).sum()


def log_prior(params: Any) -> jax.Array:
    return -0.5 * (params["bias"] ** 2 + (params["beta"] ** 2).sum())


def choose_stepsize(X: np.ndarray, sample: int = 10_000) -> float:
    """A fifth of (a lower bound on) the smallest posterior variance in any direction.

    The curvature of a logistic log likelihood is at most (N/4) E[x xᵀ], here from a few rows. With ε = 0.2/(largest
    eigenvalue of that) SGLD with exact gradients overstates no variance by more than 1/(1 - 0.2/4) - 1 = 5 %; control
    variates are near exact, and the chain forgets its start in tens of iterations.
    """
    rows = np.column_stack([np.ones(min(sample, len(X))), X[:sample]])
    curvature = len(X) / 4 * np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]
    return float(0.2 / curvature)


def picture(draws: np.ndarray, truth: np.ndarray, title: str) -> Figure:
    """Posterior intervals about the true values, and the traces of three parameters. `draws`: chain, draw, parameter."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15])
    blue, black = COLOURS[0], COLOURS[7]

    axes = left.subplots()
    low, lower, middle, upper, high = np.quantile(draws - truth, [0.025, 0.25, 0.5, 0.75, 0.975], axis=(0, 1)) * 1000
    place = np.arange(len(truth))[::-1]
    axes.axvline(0, color=black, lw=1.6, ls="--", label="true value")
    axes.hlines(place, low, high, color=blue, lw=1.8, label="95 % interval")
    axes.hlines(place, lower, upper, color=blue, lw=6, label="50 % interval")
    axes.plot(middle, place, "o", color="white", ms=4, mec=blue, label="median")
    axes.set_yticks(
        place, [f"{name} = {value:+.3f}".replace("-", "\N{MINUS SIGN}") for name, value in zip(NAMES, truth, strict=True)]
    )
    axes.set_xlabel("posterior minus true value (thousandths)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, fontsize="small", frameon=False, handlelength=1.4)
    axes.spines[["top", "right"]].set_visible(False)

    chosen = [0, 1, len(truth) - 1]
    traces = right.subplots(len(chosen), sharex=True)
    for trace, j in zip(traces, chosen, strict=True):
        for chain, values in enumerate(draws[..., j]):
            shown = np.unique(np.linspace(0, len(values) - 1, 500).astype(int))
            trace.plot(shown + 1, values[shown], lw=0.7, color=COLOURS[chain % len(COLOURS)], label=f"chain {chain + 1}")
        trace.axhline(truth[j], color=black, lw=1.6, ls="--", label="true value")
        trace.set_ylabel(NAMES[j])
        trace.yaxis.set_major_locator(MaxNLocator(4))
        trace.xaxis.set_major_formatter("{x:,.0f}")
        trace.margins(x=0.01)
        trace.spines[["top", "right"]].set_visible(False)
        if j == 0:
            lines = trace.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize="small", frameon=False)
            for line in lines.get_lines():
                line.set_linewidth(2)
    traces[-1].set_xlabel("stored draw")
    figure.suptitle(title)
    return figure


def run(out: Path, rows: int, iters: int, seed: int, progress: bool, say: Callable[[str], object]) -> None:
    """Make data, sample, tell, draw."""
    data, truth = make_data(rows, seed)
    stepsize = choose_stepsize(data["X"])
    say(f"{rows:,} rows, {1 + D} parameters, step size {stepsize:.3g}")

    clock = time.perf_counter()
    params = {"bias": 0.0, "beta": np.zeros(D, np.float32)}
    result = sgmcmc.sgldcv(
        log_lik, data, params, stepsize, log_prior=log_prior, minibatch_size=min(500, rows),
        n_iters=iters, burn_in=iters // 10, n_chains=4, seed=seed, progress=progress,
    )  # fmt: skip
    seconds = time.perf_counter() - clock

    table = result.summary().loc[NAMES, ["mean", "sd", "ess", "r_hat"]]
    table.insert(0, "true", truth)
    table.insert(3, "z", (table["mean"] - table["true"]) / table["sd"])
    formats = {"true": "{:+.4f}", "mean": "{:+.4f}", "sd": "{:.4f}", "z": "{:+.2f}", "ess": "{:.0f}", "r_hat": "{:.3f}"}
    say("\n" + table.to_string(formatters={name: text.format for name, text in formats.items()}))
    say("\nz = (mean - true)/sd: about 95 in 100 should lie between -2 and 2. ess and r_hat measure mixing, not bias.")
    say(f"centre, compilation and 4 x {iters + iters // 10:,} iterations: {seconds:.1f} s")

    draws = np.concatenate([result["bias"][..., None], result["beta"]], axis=-1)
    save_png(picture(draws, truth, f"Logistic regression on {rows:,} rows, sgldcv"), out)
    say(f"picture: {out}")
