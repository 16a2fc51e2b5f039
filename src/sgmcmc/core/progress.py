"""What a person sees while the machine works."""

import sys
from contextlib import AbstractContextManager
from typing import Any

from tqdm import tqdm

from sgmcmc.core.checks import Progress

DELAY = 0.5
"""Seconds before a bar appears: short jobs stay quiet."""

NOTEBOOK_COLUMNS = 90


class Bar(AbstractContextManager["Bar"]):
    """One stage of a job, to a terminal, a notebook, a function, or nobody. The total is None or 0 where it is not known."""

    def __init__(self, progress: Progress, stage: str, total: int | None, unit: str = "it") -> None:
        self.total, self.done, self._stage = total, 0, stage
        self._callback = progress if callable(progress) else None
        looks: dict[str, Any] = {"desc": stage, "unit": unit, "unit_scale": unit == "B", "leave": True}
        looks |= {"file": Line(), "ncols": NOTEBOOK_COLUMNS} if progress is True and in_notebook() else {"dynamic_ncols": True}
        self._bar = tqdm(total=total, delay=DELAY, disable=progress is not True, **looks)

    def update(self, amount: int, **figures: float) -> None:
        """`amount` more done; `figures` are shown beside the bar."""
        self.done += amount
        if self._callback is not None:
            self._callback({"stage": self._stage, "done": self.done, "total": self.total or None, **figures})
        if figures:
            self._bar.set_postfix({name.replace("_", " "): f"{value:.6g}" for name, value in figures.items()}, refresh=False)
        self._bar.total = self.total
        self._bar.update(amount)

    def __exit__(self, *_: object) -> None:
        self._bar.close()


class Line:
    """A line of a notebook's output that is written over and over, and stays as it was last: text, so that it needs no widgets
    and can still be read in a saved notebook.
    """

    encoding = "utf-8"

    def __init__(self) -> None:
        self._shown: Any = None

    def write(self, text: str) -> None:
        """Show a text in place of the one before."""
        line = text.strip("\r\n")
        if not line.strip():
            return
        if self._shown is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]: it is there, as this is a notebook

            self._shown = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": line}, raw=True)

    def flush(self) -> None:
        """There is nothing to wait for."""


def in_notebook() -> bool:
    """Whether a kernel runs this, and not a terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
