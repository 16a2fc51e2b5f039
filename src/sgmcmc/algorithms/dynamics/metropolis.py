"""SGHMC with a Metropolis test: leaps on minibatches, accepted or not by the log posterior at their ends."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.dynamics.hamiltonian import SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.momentum import half_kicked
from sgmcmc.algorithms.energies import acceptance, log_ratio
from sgmcmc.algorithms.kernel import TEST, Estimator, Kernel, Motion, purpose_key
from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Batch, PyTree, State, flat, where
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule
from sgmcmc.rows.sources import rows_of


@dataclass(frozen=True)
class MetropolisHamiltonian(SymmetricHamiltonian):
    """`SymmetricHamiltonian` whose L leaps from θ to θ' are accepted with probability min(1, exp(Δ̂ - σ̂²/2 - W)).

    Δ̂ estimates log π(θ') - log π(θ) from one more minibatch, σ̂² is the variance of that, and W sums over the kicks what each
    adds to ν²/2ε. Friction does not count. Where the move is not accepted the chain stays.

    Leaps back pass the same minibatches with the same probability. So the law is the posterior for every ε, L and α, whatever the
    noise of the gradients, where Δ̂ is exact: with `minibatch_size` that of the dataset. On fewer rows it is where the error of
    Δ̂ is normal and its variance known, as of `rows="random"`: of windows it is only where they are a small part of the rows. Many
    moves are refused where σ̂² is much above 1. No chain diverges. Gradients that remember where a chain was, as those of `SAGA`
    and `SVRG` do, are no longer the same on the way back.

    Args:
        alpha, L: as in `SymmetricHamiltonian`.
        rows: how many rows a leap looks at, drawn with replacement from its minibatch; all of these when left out. With
            minibatches of all rows this is AMAGOLD: leaps are cheap, only the test sees all rows, and the law is exact.

    `state.auxiliary["accepted"] / state.step` is the part of the moves that was accepted.

    >>> import numpy as np, sgmcmc
    >>> from sgmcmc.algorithms import MetropolisHamiltonian
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.random.default_rng(0).normal(1.0, 1.0, 100)}
    >>> sampler = sgmcmc.sampler_setup(log_lik, data, {"mu": 1.0}, 0.005, dynamics=MetropolisHamiltonian(L=3, rows=50),
    ...                                minibatch_size=100)
    >>> out = sampler.run(sampler.init(seed=1, n_chains=20), 2000)  # without the test: 3.5 times the variance
    >>> bool(abs((10 * out["mu"]).var() - 1) < 0.05), round(float((out.final_state.auxiliary["accepted"] / 2000).mean()), 1)
    (True, 0.5)

    Reference: Zhang, Cooper and De Sa (2020), AMAGOLD: amortized Metropolis adjustment for efficient stochastic gradient MCMC;
    Ceperley and Dewing (1999) for σ̂²/2.
    """

    rows: int | None = None
    affine: ClassVar[bool] = False

    def kernel(self, posterior: Posterior, estimator: Estimator, schedule: Schedule) -> Kernel:
        if self.rows is not None and estimator.knows_rows:
            found = f"rows={self.rows} draws rows with replacement, and {type(estimator).__name__} needs distinct ones"
            raise InputError(f"{found}; expected rows=None, or another gradient")
        return Metropolis(posterior, estimator, self, schedule)

    def fitted(self, position: PyTree) -> Self:
        return (
            super().fitted(position)
            if self.rows is None
            else replace(super().fitted(position), rows=check_count("rows", self.rows))
        )

    def start(self, position: PyTree, eps: PyTree, noise: PyTree) -> dict[str, PyTree]:
        zero = jnp.zeros((), flat(position).dtype)
        return super().start(position, eps, noise) | {"work": zero, "accepted": zero}

    def refresh(self, motion: Motion, eps: PyTree, before: PyTree, noise: PyTree | None) -> Motion:
        return with_work(super().refresh(motion, eps, before, noise), -motion.auxiliary["work"])

    def move(self, motion: Motion, eps: PyTree, noise: PyTree) -> Motion:
        return with_work(super().move(motion, eps, noise), work_of_half_kick(motion, motion.gradient, eps))

    def settle(self, motion: Motion, gradient: PyTree, stats: dict[str, Any], eps: PyTree, noise: PyTree, t: Any) -> Motion:
        done = work_of_half_kick(motion, gradient, eps)
        return with_work(super().settle(motion, gradient, stats, eps, noise, t), done)


def work_of_half_kick(motion: Motion, gradient: PyTree, eps: PyTree) -> jax.Array:
    """What it adds to ν²/2ε, summed over all numbers."""
    after, before = half_kicked(motion, gradient, eps), motion.auxiliary["momentum"]
    gains = jax.tree.map(lambda a, b, e: jnp.sum((a**2 - b**2) / (2 * e)), after, before, eps)
    return sum(jax.tree.leaves(gains), start=jnp.zeros_like(motion.auxiliary["work"]))


def with_work(motion: Motion, more: Any) -> Motion:
    return replace(motion, auxiliary=motion.auxiliary | {"work": motion.auxiliary["work"] + more})


@dataclass(frozen=True)
class Metropolis(Kernel):
    """An iteration of leaps, then the test on a minibatch of its own."""

    @property
    def batches(self) -> int:
        return self.dynamics.leaps + 1

    def place(self, state: State, batch: Batch) -> State:
        """A state that was moved, its gradient from as many rows as those of leaps: the way back begins with one of these."""
        return super().place(state, self._few(state, lambda _: batch, self.dynamics.leaps + 1))

    def step(self, state: State, batch_of: Any, noise: PyTree) -> State:
        there = super().step(state, partial(self._few, state, batch_of), noise)
        ratio = log_ratio(self.posterior_at(state), state.position, there.position, batch_of(self.dynamics.leaps))
        chance = jnp.nan_to_num(acceptance(ratio[0] - there.auxiliary["work"], ratio[1]))  # what is not finite is refused
        accepted = jax.random.uniform(self._key(state, self.dynamics.leaps), dtype=chance.dtype) < chance
        ends = ((one.params, one.position, one.gradient, one.auxiliary) for one in (there, state))
        params, position, gradient, auxiliary = where(accepted, *ends)
        auxiliary |= {"accepted": state.auxiliary["accepted"] + accepted}
        return replace(there, params=params, position=position, gradient=gradient, auxiliary=auxiliary)

    def _few(self, state: State, batch_of: Any, leap: Any) -> Batch:
        """The rows that a leap looks at."""
        batch, count = batch_of(leap), getattr(self.dynamics, "rows", None)
        if count is None:
            return batch
        n = len(batch.index)
        some = jax.random.randint(self._key(state, leap), (count,), 0, n)
        weight = batch.weight if batch.weight.ndim == 0 else batch.weight[some]
        return Batch(rows_of(batch.rows, some), weight * (n / count), batch.index[some])

    def _key(self, state: State, number: Any) -> jax.Array:
        """For the rows of a leap; then for the test, and for a gradient where the chain was put."""
        return jax.random.fold_in(purpose_key(state.key, state.step + 1, TEST), number)
