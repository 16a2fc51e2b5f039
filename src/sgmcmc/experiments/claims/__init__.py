"""A sentence of the article that can be checked, what decides it, what was seen, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

HOLDS = "holds"
FAILS = "does not hold"


@dataclass(frozen=True)
class Claim:
    """One row of the claims table. `says` puts the article's sentence in our words; `because` explains a difference."""

    section: str
    says: str
    decided_by: str
    seen: str
    verdict: str

    def told(self) -> dict[str, Any]:
        return asdict(self)


def judge(section: str, says: str, decided_by: str, seen: str, holds: bool, otherwise: str = "") -> Claim:
    """A claim that holds, or does not; `otherwise` says why it differs, where that is known."""
    return Claim(section, says, decided_by, seen, HOLDS if holds else f"{FAILS}{': ' if otherwise else ''}{otherwise}")


def differs(section: str, says: str, decided_by: str, seen: str, because: str) -> Claim:
    """A claim that is true of something else than it says, or in part."""
    return Claim(section, says, decided_by, seen, f"differs: {because}")
