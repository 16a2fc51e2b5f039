"""A sentence of the article that can be checked, what decides it, what was seen, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

HOLDS = "holds"
FAILS = "does not hold"


@dataclass(frozen=True)
class Claim:
    """One row of the claims table. `says` puts the article's sentence in our words; `ours` marks what we add to it."""

    section: str
    says: str
    decided_by: str
    seen: str
    verdict: str
    ours: bool = False


def judge(
    section: str, says: str, decided_by: str, seen: str, holds: object, otherwise: str = "", *, ours: bool = False
) -> Claim:
    """A claim that holds, or does not; `otherwise` says why not, where that is known."""
    verdict = HOLDS if holds else f"{FAILS}{': ' if otherwise else ''}{otherwise}"
    return Claim(section, says, decided_by, seen, verdict, ours)


def differs(section: str, says: str, decided_by: str, seen: str, because: str, *, ours: bool = False) -> Claim:
    """A claim that is true of something else than it says, or in part."""
    return Claim(section, says, decided_by, seen, f"differs: {because}", ours)
