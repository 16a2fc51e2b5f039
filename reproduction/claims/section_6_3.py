"""Section 6.3: the Bayesian network (figure 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduction.claims import Claim, judge
from reproduction.neural_network import OTHER_STEPS, whole
from reproduction.settings import TWINS

PLAIN, CV = [plain for plain, _ in TWINS], [twin for _, twin in TWINS]
SIX = PLAIN + CV


def claims(numbers: dict[str, Any]) -> list[Claim]:
    chains, both = numbers["chains"], numbers["log loss from log_lik"]
    mean = {label: float(np.mean(chain["log loss"])) for label, chain in chains.items()}
    averaged = {label: chain["predictive log loss"] for label, chain in chains.items()}
    first = {label: chain["log loss"][0] for label, chain in chains.items()}
    seconds = {label: whole(chains[label]) for label in SIX}
    sampling = {label: chains[label]["seconds of sampling"] for label in SIX}
    gigabytes = 10_000 * 8 * numbers["parameters"] / 1e9
    parts = 100 * 10 + 784 * 100 + 10 + 100 + 4
    return [
        judge(
            "6.3",
            "55,000 training and 10,000 test images of 784 pixels",
            'rows and columns of `get_dataset("mnist")`',
            "{:,}, {:,} and {:,}".format(*numbers["rows"]),
            numbers["rows"] == [55_000, 10_000, 784],
        ),
        judge(
            "6.3",
            "A, B, a, b are 100 x 10, 784 x 100, 1 x 10 and 1 x 100, with four precisions",
            "parameters of the model, and the sum of those",
            f"{numbers['parameters']:,} and {parts:,}",
            numbers["parameters"] == parts,
        ),
        judge(
            "6.3",
            "unless there is much memory a chain of 10,000 does not fit",
            "10,000 x parameters x 8 bytes; peak memory of this experiment, which keeps no chain",
            f"{gigabytes:.1f} GB; {numbers['peak memory']:.2f} GB",
            gigabytes > 2 * numbers["peak memory"],
        ),
        judge(
            "6.3",
            "the log loss is minus the log likelihood of the test set over its size",
            "both ways at the starting values",
            "{:.6f}, {:.6f}".format(*both),
            abs(both[0] - both[1]) < 1e-4 * both[0],
        ),
        judge(
            "6.3",
            "an iteration of sghmc or sghmccv costs five times that of the others",
            "seconds per iteration: sghmc / sgld in the burn-in; sghmccv / sgldcv with their looks at the test set",
            f"{_cost(chains, 'sghmc', 'sgld'):.1f}, {_cost(chains, 'sghmccv', 'sgldcv'):.1f}",
            2.5 < _cost(chains, "sghmc", "sgld") < 10 and 2 < _cost(chains, "sghmccv", "sgldcv") < 10,
        ),
        judge(
            "6.3",
            "with 2,000 iterations for those two the costs are comparable",
            "seconds of sampling: the slowest of the six over the fastest",
            f"{_slowest_over_fastest(sampling):.1f} (whole runs, burn-in or optimisation included: "
            f"{_slowest_over_fastest(seconds):.1f})",
            _slowest_over_fastest(sampling) < 3,
        ),
        *_step_sizes(chains),
        judge(
            "6.3",
            "control variates predict better again",
            "mean test log loss of a draw",
            _each(mean, SIX),
            all(mean[twin] < mean[plain] for plain, twin in TWINS),
            f"the centre that the optimiser reaches (with our step) has a log loss of {first['sgldcv']:.3f}, where sgld after "
            f"its burn-in is at {first['sgld']:.3f}; this posterior has no one mode, and control variates need a good centre",
        ),
        judge(
            "6.3",
            "of the plain methods, sghmc and sgnht predict best",
            "mean test log loss of a draw; of the predictive mean",
            f"{_each(mean, PLAIN)}; {_each(averaged, PLAIN)}",
            max(mean["sghmc"], mean["sgnht"]) < mean["sgld"],
        ),
        *_ours(numbers),
    ]


def _step_sizes(chains: dict[str, Any]) -> list[Claim]:
    tried = {label: chains[label]["other steps"] for label in SIX if chains[label]["other steps"]}
    if not tried:
        return []
    best = {label: OTHER_STEPS[int(np.nanargmin(losses))] for label, losses in tried.items()}
    return [
        judge(
            "6.3",
            "generally, the step sizes are those with the smallest log loss",
            "log loss of chains that go on for a twentieth of their length with half the step, the step, and twice it",
            "; ".join(f"{label} {', '.join(f'{loss:.3f}' for loss in losses)}" for label, losses in tried.items()),
            sum(factor == 1 for factor in best.values()) > len(best) / 2,
            "of this length and from here, another step does better for "
            + ", ".join(f"{label} ({factor:g} times)" for label, factor in best.items() if factor != 1),
        )
    ]


def _ours(numbers: dict[str, Any]) -> list[Claim]:
    chains, adam = numbers["chains"], numbers["Adam"]
    single = {label: float(np.mean(chain["error"])) for label, chain in chains.items()}
    positive = [label for label in SIX if chains[label]["positive"]]
    nearest = min(chains, key=lambda label: chains[label]["predictive error"])
    return [
        judge(
            "6.3",
            "the predictive mean is no worse than single draws, and near an optimum",
            "test error of single draws (mean) and of the predictive mean; of the optimum found by Adam",
            "; ".join(f"{label} {single[label]:.2%}, {chains[label]['predictive error']:.2%}" for label in chains)
            + f"; Adam {adam['error']:.2%}",
            all(chains[label]["predictive error"] <= single[label] for label in chains)
            and chains[nearest]["predictive error"] <= adam["error"] + 0.01,
            ours=True,
        ),
        judge(
            "6.3",
            "the precisions can be sampled as they are",
            "methods that left the finite numbers, run again with λ > 0",
            ", ".join(positive) or "none",
            not positive,
            "a λ near 0 has a gradient of thousands, which one step takes below 0; with `constraints` none can",
            ours=True,
        ),
    ]


def _cost(chains: dict[str, Any], slow: str, quick: str) -> float:
    """Seconds of an iteration of `slow` over those of `quick`: in their burn-in, where nothing is looked at, if they have one."""
    stage = "seconds of burn-in" if chains[slow]["seconds of burn-in"] > 1e-3 else "seconds of sampling"
    if stage == "seconds of sampling":
        per_look = {label: chains[label][stage] / len(chains[label]["log loss"]) for label in (slow, quick)}
        return per_look[slow] / per_look[quick]
    return chains[slow][stage] / chains[quick][stage]


def _slowest_over_fastest(seconds: dict[str, float]) -> float:
    return max(seconds.values()) / min(seconds.values())


def _each(values: dict[str, float], labels: list[str]) -> str:
    return ", ".join(f"{label} {values[label]:.3f}" for label in labels)
