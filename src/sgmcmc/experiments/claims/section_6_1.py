"""Section 6.1: the Gaussian mixture (figure 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.experiments.claims import Claim, differs, judge
from sgmcmc.experiments.gaussian_mixture import NAME
from sgmcmc.experiments.settings import METHODS, TWINS, stepsize


def claims(numbers: dict[str, Any]) -> list[Claim]:
    found = numbers["variants"]["code"]
    middle = {
        label: {name: float(np.median(values)) for name, values in figures.items() if name != "r_hat"}
        for label, figures in found.items()
    }
    cv = [twin for _, twin in TWINS]
    plain = [one for one, _ in TWINS]
    six = plain + cv

    def each(name: str, labels: list[str], form: str = ".2g") -> str:
        return ", ".join(f"{label} {middle[label][name]:{form}}" for label in labels)

    truth, half = middle["HMC"], found["HMC"]
    steps = {method.label: (stepsize(NAME, method), found[method.label]["stepsize"]) for method in METHODS}
    halved = [f"{label} {was:g} to {now:g}" for label, (was, now) in steps.items() if now != was]
    by_loss = sorted(six, key=lambda label: middle[label]["excess log loss"])
    by_distance = sorted(six, key=lambda label: middle[label]["distance"])
    agreement = float(np.corrcoef([by_loss.index(label) for label in six], [by_distance.index(label) for label in six])[0, 1])
    times = {label: middle[label]["sampling"] for label in six}
    per_iteration = (times["sghmc"] / 2_000) / (times["sgld"] / 10_000)
    evaluations = {label: (2 if label.endswith("cv") else 1) * 10_000 for label in six}
    rarer, within = "share of draws on the rarer of the two labellings (truth near 0.5)", "sd of θ₁ within a labelling over HMC's"
    claimed = [
        judge(
            "6",
            "the simulations are reproducible",
            "methods whose chain is the same to the last bit when run again from its seed",
            f"{sum(found[m.label]['repeatable'] for m in METHODS)} of {len(METHODS)}",
            all(found[m.label]["repeatable"] for m in METHODS),
        ),
        judge(
            "6.1",
            "1,000 observations are few enough for full HMC",
            "seconds of NUTS, four chains, compiling included",
            f"{found['HMC']['seconds']:.0f}",
            found["HMC"]["seconds"] < 300,
        ),
        judge(
            "6.1",
            "a full HMC run is close to the true posterior",
            "largest R-hat of 4 chains; energy distance between two halves of them; share on the rarer labelling",
            f"{half['r_hat']:.3f}; {truth['distance']:.2g}; {truth['smaller side']:.2f}",
            half["r_hat"] < 1.05 and truth["distance"] < 0.1 * middle["sgldcv"]["distance"],
        ),
        judge(
            "6.1",
            "an iteration of sghmc costs more, in proportion to L",
            "seconds per iteration, sghmc (L = 5) / sgld, compiled",
            f"{per_iteration:.1f}",
            2 < per_iteration < 10,
        ),
        judge(
            "6.1",
            "2,000 iterations of sghmc cost about as much as 10,000 of the others",
            "gradients per run, sghmc / sgld; seconds per run, sghmc / sgld, compiled",
            f"1; {times['sghmc'] / times['sgld']:.2f}",
            1 / 3 < times["sghmc"] / times["sgld"] < 3,
        ),
        differs(
            "6.1",
            "10,000 steps of optimisation in place of the burn-in make control variates cost the same",
            "gradients of minibatches per run, burn-in or optimisation included: plain, control variates",
            f"20,000, {10_000 + evaluations['sgldcv']:,}",
            "a control variate evaluates each minibatch at two points, so its 10,000 iterations cost up to twice as much",
        ),
        judge(
            "6.1",
            "the results vary much between methods",
            "energy distance to HMC, best and worst of the six",
            each("distance", [by_distance[0], by_distance[-1]]),
            middle[by_distance[-1]]["distance"] > 5 * middle[by_distance[0]]["distance"],
        ),
        judge(
            "6.1",
            "predictive accuracy trades off against exploration",
            "rank correlation over the six between test log loss and distance to HMC (negative: a trade-off)",
            f"{agreement:.2f}",
            agreement < -0.5,
        ),
        judge(
            "6.1",
            "methods that predict better than sgld (control variates, sgnht) explore worse",
            "log loss above HMC's; energy distance to HMC",
            f"{each('excess log loss', ['sgld', 'sgnht', *cv])}; {each('distance', ['sgld', 'sgnht', *cv])}",
            all(
                middle[m]["excess log loss"] < middle["sgld"]["excess log loss"]
                and middle[m]["distance"] > middle["sgld"]["distance"]
                for m in ("sgnht", *cv)
            ),
        ),
        judge(
            "6.1",
            "sgld explores both components best",
            rarer,
            each("smaller side", six),
            middle["sgld"]["smaller side"] == max(middle[m]["smaller side"] for m in six),
        ),
        judge(
            "6.1", "but overstates uncertainty", within, each("spread within", ["sgld"]), middle["sgld"]["spread within"] > 1.1
        ),
        judge(
            "6.1",
            "sghmc explores both components, somewhat unevenly",
            rarer,
            f"{each('smaller side', ['sghmc', 'sghmc corrected'])} (sgld {middle['sgld']['smaller side']:.2g})",
            0.1 < middle["sghmc"]["smaller side"] < middle["sgld"]["smaller side"],
        ),
        judge(
            "6.1",
            "sgnht explores far less and collapses to a mode",
            f"{rarer}; {within}",
            f"{each('smaller side', ['sgnht'])}; {each('spread within', ['sgnht'])}",
            middle["sgnht"]["smaller side"] < 0.01 and middle["sgnht"]["spread within"] < 0.8,
        ),
        judge(
            "6.1",
            "control variates predict better than sgld",
            "test log loss above HMC's",
            each("excess log loss", ["sgld", *cv]),
            all(middle[m]["excess log loss"] < middle["sgld"]["excess log loss"] for m in cv),
        ),
        judge(
            "6.1",
            "but do not explore both components",
            rarer,
            each("smaller side", cv),
            all(middle[m]["smaller side"] < 0.25 for m in cv),
            "they visit the other one, too rarely",
        ),
        judge(
            "6.1",
            "of the control variate methods sgldcv explores best",
            rarer,
            each("smaller side", cv),
            middle["sgldcv"]["smaller side"] == max(middle[m]["smaller side"] for m in cv),
            "sgldcv is run with half the article's step, see below" if halved else "",
        ),
        judge(
            "6.1",
            "sgldcv overstates the uncertainty of its component",
            within,
            each("spread within", ["sgldcv"]),
            middle["sgldcv"]["spread within"] > 1.05,
        ),
        judge(
            "6.1",
            "sgnhtcv collapses to a mode",
            f"{rarer}; {within}",
            f"{each('smaller side', ['sgnhtcv'])}; {each('spread within', ['sgnhtcv'])}",
            middle["sgnhtcv"]["smaller side"] < 0.01,
            "it keeps to one component for most of the time, with nearly the right spread there",
        ),
    ]
    if halved:
        claimed.append(
            differs(
                "6.1",
                "the step sizes are usable as printed",
                "steps halved because a chain diverged",
                "; ".join(halved),
                "the steepest curvature of this posterior is near N/2 = 500, and a Langevin step must stay below 4/500 = 0.008",
            )
        )
    return claimed
