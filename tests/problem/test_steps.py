"""Step sizes as objects: what they are, which draws count, and the weights of modes that cycles of them find."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import over_chains

import sgmcmc
from sgmcmc.algorithms import CosineCycles, PolynomialDecay, WarmUp
from sgmcmc.problem.schedules import step_schedule

# A mixture of two normals with weights 0.7 and 0.3, in two dimensions, six standard deviations apart.

WEIGHT, PLACE = 0.7, np.array([-1.8, 2.4])


def log_lik(theta, batch):
    """One row, so that gradients are exact."""
    near, far = ((theta - side * PLACE) ** 2 for side in (-1.0, 1.0))
    return batch["one"][0] * jnp.logaddexp(jnp.log(WEIGHT) - near.sum() / 2, jnp.log1p(-WEIGHT) - far.sum() / 2)


def side_weights(stepsize, n_iters, chains=400):
    """The weight of the heavier mode in every chain, by its weighted draws; all begin in the other one."""
    sampler = sgmcmc.sampler_setup(log_lik, {"one": np.ones(1)}, PLACE, stepsize, minibatch_size=1, progress=False)
    out = sampler.run(sampler.init(seed=1, n_chains=chains), n_iters, thin=5, progress=False)
    side = (np.asarray(out.draws) @ PLACE < 0).astype(float)
    weights = np.ones(side.shape[1]) if out.weights is None else np.asarray(out.weights)
    return over_chains(side @ weights / weights.sum())


def law_of_cycles(steps, cycles):
    """The same in expectation, along the line through the modes: densities on a grid, step after step."""
    grid = np.linspace(-9, 9, 451)
    side, apart = grid < 0, np.linalg.norm(PLACE)
    ratio = WEIGHT / (1 - WEIGHT) * np.exp(-2 * apart * grid)
    slope = -grid - apart * (ratio - 1) / (ratio + 1)
    law = np.exp(-0.5 * (grid - apart) ** 2 / 1e-2)  # nearly a point
    law /= law.sum()
    total = weighed = 0.0
    for t in range(1, steps.length * cycles + 1):
        eps = float(steps(t))
        if eps > 5e-3:  # below, nothing crosses, and the grid is too coarse
            step = np.exp(-((grid[:, None] - grid - eps / 2 * slope) ** 2) / (2 * eps))
            law = step @ (law / step.sum(axis=0))
        if t % 5 == 0:
            weight = eps * float(steps.counts(t))
            total, weighed = total + weight, weighed + weight * law[side].sum()
    return weighed / total


STEPS = CosineCycles(2.0, length=500, exploring=0.7)


def test_cycles_find_the_weights_of_modes_and_a_constant_step_misses_one():
    cycling, constant = side_weights(STEPS, 4000), side_weights(0.02, 4000)
    assert abs(cycling.z(WEIGHT)) < 4
    assert abs(constant.z(WEIGHT)) > 20


@pytest.mark.slow
def test_these_weights_are_those_of_the_law_of_the_chain():
    assert abs(side_weights(STEPS, 1000).z(law_of_cycles(STEPS, 2))) < 4


def test_what_they_are():
    t = jnp.arange(1, 9)
    np.testing.assert_allclose(CosineCycles(0.4, 4)(t), np.tile(0.2 * (1 + np.cos(np.pi * np.arange(4) / 4)), 2), rtol=1e-5)
    np.testing.assert_array_equal(CosineCycles(0.4, 4, exploring=0.5).counts(t), [0, 0, 1, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(PolynomialDecay(0.4, delay=2, power=0.5)(t), 0.4 / np.sqrt(1 + np.arange(8) / 2), rtol=1e-5)
    both = WarmUp(CosineCycles(0.4, 4), 2)
    np.testing.assert_allclose(both(t)[:4], CosineCycles(0.4, 4)(t)[:4] * np.array([0.5, 1, 1, 1]), rtol=1e-5)
    np.testing.assert_array_equal(both.counts(t), [0, 0, 1, 1, 0, 0, 1, 1])


def test_sizes_for_each_parameter():
    position = {"a": jnp.zeros(2), "b": jnp.zeros(())}
    schedule = step_schedule(PolynomialDecay({"a": 0.1, "b": 0.4}, delay=1, power=1.0), position)
    jax.tree.map(np.testing.assert_allclose, schedule.at(2, position), {"a": np.float32(0.05), "b": np.float32(0.2)})


def test_draws_that_do_not_count_enter_no_average():
    """Neither those kept nor running ones; and all are stored."""
    steps = WarmUp(CosineCycles(0.5, 20), 10)
    sampler = sgmcmc.sampler_setup(log_lik, {"one": np.ones(1)}, PLACE, steps, minibatch_size=1, progress=False)
    keep = {"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments()}
    out = sampler.run(sampler.init(seed=1), 60, keep=keep, progress=False)
    draws, weights = np.asarray(out.draws, np.float64), np.asarray(out.weights, np.float64)
    expected = np.array([float(steps(t) * steps.counts(t)) for t in range(1, 61)])
    assert len(draws) == 60
    np.testing.assert_allclose(weights / weights.sum(), expected / expected.sum(), atol=1e-6)
    np.testing.assert_allclose(out.kept["moments"].mean, expected @ draws / expected.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CosineCycles(0.1, 1), "length is 1; expected a whole number of at least 2"),
        (lambda: CosineCycles(0.1, 10, 1.0), "exploring is 1.0; expected a part of the cycle"),
        (lambda: PolynomialDecay(0.1, power=0), "power 0; expected"),
        (lambda: WarmUp(0.1, 0), "iterations is 0"),
    ],
)
def test_what_they_cannot_be_is_refused(make, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        make()
