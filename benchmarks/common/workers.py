"""Processes that take turns: each sets a job up once, then does one round of it whenever it is asked, so that a ratio compares
neighbours in time though the two sides have nothing in common but the machine.

A job is a generator function of some module here: what it yields first is said of its set-up, then comes one dict per round.
Every answer also has the peak of the process's anonymous memory so far.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.common.freshly import environment as inherited

Job = Callable[..., Iterator[dict[str, Any]]]

PEAK = "peak_anonymous_bytes"
BETWEEN_LOOKS = 0.05
"""Seconds."""


class Worker(AbstractContextManager["Worker"]):
    """A process of its own with one job. Compiled programs of other processes are not seen."""

    def __init__(self, job: Job, environment: dict[str, str] | None = None, **arguments: Any) -> None:
        self._name = f"{job.__name__}({arguments})"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, _module(job), job.__name__, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=inherited() | (environment or {}),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def turn(self) -> dict[str, Any]:
        """What the job says next: of its set-up, then of a round."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, as the lack of an answer will show
            self._in.write("go\n")
            self._in.flush()
        for line in self._out:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self._name} ended with code {self._process.wait()}; its messages are above")

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._in.close()
        self._out.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _module(job: Job) -> str:
    """The name by which another process can import the module of a job, though it may run as a command here."""
    module = inspect.getmodule(job)
    assert module is not None
    assert module.__spec__ is not None
    return module.__spec__.name


class PeakOfMemory(threading.Thread):
    """Looks at the anonymous memory of this process every 50 ms: what it holds itself, pages of files not counted."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0

    def run(self) -> None:
        while True:
            self.look()
            time.sleep(BETWEEN_LOOKS)

    def look(self) -> None:
        self.bytes = max(self.bytes, anonymous_bytes())


def anonymous_bytes() -> int:
    """Of this process, now; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def work(job: Iterator[dict[str, Any]]) -> None:
    """One answer for every line that comes in, until none comes or the job is done."""
    peak = PeakOfMemory()
    peak.start()
    for _ in sys.stdin:
        said = next(job, None)
        if said is None:
            return
        peak.look()
        print(json.dumps(said | {PEAK: peak.bytes}), flush=True)


if __name__ == "__main__":
    module, name, arguments = sys.argv[1:]
    work(getattr(importlib.import_module(module), name)(**json.loads(arguments)))
