"""The user's sampler object: set up once, then initialised, stepped, run or iterated."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.held import holding_of
from sgmcmc.algorithms.gradients.whitened import centre_of
from sgmcmc.algorithms.kernel import Kernel, Motion, normals
from sgmcmc.checkpoints.fingerprint import of_value
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.places import Account, Nowhere, Place, Standing, check_keeps
from sgmcmc.core.checks import Progress, as_key, check_choice, check_count, check_progress, draw_seed, seed_number
from sgmcmc.core.errors import InputError, describe, warn
from sgmcmc.core.html import Markup, bullets, element, joined, pairs
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Batch, PyTree, State, first_not_finite, leaf_names, pick, size, tree_map
from sgmcmc.problem.holding import holding_those_of, of_all_parameters
from sgmcmc.problem.model import Model
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.posterior import Posterior
from sgmcmc.results.keeps import Keep, Trace
from sgmcmc.results.result import PAIRS, Record, Result, assemble, paired_names
from sgmcmc.results.words import OUTSIDE, Decisions
from sgmcmc.rows.hosts import from_first
from sgmcmc.rows.sources import Source
from sgmcmc.run.blame import AT_START, and_why, blame_later, divergence
from sgmcmc.run.loop import LARGEST_CHUNK, Loop, Outcome
from sgmcmc.run.programs import Programs
from sgmcmc.run.request import Request
from sgmcmc.run.shared_folder import SharedFolder

SCATTER_CHAIN = 2**31 - 2
"""The chain number whose random numbers move chains apart: no real chain has it."""


class Start(Protocol):
    """Where chains start. `position` is a tree like what moves."""

    @property
    def position(self) -> PyTree: ...

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        """The start, looked for if need be; random numbers come from the run's root key."""
        ...


class Given(NamedTuple):
    """A start of which everything is known: where chains start, and what the estimator carries there."""

    position: PyTree
    est_state: PyTree

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        return self


@dataclass(frozen=True)
class FromParams:
    """Chains start at the user's own values."""

    position: PyTree

    def find(self, kernel: Kernel, source: Source, root: jax.Array, progress: Progress) -> Given:
        passes = FullPasses(source.arrays, progress)
        return Given(self.position, kernel.estimator.init(kernel.posterior, self.position, passes))


@dataclass(frozen=True)
class Sampler:
    """A sampler ready to go, made by `sgld_setup` and its siblings.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> sampler = sgmcmc.sgld_setup(log_lik, {"x": np.zeros(100, np.float32)}, {"mu": 0.0}, 1e-2, minibatch_size=10)
    >>> state = sampler.init(seed=1)
    >>> for _ in range(3):
    ...     state = sampler.step(state)
    >>> state.params["mu"].shape
    ()
    >>> sampler.run(state, 100)["mu"].shape
    (100,)
    """

    name: str
    kernel: Kernel
    source: Source
    like: PyTree
    begin: Start
    settings: dict[str, Any]
    decisions: Decisions = field(default_factory=Decisions)
    identity: Callable[[], dict[str, str]] = field(default=dict, repr=False, compare=False)
    programs: Programs | None = field(default=None, repr=False, compare=False)
    model: Model | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Sampler {self.name}: {size(self.like)} numbers in {', '.join(leaf_names(self.params))}>"

    def _repr_html_(self) -> Markup:
        return joined([element("b", repr(self)), pairs(self.settings), bullets(self.decisions.made)])

    @property
    def params(self) -> PyTree:
        """The user's parameters, as shapes."""
        return jax.eval_shape(self.posterior.transform.to_params, self.like)

    @property
    def posterior(self) -> Posterior:
        """The problem being sampled."""
        return self.kernel.posterior

    @cached_property
    def loop(self) -> Loop:
        """The loop that drives it."""
        if self.programs is None:
            return Loop.of(self.kernel, self.source)
        return Loop(self.kernel, self.source, self.programs)

    def init(self, seed: Any = None, *, n_chains: int | None = None, progress: Progress = True) -> State:
        """The state before the first iteration; control variate samplers find their centre here.

        Args:
            seed: a whole number or a JAX key; None draws one.
            n_chains: None gives a state without a chain axis; a number, 1 included, puts the chains first.
            progress: True shows a bar for the search, False nothing; a function is called with the figures.
        """
        check_progress(progress)
        chains = None if n_chains is None else check_count("n_chains", n_chains)
        root = self._agreed(as_key(draw_seed() if seed is None else seed))
        position, est_state = self.begin.find(self.kernel, self.source, root, progress)
        keys = _keys_of_chains(root, chains)
        if chains is not None:
            position = _for_chains(0, position, chains)
            est_state = _for_chains(self.kernel.estimator.chain_axes, est_state, chains)
        argument = (keys, position, est_state, jax.random.key_data(root))
        state = self.loop.call(self.loop.programs.start, argument, keys, -1)  # iteration 0: the gradient at the start
        culprit = first_not_finite(state.position, state.gradient, state.chained)
        if culprit is not None:
            found = f"the gradient for parameter {culprit.parameter!r} is not finite at the start; move params"
            raise InputError(and_why(found, self._blamed(state.params, culprit.chain, AT_START)))
        return state

    def step(self, state: State, batch: Mapping[str, Any] | None = None) -> State:
        """One iteration.

        Args:
            state: from `init`, `step`, `run` or `iterate`.
            batch: rows of your own choosing instead of the library's minibatch; they serve every leap of the iteration.
        """
        self._refuse_foreign(state)
        state = self.loop.renewed(state)
        if batch is None:
            new = self.loop.call(self.loop.programs.single_step, state, state.key, int(state.step))
        else:
            new = self.loop.programs.step_on(self.loop.constants, state, self._own_batch(batch))
        self._raise_if_diverged((new.position, new.gradient), state)
        return new

    def run(
        self,
        state: State,
        n_iters: int = 10_000,
        *,
        burn_in: int = 0,
        thin: int = 1,
        keep: Keep | Mapping[str, Keep] | None = None,
        diagnose: bool = False,
        progress: Progress = True,
        checkpoint: str | Path | None = None,
        allow_version_change: bool = False,
        chunk_size: int | None = None,
    ) -> Result:
        """Many iterations, compiled. The result's `final_state` continues where this run ended.

        Args:
            state: where to start.
            n_iters: iterations after the burn-in.
            burn_in: iterations run first and not stored.
            thin: store every `thin`-th iteration.
            keep: what to store instead of every draw: an object such as `Moments()`, or a dict of them by name.
            diagnose: also keep the gradient at every draw, for `Result.health` and its companions. Takes as much memory again
                as the draws, or twice as much under `precondition`.
            progress: True shows a bar, False nothing; a function is called with the figures.
            checkpoint: a folder in which the run is kept as it goes on. The same call again resumes it where it was, and
                `sgmcmc.load` reads it at any time.
            allow_version_change: go on with a run of other versions of JAX, NumPy or this library; see `RunOptions`.
            chunk_size: iterations per compiled call; changes speed, never the draws.
        """
        request = Request(n_iters, burn_in, thin, keep, diagnose, progress, chunk_size)
        request.check_for(self.params, self.kernel.schedule.varies)
        self._refuse_foreign(state)

        def identity() -> dict[str, str]:
            check_keeps(request.keeps, self.params)
            return self.identity() | request.texts(self.params) | {"state": of_value(jax.tree.leaves(state))}

        seed, shared = jax.random.wrap_key_data(state.seed), self.source.strata > 0
        with open_place(checkpoint, identity, seed, self.like, shared, allow_version_change) as place:
            return self.carry_out(request, state, place)

    def carry_out(self, request: Request, state: State, place: Place) -> Result:
        """A request that was checked, from a state, kept in a place."""
        first = int(state.step) + request.burn_in
        self._warn_of_early_draws(first)
        trace = request.trace
        stride = request.thin * getattr(request.keeps.get(trace or ""), "thin", 1)

        def weights(before: int, after: int) -> np.ndarray:
            count = after - before
            padded = np.arange(before, before + (1 << max(0, count - 1).bit_length()))  # any number of draws, a few programs
            return np.asarray(self.loop.programs.weights(first + stride * (1 + padded), self.begin.position))[:count]

        def recorded(standing: Standing) -> dict[str, Any]:
            kept = {name: value for name, value in account.values(standing).items() if not isinstance(request.keeps[name], Trace)}
            return {"record": self._record(request, standing, place).packed(), "kept": kept}

        weigh = weights if self.kernel.schedule.function is not None and trace is not None else None
        account = Account(request.keeps, self.params, request.total, request.looks, recorded, weigh, trace, request.or_more)
        with Bar(request.progress, self.name, request.total) as bar:
            outcome = self.loop.run(state, request, account, place, bar)
        draw_weights = None if weigh is None else weigh(0, outcome.stored * request.thin // stride)
        result = assemble(self._record(request, outcome, place), outcome.state, outcome.values, draw_weights, self.model)
        return self._told(outcome, result, place)

    def longest_chunk(self, state: State) -> int:
        """Iterations per compiled chunk of a long run: a short one that is asked for as many shares its program."""
        return self.loop.capacity(state.n_chains, size(state.position), LARGEST_CHUNK, None)

    def iterate(self, state: State, n_iters: int = 10_000, *, every: int = 100, progress: Progress = False) -> Iterator[State]:
        """Run compiled chunks and hand out the state after every `every` iterations: your own loop at full speed."""
        self._refuse_foreign(state)
        n_iters, every = check_count("n_iters", n_iters), check_count("every", every)
        with Bar(check_progress(progress), self.name, n_iters) as bar:
            chunk_size = self.loop.capacity(state.n_chains, size(state.position), every, None)
            for done in range(0, n_iters, every):
                request = Request(min(every, n_iters - done), keep={}, chunk_size=chunk_size)
                outcome = self.loop.trial(state, request, bar)
                self._raise_if_diverged(outcome.attempted, outcome.state)
                state = outcome.state
                yield state

    def replace(self, state: State, params: PyTree) -> State:
        """The state moved to other parameters, its gradient evaluated there: for Gibbs steps and edits by hand."""
        self._refuse_foreign(state)
        if jax.tree.structure(params) != jax.tree.structure(state.params):
            raise InputError(f"params has leaves {', '.join(leaf_names(params))}; expected {', '.join(leaf_names(state.params))}")
        for name, new, old in zip(leaf_names(params), jax.tree.leaves(params), jax.tree.leaves(state.params), strict=True):
            if np.shape(new) != old.shape:
                raise InputError(f"params[{name!r}] has shape {np.shape(new)}; expected {old.shape}, as in the state")
        params = tree_map(lambda x, old: jnp.asarray(x, old.dtype), params, state.params)
        to_position = self.kernel.posterior_at(state).transform.to_position
        position = jax.vmap(to_position)(params) if state.chained else to_position(params)
        culprit = first_not_finite(position, position, state.chained)
        if culprit is not None:
            raise InputError(f"params[{culprit.parameter!r}] is not finite, or outside its constraint; expected a value inside")
        held = holding_of(state.estimator, params)
        return self.moved(replace(state, params=params, estimator=held), position)

    def scatter(self, state: State, width: float) -> State:
        """The chains of a state moved apart: each to a normal distance of `width`, in the variables that move."""
        key = jax.random.fold_in(jax.random.wrap_key_data(state.seed), SCATTER_CHAIN)
        return self.moved(state, tree_map(lambda x, z: x + width * z, state.position, normals(key, state.position)))

    def moved(self, state: State, position: PyTree) -> State:
        """The state at another position, its gradient evaluated there."""
        there = (replace(state, position=position),)
        return self.loop.call(self.loop.programs.place, there, state.key, int(state.step) - 1)

    def log_posterior(self, state: State, *, full: bool = False) -> np.ndarray:
        """The log posterior at the state, up to its constant: a minibatch estimate, or (`full`) from all the data.

        With chains, one value each. Under constraints it is the density of the unconstrained position.
        """
        self._refuse_foreign(state)
        if full and self.kernel.estimator.random:
            found = "log_posterior(full=True) came with latent variables, with which the log likelihood of the rows is not known"
            raise InputError(f"{found}; leave full out, for that of rows and latent variables together")
        if not full:
            return np.asarray(self.loop.call(self.loop.programs.log_posterior, (state,), state.key, int(state.step) - 1))
        if state.n_chains is None:
            return np.asarray(self._full_log_posterior(state.params))
        return np.asarray([self._full_log_posterior(pick(state.params, chain)) for chain in range(state.n_chains)])

    def with_source(self, source: Source, begin: Start) -> Sampler:
        """The same sampler on another source of the same kind and sizes: what was compiled serves it too."""
        return replace(self, source=source, begin=begin, programs=self.loop.programs)

    def with_decisions(self, decisions: Decisions) -> Sampler:
        """The same sampler with a record of what was decided."""
        return replace(self, decisions=decisions, programs=self.loop.programs)

    def _agreed(self, root: jax.Array) -> jax.Array:
        """The root key; where processes share a job, that of the first, since they move together."""
        if self.source.strata == 0:
            return root
        numbers = np.asarray(jax.random.key_data(root))
        first = np.frombuffer(from_first(numbers.tobytes(), "the seed"), numbers.dtype)
        return jax.random.wrap_key_data(jnp.asarray(first), impl=jax.random.key_impl(root))

    def _full_log_posterior(self, params: PyTree) -> float:
        posterior = of_all_parameters(self.posterior)
        position = posterior.transform.to_position(params)
        prior = float(posterior.log_density_prior(position))
        return float(FullPasses(self.source.arrays).sum(Posterior.sum_of_rows, posterior, position)) + prior

    @cached_property
    def _carried(self) -> set[str]:
        """What the dynamics carry, by name."""
        zeros = tree_map(jnp.zeros_like, self.begin.position)
        return set(self.kernel.dynamics.start(zeros, zeros, zeros))

    def _refuse_foreign(self, state: Any) -> None:
        """A state belongs to the set-up that made it."""
        if not isinstance(state, State):
            raise InputError(f"state is {describe(state)}; expected what init, step, run or iterate of this {self.name} made")
        same = set(state.auxiliary) == self._carried and self.kernel.estimator.made(state.estimator)
        if not same or jax.tree.structure(state.position) != jax.tree.structure(self.begin.position):
            raise InputError(f"state was made by another sampler than this {self.name}; make one with init, move it with replace")

    def _own_batch(self, batch: Mapping[str, Any]) -> Batch:
        if self.source.strata:
            raise InputError("step got a batch, but the rows are in strata, which draw their own; leave batch out")
        if self.kernel.estimator.knows_rows:
            name = type(self.kernel.estimator).__name__
            raise InputError(f"step got a batch, but {name} must know which rows of the dataset it has; leave batch out")
        missing = sorted(set(self.source.arrays) - set(batch))
        if missing:
            raise InputError(f"batch has no {missing[0]!r}; expected the dataset's names: {', '.join(self.source.arrays)}")
        rows = {name: jnp.asarray(batch[name], array.dtype) for name, array in self.source.arrays.items()}
        counts = {name: len(array) for name, array in rows.items()}
        if len(set(counts.values())) > 1:
            raise InputError(f"batch has different numbers of rows: {counts}")
        count = next(iter(counts.values()))
        weight = jnp.asarray(self.source.n_rows / count, jnp.result_type(float))
        return Batch(rows, weight, jnp.full(count, -1))

    def _record(self, request: Request, so_far: Standing | Outcome, place: Place) -> Record:
        state, chains = so_far.state, so_far.state.n_chains
        told = {"n_iters": request.n_iters, "burn_in": request.burn_in, "thin": request.thin, "n_chains": chains}
        told |= self.loop.layout(chains)
        if not so_far.finite:
            told[OUTSIDE] = "some positions of the chains"
        if place.version_changes:
            told["version_changes"] = place.version_changes
        form = "draws" if request.keep is None else "name" if isinstance(request.keep, Mapping) else "one"
        names = paired_names(self.posterior.names.numbers(self.like), state) if PAIRS in request.keeps else []
        return Record(
            self._settings(state, told),
            chains is not None,
            form,
            request.trace,
            tuple(names),
            self.decisions,
            self.posterior.names,
        )

    def _settings(self, state: State, told: Mapping[str, Any]) -> dict[str, Any]:
        own = {"sampler": self.name, "seed": seed_number(state.seed), **self.settings}
        centre = centre_of(state.estimator) if self.kernel.estimator.centred else None
        if centre is not None:
            told = {**told, "centre_converged": bool(centre.converged), "centre_distance": float(centre.distance)}
        return {**own, **told, "versions": versions()}

    def _told(self, outcome: Outcome, result: Result, place: Place) -> Result:
        """The result, or what ended the run with the result in it; and what there is to be warned of."""
        if not outcome.finite and outcome.attempted is None:
            limit = "a limit written as -inf has no gradient to keep the chain inside; use constraints for it"
            reason = self._blamed(outcome.state.params, 0 if outcome.state.chained else None, "at the last of them")
            warn(and_why(f"the log posterior was not finite at some of the chain's positions: {limit}", reason))
        if outcome.interrupted:
            warn(f"interrupted: the result holds the {outcome.stored} draws made so far{place.way_back}")
        if outcome.error is not None:
            outcome.error.result = result
            outcome.error.add_note("The draws made before are in the error's .result")
            raise outcome.error
        self._raise_if_diverged(outcome.attempted, outcome.state, result)
        self._warn_of_noise(outcome.state)
        return result

    def _raise_if_diverged(self, attempted: Any, state: State, result: Result | None = None) -> None:
        if attempted is None or (culprit := first_not_finite(attempted[0], attempted[1], state.chained)) is None:
            return
        if result is None:  # there are no draws to hand out
            record = Record(self._settings(state, {}), state.chained, "draws", None, names=self.posterior.names)
            result = assemble(record, state, {}, model=self.model)
        raise divergence(culprit, result, self.kernel.schedule, self.why_not_finite(attempted[0], state, culprit.chain))

    def why_not_finite(self, attempted: PyTree, state: State, chain: int | None) -> str:
        """The row at fault where a chain tried to go, or where it was before, or what else may be, in a sentence; or nothing."""
        if self.source.strata:
            return self.kernel.pitfall

        def to_params(state: State) -> PyTree:
            return self.kernel.posterior_at(state).transform.to_params(state.position)

        went = replace(state, position=attempted)
        there = jax.vmap(to_params, in_axes=(self.kernel.chain_axes,))(went) if state.chained else to_params(went)
        went = self._blamed(there, chain, "where it went")
        return went or self._blamed(state.params, chain, "at the last finite value") or self.kernel.pitfall

    def _blamed(self, params: PyTree, chain: int | None, where: str) -> str:
        """The row at fault for the parameters of a chain, likewise."""
        params = params if chain is None else pick(params, chain)
        return blame_later(holding_those_of(self.posterior, params), params, self.source.arrays, where)

    def _warn_of_early_draws(self, stored_from: int) -> None:
        warmup = self.kernel.dynamics.warmup
        if stored_from < warmup:
            early = f"the first {warmup - stored_from} stored draws come from the {warmup} iterations"
            warn(f"{early} in which the noise estimate is still learnt; burn_in={warmup} leaves them out")

    def _warn_of_noise(self, state: State) -> None:
        if "variance" not in state.auxiliary:
            return
        eps = self.kernel.schedule.at(state.step, self.begin.position)
        motion = Motion(state.position, state.gradient, state.auxiliary)
        shares = tree_map(jnp.max, self.kernel.dynamics.noise_share(motion, eps))
        for name, share in zip(leaf_names(shares), jax.tree.leaves(shares), strict=True):
            if share > 0.9:
                found = f"the minibatch noise in {name!r} makes up {share:.0%} of what the friction removes"
                repair = "raise alpha or minibatch_size, lower stepsize, or use control variates"
                warn(f"{found}, too much for the noise estimate to correct; {repair}")


def open_place(
    path: str | os.PathLike[str] | None, identity: Callable[[], Mapping[str, str]], seed: Any, params: PyTree,
    shared: bool = False, allow_version_change: bool = False,
) -> Place:  # fmt: skip
    """Where a run is kept: nowhere, a folder of this process, or one that all processes of a job share.

    `identity` says what the run depends on; it is asked only where there is a folder. `seed` is a key, or None for the one on
    record or a new one.
    """
    check_choice("allow_version_change", allow_version_change, (True, False))
    if path is None:
        return Nowhere(as_key(draw_seed()) if seed is None else seed)
    kind = SharedFolder if shared and jax.process_count() > 1 else RunFolder
    return kind.open(path, identity(), seed, params, allow_version_change)


@partial(jax.jit, static_argnums=1)
def _keys_of_chains(root: jax.Array, chains: int | None) -> jax.Array:
    """The key of every chain, as plain numbers; of the only one where there is no chain axis."""
    keys = jax.random.key_data(jax.vmap(lambda chain: jax.random.fold_in(root, chain))(jnp.arange(chains or 1)))
    return keys[0] if chains is None else keys


def _for_chains(axes: PyTree, tree: PyTree, chains: int) -> PyTree:
    """A tree with a copy for every chain, where `axes`, a prefix of it, says that each has its own."""

    def copied(axis: int | None, part: PyTree) -> PyTree:
        return tree_map(lambda x: jnp.broadcast_to(x, (chains, *jnp.shape(x))), part) if axis == 0 else part

    return tree_map(copied, axes, tree, is_leaf=lambda axis: axis is None)


def versions() -> dict[str, str]:
    """The software a run used."""
    packages = {name: version(name) for name in ("sgmcmc", "jax", "numpy", "numpyro")}
    return {**packages, "python": platform.python_version(), "backend": jax.default_backend()}
