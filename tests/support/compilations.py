"""How many programs JAX compiles, by its own account; one that is found on disk counts too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

_listening: list[list[str]] = []


def _listen(event: str, _: float, **told: Any) -> None:
    if event.endswith("backend_compile_duration"):
        for names in _listening:
            names.append(str(told.get("fun_name", "?")))


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """The names of the programs that are compiled meanwhile."""
    names: list[str] = []
    _listening.append(names)
    try:
        yield names
    finally:
        _listening.remove(names)
