"""A clock for the stages of a run, a word on each, and medians of runs."""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of what the runs have in numbers, and the runs themselves under `rounds`."""

    def of(runs: list[dict[str, Any]]) -> dict[str, Any]:
        columns = {name: [run[name] for run in runs] for name in runs[0]}
        numbers = {name: median(values) for name, values in columns.items() if isinstance(values[0], int | float)}
        return numbers | {name: of(values) for name, values in columns.items() if isinstance(values[0], dict)}

    return of(runs) | {"rounds": runs}


class Stages:
    """A progress function that says which stage begins, and adds up the seconds and the work of each."""

    def __init__(self, job: str) -> None:
        self.job, self.seconds, self.work, self.bars = job, {}, {}, {}
        self._stage, self._done, self._clock = "", 0, time.perf_counter()

    def __call__(self, figures: dict[str, Any]) -> None:
        stage, done, now = figures["stage"], figures["done"], time.perf_counter()
        if stage != self._stage:
            say(f"{self.job}: {stage}")
        if stage != self._stage or done <= self._done:
            self._done = 0
            self.bars[stage] = self.bars.get(stage, 0) + 1
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._clock
        self.work[stage] = self.work.get(stage, 0) + done - self._done
        self._stage, self._done, self._clock = stage, done, now

    def finish(self) -> float:
        """Ends the last stage; what came after it is `checks`. All seconds."""
        self.seconds["checks"] = time.perf_counter() - self._clock
        return sum(self.seconds.values())


def say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
