"""Where a run stands, and places to keep that: a folder, or nowhere but in memory. All places have the same methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import jax
import numpy as np

from sgmcmc.core.trees import PyTree, State
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


@dataclass(frozen=True)
class Account:
    """What a place needs to know of a run, to keep it and to go on with it.

    Attributes:
        keeps: the run's keep objects by name.
        params: a tree like the user's parameters.
        total: iterations that the run is to have, burn-in included.
        looks: how often the keep objects are shown the parameters.
        record: what a reader needs beside the draws, from where the run stands.
        weigh: what draws count for, given how many there are before and after; None where all count the same.
        trace: the name of the keep object whose draws are weighed.
        or_more: whether the place may hold more iterations than `total`.
    """

    keeps: Mapping[str, Keep]
    params: PyTree
    total: int
    looks: int
    record: Callable[[Standing], dict[str, Any]]
    weigh: Callable[[int, int], np.ndarray] | None = None
    trace: str | None = None
    or_more: bool = False

    def values(self, standing: Standing) -> dict[str, Any]:
        """What the keep objects have to show for it, by name."""
        kept = zip(self.keeps.items(), standing.carries, standing.stores, strict=True)
        return {name: keep.finish(carry, store) for (name, keep), carry, store in kept}


class Saver(Protocol):
    """Who keeps where one run stands."""

    def store(self, name: str, keep: Keep, state: State) -> Any:
        """A place for what a keep object hands over."""
        ...

    def resume(self, standing: Standing) -> Standing:
        """Where the run stood when it was last saved, or as it is."""
        ...

    def save(self, standing: Standing, finished: bool) -> None:
        """Keep it, if it is time."""
        ...


class Place(Protocol):
    """Where set-up work and draws are kept."""

    @property
    def key(self) -> jax.Array:
        """The root key of the run."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what is saved there outlives the process."""
        ...

    @property
    def version_changes(self) -> list[str]:
        """Software that was changed since the run began, each in words."""
        ...

    @property
    def way_back(self) -> str:
        """How an interrupted run goes on, to be added to a sentence."""
        ...

    def stage(self, name: str, compute: Callable[[], PyTree], *likes: PyTree) -> PyTree:
        """The result of set-up work: found there, or computed and kept."""
        ...

    def sub(self, name: str) -> Place:
        """A part of the run with draws of its own."""
        ...

    def saver(self, account: Account) -> Saver:
        """Who keeps a run there."""
        ...

    def __enter__(self) -> Place: ...

    def __exit__(self, *_: object) -> None: ...


class Nowhere:
    """No place on disk. While the process lives, a run kept here can still be made longer. Set-up work needs no key."""

    durable, way_back = False, ""

    def __init__(self, key: Any = None) -> None:
        self.key, self.version_changes = key, []
        self._last: Standing | None = None

    def stage(self, name: str, compute: Callable[[], PyTree], *likes: PyTree) -> PyTree:
        return compute()

    def sub(self, name: str) -> Nowhere:
        return Nowhere(self.key)

    def saver(self, account: Account) -> _InMemory:
        return _InMemory(self, account)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class _InMemory:
    """Keeps a run as it is."""

    place: Nowhere
    account: Account

    def store(self, name: str, keep: Keep, state: State) -> Any:
        return keep.store(seen_by(keep, state), self.account.looks, state.chained)

    def resume(self, standing: Standing) -> Standing:
        return standing if self.place._last is None else self.place._last

    def save(self, standing: Standing, finished: bool) -> None:
        self.place._last = standing
