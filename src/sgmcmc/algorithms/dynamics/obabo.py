"""Underdamped Langevin dynamics with the kicks at the ends: half-kick, drift, half-kick between two halves of friction."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from sgmcmc.algorithms.dynamics.momentum import HalfKicks, Persistent
from sgmcmc.core.trees import PyTree
from sgmcmc.problem.schedules import per_parameter


@dataclass(frozen=True)
class OBABO(HalfKicks, Persistent):
    """ν += (ε/2) ĝ(θ);  θ' = θ + ν;  ν += (ε/2) ĝ(θ');  ν' = (1-α) ν + N(0, (1 - (1-α)²) ε), ν never drawn anew.

    Two halves of friction that follow each other are one whole. (BAOAB would be `BAOA`, two half-kicks by the same gradient being
    a whole one.) On a Gaussian of precision A with gradient noise V the variance is (1/A) (1 + εV (2-α)/(4α)) / (1 - εA/4).

    Args:
        alpha: friction per step, at most 1: a number or a tree like what moves.

    >>> import numpy as np
    >>> from sgmcmc.algorithms import OBABO
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> one = Directions(precision=np.ones(1), noise=np.zeros(1))
    >>> inflation(OBABO(alpha=0.3), 0.4, one).round(4)  # 1 / (1 - 0.1)
    array([1.1111])

    Reference: Bussi and Parrinello (2007), Physical Review E 75.
    """

    alpha: PyTree = 0.5
    traced: ClassVar[tuple[str, ...]] = ("alpha",)
    warmup: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]: it learns nothing

    def fitted(self, position: PyTree) -> Self:
        return replace(self, alpha=per_parameter(self.alpha, position, "alpha", below=np.nextafter(1.0, 2.0)))
