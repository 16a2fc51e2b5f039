"""How long a compiled chunk should be: long enough to hide the call, short enough to hear the user."""

from __future__ import annotations

import time

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
