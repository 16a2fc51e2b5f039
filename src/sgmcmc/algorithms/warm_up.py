"""What NUTS learns while it warms up: a step size by dual averaging, a covariance in windows; as Stan does."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FIRST, WINDOW, LAST = 75, 25, 50
"""Iterations before the first window, of it, and after the last one."""

SHORTEST = 20
"""Of fewer iterations the step size is learnt only."""

SMALLEST = 1e-4
"""Step that a window begins about at least: from a start where the density is cliffs, the steps learnt may come to be none."""

PULL, DELAY, FORGETTING = 0.05, 10.0, 0.75
"""Of dual averaging: how strongly steps are pulled to the centre, how little the first ones count, how fast they fade."""


class Learnt(NamedTuple):
    """A step size and the factor of a covariance, or its scales; and what they are learnt by: logs of steps about a centre, mean
    and squares of positions.
    """

    step: jax.Array
    factor: jax.Array
    centre: jax.Array
    log_average: jax.Array
    lack: jax.Array
    tried: jax.Array
    mean: jax.Array
    squares: jax.Array
    seen: jax.Array


def nothing_learnt(z: jax.Array, dense: bool) -> Learnt:
    """Steps of one in the variables as they are."""
    factor, none = jnp.eye(z.size, dtype=z.dtype) if dense else jnp.ones_like(z), jnp.zeros((), z.dtype)
    return Learnt(none + 1, factor, none + jnp.log(10.0), none, none, jnp.int32(0), 0 * z, 0 * factor, jnp.int32(0))


def windows(warm_up: int) -> np.ndarray:
    """The last iterations of the windows of a warm-up: in the middle ones, each twice as long, covariances are learnt."""
    if warm_up < SHORTEST:
        return np.array([warm_up - 1])
    first, window, last = FIRST, WINDOW, LAST
    if first + window + last > warm_up:
        first, last = int(0.15 * warm_up), int(0.1 * warm_up)
        window = warm_up - first - last
    ends, left = [first], warm_up - first - last
    while left > 0:
        window = window if left >= 3 * window else left
        ends.append(ends[-1] + window)
        left, window = left - window, 2 * window
    return np.array([*ends, warm_up]) - 1


def learning(ends: np.ndarray, learnt: Learnt, i: jax.Array, z: jax.Array, lack: jax.Array) -> Learnt:
    """After iteration i, which ended at z and lacked so much of the acceptance that is wanted."""
    window = jnp.sum(i > ends)
    middle = (window > 0) & (window < len(ends) - 1)
    learnt = _averaged(learnt, lack)
    learnt = jax.tree.map(lambda new, old: jnp.where(middle, new, old), _seen(learnt, z), learnt)
    learnt = learnt._replace(step=jnp.where(i == ends[-1], jnp.exp(learnt.log_average), learnt.step))
    return jax.lax.cond(middle & (i == jnp.asarray(ends)[window]), _renewed, lambda learnt: learnt, learnt)


def _averaged(learnt: Learnt, lack: jax.Array) -> Learnt:
    """Nesterov's dual averaging: x = centre - √t/γ · mean lack, and its average with weights t^-κ."""
    t = learnt.tried + 1
    lack = learnt.lack + (lack - learnt.lack) / (t + DELAY)
    log_step = learnt.centre - jnp.sqrt(t) / PULL * lack
    weight = t ** jnp.asarray(-FORGETTING, lack.dtype)
    average = weight * log_step + (1 - weight) * learnt.log_average
    limits = jnp.finfo(log_step.dtype)
    step = jnp.clip(jnp.exp(log_step), limits.tiny, limits.max)
    return learnt._replace(step=step, lack=lack, log_average=average, tried=t)


def _seen(learnt: Learnt, z: jax.Array) -> Learnt:
    """Welford's mean and sum of squares about it."""
    n = learnt.seen + 1
    before = z - learnt.mean
    mean = learnt.mean + before / n
    after = z - mean
    return learnt._replace(mean=mean, squares=learnt.squares + _product(after, before, learnt.squares.ndim), seen=n)


def _product(x: jax.Array, y: jax.Array, ndim: int) -> jax.Array:
    return jnp.outer(x, y) if ndim == 2 else x * y


def _renewed(learnt: Learnt) -> Learnt:
    """The covariance of a window, drawn to a small one, and dual averaging anew about ten times the step."""
    n, dense = learnt.seen.astype(learnt.mean.dtype), learnt.squares.ndim == 2
    small = 5e-3 / (n + 5) * (jnp.eye(learnt.mean.size, dtype=n.dtype) if dense else 1.0)
    covariance = n / (n + 5) * learnt.squares / (n - 1) + small
    fresh = nothing_learnt(learnt.mean, dense)
    step = jnp.maximum(jnp.exp(learnt.log_average), SMALLEST)
    factor = jnp.linalg.cholesky(covariance) if dense else jnp.sqrt(covariance)
    return fresh._replace(step=step, factor=factor, centre=jnp.log(10 * step))
