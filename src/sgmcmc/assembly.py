"""A result, put together from what a run kept: by the run itself, or by a reader of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgmcmc.algorithms.gradients.whitened import WhitenedState
from sgmcmc.core.trees import join
from sgmcmc.core.types import PyTree, State
from sgmcmc.decisions import Decisions
from sgmcmc.diagnostics import Pairs, flat_draws
from sgmcmc.result import Result
from sgmcmc.summaries import Keep, Trace, paired_numbers

ALONE, PAIRS = "kept", "pairs of the diagnostics"
"""The names of a keep object that came without one, and of the one that `diagnose` adds."""


@dataclass(frozen=True)
class Record:
    """What a result has beside what was kept.

    Attributes:
        settings: what the run was told.
        chained: whether there is a chain axis.
        keep: what the user asked to keep: `"draws"`, `"one"` object or objects by `"name"`.
        trace: the name of the object that kept the draws, if any.
        pair_names: of the numbers whose gradients were kept beside them.
        decisions: what was decided for the user.
    """

    settings: dict[str, Any]
    chained: bool
    keep: str
    trace: str | None
    pair_names: tuple[str, ...] = ()
    decisions: Decisions = field(default_factory=Decisions)

    def packed(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "settings": {name: _plain(value) for name, value in self.settings.items()},
            "chained": self.chained,
            "keep": self.keep,
            "trace": self.trace,
            "pair_names": list(self.pair_names),
            "decisions": self.decisions,
        }

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Record:
        """From a checkpoint."""
        return cls(**{**packed, "pair_names": tuple(packed["pair_names"])})


def assemble(record: Record, state: State, values: Mapping[str, Any], weights: np.ndarray | None = None) -> Result:
    """The result: `values` are what the keep objects returned, by name."""
    named = {name: value for name, value in values.items() if name != PAIRS}
    kept: Any = {} if record.keep == "draws" else named[ALONE] if record.keep == "one" else named
    draws = None if record.trace is None else values[record.trace]
    pairs = make_pairs(values[PAIRS], state, list(record.pair_names), record.chained) if PAIRS in values else None
    settings, decisions = record.settings, record.decisions
    return Result(draws, kept, state, settings, weights, record.chained, pairs, decisions)


def make_pairs(pairs: PyTree, state: State, names: list[str], chained: bool) -> Pairs:
    """Positions and gradients as the diagnostics take them: chain, draw, number."""
    whitening = state.estimator.whitening if isinstance(state.estimator, WhitenedState) else None
    factor = origin = None
    if whitening is not None:
        origin = join(whitening.origin)
        some = paired_numbers(len(origin))
        factor = np.asarray(whitening.factor) if whitening.dense else join(whitening.factor)[some]
        origin = origin[some]
    return Pairs(flat_draws(pairs["position"], chained), flat_draws(pairs["gradient"], chained), names, factor, origin)


def trace_of(keeps: Mapping[str, Keep]) -> str | None:
    """The name of the first object that keeps the parameters themselves."""
    return next((name for name, keep in keeps.items() if _keeps_draws(name, keep)), None)


def _keeps_draws(name: str, keep: Keep) -> bool:
    return name != PAIRS and isinstance(keep, Trace) and keep.function is None


def _plain(value: Any) -> Any:
    """A setting as a file can hold it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    if value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic):
        return value
    return np.asarray(value) if hasattr(value, "__array__") else str(value)
