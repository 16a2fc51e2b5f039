"""The stationary law of a chain of one number, by quadrature of its transition density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def stationary_variance(density: Callable[[Any, Any], Any], reach: float, points: int = 801) -> float:
    """E θ² - (E θ)² under the law that p(θ' | θ) = `density(θ', θ)` leaves alone, on a grid from -reach to reach."""
    grid = np.linspace(-reach, reach, points)
    step = np.asarray(density(grid[:, None], grid[None, :]), np.float64)
    step /= step.sum(axis=0)  # what leaves the grid, and what the grid is too coarse for, is nothing to speak of
    system = step - np.eye(points)
    system[-1] = 1.0
    law = np.linalg.solve(system, np.eye(points)[-1])
    assert law.min() > -1e-8
    assert max(law[0], law[-1]) < 1e-8, "the grid is too short"
    return float(law @ grid**2 - (law @ grid) ** 2)


def gaussian_steps(move: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The density of θ' = move(θ, z) where that is affine in z, a standard normal: read off the update."""
    zero = jnp.zeros(())
    at = jax.jit(jax.vmap(lambda theta: (move(theta, zero), jax.grad(move, argnums=1)(theta, zero))))

    def density(there: Any, here: Any) -> Any:
        mean, sd = (np.asarray(part) for part in at(jnp.asarray(here[0])))
        return np.exp(-0.5 * ((there - mean) / sd) ** 2) / sd

    return density


def at_small_steps(variance: Callable[[float], float], eps: float) -> float:
    """The limit as ε → 0 of what is a power series in ε, from three steps."""
    whole, half, quarter = (variance(eps / k) for k in (1, 2, 4))
    return (whole - 6 * half + 8 * quarter) / 3
