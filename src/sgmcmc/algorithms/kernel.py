"""What one iteration is: dynamics × estimator on fresh minibatches, with random numbers addressed by the iteration.

`Dynamics` and `Estimator` are what to write for a sampler of your own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import jax
import jax.numpy as jnp

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Batch, PyTree, State, size, split, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Motion:
    """A position, the gradient estimate there, and whatever else the dynamics carry.

    Attributes:
        position: what moves, a tree of arrays.
        gradient: the estimate of the gradient of the log posterior at `position`, a tree like it.
        auxiliary: trees by name, such as `"momentum"`.

    >>> from dataclasses import replace
    >>> from sgmcmc.algorithms import Motion
    >>> replace(Motion(position=1.0, gradient=-2.0, auxiliary={}), position=1.5)
    Motion(position=1.5, gradient=-2.0, auxiliary={})
    """

    position: PyTree
    gradient: PyTree
    auxiliary: dict[str, PyTree]


class Dynamics:
    """What a chain does with a gradient and some noise: the base of all updates. They see neither data nor model.

    An iteration is `refresh` (where momenta are drawn anew), then `leaps` times: `move` to the next position, a gradient
    estimate there on a fresh minibatch, `settle`. Every motion carries the gradient at its own position. Noise arrives as
    standard normals shaped like the position: one tree per leap, given to `move` and to `settle`, of which each dynamics
    uses it in one; and one more for `refresh` where `refreshes` is true. (Where `keyed` is true, random keys arrive instead.)
    `eps` is a tree of step sizes like the position.

    As it stands: one leap, nothing drawn anew, nothing carried, and the new gradient simply taken over.

    >>> from dataclasses import dataclass, replace
    >>> import jax.numpy as jnp, numpy as np
    >>> from sgmcmc.algorithms import Dynamics
    >>> from sgmcmc.algorithms.laws import Directions, inflation
    >>> @dataclass(frozen=True)
    ... class MyLangevin(Dynamics):
    ...     def move(self, motion, eps, noise):
    ...         return replace(motion, position=motion.position + eps / 2 * motion.gradient + jnp.sqrt(eps) * noise)
    >>> inflation(MyLangevin(), 0.4, Directions(precision=np.ones(1), noise=np.zeros(1))).round(4)
    array([1.1111])

    (For parameters that are a tree of arrays the arithmetic goes through `jax.tree.map`.)
    """

    refreshes: ClassVar[bool] = False
    thermostat: ClassVar[str | None] = None
    """The name of what it carries that grows until the mean kinetic energy is ε, if anything does."""

    keyed: ClassVar[bool] = False
    """Whether its noise is not normal: then `move`, `settle` and `refresh` are given random keys in place of normals."""

    positive: ClassVar[bool] = False
    """Whether it moves logarithms of positive numbers: then every parameter has to be constrained, as `simplex` or `positive`."""

    affine: ClassVar[bool] = True
    """Whether on a Gaussian, with a thermostat at rest, its update is affine: then `sgmcmc.algorithms.laws` knows its law."""

    warmup: int = 0
    """Iterations in which it learns the noise from an estimator's own `variance`; with 0 it needs none."""

    leaps: int = 1
    """Leaps, and so gradients, per iteration."""

    traced: ClassVar[tuple[str, ...]] = ()
    """The names of its constants that are arguments of what is compiled: with other values of these nothing is compiled again.
    They are `fitted`, and nothing in Python may depend on their values. Another value of any other constant is compiled anew."""

    pitfall: ClassVar[str] = ""
    """What else than a large step may lead a chain out of the finite numbers, as a sentence for messages."""

    def fitted(self, position: PyTree) -> Self:
        """Itself with its constants for what moves: one for each leaf of `position`, refused where they do not fit."""
        return self

    def kernel(self, posterior: Posterior, estimator: "Estimator", schedule: Schedule) -> "Kernel":
        """What one iteration is with them: another class where it is more than leaps."""
        return Kernel(posterior, estimator, self, schedule)

    def on_unit_ball(self) -> Self:
        """Itself for a posterior whose precision is known to be 1 in every direction, as after whitening."""
        return self

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        """What is carried besides position and gradient, at the beginning."""
        return {}

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        """The start of an iteration; `before` holds the step sizes of the iteration before."""
        return motion

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        """To the next position."""
        raise NotImplementedError(f"{type(self).__name__} has no move(motion, eps, noise)")

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        """What remains to be done once the gradient at the next position is known, in iteration `t`."""
        return replace(motion, gradient=gradient)

    def noise_share(self, motion: Motion, eps: PyTree) -> PyTree:
        """The part of the noise to be injected that the minibatches already pay for, where an estimate of theirs is carried."""
        return tree_map(jnp.zeros_like, eps)


Estimate: TypeAlias = tuple[PyTree, PyTree, dict[str, PyTree]]
"""A gradient, the estimator's next state, and what is known of the noise: its `"variance"`, or nothing."""


class Passes(Protocol):
    """What an estimator may ask of the whole dataset when it begins. Functions are given a block of rows as last argument.

    Where it begins anew for several chains at once, positions have the chains on their first axis; functions are still given the
    position of one, and what comes back has the chains in front.

    >>> from sgmcmc.algorithms import Passes, Posterior
    >>> def mean_log_lik(posterior: Posterior, position, passes: Passes):
    ...     return passes.sum(Posterior.sum_of_rows, posterior, position) / posterior.n_rows
    """

    def sum(self, function: Callable[..., PyTree], posterior: Posterior, position: PyTree, *shared: Any) -> PyTree:
        """The sum over all rows."""
        ...

    def each(self, function: Callable[..., PyTree], posterior: Posterior, position: PyTree, *shared: Any) -> PyTree:
        """What `function` returns for every row, rows on the first axis, in the order of the dataset."""
        ...


class Estimator:
    """How the gradient of the log posterior is estimated from a minibatch: the base of all estimators. They see no noise.

    Where the rows are in strata, each device sees its own: what rows contribute is to be summed by `posterior.over_strata`.

    As it stands: nothing is carried from step to step.

    >>> from dataclasses import dataclass
    >>> from sgmcmc.algorithms import Estimator
    >>> @dataclass(frozen=True)
    ... class Plain(Estimator):
    ...     def estimate(self, posterior, position, batch, state):
    ...         return posterior.gradient(position, batch), state, {}
    >>> Plain().per_chain, Plain().knows_rows
    (False, False)
    """

    carries: ClassVar[type] = object
    """The class of its state: one of another class was made by another sampler, and is refused."""

    centred: ClassVar[bool] = False
    """Whether its state is a `Centre`."""

    per_chain: ClassVar[bool] = False
    """Whether its state changes as a chain goes on, so that every chain has one of its own."""

    knows_rows: ClassVar[bool] = False
    """Whether it must be told which rows a minibatch has: then `batch.index` are distinct rows of the whole dataset."""

    random: ClassVar[bool] = False
    """Whether it draws something itself, such as latent variables: then `batch.key` is a key of this very estimate."""

    @property
    def chain_axes(self) -> PyTree:
        """Where the chains are in its state, for `jax.vmap`."""
        return 0 if self.per_chain else None

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> PyTree:
        """What a chain that starts at `position` carries: a tree of arrays."""
        return ()

    @property
    def follows_posterior(self) -> bool:
        """Whether its estimate is unbiased though the posterior may be another by now than when its state was made."""
        return type(self).init is Estimator.init

    def renewed_every(self, n_rows: int, batch_size: int) -> int:
        """Iterations after which it looks at all rows again, wherever the chain then is; 0 for never."""
        return 0

    def renewed(self, posterior: Posterior, position: PyTree, passes: Passes, state: Any) -> PyTree:
        """What it carries from there on: as it stands, what it would if it began there. `position` has all chains."""
        return self.init(posterior, position, passes)

    def made(self, state: Any) -> bool:
        """Whether a state may be its own."""
        return isinstance(state, self.carries)

    def measuring_noise(self) -> Self:
        """Itself, with the `"variance"` of its gradient beside every estimate, for dynamics that learn from that."""
        found = f"the dynamics learn the gradient noise in their warmup, and {self} does not estimate it"
        raise InputError(f"{found}; expected warmup=0, or gradient='minibatch' or 'control-variates'")

    def posterior_at(self, posterior: Posterior, state: Any) -> Posterior:
        """The posterior as a function of what moves."""
        return posterior

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: Any) -> Estimate:
        """The gradient at `position`, and what comes with it."""
        raise NotImplementedError(f"{type(self).__name__} has no estimate(posterior, position, batch, state)")


ROWS, NOISE, START, TEST, GIBBS, ESTIMATE = range(6)
"""What a key is for: the minibatches of an iteration, its noise, the momenta at the beginning, whether a move is accepted, Gibbs
steps, random estimates."""


@dataclass(frozen=True)
class Kernel:
    """A sampler without its data: how gradients are estimated and what the chain does with them.

    As it stands, an iteration is the leaps of its dynamics. A dynamics whose `kernel` returns another does more.

    >>> import sgmcmc
    >>> from sgmcmc.algorithms import MetropolisHamiltonian
    >>> sampler = sgmcmc.sampler_setup(lambda x, rows: -(rows["y"] * x**2).sum(), {"y": [1.0, 2.0]}, 0.0, 0.1,
    ...                                dynamics=MetropolisHamiltonian(L=3), minibatch_size=2)
    >>> sampler.kernel.batches  # one for each leap, and one for the test
    4
    """

    posterior: Posterior
    estimator: Estimator
    dynamics: Dynamics
    schedule: Schedule

    @cached_property
    def noises(self) -> int:
        """Trees of normals that an iteration uses."""
        return self.dynamics.leaps + self.dynamics.refreshes

    @property
    def batches(self) -> int:
        """Minibatches that an iteration uses."""
        return self.dynamics.leaps

    @property
    def pitfall(self) -> str:
        """What else than a large step may lead a chain out of the finite numbers, in a sentence."""
        return self.dynamics.pitfall

    def noise(self, key: jax.Array, t: Any, size: int, dtype: Any) -> jax.Array:
        """That of iteration `t`, one entry for each leap: normals, or keys."""
        own = purpose_key(key, t, NOISE)
        return jax.random.split(own, self.noises) if self.dynamics.keyed else jax.random.normal(own, (self.noises, size), dtype)

    def shaped(self, noise: jax.Array, position: PyTree) -> PyTree:
        """The noise as dynamics are given it: normals are cut into trees like the position."""
        return noise if self.dynamics.keyed else split(noise, position)

    @cached_property
    def chain_axes(self) -> State:
        """Which leaves of a state have one entry per chain, for `jax.vmap`."""
        axes: Any = {"step": None, "seed": None, "estimator": self.estimator.chain_axes}
        return State(key=0, params=0, position=0, gradient=0, auxiliary=0, **axes)  # pyright: ignore[reportArgumentType]: axes

    @property
    def constants(self) -> PyTree:
        """What compiled programs are given as arguments: constants of the dynamics, and step sizes; nothing where these change,
        since the function by which they do is a part of the program.
        """
        if self.schedule.varies:
            return {}, None
        return {name: getattr(self.dynamics, name) for name in self.dynamics.traced}, self.schedule.constant

    def given(self, constants: PyTree) -> Self:
        """The same kernel with such constants."""
        of_dynamics, steps = constants
        dynamics = replace(self.dynamics, **of_dynamics) if of_dynamics else self.dynamics  # pyright: ignore[reportArgumentType]
        return replace(self, dynamics=dynamics, schedule=replace(self.schedule, constant=steps))

    def posterior_at(self, state: State) -> Posterior:
        """The posterior as a function of what moves."""
        return self.estimator.posterior_at(self.posterior, state.estimator)

    def start(self, key: jax.Array, seed: jax.Array, position: PyTree, batch: Batch, est_state: PyTree) -> State:
        """The state before the first iteration."""
        eps = self.schedule.at(1, position)
        auxiliary = self.dynamics.start(position, eps, normals(purpose_key(key, 0, START), position))
        return self.place(State(jnp.int32(0), key, position, position, position, auxiliary, est_state, seed), batch)

    def place(self, state: State, batch: Batch) -> State:
        """A state whose position was moved: its parameters, and its gradient evaluated there."""
        batch = self._keyed(batch, state.key, state.step, self.dynamics.leaps)
        gradient, est_state, _ = self.estimator.estimate(self.posterior, state.position, batch, state.estimator)
        return self._moved(state, state.step, Motion(state.position, gradient, state.auxiliary), est_state)

    def step(self, state: State, batch_of: Callable[[Any], Batch], noise: PyTree) -> State:
        """One iteration. `batch_of(l)` is minibatch `l`, that of leap `l`; `noise` has `noises` trees, or keys, in front."""
        dynamics, t = self.dynamics, state.step + 1
        eps = self.schedule.at(t, state.position)
        before = self.schedule.at(jnp.maximum(t - 1, 1), state.position)
        motion = Motion(state.position, state.gradient, state.auxiliary)
        fresh = tree_map(itemgetter(dynamics.leaps), noise) if dynamics.refreshes else None
        if dynamics.refreshes or self.schedule.varies:
            motion = dynamics.refresh(motion, eps, before, fresh)

        def leap(number: Any, carry: tuple[Motion, PyTree]) -> tuple[Motion, PyTree]:
            motion, est_state = carry
            z = tree_map(itemgetter(number), noise)
            motion = dynamics.move(motion, eps, z)
            batch = self._keyed(batch_of(number), state.key, t, number)
            gradient, est_state, stats = self.estimator.estimate(self.posterior, motion.position, batch, est_state)
            return dynamics.settle(motion, gradient, stats, eps, z, t), est_state

        carry = (motion, state.estimator)
        carry = leap(0, carry) if dynamics.leaps == 1 else jax.lax.fori_loop(0, dynamics.leaps, leap, carry)
        return self._moved(state, t, *carry)

    def log_posterior(self, state: State, batch: Batch) -> jax.Array:
        """The estimate from one minibatch of the log posterior where a chain is."""
        return self.posterior_at(state).log_posterior(state.position, batch)

    def _keyed(self, batch: Batch, key: jax.Array, t: Any, number: Any) -> Batch:
        """A minibatch with the key of an estimate, where it needs one."""
        if not self.estimator.random:
            return batch
        return replace(batch, key=jax.random.fold_in(purpose_key(key, t, ESTIMATE), number))

    def _moved(self, state: State, step: jax.Array, motion: Motion, est_state: PyTree) -> State:
        params = self.estimator.posterior_at(self.posterior, est_state).transform.to_params(motion.position)
        return State(step, state.key, params, motion.position, motion.gradient, motion.auxiliary, est_state, state.seed)


def purpose_key(key: jax.Array, t: Any, purpose: int) -> jax.Array:
    """The key of iteration `t` for one purpose, from a chain's key as plain numbers."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(key), purpose), t)


def row_keys(key: jax.Array, step: jax.Array, count: int, leaps: int) -> jax.Array:
    """The keys of the minibatches of `count` iterations after `step`: axes iteration, (chain,) leap."""
    return per_step_and_chain(lambda k, t: jax.random.split(purpose_key(k, t, ROWS), leaps), key, step + 1 + jnp.arange(count))


def normals(key: jax.Array, like: PyTree) -> PyTree:
    """Standard normals shaped like a tree."""
    dtype = jnp.result_type(*jax.tree.leaves(like))
    return split(jax.random.normal(key, (size(like),), dtype), like)


def per_step_and_chain(function: Any, key: jax.Array, steps: jax.Array) -> jax.Array:
    """`function(key, step)` for every step and, with several keys, chain: in one map, since nested ones compile slowly."""
    if key.ndim == 1:
        return jax.vmap(function, in_axes=(None, 0))(key, steps)
    chains = len(key)
    values = jax.vmap(function)(jnp.tile(key, (len(steps), 1)), jnp.repeat(steps, chains))
    return values.reshape(len(steps), chains, *values.shape[1:])
