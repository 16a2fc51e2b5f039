"""One thread that works ahead of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

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
