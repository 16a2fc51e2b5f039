"""Section 6.2: logistic regression (figure 4), with section 5.1's figure 2 and what section 2 says of complex models."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.experiments.claims import Claim, judge
from sgmcmc.experiments.logistic_regression import CHANCE, late
from sgmcmc.experiments.settings import TWINS


def claims(numbers: dict[str, Any]) -> list[Claim]:
    chains, optimum = numbers["chains"], numbers["optimum"]
    mean = {label: float(late(chain["log loss"]).mean()) for label, chain in chains.items()}
    sd = {label: float(np.median(late(chain["log loss"]).std(axis=1))) for label, chain in chains.items()}
    plain, cv = [one for one, _ in TWINS], [twin for _, twin in TWINS]
    six = plain + cv
    seconds = {label: chains[label]["sampling"] for label in six}
    limit = 4 / numbers["steepest curvature"]
    burn_in = {label: settling(chains[label]["log loss"], numbers["looks"]) for label in cv}
    equal = numbers["equal steps"]
    rival = numbers["NUTS"]
    hours = 2_000 * rival["gradients per iteration"] * rival["seconds per gradient"] / 3_600
    figure_2 = np.asarray(numbers["section 5.1"]["log loss"])[None]
    period = 5 * np.sqrt(1e-6 * numbers["steepest curvature"])
    too_large = (
        f"the article's step for sgldcv, 1e-5, is at the limit of stability, 4/A = {limit:.3g}; with that "
        f"of sghmccv L = 5 leaps turn it by L√(εA) = {period:.2f}, near half a period, where the printed scheme does not damp"
    )

    def each(values: dict[str, float], labels: list[str], form: str = ".4f") -> str:
        return ", ".join(f"{label} {values[label]:{form}}" for label in labels)

    return [
        judge(
            "2",
            "on a more complex model the run time of full-data MCMC becomes unmanageable",
            "2,000 iterations of NUTS on covertype: gradients per iteration on 1,000 rows times seconds per full gradient",
            f"{rival['gradients per iteration']:.0f} x {rival['seconds per gradient']:.3f} s: {hours:.1f} hours",
            hours > 0.5,
        ),
        judge(
            "5.1",
            "sgldcv is stationary after a short burn-in",
            "mean test log loss of the first and the second half of figure 2",
            f"{figure_2[:, : figure_2.shape[1] // 2].mean():.4f}, {late(figure_2).mean():.4f}",
            abs(float(figure_2[:, : figure_2.shape[1] // 2].mean() - late(figure_2).mean())) < 0.001,
        ),
        judge(
            "6.2",
            "an iteration of sghmc costs five times one of sgld",
            "seconds per iteration, sghmc / sgld",
            f"{5 * seconds['sghmc'] / seconds['sgld']:.1f}",
            2.5 < 5 * seconds["sghmc"] / seconds["sgld"] < 10,
        ),
        judge(
            "6.2",
            "the computing times are comparable",
            "seconds of the slowest of the six over the fastest",
            f"{max(seconds.values()) / min(seconds.values()):.1f}",
            max(seconds.values()) < 3 * min(seconds.values()),
        ),
        judge(
            "6.2",
            "all algorithms do decently",
            f"mean log loss, late in the chain (optimum {optimum:.4f}, guessing {CHANCE:.3f})",
            each(mean, six),
            max(mean[m] for m in six) < optimum + 0.25 * (CHANCE - optimum),
        ),
        judge(
            "6.2",
            "control variates predict significantly better",
            "the same, by pair",
            each(mean, six),
            all(mean[two] < mean[one] for one, two in TWINS),
            too_large,
        ),
        judge(
            "6.2",
            "control variate chains vary less",
            "sd of the log loss, late in the chain",
            each(sd, six, ".5f"),
            all(sd[two] < sd[one] for one, two in TWINS),
            too_large,
        ),
        judge(
            "6.2",
            "like for like (ours): at equal step sizes control variate chains vary less",
            "sd of the log loss of twins from one centre: plain, control variate",
            "; ".join(f"{name}: {one:.5f}, {two:.5f}" for name, (one, two) in equal.items()),
            all(two < one for one, two in equal.values()),
        ),
        judge(
            "6.2",
            "sghmc varies less than sgld and sgnht",
            "sd of the log loss, late in the chain",
            each(sd, [*plain, "sghmc corrected"], ".5f"),
            sd["sghmc"] < min(sd["sgld"], sd["sgnht"]),
            "sghmc has not settled after 2,000 + 2,000 iterations: the log loss still falls",
        ),
        judge(
            "6.2",
            "with a smaller L sghmc would vary more",
            "the same for L = 2 and L = 5",
            f"{sd['sghmc, L = 2']:.5f}, {sd['sghmc']:.5f}",
            sd["sghmc, L = 2"] > sd["sghmc"],
        ),
        judge(
            "6.2",
            "sgldcv takes longer to burn in than the other control variate methods",
            "iterations until the log loss stays within four sd of its late mean",
            each(burn_in, cv, ".0f"),
            burn_in["sgldcv"] > max(burn_in["sghmccv"], burn_in["sgnhtcv"]),
        ),
        judge(
            "6.2",
            "sgld varies most by far",
            "sd of the log loss, late in the chain",
            each(sd, six, ".5f"),
            sd["sgld"] > 1.5 * max(sd[m] for m in six if m != "sgld"),
            f"among the plain methods it does; {too_large.partition(';')[0]}",
        ),
    ]


def settling(losses: Any, looks: int) -> float:
    """The iteration after which chains are, in the median, within four late standard deviations of their late mean."""
    array = np.median(np.asarray(losses), axis=0)
    middle, spread = late(array[None]).mean(), late(array[None]).std()
    outside = np.flatnonzero(np.abs(array - middle) > 4 * spread)
    return float(looks * (1 + outside[-1])) if len(outside) else 0.0
