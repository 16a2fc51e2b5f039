"""The compiled, chunked loop: many iterations a call, chains side by side, minibatches fetched while it computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from sgmcmc.algorithms.gradients.minibatch import log_posterior
from sgmcmc.algorithms.kernel import CHAIN_AXES, Kernel, row_keys, step_noise
from sgmcmc.checkpoints.places import Saver, Standing
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import all_finite, size, split, tree_map, where
from sgmcmc.core.types import Batch, PyTree, State
from sgmcmc.results.keeps import Keep, seen_by
from sgmcmc.rows.sources import Source, on_device
from sgmcmc.rows.strata import StratumRows
from sgmcmc.run.chunks import Ahead, Pace, stoppable
from sgmcmc.run.hosts import waiting_for_peers
from sgmcmc.run.spread import CHAINS, Spread, make_spread, specs_along_chains, state_specs, strata_of


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


LARGEST_CHUNK = 2000
CHUNK_BYTES = 32 << 20
"""A chunk's minibatches and noise stay below this, so that they are still in cache when the loop reads them."""


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
        per_device = per_step // self.devices(state)  # each has caches of its own
        affordable = max(1, min(LARGEST_CHUNK, CHUNK_BYTES // max(1, per_device)))
        return min(affordable, power_of_two(n_iters))  # short runs of different lengths share a few programs

    def spread(self, chains: int | None) -> Spread | None:
        """How so many chains lie on the devices; None where one device does it all."""
        return make_spread(chains, strata_of(self.source))

    def devices(self, state: State) -> int:
        """Devices over which a state's chains are spread."""
        spread = self.spread(n_chains(state))
        return 1 if spread is None else spread.devices

    def layout(self, state: State) -> dict[str, int]:
        """The devices that a state's chains lie on, and the strata that the rows are in, for the record."""
        strata = {"strata": self.source.stratum.count} if isinstance(self.source, StratumRows) else {}
        return {"devices": self.devices(state), **strata}

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
        spread = self.spread(n_chains(state))
        shared = spread is not None and spread.over_processes
        carried = None if spread is None else _keep_specs(keeps, state, capacity, chained)[0]
        failed, error, interrupted, pace, between = None, None, False, Pace(capacity), True
        # The random numbers of a chunk's rows are queued before the chunk that precedes it, or they would wait for it.
        with Ahead(partial(self.gather, spread=spread)) as rows, stoppable(terminated=saver is not None) as stop:
            try:
                if run.done < total:
                    rows.ask(self.draw(key, first_step + run.done, capacity), min(pace.count, total - run.done))
                while run.done < total and failed is None and not pace.ended:
                    count = min(pace.count, total - run.done)
                    upcoming = min(pace.upcoming, total - run.done - count)
                    plan = self.placed(rows.get(), spread, chained)
                    if upcoming:
                        rows.ask(self.draw(key, first_step + run.done + count, capacity), upcoming)
                    chunk = partial(
                        self._call_chunk, carried, run.state, run.carries, plan, first_step + burn_in, thin, pace.proposal,
                        capacity=capacity, keeps=keeps, chained=chained, spread=spread,
                    )  # fmt: skip
                    with _watched(spread, f"iterations {first_step + run.done + 1} to {first_step + run.done + count}"):
                        queued = chunk(count)
                        pace.start()
                        state_after, carries_after, pieces, report = _in_step(chunk, queued)
                    steps, log_posterior = report["steps"], report["log_posterior"]
                    between = False  # what ends the run here must not be saved: some stores may have the chunk, others not
                    _hand_over(run.stores, pieces)
                    run.state, run.carries, run.done = state_after, carries_after, run.done + steps
                    if steps:  # else the figure is that of the minibatch that ended it
                        run.finite = run.finite and math.isfinite(log_posterior)
                    between, failed = True, report["attempted"] if steps < count else None
                    pace.stop(count, stop.asked, report["proposal"] if shared else None)
                    if saver is not None:
                        saver.save(run, finished=run.done >= total or failed is not None or pace.ended)
                    bar.update(steps, log_posterior=log_posterior)
            except KeyboardInterrupt:
                interrupted = True
            except SgmcmcError as raised:
                error = raised
            finally:
                if saver is not None and between and not shared:  # peers would wait for each other
                    error = _last_save(saver, run, error)
        values = run.values(keeps, chained)
        stopped = interrupted or (pace.ended and run.done < total)
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
        spread = self.spread(None) if strata_of(self.source) else None
        return self.placed(self.gather(self.draw(key, step, 1), 1, spread), spread, key.ndim == 2)

    def gather(self, drawn: PyTree, count: int, spread: Spread | None) -> PyTree:
        """The minibatches of `count` iterations from their random part, on the host."""
        return self.source.prepare(drawn, count) if spread is None else spread.gather(self.source, drawn, count)

    def placed(self, plan: PyTree, spread: Spread | None, chained: bool) -> PyTree:
        """The same where the devices need them."""
        return on_device(plan) if spread is None else spread.put(self.source, plan, chained)

    def draw(self, key: jax.Array, step: int, capacity: int) -> PyTree:
        """The random part of the `capacity` iterations after `step`, queued on the device. A short chunk does not need them
        all, but another size would compile anew.
        """
        return self.source.draw(_keys_of_rows(key, step, capacity, self.kernel.dynamics.leaps))

    @cached_property
    def _chunk(self) -> Any:
        return jax.jit(self._chunk_traced, static_argnames=("capacity", "keeps", "chained", "spread"))

    def _call_chunk(
        self, carried: PyTree, state: State, carries: PyTree, plan: PyTree, skip: int, thin: int, proposal: int, count: int,
        *, capacity: int, keeps: tuple[Keep, ...], chained: bool, spread: Spread | None,
    ) -> tuple[State, PyTree, PyTree, dict[str, Any]]:  # fmt: skip
        """A chunk, queued; with arrays of this process, whatever the devices it runs on."""
        call = partial(self._chunk, capacity=capacity, keeps=keeps, chained=chained, spread=spread)
        if spread is None:
            return call(state, carries, self.source.data, plan, count, skip, thin, proposal)
        state, carries = spread.place((state, carries), (state_specs(chained), carried))
        proposals = spread.place(np.full(max(1, strata_of(self.source)), proposal, np.int32), spread.data_spec(self.source))
        return spread.taken(call(state, carries, self._data_on(spread), plan, count, skip, thin, proposals))

    def _data_on(self, spread: Spread) -> PyTree:
        """The source's data on the devices of a spread: put there once."""
        if spread not in self._placed:
            self._placed[spread] = spread.place(self.source.data, spread.data_spec(self.source))
        return self._placed[spread]

    @cached_property
    def _placed(self) -> dict[Spread, PyTree]:
        return {}

    def _chunk_traced(
        self, state: State, carries: PyTree, data: PyTree, plan: PyTree, *numbers: jax.Array,
        capacity: int, keeps: tuple[Keep, ...], chained: bool, spread: Spread | None,
    ) -> tuple[State, PyTree, PyTree, dict[str, Any]]:  # fmt: skip
        chunk = partial(self._chunk_of_one_device, capacity=capacity, keeps=keeps, chained=chained)
        if spread is None:
            return chunk(state, carries, data, plan, *numbers)
        states, (carried, pieces) = state_specs(chained), _keep_specs(keeps, state, capacity, chained)
        source = self.source
        report = {"steps": P(CHAINS), "attempted": P(CHAINS) if chained else P(), "log_posterior": P(CHAINS), "proposal": P()}
        data_spec, plan_spec = spread.data_spec(source), spread.plan_spec(source, chained)
        given = (states, carried, data_spec, plan_spec, P(), P(), P(), data_spec)
        return spread.map(chunk, given, (states, carried, pieces, report))(state, carries, data, plan, *numbers)

    def _chunk_of_one_device(
        self, state: State, carries: PyTree, data: PyTree, plan: PyTree, count: Any, skip: Any, thin: Any, proposal: Any,
        *, capacity: int, keeps: tuple[Keep, ...], chained: bool,
    ) -> tuple[State, PyTree, PyTree, dict[str, Any]]:  # fmt: skip
        """A chunk of the chains that one device has. It stops when one of these leaves the finite numbers: devices do not ask
        each other at every step.
        """
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
        axis = self.kernel.estimator.axis
        report = {
            "steps": steps[None],
            "attempted": attempted,
            "log_posterior": self.log_posterior(state, data, last, chained)[None],
            "proposal": proposal if axis is None else jax.lax.pmin(proposal, axis),
        }
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

        def one(position: PyTree, entry: PyTree) -> jax.Array:
            return log_posterior(self.kernel.estimator, state.estimator, position, self.source.take(data, _pick(entry, 0)))

        return jnp.mean(jax.vmap(one)(state.position, entry)) if chained else one(state.position, entry)

    @cached_property
    def single_step(self) -> Any:
        """One compiled iteration on the library's minibatches."""

        def step(state: State, data: PyTree, plan: PyTree, *, chained: bool) -> State:
            noise = self.noise(state, state.step[None] + 1)[0]
            return self.advance(chained)(state, data, _pick(plan, 0), noise)

        return self._in_all_strata(step)

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

        def call(argument: PyTree, data: PyTree, plan: PyTree, *, chained: bool) -> PyTree:
            def one(argument: PyTree, entry: PyTree) -> PyTree:
                return function(argument, self.source.take(data, _pick(entry, 0)))

            mapped = jax.vmap(one, in_axes=(axes, 0), out_axes=out_axes) if chained else one
            return mapped(argument, _pick(plan, 0))

        return self._in_all_strata(call)

    def _in_all_strata(self, call: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """Compile `call(argument, data, plan, chained)`, for the devices of all strata where there are any."""
        spread = self.spread(None) if strata_of(self.source) else None
        if spread is None:
            return jax.jit(call, static_argnames="chained")
        given = (P(), spread.data_spec(self.source), spread.plan_spec(self.source, False))

        @partial(jax.jit, static_argnames="chained")
        def compiled(*arguments: PyTree, chained: bool) -> PyTree:
            return spread.map(partial(call, chained=chained), given, P())(*arguments)

        def called(argument: PyTree, _: PyTree, plan: PyTree, *, chained: bool) -> PyTree:
            with _watched(spread, "one minibatch"):
                value = compiled(spread.place(argument, P()), self._data_on(spread), plan, chained=chained)
                return spread.taken(jax.block_until_ready(value))

        return called


def _keep_specs(keeps: tuple[Keep, ...], state: State, capacity: int, chained: bool) -> tuple[PyTree, PyTree]:
    """Where the chains are in what keep objects carry, and in what they hand over."""

    def closed(state: State) -> list[tuple[PyTree, PyTree]]:
        seen = [(keep, seen_by(keep, state)) for keep in keeps]
        return [keep.close(keep.open(keep.begin(one, chained), one, capacity, chained)) for keep, one in seen]

    specs = specs_along_chains(closed, state, chained)
    return tuple(carry for carry, _ in specs), tuple(piece for _, piece in specs)


def _in_step(chunk: Callable[[int], Any], queued: Any) -> tuple[State, PyTree, PyTree, dict[str, Any]]:
    """A chunk's results, all devices at the same step. Where the chains of some left the finite numbers, the others went on
    without them: the chunk is computed again up to there, which gives the same numbers.
    """
    state, carries, pieces, report = queued
    each = np.asarray(report["steps"])
    steps, attempted = int(each.min()), report["attempted"]
    if steps < each.max():
        state, carries, pieces, again = chunk(steps)
        left = np.repeat(each == steps, n_chains(state) // len(each))  # pyright: ignore[reportOptionalOperand]: chained
        pick = partial(_pick_chains, left)
        report, attempted = again, tree_map(pick, attempted, again["attempted"])
    log_posterior, proposal = float(np.mean(report["log_posterior"])), int(np.min(report["proposal"]))
    told = {"steps": steps, "attempted": attempted, "log_posterior": log_posterior, "proposal": proposal}
    return state, carries, pieces, told


def _pick_chains(which: np.ndarray, yes: jax.Array, no: jax.Array) -> np.ndarray:
    return np.where(which.reshape(-1, *(1,) * (yes.ndim - 1)), np.asarray(yes), np.asarray(no))


def _watched(spread: Spread | None, what: str) -> AbstractContextManager[None]:
    return waiting_for_peers(what) if spread is not None and spread.over_processes else nullcontext()


def _hand_over(stores: tuple[Any, ...], pieces: tuple[Any, ...]) -> None:
    """Give every store what its keep object made of a chunk. Where one fails, all have the draws they had before."""
    before = [getattr(store, "filled", None) for store in stores]
    try:
        for store, piece in zip(stores, pieces, strict=True):
            if store is not None:
                store.add(piece)
    except BaseException:
        for store, filled in zip(stores, before, strict=True):
            if filled is not None:
                store.filled = filled
        raise


def _last_save(saver: Saver, run: Standing, error: SgmcmcError | None) -> SgmcmcError | None:
    """Save where a run ended; what ended it is more telling than what goes wrong here."""
    try:
        saver.save(run, finished=True)
    except SgmcmcError as raised:
        return error or raised
    return error


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
