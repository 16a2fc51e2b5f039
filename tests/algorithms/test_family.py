"""The laws of the dynamics beside the paper's: in closed form where updates are affine, by quadrature where they are not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from chains import mean_and_variance
from exact import additive, stationary_moments
from quadrature import at_small_steps, gaussian_steps, stationary_variance
from scipy.optimize import brentq

import sgmcmc
from sgmcmc.algorithms import (
    OBABO,
    Barker,
    Langevin,
    Motion,
    NoseHoover,
    PreconditionedLangevin,
    RMSLangevin,
    SymmetricNoseHoover,
)
from sgmcmc.algorithms.laws import Directions, _stationary, inflation

EXACT = 1e-10


# OBABO: affine.


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("A", "eps", "alpha", "V"), [(1.0, 0.5, 0.3, 0.0), (4.0, 0.05, 1.0, 2.0), (50.0, 1e-3, 0.01, 10.0)])
def test_obabo(A, eps, alpha, V):
    covariance = stationary_moments(OBABO(jnp.array(alpha)), additive(np.array([[A]]), np.array([[V]])), eps)[1]
    law = (1 + eps * V * (2 - alpha) / (4 * alpha)) / (A * (1 - eps * A / 4))
    assert covariance[0, 0] == pytest.approx(law, rel=EXACT)


@dataclass(frozen=True)
class OpenHalfKick(OBABO):
    """The mistake: the closing half-kick is missing."""

    def settle(self, motion, gradient, stats, eps, noise, t):
        return replace(super().settle(motion, jnp.zeros_like(gradient), stats, eps, noise, t), gradient=gradient)


@pytest.mark.usefixtures("x64")
def test_obabo_without_its_closing_kick_is_caught():
    covariance = stationary_moments(OpenHalfKick(jnp.array(0.3)), additive(np.eye(1), np.zeros((1, 1))), 0.5)[1]
    assert abs(covariance[0, 0] * (1 - 0.5 / 4) - 1) > 0.1


# The thermostat in many dimensions, where it comes to rest at an α: there it is affine.


def at_rest(dynamics, eps, A, V):
    """The variance of θ over the truth, where the thermostat stays."""
    posterior = Directions(np.array([A]), np.array([V]))

    def heating(carried):
        return _stationary(dynamics, eps, posterior, {"thermostat": np.array([carried])})[1][0]

    carried = brentq(heating, eps / 2 + 1e-3, 1.5, xtol=1e-15)
    law, _ = _stationary(dynamics, eps, posterior, {"thermostat": np.array([carried])})
    return law[0, 0, 0] * A


def symmetric_law(a, eps, A, V):
    """δ = εV / (2 - εA/2); the thermostat rests where a = sinh α - δ cosh α; the variance is 1 - δ tanh(α/2)/2 of the truth."""
    delta = eps * V / (2 - eps * A / 2)
    alpha = brentq(lambda x: np.sinh(x) - delta * np.cosh(x) - a, 0, 5, xtol=1e-15)
    return 1 - delta * np.tanh(alpha / 2) / 2


CASES = [(0.1, 0.2, 1.0, 0.0), (0.01, 1.5, 2.0, 0.0), (0.1, 0.2, 1.0, 0.5), (0.3, 0.05, 20.0, 8.0)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("a", "eps", "A", "V"), CASES)
def test_the_symmetric_thermostat_has_the_truth_but_for_its_noise(a, eps, A, V):
    assert at_rest(SymmetricNoseHoover(a), eps, A, V) == pytest.approx(symmetric_law(a, eps, A, V), rel=EXACT)
    assert abs(symmetric_law(a, eps, A, V) - 1) <= eps * V * a
    assert inflation(SymmetricNoseHoover(a), eps, Directions(np.array([A]), np.array([V])))[0] == pytest.approx(
        symmetric_law(a, eps, A, V), abs=1e-4
    )


@pytest.mark.usefixtures("x64")
def test_the_papers_thermostat_has_not_however_small_the_step():
    a = 0.1
    assert at_rest(NoseHoover(a), 1e-8, 1.0, 0.0) == pytest.approx(1 - (4 - np.sqrt(16 - 32 * a)) / 8, abs=1e-6)
    assert at_rest(NoseHoover(a), 1e-8, 1.0, 0.0) < 0.95


@dataclass(frozen=True)
class Lukewarm(SymmetricNoseHoover):
    """The mistake: friction on one side of the noise only."""

    def move(self, motion, eps, noise):
        return super().move(motion, eps, 1.05 * noise)


@pytest.mark.usefixtures("x64")
def test_a_thermostat_takes_up_what_is_wrong_with_its_noise():
    """So the control is the friction that it needs for that."""
    assert at_rest(Lukewarm(0.1), 0.2, 1.0, 0.5) != pytest.approx(symmetric_law(0.1, 0.2, 1.0, 0.5), rel=EXACT)
    assert at_rest(Lukewarm(0.1), 0.2, 1.0, 0.5) == pytest.approx(symmetric_law(0.1 * 1.05**2, 0.2, 1.0, 0.5), rel=EXACT)


PAPERS = 1 - (3.9 - np.sqrt(3.9**2 - 3.2)) / 8
"""What the paper's order makes of the variance at ε = a = 0.1."""


@pytest.mark.parametrize(("scheme", "expected"), [("symmetric", 1.0), ("paper", PAPERS)])
def test_chains_with_a_thermostat_of_many_numbers(scheme, expected):
    """A thousand numbers under one thermostat, exact gradients."""

    def log_lik(theta, batch):
        return -0.5 * (batch["one"][0] * theta**2).sum()

    out = sgmcmc.sgnht(
        log_lik, {"one": np.ones(1)}, np.zeros(1000), 0.1, a=0.1, scheme=scheme, minibatch_size=1, burn_in=1000, n_iters=4000,
        thin=20, seed=1, progress=False,
    )  # fmt: skip
    _, variance = mean_and_variance(np.moveaxis(np.asarray(out.draws), 1, 0), 0.0)
    assert abs(variance.z(expected)) < 4
    assert abs(variance.z(1 + PAPERS - expected)) > 4


# Barker: by quadrature.


def barker_density(dynamics, eps, gradients, variance=0.0):
    """From the chance of going up: steps of length |Δ| are normal, their direction is chosen. `gradients` are pairs of a
    probability and a gradient at θ."""

    def density(there, here):
        step = there - here
        up = sum(p * dynamics.chance(np.abs(step), g(here), variance) for p, g in gradients)
        return np.exp(-(step**2) / (2 * eps)) * np.where(step > 0, up, 1 - np.asarray(up))

    return density


def normal_noise(A, V, nodes=24):
    """Gradients -Aθ + N(0, V), by Gauss and Hermite."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return [(p, lambda theta, s=s: -A * theta + s) for p, s in zip(w / w.sum(), np.sqrt(V) * z, strict=True)]


def barker_variance(dynamics, eps, V=0.0, learnt=0.0, reach=12.0):
    return stationary_variance(barker_density(dynamics, eps, normal_noise(1.0, V), learnt), reach)


@pytest.mark.usefixtures("x64")
def test_barker_targets_the_posterior_and_never_diverges():
    assert at_small_steps(lambda eps: barker_variance(Barker(), eps, reach=6.0), 0.1) == pytest.approx(1.0, abs=5e-4)
    assert barker_variance(Barker(), 40.0, reach=60.0) < 30  # far beyond ε = 4, where Langevin's steps blow up
    assert not np.isfinite(inflation(Langevin(), 4.1, Directions(np.ones(1), np.zeros(1))))


@pytest.mark.usefixtures("x64")
def test_the_correction_is_right_to_second_order_in_the_noise(monkeypatch):
    eps, V = 0.02, 4.0
    exact, plain, corrected = (barker_variance(Barker(), eps, *noise) for noise in ((0.0, 0.0), (V, 0.0), (V, V)))
    monkeypatch.setattr("sgmcmc.algorithms.dynamics.barker.C_SQUARED", 1.702**2)
    as_published = barker_variance(Barker(), eps, V, V)
    assert plain - exact > 0.03
    assert abs(corrected - exact) < 0.1 * (plain - exact)
    assert abs(as_published - exact) > 0.2 * (plain - exact)


ROWS = np.array([-1.1, 0.2, 0.6, 1.7])


def test_chains_of_barker_have_that_law():
    """Minibatches of two of four rows, all six enumerated; a step at which Langevin's variance would be another."""
    eps, precision = 0.5, 4.0

    def log_lik(theta, batch):
        return -0.5 * ((batch["x"] - theta) ** 2).sum()

    sampler = sgmcmc.sampler_setup(log_lik, {"x": ROWS}, np.zeros(()), eps, dynamics="barker", minibatch_size=2, progress=False)
    draws = sampler.run(sampler.init(seed=2, n_chains=2000), 60, burn_in=60, thin=10, progress=False).draws
    mean = ROWS.mean()
    sums = [ROWS[list(pair)].sum() * 2 - 4 * mean for pair in itertools.combinations(range(4), 2)]
    gradients = [(1 / 6, lambda theta, s=s: -precision * theta + s) for s in sums]
    law = stationary_variance(barker_density(Barker(), eps, gradients), 8.0)
    _, variance = mean_and_variance(draws, mean)
    assert abs(variance.z(law)) < 4
    langevin = inflation(Langevin(), eps, Directions(np.array([precision]), np.array([np.var(sums)])))[0] / precision
    assert abs(variance.z(langevin)) > 10


# Metrics: by quadrature.


def langevin_like(dynamics, eps, auxiliary=None):
    """One step of a chain of one number on N(0, 1)."""

    def move(theta, z):
        return dynamics.move(Motion(theta, -theta, auxiliary or {}), jnp.asarray(eps), z).position

    return move


def metric(theta):
    return 1 / (1 + theta**2)


def limit(dynamics, auxiliary=None):
    return at_small_steps(lambda eps: stationary_variance(gaussian_steps(langevin_like(dynamics, eps, auxiliary)), 9.0), 0.2)


@pytest.mark.usefixtures("x64")
def test_a_metric_with_its_derivative_targets_the_posterior_and_without_it_another_law():
    assert limit(PreconditionedLangevin(metric)) == pytest.approx(1.0, abs=0.01)
    # π/G: E θ² (1 + θ²) / E (1 + θ²) = 4/2
    assert limit(PreconditionedLangevin(metric, gamma=False)) == pytest.approx(2.0, abs=0.02)


@pytest.mark.usefixtures("x64")
def test_derivatives_of_a_metric_are_those_of_every_number_by_itself():
    def mixing(params):
        return {"a": jnp.exp(params["b"]) * params["a"] ** 2, "b": 1 + params["b"] ** 2 * params["a"].sum()}

    position = {"a": jnp.array([0.5, 2.0]), "b": jnp.array(0.3)}
    came = PreconditionedLangevin(mixing)._derivatives(position)
    np.testing.assert_allclose(came["a"], 2 * np.exp(0.3) * np.array([0.5, 2.0]), rtol=1e-12)
    assert came["b"] == pytest.approx(2 * 0.3 * 2.5, rel=1e-12)


def test_a_metric_of_another_shape_is_refused():
    with pytest.raises(sgmcmc.InputError, match="metric returned"):
        PreconditionedLangevin(lambda params: params["a"]).fitted({"a": jnp.ones(2)})


@pytest.mark.usefixtures("x64")
def test_frozen_steps_are_langevins_and_those_never_frozen_target_another_law():
    rng, eps = np.random.default_rng(0), jnp.full(3, 0.1)
    motion = Motion(*(jnp.asarray(rng.normal(size=3)) for _ in range(2)), {"squares": jnp.array([1.0, 4.0, 9.0]), "seen": 50})
    z = jnp.asarray(rng.normal(size=3))
    frozen = RMSLangevin(freeze=50, floor=0.5).move(motion, eps, z)
    np.testing.assert_allclose(frozen.position, Langevin().move(motion, eps / jnp.array([1.5, 2.5, 3.5]), z).position, rtol=1e-14)
    np.testing.assert_array_equal(frozen.auxiliary["squares"], motion.auxiliary["squares"])
    # Without memory G = 1/(1 + |θ|), so that π/G has E θ² (1 + |θ|) / E (1 + |θ|).
    published = limit(RMSLangevin(freeze=None, decay=0.0, floor=1.0), {"squares": jnp.zeros(()), "seen": jnp.int32(9)})
    root = np.sqrt(2 / np.pi)
    assert published == pytest.approx((1 + 2 * root) / (1 + root), abs=0.02)


def test_no_step_size_is_chosen_by_a_law_that_is_not_known():
    with pytest.raises(sgmcmc.InputError, match="stepsize='auto' came with Barker"):
        sgmcmc.sampler_setup(lambda p, b: -0.5 * ((b["x"] - p) ** 2).sum(), {"x": ROWS}, np.zeros(()), "auto", dynamics="barker")
