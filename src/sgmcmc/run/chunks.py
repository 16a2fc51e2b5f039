"""Between two chunks: how long the next one is, rows read ahead, and signals heard."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

GROWTH = 4
"""How many times as long as the one before a chunk may be."""

LEAST = 1e-9
"""Seconds: below what any iteration takes."""

CHUNK_SECONDS = 0.3
"""How long a chunk should take at most: how often the progress bar moves and Ctrl-C is heard."""


class Pace:
    """How many iterations to ask of a chunk, so that it takes about `CHUNK_SECONDS`; the next one is decided a chunk ahead."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._clock, self.ended = capacity, 0.0, False
        self._before: tuple[int, float] | None = None
        self._marginal: float | None = None
        self.count = self.upcoming = self.proposal = min(8, capacity)

    def start(self) -> None:
        """The chunk was handed over (and compiled, if it was the first)."""
        self._clock = time.perf_counter()

    def stop(self, count: int, asked_to_end: bool, agreed: int | None = None) -> None:
        """It is back. Several processes keep one pace: the smallest `proposal`, `agreed` upon in the chunk that came back; who
        is asked to end proposes 0, so that all end together.
        """
        seconds = time.perf_counter() - self._clock
        affordable = min(self._capacity, GROWTH * count, int(CHUNK_SECONDS / self._per_iteration(count, seconds)))
        self.proposal = 0 if asked_to_end else max(1, affordable)
        decided = self.proposal if agreed is None else agreed
        self.ended = decided == 0
        self.count, self.upcoming = self.upcoming, max(1, decided)

    def _per_iteration(self, count: int, seconds: float) -> float:
        """What one more iteration takes: less than the average where a chunk costs something however short it is. Two chunks tell
        that apart if one was at least twice as long as the other.
        """
        before, self._before = self._before, (count, seconds)
        if before is not None and max(count, before[0]) >= 2 * min(count, before[0]):
            self._marginal = (seconds - before[1]) / (count - before[0])
        average = max(seconds / count, LEAST)
        return average if self._marginal is None else float(np.clip(self._marginal, LEAST, average))


Item = TypeVar("Item")


class Ahead(AbstractContextManager["Ahead"]):
    """One job at a time, done by a thread while its owner does something else."""

    def __init__(self, job: Callable[..., Any]) -> None:
        self._job = job
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sgmcmc-rows")
        self._next: Future[Any] | None = None

    def ask(self, *arguments: Any) -> None:
        """Have the job started."""
        self._next = self._thread.submit(self._job, *arguments)

    def get(self) -> Any:
        """What the job last asked for returned, or what it raised."""
        assert self._next is not None
        return self._next.result()

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, each made while the one before is in use."""
    source, end = iter(items), object()
    with Ahead(lambda: next(source, end)) as maker:
        maker.ask()
        while (item := maker.get()) is not end:
            maker.ask()
            yield item


@dataclass
class Stop:
    """Whether somebody asked for an end."""

    asked: bool = False


@contextmanager
def stoppable(terminated: bool) -> Iterator[Stop]:
    """Ctrl-C, and where `terminated` the signal by which a cluster ends a job, only ask for an end; a second Ctrl-C insists.

    Signals reach the main thread alone, and where the user handles them they stay the user's.
    """
    stop = Stop()
    before: dict[int, Any] = {}

    def ask(number: int, _: Any) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    if threading.current_thread() is threading.main_thread():
        wanted = {signal.SIGINT: signal.default_int_handler} | ({signal.SIGTERM: signal.SIG_DFL} if terminated else {})
        for number, usual in wanted.items():
            if signal.getsignal(number) is usual:
                before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
