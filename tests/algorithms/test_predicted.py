"""Predicted inflation: closed forms, the largest step, and chains that inflate by what `stepsize="auto"` said."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest
from chains import over_chains
from exact import additive, stationary_moments

import sgmcmc
from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.dynamics.hamiltonian import PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.dynamics.nose_hoover import NoseHoover
from sgmcmc.algorithms.laws import MOST_DIRECTIONS, Directions, directions, inflation, largest_step, representative

LIMIT, CHAINS = 4.0, 32
A, V = np.array([0.5, 2.0, 9.0]), np.array([0.3, 0.0, 12.0])
POSTERIOR = Directions(A, V)


def sgld_law(eps):
    h = eps / 2
    return (1 + h * V / 2) / (1 - h * A / 2)


def persistent_law(eps, alpha):
    return (1 + eps * V / 2 / alpha) / (1 - eps * A / (4 - 2 * alpha))


def baoa_law(eps, alpha):
    return 1 + V * eps * (2 - alpha) / (4 * alpha * (1 - eps * A / 4))


@pytest.mark.parametrize(
    ("dynamics", "eps", "law"),
    [
        (Langevin(), 0.1, sgld_law(0.1)),
        (PersistentHamiltonian(0.2), 0.05, persistent_law(0.05, 0.2)),
        (BAOA(0.5), 0.2, baoa_law(0.2, 0.5)),
        (BAOA(1.0), 0.2, baoa_law(0.2, 1.0)),
    ],
)
def test_closed_forms(dynamics, eps, law):
    np.testing.assert_allclose(inflation(dynamics, eps, POSTERIOR), law, rtol=1e-10)


@pytest.mark.parametrize("dynamics", [SymmetricHamiltonian(0.1, 4), PaperHamiltonian(0.1, 3)])
def test_resampled_momenta_against_the_moment_equation(dynamics):
    with jax.enable_x64(True):
        targets = [additive(np.array([[a]]), np.array([[v]])) for a, v in zip(A, V, strict=True)]
        variances = [stationary_moments(dynamics, target, 0.05)[1][0, 0] for target in targets]
    np.testing.assert_allclose(inflation(dynamics, 0.05, POSTERIOR), variances * A, rtol=1e-10)


def test_resampled_momenta_without_noise():
    quiet = Directions(A, 0 * V)
    np.testing.assert_allclose(inflation(SymmetricHamiltonian(0.3, 5), 0.1, quiet), 1 / (1 - 0.1 * A / 4), rtol=1e-10)
    np.testing.assert_allclose(inflation(PaperHamiltonian(0.01, 5), 1e-8, quiet), 1.243, atol=5e-4)


@pytest.mark.parametrize(("eps", "a", "precision", "noise"), [(0.1, 0.1, 1.0, 0.0), (0.01, 0.05, 3.0, 4.0)])
def test_the_thermostat_finds_its_friction(eps, a, precision, noise):
    """α* of docs/methods/conventions.md, for many directions of one precision: here one direction stands for them."""
    B = 4 - eps * precision
    friction = (B - np.sqrt(B**2 - 16 * (2 * a + eps * noise))) / 4
    found = inflation(NoseHoover(a), eps, Directions(np.full(4, precision), np.full(4, noise)))
    np.testing.assert_allclose(found, 1 - friction / 2, rtol=1e-4)


def test_unstable_steps_are_infinitely_wrong():
    for dynamics in (Langevin(), BAOA(0.5), SymmetricHamiltonian(0.1, 4), PersistentHamiltonian(0.1)):
        found = inflation(dynamics, 4.4 / A[1], POSTERIOR)
        assert np.isfinite(found[0])
        assert np.isinf(found[1:]).all()


ALLOWED = 0.1


@pytest.mark.parametrize(
    "dynamics", [Langevin(), BAOA(0.5), SymmetricHamiltonian(0.1, 4), PaperHamiltonian(0.1, 4), PersistentHamiltonian(0.1)]
)
def test_the_largest_step_meets_its_bound(dynamics):
    eps = largest_step(dynamics, POSTERIOR, ALLOWED)
    floor = inflation(dynamics, 1e-9, Directions(A, 0 * V))
    assert np.all(inflation(dynamics, eps, POSTERIOR) <= (1 + ALLOWED) * floor + 1e-6)
    assert np.any(inflation(dynamics, 1.01 * eps, POSTERIOR) > (1 + ALLOWED) * floor)


def test_the_largest_step_of_langevin_in_closed_form():
    """Without noise (1 - εA/4)⁻¹ = 1.1 where A is largest."""
    eps = largest_step(Langevin(), Directions(A, 0 * V), ALLOWED)
    assert eps == pytest.approx(4 / 9 * (1 - 1 / 1.1), rel=1e-3)


def test_the_largest_step_of_exact_dynamics_is_stable():
    """BAOA has no error to bound on a Gaussian with exact gradients; what is left is to stay off 4/A, where it stops mixing."""
    eps = largest_step(BAOA(0.5), Directions(A, 0 * V), ALLOWED)
    assert 0.2 / 9 < eps < 0.995 * 4 / 9
    np.testing.assert_allclose(inflation(BAOA(0.5), eps, Directions(A, 0 * V)), 1, rtol=1e-6)


def test_directions_follow_the_axes_of_the_precision():
    axes = np.array([[0.6, -0.8], [0.8, 0.6]])
    noise = np.array([[2.0, 0.5], [0.5, 1.0]])
    found = directions(axes @ np.diag([1.0, 5.0]) @ axes.T, noise)
    np.testing.assert_allclose(found.precision, [1.0, 5.0])
    np.testing.assert_allclose(found.noise, np.diag(axes.T @ noise @ axes))
    by_diagonals = directions(np.array([1.0, 5.0]), noise)
    np.testing.assert_allclose(by_diagonals.noise, [2.0, 1.0])


def test_a_few_directions_stand_for_many():
    rng = np.random.default_rng(0)
    many = Directions(rng.lognormal(size=5000), rng.lognormal(size=5000))
    few = representative(many)
    assert len(few.precision) <= MOST_DIRECTIONS
    for end in (np.min, np.max):
        assert end(few.precision) == end(many.precision)
    assert np.max(few.noise / few.precision) == np.max(many.noise / many.precision)
    assert representative(few) is few


# Chains with an automatic step inflate as predicted: a correlated regression, its minibatches half of few rows.

N, SIZE, PRIOR = 100, 50, 20.0
RNG = np.random.default_rng(11)
X = RNG.normal(size=(N, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
DATA = {"x": X, "y": X @ [0.5, -1.0] + RNG.normal(0, 1.0, N)}
PRECISION = X.T @ X + PRIOR * np.eye(2)


def log_lik(params, batch):
    return -0.5 * (batch["y"] - batch["x"] @ params["beta"]) ** 2


def log_prior(params):
    return -0.5 * PRIOR * (params["beta"] ** 2).sum()


OPTIONS = {"log_prior": log_prior, "progress": False}


@cache
def automatic(name, minibatch_size=SIZE):
    setup = getattr(sgmcmc, f"{name}_setup")
    return setup(log_lik, DATA, {"beta": np.zeros(2)}, "auto", minibatch_size=minibatch_size, **OPTIONS)


@cache
def seen(name):
    """Variances along the axes of the posterior, over the posterior's; and what is left of them without any noise."""
    sampler = automatic(name)
    out = sampler.run(sampler.init(seed=2, n_chains=CHAINS), 6000, burn_in=200, progress=False)
    values, axes = np.linalg.eigh(PRECISION)
    away = (out["beta"].astype(float) - np.linalg.solve(PRECISION, X.T @ DATA["y"])) @ axes
    return over_chains((away**2).mean(axis=1) * values), out.decisions


def predicted(name):
    """From the exact noise of the rows at the exact posterior, not as the pilot measures it."""
    mode, covariance = np.linalg.solve(PRECISION, X.T @ DATA["y"]), np.linalg.inv(PRECISION)
    points = np.random.default_rng(1).multivariate_normal(mode, covariance, 2000)
    rows = X * (DATA["y"] - points @ X.T)[:, :, None]
    if name.endswith("cv"):
        rows = rows - X * (DATA["y"] - X @ mode)[:, None]
    rows = rows - rows.mean(axis=1, keepdims=True)
    noise = N * (N - SIZE) / SIZE * np.einsum("pij,pik->jk", rows, rows) / (len(points) * (N - 1))
    dynamics = BAOA(0.5) if name == "baoa" else Langevin()
    return inflation(dynamics, automatic(name).decisions["stepsize"], directions(PRECISION, noise))


@pytest.mark.parametrize("name", ["sgld", "sgldcv", "baoa"])
def test_chains_inflate_as_predicted(name):
    found, decisions = seen(name)
    np.testing.assert_array_less(np.abs(found.z(predicted(name))), LIMIT)
    worst = np.argmax(predicted(name))
    assert abs(found.z(decisions["predicted_inflation"])[worst]) < LIMIT
    assert decisions["predicted_inflation"] == pytest.approx(1 + ALLOWED, abs=0.005)
    assert decisions["predicted_inflation"] == pytest.approx(predicted(name)[worst], abs=0.005)


@pytest.mark.parametrize("name", ["sgld", "sgldcv", "baoa"])
def test_control_the_posterior_itself_is_not_what_they_sample(name):
    assert np.max(seen(name)[0].z(1.0)) > LIMIT


def test_decisions_record_step_minibatch_and_prediction():
    sampler = automatic("sgldcv", "auto")
    told = sampler.decisions
    assert set(told) == {"minibatch_size", "stepsize", "predicted_inflation"}
    assert told["minibatch_size"] == sampler.source.batch_size == sampler.settings["minibatch_size"]
    assert told["stepsize"] == pytest.approx(float(sampler.kernel.schedule.first), rel=1e-6)
    assert f"{told['stepsize']:.3g}" in str(told)
    assert str(told["minibatch_size"]) in str(told)
    assert str(told).count("\n") == 2


def test_the_step_follows_the_units_unless_it_is_whitened():
    """Without whitening a step has squared units of the parameters; with it, none."""
    small = {"x": 1e3 * X, "y": DATA["y"]}

    def steps(**options):
        for data, prior in ((DATA, PRIOR), (small, 1e6 * PRIOR)):
            own = {"log_prior": lambda p, prior=prior: -0.5 * prior * (p["beta"] ** 2).sum(), "progress": False}
            sampler = sgmcmc.sgldcv_setup(log_lik, data, {"beta": np.zeros(2)}, "auto", minibatch_size=SIZE, **own, **options)
            yield sampler.decisions["stepsize"]

    large, little = steps()
    assert little == pytest.approx(1e-6 * large, rel=0.02)
    large, little = steps(precondition="laplace")
    assert little == pytest.approx(large, rel=0.02)
    assert 0.1 < large < 4


def test_a_friction_per_parameter_is_taken_or_refused_by_its_own_name():
    said, options = "", {"alpha": {"beta": 0.5}, "minibatch_size": SIZE, **OPTIONS}
    try:
        sgmcmc.baoa_setup(log_lik, DATA, {"beta": np.zeros(2)}, "auto", **options)
    except sgmcmc.InputError as error:
        said = str(error)
    assert "leaves params" not in said
