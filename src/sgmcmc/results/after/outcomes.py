"""What was observed in some rows and what a model simulates for them: kinds, groups, ranks, statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

CONTINUOUS, COUNTS, BINARY = "continuous", "counts", "binary"

BINS = 10
"""Groups of rows with like expected values, and of a column with very many values."""

MOST_GROUPS = 30
"""Values of a column up to which each is a group."""


@dataclass(frozen=True)
class Groups:
    """Which group every row is in: `number`, for the groups with these labels."""

    column: str
    labels: tuple[str, ...]
    number: np.ndarray

    def means(self, values: np.ndarray) -> np.ndarray:
        """Of the values (rows last) in every group (last)."""
        members = np.zeros((len(self.number), len(self.labels)))
        members[np.arange(len(self.number)), self.number] = 1
        return values @ (members / np.maximum(self.sizes, 1))

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.number, minlength=len(self.labels))


@dataclass(frozen=True)
class Outcome:
    """One column that is observed, in some rows.

    Attributes:
        column: its name.
        observed: a number for each row.
        simulated: those of the model, draws first.
        expected: the posterior's expected value for each row.
        groups: of the rows, by other columns.
    """

    column: str
    observed: np.ndarray
    simulated: np.ndarray
    expected: np.ndarray
    groups: tuple[Groups, ...] = ()

    @cached_property
    def kind(self) -> str:
        """continuous, counts or binary: by what is observed and simulated."""
        both = (self.observed, self.simulated)
        if not all((x == np.floor(x)).all() and x.min() >= 0 for x in both):
            return CONTINUOUS
        return BINARY if all(x.max() <= 1 for x in both) else COUNTS

    @cached_property
    def bins(self) -> Groups:
        """Rows with like expected values."""
        return in_bins("expected", self.expected)

    @cached_property
    def ranks(self) -> np.ndarray:
        """Where each observation lies among those simulated for its row, from 0 to 1, ties broken at random: uniform, if the
        model is right.
        """
        below = (self.simulated < self.observed).sum(axis=0)
        ties = (self.simulated == self.observed).sum(axis=0) + 1
        return (below + np.random.default_rng(0).random(len(below)) * ties) / (len(self.simulated) + 1)

    def statistics(self) -> dict[str, tuple[float, np.ndarray]]:
        """What is compared: the observed value, and that of every draw."""
        names = {CONTINUOUS: ("mean", "sd", "smallest", "largest"), COUNTS: ("mean", "sd", "zeros", "largest"), BINARY: ("mean",)}
        found = {name: (float(STATISTICS[name](self.observed)), STATISTICS[name](self.simulated)) for name in names[self.kind]}
        if self.kind == BINARY:
            found[CALIBRATION] = self._spread(self.bins)
        return found | {f"by {groups.column}": self._spread(groups) for groups in self.groups}

    @property
    def distances(self) -> list[str]:
        """Statistics that are 0 where observed and expected are the same."""
        return [CALIBRATION, *(f"by {groups.column}" for groups in self.groups)]

    def _spread(self, groups: Groups) -> tuple[float, np.ndarray]:
        """How far the means of groups are from what is expected: root mean square over rows."""
        every = np.vstack([self.observed[None], self.simulated]) - self.expected
        spread = np.sqrt((groups.means(every) ** 2 * groups.sizes).sum(axis=-1) / groups.sizes.sum())
        return float(spread[0]), spread[1:]


CALIBRATION = "calibration"

STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda x: x.mean(axis=-1, dtype=np.float64),
    "sd": lambda x: x.std(axis=-1, dtype=np.float64),
    "smallest": lambda x: x.min(axis=-1),
    "largest": lambda x: x.max(axis=-1),
    "zeros": lambda x: (x == 0).mean(axis=-1),
}


def in_bins(name: str, values: np.ndarray) -> Groups:
    """Rows in groups of about one size, by a number."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))[1:-1]
    number = np.unique(np.searchsorted(edges, values, side="right"), return_inverse=True)[1]
    middle = [np.median(values[number == one]) for one in range(number.max() + 1)]
    return Groups(name, tuple(f"{one:.3g}" for one in middle), number)
