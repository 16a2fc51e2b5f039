"""How a posterior is to be sampled, decided from its survey: variables, estimator, rows per step, step size.

In the variables of a whitening the posterior is near N(0, I), so the step size has no units and nothing depends on the
number of rows or their scaling. What is left to choose is the number of rows per step, by the noise that they make.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.dynamics.baoa import BAOA, noise_amplification
from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.second_order import BesidePrior, CurvedCentre, SecondOrder
from sgmcmc.algorithms.gradients.whitened import Whitened, WhitenedState, centre_of, whitened_centre
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.core.trees import PyTree, Rows, size, split, tree_map
from sgmcmc.problem.arrow import ArrowWhitening
from sgmcmc.problem.passes import compiled, full_sum
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule
from sgmcmc.problem.whitening import AnyWhitening, Whitening, whitened
from sgmcmc.results.packing import packable
from sgmcmc.results.words import Decisions
from sgmcmc.rows.importance import Pool, RowLaw
from sgmcmc.rows.sources import AllRows, Source, make_source, subsample
from sgmcmc.rows.table import Table, usual_rows
from sgmcmc.tune.curvatures import Curvature, beside_prior, dense_whitening, in_whitened, likelihood_curvature
from sgmcmc.tune.mode import curvature_times, prior_curvature
from sgmcmc.tune.pilot import Choice, Noise, Pilot, posterior_points

packable(Pool)

STEP, FRICTION = 0.49, 0.5
"""ε = 0.7² and α of `BAOA` on a unit Gaussian: an autocorrelation time of 2.7 steps, and 0.42 of the noise in the variance."""

STEP_OF_MANY = STEP / 2
"""ε at most with control variates of second order for very many numbers: it needs two thirds of the rows."""

STEEP, TOO_STEEP, SMALLEST_STEP = 2.0, 3.2, 0.49 / 1024
"""ε times the largest curvature where the chains go: what a step is chosen for, and what calls for a smaller one. `BAOA` is
stable below 4. Fewer than one step in 32 of the usual length would take too long, whatever the curvature."""

HOPELESS = 1e4
"""Curvature at points of the approximation by a Gaussian, beside that at its centre, beyond which it approximates nothing."""

NOISE, NOISE_OF_SECOND, NOISE_OF_MANY, MANY = 0.05, 0.01, 0.05, 250
"""The part of the variance that minibatch noise may make up, before it is corrected for; with control variates of second order,
whose noise grows with the fourth power of the distance from the centre, less: at 4 standard deviations it is as much then. The
distance of a draw in many dimensions varies little, so with every so many it may be that much more again, up to a limit: at twice
that, a chain with 2,500 numbers left the posterior."""

FEWEST_ROWS, ROWS_PER_GROUP = 32, 2
"""Of a minibatch at least: in all, and for every group on average, whose noise would else come in rare jolts."""

SIZES_PER_DOUBLING = 4
"""Minibatches have one of a few sizes, so that a program serves other data and other seeds of the same model too."""

SPARE = 2
"""Rows that are always in save others; but so many times as many as are then needed stay, for noise that was not seen yet."""

KEPT_ROWS = 1.1
"""A design keeps the rows of the one before if it needs at most so many times as many: less than a new compilation costs."""

MOST_WORK = 4_000_000
"""Rows × parameters of a step: where the noise would need more, the step becomes smaller instead."""

SECOND_WORK, WORTH = 1e12, 3e5
"""Rows × squared numbers of each that the second derivatives of all rows may cost; and how many such products are worth the
gradient of one row in every step of the chains."""

PLAIN_ROWS, PLAIN_STEP, LEAST_FRICTION = 512, 0.25, 0.02
POWER_ROWS, POWER_ITERATIONS = 20_000, 30


class NoBowlError(Exception):
    """The curvature at the centre says nothing about its surroundings."""


@dataclass(frozen=True)
class Design:
    """Everything a chain needs, and the sentences that say why.

    `variance` is that of the gradient noise in every direction, for which the dynamics make up, and `amplification` how much of
    the chain's variance a unit of it adds; `choice` is how rows are drawn, or None where all are alike; `largest_eps` the
    largest step that later designs may have, after larger ones threw chains out.
    """

    posterior: Posterior
    source: Source
    est_state: WhitenedState
    variance: np.ndarray
    amplification: float
    eps: float
    friction: float
    choice: Choice | None
    decisions: Decisions
    largest_eps: float = STEP

    @cached_property
    def kernel(self) -> Kernel:
        """BAOA with one step size and one friction for all directions; noise is corrected for where it is known everywhere."""

        def all_of_it(value: float) -> PyTree:
            return tree_map(lambda x: jnp.asarray(value, x.dtype), self.whitening.zero())

        # The curvature of all directions is 1 behind a dense whitening; behind one by scales it may be as little as 0.
        dynamics = BAOA(all_of_it(self.friction), float(self.whitening.dense), corrected=self.centred)
        gradient = Whitened((Minibatch(), ControlVariate(), SecondOrder())[self.order])
        return Kernel(self.posterior, gradient, dynamics, Schedule(all_of_it(self.eps)))

    @property
    def whitening(self) -> AnyWhitening:
        return self.est_state.whitening

    @property
    def noise_share(self) -> float:
        """The part of the variance that the noise of its minibatches may make up."""
        return noise_share(self.order, row_work(self.whitening))

    @property
    def order(self) -> int:
        """Of its control variates; 0 where there are none."""
        centre = centre_of(self.est_state)
        return 0 if centre is None else 2 if isinstance(centre, CurvedCentre) else 1

    @property
    def centred(self) -> bool:
        return centre_of(self.est_state) is not None

    def packed(self) -> dict[str, Any]:
        """For a checkpoint: without the data, the model and what follows from the rest."""
        choice: Any = self.choice
        if isinstance(choice, RowLaw):
            choice = {"probabilities": choice.probabilities, "certain": choice.certain}
        names = ("est_state", "variance", "amplification", "eps", "friction", "decisions", "largest_eps")
        own = {name: getattr(self, name) for name in names}
        return {**own, "batch_size": self.source.batch_size, "rows": self.source.kind, "choice": choice}

    @classmethod
    def unpacked(cls, posterior: Posterior, table: Table, batch_size: int, rows: str, choice: Any, **own: Any) -> Self:
        """From what was in a checkpoint."""
        if isinstance(choice, dict):
            choice = RowLaw(table, **choice)
        source = make_source(table, batch_size, rows) if choice is None else choice.source(batch_size)
        return cls(posterior, source, choice=choice, **own)

    def slower(self, times: float = 2.0) -> Self:
        """The same design with a step so many times smaller, and as much friction per distance."""
        eps = self.eps / times**2
        friction = friction_for(eps) if self.centred else self.friction
        told = self.decisions.and_then("stepsize", eps, f"After that the step is {math.sqrt(eps):.2g}.")
        amplification = self._amplification(eps, friction)
        return replace(self, eps=eps, friction=friction, amplification=amplification, decisions=told, largest_eps=eps)

    def _amplification(self, eps: float, friction: float) -> float:
        return float(noise_amplification(eps, friction, float(self.whitening.dense)))


def control_variates(
    pilot: Pilot, centre: Centre, whitening: AnyWhitening, chains: int, seed: int, before: Design | None = None,
    states: np.ndarray | None = None, likelihood: Curvature | None = None,
) -> Design:  # fmt: skip
    """Control variates about the centre, rows drawn by how much they matter, as many as keep the noise low.

    `states` of chains, in the variables of `whitening`, say where it is to be low; without them, N(0, I). `before` is the
    design that made them: its order is kept, if it had control variates, and near enough to what is needed its number of rows,
    and with it what was compiled. `likelihood` is the curvature of all rows at the centre, where it is known.
    """
    posterior, n_rows, d = pilot.posterior, pilot.posterior.n_rows, size(whitening.origin)
    if states is None:
        scored, measured = pilot.points(d, seed), posterior_points(whitening, seed)
        if not whitening.dense:
            steepest = largest_curvature(posterior, pilot.table, whitening, seed)
            whitening = shrunk(whitening, steepest)
            scored, measured = math.sqrt(steepest) * scored, math.sqrt(steepest) * measured
        scored = pilot.plausible(whitening, scored, None, seed)
    else:
        scored, measured = pilot.some_of(states), states
    orders = (before.order,) if before is not None and before.centred else worth_a_look(pilot, whitening, likelihood)
    choices = {order: replace(pilot, order=order).weigh(whitening, scored, chains, seed) for order in orders}
    choice = next(iter(choices.values()))
    if states is None:
        measured = pilot.plausible(whitening, measured, choice, seed)
    steepest = _steepest(
        pilot.curvatures(whitening, pilot.curvature_points(whitening, measured), choice, seed + 3), states is None
    )
    step, largest = step_for(steepest), STEP
    if before is not None:
        largest = before.largest_eps
        step = min(step_for(steepest, before.eps), largest)
    found = [_rows(replace(pilot, order=order), whitening, choice, measured, step, seed) for order, choice in choices.items()]
    known = 0.0 if likelihood is not None else n_rows * row_work(whitening) / WORTH
    rows = min(found, key=lambda rows: (rows.evaluations + (known if rows.order == 2 else 0.0)) / math.sqrt(rows.eps))
    if rows.evaluations >= n_rows:
        return replace(_on_all_rows(pilot, whitening, rows, steepest), largest_eps=largest)
    n, choice, noise = rows.n, rows.choice, rows.noise
    if before is not None and before.centred and rows.eps == before.eps:
        n = kept_rows(n, before.source.batch_size, rows.always)
    variance = noise.drawn
    if variance.ndim == 2:
        values, vectors = np.linalg.eigh(variance)
        whitening = dense_whitening(np.asarray(whitening.factor, np.float64) @ vectors, whitening.origin)
        variance = np.maximum(values, 0)
    told, source = rows.told(n, n_rows) + _slopes(steepest), choice.source(n)
    carried = whitened_centre(centre, whitening) if rows.order == 1 else _curved(pilot, centre, whitening, likelihood)
    state = WhitenedState(whitening, carried)
    design = _design(posterior, state, source, variance / source.drawn, choice, told, rows.eps, friction_for(rows.eps))
    return replace(design, largest_eps=largest)


def _on_all_rows(pilot: Pilot, whitening: AnyWhitening, rows: "_Rows", steepest: float) -> Design:
    """Exact gradients, where minibatches would cost as much."""
    n_rows, d = pilot.posterior.n_rows, size(whitening.origin)
    cost = f"a minibatch would need {rows.n:,} of them, and those {2 * rows.order} times, at the draw and at the centre"
    sentence = f"Each step uses all {n_rows:,} rows: {cost}, so exact gradients are cheaper."
    told = Decisions().and_then("minibatch_size", n_rows, sentence) + _slopes(steepest)
    state, source = WhitenedState(whitening, ()), AllRows(pilot.table, n_rows)
    return _design(pilot.posterior, state, source, np.zeros(d), None, told, rows.eps, friction_for(rows.eps))


def _curved(pilot: Pilot, centre: Centre, whitening: AnyWhitening, likelihood: Curvature | None) -> CurvedCentre:
    """A centre in the variables of a whitening, with the second derivatives there, which take a pass where they are not known."""
    if likelihood is None:
        layout = whitening.layout if isinstance(whitening, ArrowWhitening) else None
        likelihood = likelihood_curvature(pilot.posterior, pilot.table, whitening.origin, layout)
    hessian = _beside_prior(pilot.posterior, whitening, likelihood) if is_wide(whitening) else None
    if hessian is None:
        hessian = tree_map(jnp.negative, in_whitened(likelihood, whitening))
    there = whitened_centre(centre, whitening)
    return CurvedCentre(there.position, there.gradient, there.distance, there.converged, hessian)


def _beside_prior(posterior: Posterior, whitening: AnyWhitening, likelihood: Curvature) -> BesidePrior | None:
    return beside_prior(likelihood, prior_curvature(posterior, False, whitening.origin), whitening)


def worth_a_look(pilot: Pilot, whitening: AnyWhitening, likelihood: Curvature | None) -> tuple[int, ...]:
    """The orders of control variates among which their noise is to decide: for many numbers whose second derivatives are known
    it is clear without a look.
    """
    if likelihood is not None and is_wide(whitening):
        return (2,)
    return (1, 2) if second_pays(pilot, whitening) else (1,)


def second_pays(pilot: Pilot, whitening: AnyWhitening) -> bool:
    """Whether the second derivatives of all rows, which control variates of second order need, can be had."""
    return whitening.dense and pilot.posterior.n_rows * row_work(whitening) ** 2 <= SECOND_WORK


def is_wide(whitening: AnyWhitening) -> bool:
    """Whether products with matrices are most of what a step costs."""
    return isinstance(whitening, Whitening) and whitening.dense and size(whitening.origin) > 2 * MANY


def row_work(whitening: AnyWhitening) -> int:
    """How many numbers a row has to do with."""
    return whitening.layout.per_row if isinstance(whitening, ArrowWhitening) else size(whitening.origin)


@dataclass(frozen=True)
class _Rows:
    """How many rows a step needs with control variates of some order, and how they are drawn."""

    order: int
    choice: Choice
    noise: Noise
    gain: float
    eps: float
    n: int
    because: str

    @property
    def always(self) -> int:
        """Rows that are always in."""
        return len(self.choice.certain) if isinstance(self.choice, RowLaw) else 0

    @property
    def evaluations(self) -> int:
        """Gradients of single rows that a step takes: two of each, and for second order as much again."""
        return 2 * self.order * self.n

    def told(self, n: int, n_rows: int) -> Decisions:
        alone = (
            f"drawn alike, about {self.gain:.3g} times as many would be needed."
            if self.gain > 1.05
            else "here they are much alike."
        )
        often = f"Rows that matter more are drawn more often; {alone}"
        sentence = f"Each step looks at {n:,} of the {n_rows:,} rows, {self.because}. {often}"
        told = Decisions().and_then("minibatch_size", n, sentence)
        if self.order == 2:
            sentence = "Their gradients are compared with a line through those at the centre (second-order control variates)."
            told = told.and_then("order", 2, sentence)
        if isinstance(self.choice, Pool):
            return told + price(self.choice, self.noise.loudest)
        if self.always:
            told = told.and_then("certain_rows", self.always, f"{self.always:,} rows that matter most are always in.")
        return told


def _rows(pilot: Pilot, whitening: AnyWhitening, choice: Choice, measured: np.ndarray, step: float, seed: int) -> _Rows:
    """The rows that keep the noise of an order low; those that matter most always in, where that saves others."""
    n_rows, numbers = pilot.posterior.n_rows, row_work(whitening)
    work = pilot.order * numbers
    if pilot.order == 2 and is_wide(whitening):
        step = min(step, STEP_OF_MANY)
    noise, allowed = pilot.noise(whitening, measured, choice, seed + 2), noise_share(pilot.order, numbers)
    fewest = ROWS_PER_GROUP * whitening.layout.groups if isinstance(whitening, ArrowWhitening) else FEWEST_ROWS
    eps, n, because = rows_and_step(noise.loudest, n_rows, work, step, allowed, fewest)
    gain = noise.gain
    if isinstance(choice, RowLaw) and len((surer := choice.with_certain(min(n, MOST_WORK // work))).certain):
        choice, alone, noise = surer, n, pilot.noise(whitening, measured, surer, seed + 2)
        eps, n, because = rows_and_step(noise.loudest, n_rows, work, step, allowed, fewest)
        n = min(max(n + len(choice.certain), min(alone, SPARE * n)), n_rows)
    return _Rows(pilot.order, choice, noise, gain, eps, n, because)


def noise_share(order: int, dimension: int) -> float:
    """The part of the variance that minibatch noise may make up with control variates of an order, of numbers that rows have to
    do with.
    """
    return min(NOISE_OF_SECOND * (1 + dimension / MANY), NOISE_OF_MANY) if order == 2 else NOISE


def kept_rows(needed: int, before: int, always: int) -> int:
    """The rows of the design before, where those of them that are drawn, beside those always in, are nearly enough."""
    return before if needed - always <= KEPT_ROWS * (before - always) else needed


def _steepest(curvatures: np.ndarray, guessed: bool) -> float:
    """The largest curvature to reckon with: of states of chains, any; guesses at these may lie where no chain goes."""
    if guessed and np.median(curvatures) > HOPELESS:
        where = f"{np.median(curvatures):.2g} times as steep a standard deviation away"
        raise NoBowlError(f"the posterior is no bowl about its mode ({where}), as those of networks are not")
    return float(np.quantile(curvatures, 0.75, method="lower") if guessed else curvatures.max())


def _slopes(steepest: float) -> Decisions:
    """What to say where that made the step smaller."""
    if steepest * STEP <= TOO_STEEP:
        return Decisions()
    where = "where the chains go the posterior is"
    sentence = f"The step is small: {where} up to {steepest:.2g} times as steep as at the centre."
    return Decisions().and_then("steepest", steepest, sentence)


def step_for(steepest: float, before: float = STEP) -> float:
    """The step that suits the largest curvature; the one before, where it is near enough. It has a few sizes, not any, so that
    programs can serve again.
    """
    if STEEP / 8 <= before * steepest <= TOO_STEEP or (before * steepest <= TOO_STEEP and before == STEP):
        return before
    halvings = max(0, math.ceil(2 * math.log2(STEP * steepest / STEEP))) if math.isfinite(steepest) else math.inf
    return max(STEP * 0.5 ** (halvings / 2), SMALLEST_STEP)


def friction_for(eps: float) -> float:
    """As much friction per distance as at the usual step: the autocorrelation then grows as the step shrinks, the noise falls."""
    return 1 - (1 - FRICTION) ** math.sqrt(eps / STEP)


def price(pool: Pool, noise: float) -> Decisions:
    """What drawing the rows once instead of always anew costs, given the noise per single row in its loudest direction."""
    shift = math.sqrt(noise / pool.size)
    sentence = (
        f"The data are too large to draw from at every step: {pool.size:,} of the {pool.n_rows:,} rows were drawn once, by how "
        f"much they matter, and the chains draw from those, each from its own {pool.size // pool.chains:,}. That shifts the "
        f"posterior mean by at most about {shift:.2g} posterior standard deviations (in the worst direction, as a standard "
        "deviation over pools)."
    )
    return Decisions().and_then("pool", shift, sentence)


def plain_gradients(posterior: Posterior, table: Table, whitening: AnyWhitening, seed: int, why: str) -> Design:
    """Without control variates: for posteriors that are no bowl, such as those of networks.

    Scales from the curvature's diagonal, the step from its largest eigenvalue, the friction from the noise.
    """
    n_rows, n = posterior.n_rows, min(PLAIN_ROWS, posterior.n_rows)
    scales: Any = whitening
    if isinstance(whitening, ArrowWhitening):
        own = whitening.layout.of_vector(jnp.asarray(whitening.scales, float), whitening.origin)
        scales = Whitening(whitening.origin, own, dense=False)
    elif whitening.dense:
        inverse = np.linalg.inv(np.asarray(whitening.factor, np.float64))
        given = 1 / np.sqrt(np.sum(inverse**2, axis=0))  # the standard deviations of each number given the others
        scales = replace(whitening, factor=split(jnp.asarray(given, float), whitening.origin), dense=False)
    scales = shrunk(scales, largest_curvature(posterior, table, scales, seed))
    noise = Pilot(posterior, table, 0).noise(scales, np.zeros((1, size(scales.origin))), None, seed)
    left, eps = (1 - n / n_rows) / n, PLAIN_STEP
    variance, ratio = left * noise.drawn, eps * left * noise.loudest / (4 * NOISE)
    if ratio > 1:
        eps, ratio = eps / ratio, 1.0
    friction = max(2 * ratio / (1 + ratio), LEAST_FRICTION)
    told = Decisions().and_then("fallback", why, f"No control variates: {why}. The chains use plain minibatch gradients instead.")
    told = told.and_then("minibatch_size", n, f"Each step looks at {n:,} of the {n_rows:,} rows, drawn at random.")
    source = make_source(table, n, usual_rows(table))
    return _design(posterior, WhitenedState(scales, ()), source, variance, None, told, eps, friction)


def _design(
    posterior: Posterior, state: WhitenedState, source: Source, variance: np.ndarray, choice: Choice | None,
    told: Decisions, eps: float, friction: float,
) -> Design:  # fmt: skip
    """The design with a step size and a friction, and the sentence on these."""
    kind = "all correlations removed" if state.whitening.dense else "each parameter divided by its own scale"
    sentence = (
        f"The step is {math.sqrt(eps):.2g}, in variables in which the posterior's steepest direction has standard deviation 1 "
        f"({kind}), and the momentum loses {friction:.0%} of itself per step."
    )
    told = told.and_then("stepsize", eps, sentence)
    amplification = float(noise_amplification(eps, friction, float(state.whitening.dense)))
    return Design(posterior, source, state, variance, amplification, eps, friction, choice, told)


def rows_and_step(
    noise: float, n_rows: int, dimension: int, step: float = STEP, allowed: float = NOISE, fewest: int = FEWEST_ROWS
) -> tuple[float, int, str]:
    """ε and n for a noise per single row: n for a full step, or the most that is affordable and a smaller step."""

    def needed(eps: float) -> float:
        return float(noise_amplification(eps, friction_for(eps), 1.0)) * noise / allowed

    most = max(FEWEST_ROWS, MOST_WORK // dimension)
    n = min(n_rows, max(min(fewest, most), math.ceil(needed(step))))
    exact = 2 * n >= n_rows and n_rows <= 2 * most  # all rows will be used, and once instead of twice, which is affordable
    if n <= most or exact:
        return (
            step,
            n if exact else min(usual_size(n), most, n_rows),
            f"enough to keep their noise at {allowed:.0%} of the variance, which is then corrected for",
        )
    while needed(step) > most:
        step *= 0.9
    return step, min(most, n_rows), f"the most that {dimension:,} parameters allow in reasonable time, with a smaller step"


def usual_size(rows: int) -> int:
    """The next size of a grid that is at least so many: 32, 40, 48, 56, 64, 80, ..."""
    spacing = max(1, 2 ** ((rows - 1).bit_length() - 1) // SIZES_PER_DOUBLING)
    return -(-rows // spacing) * spacing


def largest_curvature(posterior: Posterior, table: Table, whitening: AnyWhitening, seed: int) -> float:
    """The largest eigenvalue of the curvature in the variables of a whitening, by power iteration on some rows."""
    rows = subsample(table, POWER_ROWS, seed)
    scale = posterior.n_rows / rows.total_rows
    times, prior = (compiled(_curvature_times, posterior, name) for name in ("sum_of_rows", "log_density_prior"))
    v = np.random.default_rng(seed).standard_normal(size(whitening.origin))
    for _ in range(POWER_ITERATIONS):
        z = jnp.asarray(v / np.linalg.norm(v), float)
        v = scale * full_sum(partial(times, whitening, z), rows) + np.asarray(prior(whitening, z), np.float64)
    return max(float(np.linalg.norm(v)), 1e-3)


def _curvature_times(posterior: Posterior, density: str, whitening: AnyWhitening, z: jax.Array, *rows: Rows) -> jax.Array:
    """Minus the Hessian at the centre of a log density of the posterior, by its name, times a vector."""
    log_density, zero = getattr(whitened(posterior, whitening), density), whitening.zero()
    return curvature_times(lambda z: log_density(z, *rows), zero, split(z, zero))


def shrunk(whitening: Any, steepest: float) -> Whitening:
    """A whitening by scales, all of them smaller, so that the steepest direction has curvature 1."""
    return replace(whitening, factor=tree_map(lambda s: s / math.sqrt(steepest), whitening.factor))
