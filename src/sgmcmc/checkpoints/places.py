"""Where a run stands, and places to keep that: a folder, or nowhere but in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sgmcmc.checkpoints.reading import WEIGHTS, Checkpoint
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, State
from sgmcmc.results.keeps import Keep, Trace, seen_by

SAVE_SECONDS = 2.0
"""Between two checkpoints: what a run that is killed loses at most, and much more than a checkpoint takes."""


@dataclass
class Standing:
    """Where a run stands between two chunks, all it needs to go on: what the keep objects carry from chunk to chunk and what
    their stores have; iterations `done`, burn-in included; and whether the log posterior was finite so far.
    """

    state: State
    carries: tuple[Any, ...]
    stores: tuple[Any, ...]
    done: int = 0
    finite: bool = True


@dataclass(frozen=True)
class Account:
    """What a place needs to know of a run, to keep it and to go on with it.

    `total` counts the burn-in; `record` gives what a reader needs beside the draws; `weigh`, what draws
    count for, given how many there are before and after (None where all count the same), those of the keep object `trace`; with
    `or_more` the place may hold more iterations than `total`.
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


class Place:
    """Where set-up work and draws are kept: the base of all places.

    As it stands: nowhere but in memory. While the process lives, a run kept there can still be made longer.
    """

    key: Any
    """The root key of the run. Set-up work needs none."""

    version_changes: list[str]
    """Software that was changed since the run began, each in words."""

    durable: bool = False
    """Whether what is saved there outlives the process."""

    last: Standing | None = None
    """Where the run in memory stood when it was last saved."""

    @property
    def way_back(self) -> str:
        """How an interrupted run goes on, to be added to a sentence."""
        return ""

    def stage(self, name: str, compute: Callable[[], PyTree], *likes: PyTree) -> PyTree:
        """The result of set-up work: found there, or computed and kept."""
        return compute()

    def sub(self, name: str) -> Place:
        """A part of the run with draws of its own."""
        return Nowhere(self.key)

    def saver(self, account: Account) -> Saver:
        """Who keeps a run there."""
        return Saver(self, account)

    def close(self) -> None:
        """Let others run here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Nowhere(Place):
    """No place on disk."""

    def __init__(self, key: Any = None) -> None:
        self.key, self.version_changes = key, []


class FolderPlace(Place):
    """A run's folder, whether one process has it or several share it."""

    path: Path
    durable = True

    @property
    def way_back(self) -> str:
        return f"; the same call goes on from there, {self.path}"

    def saver(self, account: Account) -> FolderSaver:
        return FolderSaver(self, account)

    def draw_file(self, name: str, like: PyTree, chained: bool) -> Any:
        """A file for draws like `like` (shapes and dtypes of one draw, chains first), holding those of the last checkpoint."""
        raise NotImplementedError

    def last_checkpoint(self, *likes: PyTree) -> Checkpoint | None:
        """The last checkpoint, of this process or an earlier one."""
        raise NotImplementedError

    def commit(self, contents: Mapping[str, PyTree], *likes: PyTree) -> None:
        """A checkpoint: all draws added so far, and these trees."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all that was committed is written; as it stands, it is when `commit` comes back."""


@dataclass
class Saver:
    """Who keeps where one run stands: as it stands, in memory."""

    place: Any
    account: Account

    interval: ClassVar[float] = math.inf
    """Seconds after which a run that goes on is to be saved again."""

    def store(self, name: str, keep: Keep, state: State) -> Any:
        """A place for what a keep object hands over."""
        return keep.store(seen_by(keep, state), self.account.looks, state.chained)

    def resume(self, standing: Standing) -> Standing:
        """Where the run stood when it was last saved, or as it is."""
        return self.place.last or standing

    def save(self, standing: Standing, finished: bool) -> None:
        """Keep it."""
        self.place.last = standing


@dataclass
class FolderSaver(Saver):
    """Saves a run in a folder."""

    place: FolderPlace
    _saved: int = field(default=-1, init=False)
    _files: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def interval(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]: may be changed as a run goes on
        return SAVE_SECONDS

    def store(self, name: str, keep: Keep, state: State) -> Any:
        """A file for draws; what is no larger than the parameters goes into the checkpoint itself."""
        if not isinstance(keep, Trace):
            return super().store(name, keep, state)
        like = keep.stored_shapes(seen_by(keep, state), state.chained)
        self._files[name] = self.place.draw_file(name, like, state.chained)
        return self._files[name]

    def resume(self, standing: Standing) -> Standing:
        """Where an earlier process left the run; without one, the beginning, which is saved so that trouble shows at once."""
        if self.account.weigh is not None:
            self._files[WEIGHTS] = self.place.draw_file(WEIGHTS, np.zeros((), np.float32), False)
        last = self.place.last_checkpoint(self.account.params)
        if last is None:
            self._commit(standing)
            return standing
        saved, total = last.contents, self.account.total
        if saved["done"] > total and not self.account.or_more:
            remedy = f"ask for more, or read them with sgmcmc.load({str(self.place.path)!r})"
            asked = f"iterations already and this call asks for {total:,}"
            raise InputError(f"{self.place.path} holds {saved['done']:,} {asked}; {remedy}")
        for store, state in zip(standing.stores, saved["stores"], strict=True):
            if state is not None:
                store.restore(state["of"])
        self._saved = saved["done"]
        return Standing(saved["state"], tuple(saved["carries"]), standing.stores, saved["done"], saved["finite"])

    def save(self, standing: Standing, finished: bool) -> None:
        if standing.done != self._saved:
            self._commit(standing)
        if finished:
            self.place.settle()

    def _commit(self, standing: Standing) -> None:
        named = zip(self.account.keeps, standing.stores, strict=True)
        stores = [None if name in self._files or store is None else {"of": check_store(store).state()} for name, store in named]
        if self.account.weigh is not None:  # one weight for every draw that was added since the last time
            assert self.account.trace is not None
            weights, made = self._files[WEIGHTS], self._files[self.account.trace].filled
            if made > weights.filled:
                weights.add((made - weights.filled, self.account.weigh(weights.filled, made)))
        contents = {"state": standing.state, "carries": list(standing.carries), "stores": stores}
        contents |= {"done": standing.done, "finite": standing.finite, **self.account.record(standing)}
        self.place.commit(contents, self.account.params)
        self._saved = standing.done


def check_keeps(keeps: Mapping[str, Keep], params: PyTree) -> None:
    """Refuse keep objects whose stores cannot be written down."""
    for keep in keeps.values():
        if not isinstance(keep, Trace):
            check_store(keep.store(params, 1, False))


def check_store(store: Any) -> Any:
    """A store that can go into a checkpoint."""
    if store is not None and not (hasattr(store, "state") and hasattr(store, "restore")):
        expected = "expected a store with state() and restore(tree)"
        raise InputError(f"{describe(store)} of a keep object cannot go into a checkpoint; {expected}")
    return store
