"""Chains that run until their time is up: their draws are looked at on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.auto.covertype import NUMBERS, Estimate, errors
from benchmarks.common.stages import say

LOOKS = (1 / 8, 1 / 4, 1 / 2, 1)
"""Parts of its time after which the draws are looked at."""


@dataclass
class Watched:
    """One chain: `over` after `budget` seconds from now, `work` is in gradients of single rows."""

    label: str
    budget: float
    warm_up: int
    work: int = 0
    times: list[float] = field(default_factory=list)
    draws: list[np.ndarray] = field(default_factory=list)
    path: list[dict[str, Any]] = field(default_factory=list)
    clock: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._looks = [self.budget * part for part in LOOKS]

    @property
    def over(self) -> bool:
        return not self._looks

    def add(self, draws: np.ndarray, work: int) -> None:
        """More draws, and what they took."""
        self.draws.extend(np.atleast_2d(draws))
        self.went_on(len(self.draws), work, self._of_draws)

    def went_on(self, iterations: int, work: int, found: Callable[[], tuple[np.ndarray, np.ndarray]]) -> None:
        """So far, with a function that says means and sds by now."""
        self.work += work
        self.times.append(time.perf_counter() - self.clock)
        if self.over or self.times[-1] < self._looks[0]:
            return
        self._looks = [look for look in self._looks if look > self.times[-1]]
        say(f"{self.label}: {self.times[-1]:.0f} s, {iterations} iterations")
        seen = errors(Estimate(*found(), *np.zeros((3, NUMBERS))))
        self.path.append({**seen, "seconds": self.times[-1], "iterations": iterations, "row_gradients": self.work})

    def _of_draws(self) -> tuple[np.ndarray, np.ndarray]:
        """Of what came after the warm-up, or of the second half as long as that is less."""
        kept = np.array(self.draws[min(self.warm_up, len(self.draws) // 2) :])
        return kept.mean(axis=0), kept.std(axis=0)
