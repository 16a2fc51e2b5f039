"""A result in plain words: what was decided for the user; what is wrong, how sure that is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from sgmcmc.results.diagnostics import Inflation

OFF = 0.1
"""A variance within so much of the posterior's is good enough."""

FALSE_ALARMS = 0.01
"""At most this part of results with good variances is flagged for them, whatever the number of parameters."""

APART = 1.05
"""R-hat beyond which chains disagree."""

FEW = 100
"""Effective draws below which quantiles mean little."""

FAR = 3.0
"""Posterior standard deviations between centre and mean at which control variates have lost their use."""

UNSEEN = "No check sees what no chain has visited: if there may be several modes, start chains from different params and compare."

REMEDIES = {
    "noise": "Minibatch noise is too high: raise minibatch_size, use control variates, or lower stepsize.",
    "step": "The step is too large: lower stepsize.",
    "narrow": "The chains have not seen all of the posterior: run longer, from several starts.",
    "apart": "Each may be in a mode of its own, or all are too short: look at plot(), run longer.",
    "short": "Run longer, or give a larger stepsize if the variances allow it.",
    "centre": "It makes more noise than it takes away: start params at the posterior mean found here.",
    "scheme": "Use scheme='symmetric'.",
    "rounds": "Treat the draws as approximate, or write the model in parameters that are less curved.",
}

AUTOMATIC_REMEDIES = REMEDIES | {
    "noise": "The posterior is too far from a bowl for its minibatches: treat the draws as approximate.",
    "step": "The posterior is steeper in places than at its mode: treat the draws as approximate.",
    "apart": "Each may be in a mode of its own, or all are too short: look at plot(), ask for more draws.",
    "short": "Ask for more draws, or for a target_ess.",
}
"""For `sample`, whose user chose neither step nor minibatch."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: a word for it, what was seen, and what to do."""

    kind: str
    seen: str
    automatic: bool = False

    @property
    def remedy(self) -> str:
        return (AUTOMATIC_REMEDIES if self.automatic else REMEDIES)[self.kind]

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
        """The findings by a word each: step, noise, narrow, apart, short, centre, scheme or rounds."""
        return tuple(finding.kind for finding in self.findings)

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
        whose = f"The variance of {names[worst]}" + (f" and {len(chosen) - 1} more" if len(chosen) > 1 else "")
        times = f"is {max(found.value[worst], 0):.2f} times the posterior's (standard error {found.error[worst]:.2f})."
        kind = "narrow" if not wide else "noise" if noise[worst] > 1 else "step"
        findings.append(Finding(kind, f"{whose} {times}"))
    return findings


def mixing(ess: np.ndarray, r_hat: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """Chains that disagree, or that are too short to say."""
    findings, r_hat, ess = [], np.nan_to_num(r_hat, nan=1.0), np.nan_to_num(ess, nan=np.inf)
    worst = int(np.argmax(r_hat))
    if r_hat[worst] > APART:
        findings.append(Finding("apart", f"Chains disagree about {names[worst]}: R-hat is {r_hat[worst]:.2f}."))
    least = int(np.argmin(ess))
    if ess[least] < FEW:
        findings.append(Finding("short", f"The draws of {names[least]} are worth only {ess[least]:.0f} independent ones."))
    return findings


def centre(distance: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """A centre of control variates far from where the chains are, in their standard deviations."""
    worst = int(np.argmax(distance))
    seen = f"The centre of the control variates is {distance[worst]:.1f} standard deviations from the mean of {names[worst]}."
    return [Finding("centre", seen)] if distance[worst] > FAR else []


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

    def __str__(self) -> str:
        return "\n".join(f"- {decision}" for decision in self.made)
