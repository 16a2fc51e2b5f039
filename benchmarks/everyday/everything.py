"""All cases by name and seed."""

from __future__ import annotations

from benchmarks.everyday.cases import Case
from benchmarks.everyday.models import MODELS, SEEDS, SLOW
from benchmarks.everyday.random_regressions import RANDOM, RANDOM_SEEDS

QUICK = ("20 rows, normal", "rare levels, codes", "an exposure of 0, y*eta - exp(eta)")
"""With the first seed: shows that everything runs."""


def build(name: str, seed: int) -> Case:
    return (MODELS | SLOW | RANDOM)[name](seed)


def names(slow: bool = False, quick: bool = False) -> list[tuple[str, int]]:
    """Every case there is, in the order of the table."""
    if quick:
        return [(name, SEEDS[0]) for name in QUICK]
    chosen = MODELS | (SLOW if slow else {}) | RANDOM
    return [(name, seed) for name in chosen for seed in RANDOM_SEEDS.get(name, SEEDS)]
