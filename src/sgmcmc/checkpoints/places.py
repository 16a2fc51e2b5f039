"""Where a run stands, who writes that down, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sgmcmc.core.types import PyTree, State
from sgmcmc.results.keeps import Keep, seen_by


@dataclass
class Standing:
    """Where a run stands between two chunks: all it needs to go on.

    Attributes:
        state: of the chains.
        carries: what the keep objects carry from chunk to chunk.
        stores: what they have handed over to the host.
        done: iterations, burn-in included.
        finite: whether the log posterior was, so far.
    """

    state: State
    carries: tuple[Any, ...]
    stores: tuple[Any, ...]
    done: int = 0
    finite: bool = True

    def values(self, keeps: tuple[Keep, ...], chained: bool) -> tuple[Any, ...]:
        """What the keep objects have to show for it."""
        return tuple(self.value(number, keep, chained) for number, keep in enumerate(keeps))

    def value(self, number: int, keep: Keep, chained: bool) -> Any:
        """The same for one of them."""
        return keep.finish(seen_by(keep, self.state), self.carries[number], self.stores[number], chained)


class Saver(Protocol):
    """Who writes down where a run stands."""

    def store(self, number: int, keep: Keep, seen: PyTree, chained: bool) -> Any:
        """A place for what a keep object hands over, or None for one in memory."""
        ...

    def resume(self, standing: Standing) -> Standing:
        """Where the run stood when it was last saved, or as it is."""
        ...

    def save(self, standing: Standing, finished: bool) -> None:
        """Write it down, if it is time."""
        ...
