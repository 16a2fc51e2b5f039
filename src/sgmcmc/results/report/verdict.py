"""What a page says first: whether the draws can be used, by the checks that could be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sgmcmc.results.judging import Judge, by_nuts
from sgmcmc.results.words import Health

if TYPE_CHECKING:
    from sgmcmc.results.result import Result

GOOD, BAD, OPEN = "good", "bad", "open"
LEAST_DRAWS = 20
UNMEASURED = (
    "Steps and minibatches can make variances too large, and this run kept no gradients to tell: run it with diagnose=True."
)
NOTHING_KEPT = "This run kept no draws, so there is nothing to check them by: put sgmcmc.Trace() into keep, or leave keep out."
TOO_FEW = f"There are fewer than {LEAST_DRAWS} draws, too few to check anything: run longer."


@dataclass(frozen=True)
class Verdict:
    """A word for it, a headline, and the findings and notes behind it."""

    level: str
    headline: str
    health: Health


def verdict(result: Result, n_draws: int) -> Verdict:
    """The verdict on a result with so many draws per chain; 0 where none were kept."""
    if n_draws < LEAST_DRAWS:
        return Verdict(OPEN, "Nothing could be checked", Health((), (TOO_FEW if result.draws is not None else NOTHING_KEPT,)))
    if result.pairs is not None or by_nuts(result):
        health = result.health()
        return Verdict(GOOD, "All checks passed", health) if health.ok else _flagged(health)
    with np.errstate(all="ignore"):
        judge = Judge(result, None, None)
        health = Health(judge.caused(judge.of_draws() + judge.of_settings()), (UNMEASURED,))
    return Verdict(OPEN, "The chains mix; bias was not measured", health) if health.ok else _flagged(health)


def _flagged(health: Health) -> Verdict:
    count = len(health.findings)
    return Verdict(BAD, f"{count} finding{'s' if count > 1 else ''}: do not use the draws as they are", health)
