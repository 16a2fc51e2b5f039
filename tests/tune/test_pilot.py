"""Which rows make the noise of minibatches and how much of it there is, against enumeration; curvature away from the centre."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from surveys import X, Y, hessian, logistic, normal_prior, problem, surveyed

import sgmcmc
from sgmcmc.rows.importance import RowLaw, mixed
from sgmcmc.run.request import Problem
from sgmcmc.tune.curvatures import dense_whitening, whitening_of
from sgmcmc.tune.pilot import MOST_POINTS, NOISE_POINTS, SKETCHES, Pilot, noise_points, noise_rows, posterior_points
from sgmcmc.tune.survey import take_survey

RNG = np.random.default_rng(3)


# The noise of minibatches, against enumeration.

ROWS = {"x": X[:40], "y": Y[:40]}
WHITE = np.linalg.inv(np.linalg.cholesky(hessian(X[:40], np.array([0.6, -0.2, 0.1])))).T


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["plain", "control variates", "second order"])
def noisy(request):
    posterior, arrays, _ = problem(logistic, ROWS, {"beta": np.zeros(3)}, normal_prior)
    origin = {"beta": jnp.array([0.6, -0.2, 0.1])}
    whitening = dense_whitening(WHITE, origin)
    return Pilot(posterior, arrays, request.param), whitening


def row_terms(pilot, whitening, points):
    """Every row's whitened term at every point, written out."""
    there = np.asarray(whitening.origin["beta"], float)
    x, y = ROWS["x"], ROWS["y"]

    def gradients(beta):
        return x * (y - 1 / (1 + np.exp(-x @ beta)))[:, None] @ WHITE

    def line(z):
        p = 1 / (1 + np.exp(-x @ there))
        turn = -(x * (p * (1 - p) * (x @ (WHITE @ z)))[:, None]) @ WHITE
        return (0.0, gradients(there), gradients(there) + turn)[pilot.order]

    return np.stack([gradients(there + WHITE @ z) - line(z) for z in points])


def enumerated(terms, probabilities):
    """E over the row of (term/q)(term/q)ᵀ, less the square of its mean, averaged over points."""
    total = terms.sum(axis=1)
    common = np.einsum("pi,pj->ij", total, total)
    return (np.einsum("pri,prj,r->ij", terms, terms, 1 / probabilities) - common) / len(terms)


def test_scores_are_root_mean_squares_along_random_directions(noisy):
    pilot, whitening = noisy
    points = RNG.normal(size=(5, 3))
    often = np.tile(points, (400, 1))
    scores = np.concatenate([s for _, s in pilot._scored(whitening, often)])
    terms = row_terms(pilot, whitening, points)
    exact = (terms**2).sum(axis=2).mean(axis=0)
    squares = np.random.default_rng(len(often)).standard_normal(often.shape)
    along = np.einsum("pri,pi->pr", np.tile(terms, (400, 1, 1)), squares) ** 2
    np.testing.assert_allclose(scores**2, along.mean(axis=0), rtol=2e-3)
    error = along.std(axis=0) / np.sqrt(len(often))
    assert np.max(np.abs(scores**2 - exact) / error) < 4


@pytest.mark.parametrize("weighted", [True, False])
def test_the_noise_is_that_of_enumeration(noisy, weighted):
    pilot, whitening = noisy
    points = posterior_points(whitening, 0)
    terms = row_terms(pilot, whitening, points)
    even = np.full(40, 1 / 40)
    q = mixed(np.sqrt((terms**2).sum(axis=2).mean(axis=0))) if weighted else even
    choice = RowLaw(pilot.table, q) if weighted else None
    found = [pilot.noise(whitening, points, choice, seed) for seed in range(12)]
    alike, exact = np.diag(enumerated(terms, even)), enumerated(terms, q)
    expected = (exact, np.linalg.eigvalsh(exact)[-1], alike.max() / np.diag(exact).max())
    for every, law in zip(map(np.array, zip(*found, strict=True)), expected, strict=True):
        error = every.std(axis=0, ddof=1) / np.sqrt(len(every))
        rounding = 1e-3 * np.trace(law) if every.ndim == 3 else 0.02 * law  # the largest of noisy values is a little too large
        assert every.shape[1:] == np.shape(law)
        assert np.max(np.abs(every.mean(axis=0) - law) / (error + rounding)) < 4
    assert points.shape == (NOISE_POINTS, 3)


def test_importance_makes_less_noise(noisy):
    pilot, whitening = noisy
    points = posterior_points(whitening, 0)
    terms = row_terms(pilot, whitening, points)
    q = mixed(np.sqrt((terms**2).sum(axis=2).mean(axis=0)))
    noise = pilot.noise(whitening, points, RowLaw(pilot.table, q), 0)
    assert noise.gain > 1.1
    assert np.trace(noise.drawn) < 0.9 * np.trace(enumerated(terms, np.full(40, 1 / 40)))


def test_points_for_scores_reach_far(noisy):
    pilot, _ = noisy
    points = pilot.points(3, 0)
    assert points.shape == (MOST_POINTS, 3)
    states = RNG.normal(size=(1000, 3))
    chosen = pilot.some_of(states)
    assert chosen.shape == (MOST_POINTS, 3)
    assert np.max((states**2).sum(axis=1)) in (chosen**2).sum(axis=1)


# The curvature away from the centre.


def wall(params, batch):
    """A log likelihood that bends down by itself: λ = 1 at 0, and more to the right."""
    return -(jnp.exp(params["beta"] @ batch["x"].T) - params["beta"] @ batch["x"].T)


def test_curvatures_are_the_largest_eigenvalues_of_the_hessian(x64):
    x = np.eye(3)[np.arange(30) % 3] / np.sqrt(10)
    found = Problem.of(wall, {"x": x}, {"beta": np.zeros(3)}, lambda p: 0.0 * p["beta"].sum())
    pilot = Pilot(found.posterior, found.table, order=1)
    points = np.array([[0.0, 0, 0], [3, 0, 0], [0, 6, -3], [-9, -9, -9]])
    factor = whitening_of(np.eye(3), found.position)
    every = RowLaw(found.table, np.full(30, 1 / 30), np.zeros(0, int))
    exact = [max(np.exp(z / np.sqrt(10)).max(), 0) for z in points]
    seen = pilot.curvatures(factor, points, every, 0)
    np.testing.assert_allclose(seen[1:3], exact[1:3], rtol=0.15)  # rows are drawn: 4,096 of 30
    certain = RowLaw(found.table, np.zeros(30) + np.eye(30)[29], np.arange(29))
    np.testing.assert_allclose(pilot.curvatures(factor, points, certain, 0)[1:3], exact[1:3], rtol=1e-3)
    assert np.all(seen[[0, 3]] < 1.05)


def test_points_for_the_curvature_have_the_farthest_states_among_them():
    states = np.random.default_rng(0).normal(size=(1000, 3))
    states[17] = 30.0
    chosen = Pilot.curvature_points(whitening_of(np.eye(3), {"beta": jnp.zeros(3)}), states)
    assert len(chosen) == 16
    assert (chosen == 30.0).all(axis=1).any()


@pytest.mark.parametrize(("d", "count"), [(5, 256), (300, 35), (500, 16), (1500, SKETCHES), (5000, SKETCHES)])
def test_the_noise_is_measured_at_as_many_points_as_time_allows(d, count):
    assert noise_points(d) == count
    assert noise_rows(d) == (4096 if d <= 100 else 1024)


# Points at which rows are weighed.


def counts(params, batch):
    eta = params["a"] + params["u"][batch["g"]]
    return batch["y"] * eta - jnp.exp(eta)


def a_level_without_a_count():
    """A row of its own, with no count, and a prior so wide that it alone decides: a wall on one side, nothing on the other."""
    rng = np.random.default_rng(7)
    g, y = rng.integers(0, 3, 4_000).astype(np.int32), rng.poisson(0.3, 4_000).astype(np.float32)
    g[0], y[0] = 3, 0
    start = {"a": 0.0, "u": np.zeros(4)}
    return Problem.of(counts, {"g": g, "y": y}, start, lambda p: -0.5 * ((p["u"] / 100) ** 2).sum() - 0.5 * (p["a"] / 5) ** 2)


def test_points_beyond_a_wall_are_brought_nearer():
    found = a_level_without_a_count()
    survey = take_survey(found, 0, False)
    pilot = Pilot(found.posterior, found.table, order=1)
    points = pilot.points(5, 0)
    with pytest.raises(sgmcmc.InputError, match="scores"):  # the control: exp of hundreds
        pilot.importance(survey.whitening, points)
    nearer = pilot.plausible(survey.whitening, points, None, 0)
    choice = pilot.importance(survey.whitening, nearer)
    ratio = np.linalg.norm(nearer, axis=1) / np.linalg.norm(points, axis=1)
    assert set(np.log2(ratio).round(6)) <= {0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0}
    assert ratio.min() < 1 == ratio.max(), "others stay"
    assert choice.probabilities.argmax() == 0
    np.testing.assert_array_equal(pilot.plausible(survey.whitening, nearer, choice, 0), nearer)
    gaussian = surveyed(logistic, {"x": X, "y": Y}, {"beta": np.zeros(3)}, normal_prior)
    bowl = Pilot(*problem(logistic, {"x": X, "y": Y}, {"beta": np.zeros(3)}, normal_prior)[:2], order=1)
    np.testing.assert_array_equal(bowl.plausible(gaussian.whitening, points[:, :3], None, 0), points[:, :3])
