"""The compiled, chunked loop: many iterations a call, chains side by side, minibatches fetched while it computes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from sgmcmc._tree import all_finite, size, split, tree_map, where
from sgmcmc._types import Batch, PyTree, State
from sgmcmc.errors import SgmcmcError
from sgmcmc.kernel import CHAIN_AXES, Kernel, row_keys, step_noise
from sgmcmc.prefetch import Ahead
from sgmcmc.progress import Bar
from sgmcmc.signals import stoppable
from sgmcmc.sources import Source, on_device
from sgmcmc.summaries import Keep, seen_by

LARGEST_CHUNK = 1000
CHUNK_BYTES = 32 << 20
"""A chunk's minibatches and noise stay below this, so that they are still in cache when the loop reads them."""

CHUNK_SECONDS = 0.3
"""How long a chunk should take at most: how often the progress bar moves and Ctrl-C is heard."""


@dataclass(frozen=True)
class Outcome:
    """How far a run came and what it kept."""

    state: State
    values: tuple[Any, ...]
    stored: int
    failed_at: State | None
    interrupted: bool
    finite: bool
    error: SgmcmcError | None = None

    def whole(self) -> Outcome:
        """Itself, unless something other than a chain ended the run early: then that."""
        if self.error is not None:
            raise self.error
        if self.interrupted:
            raise KeyboardInterrupt
        return self


@dataclass
class Standing:
    """Where a run stands between two chunks: all it needs to go on.

    Attributes:
        state: of the chains.
        carries: what the keep objects carry from chunk to chunk.
        stores: what they have handed over to the host.
        done: iterations, burn-in included.
        finite: whether the log posterior was, so far.
    """

    state: State
    carries: tuple[Any, ...]
    stores: tuple[Any, ...]
    done: int = 0
    finite: bool = True

    def values(self, keeps: tuple[Keep, ...], chained: bool) -> tuple[Any, ...]:
        """What the keep objects have to show for it."""
        kept = zip(keeps, self.carries, self.stores, strict=True)
        return tuple(keep.finish(seen_by(keep, self.state), carry, store, chained) for keep, carry, store in kept)


class Saver(Protocol):
    """Who writes down where a run stands."""

    def store(self, number: int, keep: Keep, seen: PyTree, chained: bool) -> Any:
        """A place for what a keep object hands over, or None for one in memory."""
        ...

    def resume(self, standing: Standing) -> Standing:
        """Where the run stood when it was last saved, or as it is."""
        ...

    def save(self, standing: Standing, finished: bool) -> None:
        """Write it down, if it is time."""
        ...


@dataclass(frozen=True)
class Loop:
    """A kernel and its data, compiled."""

    kernel: Kernel
    source: Source

    def with_source(self, source: Source) -> Loop:
        """The same loop on another source of the same kind and sizes: what was compiled serves it too."""
        loop = Loop(self.kernel, source)
        loop.__dict__["_chunk"] = self._chunk
        return loop

    def capacity(self, state: State, n_iters: int, chunk_size: int | None) -> int:
        """Iterations per compiled chunk."""
        if chunk_size is not None:
            return chunk_size
        leaps, itemsize = self.kernel.dynamics.leaps, jnp.result_type(float).itemsize
        chains = n_chains(state) or 1
        per_step = chains * leaps * self.source.bytes_per_batch + itemsize * self.kernel.noises * size(state.position)
        affordable = max(1, min(LARGEST_CHUNK, CHUNK_BYTES // max(1, per_step)))
        return min(affordable, power_of_two(n_iters))  # short runs of different lengths share a few programs

    def run(
        self,
        state: State,
        n_iters: int,
        burn_in: int,
        thin: int,
        keeps: tuple[Keep, ...],
        bar: Bar,
        chunk_size: int | None = None,
        saver: Saver | None = None,
    ) -> Outcome:
        """`burn_in + n_iters` iterations; every `thin`-th of the last `n_iters` is shown to the keep objects.

        What ends it early (a chain that left, a signal, rows that cannot be read) leaves all that was done before in the
        outcome, and with a `saver` on disk.
        """
        chained, total = n_chains(state) is not None, burn_in + n_iters
        capacity = self.capacity(state, total, chunk_size)
        key, first_step = state.key, int(state.step)
        run = self._standing(state, n_iters // thin, keeps, saver, chained)
        bar.update(run.done)
        failed, error, interrupted, pace = None, None, False, _Pace(capacity)
        # The random numbers of a chunk's rows are queued before the chunk that precedes it, or they would wait for it.
        with Ahead(self.source.prepare) as rows, stoppable(terminated=saver is not None) as stop:
            try:
                if run.done < total:
                    rows.ask(self.draw(key, first_step + run.done, capacity), min(pace.count, total - run.done))
                while run.done < total and failed is None and not stop.asked:
                    count = min(pace.count, total - run.done)
                    upcoming = min(pace.upcoming, total - run.done - count)
                    plan = on_device(rows.get())
                    if upcoming:
                        rows.ask(self.draw(key, first_step + run.done + count, capacity), upcoming)
                    state_after, carries_after, pieces, report = self._chunk(
                        run.state, run.carries, self.source.data, plan, count, first_step + burn_in, thin,
                        capacity=capacity, keeps=keeps, chained=chained,
                    )  # fmt: skip
                    pace.start()
                    steps, log_posterior = int(report["steps"]), float(report["log_posterior"])
                    # From here on the chunk counts: what ends the run before leaves all as it was, what comes after nothing out.
                    run.state, run.carries, run.done = state_after, carries_after, run.done + steps
                    run.finite = run.finite and math.isfinite(log_posterior)
                    for store, piece in zip(run.stores, pieces, strict=True):
                        if store is not None:
                            store.add(piece)
                    failed = report["attempted"] if steps < count else None
                    if saver is not None:
                        saver.save(run, finished=run.done >= total or failed is not None or stop.asked)
                    pace.stop(count)
                    bar.update(steps, log_posterior=log_posterior)
            except KeyboardInterrupt:
                interrupted = True
            except SgmcmcError as raised:
                error = raised
        values = run.values(keeps, chained)
        stopped = interrupted or (stop.asked and run.done < total)
        return Outcome(run.state, values, max(0, run.done - burn_in) // thin, failed, stopped, run.finite, error)

    def _standing(self, state: State, looks: int, keeps: tuple[Keep, ...], saver: Saver | None, chained: bool) -> Standing:
        """Where a run starts, or where it was when it was saved."""
        seen = [seen_by(keep, state) for keep in keeps]
        carries = tuple(keep.begin(params, chained) for keep, params in zip(keeps, seen, strict=True))
        if saver is None:
            return Standing(state, carries, tuple(k.store(p, looks, chained) for k, p in zip(keeps, seen, strict=True)))
        numbered = enumerate(zip(keeps, seen, strict=True))
        stores = tuple(saver.store(i, k, p, chained) or k.store(p, looks, chained) for i, (k, p) in numbered)
        return saver.resume(Standing(state, carries, stores))

    def prepare(self, key: jax.Array, step: int) -> PyTree:
        """The minibatches of the iteration after `step`: axes iteration, (chain,) leap."""
        return on_device(self.source.prepare(self.draw(key, step, 1), 1))

    def draw(self, key: jax.Array, step: int, capacity: int) -> PyTree:
        """The random part of the `capacity` iterations after `step`, queued on the device. A short chunk does not need them
        all, but another size would compile anew.
        """
        return self.source.draw(_keys_of_rows(key, step, capacity, self.kernel.dynamics.leaps))

    @cached_property
    def _chunk(self) -> Any:
        return jax.jit(self._chunk_traced, static_argnames=("capacity", "keeps", "chained"))

    def _chunk_traced(
        self, state: State, carries: PyTree, data: PyTree, plan: PyTree, count: jax.Array, skip: jax.Array, thin: jax.Array,
        *, capacity: int, keeps: tuple[Keep, ...], chained: bool,
    ) -> tuple[State, PyTree, PyTree, dict[str, Any]]:  # fmt: skip
        advance = self.advance(chained)
        noise = self.noise(state, state.step + 1 + jnp.arange(capacity))
        opened = zip(keeps, carries, strict=True)
        works = tuple(keep.open(carry, seen_by(keep, state), capacity, chained) for keep, carry in opened)

        def goes_on(loop: Any) -> jax.Array:
            return (loop[0] < count) & loop[1]

        def iteration(loop: Any) -> Any:
            k, _, state, _, works = loop
            new = advance(state, data, _pick(plan, k), noise[k])
            finite = all_finite(new.position, new.gradient)
            state = where(finite, new, state)
            since = state.step - skip
            hit = finite & (since > 0) & (since % thin == 0)
            weight = self.kernel.schedule.weight(state.step, state.position) if self.kernel.schedule.varies else jnp.ones(())
            shown = zip(keeps, works, strict=True)
            works = tuple(keep.update(w, seen_by(keep, state), weight, hit, chained) for keep, w in shown)
            return k + finite, finite, state, (new.position, new.gradient), works

        loop = (jnp.int32(0), jnp.bool(True), state, (state.position, state.gradient), works)
        steps, _, state, attempted, works = jax.lax.while_loop(goes_on, iteration, loop)
        carries, pieces = zip(*map(lambda keep, w: keep.close(w), keeps, works), strict=True) if keeps else ((), ())
        last = _pick(plan, jnp.maximum(steps - 1, 0))
        report = {"steps": steps, "attempted": attempted, "log_posterior": self.log_posterior(state, data, last, chained)}
        return state, carries, pieces, report

    def advance(self, chained: bool) -> Any:
        """One iteration of one chain or of all, as a function of state, data, entry of the plan and flat noise."""

        def one(state: State, data: PyTree, entry: PyTree, noise: jax.Array) -> State:
            return self.kernel.step(state, lambda leap: self.source.take(data, _pick(entry, leap)), split(noise, state.position))

        return jax.vmap(one, in_axes=(CHAIN_AXES, None, 0, 0), out_axes=CHAIN_AXES) if chained else one

    def noise(self, state: State, steps: jax.Array) -> jax.Array:
        """All the normals of some iterations: axes iteration, (chain,) tree, number."""
        dtype = jnp.result_type(*jax.tree.leaves(state.position))
        dimension = size(state.position) // (n_chains(state) or 1)
        draw = partial(step_noise, noises=self.kernel.noises, size=dimension, dtype=dtype)
        return _per_step_and_chain(draw, state.key, steps)

    def log_posterior(self, state: State, data: PyTree, entry: PyTree, chained: bool) -> jax.Array:
        """The minibatch estimate of the log posterior, averaged over chains, on the first minibatch of an entry."""
        posterior = self.kernel.estimator.posterior_at(state.estimator)

        def one(position: PyTree, entry: PyTree) -> jax.Array:
            return posterior.log_posterior(position, self.source.take(data, _pick(entry, 0)))

        return jnp.mean(jax.vmap(one)(state.position, entry)) if chained else one(state.position, entry)

    @cached_property
    def single_step(self) -> Any:
        """One compiled iteration on the library's minibatches."""

        @partial(jax.jit, static_argnames="chained")
        def step(state: State, data: PyTree, plan: PyTree, *, chained: bool) -> State:
            noise = self.noise(state, state.step[None] + 1)[0]
            return self.advance(chained)(state, data, _pick(plan, 0), noise)

        return step

    @cached_property
    def step_on(self) -> Any:
        """One compiled iteration on a minibatch of the user's."""

        @partial(jax.jit, static_argnames="chained")
        def step(state: State, batch: Batch, *, chained: bool) -> State:
            def one(state: State, noise: jax.Array) -> State:
                return self.kernel.step(state, lambda _: batch, split(noise, state.position))

            mapped = jax.vmap(one, in_axes=(CHAIN_AXES, 0), out_axes=CHAIN_AXES) if chained else one
            return mapped(state, self.noise(state, state.step[None] + 1)[0])

        return step

    def on_one_batch(self, function: Any, axes: PyTree, out_axes: PyTree) -> Any:
        """Compile `function(argument, batch)` of one chain for one chain or all, on the first minibatch of a plan."""

        @partial(jax.jit, static_argnames="chained")
        def call(argument: PyTree, data: PyTree, plan: PyTree, *, chained: bool) -> PyTree:
            def one(argument: PyTree, entry: PyTree) -> PyTree:
                return function(argument, self.source.take(data, _pick(entry, 0)))

            mapped = jax.vmap(one, in_axes=(axes, 0), out_axes=out_axes) if chained else one
            return mapped(argument, _pick(plan, 0))

        return call


class _Pace:
    """How many iterations to ask of a chunk, so that it takes about `CHUNK_SECONDS`; the next one is decided a chunk ahead."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._clock = capacity, 0.0
        self.count = self.upcoming = min(8, capacity)

    def start(self) -> None:
        """The chunk was handed over (and compiled, if it was the first)."""
        self._clock = time.perf_counter()

    def stop(self, count: int) -> None:
        """It is back."""
        seconds = (time.perf_counter() - self._clock) / count
        self.count, affordable = self.upcoming, int(CHUNK_SECONDS / seconds)
        self.upcoming = max(1, min(self._capacity, affordable))


def power_of_two(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()


def n_chains(state: State) -> int | None:
    """How many chains a state has, or None where it has no chain axis."""
    return state.key.shape[0] if state.key.ndim == 2 else None


@partial(jax.jit, static_argnums=(2, 3))
def _keys_of_rows(key: jax.Array, step: jax.Array, count: int, leaps: int) -> jax.Array:
    return _per_step_and_chain(lambda k, t: row_keys(k, t, leaps), key, step + 1 + jnp.arange(count))


def _per_step_and_chain(function: Any, key: jax.Array, steps: jax.Array) -> jax.Array:
    """`function(key, step)` for every step and, with several keys, chain: in one map, since nested ones compile slowly."""
    if key.ndim == 1:
        return jax.vmap(function, in_axes=(None, 0))(key, steps)
    chains = len(key)
    values = jax.vmap(function)(jnp.tile(key, (len(steps), 1)), jnp.repeat(steps, chains))
    return values.reshape(len(steps), chains, *values.shape[1:])


def _pick(tree: PyTree, number: Any) -> PyTree:
    return tree_map(lambda x: x[number], tree)
