"""Section 2: Stan and `sgldcv` as the data grow (figure 1), and what it says of other samplers."""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduction.background import CORRELATION, MALA_STEPS
from reproduction.claims import Claim, judge
from reproduction.stan import OURS, TUNING_STEPS, kl_of_normals


def claims(numbers: dict[str, Any]) -> list[Claim]:
    label, sizes, draws = numbers["rival"], numbers["sizes"], numbers["rival draws"]
    lines = {line: {k: np.asarray(v) for k, v in found.items()} for line, found in numbers["lines"].items()}
    kl = {name: np.median(line["kl"], axis=0) for name, line in lines.items()}
    alone = {name: np.median(line["seconds"], axis=0) for name, line in lines.items()}
    whole = {name: np.median(line["seconds"] + line["compile"], axis=0) for name, line in lines.items()}
    growth = {name: seconds[-1] / seconds[0] for name, seconds in alone.items()}
    added = {name: seconds[-1] - seconds[0] for name, seconds in whole.items()}
    slope = np.log(alone[label][-1] / alone[label][-2]) / np.log(sizes[-1] / sizes[-2])
    apart = kl["sgldcv"] / kl[label]
    small, large = f"N = {sizes[0]:,}", f"N = {sizes[-1]:,}"
    stable = [(step, value) for step, value in zip(TUNING_STEPS, numbers["tuning"], strict=True) if np.isfinite(value)]
    widest, widened = stable[-1]
    return [
        judge(
            "2",
            "ordinary MCMC costs O(N) per iteration",
            f"growth exponent of {label}'s sampling time over the last two sizes",
            f"{slope:.2f}",
            0.5 < slope < 1.5,
        ),
        judge(
            "2",
            "a sampler of this kind has the posterior as its stationary law",
            f"{label}'s median KL times its draws, at each size: about 1 for exact and independent draws",
            ", ".join(f"{value * draws:.1f}" for value in kl[label]),
            np.all(kl[label] * draws < 10),
        ),
        *_background({name: np.asarray(value) for name, value in numbers["background"].items()}, label),
        judge(
            "2",
            "such samplers become slow on large data, those that look at a subset do not",
            f"sampling time at {large} divided by that at {small}: {label}, sgldcv, ours",
            f"{growth[label]:.0f}, {growth['sgldcv']:.1f}, {growth[OURS]:.1f}",
            growth[label] > 5 * max(growth["sgldcv"], growth[OURS]),
        ),
        judge(
            "2",
            "the price is a stationary law near the posterior, not equal to it",
            f"KL of sgldcv at a step of {widest:g} posterior variances; that of its exact law; and at our step",
            f"{widened:.3g}; {kl_of_normals(0, 1 / (1 - widest / 4), 0, 1):.3g}; {np.median(kl[OURS]):.2g}",
            widened > 5 * np.median(kl[OURS]) and np.median(kl[OURS]) < 0.02,
        ),
        judge(
            "2",
            "with more data the step can be smaller, and then the approximation is better",
            f"median KL of ours, whose step is 0.2/N, at {small} and {large}",
            f"{kl[OURS][0]:.2g}, {kl[OURS][-1]:.2g}",
            kl[OURS][-1] < 0.5 * kl[OURS][0],
            "on a Gaussian the bias depends on εN alone: a step that shrinks like 1/N keeps it, and a fixed one increases it "
            "with N; what improves with N at a fixed step is mixing",
        ),
        judge(
            "2",
            "large data gain significantly in computing time",
            f"{label} / sgldcv, compiling and centre included, at {large}",
            f"{whole[label][-1] / whole['sgldcv'][-1]:.1f} (ours {whole[label][-1] / whole[OURS][-1]:.1f})",
            whole[label][-1] > 2 * whole["sgldcv"][-1],
        ),
        judge(
            "2",
            "its users must tune more than Stan's",
            "KL of sgldcv at steps of "
            + ", ".join(f"{step:g}" for step in TUNING_STEPS)
            + f" posterior variances; of {label}, which has no such number",
            ", ".join(f"{value:.2g}" if np.isfinite(value) else "diverges" for value in numbers["tuning"])
            + f"; {np.median(kl[label]):.2g}",
            max(value for _, value in stable) > 10 * np.median(kl[label]),
        ),
        judge(
            "2",
            "the run time of Stan increases rapidly with N, that of the package more slowly",
            f"seconds added between {small} and {large}, compiling and centre included: {label} (through pystan, which also "
            "hands the data over), sgldcv, ours",
            f"{added[label]:.1f}, {added['sgldcv']:.1f}, {added[OURS]:.1f}",
            added[label] > 3 * max(added["sgldcv"], 0) and growth[label] > 10,
        ),
        judge(
            "2",
            "Stan is much quicker on small data once compiled",
            f"{label} with compiling over without, {small}",
            f"{whole[label][0] / alone[label][0]:.0f}",
            whole[label][0] > 2 * alone[label][0],
        ),
        judge(
            "2",
            "on small data the KL divergence is poor beside Stan's",
            f"median KL at {small}: sgldcv, {label}",
            f"{kl['sgldcv'][0]:.3g}, {kl[label][0]:.3g} (ours {kl[OURS][0]:.3g}: with a step made for this N it is not)",
            apart[0] > 5,
        ),
        judge(
            "2",
            "with more data it becomes reasonable",
            f"median KL of sgldcv over that of {label}, at each size",
            ", ".join(f"{value:.3g}" for value in apart),
            apart[-1] < 0.2 * apart[0] and kl["sgldcv"][-1] < 0.1,
        ),
        judge(
            "2",
            "so on large data a small loss of accuracy buys a significant speed-up",
            f"at {large}: KL lost against {label}; run time gained, compiling and centre included",
            f"{kl['sgldcv'][-1] - kl[label][-1]:.3g} nats; {whole[label][-1] / whole['sgldcv'][-1]:.1f} times",
            kl["sgldcv"][-1] < 0.1 and whole[label][-1] > 2 * whole["sgldcv"][-1],
        ),
    ]


def _background(found: dict[str, np.ndarray], label: str) -> list[Claim]:
    acceptance, ess = found["acceptance"], found["efficiency"]
    best, steps = int(np.argmax(ess)), [f"{step:g}" for step in MALA_STEPS]
    one = {name: float(value) for name, value in found.items() if value.ndim == 0}
    langevin, walk = found["acceptance in 50 dimensions"]
    return [
        judge(
            "2",
            "MCMC draws are not independent",
            "lag-1 autocorrelation of MALA at a step of one posterior variance",
            f"{one['autocorrelation']:.2f}",
            one["autocorrelation"] > 0.1,
        ),
        judge(
            "2",
            "the normalising constant cancels in the Metropolis-Hastings ratio",
            "largest difference between MALA chains with and without e^512 multiplied to the density",
            f"{one['shift']:g}",
            one["shift"] == 0,
        ),
        judge(
            "2",
            "the efficiency of Metropolis-Hastings depends on its proposal",
            "effective draws per draw of MALA, best and worst of six step sizes",
            f"{ess.max():.2f} and {ess.min():.4f}",
            ess.max() > 10 * ess.min(),
        ),
        judge(
            "2",
            "MALA and HMC can have very high acceptance rates",
            f"MALA at a step of {steps[1]} posterior variances; NUTS on a correlated normal (adapted to at least 0.8)",
            f"{acceptance[1]:.3f}; {one['nuts acceptance']:.2f}",
            acceptance[1] > 0.95,
        ),
        judge(
            "2",
            "because they follow a diffusion whose stationary law is the posterior",
            "acceptance in 50 dimensions with a step of 0.2 variances: MALA, and a random walk, which follows none",
            f"{langevin:.2f}, {walk:.2f}",
            langevin > walk + 0.2,
        ),
        judge(
            "2",
            "discretising the diffusion makes an error, which the acceptance step corrects",
            "variance at a step of one posterior variance, without and with that step (truth 1; exact without: 1.333)",
            f"{one['unadjusted variance']:.2f}, {one['adjusted variance']:.2f}",
            abs(one["unadjusted variance"] - 1) > 0.15 > abs(one["adjusted variance"] - 1),
        ),
        judge(
            "2",
            "as the step goes to 0 MALA accepts everything and the chain stops moving",
            f"acceptance and effective draws per draw at a step of {steps[0]} posterior variances",
            f"{acceptance[0]:.4f}; {ess[0]:.4f}",
            acceptance[0] > 0.99 and ess[0] < 0.02,
        ),
        judge(
            "2",
            "the step balances acceptance against mixing",
            f"whether MALA's best step of {', '.join(steps)} (posterior variances) is neither the first nor the last",
            f"best at {steps[best]}: acceptance {acceptance[best]:.2f}, {ess[best]:.2f} effective draws per draw",
            0 < best < len(steps) - 1,
        ),
        judge(
            "2",
            "Gibbs samplers can be highly efficient",
            "effective draws per draw, two independent normals",
            f"{one['gibbs independent']:.2f}",
            one["gibbs independent"] > 0.8,
        ),
        judge(
            "2",
            "Gibbs samplers are inefficient under high correlation",
            f"the same with correlation {CORRELATION}",
            f"{one['gibbs correlated']:.4f}",
            one["gibbs correlated"] < 0.1 * one["gibbs independent"],
        ),
        judge(
            "2",
            "Stan's HMC is more robust to correlation",
            f"effective draws per draw with correlation {CORRELATION}: NUTS, Gibbs",
            f"{one['nuts correlated']:.3f} and {one['gibbs correlated']:.4f}",
            one["nuts correlated"] > 5 * one["gibbs correlated"],
        ),
        judge(
            "2",
            "Stan cannot sample discrete parameters",
            f"whether {label} refuses a model with one",
            "refused" if one["rival refuses discrete"] else "accepted",
            one["rival refuses discrete"],
        ),
        judge(
            "2",
            "neither can stochastic gradient MCMC",
            "whether `sgld` refuses a whole-number parameter",
            "refused" if one["we refuse discrete"] else "accepted",
            one["we refuse discrete"],
        ),
    ]
