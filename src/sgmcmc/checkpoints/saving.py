"""Where a run stands, written into its folder as it goes on, and found there again by the next process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sgmcmc.checkpoints.places import Account, Standing
from sgmcmc.checkpoints.reading import Checkpoint
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, State
from sgmcmc.results.keeps import Keep, Trace, seen_by

SAVE_SECONDS = 2.0
"""Between two checkpoints: what a run that is killed loses at most, and much more than a checkpoint takes."""

WEIGHTS = "weights of the draws"
"""The file of what each draw counts for, where they do not count the same."""


class Folder(Protocol):
    """What a run's folder can do, whether one process has it or several share it."""

    path: Path

    def draw_file(self, name: str, like: PyTree, chained: bool) -> Any:
        """A file for draws like `like`, holding those of the last checkpoint."""
        ...

    def progress(self, *likes: PyTree) -> Checkpoint | None:
        """The last checkpoint."""
        ...

    def commit(self, contents: Mapping[str, PyTree], *likes: PyTree) -> None:
        """A checkpoint: all draws added so far, and these trees."""
        ...

    def settle(self) -> None:
        """Wait until all that was committed is written."""
        ...


class FolderPlace:
    """What all folders of runs share as places."""

    path: Path
    durable = True

    @property
    def way_back(self) -> str:
        return f"; the same call goes on from there, {self.path}"

    def saver(self: Any, account: Account) -> FolderSaver:
        return FolderSaver(self, account)

    def close(self) -> None:
        """Let others run here."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class FolderSaver:
    """Saves a run in a folder."""

    folder: Folder
    account: Account
    _last: float = field(default=0.0, init=False)
    _saved: int = field(default=-1, init=False)
    _files: dict[str, Any] = field(default_factory=dict, init=False)

    def store(self, name: str, keep: Keep, state: State) -> Any:
        """A file for draws; what is no larger than the parameters goes into the checkpoint itself."""
        seen, chained = seen_by(keep, state), state.chained
        if not isinstance(keep, Trace):
            return keep.store(seen, self.account.looks, chained)
        self._files[name] = self.folder.draw_file(name, keep.stored_shapes(seen, chained), chained)
        return self._files[name]

    def resume(self, standing: Standing) -> Standing:
        """Where an earlier process left the run; without one, the beginning, which is saved so that trouble shows at once."""
        if self.account.weigh is not None:
            self._files[WEIGHTS] = self.folder.draw_file(WEIGHTS, np.zeros((), np.float32), False)
        last = self.folder.progress(self.account.params)
        if last is None:
            self._commit(standing)
            return standing
        saved, total = last.contents, self.account.total
        if saved["done"] > total and not self.account.or_more:
            raise InputError(
                f"{self.folder.path} holds {saved['done']:,} iterations already and this call asks for {total:,}; "
                f"ask for more, or read them with sgmcmc.load({str(self.folder.path)!r})"
            )
        for store, state in zip(standing.stores, saved["stores"], strict=True):
            if state is not None:
                store.restore(state["of"])
        self._last, self._saved = time.monotonic(), saved["done"]
        return Standing(saved["state"], tuple(saved["carries"]), standing.stores, saved["done"], saved["finite"])

    def save(self, standing: Standing, finished: bool) -> None:
        """Write it down, if the last time is long enough ago, or if the run ends here."""
        due = finished or time.monotonic() - self._last >= SAVE_SECONDS
        if due and standing.done != self._saved:
            self._commit(standing)
        if finished:
            self.folder.settle()

    def _commit(self, standing: Standing) -> None:
        named = zip(self.account.keeps, standing.stores, strict=True)
        stores = [None if name in self._files or store is None else {"of": check_store(store).state()} for name, store in named]
        if self.account.weigh is not None:
            self._add_weights(self.account.weigh)
        contents = {
            "state": standing.state,
            "carries": list(standing.carries),
            "stores": stores,
            "done": standing.done,
            "finite": standing.finite,
            **self.account.record(standing),
        }
        self.folder.commit(contents, self.account.params)
        self._last, self._saved = time.monotonic(), standing.done

    def _add_weights(self, weigh: Callable[[int, int], np.ndarray]) -> None:
        """One weight for every draw that was added since the last time."""
        assert self.account.trace is not None
        weights, made = self._files[WEIGHTS], self._files[self.account.trace].filled
        if made > weights.filled:
            weights.add((made - weights.filled, weigh(weights.filled, made)))


def check_keeps(keeps: Mapping[str, Keep], params: PyTree) -> None:
    """Refuse keep objects whose stores cannot be written down."""
    for keep in keeps.values():
        if not isinstance(keep, Trace):
            check_store(keep.store(params, 1, False))


def check_store(store: Any) -> Any:
    """A store that can go into a checkpoint."""
    if store is not None and not (hasattr(store, "state") and hasattr(store, "restore")):
        raise InputError(
            f"{describe(store)} of a keep object cannot go into a checkpoint; expected a store with state() and restore(tree)"
        )
    return store
