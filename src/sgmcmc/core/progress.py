"""What a person sees while the machine works."""

from contextlib import AbstractContextManager

from tqdm.auto import tqdm

from sgmcmc.core.checks import Progress

DELAY = 0.5
"""Seconds before a bar appears: short jobs stay quiet."""


class Bar(AbstractContextManager["Bar"]):
    """One stage of a job, to a terminal, to a function, or to nobody. The total is None or 0 where it is not known."""

    def __init__(self, progress: Progress, stage: str, total: int | None, unit: str = "it") -> None:
        self.total, self.done, self._stage = total, 0, stage
        self._callback = progress if callable(progress) else None
        looks = {"desc": stage, "unit": unit, "unit_scale": unit == "B", "dynamic_ncols": True, "leave": True}
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
