"""The loop that drives compiled chunks: rows fetched while a chunk computes, draws handed over and saved, signals heard."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from sgmcmc.algorithms.kernel import Kernel, row_keys
from sgmcmc.checkpoints.places import Account, Nowhere, Place, Standing
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, State, size, tree_map
from sgmcmc.problem.passes import FullPasses
from sgmcmc.rows.hosts import waiting_for_peers
from sgmcmc.rows.sources import Source
from sgmcmc.run.programs import Programs, keyed
from sgmcmc.run.request import Request
from sgmcmc.run.spread import Spread, make_spread

LARGEST_CHUNK = 2000
CHUNK_BYTES = 32 << 20
"""A chunk's minibatches and noise stay below this, so that they are still in cache when the loop reads them."""

SHORTEST_CHUNK, MOST_CHUNK_BYTES = 32, 64 << 20
"""Minibatches too large for a cache are handed over so many at a time, or as many as take so much memory: each call of a program
costs something, the more the larger a model is."""


_row_keys = jax.jit(row_keys, static_argnums=(2, 3))


@dataclass(frozen=True)
class Outcome:
    """How far a run came and what it kept: what the keep objects have to show, and how often they were shown the parameters.

    `attempted` is position and gradient of the step at which a chain left the finite numbers, if one did; `finite`, whether the
    log posterior was, all along; `error`, what ended the run other than a chain.
    """

    state: State
    values: dict[str, Any]
    stored: int
    attempted: tuple[PyTree, PyTree] | None
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


@dataclass(frozen=True)
class Loop:
    """A kernel on its data: many iterations a call, chains side by side, minibatches fetched while it computes."""

    kernel: Kernel
    source: Source
    programs: Programs
    _placed: dict[Spread, PyTree] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, kernel: Kernel, source: Source) -> Loop:
        """The loop of a kernel that nothing was compiled for yet."""
        return cls(kernel, source, Programs.of(kernel, source, make_spread(None, source.strata) if source.strata else None))

    @cached_property
    def constants(self) -> PyTree:
        """Those of the kernel, on the host: there the devices of any mesh can have them from."""
        return tree_map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, self.kernel.constants)

    def spread(self, chains: int | None) -> Spread | None:
        """How so many chains lie on the devices; None where one device does it all."""
        if self.source.strata == 0 and jax.local_device_count() == 1:
            return None
        return make_spread(chains, self.source.strata)

    def layout(self, chains: int | None) -> dict[str, int]:
        """The devices that so many chains lie on, and the strata that the rows are in, for the record."""
        strata = {"strata": self.source.all_strata} if self.source.strata else {}
        return {"devices": self._devices(chains), **strata}

    def capacity(self, chains: int | None, numbers: int, n_iters: int, chunk_size: int | None) -> int:
        """Iterations per compiled chunk, for so many chains and so many numbers that move in all."""
        if chunk_size is not None:
            return chunk_size
        n_iters = min(n_iters, self.epoch or n_iters)
        batches, itemsize = self.kernel.batches, jnp.result_type(float).itemsize
        per_step = (chains or 1) * batches * self.source.bytes_per_batch
        per_step += itemsize * self.kernel.noises * numbers
        per_device = per_step // self._devices(chains)  # each has caches of its own
        in_cache, in_memory = (size // max(1, per_device) for size in (CHUNK_BYTES, MOST_CHUNK_BYTES))
        affordable = max(1, min(LARGEST_CHUNK, in_cache), min(SHORTEST_CHUNK, in_memory))
        return min(affordable, 1 << (n_iters - 1).bit_length())  # short runs of different lengths share a few programs

    @cached_property
    def epoch(self) -> int:
        """Iterations after which the estimator looks at all rows again; 0 for never."""
        return self.kernel.estimator.renewed_every(self.kernel.posterior.n_rows, self.source.batch_size)

    @cached_property
    def _passes(self) -> FullPasses:
        return FullPasses(self.source.arrays)

    def renewed(self, state: State) -> State:
        """The state as its next iteration needs it: what the estimator carries made anew there, if it is time for that.

        That it is time can be told from the state alone, and what is made from where the chains are: so chunks, single steps and
        runs that go on have the same.
        """
        step = int(state.step) if self.epoch else 0
        if step == 0 or step % self.epoch:
            return state
        position = tree_map(np.asarray, state.position)
        passes = replace(self._passes, chained=state.chained)
        carried = self.kernel.estimator.renewed(self.kernel.posterior, position, passes, state.estimator)
        return self.call(self.programs.place, (replace(state, estimator=carried),), state.key, step - 1)

    def run(self, state: State, request: Request, account: Account, place: Place, bar: Bar) -> Outcome:
        """`burn_in + n_iters` iterations; every `thin`-th of the last `n_iters` is shown to the keep objects.

        What ends it early (a chain that left, a signal, rows that cannot be read) leaves all that was done before in the
        outcome, and in the place.
        """
        return _Drive(self, state, request, account, place, bar).run()

    def trial(self, state: State, request: Request, bar: Bar) -> Outcome:
        """A run that is kept nowhere; only a chain can end it early."""
        account = Account(request.keeps, state.params, request.total, request.looks, lambda _: {})
        return self.run(state, request, account, Nowhere(state.key), bar).whole()

    def draw(self, key: jax.Array, step: int, capacity: int) -> PyTree:
        """The random part of the `capacity` iterations after `step`, queued: fewer, for a short chunk, would compile anew."""
        return self.source.draw(_row_keys(key, step, capacity, self.kernel.batches))

    def gather(self, drawn: PyTree, count: int, spread: Spread | None) -> PyTree:
        """The minibatches of `count` iterations from their random part, on the host."""
        return self.source.prepare(drawn, count) if spread is None else spread.gather(self.source, drawn, count)

    def placed(self, plan: PyTree, spread: Spread | None, chained: bool) -> PyTree:
        """The same where the devices need them."""
        return jax.device_put(plan) if spread is None else spread.put(self.source, plan, chained)

    def call(self, program: Callable[..., PyTree], argument: PyTree, key: jax.Array, step: int) -> PyTree:
        """A program for the minibatches of the iteration after `step`, on the devices of all strata where there are any."""
        spread = self.programs.strata
        plan = self.placed(self.gather(self.draw(key, step, 1), 1, spread), spread, key.ndim == 2)
        if spread is None:
            return program(self.constants, argument, self.source.data, plan)
        with watched(spread, "one minibatch"):
            value = program(self.constants, spread.place(argument, P()), self.data_on(spread), plan)
            return spread.taken(jax.block_until_ready(value))

    def data_on(self, spread: Spread) -> PyTree:
        """The source's data on the devices of a spread: put there once."""
        if spread not in self._placed:
            self._placed[spread] = spread.place(self.source.data, spread.data_spec(self.source.strata > 0))
        return self._placed[spread]

    def _devices(self, chains: int | None) -> int:
        spread = self.spread(chains)
        return 1 if spread is None else spread.devices


class _Drive:
    """One run, chunk after chunk."""

    def __init__(self, loop: Loop, state: State, request: Request, account: Account, place: Place, bar: Bar) -> None:
        self.loop, self.request, self.account, self.bar = loop, request, account, bar
        self.keeps, self.place, self.saver = tuple(account.keeps.values()), place, place.saver(account)
        self.key, self.first_step, self.total, chains = state.key, int(state.step), request.total, state.n_chains
        self.capacity = loop.capacity(chains, size(state.position), self.total, request.chunk_size)
        self.spread, self.chained = loop.spread(chains), chains is not None
        self.shared = self.spread is not None and self.spread.over_processes
        self.paced = (self.capacity, chains, self.spread)
        self.pace = Pace(self.capacity, None if self.shared else loop.programs.paces.get(self.paced))
        stores = tuple(self.saver.store(name, keep, state) for name, keep in account.keeps.items())
        self.standing = self.saver.resume(Standing(state, tuple(keep.begin() for keep in self.keeps), stores))
        self.carried = None if self.spread is None else loop.programs.keep_specs(self.keeps, state, self.capacity)[0]
        one = tree_map(lambda x: jax.ShapeDtypeStruct(x.shape[self.chained :], x.dtype), state.params)
        self.keyed = keyed(self.keeps, one)
        self.attempted: tuple[PyTree, PyTree] | None = None
        self.saved, self.between, self.settled = time.monotonic(), True, False
        """When it was last saved; whether the stores fit the state (in the middle of a chunk some may have its draws and others
        not); whether it is at its end, and saved."""

    def run(self) -> Outcome:
        """All of it, or as much as can be had."""
        error, interrupted = None, False
        if self.standing.done:
            self.bar.update(self.standing.done)
        with ThreadPoolExecutor(1, thread_name_prefix="sgmcmc-rows") as thread, stoppable(self.place.durable) as stop:
            try:
                rows = self._fetched(thread, 0, self._at_once(0, self.pace.count))
                while rows is not None and self.attempted is None and not self.pace.ended:
                    rows = self._chunk(thread, rows, stop)
            except KeyboardInterrupt:
                interrupted = True
            except SgmcmcError as raised:
                error = raised
            finally:
                if self.between and not self.settled and not self.shared:  # peers would wait for each other
                    try:
                        self.saver.save(self.standing, finished=True)
                    except SgmcmcError as raised:
                        error = error or raised  # what ended the run is more telling
        if self.pace.seconds is not None:
            self.loop.programs.paces[self.paced] = self.pace.seconds
        run, values = self.standing, self.account.values(self.standing)
        stored = max(0, run.done - self.request.burn_in) // self.request.thin
        stopped = interrupted or (self.pace.ended and run.done < self.total)
        return Outcome(run.state, values, stored, self.attempted, stopped, run.finite, error)

    def _at_once(self, after: int, wanted: int) -> int:
        """Iterations of a chunk that begins so many `after` those done: not beyond the end, nor where all rows are due."""
        done, epoch = self.standing.done + after, self.loop.epoch
        due = epoch - (self.first_step + done) % epoch if epoch else wanted
        return min(wanted, due, self.total - done)

    def _fetched(self, thread: ThreadPoolExecutor, after: int, count: int) -> Future[PyTree] | None:
        """The minibatches of `count` iterations, `after` so many more than are done, as they will come; None for none."""
        if count == 0:
            return None
        drawn = self.loop.draw(self.key, self.first_step + self.standing.done + after, self.capacity)
        return thread.submit(self.loop.gather, drawn, count, self.spread)

    def _chunk(self, thread: ThreadPoolExecutor, rows: Future[PyTree], stop: SimpleNamespace) -> Future[PyTree] | None:
        """The next chunk on its rows; those of the one after it."""
        run, pace = self.standing, self.pace
        count = self._at_once(0, pace.count)
        plan = self.loop.placed(rows.result(), self.spread, self.chained)
        # The random numbers of a chunk's rows are queued before the chunk that precedes it, or they would wait for it.
        upcoming = self._fetched(thread, count, self._at_once(count, pace.upcoming))
        first = self.first_step + run.done
        with watched(self.spread, f"iterations {first + 1} to {first + count}"):
            run.state = self.loop.renewed(run.state)
            queued = self._call(plan, count)
            pace.start()
            state, carries, pieces, report = self._in_step(plan, count, queued)
        steps = report["steps"]
        pace.stop(count, stop.asked, report["proposal"] if self.shared else None)
        self.between = self.settled = False
        _hand_over(run.stores, pieces)
        run.state, run.carries, run.done = state, carries, run.done + steps
        if steps:  # else the figure is that of the minibatch that ended it
            run.finite = run.finite and math.isfinite(report["log_posterior"])
        self.between, self.attempted = True, report["attempted"] if steps < count else None
        self.settled = run.done >= self.total or self.attempted is not None or pace.ended
        if self.settled or time.monotonic() - self.saved >= self.saver.interval:
            self.saver.save(run, self.settled)
            self.saved = time.monotonic()
        self.bar.update(steps, log_posterior=report["log_posterior"])
        return upcoming

    def _call(self, plan: PyTree, count: int) -> tuple[State, PyTree, PyTree, dict[str, Any]]:
        """A chunk, queued; with arrays of this process, whatever the devices it runs on."""
        run, loop, spread = self.standing, self.loop, self.spread
        numbers = (count, self.first_step + self.request.burn_in, self.request.thin)
        call = partial(loop.programs.chunk, loop.constants, capacity=self.capacity, keeps=self.keyed, spread=spread)
        if spread is None:
            moved, *others = call(run.state, run.carries, loop.source.data, plan, *numbers, self.pace.proposal)
            return loop.programs.with_shared(moved, run.state), *others
        state, carries = spread.place((run.state, run.carries), (loop.programs.state_specs(run.state), self.carried))
        proposals = np.full(max(1, loop.source.strata), self.pace.proposal, np.int32)
        proposals = spread.place(proposals, spread.data_spec(loop.source.strata > 0))
        moved, *others = spread.taken(call(state, carries, loop.data_on(spread), plan, *numbers, proposals))
        return loop.programs.with_shared(moved, run.state), *others

    def _in_step(self, plan: PyTree, count: int, queued: Any) -> tuple[State, PyTree, PyTree, dict[str, Any]]:
        """A chunk's results, all devices at the same step and what estimators carry with them. Where the chains of some left the
        finite numbers, the chunk is computed again up to there, which gives the same numbers.
        """
        state, carries, pieces, report = queued
        each = np.asarray(report["steps"])
        steps, attempted = int(each.min()), report["attempted"]
        if steps < each.max() or (steps < count and self.loop.kernel.estimator.per_chain):
            state, carries, pieces, again = self._call(plan, steps)
            if steps < each.max():  # others went on without those that left
                left = np.repeat(each == steps, (state.n_chains or 1) // len(each))
                attempted = tree_map(partial(_pick_chains, left), attempted, again["attempted"])
            report = again
        log_posterior, proposal = (np.asarray(report[name]) for name in ("log_posterior", "proposal"))
        told = {"steps": steps, "attempted": attempted}
        told |= {"log_posterior": float(log_posterior.mean()), "proposal": int(proposal.min())}
        return state, carries, pieces, told


def _pick_chains(which: np.ndarray, yes: jax.Array, no: jax.Array) -> np.ndarray:
    return np.where(which.reshape(-1, *(1,) * (yes.ndim - 1)), np.asarray(yes), np.asarray(no))


def watched(spread: Spread | None, what: str) -> AbstractContextManager[None]:
    """Around what needs other processes, if the mesh has any."""
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


GROWTH = 4
"""How many times as long as the one before a chunk may be."""

LEAST = 1e-9
"""Seconds: below what any iteration takes."""

CHUNK_SECONDS = 0.3
"""How long a chunk should take at most: how often the progress bar moves and Ctrl-C is heard."""


class Pace:
    """How many iterations to ask of a chunk, so that it takes about `CHUNK_SECONDS`; the next one is decided a chunk ahead. The
    first has a few, unless it is known what an iteration takes.
    """

    def __init__(self, capacity: int, seconds: float | None = None) -> None:
        self._capacity, self._clock, self.ended = capacity, 0.0, False
        self._before: tuple[int, float] | None = None
        self._marginal: float | None = None
        self.seconds = seconds
        """Of an iteration, where that is known from an earlier run or the chunks that came back."""
        first = 8 if seconds is None else max(1, int(CHUNK_SECONDS / seconds))
        self.count = self.upcoming = self.proposal = min(first, capacity)

    def start(self) -> None:
        """The chunk was handed over (and compiled, if it was the first)."""
        self._clock = time.perf_counter()

    def stop(self, count: int, asked_to_end: bool, agreed: int | None = None) -> None:
        """It is back. Several processes keep one pace: the smallest `proposal`, `agreed` upon in the chunk that came back; who
        is asked to end proposes 0, so that all end together.
        """
        seconds = time.perf_counter() - self._clock
        self.seconds = self._per_iteration(count, seconds)
        affordable = min(self._capacity, GROWTH * count, int(CHUNK_SECONDS / self.seconds))
        self.proposal = 0 if asked_to_end else max(1, affordable)
        decided = self.proposal if agreed is None else agreed
        self.ended = decided == 0
        self.count, self.upcoming = self.upcoming, max(1, decided)

    def _per_iteration(self, count: int, seconds: float) -> float:
        """What one more iteration takes: less than the average where a chunk costs something however short it is. Two chunks tell
        that apart if one was at least twice as long as the other.
        """
        before, self._before = self._before, (count, seconds)
        if before is not None and max(count, before[0]) >= 2 * min(count, before[0]):
            self._marginal = (seconds - before[1]) / (count - before[0])
        average = max(seconds / count, LEAST)
        return average if self._marginal is None else float(np.clip(self._marginal, LEAST, average))


@contextmanager
def stoppable(terminated: bool) -> Iterator[SimpleNamespace]:
    """Ctrl-C, and where `terminated` the signal by which a cluster ends a job, only set `asked`; a second Ctrl-C insists.

    Signals reach the main thread alone, and where the user handles them they stay the user's.
    """
    stop = SimpleNamespace(asked=False)
    before: dict[int, Any] = {}

    def ask(number: int, _: Any) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    if threading.current_thread() is threading.main_thread():
        wanted = {signal.SIGINT: signal.default_int_handler} | ({signal.SIGTERM: signal.SIG_DFL} if terminated else {})
        for number, usual in wanted.items():
            if signal.getsignal(number) is usual:
                before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
