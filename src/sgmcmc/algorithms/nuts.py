"""NUTS on exact gradients: a trajectory as one iteration of a kernel."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState
from sgmcmc.algorithms.kernel import NOISE, START, Dynamics, Estimator, Kernel, normals, purpose_key
from sgmcmc.algorithms.trajectory import DEEPEST, Place, trajectory
from sgmcmc.algorithms.warm_up import Learnt, learning, nothing_learnt, windows
from sgmcmc.core.trees import Batch, PyTree, State, all_finite, flat, split
from sgmcmc.problem.schedules import Schedule

DENSE = 100
"""Up to so many numbers the mass matrix is dense; beyond, its diagonal."""

NEARER = 30
"""Halvings of the way from the centre to where a chain would start, where the log posterior is not finite there."""

COUNTS = ("divergences", "deepest", "leapfrogs")


class Trajectories(Dynamics):
    """Whole trajectories, as long as they do not turn: there are no single leaps."""

    leaps: int = 0

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        return dict.fromkeys(("nuts", *COUNTS))


@dataclass(frozen=True)
class Nuts(Kernel):
    """The No-U-Turn sampler in the variables of a whitening; minibatches must be the whole dataset.

    The first `warm_up` iterations adapt the step size to an acceptance of `acceptance`, and the mass matrix. Chains start
    normally distributed about the origin, `scatter` wide. The adaptation is carried in `auxiliary["nuts"]`; beside it are
    counted the `leapfrogs` in all, and since the warm-up the `divergences` and the trajectories of the `deepest` tree.
    """

    estimator: Estimator = field(default=Whitened(Minibatch()))
    dynamics: Dynamics = field(default=Trajectories())
    schedule: Schedule = field(default=Schedule(1.0))  # learnt instead
    warm_up: int = 1000
    acceptance: float = 0.8
    scatter: float = 1.0

    @cached_property
    def noises(self) -> int:
        """None: trajectories draw their own."""
        return 0

    def start(self, key: jax.Array, seed: jax.Array, position: PyTree, batch: Batch, est_state: PyTree) -> State:
        state = State(jnp.int32(0), key, position, position, position, {}, est_state, seed)
        potential = self._potential(est_state, position, batch)
        away = _vector(normals(purpose_key(key, 0, START), position))
        found = _first_finite(potential, _vector(position), self.scatter * away)
        count = jnp.int32(0)
        learnt = nothing_learnt(found[0], dense=found[0].size <= DENSE)
        return self._after(state, Place(*found), {"learnt": learnt._asdict(), "leapfrogs": count}, count, count, count)

    def place(self, state: State, batch: Batch) -> State:
        """A state whose position was moved: what was adapted stays."""
        z, carried = _vector(state.position), state.auxiliary["nuts"]
        moved = Place(z, *jax.value_and_grad(self._potential(state.estimator, state.position, batch))(z))
        return self._after(state, moved, carried, *(state.auxiliary[name] for name in COUNTS))

    def step(self, state: State, batch_of: Callable[[Any], Batch], noise: PyTree) -> State:
        """One trajectory."""
        before, carried = state.auxiliary, state.auxiliary["nuts"]
        learnt, potential = Learnt(**carried["learnt"]), self._potential(state.estimator, state.position, batch_of(0))
        here = Place(_vector(state.position), carried["potential"], -_vector(state.gradient))
        key = purpose_key(state.key, state.step + 1, NOISE)
        tree = trajectory(potential, here, learnt.step, learnt.factor, key)
        warming, lack = state.step < self.warm_up, self.acceptance - tree.accepted / tree.leapfrogs
        told = learnt, state.step, tree.chosen.z, lack
        learnt = jax.lax.cond(warming, partial(learning, self._windows), lambda learnt, *_: learnt, *told)
        seen = ~warming & tree.diverged, ~warming & (tree.leapfrogs >= 2**DEEPEST - 1), tree.leapfrogs
        counts = (before[name] + more for name, more in zip(COUNTS, seen, strict=True))
        state = replace(state, step=state.step + 1)
        return self._after(state, tree.chosen, {"learnt": learnt._asdict(), "leapfrogs": tree.leapfrogs}, *counts)

    def log_posterior(self, state: State, batch: Batch) -> jax.Array:
        return -state.auxiliary["nuts"]["potential"]

    @cached_property
    def _windows(self) -> np.ndarray:
        return windows(self.warm_up)

    def _potential(self, est_state: WhitenedState, position: PyTree, batch: Batch) -> Callable[[jax.Array], jax.Array]:
        """Minus the log posterior of one vector of all numbers that move."""
        posterior = self.estimator.posterior_at(self.posterior, est_state)
        return lambda z: -posterior.log_posterior(split(z, position), batch).astype(z.dtype)

    def _after(self, state: State, at: Place, carried: dict[str, Any], *counts: jax.Array) -> State:
        """The state at a place."""
        position, gradient = split(at.z, state.position), split(-at.slope, state.position)
        auxiliary = {"nuts": carried | {"potential": at.potential}} | dict(zip(COUNTS, counts, strict=True))
        params = self.estimator.posterior_at(self.posterior, state.estimator).transform.to_params(position)
        return State(state.step, state.key, params, position, gradient, auxiliary, state.estimator, state.seed)


def _vector(tree: PyTree) -> jax.Array:
    return flat(tree).astype(jnp.result_type(float))


def _first_finite(potential: Callable[[jax.Array], jax.Array], centre: jax.Array, away: jax.Array) -> tuple[jax.Array, ...]:
    """The first of all the way, half of it, a quarter, ... at which potential and gradient are finite; and these."""

    def astray(tried: tuple[jax.Array, ...]) -> jax.Array:
        return ~all_finite(*tried[1:]) & (tried[0] < NEARER)

    def nearer(tried: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        z = centre + away / 2.0 ** tried[0]
        return tried[0] + 1, z, *jax.value_and_grad(potential)(z)

    nowhere = jnp.full_like(centre, jnp.nan)
    return jax.lax.while_loop(astray, nearer, (jnp.int32(0), nowhere, nowhere[0], nowhere))[1:]
