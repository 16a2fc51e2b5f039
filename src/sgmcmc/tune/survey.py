"""What is measured before sampling: the mode, the full gradient and the curvature there; which rows make the noise of
minibatch gradients, and how much there is of it, in the variables z of a whitening, where the posterior is near N(0, I).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.checkpoints.packing import packable
from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import PyTree, Rows, flat, number_names, size, split, tree_map
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.whitening import Whitening, whitened
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.importance import Importance, Pool, draw_pool, mixed
from sgmcmc.rows.sources import subsample
from sgmcmc.rows.table import Table
from sgmcmc.run.passes import FullPasses, all_rows, compiled, full_sum
from sgmcmc.run.request import Problem
from sgmcmc.tune.mode import (
    LARGEST_DENSE,
    LENGTHS,
    TOLERANCE,
    Ascent,
    as_tree,
    curvature_times,
    endless_ascent,
    find_mode,
    fisher_information,
    prior_curvature,
)

HESSIAN_WORK = 4e9
"""Rows × d² that the dense Hessian may cost; with more rows a subsample gives the correlations and all rows the scales."""

ROUNDING = 1e-6
"""Of a likelihood's curvature scaled to a unit diagonal: what float32 rows cannot tell from nothing."""

INDEFINITE = 1e-2
"""A negative eigenvalue of the scaled curvature beyond this is no rounding: the point is a saddle, or off the mode."""

OPEN = 1e-12
"""Scaled precision below which neither rows nor prior say anything about a direction."""

FEWEST_POINTS, MOST_POINTS, SCORED_ROWS = 6, 16, 20_000_000
"""Points at which the rows are scored: as many as so many rows in all allow."""

WIDE, WIDTH = 4, 2.5
"""One point in so many is far out: drawn that much wider than N(0, I), or the farthest the chains have been."""

NOISE_ROWS, NOISE_POINTS, FEW_POINTS, NOISE_WORK = 4096, 256, 16, 2e10
"""Rows and points from which the noise is measured: it varies from point to point as a square does, so many are needed.
Of models so large that they are only scaled, few must do; of others, as many as rows × points × d² allow."""

CURVATURE_ROWS, CURVATURE_POINTS, FEW_CURVATURE_POINTS, POWER_ITERATIONS = 4096, 16, 4, 8
"""Rows and points at which the largest curvature is looked for, and how long."""

IMPLAUSIBLE, SLACK, NEARER = 10.0, 50.0, 6
"""A point whose log density is lower than the centre's by so many times what a Gaussian's would be, and so much more, is where no
chain goes: it is brought nearer, by half, so often at most."""

POOL_ROWS, POOL_BYTES = 1_000_000, 256 << 20
"""How large a pool is at most."""

MOST_WEIGHED = 5_000_000
"""Rows on disk of which each is given a probability of its own; of more, a pool is drawn."""

Choice: TypeAlias = Importance | Pool
"""How rows are drawn that matter more than others."""


@packable
@dataclass(frozen=True)
class Survey:
    """The mode (or where the search ended) after so many passes over the data and looks at a subsample, with the full gradient
    there; the posterior's precision, a matrix or its diagonal; and where that came from: `"fisher"` where the `"hessian"` is not
    positive definite.
    """

    centre: Centre
    precision: np.ndarray
    curvature: str
    passes: int
    looks: int

    @property
    def whitening(self) -> Whitening:
        return whitening_of(self.precision, self.centre.position)

    @property
    def work(self) -> str:
        """What the search for the mode took, in words."""
        return f"{self.passes} passes over the data" + (f", after {self.looks} over a sample of the rows" if self.looks else "")

    @property
    def peaked(self) -> bool:
        """Whether a mode was found, at which the posterior bends down in all directions."""
        return bool(self.centre.converged) and self.curvature == "hessian"


def take_survey(problem: Problem, seed: int, progress: Progress, diagonal: bool = False) -> Survey:
    """Mode, full gradient, curvature: bounded work, and an error where there is no posterior to sample."""
    posterior, table, start = problem.posterior, problem.table, problem.position
    mode = find_mode(posterior, table, start, seed, progress)
    ascent = None if mode.converged else endless_ascent(posterior, table, start, mode)
    if ascent is not None:
        raise improper(ascent)
    centre = ControlVariate().init(posterior, mode.position, FullPasses(table, progress))
    precision, kind = curvature_at(posterior, table, mode.position, seed, progress, diagonal)
    distance, converged = mode.distance, mode.converged
    if not converged and kind == "hessian":  # a perfect fit has no Fisher information, yet a Hessian
        slope = flat(centre.gradient) + flat(posterior.prior_gradient(mode.position))
        distance = float(slope @ np.linalg.solve(precision, slope)) / len(slope)
        converged = distance < TOLERANCE
    centre = replace(centre, distance=jnp.asarray(distance, float), converged=jnp.asarray(converged))
    return Survey(centre, precision, kind, mode.passes, mode.looks)


def improper(ascent: Ascent) -> SgmcmcError:
    """What to say of a posterior without a mode, and without a prior that could make it proper."""
    along = ", ".join(ascent.parameters)
    found = (
        f"the log posterior keeps rising without end along {along}: by {ascent.risen:.3g} over a distance of {ascent.moved:.3g}"
    )
    further = f"and up to {LENGTHS[-1]:.0f} times as far the likelihood does not fall, and the prior does not change"
    why = "Data that a plane separates do this to a logistic regression with a flat prior"
    repair = "Give these parameters a proper log_prior, such as lambda params: -0.5 * (params['beta'] ** 2).sum()"
    return SgmcmcError(f"{found}, {further}. So the posterior has no mode and is improper. {why}. {repair}")


def curvature_at(
    posterior: Posterior, table: Table, position: PyTree, seed: int, progress: Progress, diagonal: bool
) -> tuple[np.ndarray, str]:
    """The posterior's precision at a point, and whether it is the Hessian or the Fisher information."""
    names, dense = number_names(position), size(position) <= LARGEST_DENSE and not diagonal
    prior = np.asarray(compiled(prior_curvature, posterior, dense)(position), np.float64)
    with Bar(progress, "curvature", posterior.n_rows, "row") as bar:
        if not dense:
            total = _information(posterior, False, position, table, bar) + prior
            if not (total > 0).all():
                raise open_direction([names[int(np.argmin(total))]])
            return total, "fisher"
        likelihood, kind = _hessian(posterior, position, table, seed, bar), "hessian"
        if is_indefinite(likelihood, prior):
            likelihood, kind = _information(posterior, True, position, table, bar), "fisher"
    return with_floor(likelihood, prior, names), kind


def _information(posterior: Posterior, dense: bool, position: PyTree, table: Table, bar: Bar | None = None) -> np.ndarray:
    return full_sum(partial(compiled(fisher_information, posterior, dense), position), table, bar, extra=8 * size(position))


def _hessian(posterior: Posterior, position: PyTree, table: Table, seed: int, bar: Bar) -> np.ndarray:
    """-∇² of the log likelihood. From a subsample where all rows would cost too much; then all of them give the diagonal's
    scale, since a column that is rare (three rows of a million) is not in a subsample.
    """
    d = size(position)
    used = subsample(table, hessian_rows(posterior.n_rows, d), seed)
    total = full_sum(partial(compiled(negative_hessian, posterior), position), used, bar, extra=16 * d)
    total = (total + total.T) / 2
    if used.total_rows == posterior.n_rows:
        return total
    seen, every = _information(posterior, False, position, used), _information(posterior, False, position, table, bar)
    stretch = np.sqrt(np.where(seen > 0, every / np.where(seen > 0, seen, 1), 0.0))
    return total * np.outer(stretch, stretch) + np.diag(np.where(seen > 0, 0.0, every))


def open_direction(names: list[str]) -> SgmcmcError:
    """What to say of a direction that neither the rows nor the prior determine, by the names with the largest part in it."""
    what = names[0] if len(names) == 1 else f"some combination of {', '.join(names)}"
    found = f"neither the data nor the prior determine {what}: the log posterior is flat there, so the posterior is improper"
    why = "With a flat prior, data that a plane separates do this, and columns that add up to each other"
    return SgmcmcError(f"{found}. {why}. Give these parameters a proper log_prior, or leave one of them out")


def hessian_rows(n_rows: int, dimension: int) -> int:
    """How many rows the dense Hessian is taken from."""
    return int(min(n_rows, max(HESSIAN_WORK / dimension**2, 10 * dimension)))


def negative_hessian(posterior: Posterior, position: PyTree, rows: Rows) -> jax.Array:
    """-∇²Σℓ over a block of rows, as a matrix."""
    gradient = jax.grad(posterior.sum_of_rows)
    return -jax.jacfwd(lambda x: flat(gradient(split(x, position), rows)))(flat(position))


def is_indefinite(likelihood: np.ndarray, prior: np.ndarray) -> bool:
    """Whether the posterior bends upwards somewhere, by more than rounding."""
    total = likelihood + prior
    diagonal = np.diag(total)
    if not (diagonal > 0).all():
        return True
    scale = np.sqrt(diagonal)
    return bool(np.linalg.eigvalsh(total / np.outer(scale, scale))[0] < -INDEFINITE)


def with_floor(likelihood: np.ndarray, prior: np.ndarray, names: list[str]) -> np.ndarray:
    """The posterior's precision, positive definite: what rounding leaves of the rows' curvature gives way to the prior's."""
    diagonal = np.diag(likelihood + prior)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(likelihood / np.outer(scale, scale))
    values = np.where(values > ROUNDING * max(values[-1], 0), values, 0.0)
    total = (vectors * values) @ vectors.T + prior / np.outer(scale, scale)
    smallest, directions = np.linalg.eigh(total)
    if smallest[0] < OPEN:
        part = np.abs(directions[:, 0])
        if not speaks(prior, directions[:, 0] / scale):
            largest = np.argsort(part)[::-1][:4]
            raise open_direction([names[i] for i in largest if part[i] > 0.1])
        total = (directions * np.maximum(smallest, OPEN)) @ directions.T  # determined, if by no more than rounding can tell
    return total * np.outer(scale, scale)


def speaks(prior: np.ndarray, direction: np.ndarray) -> bool:
    """Whether a prior's precision has something to say about a direction, however little beside the rows."""
    own, known = direction**2 * np.diag(prior), np.diag(prior) > 0
    along = direction @ prior @ direction
    return bool(np.sum(direction[known] ** 2) > 0.5 * np.sum(direction**2) and along > 1e-6 * own.sum() > 0)


def whitening_of(precision: np.ndarray, origin: PyTree) -> Whitening:
    """The whitening of a precision matrix, or of a diagonal: L Lᵀ is its inverse."""
    if precision.ndim == 1:
        return Whitening(origin, as_tree(1 / np.sqrt(precision), origin), dense=False)
    scale = np.sqrt(np.diag(precision))
    lower = np.linalg.cholesky(precision / np.outer(scale, scale))
    return dense_whitening(np.linalg.inv(lower).T / scale[:, None], origin)


def dense_whitening(factor: np.ndarray, origin: PyTree) -> Whitening:
    """The whitening with a given matrix L."""
    return Whitening(origin, jnp.asarray(factor, jnp.result_type(float)), dense=True)


class Noise(NamedTuple):
    """The variance of an estimate from a single row, in all directions: a matrix, or its diagonal for a whitening by scales.

    An estimate from n rows drawn independently has 1/n of it. `drawn` by the probabilities given; or all rows `alike`, of which
    the diagonal is enough.
    """

    drawn: np.ndarray
    alike: np.ndarray


@dataclass(frozen=True)
class Pilot:
    """Row gradients of a posterior in whitened variables: their differences to the centre's, where `centred`.

    The whitening is an argument of what is compiled: another one costs no compilation.
    """

    posterior: Posterior
    table: Table
    centred: bool
    progress: Progress = False

    def weigh(self, whitening: Whitening, points: np.ndarray, chains: int, seed: int) -> Choice:
        """How to draw rows by their scores: all of them, or where they do not fit into memory a pool for each chain."""
        table = self.table
        if not table.large and (table.in_memory or table.n_rows <= MOST_WEIGHED):
            return self.importance(whitening, points)
        most = min(POOL_ROWS, POOL_BYTES // table.row_bytes)
        return draw_pool(self._scored(whitening, points), table, max(most, chains), chains, seed)

    def importance(self, whitening: Whitening, points: np.ndarray) -> Importance:
        """A probability for every row by its score, which takes memory for each."""
        return Importance(self.table, mixed(np.concatenate([scores for _, scores in self._scored(whitening, points)])))

    def _scored(self, whitening: Whitening, points: np.ndarray) -> Iterator[tuple[Rows, np.ndarray]]:
        """All rows, with the root mean square length of each one's term over some points."""
        program = compiled(_squares, self.posterior, self.centred)
        with Bar(self.progress, "row weights", self.posterior.n_rows, "row") as bar:
            for rows in all_rows(self.table, 12 * points.shape[1]):
                squares = np.asarray(program(whitening, jnp.asarray(points, float), rows))
                bar.update(len(squares))
                yield rows, np.sqrt(squares / len(points))

    def points(self, dimension: int, seed: int) -> np.ndarray:
        """Points of N(0, I) and beyond, for scores before there are draws."""
        points = np.random.default_rng(seed).standard_normal((self._count, dimension))
        points[::WIDE] *= WIDTH
        return points

    def some_of(self, states: np.ndarray) -> np.ndarray:
        """States of chains for scores, the farthest among them."""
        far = np.argsort(np.sum(states**2, axis=1))[-self._count // WIDE :]
        return np.concatenate([states[np.linspace(0, len(states) - 1, self._count - len(far)).astype(int)], states[far]])

    @property
    def _count(self) -> int:
        return min(MOST_POINTS, max(FEWEST_POINTS, SCORED_ROWS // self.posterior.n_rows))

    def noise(self, whitening: Whitening, points: np.ndarray, choice: Choice | None, seed: int) -> Noise:
        """The noise of rows drawn by a choice (None: all alike), averaged over `points`."""
        rng, n_rows = np.random.default_rng(seed), self.posterior.n_rows
        if choice is not None:
            rows, weight = choice.some(NOISE_ROWS, rng)
        else:
            index = np.arange(n_rows) if n_rows <= NOISE_ROWS else np.sort(rng.integers(0, n_rows, NOISE_ROWS))
            rows, weight = gather_all(self.table, index), np.full(len(index), float(n_rows))
        program = compiled(_variances, self.posterior, self.centred)
        found = program(whitening, jnp.asarray(points, float), rows, jnp.asarray(weight / n_rows, float))
        return Noise(*(float(n_rows) ** 2 * np.asarray(variance, np.float64) for variance in found))

    def plausible(self, whitening: Whitening, points: np.ndarray, choice: Choice | None, seed: int) -> np.ndarray:
        """Points brought nearer to the centre where the posterior has nothing, as beyond the wall of an exponential; judged from
        all rows, or where a choice is given from some of them.
        """
        points = points.copy()
        for _ in range(NEARER):
            gone = ~(self._drops(whitening, points, choice, seed) < IMPLAUSIBLE / 2 * np.sum(points**2, axis=1) + SLACK)
            if not gone.any():
                break
            points[gone] /= 2
        return points

    def _drops(self, whitening: Whitening, points: np.ndarray, choice: Choice | None, seed: int) -> np.ndarray:
        """How much lower the log posterior is at each point than at the centre."""
        sketch = None if choice is None else choice.sketch(CURVATURE_ROWS, np.random.default_rng(seed))
        padded = np.resize(points, (-(-len(points) // MOST_POINTS) * MOST_POINTS, points.shape[1]))  # one program for any number
        parts = [self._fall(whitening, part, sketch) for part in np.split(padded, len(padded) // MOST_POINTS)]
        return np.concatenate(parts)[: len(points)]

    def _fall(self, whitening: Whitening, points: np.ndarray, sketch: tuple[Rows, np.ndarray] | None) -> np.ndarray:
        """The same for a handful of points: from a sketch of the rows, or from all of them."""
        program, given = compiled(_falls, self.posterior, "each_row"), (whitening, jnp.asarray(points, float))
        prior = np.asarray(compiled(_falls, self.posterior, "log_density_prior")(*given), np.float64)
        if sketch is not None:
            return prior + np.asarray(program(*given, jnp.asarray(sketch[1], float), sketch[0]), np.float64)
        return prior + full_sum(partial(program, *given, jnp.ones(())), self.table, extra=12 * points.shape[1])

    def curvatures(self, whitening: Whitening, points: np.ndarray, choice: Choice, seed: int) -> np.ndarray:
        """The largest curvature at each of some points, taken to be 1 in all directions at the centre, as whitened."""
        rows, weight = choice.sketch(CURVATURE_ROWS, np.random.default_rng(seed))
        begin = np.random.default_rng(seed + 1).standard_normal(points.shape[1])
        program = compiled(_largest_curvatures, self.posterior)
        found = program(whitening, *(jnp.asarray(x, float) for x in (points, begin)), rows, jnp.asarray(weight, float))
        return np.nan_to_num(np.asarray(found, np.float64), nan=np.inf)

    @staticmethod
    def curvature_points(whitening: Whitening, states: np.ndarray) -> np.ndarray:
        """As many of some states as the curvature is looked for at, half of them the farthest from the centre."""
        count = CURVATURE_POINTS if whitening.dense else FEW_CURVATURE_POINTS
        far = np.argsort(np.sum(states**2, axis=1))[-(count // 2) :]
        return states[np.concatenate([np.linspace(0, len(states) - 1, count - len(far)).astype(int), far])]


def _largest_curvatures(
    posterior: Posterior, whitening: Whitening, points: jax.Array, begin: jax.Array, rows: Rows, weight: jax.Array
) -> jax.Array:
    """By power iteration: what the curvature gains from the centre to each point, on top of 1."""
    of_z, zero = whitened(posterior, whitening), whitening.zero()

    def log_density(z: PyTree) -> jax.Array:
        return jnp.dot(weight, of_z.each_row(z, rows)) + of_z.log_density_prior(z)

    def at(point: jax.Array) -> jax.Array:
        def times(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            direction = split(carry[0], zero)
            gain = curvature_times(log_density, split(point, zero), direction) - curvature_times(log_density, zero, direction)
            product = carry[0] + gain
            length = jnp.linalg.norm(product)
            return product / length, length

        return jax.lax.fori_loop(0, POWER_ITERATIONS, times, (begin / jnp.linalg.norm(begin), jnp.ones((), begin.dtype)))[1]

    return jax.lax.map(at, points)


def _falls(
    posterior: Posterior, density: str, whitening: Whitening, points: jax.Array, weight: Any = 1.0, *rows: Rows
) -> jax.Array:
    """By how much a log density of the posterior, by its name, falls from the centre to each point, summed over rows."""
    log_density, zero = getattr(whitened(posterior, whitening), density), whitening.zero()
    there = log_density(zero, *rows)
    return jax.lax.map(lambda z: jnp.sum(weight * (there - log_density(split(z, zero), *rows))), points)


def _squares(posterior: Posterior, centred: bool, whitening: Whitening, points: jax.Array, rows: Rows) -> jax.Array:
    """The squared length of every row's term, summed over points."""
    terms = _terms(posterior, centred, whitening, rows)
    return jax.lax.map(lambda z: jnp.sum(terms(z) ** 2, axis=1), points).sum(axis=0)


def _variances(
    posterior: Posterior, centred: bool, whitening: Whitening, points: jax.Array, rows: Rows, weight: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Those of `Noise`, over the squared number of rows; `weight` is 1 for rows drawn alike."""
    terms, w = _terms(posterior, centred, whitening, rows), weight[:, None]

    def at(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        row = terms(z)
        weighted = w * row
        mean, alike = jnp.mean(weighted, axis=0), jnp.mean(row * weighted, axis=0)
        if whitening.dense:
            return weighted.T @ weighted / len(weight) - jnp.outer(mean, mean), alike - mean**2
        return jnp.mean(weighted**2, axis=0) - mean**2, alike - mean**2

    return tree_map(lambda x: x.mean(axis=0), jax.lax.map(at, points))


def _terms(posterior: Posterior, centred: bool, whitening: Whitening, rows: Rows) -> Callable[[jax.Array], jax.Array]:
    """Every row's term of the estimate at z, as one vector each."""
    of_z, like = whitened(posterior, whitening), whitening.zero()

    def gradients(z: jax.Array) -> jax.Array:
        return jax.vmap(flat)(of_z.row_gradients(split(z, like), rows))

    if not centred:
        return gradients
    there = gradients(flat(like))
    return lambda z: gradients(z) - there


def posterior_points(whitening: Whitening, seed: int) -> np.ndarray:
    """Points of N(0, I) to measure the noise at before there are draws."""
    d = size(whitening.origin)
    return np.random.default_rng(seed + 1).standard_normal((noise_points(d), d))


def noise_points(dimension: int) -> int:
    """At how many points the noise is measured."""
    if dimension > LARGEST_DENSE:
        return FEW_POINTS
    return int(np.clip(NOISE_WORK / (NOISE_ROWS * dimension**2), FEW_POINTS, NOISE_POINTS))
