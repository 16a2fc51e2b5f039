"""Section 6.2: logistic regression (figure 4), with section 5.1's figure 2 and what section 2 says of complex models."""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduction.claims import Claim, judge
from reproduction.logistic_regression import CHANCE, late
from reproduction.settings import TWINS

PLAIN, CV = [plain for plain, _ in TWINS], [twin for _, twin in TWINS]
SIX = PLAIN + CV
SETTLED = 0.005
"""Nats from its late mean within which a chain counts as burnt in."""


def claims(numbers: dict[str, Any]) -> list[Claim]:
    chains, optimum, equal = numbers["chains"], numbers["optimum"], numbers["equal steps"]
    means = {label: late(chain["log loss"]).mean(axis=1) for label, chain in chains.items()}
    mean = {label: float(values.mean()) for label, values in means.items()}
    sd = {label: float(np.median(late(chain["log loss"]).std(axis=1))) for label, chain in chains.items()}
    seconds = {label: chains[label]["seconds"] for label in SIX}
    burn_in = {label: settling(chains[label]["log loss"], numbers["looks"]) for label in CV}
    centred, rival = numbers["trajectories"], numbers["NUTS"]
    hours = 2_000 * rival["gradients per iteration"] * rival["seconds per gradient"] / 3_600
    figure_2 = np.asarray(numbers["section 5.1"]["log loss"])
    early, later = (float(half.mean()) for half in np.array_split(figure_2, 2))
    clearly = {twin: mean[plain] - mean[twin] > 2 * _error_of_difference(means[plain], means[twin]) for plain, twin in TWINS}
    why = _too_large(numbers["steepest curvature"])
    return [
        judge(
            "2",
            "non-conjugate priors can be used with Stan's HMC",
            "largest R-hat of NUTS on 1,000 rows of this model, whose prior is Laplace (halves of one chain)",
            f"{rival['r_hat']:.3f}",
            rival["r_hat"] < 1.1,
        ),
        judge(
            "2",
            "on a more complex model the run time of full-data MCMC becomes unmanageable",
            "2,000 iterations of NUTS on covertype (gradients per iteration on 1,000 rows, times seconds per full gradient) over "
            "the seconds of sgldcv",
            f"{rival['gradients per iteration']:.0f} x {rival['seconds per gradient']:.3f} s, in all {hours:.1f} hours: "
            f"{3_600 * hours / seconds['sgldcv']:.0f} times",
            3_600 * hours > 100 * seconds["sgldcv"],
        ),
        judge(
            "5.1",
            "sgldcv is stationary after a short burn-in",
            "mean test log loss of the first and the second half of figure 2",
            f"{early:.4f}, {later:.4f}",
            abs(early - later) < 0.001,
        ),
        judge(
            "6.2",
            "an iteration of sghmc costs five times one of sgld",
            "seconds of burn-in and sampling per iteration, sghmc / sgld",
            f"{5 * chains['sghmc']['sampling'] / chains['sgld']['sampling']:.1f}",
            2.5 < 5 * chains["sghmc"]["sampling"] / chains["sgld"]["sampling"] < 10,
        ),
        judge(
            "6.2",
            "the computing times are comparable",
            "seconds of a whole run, compiling, centre and burn-in included: the slowest of the six over the fastest",
            f"{max(seconds.values()) / min(seconds.values()):.1f}",
            max(seconds.values()) < 3 * min(seconds.values()),
        ),
        judge(
            "6.2",
            "all algorithms do decently",
            f"mean log loss, late in the chain (optimum {optimum:.4f}, guessing {CHANCE:.3f})",
            _each(mean, SIX),
            max(mean[label] for label in SIX) < optimum + 0.25 * (CHANCE - optimum),
        ),
        judge(
            "6.2",
            "control variates predict significantly better",
            "the same, by pair; clearly so if the difference is more than two standard errors over chains",
            ", ".join(f"{twin} {'yes' if better else 'no'}" for twin, better in clearly.items()),
            all(clearly.values()),
            why,
        ),
        judge(
            "6.2",
            "control variate chains vary less",
            "sd of the log loss, late in the chain",
            _each(sd, SIX, ".5f"),
            all(sd[twin] < sd[plain] for plain, twin in TWINS),
            why,
        ),
        judge(
            "6.2",
            "sghmc varies less than sgld and sgnht",
            "sd of the log loss of settled chains, started at the mode, with the article's steps",
            _each(centred, PLAIN, ".5f"),
            centred["sghmc"] < min(centred["sgld"], centred["sgnht"]),
        ),
        judge(
            "6.2",
            "that may be due to its cost: with a smaller L it would vary more",
            "the same for L = 2 and L = 5",
            f"{centred['sghmc, L = 2']:.5f}, {centred['sghmc']:.5f}",
            centred["sghmc, L = 2"] > centred["sghmc"],
            "at so small a step fewer leaps also move less",
        ),
        judge(
            "6.2",
            "the burn-in of sgldcv is the longest among control variate methods",
            f"iterations until the log loss, smoothed, stays within {SETTLED} nats of its late mean",
            _each(burn_in, CV, ".0f"),
            burn_in["sgldcv"] > max(burn_in["sghmccv"], burn_in["sgnhtcv"]),
        ),
        judge(
            "6.2",
            "sgld varies most by far",
            "sd of the log loss, late in the chain",
            _each(sd, SIX, ".5f"),
            sd["sgld"] > 1.5 * max(sd[label] for label in SIX if label != "sgld"),
            ("among the plain methods it does; " if sd["sgld"] > 1.5 * max(sd["sghmc"], sd["sgnht"]) else "") + why,
        ),
        judge(
            "6.2",
            "like for like: with one step size for both, the control variate chain varies less than its plain twin",
            "sd of the log loss from one centre: plain, control variate",
            "; ".join(f"{name}: {plain:.5f}, {twin:.5f}" for name, (plain, twin) in equal.items()),
            all(twin < plain for plain, twin in equal.values()),
            ours=True,
        ),
        judge(
            "6.2",
            "the corrected sghmccv is stable where the printed scheme is not",
            "mean log loss, late in the chain: printed, corrected (optimum in brackets)",
            f"{mean['sghmccv']:.4f}, {mean['sghmccv corrected']:.4f} ({optimum:.4f})",
            mean["sghmccv corrected"] - optimum < 0.1 * (mean["sghmccv"] - optimum),
            ours=True,
        ),
    ]


def _too_large(curvature: float) -> str:
    return (
        f"the article's step for sgldcv, 1e-5, is at the limit of stability, 4/A = {4 / curvature:.3g}; with that of sghmccv "
        f"L = 5 leaps turn the steepest direction by L√(εA) = {5 * np.sqrt(1e-6 * curvature):.2f}, near half a period, where the "
        "printed scheme does not damp"
    )


def _error_of_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Standard error of the difference of two means of chains."""
    return float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))


def _each(values: dict[str, float], labels: list[str], form: str = ".4f") -> str:
    return ", ".join(f"{label} {values[label]:{form}}" for label in labels)


def settling(losses: Any, looks: int) -> float:
    """The iteration after which the log loss, the median of chains smoothed over 20 looks, stays near its late mean."""
    middle = np.median(np.asarray(losses), axis=0)
    width = min(20, len(middle))
    smooth = np.convolve(middle, np.full(width, 1 / width), mode="valid")
    outside = np.flatnonzero(np.abs(smooth - late(middle[None]).mean()) > SETTLED)
    return float(looks * (outside[-1] + width)) if len(outside) else 0.0
