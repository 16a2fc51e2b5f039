"""Section 2: Stan and `sgldcv` as the data grow (figure 1), and what it says of other samplers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.experiments.background import CORRELATION, MALA_STEPS
from sgmcmc.experiments.claims import Claim, differs, judge
from sgmcmc.experiments.settings import setting
from sgmcmc.experiments.stan import NAME, OURS, TUNING_STEPS, kl_of_normals


def claims(numbers: dict[str, Any]) -> list[Claim]:
    label, sizes = numbers["rival"], numbers["sizes"]
    lines = {line: {k: np.asarray(v) for k, v in found.items()} for line, found in numbers["lines"].items()}
    kl = {name: np.median(line["kl"], axis=0) for name, line in lines.items()}
    alone = {name: np.median(line["seconds"], axis=0) for name, line in lines.items()}
    whole = {name: np.median(line["seconds"] + line["compile"], axis=0) for name, line in lines.items()}
    growth = {name: seconds[-1] / seconds[0] for name, seconds in alone.items()}
    slope = np.log(alone[label][-1] / alone[label][-2]) / np.log(sizes[-1] / sizes[-2])
    draws = numbers["rival draws"]
    small, large = f"N = {sizes[0]:,}", f"N = {sizes[-1]:,}"
    inflated = kl_of_normals(0.0, 1 / (1 - 0.25), 0.0, 1.0)
    tuned = ", ".join(f"{kl:.2g}" if np.isfinite(kl) else "diverges" for kl in numbers["tuning"])
    biased = 1 / (1 - np.minimum(np.array([setting(NAME, "stepsize", False) * size for size in sizes]) / 4, 0.99))
    return [
        judge(
            "2",
            "ordinary MCMC costs O(N) per iteration",
            f"growth exponent of {label}'s sampling time over the last two sizes",
            f"{slope:.2f}",
            slope > 0.5,
        ),
        judge(
            "2",
            "a sampler of this kind has the posterior as its stationary law",
            f"{label}'s median KL times its draws, at each size: about 1 for exact and independent draws",
            ", ".join(f"{value * draws:.1f}" for value in kl[label]),
            bool(np.all(kl[label] * draws < 10)),
        ),
        *background_claims({k: np.asarray(v) for k, v in numbers["background"].items()}, label),
        judge(
            "2",
            "such samplers become slow on large data, those that look at a subset do not",
            f"sampling time at {large} divided by that at {small}: {label}, sgldcv, ours",
            f"{growth[label]:.0f}, {growth['sgldcv']:.1f}, {growth[OURS]:.1f}",
            growth[label] > 5 * max(growth["sgldcv"], growth[OURS]),
        ),
        judge(
            "2",
            "the price is a stationary law that is near the posterior, not equal to it",
            "exact variance of the discrete chain over that of the posterior, 1/(1 - εN/4), at the sizes of figure 1",
            ", ".join(f"{value:.4f}" for value in biased),
            bool(np.all(biased > 1)),
        ),
        differs(
            "2",
            "with more data the step can be smaller, and then the approximation is better",
            "KL from the exact stationary law of sgldcv to the posterior at ε = 1/N, any N",
            f"{inflated:.4f} at every N",
            "the bias depends on εN alone: a step that shrinks like 1/N keeps it, a fixed step increases it with N; "
            "what improves with N at a fixed step is mixing",
        ),
        judge(
            "2",
            "large data gain significantly in computing time",
            f"{label} / sgldcv, compiling included, at {large}",
            f"{whole[label][-1] / whole['sgldcv'][-1]:.1f} (ours {whole[label][-1] / whole[OURS][-1]:.1f})",
            whole[label][-1] > 2 * whole["sgldcv"][-1],
        ),
        judge(
            "2",
            "it needs more tuning than general purpose samplers",
            "KL of sgldcv at steps of " + ", ".join(f"{s:g}" for s in TUNING_STEPS) + " posterior variances",
            tuned,
            max(numbers["tuning"]) > 10 * min(numbers["tuning"]),
        ),
        judge(
            "2",
            "the run time of Stan increases rapidly with N, that of the package more slowly",
            f"run time at {large} over that at {small}, compiling included: {label}, sgldcv; and sampling alone",
            f"{whole[label][-1] / whole[label][0]:.2f}, {whole['sgldcv'][-1] / whole['sgldcv'][0]:.2f}; "
            f"{growth[label]:.0f}, {growth['sgldcv']:.1f}",
            growth[label] > growth["sgldcv"],
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
            f"{kl['sgldcv'][0]:.3g}, {kl[label][0]:.3g} (ours {kl[OURS][0]:.3g})",
            kl["sgldcv"][0] > 5 * kl[label][0],
        ),
        judge(
            "2",
            "with more data it becomes reasonable",
            f"median KL at {large}: sgldcv, {label}",
            f"{kl['sgldcv'][-1]:.3g}, {kl[label][-1]:.3g} (ours {kl[OURS][-1]:.3g})",
            kl["sgldcv"][-1] < 0.1 * kl["sgldcv"][0],
        ),
        judge(
            "2",
            "so on large data a small loss of accuracy buys a significant speed-up",
            f"at {large}: KL lost against {label}; run time gained, compiling included",
            f"{kl['sgldcv'][-1] - kl[label][-1]:.3g} nats; {whole[label][-1] / whole['sgldcv'][-1]:.1f} times",
            kl["sgldcv"][-1] < 0.1 and whole[label][-1] > 2 * whole["sgldcv"][-1],
        ),
    ]


def background_claims(found: dict[str, np.ndarray], rival_label: str) -> list[Claim]:
    acceptance, ess = found["acceptance"], found["efficiency"]
    best = int(np.argmax(ess))
    steps = [f"{step:g}" for step in MALA_STEPS]
    return [
        judge(
            "2",
            "MCMC draws are not independent",
            "lag-1 autocorrelation of MALA at a step of one posterior variance",
            f"{float(found['autocorrelation']):.2f}",
            float(found["autocorrelation"]) > 0.1,
        ),
        judge(
            "2",
            "the normalising constant cancels in the Metropolis-Hastings ratio",
            "largest difference between MALA chains with and without e^512 multiplied to the density",
            f"{float(found['shift']):g}",
            float(found["shift"]) == 0,
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
            f"MALA at a step of {steps[1]} posterior variances; NUTS on a correlated normal",
            f"{acceptance[1]:.3f}; {float(found['nuts acceptance']):.2f}",
            acceptance[1] > 0.95 and float(found["nuts acceptance"]) > 0.75,
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
            f"MALA's best step of {', '.join(steps)} (posterior variances) is neither the first nor the last",
            f"best at {steps[best]}: acceptance {acceptance[best]:.2f}, {ess[best]:.2f} effective draws per draw",
            0 < best < len(steps) - 1,
        ),
        judge(
            "2",
            "Gibbs samplers can be highly efficient",
            "effective draws per draw, two independent normals",
            f"{float(found['gibbs independent']):.2f}",
            float(found["gibbs independent"]) > 0.8,
        ),
        judge(
            "2",
            "Gibbs samplers are inefficient under high correlation",
            f"the same with correlation {CORRELATION}",
            f"{float(found['gibbs correlated']):.4f}",
            float(found["gibbs correlated"]) < 0.1 * float(found["gibbs independent"]),
        ),
        judge(
            "2",
            "Stan's HMC is more robust to correlation",
            f"effective draws per draw with correlation {CORRELATION}: NUTS, Gibbs",
            f"{float(found['nuts correlated']):.3f} and {float(found['gibbs correlated']):.4f}",
            float(found["nuts correlated"]) > 5 * float(found["gibbs correlated"]),
        ),
        judge(
            "2",
            "Stan cannot sample discrete parameters",
            f"whether {rival_label} refuses a model with one",
            "refused" if found["rival refuses discrete"] else "accepted",
            bool(found["rival refuses discrete"]),
        ),
        judge(
            "2",
            "neither can stochastic gradient MCMC",
            "whether `sgld` refuses a whole-number parameter",
            "refused" if found["we refuse discrete"] else "accepted",
            bool(found["we refuse discrete"]),
        ),
    ]
