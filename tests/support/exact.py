"""The exact stationary law of a sampler on a Gaussian target, read off the library's own update.

On a Gaussian the gradient estimate is b - Hθ plus what the minibatch adds to H and b: an update linear in the state for a
given minibatch, and linear in the minibatch for a given state. So second moments obey a linear equation, whose
coefficients are read off the code by differentiating it (exactly, the maps being bilinear), and which a linear solve turns
into the stationary law. Nothing is sampled and nothing is approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.kernel import Dynamics, Motion


@dataclass(frozen=True)
class GaussianGradient:
    """ĝ(θ) = b - Hθ + Δb - ΔH(θ - centre), where the minibatch's (ΔH, Δb) has mean 0 and covariance `noise`.

    A plain estimate has centre 0; a control variate estimate has its centre, and no Δb.
    """

    H: np.ndarray
    b: np.ndarray
    noise: np.ndarray
    centre: np.ndarray

    @property
    def d(self) -> int:
        return len(self.b)

    @property
    def mode(self) -> np.ndarray:
        return np.linalg.solve(self.H, self.b)

    def at(self, theta: Any, u: Any) -> Any:
        shift = u[: self.d**2].reshape(self.d, self.d)
        return self.b - self.H @ theta + u[self.d**2 :] - shift @ (theta - self.centre)


def additive(precision: np.ndarray, variance: np.ndarray) -> GaussianGradient:
    """A target N(0, 1/precision) whose gradient has independent noise of the given covariance."""
    d = len(precision)
    noise = np.zeros((d * d + d, d * d + d))
    noise[d * d :, d * d :] = variance
    return GaussianGradient(precision, np.zeros(d), noise, np.zeros(d))


def from_rows(H: np.ndarray, b: np.ndarray, n: int, prior: np.ndarray, centre: np.ndarray | None = None) -> GaussianGradient:
    """Rows with gradients b_i - H_i θ, minibatches of n without replacement, a prior N(0, 1/prior), control variates or not.

    The covariance of a sum over such a minibatch, times N/n, is N(N-n)/n times the rows' covariance with divisor N-1.
    """
    N, d = b.shape
    terms = np.concatenate([H.reshape(N, d * d), b if centre is None else np.zeros_like(b)], axis=1)
    noise = N * (N - n) / n * np.atleast_2d(np.cov(terms.T, ddof=1))
    return GaussianGradient(H.sum(0) + prior, b.sum(0), noise, np.zeros(d) if centre is None else centre)


def stationary_moments(dynamics: Dynamics, gradient: GaussianGradient, eps: float, variance: Any = None) -> tuple[Any, Any]:
    """Mean and covariance of θ under the dynamics' stationary law, `variance` being a frozen noise estimate."""
    d = gradient.d
    carries = dynamics.start(jnp.zeros(d), jnp.full(d, eps), jnp.zeros(d))
    has_momentum = "momentum" in carries
    size = d * (3 if has_momentum else 2)
    step = jnp.full(d, eps)

    def unpack(s: Any) -> Motion:
        auxiliary = {"momentum": s[2 * d : 3 * d]} if has_momentum else {}
        return Motion(s[:d], s[d : 2 * d], auxiliary if variance is None else auxiliary | {"variance": jnp.full(d, variance)})

    def pack(motion: Motion) -> Any:
        parts = [motion.position, motion.gradient, motion.auxiliary.get("momentum", jnp.zeros(0))]
        return jnp.concatenate(parts)

    def leap(s: Any, z: Any, u: Any) -> Any:
        motion = dynamics.move(unpack(s), step, z)
        stats = {"variance": jnp.zeros(d)}
        return pack(dynamics.settle(motion, gradient.at(motion.position, u), stats, step, z, 10**9))

    def refresh(s: Any, z: Any, u: Any) -> Any:
        return pack(dynamics.refresh(unpack(s), step, step, z))

    iteration = np.linalg.matrix_power(_second_moment_map(leap, size, d, gradient.noise), dynamics.leaps)
    if dynamics.refreshes:
        iteration = iteration @ _second_moment_map(refresh, size, d, 0 * gradient.noise)
    moments = _fixed_point(iteration, size + 1)
    mean = moments[:d, size]
    return mean, moments[:d, :d] - np.outer(mean, mean)


def enumerated_moments(updates: list[Any], size: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Stationary mean and covariance of s' = f(s, z), where f is one of `updates`, each equally likely, and z standard normal.

    Each is affine in (s, z), so its coefficients are its derivatives anywhere.
    """
    return cycle_moments([updates], size, d)


def cycle_moments(cycle: list[list[Any]], size: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """The same at the end of a cycle of such steps, each with updates of its own."""
    known: dict[int, np.ndarray] = {}
    whole = np.eye((size + 1) ** 2)
    for updates in cycle:
        if id(updates) not in known:
            known[id(updates)] = _enumerated_map(updates, size, d)
        whole = known[id(updates)] @ whole
    moments = _fixed_point(whole, size + 1)
    mean = moments[:size, size]
    return mean, moments[:size, :size] - np.outer(mean, mean)


def _enumerated_map(updates: list[Any], size: int, d: int) -> np.ndarray:
    zero, quiet = jnp.zeros(size), jnp.zeros(d)
    total = np.zeros(((size + 1) ** 2, (size + 1) ** 2))
    for f in updates:
        affine = np.zeros((size + 1, size + 1))
        affine[:size, :size], affine[:size, size], affine[size, size] = jax.jacfwd(f)(zero, quiet), f(zero, quiet), 1.0
        loud = np.zeros((size + 1, d))
        loud[:size] = jax.jacfwd(f, argnums=1)(zero, quiet)
        total += np.kron(affine, affine) / len(updates)
        total[:, -1] += (loud @ loud.T).ravel() / len(updates)
    return total


def _second_moment_map(f: Any, size: int, d: int, noise: np.ndarray) -> np.ndarray:
    """The matrix that takes vec E[s sᵀ] to vec E[s' s'ᵀ], where s ends with a constant 1 and s' = f(s, z, u)."""
    zero, quiet, still = jnp.zeros(size), jnp.zeros(d), jnp.zeros(len(noise))

    def affine(u: Any) -> Any:
        matrix = jax.jacfwd(lambda s: f(s, quiet, u))(zero)
        return jnp.zeros((size + 1, size + 1)).at[:size, :size].set(matrix).at[:size, size].set(f(zero, quiet, u))

    mean = np.asarray(affine(still).at[size, size].set(1.0))
    slopes = np.moveaxis(np.asarray(jax.jacfwd(affine)(still)), -1, 0)

    def injected(u: Any) -> Any:
        return jnp.zeros((size + 1, d)).at[:size].set(jax.jacfwd(lambda z: f(zero, z, u))(quiet))

    loud = np.asarray(injected(still))
    loud_slopes = np.moveaxis(np.asarray(jax.jacfwd(injected)(still)), -1, 0)
    total, added = np.kron(mean, mean), loud @ loud.T
    for i, j in zip(*np.nonzero(noise), strict=True):
        total += noise[i, j] * np.kron(slopes[i], slopes[j])
        added += noise[i, j] * loud_slopes[i] @ loud_slopes[j].T
    constant = np.zeros((size + 1) ** 2)
    constant[-1] = 1.0
    return total + np.outer(added.ravel(), constant)


def _fixed_point(step: np.ndarray, size: int) -> np.ndarray:
    """The moments that the map leaves alone, with E[1] = 1."""
    a, b = step[:-1, :-1] - np.eye(size * size - 1), -step[:-1, -1]
    return np.append(np.linalg.solve(a, b), 1.0).reshape(size, size)
