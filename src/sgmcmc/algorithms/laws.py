"""The stationary law of a dynamics on a Gaussian posterior, read off its own update: what a step size costs, before it is used.

On a Gaussian every update is linear in position, gradient and momentum, so its coefficients can be read off by
differentiating it, and the stationary covariance solves a linear equation. Directions in which the precision is
diagonal do not mix, except through the covariance of the gradient noise.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.kernel import Dynamics, Motion

DOUBLINGS = 60
"""The stationary covariance is a sum over all the past, each doubling twice as much of it."""

STABLE = 3.96
"""εA up to which steps are tried; at 4 no update here is stable any more."""

THERMOSTATS = 32
"""Values of a thermostat that are tried together."""

MOST_DIRECTIONS = 64
"""A step size is chosen by so many directions, the steepest, the flattest and the noisiest among them."""


@dataclass(frozen=True)
class Directions:
    """A Gaussian posterior along the axes of its precision: precisions, and the variance of the gradient noise there."""

    precision: np.ndarray
    noise: np.ndarray


def directions(precision: np.ndarray, noise: np.ndarray) -> Directions:
    """The axes of a precision matrix with a noise covariance, in any coordinates; vectors are diagonals."""
    if precision.ndim == 1:
        return Directions(precision, noise if noise.ndim == 1 else np.diag(noise))
    values, vectors = np.linalg.eigh(precision)
    full = noise if noise.ndim == 2 else np.diag(noise)
    return Directions(values, np.einsum("ij,ik,kj->j", vectors, full, vectors))


def representative(posterior: Directions) -> Directions:
    """A few directions that stand for all."""
    d = len(posterior.precision)
    if d <= MOST_DIRECTIONS:
        return posterior
    evenly = np.argsort(posterior.precision)[np.linspace(0, d - 1, MOST_DIRECTIONS - 8).astype(int)]
    chosen = np.unique(np.concatenate([evenly, np.argsort(posterior.noise / posterior.precision)[-8:]]))
    return Directions(posterior.precision[chosen], posterior.noise[chosen])


def inflation(dynamics: Dynamics, eps: float, posterior: Directions) -> np.ndarray:
    """The variance of the chain over the posterior's, in each direction; infinite where the step is not stable."""
    with jax.enable_x64(True):
        if dynamics.thermostat is None:
            law, _ = _stationary(dynamics, eps, posterior, {})
        else:
            law = _thermostatted(dynamics, dynamics.thermostat, eps, posterior)
    variance = law[:, 0, 0]
    return np.where(np.isfinite(variance) & (variance > 0), variance * posterior.precision, np.inf)


def added_by_step(dynamics: Dynamics, eps: float, posterior: Directions) -> float:
    """What a step size adds to the variance of any direction, at most, beyond what a tiny one without noise does.

    Some schemes are biased however small the step: the paper's SGHMC is.
    """
    tiny = 1e-6 * STABLE / posterior.precision.max()
    floor = inflation(dynamics, tiny, Directions(posterior.precision, 0 * posterior.noise))
    return float(np.max(inflation(dynamics, eps, posterior) / floor)) - 1


def _thermostatted(dynamics: Dynamics, thermostat: str, eps: float, posterior: Directions) -> np.ndarray:
    """The law with the thermostat where it stays on average: the crossing on a grid that closes in on it."""
    d, low, high = len(posterior.precision), 1e-9, 1.0 + eps
    every = Directions(np.tile(posterior.precision, THERMOSTATS), np.tile(posterior.noise, THERMOSTATS))
    law, place = np.empty(0), 0
    for _ in range(6):
        grid = np.geomspace(low, high, THERMOSTATS)
        law, heating = _stationary(dynamics, eps, every, {thermostat: np.repeat(grid, d)})
        law, heating = law.reshape(THERMOSTATS, d, 3, 3), heating.reshape(THERMOSTATS, d)
        cold = np.nan_to_num(heating.mean(axis=1), nan=np.inf) <= 0  # more friction, less energy
        place = int(np.argmax(cold)) if cold.any() else THERMOSTATS - 1
        low, high = grid[max(place - 1, 0)], grid[place]
    return law[place]


def _stationary(
    dynamics: Dynamics, eps: float, posterior: Directions, carried: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The stationary covariance of (position, gradient, momentum) in every direction, (d, 3, 3); and what a leap adds to a
    thermostat there. That is quadratic in the state, which at zero tells a thermostat so much less; what is found belongs to a
    thermostat that is higher by as much, and is searched for over all of them.
    """
    step, quiet = jnp.asarray(eps), jnp.zeros(())

    def pack(motion: Motion) -> Any:
        return jnp.stack([motion.position, motion.gradient, motion.auxiliary["momentum"]])

    def linear(precision: Any, carried: dict[str, Any]) -> tuple[Any, Any, Any]:
        """The coefficients of a leap and of a refreshment, on the state, on the injected noise, on the gradient's; and those of a
        thermostat's change.
        """

        def unpack(s: Any) -> Motion:
            return Motion(s[0], s[1], {"momentum": s[2], "variance": quiet, **carried})

        def leap(s: Any, z: Any, noise: Any) -> Any:
            motion = dynamics.move(unpack(s), step, z)
            return pack(dynamics.settle(motion, noise - precision * motion.position, {"variance": quiet}, step, z, 10**9))

        def refresh(s: Any, z: Any) -> Any:
            return pack(dynamics.refresh(unpack(s), step, step, z))

        def heating(numbers: Any) -> Any:
            motion = dynamics.move(unpack(numbers[:3]), step, numbers[3])
            slope = numbers[4] - precision * motion.position
            after = dynamics.settle(motion, slope, {"variance": quiet}, step, numbers[3], 10**9).auxiliary
            return sum(after[name] - before for name, before in carried.items())

        still = (jnp.zeros(3), quiet)
        coefficients = jax.jacfwd(leap, argnums=(0, 1, 2))(*still, quiet), jax.jacfwd(refresh, argnums=(0, 1))(*still)
        heat = (heating(jnp.zeros(5)), jax.hessian(heating)(jnp.zeros(5))) if carried else (quiet, jnp.zeros((5, 5)))
        return *coefficients, heat

    coefficients = jax.vmap(linear)(jnp.asarray(posterior.precision), {name: jnp.asarray(x) for name, x in carried.items()})
    (move, injected, kicked), (fresh, loud), (at_rest, bend) = jax.tree.map(np.asarray, coefficients)
    added = _outer(injected) + posterior.noise[:, None, None] * _outer(kicked)
    whole, total = fresh, _outer(loud)
    for _ in range(dynamics.leaps):
        whole, total = move @ whole, move @ total @ move.transpose(0, 2, 1) + added
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(DOUBLINGS):
            total, whole = total + whole @ total @ whole.transpose(0, 2, 1), whole @ whole
        quadratic = np.einsum("dij,dij->d", bend[:, :3, :3], total) + bend[:, 3, 3] + posterior.noise * bend[:, 4, 4]
    return total, at_rest + quadratic / 2


def _outer(vectors: np.ndarray) -> np.ndarray:
    return vectors[:, :, None] * vectors[:, None, :]


def largest_step(dynamics: Dynamics, posterior: Directions, allowed: float) -> float:
    """The largest step size that adds no more than `allowed` to the variance of any direction."""
    posterior = representative(posterior)
    stable = STABLE / posterior.precision.max()

    def fits(eps: float) -> bool:
        return added_by_step(dynamics, eps, posterior) <= allowed

    eps = stable
    while not fits(eps):
        eps /= 2
        if eps < 1e-12 * stable:
            return eps
    low, high = eps, min(2 * eps, stable)
    for _ in range(12):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(low)
