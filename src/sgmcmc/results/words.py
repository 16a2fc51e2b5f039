"""A result in plain words: what was decided for the user; what is wrong, how sure that is, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from sgmcmc.core.html import Markup, bullets, element, joined
from sgmcmc.results.diagnostics import ABSURD, Inflation

OFF = 0.1
"""A variance within so much of the posterior's is good enough."""

FALSE_ALARMS = 0.01
"""At most this part of results with good variances is flagged for them, whatever the number of parameters."""

APART = 1.05
"""R-hat beyond which chains disagree."""

FEW = 100
"""Effective draws below which quantiles mean little."""

ENOUGH = 400
"""Effective draws that make quantiles good."""

ROUGH = 0.1
"""Relative error of a standard deviation beyond which it is not known; of a variance, twice that."""

FEW_STEPS = 50
"""Steps of its float type in a standard deviation below which rounding shows."""

DIVERGING = 0.001
"""Part of NUTS transitions that may diverge."""

FAR = 3.0
"""Posterior standard deviations between centre and mean at which control variates have lost their use."""

OUTSIDE = "outside"
"""The setting that says at what the log posterior was not finite."""

REWRITING = "trading off"
"""The decision that says which scales and effects trade off, and how to write them."""

AGREEING = "predictions"
"""The decision that says whether chains agree in what they say of rows."""

MIXING_ONLY = "R-hat and effective sample size tell mixing only, never bias."

EXACT = "NUTS on all rows: no bias from steps or minibatches."

CROWDED = "Too many parameters for the draws: inflation is judged by directions, without their correlations."

UNSEEN = "No check sees what no chain has visited: if there may be several modes, start chains from different params and compare."

REMEDIES = {
    "noise": "Minibatch noise is too high: raise minibatch_size, use control variates, or lower stepsize.",
    "step": "The step is too large: lower stepsize.",
    "excursions": "The step is too large where the posterior is steeper than at its centre: lower stepsize.",
    "centre": "It makes more noise than it takes away: start params at the posterior mean found here.",
    "divergences": "Part of the posterior is too narrow for the steps: write effects of a scale as scale * z, z ~ Normal(0, 1).",
    "narrow": "The chains have not seen all of the posterior: run longer, from several starts.",
    "apart": "Each may be in a mode of its own, or all are too short: look at plot(), run longer.",
    "short": "Run longer, or give a larger stepsize if the variances allow it.",
    "tails": "Its sd and outer quantiles are not to be trusted: use a prior with lighter tails, such as a normal one.",
    "limits": "A limit written as -inf has no gradient to keep a chain inside: use constraints for it.",
    "digits": "Centre the column that goes with it, or use float64: jax.config.update('jax_enable_x64', True).",
    "scheme": "Use scheme='symmetric'.",
    "rounds": "Treat the draws as approximate, or write the model in parameters that are less curved.",
}
"""What to do about a kind of finding, where the draws show no closer cause."""

AUTOMATIC_REMEDIES = REMEDIES | {
    "noise": "The posterior is too far from a bowl for its minibatches: treat the draws as approximate.",
    "step": "The posterior is steeper in places than at its mode: treat the draws as approximate.",
    "excursions": "The posterior is steeper in places than at its mode: treat such tails, means and sds as approximate.",
    "apart": f"Each may be in a mode of its own, or all are too short: look at plot(), ask for target_ess={ENOUGH}.",
    "narrow": "The chains have not seen all of the posterior: ask for more draws, from several starts.",
    "short": f"Ask for target_ess={ENOUGH}.",
}
"""For `sample`, whose user chose neither step nor minibatch."""

CAUSED = ("divergences", "narrow", "apart", "short", "rounds")
"""Kinds whose remedy depends on a cause that the draws may show."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: a word for it, what was seen, and what to do.

    Attributes:
        kind: the word.
        seen: a sentence.
        about: the number it was seen of, if it is one.
        cause: why, and what to do about that, where the draws show it.
        automatic: whether the library chose steps and minibatches.
    """

    kind: str
    seen: str
    about: str = ""
    cause: str | None = None
    automatic: bool = False

    @property
    def remedy(self) -> str:
        return self.cause if self.cause is not None else (AUTOMATIC_REMEDIES if self.automatic else REMEDIES)[self.kind]

    def __str__(self) -> str:
        return f"{self.seen} {self.remedy}"


@dataclass(frozen=True)
class Health:
    """What is wrong with a result, and what could not be looked at. Printing it gives sentences.

    Attributes:
        findings: what is wrong, worst first; nothing, for a good result.
        notes: what the checks rest on, and what they do not cover.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.findings

    @property
    def kinds(self) -> tuple[str, ...]:
        """The findings by a word each.

        step, noise, narrow, excursions, centre, divergences, apart, short, tails, digits, limits, scheme or rounds.
        """
        return tuple(finding.kind for finding in self.findings)

    def _repr_html_(self) -> Markup:
        said = [joined([element("b", one.seen), one.remedy], " ") for one in self.findings] or ["All checks passed."]
        return joined([bullets(said), *(element("p", element("small", note)) for note in self.notes)])

    def __str__(self) -> str:
        said = [f"- {finding}" for finding in self.findings] or ["- All checks passed."]
        return "\n".join([*said, *(f"  ({note})" for note in self.notes)])


def sure(numbers: int) -> float:
    """Standard errors at which one of so many numbers, all of them good, raises a false alarm with `FALSE_ALARMS` at most."""
    return -NormalDist().inv_cdf(FALSE_ALARMS / (2 * max(numbers, 1)))


def variances(found: Inflation, names: Sequence[str], noise: np.ndarray) -> list[Finding]:
    """Variances that are surely off; `noise` is the gradient noise beside the curvature, which says whose fault it is."""
    beyond = np.nan_to_num(np.abs(found.value - 1) - OFF - sure(len(names)) * found.error, nan=-1.0)
    findings = []
    for wide in (True, False):
        chosen = np.flatnonzero((beyond > 0) & ((found.value > 1) == wide))
        if not len(chosen):
            continue
        worst = int(chosen[np.argmax(np.abs(found.value[chosen] - 1))])
        ratio = f"{max(found.value[worst], 0):.2f}" if found.value[worst] < ABSURD else f"more than {ABSURD:,.0f}"
        seen = f"The variance of {_and_more(names, worst, len(chosen))} is {ratio} times the posterior's"
        error = f" (standard error {found.error[worst]:.2f})." if found.value[worst] < ABSURD else "."
        kind = "narrow" if not wide else "noise" if noise[worst] > 1 else "step"
        findings.append(Finding(kind, seen + error, names[worst]))
    return findings


def undetermined(found: Inflation, names: Sequence[str]) -> list[str]:
    """A note of how many variances could not be compared."""
    open_ones = np.flatnonzero(~found.determined)
    if not len(open_ones):
        return []
    why = "the draws are too few, too noisy or too far out to compare their variance with the posterior's"
    return [f"Inflation is not determined for {len(open_ones)} of {len(names)} numbers, {names[open_ones[0]]} first: {why}."]


def excursions(counts: np.ndarray, draws: int, names: Sequence[str]) -> list[Finding]:
    """Draws that the posterior would never give."""
    worst, numbers = int(np.argmax(counts)), int(np.count_nonzero(counts))
    if not numbers:
        return []
    where = f"{_and_more(names, worst, numbers)} lie where the posterior has nothing, by the gradients there."
    return [Finding("excursions", f"{counts[worst]:,} of {draws:,} draws of {where}", names[worst])]


def divergences(count: int, draws: int) -> list[Finding]:
    """Transitions of NUTS that its step was too large for."""
    return [Finding("divergences", f"{count:,} of {draws:,} transitions diverged.")] if count > DIVERGING * draws else []


def deepest(count: int, draws: int) -> list[str]:
    """A note of transitions that ended at the largest tree: they are right, and see less than they could."""
    return [f"{count:,} of {draws:,} transitions ended at the largest tree."] if count > DIVERGING * draws else []


def mixing(ess: np.ndarray, r_hat: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """Chains that disagree, or that are too short to say."""
    findings, r_hat, ess = [], np.nan_to_num(r_hat, nan=1.0), np.nan_to_num(ess, nan=np.inf)
    worst = int(np.argmax(r_hat))
    if r_hat[worst] > APART:
        seen = f"Chains disagree about {names[worst]}: R-hat is {r_hat[worst]:.2f}."
        findings.append(Finding("apart", seen, names[worst]))
    least = int(np.argmin(ess))
    if ess[least] < FEW:
        worth = f"The draws of {names[least]} are worth only {ess[least]:.0f} independent ones"
        longer = f"{ENOUGH} would take {math.ceil(ENOUGH / max(ess[least], 1.0))} times as many draws."
        findings.append(Finding("short", f"{worth}; {longer}", names[least]))
    return findings


def tails(unseen: np.ndarray, sd_error: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """Standard deviations that the draws cannot tell, by what their tails lack or by their own error."""
    heaviest, roughest = int(np.argmax(unseen)), int(np.argmax(np.nan_to_num(sd_error)))
    if unseen[heaviest] > 2 * ROUGH:
        how = "no variance" if np.isinf(unseen[heaviest]) else f"{unseen[heaviest]:.0%} more variance than the draws have seen"
        name = _and_more(names, heaviest, int(np.count_nonzero(unseen > 2 * ROUGH)))
        return [Finding("tails", f"By the gradients there, the tails of {name} are heavy: they have {how}.", names[heaviest])]
    if sd_error[roughest] > ROUGH:
        name = _and_more(names, roughest, int(np.count_nonzero(sd_error > ROUGH)))
        seen = f"The sd of {name} is only known to {sd_error[roughest]:.0%}: a few excursions of the chains make it up."
        return [Finding("tails", seen, names[roughest])]
    return []


def digits(numbers: np.ndarray, names: Sequence[str], dtype: np.dtype) -> list[Finding]:
    """Numbers whose standard deviation is few steps of their float type."""
    mean, sd = numbers.mean(axis=(0, 1)), numbers.std(axis=(0, 1))
    steps = np.where(sd > 0, sd / np.spacing(np.abs(mean).astype(dtype)).astype(np.float64), np.inf)
    worst, few = int(np.argmin(steps)), int(np.count_nonzero(steps < FEW_STEPS))
    if not few:
        return []
    seen = f"The sd of {_and_more(names, worst, few)} is only {steps[worst]:.2g} steps of {dtype} at {mean[worst]:.6g}."
    centring = "Centre the column that goes with it." if dtype == np.float64 else None
    return [Finding("digits", seen, names[worst], centring)]


def _and_more(names: Sequence[str], worst: int, count: int) -> str:
    return names[worst] + (f" and {count - 1} more" if count > 1 else "")


def centre(distance: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """A centre of control variates far from where the chains are, in their standard deviations."""
    worst = int(np.argmax(distance))
    seen = f"The centre of the control variates is {distance[worst]:.1f} standard deviations from the mean of {names[worst]}."
    return [Finding("centre", seen, names[worst])] if distance[worst] > FAR else []


@dataclass(frozen=True)
class Decision:
    """One decision: what was chosen, and a sentence a statistician understands."""

    name: str
    value: Any
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Decisions(Mapping[str, Any]):
    """Decisions in the order they were made. `decisions[name]` is the value; printing them gives the sentences.

    A name that was decided more than once, round after round, gives its last value.
    """

    made: tuple[Decision, ...] = ()

    def and_then(self, name: str, value: Any, sentence: str) -> Decisions:
        """These and one more."""
        return Decisions((*self.made, Decision(name, value, sentence)))

    def __add__(self, others: Decisions) -> Decisions:
        return Decisions(self.made + others.made)

    def __getitem__(self, name: str) -> Any:
        for decision in reversed(self.made):
            if decision.name == name:
                return decision.value
        raise KeyError(f"{name!r}; decided were {', '.join(map(repr, self)) or 'nothing'}")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(decision.name for decision in self.made))

    def __len__(self) -> int:
        return len(set(self))

    def _repr_html_(self) -> Markup:
        return bullets(self.made)

    def __str__(self) -> str:
        return "\n".join(f"- {decision}" for decision in self.made)
