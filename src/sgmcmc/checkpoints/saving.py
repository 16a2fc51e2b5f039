"""Where a run stands, written into its folder as it goes on, and found there again by the next process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgmcmc.checkpoints.drawfiles import DrawFile
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.places import Standing
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.types import PyTree
from sgmcmc.results.keeps import Keep, Trace
from sgmcmc.run.shared_folder import Follower, SharedFolder

SAVE_SECONDS = 2.0
"""Between two checkpoints: what a run that is killed loses at most, and much more than a checkpoint takes."""

WEIGHTS = "weights of the draws"
"""The file of what each draw counts for, where they do not count the same."""


@dataclass
class FolderSaver:
    """Saves a run in a folder.

    Attributes:
        folder: where to.
        keeps: the run's keep objects by name.
        params: a tree like the user's parameters.
        total: iterations that the run is to have, burn-in included.
        record: what a reader needs beside the draws, from where the run stands.
        weigh: what draws count for, given how many there are before and after; None where all count the same.
        trace: the name of the keep object whose draws are weighed.
        or_more: whether the folder may hold more iterations than `total`.
    """

    folder: RunFolder | SharedFolder
    keeps: Mapping[str, Keep]
    params: PyTree
    total: int
    record: Callable[[Standing], dict[str, Any]]
    weigh: Callable[[int, int], np.ndarray] | None
    trace: str | None = None
    or_more: bool = False
    _last: float = field(default=0.0, init=False)
    _saved: int = field(default=-1, init=False)
    _files: dict[str, DrawFile | Follower] = field(default_factory=dict, init=False)

    def store(self, number: int, keep: Keep, seen: PyTree, chained: bool) -> Any:
        """A file for draws; what is no larger than the parameters goes into the checkpoint itself."""
        name = list(self.keeps)[number]
        if type(keep).store is not Trace.store:
            return None
        assert isinstance(keep, Trace)
        self._files[name] = self.folder.draw_file(name, keep.stored_shapes(seen, chained), chained)
        return self._files[name]

    def resume(self, standing: Standing) -> Standing:
        """Where an earlier process left the run; without one, the beginning, which is saved so that trouble shows at once."""
        if self.weigh is not None:
            self._files[WEIGHTS] = self.folder.draw_file(WEIGHTS, np.zeros((), np.float32), False)
        last = self.folder.progress(self.params)
        if last is None:
            self._commit(standing)
            return standing
        saved = last.contents
        if saved["done"] > self.total and not self.or_more:
            raise InputError(
                f"{self.folder.path} holds {saved['done']:,} iterations already and this call asks for {self.total:,}; "
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
        stores = [
            None if isinstance(store, DrawFile | Follower) or store is None else {"of": _check_store(store).state()}
            for store in standing.stores
        ]
        if self.weigh is not None:
            self._add_weights()
        contents = {
            "state": standing.state,
            "carries": list(standing.carries),
            "stores": stores,
            "done": standing.done,
            "finite": standing.finite,
            **self.record(standing),
        }
        self.folder.commit(contents, self.params)
        self._last, self._saved = time.monotonic(), standing.done

    def _add_weights(self) -> None:
        """One weight for every draw that was added since the last time."""
        assert self.weigh is not None
        assert self.trace is not None
        weights, made = self._files[WEIGHTS], self._files[self.trace].filled
        if made > weights.filled:
            weights.add((made - weights.filled, self.weigh(weights.filled, made)))


def check_keeps(keeps: Mapping[str, Keep], params: PyTree) -> None:
    """Refuse keep objects whose stores cannot be written down."""
    for keep in keeps.values():
        if type(keep).store is not Trace.store:
            _check_store(keep.store(params, 1, False))


def _check_store(store: Any) -> Any:
    if store is not None and not (hasattr(store, "state") and hasattr(store, "restore")):
        raise InputError(
            f"{describe(store)} of a keep object cannot go into a checkpoint; expected a store with state() and restore(tree)"
        )
    return store
