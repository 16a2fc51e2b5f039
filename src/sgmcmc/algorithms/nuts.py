"""NUTS on exact gradients: NumPyro's transition as one iteration of a kernel."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState
from sgmcmc.algorithms.kernel import NOISE, START, Dynamics, Estimator, Kernel, normals, purpose_key
from sgmcmc.core.trees import Batch, PyTree, State, all_finite, flat, leaf_names, split
from sgmcmc.problem.schedules import Schedule

DEEPEST = 10
"""Doublings of a trajectory at most: 1,023 leapfrogs."""

DENSE = 100
"""Up to so many numbers the mass matrix is dense; beyond, its diagonal."""

NEARER = 30
"""Halvings of the way from the centre to where a chain would start, where the log posterior is not finite there."""

RENEWED = ("i", "z", "z_grad", "rng_key", "adapt_state.window_idx", "adapt_state.rng_key")
"""What NumPyro carries from transition to transition and follows from a state's step, key, position and gradient."""


class Trajectories(Dynamics):
    """Whole trajectories, which NumPyro chooses: there are no single leaps."""

    leaps: int = 0

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        return dict.fromkeys(("nuts", "divergences", "deepest", "leapfrogs"))


@dataclass(frozen=True)
class Nuts(Kernel):
    """The No-U-Turn sampler in the variables of a whitening; minibatches must be the whole dataset.

    The first `warm_up` iterations adapt the step size to an acceptance of `acceptance`, and the mass matrix. Chains start
    normally distributed about the origin, `scatter` wide. The adaptation is carried in `auxiliary["nuts"]`; beside it are
    counted the `leapfrogs` in all, and since the warm-up the `divergences` and the trajectories of the `deepest` tree.
    """

    estimator: Estimator = field(default=Whitened(Minibatch()))
    dynamics: Dynamics = field(default=Trajectories())
    schedule: Schedule = field(default=Schedule(1.0))  # NumPyro has its own
    warm_up: int = 1000
    acceptance: float = 0.8
    scatter: float = 1.0

    @cached_property
    def noises(self) -> int:
        """None: NumPyro draws its own."""
        return 0

    def start(self, key: jax.Array, seed: jax.Array, position: PyTree, batch: Batch, est_state: PyTree) -> State:
        state = State(jnp.int32(0), key, position, position, position, {}, est_state, seed)
        potential = self._potential(est_state, position, batch)
        away = _vector(normals(purpose_key(key, 0, START), position))
        found = _first_finite(potential, _vector(position), self.scatter * away)
        count = jnp.int32(0)
        return self._after(state, state.step, self._begin(*found), count, count, count)

    def place(self, state: State, batch: Batch) -> State:
        """A state whose position was moved: what was adapted stays."""
        hmc = self._hmc(state)
        energy, slope = jax.value_and_grad(self._potential(state.estimator, state.position, batch))(hmc.z)
        moved = hmc._replace(potential_energy=energy, z_grad=slope)
        return self._after(state, state.step, moved, *(state.auxiliary[name] for name in ("divergences", "deepest", "leapfrogs")))

    def step(self, state: State, batch_of: Callable[[Any], Batch], noise: PyTree) -> State:
        """One trajectory."""
        hmc, potential = self._hmc(state), self._potential(state.estimator, state.position, batch_of(0))
        new, before = self._engine[1](hmc, (potential,)), state.auxiliary
        counts = state.step >= self.warm_up
        divergences = before["divergences"] + (counts & new.diverging)
        deepest = before["deepest"] + (counts & (new.num_steps >= 2**DEEPEST - 1))
        leapfrogs = before["leapfrogs"] + new.num_steps.astype(jnp.int32)
        return self._after(state, state.step + 1, new, divergences, deepest, leapfrogs)

    def log_posterior(self, state: State, batch: Batch) -> jax.Array:
        return -state.auxiliary["nuts"]["potential_energy"]

    @cached_property
    def _engine(self) -> tuple[Any, Any]:
        """NumPyro's functions for the first state and for the next."""
        from numpyro.infer.hmc import hmc  # imported here: a second of import time that other samplers do not need

        return hmc(potential_fn_gen=lambda potential: potential, algo="NUTS")

    @cached_property
    def _windows(self) -> np.ndarray:
        """The last iterations of the windows of the warm-up."""
        from numpyro.infer.hmc_util import build_adaptation_schedule

        return np.asarray([window.end for window in build_adaptation_schedule(self.warm_up)])

    def _potential(self, est_state: WhitenedState, position: PyTree, batch: Batch) -> Callable[[jax.Array], jax.Array]:
        """Minus the log posterior of one vector of all numbers that move."""
        posterior = self.estimator.posterior_at(self.posterior, est_state)
        return lambda z: -posterior.log_posterior(split(z, position), batch).astype(z.dtype)

    def _begin(self, z: jax.Array, energy: jax.Array, slope: jax.Array) -> Any:
        """NumPyro's state before the first trajectory. Of the potential it only needs what is handed over."""
        from numpyro.infer.util import ParamInfo

        told = {"dense_mass": z.size <= DENSE, "target_accept_prob": self.acceptance, "max_tree_depth": DEEPEST}
        given = ParamInfo(z, energy, slope)
        first = self._engine[0](given, self.warm_up, **told, model_args=(None,), rng_key=jax.random.key(0))
        return first._replace(energy=energy)  # that of a momentum which no trajectory starts with: not to be computed

    def _hmc(self, state: State) -> Any:
        """NumPyro's state, from ours. To ask for its shape also tells NumPyro, which remembers, how to adapt."""
        z = _vector(state.position)
        like = jax.eval_shape(self._begin, z, z[0], z)
        of_trajectory, of_window = jax.random.split(purpose_key(state.key, state.step + 1, NOISE))
        window = jnp.sum(state.step > self._windows)
        fresh = (state.step, z, -_vector(state.gradient), of_trajectory, window, of_window)
        carried = state.auxiliary["nuts"] | dict(zip(RENEWED, fresh, strict=True))
        return jax.tree.unflatten(jax.tree.structure(like), [carried[name] for name in leaf_names(like)])

    def _after(self, state: State, step: jax.Array, hmc: Any, *counts: jax.Array) -> State:
        """Our state, from NumPyro's."""
        position, gradient = split(hmc.z, state.position), split(-hmc.z_grad, state.position)
        named = zip(leaf_names(hmc), jax.tree.leaves(hmc), strict=True)
        carried = {name: leaf for name, leaf in named if name not in RENEWED}
        auxiliary = {"nuts": carried} | dict(zip(("divergences", "deepest", "leapfrogs"), counts, strict=True))
        params = self.estimator.posterior_at(self.posterior, state.estimator).transform.to_params(position)
        return State(step, state.key, params, position, gradient, auxiliary, state.estimator, state.seed)


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
