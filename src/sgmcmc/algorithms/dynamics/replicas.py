"""Replica exchange: hotter copies of a chain cross between modes, and swap places with it."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.dynamics.momentum import HalfKicks, Persistent
from sgmcmc.algorithms.energies import acceptance, log_ratio
from sgmcmc.algorithms.kernel import TEST, Dynamics, Estimator, Kernel, Motion, purpose_key
from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import Batch, PyTree, State, all_finite, pick, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule


@dataclass(frozen=True)
class ReplicaExchange(Dynamics):
    """Copies of a chain at temperatures T_1 = 1 < T_2 < ..., of which copy k targets π^(1/T_k); neighbours swap places.

    A hotter copy is the same chain with noise √T_k times as loud. Every `every`-th iteration neighbours k and k+1, the odd pairs
    and the even ones in turn, swap with probability min(1, exp(cΔ̂ - c²σ̂²/2)), c = 1/T_k - 1/T_(k+1). Δ̂ estimates
    log π(θ_(k+1)) - log π(θ_k) from a minibatch of its own, and σ̂² is the variance of that: where its error is normal, swaps
    leave the laws of the copies alone. Where c²σ̂² is much above 1 few are accepted: take more rows.

    What you see is the copy at T = 1; it is `dynamics` with jumps. An iteration costs as many gradients as there are copies.

    Args:
        temperatures: from 1 upwards. At the last one chains should cross freely: a barrier of h in log π is one of h/T. Near ones
            swap often: with d parameters a ratio of 1 + √(2/d) does.
        dynamics: one whose update is linear in gradient and noise: `Langevin`, `OBABO` or `SymmetricHamiltonian`. (Not `BAOA`:
            where its iterations end the momentum depends on the position, which swaps change, however small the step.)
        every: iterations from one swap to the next.

    `2 * every * state.auxiliary["swaps"] / state.step` is the part of the swaps that was accepted, for each pair.

    >>> import jax.numpy as jnp, numpy as np, sgmcmc
    >>> from sgmcmc.algorithms import ReplicaExchange
    >>> def log_lik(params, batch):  # modes at -4 and 4, of weights 1 and 3
    ...     left, right = -((params["x"] + 4) ** 2) / 2, -((params["x"] - 4) ** 2) / 2 + np.log(3)
    ...     return (batch["share"] * jnp.logaddexp(left, right)).sum()
    >>> data = {"share": np.full(10, 0.1)}
    >>> for dynamics in ("langevin", ReplicaExchange((1, 2, 4, 8), every=2)):
    ...     sampler = sgmcmc.sampler_setup(log_lik, data, {"x": 4.0}, 0.3, dynamics=dynamics, minibatch_size=5)
    ...     out = sampler.run(sampler.init(seed=1, n_chains=20), 10_000, burn_in=1000)
    ...     print(bool(abs((out["x"] > 0).mean() - 0.75) < 0.02))
    False
    True

    Reference: Deng, Feng, Gao, Liang and Lin (2020), Non-convex learning via replica exchange stochastic gradient MCMC.
    """

    temperatures: tuple[float, ...] = (1.0, 2.0, 4.0)
    dynamics: Dynamics = field(default_factory=Langevin)
    every: int = 10
    affine: ClassVar[bool] = False

    @property
    def leaps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]: as the dynamics say
        return self.dynamics.leaps

    def kernel(self, posterior: Posterior, estimator: Estimator, schedule: Schedule) -> Kernel:
        if estimator.per_chain:
            found = f"ReplicaExchange came with {type(estimator).__name__}, which carries what one copy of a chain has seen"
            raise InputError(f"{found}; expected gradient='minibatch' or 'control-variates'")
        return Replicas(posterior, estimator, self, schedule)

    def fitted(self, position: PyTree) -> Self:
        temperatures, inner = _rising(self.temperatures), self.dynamics
        if temperatures is None:
            raise InputError(f"temperatures is {describe(self.temperatures)}; expected 1 and larger ones, such as (1, 2, 4)")
        if not isinstance(inner, Dynamics):
            raise InputError(f"dynamics of ReplicaExchange is {describe(inner)}; expected an object such as OBABO(alpha=0.3)")
        if not inner.affine or inner.thermostat is not None or inner.warmup:
            found = f"dynamics is {inner}, whose temperature is not that of its noise"
            raise InputError(f"{found}; expected Langevin(), OBABO() or SymmetricHamiltonian(), without a warmup")
        if isinstance(inner, Persistent) and not isinstance(inner, HalfKicks):
            found = f"dynamics is {inner}, whose momentum depends on the position where an iteration ends, which swaps change"
            raise InputError(f"{found}; expected OBABO(), whose momentum does not")
        every = check_count("every", self.every)
        return replace(self, temperatures=temperatures, dynamics=inner.fitted(position), every=every)

    def on_unit_ball(self) -> Self:
        return replace(self, dynamics=self.dynamics.on_unit_ball())

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        roots = jnp.sqrt(jnp.asarray(self.temperatures))

        def carried(root: Any) -> dict[str, PyTree]:
            return self.dynamics.start(position, eps, tree_map(lambda z: root.astype(z.dtype) * z, noise))

        hot = tree_map(
            lambda x: jnp.broadcast_to(x, (len(roots) - 1, *jnp.shape(x))), {"position": position, "gradient": position}
        )
        return {"hot": hot, "carried": jax.vmap(carried)(roots), "swaps": jnp.zeros(len(roots) - 1, jnp.int32)}


def _rising(temperatures: Any) -> tuple[float, ...] | None:
    """As numbers; None where these are not 1 and larger ones."""
    try:
        numbers = tuple(float(t) for t in temperatures)
    except (TypeError, ValueError):
        return None
    rising = all(a < b < float("inf") for a, b in pairwise(numbers))
    return numbers if len(numbers) > 1 and numbers[0] == 1 and rising else None


@dataclass(frozen=True)
class Replicas(Kernel):
    """An iteration of every copy, then swaps. The state is that of the coldest; `auxiliary["hot"]` has where the others are."""

    @property
    def inner(self) -> Kernel:
        """The kernel of each copy."""
        return Kernel(self.posterior, self.estimator, self._exchange.dynamics, self.schedule)

    @property
    def batches(self) -> int:
        """One for each leap of each copy, and one for the swaps."""
        return self._copies * self.dynamics.leaps + 1

    @property
    def noises(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._copies * self.inner.noises

    @property
    def _exchange(self) -> ReplicaExchange:
        assert isinstance(self.dynamics, ReplicaExchange)
        return self.dynamics

    @property
    def _copies(self) -> int:
        return len(self._exchange.temperatures)

    def start(self, key: jax.Array, seed: jax.Array, position: PyTree, batch: Batch, est_state: PyTree) -> State:
        state = super().start(key, seed, position, batch, est_state)
        hot = state.auxiliary["hot"]
        gradient = tree_map(lambda g, like: jnp.broadcast_to(g, like.shape), state.gradient, hot["gradient"])
        return replace(state, auxiliary=state.auxiliary | {"hot": hot | {"gradient": gradient}})

    def step(self, state: State, batch_of: Any, noise: PyTree) -> State:
        t, exchange, leaps, inner = state.step + 1, self._exchange, self.dynamics.leaps, self.inner

        def moved(number: Any, temperature: Any, place: dict[str, PyTree], carried: dict[str, PyTree], noise: PyTree) -> Any:
            own = replace(state, **place, auxiliary=carried)
            louder = tree_map(lambda z: jnp.sqrt(temperature).astype(z.dtype) * z, noise)
            after = inner.step(own, lambda leap: batch_of(number * leaps + leap), louder)
            return {"position": after.position, "gradient": after.gradient}, after.auxiliary

        cold = {"position": state.position, "gradient": state.gradient}
        places = tree_map(lambda one, others: jnp.concatenate([one[None], others]), cold, state.auxiliary["hot"])
        noise = tree_map(lambda z: z.reshape(self._copies, inner.noises, *z.shape[1:]), noise)
        given = jnp.arange(self._copies), jnp.asarray(exchange.temperatures), places, state.auxiliary["carried"], noise
        places, carried = jax.vmap(moved)(*given)

        def swapped(places: PyTree) -> tuple[PyTree, jax.Array]:
            return self._swapped(state, t, places, batch_of(self._copies * leaps))

        def unswapped(places: PyTree) -> tuple[PyTree, jax.Array]:
            return places, jnp.zeros(self._copies - 1, bool)

        places, swaps = jax.lax.cond(t % exchange.every == 0, swapped, unswapped, places)
        cold, hot = pick(places, 0), pick(places, slice(1, None))
        lost = ~all_finite(hot)  # a copy that left the finite numbers would never swap again
        gradient = tree_map(lambda g: jnp.where(lost, jnp.nan, g), cold["gradient"])
        auxiliary = {"hot": hot, "carried": carried, "swaps": state.auxiliary["swaps"] + swaps}
        return self._moved(state, t, Motion(cold["position"], gradient, auxiliary), state.estimator)

    def _swapped(self, state: State, t: Any, places: PyTree, batch: Batch) -> tuple[PyTree, jax.Array]:
        """Neighbours in each other's places, where a swap was accepted; and where that was."""
        exchange, positions, pairs = self._exchange, places["position"], jnp.arange(self._copies - 1)
        posterior = self.posterior_at(state)
        colder, hotter = pick(positions, slice(None, -1)), pick(positions, slice(1, None))
        ratio, variance = jax.vmap(lambda a, b: log_ratio(posterior, a, b, batch))(colder, hotter)
        cold = 1 / jnp.asarray(exchange.temperatures, ratio.dtype)
        colder_by = cold[:-1] - cold[1:]
        chance = acceptance(colder_by * ratio, colder_by**2 * variance)
        uniform = jax.random.uniform(purpose_key(state.key, t, TEST), chance.shape, chance.dtype)
        swaps = (pairs % 2 == t // exchange.every % 2) & (uniform < chance)
        none = jnp.zeros(1, bool)
        order = jnp.arange(self._copies) + jnp.concatenate([swaps, none]) - jnp.concatenate([none, swaps])
        return pick(places, order), swaps
