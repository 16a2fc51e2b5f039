"""The user's sampler object: set up once, then initialised, stepped, run or iterated."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.minibatch import log_posterior
from sgmcmc.algorithms.gradients.whitened import centre_of
from sgmcmc.algorithms.kernel import CHAIN_AXES, Kernel, Motion, normals
from sgmcmc.checkpoints.fingerprint import of_value
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.places import Saver, Standing
from sgmcmc.checkpoints.saving import FolderSaver
from sgmcmc.core.checks import as_key, check_count, draw_seed, seed_number
from sgmcmc.core.errors import InputError, warn
from sgmcmc.core.progress import Bar, Progress, check_progress
from sgmcmc.core.trees import leaf_names, number_names, size, tree_map
from sgmcmc.core.types import Batch, PyTree, State
from sgmcmc.problem.posterior import Posterior
from sgmcmc.results.keeps import Keep, PairTrace, Trace, paired_numbers
from sgmcmc.results.result import PAIRS, Record, Result, assemble, trace_of
from sgmcmc.results.words import Decisions
from sgmcmc.rows.sources import Source
from sgmcmc.rows.strata import axis_of
from sgmcmc.run.failures import divergence, first_not_finite, with_result
from sgmcmc.run.hosts import from_first
from sgmcmc.run.loop import Loop, n_chains
from sgmcmc.run.passes import full_log_likelihood
from sgmcmc.run.request import check_run, keep_texts, named_keeps
from sgmcmc.run.shared_folder import SharedFolder, open_folder
from sgmcmc.tune.starts import PaperOptimiser, find_centre

SCATTER_CHAIN = 2**31 - 2
"""The chain number whose random numbers move chains apart: no real chain has it."""


@dataclass(frozen=True)
class Prepared:
    """What a survey of the posterior at set-up found: where chains start, and what the estimator carries."""

    position: PyTree
    est_state: PyTree


@dataclass(frozen=True)
class Sampler:
    """A sampler ready to go, made by `sgld_setup` and its siblings.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
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
    start: PyTree
    settings: dict[str, Any]
    optimiser: PaperOptimiser | None = None
    prepared: Prepared | None = None
    decisions: Decisions = field(default_factory=Decisions)
    identity: Callable[[], dict[str, str]] = field(default=dict, repr=False, compare=False)
    folder: RunFolder | SharedFolder | None = field(default=None, repr=False, compare=False)

    @property
    def _position(self) -> PyTree:
        """What moves, before it has moved."""
        return self.start if self.prepared is None else self.prepared.position

    @property
    def params(self) -> PyTree:
        """The user's parameters, as shapes."""
        return jax.eval_shape(self.posterior.transform.to_params, self.start)

    @property
    def posterior(self) -> Posterior:
        """The problem being sampled."""
        return self.kernel.estimator.posterior

    def init(self, seed: Any = None, *, n_chains: int | None = None, progress: Progress = True) -> State:
        """The state before the first iteration; control variate samplers find their centre here.

        Args:
            seed: a whole number or a JAX key; None draws one.
            n_chains: None gives a state without a chain axis; a number, 1 included, puts the chains first.
            progress: True shows a bar for the search, False nothing; a function is called with the figures.
        """
        check_progress(progress)
        chains = None if n_chains is None else check_count("n_chains", n_chains)
        root = as_key(draw_seed() if seed is None else seed)
        if axis_of(self.source) is not None:  # the processes move together
            numbers = np.asarray(jax.random.key_data(root))
            first = np.frombuffer(from_first(numbers.tobytes(), "the seed"), numbers.dtype)
            root = jax.random.wrap_key_data(jnp.asarray(first), impl=jax.random.key_impl(root))
        position, est_state = self.start, ()
        if self.prepared is not None:
            position, est_state = self.prepared.position, self.prepared.est_state
        elif self.kernel.estimator.centred:
            est_state = find_centre(self.posterior, self.source, self.start, self.optimiser, root, progress)
            position = est_state.position
        keys = jax.random.key_data(jax.vmap(lambda chain: jax.random.fold_in(root, chain))(jnp.arange(chains or 1)))
        if chains is None:
            keys = keys[0]
        else:
            position = tree_map(lambda x: jnp.broadcast_to(x, (chains, *x.shape)), position)
        plan = self.loop.prepare(keys, -1)  # iteration 0: the gradient at the start
        state = self._start(
            (keys, jax.random.key_data(root), position, est_state), self.source.data, plan, chained=chains is not None
        )
        culprit = first_not_finite(state.position, state.gradient, chains is not None)
        if culprit is not None:
            raise InputError(
                f"the gradient for parameter {culprit.parameter!r} is not finite at the starting values; move params"
            )
        return state

    def step(self, state: State, batch: Mapping[str, Any] | None = None) -> State:
        """One iteration.

        Args:
            state: from `init`, `step`, `run` or `iterate`.
            batch: rows of your own choosing instead of the library's minibatch; they serve every leap of the iteration.
        """
        chained = n_chains(state) is not None
        if batch is None:
            plan = self.loop.prepare(state.key, int(state.step))
            new = self.loop.single_step(state, self.source.data, plan, chained=chained)
        else:
            new = self.loop.step_on(state, self._own_batch(batch), chained=chained)
        self._raise_if_diverged((new.position, new.gradient), self._result(state))
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
            chunk_size: iterations per compiled call; changes speed, never the draws.
        """
        check_run(self.params, self.kernel.schedule.varies, n_iters, burn_in, thin, keep, diagnose, progress, chunk_size)
        self._refuse_foreign(state)
        keeps = named_keeps(keep) | ({PAIRS: PairTrace()} if diagnose else {})
        if checkpoint is None:
            return self._run(state, n_iters, burn_in, thin, keep, keeps, progress, chunk_size)
        parts = {"burn_in": burn_in, "thin": thin, "state": of_value(jax.tree.leaves(state)), **keep_texts(keeps, self.params)}
        seed, shared = jax.random.wrap_key_data(state.seed), axis_of(self.source) is not None
        with open_folder(checkpoint, self.identity() | parts, seed, self.start, shared) as folder:
            return self._run(state, n_iters, burn_in, thin, keep, keeps, progress, chunk_size, folder)

    def run_in(
        self, folder: RunFolder | SharedFolder | None, state: State, n_iters: int, burn_in: int = 0, thin: int = 1,
        keep: Any = None, diagnose: bool = False, progress: Progress = True, or_more: bool = False,
    ) -> Result:  # fmt: skip
        """`run`, kept in a folder that is open already, or nowhere. The folder may have gone further before where `or_more`:
        then the result has all of that.
        """
        check_run(self.params, self.kernel.schedule.varies, n_iters, burn_in, thin, keep, diagnose, progress)
        keeps = named_keeps(keep) | ({PAIRS: PairTrace()} if diagnose else {})
        return self._run(state, n_iters, burn_in, thin, keep, keeps, progress, None, folder, or_more)

    def _run(
        self, state: State, n_iters: int, burn_in: int, thin: int, keep: Any, keeps: dict[str, Keep], progress: Progress,
        chunk_size: int | None, folder: RunFolder | SharedFolder | None = None, or_more: bool = False,
    ) -> Result:  # fmt: skip
        first_stored = int(state.step) + burn_in + thin
        self._warn_of_early_draws(first_stored - thin)
        trace = trace_of(keeps)
        stride = thin * getattr(keeps.get(trace or ""), "thin", 1)
        told = {"n_iters": n_iters, "burn_in": burn_in, "thin": thin, "n_chains": n_chains(state), **self.loop.layout(state)}

        def record(state: State) -> Record:
            form = "draws" if keep is None else "name" if isinstance(keep, Mapping) else "one"
            names = number_names(self.start)[paired_numbers(size(self.start))] if PAIRS in keeps else []
            return Record(self._settings(state, told), n_chains(state) is not None, form, trace, tuple(names), self.decisions)

        def weights(before: int, after: int) -> np.ndarray:
            return self._weights(first_stored - thin + stride * (1 + np.arange(before, after)))

        weigh = weights if self.kernel.schedule.varies and trace is not None else None
        saver = None if folder is None else self._saver(folder, keeps, burn_in + n_iters, record, weigh, trace, or_more)
        with Bar(progress, self.name, burn_in + n_iters) as bar:
            outcome = self.loop.run(state, n_iters, burn_in, thin, tuple(keeps.values()), bar, chunk_size, saver)
        values = dict(zip(keeps, outcome.values, strict=True))
        draw_weights = None if weigh is None else weigh(0, outcome.stored * thin // stride)
        result = assemble(record(outcome.state), outcome.state, values, draw_weights)
        if not outcome.finite and outcome.failed_at is None:
            warn(
                "the log posterior was not finite at some of the chain's positions: a limit written as -inf has no gradient to "
                "keep the chain inside; use constraints for it"
            )
        if outcome.interrupted:
            further = "" if folder is None else f"; the same call goes on from there, {folder.path}"
            warn(f"interrupted: the result holds the {outcome.stored} draws made so far{further}")
        if outcome.error is not None:
            raise with_result(outcome.error, result)
        self._raise_if_diverged(outcome.failed_at, result)
        self._warn_of_noise(outcome.state)
        return result

    def iterate(self, state: State, n_iters: int = 10_000, *, every: int = 100, progress: Progress = False) -> Iterator[State]:
        """Run compiled chunks and hand out the state after every `every` iterations: your own loop at full speed."""
        n_iters, every = check_count("n_iters", n_iters), check_count("every", every)
        with Bar(check_progress(progress), self.name, n_iters) as bar:
            chunk_size = self.loop.capacity(state, every, None)
            for done in range(0, n_iters, every):
                outcome = self.loop.run(state, min(every, n_iters - done), 0, 1, (), bar, chunk_size)
                self._raise_if_diverged(outcome.failed_at, self._result(outcome.state))
                state = outcome.whole().state
                yield state

    def replace(self, state: State, params: PyTree) -> State:
        """The state moved to other parameters, its gradient evaluated there: for Gibbs steps and edits by hand."""
        if jax.tree.structure(params) != jax.tree.structure(state.params):
            raise InputError(f"params has leaves {', '.join(leaf_names(params))}; expected {', '.join(leaf_names(state.params))}")
        for name, new, old in zip(leaf_names(params), jax.tree.leaves(params), jax.tree.leaves(state.params), strict=True):
            if np.shape(new) != old.shape:
                raise InputError(f"params[{name!r}] has shape {np.shape(new)}; expected {old.shape}, as in the state")
        params = tree_map(lambda x, old: jnp.asarray(x, old.dtype), params, state.params)
        to_position = self.kernel.estimator.posterior_at(state.estimator).transform.to_position
        position = jax.vmap(to_position)(params) if n_chains(state) is not None else to_position(params)
        culprit = first_not_finite(position, position, n_chains(state) is not None)
        if culprit is not None:
            raise InputError(f"params[{culprit.parameter!r}] is not finite, or outside its constraint; expected a value inside")
        return self.moved(replace(state, params=params), position)

    def scatter(self, state: State, width: float) -> State:
        """The chains of a state moved apart: each to a normal distance of `width`, in the variables that move."""
        key = jax.random.fold_in(jax.random.wrap_key_data(state.seed), SCATTER_CHAIN)
        return self.moved(state, tree_map(lambda x, z: x + width * z, state.position, normals(key, (), state.position)))

    def moved(self, state: State, position: PyTree) -> State:
        """The state at another position, its gradient evaluated there."""
        plan = self.loop.prepare(state.key, int(state.step) - 1)
        return self._place(replace(state, position=position), self.source.data, plan, chained=n_chains(state) is not None)

    def with_source(self, source: Source, prepared: Prepared) -> Sampler:
        """The same sampler on another source of the same kind and sizes: what was compiled serves it too."""
        sampler = replace(self, source=source, prepared=prepared)
        sampler.__dict__.update(loop=self.loop.with_source(source), _start=self._start, _place=self._place)
        return sampler

    def with_decisions(self, decisions: Decisions) -> Sampler:
        """The same sampler with a record of what was decided."""
        assert self.prepared is not None
        return replace(self.with_source(self.source, self.prepared), decisions=decisions)

    def log_posterior(self, state: State, *, full: bool = False) -> np.ndarray:
        """The log posterior at the state, up to its constant: a minibatch estimate, or (`full`) from all the data.

        With chains, one value each. Under constraints it is the density of the unconstrained position.
        """
        chains = n_chains(state)
        if not full:
            plan = self.loop.prepare(state.key, int(state.step) - 1)
            return np.asarray(self._estimate(state, self.source.data, plan, chained=chains is not None))
        if chains is None:
            return np.asarray(self._full_log_posterior(state.params))
        return np.asarray([self._full_log_posterior(tree_map(lambda x, c=c: x[c], state.params)) for c in range(chains)])

    def check_run(self, **running: Any) -> None:
        """Refuse what `run` would refuse, without running."""
        check_run(self.params, self.kernel.schedule.varies, **running)

    @cached_property
    def loop(self) -> Loop:
        """The compiled loop."""
        return Loop(self.kernel, self.source)

    @cached_property
    def _start(self) -> Any:
        def start(argument: PyTree, batch: Batch) -> State:
            key, seed, position, est_state = argument
            return self.kernel.start(key, seed, position, batch, est_state)

        return self.loop.on_one_batch(start, (0, None, 0, None), CHAIN_AXES)

    @cached_property
    def _place(self) -> Any:
        return self.loop.on_one_batch(self.kernel.place, CHAIN_AXES, CHAIN_AXES)

    @cached_property
    def _estimate(self) -> Any:
        def estimate(state: State, batch: Batch) -> jax.Array:
            return log_posterior(self.kernel.estimator, state.estimator, state.position, batch)

        return self.loop.on_one_batch(estimate, CHAIN_AXES, 0)

    def _full_log_posterior(self, params: PyTree) -> float:
        position = self.posterior.transform.to_position(params)
        prior = float(self.posterior.log_density_prior(position))
        return full_log_likelihood(self.posterior, position, self.source.arrays) + prior

    def _refuse_foreign(self, state: State) -> None:
        """A state belongs to the set-up that made it."""
        d = tree_map(jnp.zeros_like, self._position)
        carried = set(self.kernel.dynamics.start(self._position, d, d))
        same = set(state.auxiliary) == carried and (centre_of(state.estimator) is not None) == self.kernel.estimator.centred
        if not same or jax.tree.structure(state.position) != jax.tree.structure(self._position):
            raise InputError(
                f"state was made by another sampler than this {self.name}; make one with init, and move it with replace"
            )

    def _own_batch(self, batch: Mapping[str, Any]) -> Batch:
        if axis_of(self.source) is not None:
            raise InputError("step got a batch, but the rows are in strata, which draw their own; leave batch out")
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

    def _saver(
        self, folder: RunFolder | SharedFolder, keeps: dict[str, Keep], total: int, record: Callable[[State], Record], weigh: Any,
        trace: str | None, or_more: bool,
    ) -> Saver:  # fmt: skip
        def recorded(standing: Standing) -> dict[str, Any]:
            chained = n_chains(standing.state) is not None
            kept = {
                name: standing.value(number, keep, chained)
                for number, (name, keep) in enumerate(keeps.items())
                if type(keep).store is not Trace.store
            }
            return {"record": record(standing.state).packed(), "kept": kept}

        return FolderSaver(folder, keeps, self.start, total, recorded, weigh, trace, or_more)

    def _weights(self, steps: np.ndarray) -> np.ndarray:
        weight = jax.jit(jax.vmap(lambda t: self.kernel.schedule.weight(t, self._position)))
        return np.asarray(weight(jnp.asarray(steps)))

    def _settings(self, state: State, told: Mapping[str, Any] | None = None) -> dict[str, Any]:
        own = {"sampler": self.name, "seed": seed_number(state.seed), **self.settings}
        return {**own, **(told or {}), **_centre_figures(state), "versions": versions()}

    def _result(self, state: State) -> Result:
        """A result without draws."""
        return assemble(Record(self._settings(state), n_chains(state) is not None, "draws", None), state, {})

    def _raise_if_diverged(self, attempted: Any, result: Result) -> None:
        culprit = None if attempted is None else first_not_finite(attempted[0], attempted[1], result.chained)
        if culprit is not None:
            raise divergence(culprit, result, self.kernel.schedule)

    def _warn_of_early_draws(self, stored_from: int) -> None:
        warmup = getattr(self.kernel.dynamics, "warmup", 0)
        if stored_from < warmup:
            warn(
                f"the first {warmup - stored_from} stored draws come from the {warmup} iterations in which the noise estimate is "
                f"still learnt; burn_in={warmup} leaves them out"
            )

    def _warn_of_noise(self, state: State) -> None:
        if "variance" not in state.auxiliary:
            return
        eps = self.kernel.schedule.at(state.step, self._position)
        motion = Motion(state.position, state.gradient, state.auxiliary)
        shares = tree_map(jnp.max, self.kernel.dynamics.noise_share(motion, eps))
        for name, share in zip(leaf_names(shares), jax.tree.leaves(shares), strict=True):
            if share > 0.9:
                warn(
                    f"the minibatch noise in {name!r} makes up {share:.0%} of what the friction removes, too much for the noise "
                    "estimate to correct; raise alpha or minibatch_size, lower stepsize, or use control variates"
                )


def _centre_figures(state: State) -> dict[str, Any]:
    centre = centre_of(state.estimator)
    return {} if centre is None else {"centre_converged": bool(centre.converged), "centre_distance": float(centre.distance)}


def versions() -> dict[str, str]:
    """The software a run used."""
    packages = {name: version(name) for name in ("sgmcmc", "jax", "numpy")}
    return {**packages, "python": platform.python_version(), "backend": jax.default_backend()}
