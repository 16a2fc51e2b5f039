"""Section 6.3: the Bayesian network (figure 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.experiments.claims import Claim, differs, judge
from sgmcmc.experiments.settings import TWINS


def claims(numbers: dict[str, Any]) -> list[Claim]:
    both = numbers["log loss from log_lik"]
    chains, adam = numbers["chains"], numbers["Adam"]
    plain, cv = [one for one, _ in TWINS], [twin for _, twin in TWINS]
    six = plain + cv
    mean = {label: float(np.mean(chain["log loss"])) for label, chain in chains.items()}
    single = {label: float(np.mean(chain["error"])) for label, chain in chains.items()}
    seconds = {label: chains[label]["preparing"] + chains[label]["sampling"] for label in six}
    gigabytes = 10_000 * 8 * numbers["parameters"] / 1e9
    positive = [label for label in six if chains[label]["positive"]]
    better = {
        label: float(np.nanmin(chains[label]["other steps"])) / float(np.mean(latest(chains[label]["log loss"])))
        for label in six
        if np.isfinite(chains[label]["other steps"]).any()
    }

    def each(values: dict[str, float], labels: list[str], form: str = ".3f") -> str:
        return ", ".join(f"{label} {values[label]:{form}}" for label in labels)

    found = [
        judge(
            "6.3",
            "A, B, a, b are 100 x 10, 784 x 100, 1 x 10 and 1 x 100, with four precisions",
            "parameters of the model, and the sum of those",
            f"{numbers['parameters']:,} and {100 * 10 + 784 * 100 + 10 + 100 + 4:,}",
            numbers["parameters"] == 100 * 10 + 784 * 100 + 10 + 100 + 4,
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
            "55,000 training and 10,000 test images of 784 pixels",
            'rows of `get_dataset("mnist")`',
            "{:,} and {:,}".format(*numbers["rows"]),
            numbers["rows"] == [55_000, 10_000],
        ),
        judge(
            "6.3",
            "a chain of 10,000 does not fit into ordinary memory",
            "10,000 x parameters x 8 bytes",
            f"{numbers['parameters']:,} parameters: {gigabytes:.1f} GB; peak memory of this experiment, which keeps no chain, "
            f"{numbers['peak memory']:.2f} GB",
            gigabytes > 2 * numbers["peak memory"],
        ),
        judge(
            "6.3",
            "an iteration of sghmc or sghmccv costs five times that of the others",
            "sampling seconds per iteration: sghmc / sgld, sghmccv / sgldcv",
            ", ".join(f"{per_iteration(chains, a, b):.1f}" for a, b in (("sghmc", "sgld"), ("sghmccv", "sgldcv"))),
            all(2.5 < per_iteration(chains, a, b) < 10 for a, b in (("sghmc", "sgld"), ("sghmccv", "sgldcv"))),
        ),
        judge(
            "6.3",
            "with 2,000 iterations for those two the costs are comparable",
            "seconds of the slowest of the six over the fastest",
            f"{max(seconds.values()) / min(seconds.values()):.1f}",
            max(seconds.values()) < 3 * min(seconds.values()),
        ),
        judge(
            "6.3",
            "control variates predict better again",
            "mean test log loss of a draw",
            each(mean, six),
            all(mean[two] < mean[one] for one, two in TWINS),
            "this posterior has no one mode, and the centre that the article's search reaches fits worse than where sgld gets "
            "in its burn-in",
        ),
        judge(
            "6.3",
            "among the standard methods sghmc and sgnht predict best",
            "mean test log loss of a draw; of the predictive mean",
            f"{each(mean, plain)}; {each({k: chains[k]['predictive log loss'] for k in plain}, plain)}",
            max(mean["sghmc"], mean["sgnht"]) < mean["sgld"],
            "after 2,000 + 2,000 iterations sghmc is still falling",
        ),
        judge(
            "6.3",
            "like for like (ours): the predictive mean is no worse than single draws, and near an optimum",
            "test error of single draws (mean) and of the predictive mean; of the optimum found by Adam",
            "; ".join(f"{k} {single[k]:.2%}, {chains[k]['predictive error']:.2%}" for k in chains)
            + f"; Adam {adam['error']:.2%}",
            all(chains[k]["predictive error"] <= single[k] for k in chains)
            and min(chains[k]["predictive error"] for k in chains) <= adam["error"] + 0.01,
        ),
    ]
    if better:
        found.insert(
            4,
            judge(
                "6.3",
                "the step sizes are those with the smallest log loss",
                "log loss of chains that go on with half or twice the step (the better of them) over that of the chain before",
                each(better, list(better), ".2f"),
                all(ratio > 0.95 for ratio in better.values()),
            ),
        )
    if positive:
        found.append(
            differs(
                "6.3",
                "the precisions can be sampled as they are",
                "methods that left the finite numbers, run again with λ > 0",
                ", ".join(positive),
                "a λ near 0 has a gradient of thousands, which one step takes below 0; with `constraints` none can",
            )
        )
    return found


def per_iteration(chains: dict[str, Any], slow: str, quick: str) -> float:
    """Seconds of an iteration of `slow` over those of `quick`; both look at the test set equally often."""
    cost = {label: chains[label]["sampling"] / len(chains[label]["log loss"]) for label in (slow, quick)}
    return cost[slow] / cost[quick]


def latest(losses: list[float]) -> list[float]:
    """The last twentieth."""
    return losses[-max(1, len(losses) // 20) :]
