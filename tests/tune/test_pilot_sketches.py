"""Sketches of rows against enumeration: scores from single directions, and noise from sums with random signs."""

from __future__ import annotations

from functools import partial
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.problem.passes import compiled
from sgmcmc.problem.whitening import Whitening
from sgmcmc.rows.importance import RowLaw, mixed
from sgmcmc.run.request import Problem
from sgmcmc.tune import pilot as module
from sgmcmc.tune.curvatures import dense_whitening
from sgmcmc.tune.pilot import FARTHEST, SKETCHES, Pilot, _squares, largest_of

pytestmark = pytest.mark.usefixtures("x64")

N = 40
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 3)) * np.array([1.0, 0.5, 2.0])
Y = RNG.poisson(np.exp(0.3 * X[:, 0])).astype(float)
THERE = np.array([0.3, -0.1, 0.05])
SCALES = np.array([0.15, 0.3, 0.08])
FACTOR = np.array([[0.15, 0.0, 0.0], [0.1, 0.3, 0.0], [-0.02, 0.03, 0.08]])
Z = 4.0
"""Standard errors that are allowed: one comparison in 16,000 is further off by chance."""


def counts(params, batch):
    eta = batch["x"] @ params["beta"]
    return batch["y"] * eta - jnp.exp(eta)


def a_pilot(order):
    found = Problem.of(counts, {"x": X, "y": Y}, {"beta": np.zeros(3)}, lambda p: -0.5 * (p["beta"] ** 2).sum())
    return Pilot(found.posterior, found.table, order)


def whitenings():
    origin = {"beta": jnp.asarray(THERE)}
    return Whitening(origin, {"beta": jnp.asarray(SCALES)}, dense=False), dense_whitening(FACTOR, origin)


def terms(order, factor, points):
    """Every row's term at every point, written out: (points, rows, numbers)."""
    found = []
    for z in points:
        at, away = X @ THERE, X @ factor @ z
        means = Y - np.exp(at + away), Y - np.exp(at), -np.exp(at) * away
        residual = means[0] - (means[1] if order > 0 else 0) - (means[2] if order > 1 else 0)
        found.append((X * residual[:, None]) @ factor)
    return np.stack(found)


# Scores.


@pytest.mark.parametrize("kind", ["scales", "matrix"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_squared_derivatives_along_a_direction_are_those_written_out(order, kind):
    whitening, factor = (whitenings()[1], FACTOR) if kind == "matrix" else (whitenings()[0], np.diag(SCALES))
    points, directions = np.random.default_rng(1).normal(size=(2, 5, 3))
    program = compiled(_squares, a_pilot(order).posterior, order)
    found = program(whitening, jnp.asarray(points), jnp.asarray(directions), {"x": X, "y": Y})
    exact = np.einsum("pri,pi->pr", terms(order, factor, points), directions) ** 2
    np.testing.assert_allclose(found, exact.sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_over_many_directions_squares_are_squared_lengths(order):
    whitening, points = whitenings()[1], np.random.default_rng(2).normal(size=(4, 3))
    program, rng, times = compiled(_squares, a_pilot(order).posterior, order), np.random.default_rng(3), 1000
    many = rng.standard_normal((times, 4, 3))
    found = np.stack([program(whitening, jnp.asarray(points), jnp.asarray(one), {"x": X, "y": Y}) for one in many])
    error = found.std(axis=0, ddof=1) / np.sqrt(times)

    def apart(order):
        exact = (terms(order, FACTOR, points) ** 2).sum(axis=(0, 2))
        return np.abs(found.mean(axis=0) - exact) / error

    assert apart(order).max() < Z
    assert apart(3 - order).max() > 3 * Z, "a control: the other order"


def test_scores_are_roots_of_mean_squares_over_points():
    pilot, whitening = a_pilot(1), whitenings()[1]
    points = np.random.default_rng(2).normal(size=(6, 3))
    scores = np.concatenate([s for _, s in pilot._scored(whitening, points)])
    directions = np.random.default_rng(len(points)).standard_normal(points.shape)
    exact = np.einsum("pri,pi->pr", terms(1, FACTOR, points), directions) ** 2
    np.testing.assert_allclose(scores, np.sqrt(exact.mean(axis=0)), rtol=1e-9)


# Noise.

POINTS = np.random.default_rng(5).normal(size=(SKETCHES, 3))
CLIPPED = np.clip(POINTS, -FARTHEST, FARTHEST)


def weighing(law, order):
    """Probabilities, and the choice that draws by them."""
    if law == "alike":
        return np.full(N, 1 / N), None
    q = mixed(np.sqrt((terms(order, np.diag(SCALES), CLIPPED) ** 2).sum(axis=2).mean(axis=0)))
    return q, partial(RowLaw, probabilities=q)


def second_moments(order, q):
    """E (term/q)² of one row drawn by q, averaged over the points: (Σ_i t_i²/q_i)."""
    return np.einsum("pri,r->i", terms(order, np.diag(SCALES), CLIPPED) ** 2, 1 / q) / SKETCHES


def measured(pilot, whitening, choice, times=60):
    return [pilot.noise(whitening, POINTS, choice, seed) for seed in range(times)]


@pytest.mark.parametrize("law", ["alike", "importance"])
@pytest.mark.parametrize("order", [1, 2])
def test_sketched_noise_is_that_of_enumeration(order, law):
    pilot, whitening = a_pilot(order), whitenings()[0]
    q, make = weighing(law, order)
    found = measured(pilot, whitening, None if make is None else make(pilot.table))
    drawn = np.array([noise.diagonal for noise in found])
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))

    def apart(q, order=order):
        return np.abs(drawn.mean(axis=0) - second_moments(order, q)) / error

    assert drawn.shape[1:] == (3,)
    assert apart(q).max() < Z
    other = weighing("importance" if law == "alike" else "alike", order)[0]
    assert apart(other).max() > Z, "a control: other weights"
    assert apart(q, 3 - order).max() > Z, "a control: the other order"


def test_sketched_noise_of_plain_gradients_is_their_variance():
    """There a sum of all terms is taken off, that at the first point: so all points are that one here."""
    pilot, whitening = a_pilot(0), whitenings()[0]
    point = np.tile(POINTS[:1], (SKETCHES, 1))
    drawn = np.array([pilot.noise(whitening, point, None, seed).diagonal for seed in range(60)])
    every = terms(0, np.diag(SCALES), np.clip(point[:1], -FARTHEST, FARTHEST))[0]
    moments = N * (every**2).sum(axis=0)
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    exact = moments - every.sum(axis=0) ** 2
    assert np.max(np.abs(drawn.mean(axis=0) - exact) / error) < Z
    assert np.max(np.abs(drawn.mean(axis=0) - moments) / error) > Z, "a control: nothing taken off"


def test_the_gain_is_what_rows_drawn_alike_would_cost():
    order = 1
    pilot, whitening = a_pilot(order), whitenings()[0]
    q, make = weighing("importance", order)
    few = SKETCHES // 8
    gains = np.log([noise.gain for noise in measured(pilot, whitening, make(pilot.table))])
    every = terms(order, np.diag(SCALES), CLIPPED[np.linspace(0, SKETCHES - 1, SKETCHES).astype(int)][:few]) ** 2
    exact = np.log(N * every.sum() / np.einsum("pri,r->", every, 1 / q))
    assert exact > 0.1, "there is something to gain"
    assert gains.mean() == pytest.approx(exact, abs=Z * gains.std(ddof=1) / np.sqrt(len(gains)))


def test_a_matrix_and_its_sketch_agree(monkeypatch):
    """The same whitening, once as a matrix and once sketched: the diagonals are one, but for the squared mean, left in."""
    whitening, pilot = whitenings()[1], a_pilot(2)
    dense = pilot.noise(whitening, CLIPPED, None, 0)
    total = terms(2, FACTOR, CLIPPED).sum(axis=1)
    monkeypatch.setattr(module, "LARGEST_MATRIX", 2)
    drawn = np.array([pilot.noise(whitening, CLIPPED, None, seed).drawn for seed in range(60)])
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    np.testing.assert_allclose(drawn.mean(axis=0), np.diag(dense.drawn) + (total**2).mean(axis=0), atol=Z * error.max())
    assert dense.drawn.shape == (3, 3)
    assert drawn.shape == (60, 3)


def test_a_loud_direction_that_no_single_number_shows_is_heard():
    """Twenty columns that go together, of eighty: the largest eigenvalue, written out, is much above the diagonal."""
    rng, n, d = np.random.default_rng(0), 600, 80
    x = rng.normal(size=(n, d))
    x[:, :20] += rng.normal(size=(n, 1))
    found = Problem.of(counts, {"x": x, "y": np.ones(n)}, {"beta": np.zeros(d)})
    whitening = Whitening({"beta": jnp.zeros(d)}, {"beta": jnp.full(d, 0.03)}, dense=False)
    points = np.clip(rng.normal(size=(SKETCHES, d)), -FARTHEST, FARTHEST)
    every = [0.03 * x * (1 - np.exp(0.03 * x @ z))[:, None] for z in points]
    exact = n * sum(rows.T @ rows for rows in every) / SKETCHES
    loudest = np.linalg.eigvalsh(exact)[-1]
    pilot = Pilot(found.posterior, found.table, 1)
    heard = np.array([pilot.noise(whitening, points, None, seed).loudest for seed in range(20)])
    assert 0.5 < np.median(heard) / loudest < 1.2
    assert np.diag(exact).max() / loudest < 0.3, "a control: the diagonal alone"


# The largest of many mean squares.


@pytest.mark.parametrize(("count", "degrees"), [(200, 48), (50, 48), (200, 16), (1000, 100)])
def test_the_largest_mean_square_is_about_as_large_as_in_simulation(count, degrees):
    rng = np.random.default_rng(0)
    largest = (rng.chisquare(degrees, (2000, count)) / degrees).max(axis=1)
    assert largest_of(count, degrees) == pytest.approx(np.mean(largest), rel=0.02)
    wrong = 1 + np.sqrt(2 / degrees) * NormalDist().inv_cdf(1 - 0.5 / count)
    assert wrong != pytest.approx(np.mean(largest), rel=0.02), "a control: of a normal law"
