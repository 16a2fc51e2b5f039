"""From a survey to chains that are fit to be kept: design, trial, checks, and another design where they fail.

The work is bounded: so many rounds, each of so many steps.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.control_variate import ControlVariate
from sgmcmc.core.checks import Progress, seed_number
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, State, first_not_finite, size, split, tree_map
from sgmcmc.problem.arrow import ArrowWhitening
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.whitening import AnyWhitening
from sgmcmc.results.diagnostics import autocorrelation_time, direction_inflation, flat_draws, slowest
from sgmcmc.results.excursions import excursions
from sgmcmc.results.keeps import MOST_PAIRED, PairTrace, paired_numbers
from sgmcmc.results.result import PAIRS, Result
from sgmcmc.results.words import Decisions
from sgmcmc.run.loop import Outcome
from sgmcmc.run.request import Problem, Request
from sgmcmc.run.sampler import Given, Sampler
from sgmcmc.tune.anchor import AVERAGED
from sgmcmc.tune.curvatures import dense_whitening, likelihood_curvature, positive, prior_curvature_over, whitening_of
from sgmcmc.tune.design import SMALLEST_STEP, STEP, TOO_STEEP, Design, NoBowlError, control_variates, plain_gradients, row_work
from sgmcmc.tune.pilot import Pilot, noise_points
from sgmcmc.tune.survey import Survey

WARM_UP, TRIAL, SETTLING = 400, 600, 100
SHORT_WARM_UP, SHORT_TRIAL, DEAR = 100, 200, 500_000
"""Steps of a trial where rows × numbers of a step are so many or more."""

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

NEAR = 1.0
"""Standard deviations to the centre within which control variates of second order are as good as they get: another centre would
take the second derivatives of all rows again."""

NEARER = 4
"""How often the starts of chains are brought nearer to the centre, by half, where the posterior is too steep for them."""

SMALLER = 2.0
"""How many times smaller a step becomes that made variances too large."""

ROBUST, MOST_STRETCH = 4.0, 4.0
"""Standard deviations beyond which a draw counts as no farther when scales are taken; how much one round may change them."""


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a trial: its cause (`"step"`, `"noise"` or `"shape"`), and in words."""

    cause: str
    words: str

    def __str__(self) -> str:
        return self.words


class ChainsLeftError(SgmcmcError):
    """The chains of a trial left the posterior however small their step."""


KEPT = ("state", "positions", "gradients", "stride", "noise", "steepest", "round", "decisions")
"""What a checkpoint has of a trial beside its design."""


@dataclass(frozen=True)
class Trial:
    """Chains that went through a trial: where they are, and what they showed.

    Positions and gradients are those of every `stride`-th step. `noise` is that of a gradient from a single row, where the
    chains were, in its loudest direction, and `steepest` the largest curvature there; None without control variates.
    """

    sampler: Sampler
    design: Design
    state: State
    positions: np.ndarray
    gradients: np.ndarray
    stride: int
    noise: float | None
    steepest: float | None
    round: int
    decisions: Decisions

    @cached_property
    def autocorrelation(self) -> float:
        """The longest integrated autocorrelation time, in steps."""
        return self.stride * float(np.max(autocorrelation_time(slowest(self.positions))))

    @property
    def exact(self) -> bool:
        """Whether every step used all rows."""
        return not self.design.centred and "fallback" not in self.decisions

    def packed(self) -> dict[str, Any]:
        """For a checkpoint."""
        own = {name: getattr(self, name) for name in KEPT}
        return {"design": self.design.packed(), **own}

    @property
    def states(self) -> np.ndarray:
        """All positions, chain after chain."""
        return self.positions.reshape(-1, self.positions.shape[-1])

    @property
    def middle(self) -> np.ndarray:
        """Their mean."""
        return self.states.mean(axis=0)

    @property
    def away(self) -> np.ndarray:
        """The same, from their mean."""
        return self.states - self.middle

    @property
    def near(self) -> np.ndarray:
        """The same, those thrown far out drawn in: nothing is to be learnt from how far they went."""
        away = self.states - np.median(self.states, axis=0)
        reach = ROBUST * 1.4826 * np.median(np.abs(away), axis=0)
        return np.clip(away, -reach, reach)

    @property
    def noise_share(self) -> float:
        """The part of the chains' variance that noise makes up in its loudest direction; 0 where that is not known."""
        if self.noise is None:
            return 0.0
        return self.design.amplification * self.noise / self.design.source.drawn


@dataclass(frozen=True)
class Adaptation:
    """The problem, and everything that stays the same from round to round; `exact` if no design is to use all rows."""

    problem: Problem
    chains: int
    root: jax.Array
    progress: Progress
    exact: bool = False

    @cached_property
    def seed(self) -> int:
        return int(jax.random.randint(self.root, (), 0, 2**31 - 100))

    @cached_property
    def pilot(self) -> Pilot:
        return Pilot(self.problem.posterior, self.problem.table, 1, self.progress)

    def unpacked(self, packed: dict[str, Any]) -> Trial:
        """A trial from a checkpoint."""
        design = Design.unpacked(self.problem.posterior, self.problem.table, **packed["design"])
        return Trial(**{**packed, "design": design, "sampler": self.sampler(design)})

    def sampler(self, design: Design) -> Sampler:
        """The sampler that a design describes."""
        source, kind = design.source, "laplace" if design.whitening.dense else "diagonal"
        settings = {"stepsize": design.eps, "minibatch_size": source.batch_size, "n_rows": source.n_rows, "rows": source.kind}
        settings |= {"precondition": kind, "seed": seed_number(jax.random.key_data(self.root))}
        problem, begin = self.problem, start_of(design)
        return Sampler("sample", design.kernel, design.source, problem.position, begin, settings, model=problem.model)

    def adapt(self, survey: Survey) -> Trial | None:
        """Rounds of design and trial, until the checks pass or there are no more; None for a design not to be."""
        if not bool(survey.centre.converged):
            told = Decisions().and_then("mode", survey.passes, f"The search for the mode ended without one: {survey.work}.")
            why = "the search for the mode did not end in one, as it does for networks and other posteriors with many modes"
            return self.fall_back(survey.whitening, told, why)
        told = Decisions().and_then("mode", survey.passes, survey.sentence)
        about = self.pilot, survey.centre, survey.whitening, self.chains, self.seed
        try:
            design = control_variates(*about, likelihood=survey.likelihood)
        except NoBowlError as found:
            return self.fall_back(survey.whitening, told, str(found))
        if self.exact and not design.centred:
            return None
        trial = self.attempt(design, 0, told)
        while (complaint := complaint_about(trial)) is not None:
            if trial.round == ROUNDS and complaint.cause == "noise":
                return self.fall_back(survey.whitening, trial.decisions, f"after {ROUNDS} rounds {complaint}")
            if trial.round == ROUNDS:
                return replace(trial, decisions=unsettled(trial.decisions, complaint))
            try:
                trial = self.again(trial, complaint)
            except ChainsLeftError:  # what there was before is better than nothing
                return replace(trial, decisions=unsettled(trial.decisions, complaint))
        return self.tuned(trial)

    def again(self, trial: Trial, complaint: Complaint) -> Trial:
        """Another round, by what a trial showed: a smaller step, or centre, scales and rows from where the chains went."""
        number = trial.round + 1
        if complaint.cause == "step":
            told = trial.decisions.and_then("rounds", number, f"Round {number}: {complaint}; the step was made smaller.")
            design = trial.design.slower(SMALLER)
            new = design.decisions.made[len(trial.design.decisions.made) :]  # the others are told
            return self.attempt(replace(design, decisions=Decisions(new)), number, told)
        whitening, away = self._by_groups(trial) if isinstance(trial.design.whitening, ArrowWhitening) else reshaped(trial)
        told = trial.decisions.and_then("rounds", number, f"Round {number}: {complaint}; centre, scales and rows were renewed.")
        return self.attempt(self._about_mean(trial, whitening, away, self.seed + 10 * number), number, told)

    def _about_mean(self, trial: Trial, whitening: AnyWhitening, away: np.ndarray, seed: int) -> Design:
        """A design with its centre at the chains' mean, which takes a pass over the data, and rows by where they went."""
        before, problem = trial.design, self.problem
        z = split(jnp.asarray(trial.middle, float), before.whitening.zero())
        passes = FullPasses(problem.table, self.progress)
        centre = ControlVariate().init(problem.posterior, before.whitening.leave(z), passes)
        whitening = replace(whitening, origin=centre.position)
        return control_variates(self.pilot, centre, whitening, self.chains, seed, before, some(away))

    def _by_groups(self, trial: Trial) -> tuple[AnyWhitening, np.ndarray]:
        """The shape of an arrow anew, at the chains' mean, with the prior's curvature averaged over their states; and these."""
        posterior, before = self.problem.posterior, trial.design.whitening
        assert isinstance(before, ArrowWhitening)
        states = jnp.asarray(some(trial.positions), float)
        positions, middle = jax.vmap(before.leave)(states), before.leave(jnp.asarray(trial.middle, float))
        few = tree_map(lambda x: x[:: -(-len(states) // AVERAGED)], positions)
        likelihood = likelihood_curvature(posterior, self.problem.table, middle, before.layout)
        precision: Any = likelihood + prior_curvature_over(posterior, few, before.layout)  # pyright: ignore[reportOperatorIssue]: arrows
        whitening = whitening_of(positive(precision), middle, before.layout)
        return whitening, np.asarray(jax.vmap(whitening.enter)(positions), np.float64)

    def slower(self, trial: Trial) -> Trial:
        """The same design with half the step, tried anew: for chains that left after their trial."""
        sentence = "A chain left the posterior after its trial: the step was halved and the chains started again."
        told = trial.decisions.and_then("halvings", 1, sentence)
        return self.attempt(trial.design.slower(), trial.round + 1, told)

    def fall_back(self, whitening: AnyWhitening, told: Decisions, why: str) -> Trial:
        """Plain gradients, and no further rounds."""
        design = plain_gradients(self.problem.posterior, self.problem.table, whitening, self.seed + 100, why)
        return self.attempt(design, ROUNDS, told, PLAIN_SCATTER)

    def attempt(self, design: Design, number: int, told: Decisions, scatter: float = SCATTER) -> Trial:
        """A trial of a design; where chains leave, with half the step."""
        at_fault = ""
        for halving in range(HALVINGS + 1):
            sampler = self.sampler(design)
            start = self._within_reach(sampler, design, sampler.scatter(self._init(sampler, design, number), scatter))
            outcome = self._run(sampler, start, *lengths(design))
            positions, gradients = (flat_draws(outcome.values[PAIRS][name], True) for name in ("position", "gradient"))
            if outcome.attempted is None and not (design.centred and np.abs(positions).max() > FAR):
                shown = positions, gradients, self._pairs.thin, self.noise(design, positions), self.steepest(design, positions)
                return Trial(sampler, design, outcome.state, *shown, number, told + design.decisions)
            at_fault = _row_at_fault(sampler, outcome)
            sentence = f"A chain left in the trial: the step was divided by {2 ** (halving + 1)} and the chains started again."
            told = told.and_then("halvings", halving + 1, sentence)
            design = design.slower()
        found = f"the chains leave the posterior however small the step (it was halved {HALVINGS} times)"
        usual = "log_lik or log_prior is probably unbounded, or has a limit written as -inf, which belongs into constraints"
        raise ChainsLeftError(f"{found}: {at_fault or usual}")

    @cached_property
    def _pairs(self) -> PairTrace:
        """All numbers of a trial's positions; of so many that this is much memory, fewer positions."""
        d = size(self.problem.position)
        return PairTrace() if d <= MOST_PAIRED else PairTrace(thin=min(d // MOST_PAIRED + 1, TRIAL // 30), most=d)

    def _init(self, sampler: Sampler, design: Design, number: int) -> State:
        """The chains at the centre, with the noise to correct for, where the dynamics do."""
        state = sampler.init(jax.random.fold_in(self.root, 1000 + number), n_chains=self.chains, progress=False)
        if "variance" not in state.auxiliary:
            return state
        of_chains = state.auxiliary["variance"]
        of_one = split(jnp.asarray(design.variance, float), tree_map(lambda x: x[0], of_chains))
        variance = tree_map(lambda v, x: jnp.broadcast_to(v, x.shape).astype(x.dtype), of_one, of_chains)
        return replace(state, auxiliary=state.auxiliary | {"variance": variance})

    def _run(self, sampler: Sampler, state: State, warm_up: int, trial: int) -> Outcome:
        whole = self._pairs == PairTrace()  # then as runs keep them, with the draws: trial and run are one program
        kept: dict[str, Any] = {"diagnose": True} if whole else {"keep": {PAIRS: self._pairs}}
        request = Request(trial, warm_up, chunk_size=sampler.longest_chunk(state), **kept)
        with Bar(self.progress, "warm-up", request.total) as bar:
            return sampler.loop.trial(state, request, bar)

    def shown_by(self, trial: Trial, result: Result) -> Trial:
        """The same chains, judged by a whole run; of models too large to keep all pairs of it, by their trial."""
        pairs = result.pairs
        if pairs is None or pairs.positions.shape[-1] < trial.positions.shape[-1]:
            return trial
        design, seen = trial.design, pairs.looked_at()
        every = -(-pairs.positions.shape[1] // seen.positions.shape[1])
        measured = {"noise": self.noise(design, seen.positions), "steepest": self.steepest(design, seen.positions)}
        shown = {"positions": seen.positions, "gradients": seen.gradients, "stride": every * result.decisions["thin"]}
        return replace(trial, state=result.final_state, **shown, **measured)

    def noise(self, design: Design, positions: np.ndarray) -> float | None:
        """The noise per single row where the chains are, in its loudest direction."""
        if not design.centred:
            return None
        pilot = replace(self.pilot, order=design.order)
        return pilot.noise(design.whitening, some(positions), design.choice, self.seed + 7).loudest

    def steepest(self, design: Design, positions: np.ndarray) -> float | None:
        """The largest curvature where the chains are."""
        if design.choice is None:
            return None
        return float(self._curvatures(design, positions.reshape(-1, positions.shape[-1])).max())

    def _curvatures(self, design: Design, states: np.ndarray) -> np.ndarray:
        points = self.pilot.curvature_points(design.whitening, states)
        assert design.choice is not None
        return self.pilot.curvatures(design.whitening, points, design.choice, self.seed + 9)

    def _within_reach(self, sampler: Sampler, design: Design, state: State) -> State:
        """Chains that start where the posterior has nothing, or is too steep for the step, started nearer the centre."""
        if design.choice is None:
            return state
        states = flat_draws(tree_map(lambda x: x[:, None], state.position), True)[:, 0]
        nearer = self.pilot.plausible(design.whitening, states, design.choice, self.seed + 9)
        for _ in range(NEARER):
            if design.eps * self._curvatures(design, nearer).max() <= TOO_STEEP:
                break
            nearer = nearer / 2
        if np.array_equal(nearer, states):
            return state
        one = design.whitening.zero()
        return sampler.moved(state, jax.vmap(lambda z: split(z, one))(jnp.asarray(nearer, float)))

    def tuned(self, trial: Trial) -> Trial:
        """The chains of a good trial about their own mean, with rows and correction by the noise where they are."""
        near = trial.noise_share <= LOUD * trial.design.noise_share and np.abs(trial.middle).max() < NEAR
        if not trial.design.centred or (trial.design.order == 2 and near):
            return trial
        before = trial.design
        design = self._about_mean(trial, before.whitening, trial.away, self.seed + 5)
        if design.source.batch_size == before.source.batch_size and design.eps == before.eps and design.centred:
            sampler = trial.sampler.with_source(design.source, start_of(design))
        else:
            sampler = self.sampler(design)
        state = self._init(sampler, design, ROUNDS + 1 + trial.round)
        over = _over(before.whitening, design.whitening, trial.state.position)
        outcome = self._run(sampler, sampler.moved(state, over), 0, SETTLING)
        if outcome.attempted is not None:
            return trial
        told = trial.decisions.and_then("centre", "mean", "Centre and rows were then chosen anew, by where the chains are.")
        if (design.source.batch_size, design.eps) != (before.source.batch_size, before.eps):
            told = told + design.decisions
        return replace(trial, sampler=sampler, design=design, state=outcome.state, decisions=told)


@jax.jit
def _over(before: AnyWhitening, after: AnyWhitening, positions: PyTree) -> PyTree:
    """Positions of chains in the variables of one whitening, in those of another."""
    return jax.vmap(lambda z: after.enter(before.leave(z)))(positions)


def lengths(design: Design) -> tuple[int, int]:
    """Steps of the warm-up and of the trial."""
    if "fallback" in design.decisions:
        return PLAIN_WARM_UP, TRIAL
    quick = design.eps >= 0.5 * STEP and design.source.batch_size * row_work(design.whitening) >= DEAR
    return (SHORT_WARM_UP, SHORT_TRIAL) if quick else (WARM_UP, TRIAL)


def start_of(design: Design) -> Given:
    """Where the chains of a design start: at its centre."""
    return Given(design.whitening.zero(), design.est_state)


def _row_at_fault(sampler: Sampler, outcome: Outcome) -> str:
    """The row for which the log posterior was not finite where a chain went, in a sentence; empty where there is none."""
    if outcome.attempted is None:
        return ""
    culprit = first_not_finite(*outcome.attempted, True)
    return "" if culprit is None else sampler.why_not_finite(outcome.attempted[0], outcome.state, culprit.chain)


def complaint_about(trial: Trial) -> Complaint | None:
    """What is wrong with the chains of a trial, or None: noise comes before the variances, which it makes too large."""
    return noise_complaint(trial) or step_complaint(trial) or variance_complaint(trial)


def noise_complaint(trial: Trial) -> Complaint | None:
    """Too much noise where the chains were."""
    allowed = trial.design.noise_share
    if trial.noise_share <= LOUD * allowed:
        return None
    share = f"minibatch noise made up {trial.noise_share:.0%} of the variance where the chains went, not {allowed:.0%}"
    return Complaint("noise", share)


def step_complaint(trial: Trial) -> Complaint | None:
    """A step that is too large for the curvature where the chains were, or threw them out."""
    if trial.steepest is None or trial.design.eps <= SMALLEST_STEP:
        return None
    if thrown := int(excursions(trial.positions, trial.gradients).max()):
        return Complaint("step", f"{thrown} draws of a direction were where the posterior has nothing")
    if trial.design.eps * trial.steepest <= TOO_STEEP:
        return None
    return Complaint(
        "step", f"the posterior was up to {trial.steepest:.2g} times as steep where the chains went as at the centre"
    )


def variance_complaint(trial: Trial) -> Complaint | None:
    """Variances that are off: too large ones come from the step, too small ones from scales that do not fit."""
    some = paired_numbers(trial.positions.shape[-1])
    found = direction_inflation(trial.positions[..., some], trial.gradients[..., some])
    worst = int(np.argmax(np.abs(found.value - 1) - SURE * found.error))
    if abs(found.value[worst] - 1) <= OFF + SURE * found.error[worst]:
        return None
    cause = "step" if found.value[worst] > 1 else "shape"
    return Complaint(cause, f"a direction's variance was {found.value[worst]:.2f} times what it should be")


def reshaped(trial: Trial) -> tuple[AnyWhitening, np.ndarray]:
    """Scales from the covariance of the chains, drawn towards those before while draws are few; and the states in these."""
    whitening, away, near, d = trial.design.whitening, trial.away, trial.near, trial.positions.shape[-1]
    effective = len(away) / trial.autocorrelation
    trust = effective / (effective + d)
    if not whitening.dense:
        scale = np.sqrt(np.clip(trust * near.var(axis=0) + (1 - trust), MOST_STRETCH**-2, MOST_STRETCH**2))
        factor = tree_map(jnp.multiply, whitening.factor, split(jnp.asarray(scale, float), whitening.zero()))
        return replace(whitening, factor=factor), away / scale
    values, vectors = np.linalg.eigh(trust * np.cov(near.T).reshape(d, d) + (1 - trust) * np.eye(d))
    stretch = vectors * np.sqrt(np.clip(values, MOST_STRETCH**-2, MOST_STRETCH**2))
    factor = np.asarray(whitening.factor, np.float64) @ stretch
    return dense_whitening(factor, whitening.origin), away @ np.linalg.inv(stretch).T


def some(positions: np.ndarray) -> np.ndarray:
    """As many positions as the noise is measured at, from all over the chains."""
    states = positions.reshape(-1, positions.shape[-1])
    return states[np.linspace(0, len(states) - 1, noise_points(states.shape[1])).astype(int)]


def unsettled(told: Decisions, complaint: Complaint) -> Decisions:
    """The record of rounds that ended without all checks passing."""
    return told.and_then("unsettled", str(complaint), f"The rounds ended, and still {complaint}: the draws are approximate.")
