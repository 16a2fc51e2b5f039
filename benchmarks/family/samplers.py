"""The samplers: parts, and how many rows' gradients (or likelihoods, which cost about half) an iteration looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sgmcmc.algorithms import (
    BAOA,
    OBABO,
    SAGA,
    SVRG,
    Barker,
    CosineCycles,
    Langevin,
    MetropolisHamiltonian,
    ReplicaExchange,
    RMSLangevin,
    SymmetricHamiltonian,
    SymmetricNoseHoover,
)

BURN_IN = 0.25
"""Of the iterations that are kept, so many go before."""

LADDER = (1.0, 2.0, 4.0, 8.0)
CYCLE = 1000


@dataclass(frozen=True)
class Entry:
    """A sampler of the table. `rows(n, N)` are the row gradients of an iteration on minibatches of n of N rows."""

    rows: Callable[[int, int], float]
    parts: Callable[[int], dict[str, Any]]
    """From the iterations of burn-in to dynamics, gradient and the like."""
    needs_mode: bool = False
    remembers: bool = False
    """Whether it carries a gradient for each row."""
    steps: Callable[[float], Any] = field(default=float)
    """From a step size to one that changes."""


def plain(dynamics: Any, leaps: int = 1) -> Entry:
    return Entry(lambda n, _: leaps * n, lambda _: {"dynamics": dynamics})


SAMPLERS: dict[str, Entry] = {
    "SGLD": plain(Langevin()),
    "SGLD, control variates": Entry(lambda n, _: 2 * n, lambda _: {"gradient": "control-variates"}, needs_mode=True),
    "SGLD, SVRG": Entry(lambda n, N: 2 * n + N / -(-N // n), lambda _: {"gradient": SVRG()}),
    "SGLD, SAGA": Entry(lambda n, _: n, lambda _: {"gradient": SAGA()}, remembers=True),
    "RMS Langevin": Entry(lambda n, _: n, lambda burn_in: {"dynamics": RMSLangevin(freeze=burn_in)}),
    "Barker": plain(Barker()),
    "SGHMC": plain(SymmetricHamiltonian(L=5), 5),
    "SGNHT": plain(SymmetricNoseHoover()),
    "OBABO": plain(OBABO(alpha=0.2)),
    "BAOA": plain(BAOA(alpha=0.2)),
    "BAOA, cycles": Entry(
        lambda n, _: n, lambda _: {"dynamics": BAOA(alpha=0.2)}, steps=lambda eps: CosineCycles(eps, CYCLE, exploring=0.8)
    ),
    "BAOA, control variates": Entry(
        lambda n, _: 2 * n, lambda _: {"dynamics": BAOA(alpha=0.2), "gradient": "control-variates"}, needs_mode=True
    ),
    "BAOA, whitened": Entry(
        lambda n, _: 2 * n,
        lambda _: {"dynamics": BAOA(alpha=0.5), "gradient": "control-variates", "precondition": "laplace"},
        needs_mode=True,
    ),
    "Metropolis": Entry(lambda n, _: 6 * n, lambda _: {"dynamics": MetropolisHamiltonian(L=5)}),
    "replica exchange": Entry(
        lambda n, _: len(LADDER) * n + 0.3 * len(LADDER) * n,
        lambda _: {"dynamics": ReplicaExchange(LADDER, OBABO(alpha=0.2), every=3)},
    ),
}
