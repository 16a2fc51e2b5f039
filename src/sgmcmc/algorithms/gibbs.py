"""Gibbs steps beside the dynamics: parameters that an update of the user's draws, given all the others, inside the loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.gradients.held import Held
from sgmcmc.algorithms.kernel import GIBBS, Kernel, purpose_key
from sgmcmc.core.checks import check_choice, check_count
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import Batch, PyTree, State, all_finite, tree_map

ALL, MINIBATCH, NONE = ROWS = "all", "minibatch", "none"


@dataclass(frozen=True)
class Gibbs:
    """A block of parameters that an update of yours draws, given all the others: `gibbs={"z": Gibbs(update)}` of any sampler.

    `update(key, params, data)` returns new values of the parameters it owns: of one, its array; of several, a dict by name. It is
    written with jax.numpy and traced once. An owned parameter does not move: it is no part of the position, has no gradient and
    no step size, and may be a whole number. So the update has to leave its conditional law invariant: a draw from it, or a
    Metropolis step.

    Args:
        update: `update(key, params, data)`, or `update(key, params)` where `rows="none"`.
        owns: the names of the parameters it draws; left out, the one under whose name it is given.
        every: it is called after each so-manyth iteration.
        rows: what `data` is: `"all"` rows, a dict of arrays, which must be in memory; a `"minibatch"`, a `Batch` of the sampler's
            size, drawn for this: the law is then that of a noisy update, not of the posterior; `"none"`.
        statistics: `statistics(rows)`, what is to be summed over rows: the sums over all of them, from one pass at set-up,
            wherever the rows are, are then the `data`.

    A scale that only the prior knows, drawn from its conditional:

    >>> import jax, jax.numpy as jnp, numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["y"] - batch["X"] @ params["beta"]) ** 2).sum()
    >>> def log_prior(params):                                  # beta ~ N(0, 1/tau), tau ~ Gamma(1, 1)
    ...     return 0.5 * 3 * jnp.log(params["tau"]) - params["tau"] * (1 + 0.5 * (params["beta"] ** 2).sum())
    >>> def draw_tau(key, params):
    ...     return jax.random.gamma(key, 1 + 3 / 2) / (1 + 0.5 * (params["beta"] ** 2).sum())
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> data = {"X": X, "y": X @ np.array([1.0, -1.0, 0.0]) + rng.normal(size=1000)}
    >>> out = sgmcmc.sgld(log_lik, data, {"beta": np.zeros(3), "tau": 1.0}, 1e-4, log_prior=log_prior, minibatch_size=100,
    ...                   gibbs={"tau": sgmcmc.Gibbs(draw_tau, rows="none")}, n_iters=2000, seed=1, progress=False)
    >>> out["tau"].shape, bool((out["tau"] > 0).all())
    ((2000,), True)
    """

    update: Callable[..., Any]
    owns: tuple[str, ...] = ()
    every: int = 1
    rows: str = ALL
    statistics: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.update):
            raise InputError(f"update of Gibbs is {describe(self.update)}; expected a function update(key, params, data)")
        own = (self.owns,) if isinstance(self.owns, str) else self.owns
        if not isinstance(own, Sequence) or not all(isinstance(name, str) for name in own):
            raise InputError(f"owns of Gibbs is {describe(own)}; expected names of parameters, such as ('mu', 'tau')")
        object.__setattr__(self, "owns", tuple(own))
        check_count("every of Gibbs", self.every)
        check_choice("rows of Gibbs", self.rows, ROWS)
        if self.statistics is not None and not callable(self.statistics):
            raise InputError(f"statistics of Gibbs is {describe(self.statistics)}; expected a function statistics(rows)")
        if self.statistics is not None and self.rows != ALL:
            raise InputError(f"Gibbs got statistics and rows={self.rows!r}; statistics are of all rows: leave rows out")

    def __str__(self) -> str:
        return ", ".join(self.owns) + ("" if self.every == 1 else f" every {self.every} iterations")

    @property
    def on_minibatches(self) -> bool:
        return self.rows == MINIBATCH

    @property
    def on_all_rows(self) -> bool:
        return self.rows == ALL and self.statistics is None

    def drawn(self, key: Any, params: PyTree, data: Any) -> dict[str, Any]:
        """New values of what it owns, by name, as the update returns them."""
        value = self.update(key, params) if self.rows == NONE else self.update(key, params, data)
        by_name = isinstance(value, Mapping) and set(value) == {*self.owns}
        return {**value} if by_name else dict.fromkeys(self.owns, value) if len(self.owns) == 1 else {"": value}


@dataclass(frozen=True)
class Beside(Kernel):
    """A kernel and Gibbs steps: after each of its iterations the blocks that are due draw what they own, one after the other,
    each given all parameters as they are by then; and the gradient is evaluated anew, given what they drew.

    That is on the last minibatch, which neither position nor draws depend on; on one of its own where the estimator remembers
    the rows it has seen, or a test has looked at where they lead. `alone` makes the kernel from the parts of this one, whose
    estimator is a `Held`. `data` are what updates look at, by the name of their block.
    """

    blocks: tuple[tuple[str, Gibbs], ...]
    alone: Callable[..., Kernel] = Kernel
    data: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, kernel: Kernel, blocks: Mapping[str, Gibbs], data: Mapping[str, Any]) -> Self:
        """A kernel on a posterior that holds what the blocks own, with these beside it."""
        parts = kernel.posterior, Held(kernel.estimator), kernel.dynamics, kernel.schedule
        own = {name: value for name, value in vars(kernel).items() if name in kernel.__dataclass_fields__}
        more = {name: value for name, value in own.items() if name not in Kernel.__dataclass_fields__}
        return cls(*parts, tuple(blocks.items()), partial(type(kernel), **more) if more else type(kernel), dict(data))

    @property
    def chain(self) -> Kernel:
        """The kernel without the blocks."""
        return self.alone(self.posterior, self.estimator, self.dynamics, self.schedule)

    @cached_property
    def noises(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.chain.noises

    @property
    def batches(self) -> int:
        return self.chain.batches + self._afresh + self._on_minibatches

    @property
    def constants(self) -> PyTree:
        of_dynamics, steps = super().constants
        return {**of_dynamics, "blocks": self.data}, steps

    def given(self, constants: PyTree) -> Self:
        of_dynamics, steps = constants
        others = {name: value for name, value in of_dynamics.items() if name != "blocks"}
        return replace(super().given((others, steps)), data=of_dynamics["blocks"])

    @property
    def pitfall(self) -> str:
        owned = ", ".join(repr(name) for _, block in self.blocks for name in block.owns)
        found = f"It may be that an update of {owned} returned what is not finite, or where the log posterior is not"
        return f"{found}. {self.chain.pitfall}".removesuffix(". ")

    def start(self, key: jax.Array, seed: jax.Array, position: PyTree, batch: Batch, est_state: PyTree) -> State:
        return self.chain.start(key, seed, position, batch, est_state)

    def place(self, state: State, batch: Batch) -> State:
        return self.chain.place(state, batch)

    def log_posterior(self, state: State, batch: Batch) -> jax.Array:
        return self.chain.log_posterior(state, batch)

    def step(self, state: State, batch_of: Callable[[Any], Batch], noise: PyTree) -> State:
        state, leaps = self.chain.step(state, batch_of, noise), self.dynamics.leaps
        batch = batch_of(self.chain.batches if self._afresh else max(leaps - 1, 0))
        their_own = batch_of(self.batches - 1) if self._on_minibatches else None

        def drawn(state: State) -> State:
            for number, (name, block) in enumerate(self.blocks):
                data = their_own if block.on_minibatches else self.data.get(name)
                state = self._if_due(block.every, state, partial(self._drawn, number, block, data))
            return _lost_with_draws(self.place(state, batch))

        soonest = min(block.every for _, block in self.blocks)
        if all(block.every % soonest == 0 for _, block in self.blocks):
            return self._if_due(soonest, state, drawn)
        due = jnp.stack([state.step % block.every == 0 for _, block in self.blocks]).any()
        return jax.lax.cond(due, drawn, lambda state: state, state)

    @property
    def _afresh(self) -> bool:
        """Whether the gradient after the draws has a minibatch of its own."""
        remembers = isinstance(self.estimator, Held) and self.estimator.inner.per_chain
        return remembers or self.chain.batches > self.dynamics.leaps

    @property
    def _on_minibatches(self) -> bool:
        return any(block.on_minibatches for _, block in self.blocks)

    def _if_due(self, every: int, state: State, move: Callable[[State], State]) -> State:
        return move(state) if every == 1 else jax.lax.cond(state.step % every == 0, move, lambda state: state, state)

    def _drawn(self, number: int, block: Gibbs, data: Any, state: State) -> State:
        """The state with new values of what a block owns; its gradient is still that before."""
        key = jax.random.fold_in(purpose_key(state.key, state.step, GIBBS), number)
        params = self.posterior_at(state).transform.to_params(state.position)
        before = state.estimator.held
        new = {name: jnp.asarray(value, before[name].dtype) for name, value in block.drawn(key, params, data).items()}
        return replace(state, estimator=replace(state.estimator, held={**before, **new}))


def _lost_with_draws(state: State) -> State:
    """A state without a gradient where a draw is not finite: rows and prior need not look at it, and would go on."""
    held = [x for x in jax.tree.leaves(state.estimator.held) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return replace(state, gradient=tree_map(lambda g: jnp.where(all_finite(held), g, jnp.nan), state.gradient)) if held else state
