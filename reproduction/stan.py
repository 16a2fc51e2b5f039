"""Section 2, figure 1: the mean of normal data, `sgldcv` beside Stan as the data grow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import sgmcmc
from reproduction import background
from reproduction.figures import STYLES, band, panels
from reproduction.models import normal_mean
from reproduction.rivals import Nuts, Stan, rival
from reproduction.settings import setting
from reproduction.workbook import Workbook

NAME = "stan"
TITLE = "Stan and sgldcv as the data grow (section 2, figure 1)"
DATASET = None
FIGURES = {"figure-1": "KL divergence to the exact posterior, and run time, against the number of observations"}
REMARKS = """
Data from N(0, 1), the mean θ unknown, prior N(0, 10) with 10 read as the variance, in the samplers and in the exact posterior
alike. Stan is real Stan (the extra `reproduction`) where it is installed, else NumPyro's NUTS, labelled so. Stan is compiled
anew for every seed (the article: for every run) and drawn with and without that time. `sgldcv` runs once with a single step size
for every N and the article's optimiser, and once as we would run it: automatic centre, step 0.2/N. KL is that of the normal
law with the draws' mean and variance. Lines are means over seeds, bands their range; the table has medians.
"""
OURS = "sgldcv, ours"
TUNING_STEPS = (0.002, 0.02, 0.2, 2.0, 5.0)
"""Step sizes in units of the posterior variance."""


def measure(book: Workbook) -> dict[str, Any]:
    sizes, seeds = setting(NAME, "sizes", book.quick), setting(NAME, "seeds", book.quick)
    stan = rival()
    found: dict[str, dict[str, list[list[float]]]] = {
        line: {"kl": [], "seconds": [], "compile": []} for line in (stan.label, "sgldcv", OURS)
    }
    compiling = 0.0
    for seed in seeds:
        if seed == seeds[0] or not book.quick:
            compiling = float(book.part(f"{stan.label} compiled {seed}", lambda: {"seconds": stan.compile()})["seconds"])
        rows = {line: [] for line in found}
        for size in sizes:
            rows[stan.label].append(
                book.part(f"{stan.label} {size} {seed}", lambda N=size, s=seed: _stan(stan, N, s, book.quick))
            )
            rows["sgldcv"].append(book.part(f"sgldcv {size} {seed}", lambda N=size, s=seed: _paper(N, s, book.quick)))
            rows[OURS].append(book.part(f"ours {size} {seed}", lambda N=size, s=seed: _ours(N, s, book.quick)))
        for line, parts in rows.items():
            found[line]["kl"].append([float(part["kl"]) for part in parts])
            found[line]["seconds"].append([float(part["sampling"]) for part in parts])
            extra = compiling if line == stan.label else 0.0
            found[line]["compile"].append([float(part["compile"]) + extra for part in parts])
    tuning = book.part("tuning", lambda: {"kl": [_tuned(step, book.quick) for step in TUNING_STEPS]})
    facts = background.measure(book)
    return {
        "sizes": list(sizes),
        "seeds": list(seeds),
        "rival": stan.label,
        "rival draws": setting(NAME, "stan draws", book.quick),
        "lines": found,
        "tuning": [float(kl) for kl in tuning["kl"]],
        "background": {name: value.tolist() for name, value in facts.items() if name != "seconds"},
    }


def kl_divergence(draws: np.ndarray, x: np.ndarray) -> float:
    """From the normal law with the draws' mean and variance to the exact posterior."""
    mean, variance = normal_mean.exact_posterior(x)
    return kl_of_normals(float(np.mean(draws, dtype=np.float64)), float(np.var(draws, dtype=np.float64)), mean, variance)


def kl_of_normals(mean: float, variance: float, true_mean: float, true_variance: float) -> float:
    """KL(N(mean, variance) ‖ N(true_mean, true_variance)).

    >>> round(kl_of_normals(0.0, 4 / 3, 0.0, 1.0), 4)
    0.0228
    """
    ratio = variance / true_variance
    return 0.5 * float(ratio - 1 - np.log(ratio) + (mean - true_mean) ** 2 / true_variance)


def _data(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def _stan(stan: Stan | Nuts, size: int, seed: int, quick: bool) -> dict[str, Any]:
    x = _data(size, seed)
    run = stan.sample(x, setting(NAME, "stan warm-up", quick), setting(NAME, "stan draws", quick), seed)
    return {"kl": kl_divergence(run.draws, x), "sampling": run.seconds, "compile": run.compile_seconds}


def _paper(size: int, seed: int, quick: bool) -> dict[str, Any]:
    return _sgldcv(size, seed, quick, setting(NAME, "stepsize", quick), setting(NAME, "opt_stepsize", quick))


def _ours(size: int, seed: int, quick: bool) -> dict[str, Any]:
    return _sgldcv(size, seed, quick, setting(NAME, "our stepsize x N", quick) / size, None)


def _sgldcv(size: int, seed: int, quick: bool, stepsize: float, opt_stepsize: float | None) -> dict[str, Any]:
    """A whole run with its compilation, then the same chain again with everything compiled."""
    x = _data(size, seed)
    start = {"theta": float(np.random.default_rng(seed).standard_normal())}
    n_iters, burn_in = setting(NAME, "n_iters", quick), setting(NAME, "burn_in", quick)
    clock = time.perf_counter()
    sampler = sgmcmc.sgldcv_setup(
        normal_mean.log_lik, {"x": x}, start, stepsize, opt_stepsize,
        n_iters_opt=n_iters, log_prior=normal_mean.log_prior, minibatch_size=setting(NAME, "minibatch_size", quick),
    )  # fmt: skip
    state = sampler.init(seed, progress=False)
    out = sampler.run(state, n_iters, burn_in=burn_in, progress=False)
    whole = time.perf_counter() - clock
    clock = time.perf_counter()
    sampler.run(state, n_iters, burn_in=burn_in, progress=False)
    sampling = time.perf_counter() - clock
    return {"kl": kl_divergence(out["theta"], x), "sampling": sampling, "compile": whole - sampling}


def _tuned(step: float, quick: bool) -> float:
    """KL at another step size; infinite where the chain diverges."""
    try:
        return float(_sgldcv(10_000, 1, quick, step / 10_000, None)["kl"])
    except sgmcmc.DivergenceError:
        return float("inf")


def draw(numbers: dict[str, Any]) -> dict[str, Figure]:
    figure, axes = panels(1, 2, "The mean of normal data: accuracy and run time as the data grow", share=False)
    figure.set_size_inches(9.5, 4.2)
    left, right = axes[0]
    styles = {numbers["rival"]: STYLES["reference"], "sgldcv": STYLES["sgldcv"], OURS: STYLES[OURS]}
    labels = {"sgldcv": "sgldcv, one step for all N", OURS: "sgldcv, automatic centre, step 0.2/N"}
    for line, style in styles.items():
        found = {name: np.asarray(values) for name, values in numbers["lines"][line].items()}
        marker = {"mfc": "white"} if line == OURS else {}
        band(left, numbers["sizes"], np.maximum(found["kl"], 1e-7), str(labels.get(line, line)), **style, **marker)
        band(right, numbers["sizes"], found["seconds"] + found["compile"], line, **style, **marker)
        band(right, numbers["sizes"], found["seconds"], line, **{**style, "ls": ":"}, **marker)
    for one, text in ((left, "KL divergence to the exact posterior (nats)"), (right, "run time (seconds)")):
        one.set(xscale="log", yscale="log", xlabel="observations N", ylabel=text)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    left.set_title("accuracy", fontsize="medium")
    right.set_title("run time with compiling (dotted: without)", fontsize="medium")
    return {"figure-1": figure}


def table(numbers: dict[str, Any]) -> list[list[str]]:
    rows = [["", *(f"N = {size:,}" for size in numbers["sizes"])]]
    for line, found in numbers["lines"].items():
        for name, text in (("kl", "KL"), ("seconds", "seconds, sampling alone"), ("compile", "seconds, compiling and centre")):
            values = np.asarray(found[name])
            rows.append([f"{line}: {text}", *(f"{np.median(values[:, i]):.3g}" for i in range(values.shape[1]))])
    return rows
