"""Logistic regression on a million rows: data made on the spot, sampled by `sgmcmc.sample`, compared with the truth.

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

import sgmcmc
from sgmcmc.results.pictures import overview, save_png

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


def picture(fit: sgmcmc.Result, truth: np.ndarray, title: str) -> Figure:
    """Posterior intervals about the true values, the inflation of each variance, and traces."""
    draws = np.concatenate([fit["bias"][..., None], fit["beta"]], axis=-1)
    series = [(name, 1000 * (draws[..., j] - truth[j])) for j, name in enumerate(NAMES)]
    table = fit.summary()
    inflation = {name: (table.loc[name, "inflation"], table.loc[name, "inflation_se"]) for name in NAMES}
    verdict = "all checks passed" if fit.health().ok else str(fit.health().findings[0])
    return overview(series, inflation, title, verdict, xlabel="posterior minus true value (thousandths)")


def run(out: Path, rows: int, draws: int, seed: int, progress: bool, say: Callable[[str], object]) -> None:
    """Make data, sample, tell, draw."""
    data, truth = make_data(rows, seed)
    say(f"{rows:,} rows, {1 + D} parameters, nothing to tune")

    clock = time.perf_counter()
    params = {"bias": 0.0, "beta": np.zeros(D, np.float32)}
    fit = sgmcmc.sample(log_lik, data, params, log_prior=log_prior, draws=draws, seed=seed, progress=progress)
    seconds = time.perf_counter() - clock

    table = fit.summary().loc[NAMES, ["mean", "sd", "mcse", "ess", "r_hat", "inflation"]]
    table.insert(0, "true", truth)
    table.insert(3, "z", (table["mean"] - table["true"]) / table["sd"])
    formats = {"true": "+.4f", "mean": "+.4f", "sd": ".4f", "z": "+.2f", "mcse": ".5f", "ess": ".0f"}
    formats |= {"r_hat": ".3f", "inflation": ".3f"}
    say("\n" + table.to_string(formatters={name: f"{{:{text}}}".format for name, text in formats.items()}))
    say("\nz = (mean - true)/sd: about 95 in 100 should lie between -2 and 2. ess and r_hat measure mixing; inflation,")
    say("the variance of the chain over the posterior's, measures bias.\n")
    say(f"What was decided:\n{fit.decisions}\n")
    say(f"What the checks say:\n{fit.health()}\n")
    say(f"everything, compilation included: {seconds:.1f} s")
    save_png(picture(fit, truth, f"Logistic regression on {rows:,} rows"), out)
    say(f"picture: {out}")
