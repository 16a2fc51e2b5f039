"""Step sizes that change: what decays, what comes in cycles, what warms up, and which draws count.

Each is a function of the iteration t = 1, 2, ...; a `size` is a number or a tree like the parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import PyTree, tree_map


class Steps:
    """A step size that changes with the iteration. Draws count by their step size, times `counts(t)`.

    Those of a run are what it stores: with `counts` 0 a draw is stored and enters no average.

    >>> from sgmcmc.algorithms import Steps
    >>> class EveryOther(Steps):
    ...     def __call__(self, t):
    ...         return 1e-3
    ...     def counts(self, t):
    ...         return t % 2
    >>> EveryOther().counts(7)
    1
    """

    def __call__(self, t: Any) -> PyTree:
        """ε at iteration t, in jax.numpy."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(t)")

    def counts(self, t: Any) -> Any:
        """What a draw of iteration t counts for, beside its step size: from 0 to 1."""
        return 1.0


@dataclass(frozen=True)
class PolynomialDecay(Steps):
    """ε_t = size (1 + (t-1)/delay)^(-power), the step size of the theory: with a power of 1/3 averages converge fastest.

    Args:
        size: that of the first iteration.
        delay: iterations after which it has fallen to 2^(-power) of that.
        power: from above 0 to 1, so that steps become small and add up to infinity.

    >>> from sgmcmc.algorithms import PolynomialDecay
    >>> [round(float(PolynomialDecay(1e-3, delay=100)(t)), 6) for t in (1, 101, 701)]
    [0.001, 0.000794, 0.0005]

    Reference: Teh, Thiery and Vollmer (2016), Consistency and fluctuations for stochastic gradient Langevin dynamics.
    """

    size: PyTree
    delay: float = 1000.0
    power: float = 1 / 3

    def __post_init__(self) -> None:
        if not (self.delay > 0 and 0 < self.power <= 1):
            raise InputError(
                f"delay is {self.delay} and power {self.power}; expected a positive delay, and a power from above 0 to 1"
            )

    def __call__(self, t: Any) -> PyTree:
        return scaled(self.size, (1 + (t - 1) / self.delay) ** -self.power)


@dataclass(frozen=True)
class CosineCycles(Steps):
    """ε_t = (size/2) (cos(π r) + 1), where r = ((t-1) mod length)/length goes from 0 to 1 again and again.

    Large steps cross from mode to mode, small ones look at a mode closely. Only draws with r of at least `exploring` count, each
    by its step size.

    How often a mode is looked at is settled where steps become too small to leave it, and is right as far as the chain has the
    law of those steps by then: the longer the cycles, the better.

    Args:
        size: the largest, at the beginning of every cycle: near the largest that is stable.
        length: iterations of a cycle.
        exploring: the part of a cycle whose draws do not count, from 0 to below 1.

    >>> from sgmcmc.algorithms import CosineCycles
    >>> steps = CosineCycles(0.1, length=100, exploring=0.5)
    >>> [(round(float(steps(t)), 4), int(steps.counts(t))) for t in (1, 51, 100, 101)]
    [(0.1, 0), (0.05, 1), (0.0, 1), (0.1, 0)]

    Reference: Zhang, Li, Zhang, Chen and Wilson (2020), Cyclical stochastic gradient MCMC for Bayesian deep learning, where
    exploring steps have no noise; these have.
    """

    size: PyTree
    length: int
    exploring: float = 0.5

    def __post_init__(self) -> None:
        check_count("length", self.length, least=2)
        if not 0 <= self.exploring < 1:
            raise InputError(f"exploring is {self.exploring}; expected a part of the cycle, from 0 to below 1")

    def __call__(self, t: Any) -> PyTree:
        return scaled(self.size, (jnp.cos(jnp.pi * self._place(t)) + 1) / 2)

    def counts(self, t: Any) -> Any:
        return jnp.where(self._place(t) >= self.exploring, 1.0, 0.0)

    def _place(self, t: Any) -> Any:
        return jnp.mod(t - 1, self.length) / self.length


@dataclass(frozen=True)
class WarmUp(Steps):
    """ε_t = `steps` times t/iterations for the first `iterations`, whose draws do not count; then as `steps` is.

    Args:
        steps: a number, a tree like the parameters, or a function of the iteration, such as `CosineCycles(...)`.
        iterations: how many it takes.

    >>> from sgmcmc.algorithms import WarmUp
    >>> steps = WarmUp(1e-3, iterations=10)
    >>> [(round(float(steps(t)), 6), int(steps.counts(t))) for t in (1, 5, 11)]
    [(0.0001, 0), (0.0005, 0), (0.001, 1)]
    """

    steps: PyTree | Callable[[Any], PyTree]
    iterations: int

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)

    def __call__(self, t: Any) -> PyTree:
        after = self.steps(t) if callable(self.steps) else self.steps
        return scaled(after, jnp.minimum(t / self.iterations, 1.0))

    def counts(self, t: Any) -> Any:
        return jnp.where(t > self.iterations, share_of(self.steps, t), 0.0)


def share_of(steps: Any, t: Any) -> Any:
    """What a draw counts for beside its step size, whatever says what the steps are."""
    return steps.counts(t) if isinstance(steps, Steps) else 1.0


def scaled(size: PyTree, factor: Any) -> PyTree:
    """Step sizes, all multiplied by a number."""
    return tree_map(lambda x: x * factor, size)
