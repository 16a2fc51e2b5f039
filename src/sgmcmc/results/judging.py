"""The checks behind `Result.health`: which are made of which result, and what their findings are put down to."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import numpy as np

from sgmcmc.algorithms.gradients.whitened import centre_of
from sgmcmc.core.trees import leaf_names
from sgmcmc.results import diagnostics, words
from sgmcmc.results.causes import cause
from sgmcmc.results.diagnostics import Inflation, Pairs, flat_draws
from sgmcmc.results.excursions import along_numbers, thrown_out
from sgmcmc.results.tails import lacking, sd_error
from sgmcmc.results.words import Finding, Health

if TYPE_CHECKING:
    from sgmcmc.results.result import Result


class Judge:
    """Looks at one result. `pairs` and `inflation` are None for draws of NUTS that were kept without gradients."""

    def __init__(self, result: Result, pairs: Pairs | None, inflation: Inflation | None) -> None:
        self.result, self.pairs, self.inflation = result, pairs, inflation
        self.exact = by_nuts(result)

    def health(self) -> Health:
        findings = (self.of_nuts() if self.exact else self.of_dynamics()) + self.of_draws() + self.of_settings()
        return Health(self.caused(findings), (*self.notes(), words.UNSEEN))

    def caused(self, findings: list[Finding]) -> tuple[Finding, ...]:
        """The findings, with what they are put down to and who chose the settings."""
        automatic = self.result.settings.get("sampler") == "sample"
        caused = [replace(one, cause=self.cause(one.about)) if one.kind in words.CAUSED else one for one in findings]
        return tuple(replace(one, automatic=automatic) for one in caused)

    def notes(self) -> list[str]:
        if self.exact or self.inflation is None:
            return [words.EXACT, *words.deepest(self.said_by_nuts("deepest"), self.transitions)]
        agreeing = [one.sentence for one in self.result.decisions.made if one.name == words.AGREEING]
        crowded = [] if self.inflation.joint else [words.CROWDED]
        return [*agreeing, *crowded, *words.undetermined(self.inflation, self.names), words.MIXING_ONLY]

    def of_dynamics(self) -> list[Finding]:
        """What steps and minibatches did to the draws, as their gradients tell it."""
        if self.pairs is None or self.inflation is None:
            return []
        pairs, names = self.pairs, self.names
        far = words.excursions(thrown_out(self.moved[0], *self.along), self.draws, names)
        if not far and pairs.mixed:
            far = words.excursions(thrown_out(self.moved[0], *self.moved), self.draws, pairs.directions)
        return words.variances(self.inflation, names, pairs.gradient_noise()) + far + self.of_centre(pairs)

    def of_centre(self, pairs: Pairs) -> list[Finding]:
        """Where the centre of control variates is, if there is one."""
        if pairs.origin is None or centre_of(self.result.final_state.estimator) is None:
            return []
        every = pairs.positions.reshape(-1, pairs.positions.shape[-1])
        return words.centre(np.abs(every.mean(axis=0)) / np.maximum(every.std(axis=0), 1e-30), pairs.directions)

    def of_nuts(self) -> list[Finding]:
        return words.divergences(self.said_by_nuts("divergences"), self.transitions)

    @property
    def transitions(self) -> int:
        """Those that NUTS counts: after the warm-up, and of all the run, of which the result may have the first draws only."""
        made = int(np.max(self.result.final_state.step)) - self.result.settings.get("burn_in", 0)
        return max(self.numbers.shape[0] * made, self.draws)

    def said_by_nuts(self, what: str) -> int:
        """A count of all chains together, 0 where NUTS did not keep it."""
        said = getattr(self.result.final_state, "auxiliary", None) or {}
        return int(np.sum(said.get(what, 0)))

    def of_draws(self) -> list[Finding]:
        """How the numbers mix, and the slowest direction, which no number may show; whether their digits suffice."""
        findings = words.mixing(*self.mixing, self.names) + self.of_blocks()
        if self.pairs is not None and self.pairs.mixed:
            seen = {finding.kind for finding in findings}
            slowest = int(np.argmax(drift(self.pairs.positions)))
            slow = words.mixing(*diagnostics.mixing(self.pairs.positions[..., [slowest]]), [self.pairs.directions[slowest]])
            findings += [finding for finding in slow if finding.kind not in seen]
        if not findings:  # chains that are too short know nothing of tails
            findings = self.of_tails()
        dtype = jax.tree.leaves(self.result.draws)[0].dtype if self.pairs is None else self.pairs.positions.dtype
        return findings + words.digits(self.numbers, self.names, dtype)

    def of_blocks(self) -> list[Finding]:
        """How the parameters mix that Gibbs steps draw: where there are pairs, these are of the others."""
        held = getattr(getattr(self.result.final_state, "estimator", None), "held", ())
        if self.pairs is None or self.result.draws is None or not held:
            return []
        leaves = dict(zip(leaf_names(self.result.draws), jax.tree.leaves(self.result.draws), strict=True))
        numbers = flat_draws({name: leaves[name] for name in held}, self.result.chained)
        chained = self.result.chained
        names = [label for name in held for label in self.result.names.labels(name, leaves[name].shape[1 + chained :])]
        return words.mixing(*diagnostics.mixing_of_worst(numbers), names)

    def of_tails(self) -> list[Finding]:
        """Whether standard deviations can be told from the draws."""
        unseen = np.zeros(len(self.names)) if self.pairs is None else lacking(*self.along)
        return words.tails(unseen, sd_error(self.numbers), self.names)

    def of_settings(self) -> list[Finding]:
        """What the run was told or decided that is known to be off."""
        findings, settings, decisions = [], self.result.settings, self.result.decisions
        if settings.get("scheme") == "paper":
            ratio = settings["L"] / (settings["L"] - 1)
            seen = f"The paper's order of updates overstates every variance, by L/(L-1) = {ratio:.2f} as the step goes to 0."
            findings.append(Finding("scheme", seen))
        if words.OUTSIDE in settings:
            findings.append(Finding("limits", f"The log posterior was not finite at {settings[words.OUTSIDE]}."))
        if "unsettled" in decisions:
            findings.append(Finding("rounds", f"The automatic rounds did not settle: {decisions['unsettled']}."))
        return findings

    def cause(self, about: str) -> str | None:
        """Why the number of this name does badly; without a name, the one that mixes worst."""
        known = [one.sentence for one in self.result.decisions.made if one.name == words.REWRITING]
        if known:
            return known[-1]
        ess = np.nan_to_num(self.mixing[0], nan=np.inf)
        number = self.names.index(about) if about in self.names else int(np.argmin(ess))
        return cause(self.numbers.reshape(-1, len(self.names)), self.names, self.log_scales(), number)

    def log_scales(self) -> np.ndarray:
        """Which numbers are logarithms of their parameters: no number is its own logarithm."""
        if self.result.draws is None or self.pairs is None:
            return np.zeros(len(self.names), bool)
        last = dict(zip(draw_names(self.result), flat_draws(self.result.draws, self.result.chained)[-1, -1], strict=True))
        value = np.array([last.get(name, np.nan) for name in self.names], np.float64)
        return np.isclose(np.log(value), self.numbers[-1, -1], rtol=1e-3, atol=1e-3)

    @property
    def draws(self) -> int:
        return math.prod(self.numbers.shape[:2])

    @cached_property
    def moved(self) -> tuple[np.ndarray, ...]:
        """Every draw of what moved, from its median, with its gradient."""
        assert self.pairs is not None
        return along_numbers(self.pairs.positions, self.pairs.gradients)

    @cached_property
    def along(self) -> tuple[np.ndarray, ...]:
        """The same along the numbers."""
        pairs = self.pairs
        assert pairs is not None
        return along_numbers(pairs.positions, pairs.gradients, pairs.factor) if pairs.mixed else self.moved

    @cached_property
    def numbers(self) -> np.ndarray:
        """Every draw of every unconstrained number; those of the parameters, where no pairs were kept."""
        if self.pairs is not None:
            return self.pairs.numbers()
        return flat_draws(self.result.draws, self.result.chained).astype(np.float64)

    @cached_property
    def names(self) -> list[str]:
        return draw_names(self.result) if self.pairs is None else self.pairs.names

    @cached_property
    def mixing(self) -> tuple[np.ndarray, np.ndarray]:
        return diagnostics.mixing_of_worst(self.numbers)


def by_nuts(result: Result) -> bool:
    """Whether the draws are exact up to Monte Carlo error."""
    return result.settings.get("engine") == "nuts"


def drift(positions: np.ndarray) -> np.ndarray:
    """How far half chains are apart beside their widths: a cheap stand-in for R-hat, to find the direction that needs it."""
    half = positions.shape[1] // 2
    halves = np.concatenate([positions[:, :half], positions[:, -half:]])
    return halves.mean(axis=1).var(axis=0) / np.maximum(halves.var(axis=1).mean(axis=0), 1e-30)


def draw_names(result: Result) -> list[str]:
    """A name for every number of the draws."""
    named = zip(leaf_names(result.draws), jax.tree.leaves(result.draws), strict=True)
    return [label for name, draws in named for label in result.names.labels(name, draws.shape[1 + result.chained :])]
