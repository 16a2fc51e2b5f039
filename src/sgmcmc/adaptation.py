"""From a survey to chains that are fit to be kept: design, trial, checks, and another design where they fail.

The work is bounded: so many rounds, each of so many steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc._tree import split, tree_map
from sgmcmc._types import State
from sgmcmc.curvature import dense_whitening
from sgmcmc.decisions import Decisions
from sgmcmc.design import NOISE, Design, control_variates, plain_gradients, rotated
from sgmcmc.diagnostics import autocorrelation_time, flat_draws
from sgmcmc.errors import SgmcmcError
from sgmcmc.gradients import Centre, WhitenedState, centre_of
from sgmcmc.inflation import direction_inflation
from sgmcmc.passes import full_gradient
from sgmcmc.pilot import NOISE_POINTS, Pilot
from sgmcmc.posterior import Posterior
from sgmcmc.progress import Bar, Progress
from sgmcmc.sampler import Prepared, Sampler
from sgmcmc.schedules import Schedule
from sgmcmc.summaries import PairTrace, Trace
from sgmcmc.survey import Survey
from sgmcmc.whitening import Whitening

WARM_UP, TRIAL = 400, 600
PLAIN_WARM_UP = 2500
ROUNDS, HALVINGS = 3, 6
FAR = 50.0
"""Standard deviations from the centre at which a chain counts as lost."""

SCATTER, PLAIN_SCATTER = 1.5, 0.5
"""Chains start so many times as far from the centre as the posterior reaches: else R-hat would have nothing to see.
Where it reaches is not known without control variates; there they start nearer."""

OFF, SURE = 0.1, 4.0
"""A variance that is off by more than `OFF`, by `SURE` standard errors, calls for another round."""

LOUD = 2.0
"""So does noise that is so many times what the rows were chosen for."""


@dataclass(frozen=True)
class Trial:
    """Chains that went through a trial: where they are, and what they showed."""

    sampler: Sampler
    design: Design
    state: State
    positions: np.ndarray
    gradients: np.ndarray
    round: int
    decisions: Decisions

    @property
    def autocorrelation(self) -> float:
        """The longest integrated autocorrelation time, in steps."""
        return float(np.max(autocorrelation_time(self.positions)))


@dataclass(frozen=True)
class Adaptation:
    """The problem, and everything that stays the same from round to round."""

    posterior: Posterior
    arrays: dict[str, np.ndarray]
    start: Any
    chains: int
    root: jax.Array
    seed: int
    progress: Progress

    def adapt(self, survey: Survey) -> Trial:
        """Rounds of design and trial, until the checks pass or there are no more."""
        told = Decisions().and_then("mode", survey.passes, _mode_sentence(survey))
        if not bool(survey.centre.converged):
            why = "the search for the mode did not end in one, as it does for networks and other posteriors with many modes"
            return self.fall_back(survey.whitening, told, why)
        trial = self.attempt(self._design(survey.centre, survey.whitening, 0), 0, WARM_UP, SCATTER, told)
        while (complaint := self.complaint(trial)) is not None:
            if trial.round == ROUNDS and self.is_loud(trial):
                return self.fall_back(survey.whitening, trial.decisions, f"after {ROUNDS} rounds {complaint}")
            if trial.round == ROUNDS:
                return replace(trial, decisions=unsettled(trial.decisions, complaint))
            trial = self.again(trial, complaint)
        return self.tuned(trial)

    def again(self, trial: Trial, complaint: str) -> Trial:
        """Another round, from what a trial showed."""
        number = trial.round + 1
        told = trial.decisions.and_then("rounds", number, f"Round {number}: {complaint}; centre, scales and rows were renewed.")
        return self.attempt(self._design(*self.renewed(trial), number), number, WARM_UP, SCATTER, told)

    def _design(self, centre: Centre, whitening: Whitening, number: int) -> Design:
        return control_variates(self.posterior, self.arrays, centre, whitening, self.seed + 10 * number, self.progress)

    def fall_back(self, whitening: Whitening, told: Decisions, why: str) -> Trial:
        """Plain gradients, and no further rounds."""
        design = plain_gradients(self.posterior, self.arrays, whitening, self.seed + 100, why)
        return self.attempt(design, ROUNDS, PLAIN_WARM_UP, PLAIN_SCATTER, told)

    def attempt(self, design: Design, number: int, warm_up: int, scatter: float, told: Decisions) -> Trial:
        """A trial of a design; where chains leave, with half the step."""
        for halving in range(HALVINGS + 1):
            prepared = Prepared(design.whitening.zero(), design.est_state)
            sampler = Sampler("sample", design.kernel, design.source, self.start, design.settings, None, prepared)
            seed = jax.random.fold_in(self.root, 1000 + number)
            state = sampler.init(seed, n_chains=self.chains, progress=False)
            state = sampler.scatter(with_variance(state, design.variance), scatter)
            with Bar(self.progress, "warm-up", warm_up + TRIAL) as bar:
                outcome = sampler.loop.run(state, TRIAL, warm_up, 1, (Trace(), PairTrace()), bar)
            if outcome.interrupted:
                raise KeyboardInterrupt
            pairs = outcome.values[1]
            positions, gradients = (flat_draws(pairs[name], True) for name in ("position", "gradient"))
            lost = outcome.failed_at is not None or not np.abs(positions).max() <= FAR
            if not lost:
                return Trial(sampler, design, outcome.state, positions, gradients, number, told + design.decisions)
            sentence = f"A chain left in the trial: the step was divided by {2 ** (halving + 1)} and the chains started again."
            told = told.and_then("halvings", halving + 1, sentence)
            design = halved(design)
        raise SgmcmcError(
            f"the chains leave the posterior however small the step (it was halved {HALVINGS} times): log_lik or log_prior is "
            "probably unbounded, or has a limit written as -inf, which belongs into constraints"
        )

    def complaint(self, trial: Trial) -> str | None:
        """What is wrong with a trial, or None."""
        if self.is_loud(trial):
            share = trial.design.noise_share(self.noise(trial))
            return f"minibatch noise made up {share:.0%} of the variance where the chains went, not {NOISE:.0%}"
        found = direction_inflation(trial.positions, trial.gradients)
        worst = int(np.argmax(np.abs(found.value - 1) - SURE * found.error))
        if abs(found.value[worst] - 1) > OFF + SURE * found.error[worst]:
            return f"a direction's variance was {found.value[worst]:.2f} times what it should be"
        return None

    def is_loud(self, trial: Trial) -> bool:
        """Whether the noise where the chains are is well above what the rows were chosen for."""
        return trial.design.centred and trial.design.noise_share(self.noise(trial)) > LOUD * NOISE

    def noise(self, trial: Trial) -> np.ndarray:
        """The noise per single row where the chains are."""
        every = trial.positions.reshape(-1, trial.positions.shape[-1])
        points = every[np.linspace(0, len(every) - 1, 2 * NOISE_POINTS).astype(int)]
        design = trial.design
        return Pilot(self.posterior, self.arrays, True).noise(design.whitening, points, design.probabilities, self.seed + 7)

    def renewed(self, trial: Trial) -> tuple[Centre, Whitening]:
        """The chains' mean as centre, their covariance (drawn towards the one before) as scales."""
        every = trial.positions.reshape(-1, trial.positions.shape[-1])
        whitening, d = trial.design.whitening, every.shape[1]
        z = split(jnp.asarray(every.mean(axis=0), float), whitening.zero())
        origin = whitening.leave(z)
        with Bar(self.progress, "full gradient", self.posterior.n_rows, "row") as bar:
            gradient = full_gradient(self.posterior, origin, self.arrays, bar)
        centre = Centre(origin, gradient, jnp.asarray(np.nan, float), jnp.asarray(True))
        effective = len(every) / trial.autocorrelation
        trust = effective / (effective + d)
        if not whitening.dense:
            scale = np.sqrt(trust * every.var(axis=0) + (1 - trust))
            factor = tree_map(jnp.multiply, whitening.factor, split(jnp.asarray(scale, float), whitening.zero()))
            return centre, replace(whitening, origin=origin, factor=factor)
        covariance = trust * np.cov(every.T).reshape(d, d) + (1 - trust) * np.eye(d)
        factor = np.asarray(whitening.factor, np.float64) @ np.linalg.cholesky(covariance)
        return centre, dense_whitening(factor, origin)

    def tuned(self, trial: Trial) -> Trial:
        """The noise as it is where the chains are, its axes made those of the chain, so that the correction is right."""
        if not trial.design.centred:
            return trial
        noise, design = self.noise(trial) / trial.design.source.batch_size, trial.design
        if not design.whitening.dense:
            return replace(trial, state=with_variance(trial.state, noise))
        values, vectors = np.linalg.eigh(noise)
        whitening = rotated(design.whitening, vectors)
        state, turn = trial.state, jnp.asarray(vectors, float)
        centre = centre_of(state.estimator)
        assert centre is not None
        est_state = WhitenedState(whitening, replace(centre, gradient=turn.T @ centre.gradient))
        state = replace(
            state,
            position=state.position @ turn,
            gradient=state.gradient @ turn,
            auxiliary=state.auxiliary | {"momentum": state.auxiliary["momentum"] @ turn},
            estimator=est_state,
        )
        return replace(
            trial,
            state=with_variance(state, np.maximum(values, 0)),
            design=replace(design, est_state=est_state),
            positions=trial.positions @ vectors,
            gradients=trial.gradients @ vectors,
        )


def unsettled(told: Decisions, complaint: str) -> Decisions:
    """The record of rounds that ended without all checks passing."""
    return told.and_then("unsettled", complaint, f"After {ROUNDS} rounds {complaint}: the draws are approximate.")


def with_variance(state: State, variance: np.ndarray) -> State:
    """The state with a noise to correct for, where its dynamics do."""
    if "variance" not in state.auxiliary:
        return state
    like = state.auxiliary["variance"]
    one = tree_map(lambda x: x[0], like)
    spread = tree_map(lambda v, x: jnp.broadcast_to(v, x.shape).astype(x.dtype), split(jnp.asarray(variance, float), one), like)
    return replace(state, auxiliary=state.auxiliary | {"variance": spread})


def halved(design: Design) -> Design:
    """The same design with half the step."""
    schedule = design.kernel.schedule
    smaller = Schedule(tree_map(lambda e: e / 4, schedule.constant), None, schedule.names)
    return replace(design, kernel=replace(design.kernel, schedule=smaller))


def _mode_sentence(survey: Survey) -> str:
    kind = "second derivatives" if survey.curvature == "hessian" else "squared gradients (Fisher information)"
    return f"The mode was found in {survey.passes} passes over the data; the posterior's shape there comes from {kind}."
