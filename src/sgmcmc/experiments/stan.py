"""Section 2, figure 1: the mean of normal data, `sgldcv` beside Stan as the data grow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import sgmcmc
from sgmcmc.experiments import background
from sgmcmc.experiments.claims import Claim, differs, judge
from sgmcmc.experiments.figures import STYLES, band, panels
from sgmcmc.experiments.rivals import Nuts, Stan, rival
from sgmcmc.experiments.settings import setting
from sgmcmc.experiments.workbook import Workbook
from sgmcmc.models import normal_mean

NAME = "stan"
TITLE = "Stan and sgldcv as the data grow (section 2, figure 1)"
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
    numbers = {
        "sizes": list(sizes),
        "seeds": list(seeds),
        "rival": stan.label,
        "lines": found,
        "tuning": [float(kl) for kl in tuning["kl"]],
        "background": {name: value.tolist() for name, value in facts.items() if name != "seconds"},
    }
    return numbers


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
    return 0.5 * (ratio - 1 - np.log(ratio) + (mean - true_mean) ** 2 / true_variance)


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
    n_iters = setting(NAME, "n_iters", quick)
    clock = time.perf_counter()
    sampler = sgmcmc.sgldcv_setup(
        normal_mean.log_lik, {"x": x}, start, stepsize, opt_stepsize,
        n_iters_opt=n_iters, log_prior=normal_mean.log_prior, minibatch_size=setting(NAME, "minibatch_size", quick),
    )  # fmt: skip
    state = sampler.init(seed, progress=False)
    out = sampler.run(state, n_iters, progress=False)
    whole = time.perf_counter() - clock
    clock = time.perf_counter()
    sampler.run(state, n_iters, progress=False)
    sampling = time.perf_counter() - clock
    return {"kl": kl_divergence(out["theta"], x), "sampling": sampling, "compile": whole - sampling}


def _tuned(step: float, quick: bool) -> float:
    """KL at another step size; infinite where the chain diverges."""
    try:
        return float(_sgldcv(10_000, 1, quick, step / 10_000, None)["kl"])
    except sgmcmc.DivergenceError:
        return float("inf")


def draw(numbers: dict[str, Any]) -> dict[str, Figure]:
    figure, axes = panels(1, 2, "Accuracy and run time as the data grow (mean of normal data)", share=False)
    figure.set_size_inches(9.5, 4.2)
    left, right = axes[0]
    styles = {numbers["rival"]: STYLES["reference"], "sgldcv": STYLES["sgldcv"], OURS: STYLES[OURS]}
    labels = {"sgldcv": "sgldcv, one step for all N", OURS: "sgldcv, automatic centre, step 0.2/N"}
    for line, style in styles.items():
        found = {name: np.asarray(values) for name, values in numbers["lines"][line].items()}
        label = labels.get(line, line)
        band(left, numbers["sizes"], np.maximum(found["kl"], 1e-7), label, **style)
        band(right, numbers["sizes"], found["seconds"] + found["compile"], f"{label}, compiling", **style)
        band(right, numbers["sizes"], found["seconds"], "sampling alone", **{**style, "ls": ":"})
    for one, text in ((left, "KL divergence to the exact posterior (nats)"), (right, "run time (seconds)")):
        one.set(xscale="log", yscale="log", xlabel="observations N", ylabel=text)
    left.legend(fontsize="small", frameon=False)
    right.legend(fontsize="x-small", frameon=False)
    return {"figure-1": figure}


def table(numbers: dict[str, Any]) -> list[list[str]]:
    rows = [["", *(f"N = {size:,}" for size in numbers["sizes"])]]
    for line, found in numbers["lines"].items():
        for name, text in (("kl", "KL"), ("seconds", "seconds, sampling alone"), ("compile", "seconds, compiling and centre")):
            values = np.asarray(found[name])
            rows.append([f"{line}: {text}", *(f"{np.median(values[:, i]):.3g}" for i in range(values.shape[1]))])
    return rows


def claims(numbers: dict[str, Any]) -> list[Claim]:
    label, sizes = numbers["rival"], numbers["sizes"]
    lines = {line: {k: np.asarray(v) for k, v in found.items()} for line, found in numbers["lines"].items()}
    kl = {name: np.median(line["kl"], axis=0) for name, line in lines.items()}
    alone = {name: np.median(line["seconds"], axis=0) for name, line in lines.items()}
    whole = {name: np.median(line["seconds"] + line["compile"], axis=0) for name, line in lines.items()}
    growth = {name: seconds[-1] / seconds[0] for name, seconds in alone.items()}
    slope = np.log(alone[label][-1] / alone[label][-2]) / np.log(sizes[-1] / sizes[-2])
    small, large = f"N = {sizes[0]:,}", f"N = {sizes[-1]:,}"
    inflated = kl_of_normals(0.0, 1 / (1 - 0.25), 0.0, 1.0)
    tuned = ", ".join(f"{kl:.2g}" if np.isfinite(kl) else "diverges" for kl in numbers["tuning"])
    biased = 1 / (1 - np.minimum(np.array([setting(NAME, "stepsize", False) * size for size in sizes]) / 4, 0.99))
    return [
        judge(
            "2", "ordinary MCMC costs O(N) per iteration", f"growth exponent of {label}'s sampling time over the last two sizes",
            f"{slope:.2f}", slope > 0.5,
        ),
        *background.claims({k: np.asarray(v) for k, v in numbers["background"].items()}, label),
        judge(
            "2", "such samplers become slow on large data, those that look at a subset do not",
            f"sampling time at {large} divided by that at {small}: {label}, sgldcv, ours",
            f"{growth[label]:.0f}, {growth['sgldcv']:.1f}, {growth[OURS]:.1f}",
            growth[label] > 5 * max(growth["sgldcv"], growth[OURS]),
        ),
        judge(
            "2", "the price is a stationary law that is near the posterior, not equal to it",
            "exact variance of the discrete chain over that of the posterior, 1/(1 - εN/4), at the sizes of figure 1",
            ", ".join(f"{value:.4f}" for value in biased), bool(np.all(biased > 1)),
        ),
        differs(
            "2", "with more data the step can be smaller, and then the approximation is better",
            "KL from the exact stationary law of sgldcv to the posterior at ε = 1/N, any N",
            f"{inflated:.4f} at every N",
            "the bias depends on εN alone: a step that shrinks like 1/N keeps it, a fixed step increases it with N; "
            "what improves with N at a fixed step is mixing",
        ),
        judge(
            "2", "large data gain significantly in computing time", f"{label} / sgldcv, compiling included, at {large}",
            f"{whole[label][-1] / whole['sgldcv'][-1]:.1f} (ours {whole[label][-1] / whole[OURS][-1]:.1f})",
            whole[label][-1] > 2 * whole["sgldcv"][-1],
        ),
        judge(
            "2", "it needs more tuning than general purpose samplers",
            "KL of sgldcv at steps of " + ", ".join(f"{s:g}" for s in TUNING_STEPS) + f" posterior variances ({label} needs no step)",
            tuned, max(numbers["tuning"]) > 10 * min(numbers["tuning"]),
        ),
        judge(
            "2", "the run time of Stan increases rapidly with N, that of the package more slowly",
            f"run time at {large} over that at {small}, compiling included: {label}, sgldcv; and sampling alone",
            f"{whole[label][-1] / whole[label][0]:.2f}, {whole['sgldcv'][-1] / whole['sgldcv'][0]:.2f}; "
            f"{growth[label]:.0f}, {growth['sgldcv']:.1f}",
            growth[label] > growth["sgldcv"],
        ),
        judge(
            "2", "Stan is much quicker on small data once compiled", f"{label} with compiling over without, {small}",
            f"{whole[label][0] / alone[label][0]:.0f}", whole[label][0] > 2 * alone[label][0],
        ),
        judge(
            "2", "on small data the KL divergence is poor beside Stan's", f"median KL at {small}: sgldcv, {label}",
            f"{kl['sgldcv'][0]:.3g}, {kl[label][0]:.3g} (ours {kl[OURS][0]:.3g})", kl["sgldcv"][0] > 5 * kl[label][0],
        ),
        judge(
            "2", "with more data it becomes reasonable", f"median KL at {large}: sgldcv, {label}",
            f"{kl['sgldcv'][-1]:.3g}, {kl[label][-1]:.3g} (ours {kl[OURS][-1]:.3g})",
            kl["sgldcv"][-1] < 0.1 * kl["sgldcv"][0],
        ),
        judge(
            "2", "so on large data a small loss of accuracy buys a significant speed-up",
            f"at {large}: KL lost against {label}; run time gained, compiling included",
            f"{kl['sgldcv'][-1] - kl[label][-1]:.3g} nats; {whole[label][-1] / whole['sgldcv'][-1]:.1f} times",
            kl["sgldcv"][-1] < 0.1 and whole[label][-1] > 2 * whole["sgldcv"][-1],
        ),
    ]  # fmt: skip
