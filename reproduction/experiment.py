"""What an experiment is, and how to find one by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

from matplotlib.figure import Figure

from reproduction.workbook import Workbook


class Experiment(Protocol):
    """What a module of an experiment has. `FIGURES` names its pictures and says what they show, `REMARKS` what to know of it."""

    NAME: str
    TITLE: str
    DATASET: str | None
    REMARKS: str
    FIGURES: dict[str, str]

    def measure(self, book: Workbook) -> dict[str, Any]:
        """Everything it finds, as JSON takes it."""
        ...

    def draw(self, numbers: dict[str, Any]) -> dict[str, Figure]: ...

    def table(self, numbers: dict[str, Any]) -> list[list[str]]: ...


def load(name: str) -> Experiment:
    """The module of an experiment."""
    return cast(Experiment, import_module(f"reproduction.{name.replace('-', '_')}"))
