"""What the library decided for the user, each decision with its value and its reason in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


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
