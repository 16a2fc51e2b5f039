"""A centre in the middle of the mass, for posteriors whose mode is no place to be.

The joint density of a hierarchy rises without bound as the scale of its effects goes to 0, far from where the posterior has its
mass. What the rows say of the effects is no trouble: given means and scales of effects, which no row knows, there is a mode.
About it the log likelihood is replaced by its parabola, so that a Gaussian can be fitted to prior times parabola without any row:
the one with the least Kullback-Leibler divergence, by stochastic gradients. At its mean the parabola is taken anew, a few times.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.core.checks import Progress
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, size, split, tree_map
from sgmcmc.problem.arrow import Arrow, ArrowWhitening, Layout
from sgmcmc.problem.passes import FullPasses, compiled, full_sum
from sgmcmc.problem.posterior import Posterior, Transform
from sgmcmc.problem.whitening import AnyWhitening, whitened
from sgmcmc.rows.sources import some_rows
from sgmcmc.run.request import Problem
from sgmcmc.tune.curvatures import (
    Curvature,
    in_whitened,
    is_arrow,
    is_arrow_of_prior,
    likelihood_curvature,
    positive,
    prior_curvature_over,
    whitening_of,
)
from sgmcmc.tune.mode import (
    LARGEST_DENSE,
    LONGEST_LOG_STEP,
    NUDGE,
    TOLERANCE,
    Mode,
    find_mode,
    fisher_information,
    value_and_gradient,
)

ROUNDS, FIT_STEPS, FIT_DRAWS = 8, 400, 4
"""Parabolas at most; steps of each fit, and pairs of draws in each step."""

LARGEST_FIT_STEP = 0.2
"""Of the fit, in standard deviations of the approximation before; it falls to a hundredth by a cosine."""

SETTLED = 0.3
"""Standard deviations that the mean may still move when no other parabola is needed: of any shared number, and half of that of
all of them, root mean square."""

FEW_ROWS = 1000
"""Rows that tell how far a hair is."""

MOST_CLIMBS, HALVINGS = 30, 20
"""Newton's steps before that, and how often each may be halved."""

AVERAGED = 16
"""Draws of the fit over which the prior's curvature is averaged."""


@dataclass(frozen=True)
class Pinned:
    """A transform with some leaves of the position left where they are: what moves are the others, as a list."""

    outer: Transform
    held: tuple[Any, ...]
    like: PyTree

    @property
    def bijections(self) -> tuple[Any, ...]:
        return tuple(b for b, held in zip(self.outer.bijections, self.held, strict=True) if held is None)

    def whole(self, free: PyTree) -> PyTree:
        """The whole position."""
        others = iter(free)
        leaves = [next(others) if held is None else held for held in self.held]
        return jax.tree.unflatten(jax.tree.structure(self.like), leaves)

    def to_params(self, position: PyTree) -> PyTree:
        return self.outer.to_params(self.whole(position))

    def log_det(self, position: PyTree) -> Any:
        return self.outer.log_det(self.whole(position))


@dataclass(frozen=True)
class Anchor:
    """Where it is, the gradient and the curvature of the log likelihood there, and the precision of the Gaussian fitted; found in
    so many passes over the data, after so many over a sample of the rows.
    """

    centre: Centre
    likelihood: Curvature
    precision: Curvature
    layout: Layout | None
    passes: int
    looks: int = 0


def find_anchor(
    problem: Problem, layout: Layout | None, unseen: tuple[bool, ...], seed: int, progress: Progress
) -> Anchor | None:
    """The anchor; None where no Gaussian could be fitted."""
    with Bar(progress, "anchor", None, "step") as bar:
        if layout is not None:
            found = _climb(problem, layout, unseen, seed, bar)
            if found is not None:
                return _settled(problem, found.position, layout, found.passes, 0, seed, bar)
        if size(problem.position) > LARGEST_DENSE or not any(unseen):
            return None
        position, mode = _given_unseen(problem, unseen, seed, progress)
        return _settled(problem, position, None, mode.passes, mode.looks, seed, bar)


def _given_unseen(problem: Problem, unseen: tuple[bool, ...], seed: int, progress: Progress) -> tuple[PyTree, Mode]:
    """The mode of what rows know, with the rest left at the start."""
    posterior, start = problem.posterior, problem.position
    leaves = jax.tree.leaves(start)
    pinned = Pinned(posterior.transform, tuple(x if out else None for x, out in zip(leaves, unseen, strict=True)), start)
    free = [leaf for leaf, out in zip(leaves, unseen, strict=True) if not out]
    mode = find_mode(posterior.behind(pinned), problem.table, free, seed, progress)
    return tree_map(lambda x, like: jnp.asarray(x, like.dtype), pinned.whole(mode.position), start), mode


def _settled(
    problem: Problem, position: PyTree, layout: Layout | None, passes: int, looks: int, seed: int, bar: Bar
) -> Anchor | None:
    """Parabola and fit in turn, from a position, until the mean stays."""
    posterior, table = problem.posterior, problem.table
    states = tree_map(lambda x: x[None], position)
    for number in range(ROUNDS):
        centre = ControlVariate().init(posterior, position, FullPasses(table))
        likelihood = likelihood_curvature(posterior, table, position, layout)
        precision = positive(_plus(likelihood, prior_curvature_over(posterior, states, layout)))
        whitening = whitening_of(precision, position, layout)
        mean, deviations = fitted(posterior, whitening, centre, likelihood, seed + number)
        bar.update(1)
        if not (np.isfinite(mean).all() and np.isfinite(deviations).all()):
            return None
        states = spread(whitening, mean, deviations, seed)
        shared = mean if layout is None else mean[: layout.shared]
        if number == ROUNDS - 1 or (np.abs(shared).max(initial=0.0) < SETTLED and np.sqrt(np.mean(mean**2)) < SETTLED / 2):
            precision = positive(_plus(likelihood, prior_curvature_over(posterior, states, layout)))
            return Anchor(centre, likelihood, precision, layout, passes + 2 * (number + 1), looks)
        position = whitening.leave(split(jnp.asarray(mean, float), whitening.zero()))
    return None


class _Climbed(NamedTuple):
    position: PyTree
    passes: int


def _climb(problem: Problem, layout: Layout, unseen: tuple[bool, ...], seed: int, bar: Bar) -> _Climbed | None:
    """The mode of what rows know, with the rest left at the start, by Newton's steps with arrows; None where these are none."""
    posterior, table = problem.posterior, problem.table
    held = _held(layout, unseen, problem.position)
    constrained = _constrained(posterior, layout, problem.position)
    position, passes, step = _nudged(problem, layout, held, seed), 1, None
    for number in range(MOST_CLIMBS):
        value, gradient = _posterior_at(problem, position, layout)
        likelihood = likelihood_curvature(posterior, table, position, layout)
        prior = prior_curvature_over(posterior, tree_map(lambda x: x[None], position), layout)
        assert isinstance(likelihood, Arrow)
        assert isinstance(prior, Arrow)
        if number == 0 and not _are_arrows(problem, position, layout, likelihood, seed):
            return None
        whitening = ArrowWhitening.of(_without(positive(likelihood + prior), held), position, layout)
        passes += 3
        slope = np.asarray(whitening.pull_back(layout.of_vector(jnp.asarray(gradient * ~held, float), position)), np.float64)
        bar.update(1, log_posterior=value)
        if slope @ slope / len(slope) < TOLERANCE:
            return _Climbed(position, passes)
        move = np.asarray(layout.vector(whitening.moved(jnp.asarray(slope, float))), np.float64)
        length = min(1.0, LONGEST_LOG_STEP / max(float(np.abs(move * constrained).max()), 1e-30))
        for _ in range(HALVINGS):
            step = tree_map(jnp.add, position, layout.of_vector(jnp.asarray(length * move, float), position))
            passes += 1
            if (there := _posterior_at(problem, step, layout)[0]) > value + 1e-4 * length * (slope @ slope):
                break
            length /= 2 if np.isfinite(there) else 8
        else:
            return _Climbed(position, passes)
        position = step
    return _Climbed(position, passes)


def _nudged(problem: Problem, layout: Layout, held: np.ndarray, seed: int) -> PyTree:
    """The start, a hair away from itself: zeros are often a kink of the log likelihood."""
    start = problem.position
    few = some_rows(problem.table, min(FEW_ROWS, problem.table.n_rows), seed)
    of_row = partial(compiled(fisher_information, problem.posterior, False), start)
    information = full_sum(of_row, few, extra=4 * layout.size)[layout.order(start)]
    hair = NUDGE * np.random.default_rng(seed).standard_normal(layout.size) * ~held
    away = hair / np.sqrt(np.where(information > 0, information, 1.0))
    return tree_map(jnp.add, start, layout.of_vector(jnp.asarray(away, float), start))


def _posterior_at(problem: Problem, position: PyTree, layout: Layout) -> tuple[float, np.ndarray]:
    """The log posterior and its gradient, in the order of the layout."""
    posterior, order = problem.posterior, layout.order(position)
    value, gradient = full_sum(partial(compiled(value_and_gradient, posterior, "sum_of_rows"), position), problem.table)
    prior, of_prior = compiled(value_and_gradient, posterior, "log_density_prior")(position)
    return float(value) + float(prior), (gradient + np.asarray(of_prior, np.float64))[order]


def _are_arrows(problem: Problem, position: PyTree, layout: Layout, likelihood: Arrow, seed: int) -> bool:
    """Whether nothing is outside the arrows, of the likelihood and of the prior."""
    if not is_arrow_of_prior(problem.posterior, position, layout, seed):
        return False
    return is_arrow(problem.posterior, problem.table, position, layout, likelihood, seed)


def _held(layout: Layout, unseen: tuple[bool, ...], like: PyTree) -> np.ndarray:
    """Which numbers no row knows, in the order of the layout."""
    leaves = zip(unseen, jax.tree.leaves(like), strict=True)
    return np.concatenate([np.full(np.size(leaf), out) for out, leaf in leaves])[layout.order(like)]


def _constrained(posterior: Posterior, layout: Layout, like: PyTree) -> np.ndarray:
    """Which numbers have a constraint, in the order of the layout."""
    return _held(layout, tuple(bijection is not None for bijection in posterior.transform.bijections), like)


def _without(precision: Curvature, held: np.ndarray) -> Arrow:
    """An arrow in which some of the shared numbers have to do with themselves only."""
    assert isinstance(precision, Arrow)
    free = ~held[: len(precision.outer)]
    outer = np.where(np.outer(free, free), precision.outer, np.diag(np.diag(precision.outer)))
    return Arrow(outer, precision.coupling * free, precision.within)


def fitted(
    posterior: Posterior, whitening: AnyWhitening, centre: Centre, likelihood: Curvature, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations, in the variables of the whitening, of the Gaussian fitted to prior times parabola."""
    slope = whitening.pull_back(centre.gradient)
    bend = in_whitened(likelihood, whitening)
    mean, log_deviations = compiled(_fit, posterior)(whitening, slope, bend, jax.random.key(seed))
    return np.asarray(mean, np.float64), np.exp(np.asarray(log_deviations, np.float64))


def spread(whitening: AnyWhitening, mean: np.ndarray, deviations: np.ndarray, seed: int) -> PyTree:
    """Positions drawn from the fit, in mirrored pairs."""
    noise = np.random.default_rng(seed).standard_normal((AVERAGED // 2, len(mean)))
    z = mean + deviations * np.concatenate([noise, -noise])
    return jax.vmap(lambda one: whitening.leave(split(one, whitening.zero())))(jnp.asarray(z, float))


def _plus(one: Curvature, other: Curvature) -> Curvature:
    return one + other  # pyright: ignore[reportOperatorIssue, reportReturnType]: both are matrices, or both arrows


def _fit(
    posterior: Posterior, whitening: AnyWhitening, slope: jax.Array, bend: Any, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Adam on the evidence bound of a Gaussian with independent numbers z, from N(0, I)."""
    of_z, like = whitened(posterior, whitening), whitening.zero()

    def log_density(z: jax.Array) -> jax.Array:
        return jnp.dot(slope, z) - jnp.dot(z, bend.times(z)) / 2 + of_z.log_density_prior(split(z, like))

    def loss(fit: tuple[jax.Array, jax.Array], noise: jax.Array) -> jax.Array:
        mean, log_deviations = fit
        away = jnp.exp(log_deviations) * noise
        values = jax.vmap(lambda a: log_density(mean + a) + log_density(mean - a))(away)
        return -jnp.mean(values) / 2 - jnp.sum(log_deviations)

    def step(t: Any, carry: Any) -> Any:
        fit, first, second = carry
        noise = jax.random.normal(jax.random.fold_in(key, t), (FIT_DRAWS, slope.size), slope.dtype)
        gradient = jax.grad(loss)(fit, noise)
        first = tree_map(lambda a, g: 0.9 * a + 0.1 * g, first, gradient)
        second = tree_map(lambda a, g: 0.99 * a + 0.01 * g**2, second, gradient)
        part = (1 + jnp.cos(jnp.pi * t / FIT_STEPS)) / 2
        size = LARGEST_FIT_STEP * (0.01 + 0.99 * part)
        count = t + 1.0

        def moved(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
            return x - size * (a / (1 - 0.9**count)) / (jnp.sqrt(b / (1 - 0.99**count)) + 1e-8)

        return tree_map(moved, fit, first, second), first, second

    nothing = (jnp.zeros_like(slope), jnp.zeros_like(slope))
    return jax.lax.fori_loop(0, FIT_STEPS, step, (nothing, nothing, nothing))[0]
