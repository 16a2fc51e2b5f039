"""Excursions: draws that the posterior would never give are seen, few as they are; tails of any honest law are not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.results.diagnostics import Pairs
from sgmcmc.results.excursions import excursions
from sgmcmc.results.words import FALSE_ALARMS


def normal(rng, size):
    z = rng.standard_normal(size)
    return z, -z


def student(freedom):
    def law(rng, size):
        z = rng.standard_t(freedom, size)
        return z, -(freedom + 1) * z / (freedom + z**2)

    return law


def log_gamma(shape):
    """A wall on one side, exp(-exp z), and a tail exp(shape·z) on the other."""

    def law(rng, size):
        z = np.log(np.maximum(rng.gamma(shape, size=size), 1e-290))
        return z, shape - np.exp(z)

    return law


def two_hills(rng, size):
    """30 standard deviations to either side, with nothing between."""
    hill = np.where(rng.random(size) < 0.3, -30.0, 30.0)
    z = hill + rng.standard_normal(size)
    return z, hill - z


def noisy(law, still, growing):
    """Gradient noise, some of it growing with the distance from the centre as that of control variates does."""

    def with_noise(rng, size):
        z, g = law(rng, size)
        far = np.linalg.norm(z - np.median(z, axis=(0, 1)), axis=-1, keepdims=True) / np.sqrt(size[-1])
        return z, g + still * rng.standard_normal(size) + growing * far * rng.standard_normal(size)

    return with_noise


@pytest.mark.parametrize(
    ("law", "d"),
    [
        (normal, 5),
        (normal, 50),
        (noisy(normal, 0.5, 1.0), 5),
        (student(3), 5),
        (noisy(student(3), 0.5, 1.0), 5),
        (student(1), 5),
        (log_gamma(1.0), 5),
        (noisy(log_gamma(0.1), 1.0, 0.3), 5),
        (two_hills, 1),
    ],
)
def test_honest_tails_are_no_excursions(law, d):
    rng, replicates = np.random.default_rng(d), 100
    alarms = [excursions(*law(rng, (4, 250, d))).any() for _ in range(replicates)]
    assert np.mean(alarms) <= FALSE_ALARMS + 3 * np.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / replicates)


def thrown_out(d=5, far=-34.0, noise=0.3, seed=1):
    """10,000 good draws, of which five in the third direction were thrown out, and come back."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((4, 2500, d))
    z[1, 1000:1005, 2] = far * np.linspace(1.0, 0.6, 5)
    return z, -z + noise * rng.standard_normal(z.shape) * np.maximum(np.linalg.norm(z, axis=-1, keepdims=True) / np.sqrt(d), 1)


@pytest.mark.parametrize(("d", "far", "noise"), [(5, -34.0, 0.3), (5, 10.0, 0.1), (50, 34.0, 1.0)])
def test_a_few_draws_thrown_out_of_ten_thousand_are_seen(d, far, noise):
    counts = excursions(*thrown_out(d, far, noise))
    assert 1 <= counts[2] <= 5
    assert counts.sum() == counts[2]
    assert not excursions(*thrown_out(d, 3.0, noise)).any()


def test_health_names_the_number_that_was_thrown_out():
    z, g = thrown_out()
    names = ["a", "b", "tau", "c", "d"]
    health = sgmcmc.Result(None, {}, None, {}, pairs=Pairs(z, g, names, None, None)).health()
    assert "excursions" in health.kinds
    finding = health.findings[health.kinds.index("excursions")]
    assert "of 10,000 draws of tau lie where the posterior has nothing" in finding.seen
    assert finding.about == "tau"
    assert "lower stepsize" in finding.remedy


def test_a_narrow_direction_is_named_by_its_numbers():
    """34 standard deviations of what a and b leave open between them are less than one of either."""
    z, g = (x[..., 1:3] for x in thrown_out())
    factor = np.array([[1.0, 0.0], [0.9999, 0.014]])
    assert not excursions(z, g, factor).any()
    health = sgmcmc.Result(None, {}, None, {}, pairs=Pairs(z, g, ["a", "b"], factor, None)).health()
    assert health.kinds == ("excursions",)
    assert "a direction that is mostly b lie where" in str(health)


ROWS = 2000
RARE = np.arange(ROWS) < 8
Z = np.random.default_rng(0).standard_normal(ROWS)
EVENT = (np.random.default_rng(1).random(ROWS) < 1 / (1 + np.exp(4 - 0.5 * Z))) & ~RARE


def logistic(params, batch):
    eta = params["a"] + params["b"] * batch["z"] + params["rare"] * batch["rare"]
    return jax.nn.log_sigmoid(jnp.where(batch["event"], eta, -eta))


def prior(params):
    return -0.5 * sum((value / 5) ** 2 for value in params.values())


@pytest.mark.parametrize(("stepsize", "thrown"), [(0.49, True), (0.05, False)])
def test_a_step_too_large_for_a_wall_throws_chains_out_and_is_seen(stepsize, thrown):
    """A level of 8 rows without an event: the curvature is many times that of the mode one standard deviation away."""
    data = {"z": Z, "rare": RARE.astype(float), "event": EVENT}
    problem = (logistic, data, {"a": -4.0, "b": 0.5, "rare": 0.0}, stepsize)
    model = {"log_prior": prior, "precondition": {"a": 0.2, "b": 0.2, "rare": 4.0}, "minibatch_size": ROWS}
    run = {"n_iters": 4000, "burn_in": 200, "n_chains": 4, "seed": 3, "progress": False, "diagnose": True}
    health = sgmcmc.baoa(*problem, **model, **run).health()
    assert ("excursions" in health.kinds) == thrown
    assert ("draws of rare lie where" in str(health)) == thrown
