"""What is compiled: a chunk of iterations, single steps, and looks at one minibatch; for one device or a mesh of them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from sgmcmc.algorithms.kernel import Kernel, per_step_and_chain
from sgmcmc.checkpoints.fingerprint import known, of_value
from sgmcmc.core.compiling import options
from sgmcmc.core.sameness import Keyed, Recent, sameness
from sgmcmc.core.slicing import entry_of
from sgmcmc.core.trees import Batch, PyTree, State, all_finite, size, tree_map, where
from sgmcmc.results.keeps import Keep, seen_by
from sgmcmc.rows.sources import Source, Take
from sgmcmc.run.spread import CHAINS, Spread, specs_along_chains, specs_of

MOST_KEPT = 64
"""Kernels whose programs are kept while the process lives, those last asked for."""

_KEPT = Recent(MOST_KEPT)


@dataclass(frozen=True)
class Programs:
    """The programs of a kernel. Data are arguments of theirs and so are the constants of the kernel, which has none here: so they
    serve every kernel that differs in these alone, and every source that takes its minibatches by the same `take`. `strata` is
    the mesh over which its strata lie, if it has any; `key` says what the kernel is.
    """

    key: Hashable = field(repr=False)
    kernel: Kernel = field(compare=False)
    take: Take
    strata: Spread | None
    paces: dict[Hashable, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Seconds that an iteration took when last run, for each layout."""

    @classmethod
    def of(cls, kernel: Kernel, source: Source, strata: Spread | None) -> "Programs":
        """Those of a kernel: the ones that there are, if some were made for one like it before."""
        bare = kernel.given((dict.fromkeys(kernel.constants[0]), None))
        fresh = cls(_sameness_of_kernel(bare), bare, source.take, strata)
        return _KEPT.get(fresh, lambda: fresh)

    @cached_property
    def chunk(self) -> Any:
        """Many iterations of all chains, with what the keep objects make of them."""
        return jax.jit(self._chunk, static_argnames=("capacity", "keeps", "spread"), compiler_options=options())

    @cached_property
    def single_step(self) -> Any:
        """One iteration on the library's minibatches."""

        def step(kernel: Kernel, state: State, data: PyTree, plan: PyTree) -> State:
            noise = self._noise(state, state.step[None] + 1)[0]
            return self._advance(kernel, state.key.ndim == 2)(state, data, tree_map(itemgetter(0), plan), noise)

        return self._in_all_strata(step)

    @cached_property
    def step_on(self) -> Any:
        """One iteration on a minibatch of the user's."""

        @jax.jit
        def step(constants: PyTree, state: State, batch: Batch) -> State:
            kernel = self._given(constants)

            def one(state: State, noise: jax.Array) -> State:
                return kernel.step(state, lambda _: batch, kernel.shaped(noise, state.position))

            axes = kernel.chain_axes
            mapped = jax.vmap(one, in_axes=(axes, 0), out_axes=axes) if state.chained else one
            return mapped(state, self._noise(state, state.step[None] + 1)[0])

        return step

    @cached_property
    def start(self) -> Any:
        """The state before the first iteration, from keys, seed, position and what the estimator carries."""

        def start(kernel: Kernel, key: jax.Array, batch: Batch, position: PyTree, est_state: PyTree, seed: jax.Array) -> State:
            return kernel.start(key, seed, position, batch, est_state)

        axes = (0, self.kernel.estimator.chain_axes, None)
        return self._on_first_batch(start, lambda arguments: arguments[0], (0, *axes), self.kernel.chain_axes)

    @cached_property
    def place(self) -> Any:
        """A state that was moved, its gradient evaluated."""
        axes = self.kernel.chain_axes
        return self._on_first_batch(type(self.kernel).place, lambda arguments: arguments[0].key, (axes,), axes)

    @cached_property
    def log_posterior(self) -> Any:
        """The estimate of the log posterior where the chains are."""
        axes = self.kernel.chain_axes
        return self._on_first_batch(type(self.kernel).log_posterior, lambda arguments: arguments[0].key, (axes,), 0)

    @cached_property
    def weights(self) -> Any:
        """What draws of some iterations count for where the step size changes; the position is what moves, or its like."""
        return jax.jit(jax.vmap(self.kernel.schedule.weight, in_axes=(0, None)))

    def _given(self, constants: PyTree) -> Kernel:
        """The kernel of a program that is being traced: of no use to others if it is no longer what its key says."""
        if not self.kernel.posterior.unchanged or _sameness_of_kernel(self.kernel) != self.key:
            _KEPT.drop(self)
        return self.kernel.given(constants)

    def _on_first_batch(self, function: Any, key_of: Callable[[Any], jax.Array], axes: Any, out_axes: PyTree) -> Any:
        """`function(kernel, first, batch, *others)` of one chain, for one chain or all, on the first minibatch of a plan."""

        def call(kernel: Kernel, arguments: tuple[PyTree, ...], data: PyTree, plan: PyTree) -> PyTree:
            def one(entry: PyTree, first: PyTree, *others: PyTree) -> PyTree:
                return function(kernel, first, self.take(data, tree_map(itemgetter(0), entry)), *others)

            chained = key_of(arguments).ndim == 2
            mapped = jax.vmap(one, in_axes=(0, *axes), out_axes=out_axes) if chained else one
            return mapped(tree_map(itemgetter(0), plan), *arguments)

        return self._in_all_strata(call)

    def _in_all_strata(self, call: Callable[..., PyTree]) -> Any:
        """Compile `call(kernel, argument, data, plan)` as a function of the kernel's constants and the others, for the devices of
        all strata where there are any.
        """

        def program(constants: PyTree, *given: PyTree) -> PyTree:
            return call(self._given(constants), *given)

        if self.strata is None:
            return jax.jit(program, compiler_options=options())
        specs = (P(), P(), self.strata.data_spec(True), self.strata.plan_spec(True, False))
        return jax.jit(self.strata.map(program, specs, P()), compiler_options=options())

    def _chunk(
        self, constants: PyTree, state: State, carries: PyTree, data: PyTree, plan: PyTree, *numbers: jax.Array,
        capacity: int, keeps: Keyed, spread: Spread | None,
    ) -> tuple[State, PyTree, PyTree, dict[str, Any]]:  # fmt: skip
        chunk = partial(self._chunk_of_one_device, capacity=capacity, keeps=keeps.value)
        if spread is None:
            return chunk(constants, state, carries, data, plan, *numbers)
        states, (carried, pieces) = self.state_specs(state), self.keep_specs(keeps.value, state, capacity)
        report = {"steps": P(CHAINS), "attempted": states.position, "log_posterior": P(CHAINS), "proposal": P()}
        in_strata = self.strata is not None
        data_spec, plan_spec = spread.data_spec(in_strata), spread.plan_spec(in_strata, state.chained)
        given = (P(), states, carried, data_spec, plan_spec, P(), P(), P(), data_spec)
        made = (self.moving(states), carried, pieces, report)
        return spread.map(chunk, given, made)(constants, state, carries, data, plan, *numbers)

    def _chunk_of_one_device(
        self, constants: PyTree, state: State, carries: PyTree, data: PyTree, plan: PyTree,
        count: Any, skip: Any, thin: Any, proposal: Any, *, capacity: int, keeps: tuple[Keep, ...],
    ) -> tuple[State, PyTree, PyTree, dict[str, Any]]:  # fmt: skip
        """A chunk of the chains that one device has. It stops when one of these leaves the finite numbers: devices do not ask
        each other at every step. What an estimator carries is then that of the step that failed: to choose between two tables
        of all rows at every step would cost more than the step. What chains share of it is not handed back: it never changes,
        and copies of matrices would cost more than steps.
        """
        kernel, chained, given = self._given(constants), state.key.ndim == 2, state
        state = self.moving(given)
        schedule, advance = kernel.schedule, self._advance(kernel, chained)
        noise = self._noise(state, state.step + 1 + jnp.arange(capacity))
        opened = zip(keeps, carries, strict=True)
        works = tuple(keep.open(carry, seen_by(keep, state), capacity, chained) for keep, carry in opened)

        def goes_on(loop: Any) -> jax.Array:
            return (loop[0] < count) & loop[1]

        def iteration(loop: Any) -> Any:
            k, _, state, _, works = loop
            new = self.moving(advance(self.with_shared(state, given), data, entry_of(plan, k), noise[k]))
            finite = all_finite(new.position, new.gradient)
            state = replace(where(finite, replace(new, estimator=()), replace(state, estimator=())), estimator=new.estimator)
            since = state.step - skip
            hit = finite & (since > 0) & (since % thin == 0)
            weight = schedule.weight(state.step, state.position) if schedule.function is not None else jnp.ones(())
            shown = zip(keeps, works, strict=True)
            works = tuple(keep.update(w, seen_by(keep, state), weight, hit, chained) for keep, w in shown)
            return k + finite, finite, state, (new.position, new.gradient), works

        loop = (jnp.int32(0), jnp.bool(True), state, (state.position, state.gradient), works)
        steps, _, state, attempted, works = jax.lax.while_loop(goes_on, iteration, loop)
        carries, pieces = zip(*map(lambda keep, w: keep.close(w), keeps, works), strict=True) if keeps else ((), ())
        last, axis = entry_of(plan, jnp.maximum(steps - 1, 0)), self.kernel.posterior.axis
        log_posterior = self._mean_log_posterior(kernel, self.with_shared(state, given), data, last)
        agreed = proposal if axis is None else jax.lax.pmin(proposal, axis)
        report = {"steps": steps[None], "attempted": attempted, "log_posterior": log_posterior[None], "proposal": agreed}
        return state, carries, pieces, report

    def _advance(self, kernel: Kernel, chained: bool) -> Any:
        """One iteration of one chain or of all, as a function of state, data, entry of the plan and flat noise."""

        def one(state: State, data: PyTree, entry: PyTree, noise: jax.Array) -> State:
            return kernel.step(state, lambda leap: self.take(data, entry_of(entry, leap)), kernel.shaped(noise, state.position))

        axes = kernel.chain_axes
        return jax.vmap(one, in_axes=(axes, None, 0, 0), out_axes=axes) if chained else one

    def _noise(self, state: State, steps: jax.Array) -> jax.Array:
        """All the noise of some iterations: axes iteration, (chain,) leap, and of normals number."""
        dtype = jnp.result_type(*jax.tree.leaves(state.position))
        dimension = size(state.position) // (len(state.key) if state.key.ndim == 2 else 1)
        draw = partial(self.kernel.noise, size=dimension, dtype=dtype)
        return per_step_and_chain(draw, state.key, steps)

    def _mean_log_posterior(self, kernel: Kernel, state: State, data: PyTree, entry: PyTree) -> jax.Array:
        """The estimate on the first minibatch of an entry, averaged over chains."""

        def one(state: State, entry: PyTree) -> jax.Array:
            return kernel.log_posterior(state, self.take(data, tree_map(itemgetter(0), entry)))

        if state.key.ndim == 1:
            return one(state, entry)
        return jnp.mean(jax.vmap(one, in_axes=(kernel.chain_axes, 0))(state, entry))

    def moving(self, state: State) -> State:
        """A state without what the chains share, which never changes."""
        return state if self.kernel.estimator.per_chain else replace(state, estimator=())

    def with_shared(self, state: State, of: State) -> State:
        """A state that moved, with what it shares with the one it came from."""
        return state if self.kernel.estimator.per_chain else replace(state, estimator=of.estimator)

    def state_specs(self, state: State) -> State:
        """Which leaves of a state lie along the chains' devices."""
        return specs_of(self.kernel.chain_axes, state.chained)

    def keep_specs(self, keeps: tuple[Keep, ...], state: State, capacity: int) -> tuple[PyTree, PyTree]:
        """Where the chains are in what keep objects carry, and in what they hand over."""

        def closed(state: State) -> list[tuple[PyTree, PyTree]]:
            return [keep.close(keep.open(keep.begin(), seen_by(keep, state), capacity, state.chained)) for keep in keeps]

        specs = specs_along_chains(closed, state, self.kernel.chain_axes)
        return tuple(carry for carry, _ in specs), tuple(piece for _, piece in specs)


def _sameness_of_kernel(kernel: Kernel) -> Hashable:
    """What a kernel without its constants is, the posterior being known by what was traced of it."""
    parts = {one.name: getattr(kernel, one.name) for one in fields(kernel) if one.name not in ("posterior", "schedule")}
    steps = kernel.schedule.function
    return sameness(type(kernel)), kernel.posterior, sameness(parts), None if steps is None else known(steps, np.int32(1))


def keyed(keeps: tuple[Keep, ...], params: PyTree) -> Keyed:
    """Keep objects, known by what they are made of and do with parameters; by nothing where that is not to be seen."""
    try:
        told = tuple(of_value(keep, params) for keep in keeps)
    except Exception:  # objects of the user's need not be open to this
        told = object()
    return Keyed((told, sameness(keeps)), keeps)
