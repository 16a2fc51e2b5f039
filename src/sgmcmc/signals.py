"""Ctrl-C and the signal that ends a job, heard between two chunks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


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
