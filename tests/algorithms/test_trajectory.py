"""The trajectories of NUTS: their law beside NumPyro's, and what they leave alone; windows and covariances of the warm-up."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import hmc_util

from sgmcmc.algorithms.trajectory import Place, trajectory
from sgmcmc.algorithms.warm_up import learning, nothing_learnt, windows

FACTOR = jnp.array([[0.9, 0.0], [0.3, 0.6]])
START = jnp.array([0.8, -1.1])
MANY = 20_000


def potential(z, steeper=1.0):
    """Neither Gaussian nor symmetric."""
    return 0.5 * z[0] ** 2 + jnp.exp(z[1]) - steeper * z[1] + 0.1 * z[0] ** 2 * z[1] ** 2


def ours(step, steeper):
    def one(key):
        tree = trajectory(lambda z: potential(z, steeper), begin, step, FACTOR, key)
        return tree.leapfrogs, tree.chosen.z, tree.accepted / tree.leapfrogs, tree.diverged

    begin = Place(START, *jax.value_and_grad(lambda z: potential(z, steeper))(START))
    return jax.vmap(one)(jax.random.split(jax.random.key(1), MANY))


def numpyros(step):
    inverse_mass = FACTOR @ FACTOR.T
    momenta = jax.random.normal(jax.random.key(2), (MANY, 2)) @ jnp.linalg.inv(FACTOR)
    _, update = hmc_util.velocity_verlet(potential, lambda inverse_mass, r: 0.5 * r @ inverse_mass @ r)

    def one(key, r):
        begin = hmc_util.IntegratorState(START, r, *jax.value_and_grad(potential)(START))
        tree = hmc_util.build_tree(update, lambda inverse_mass, r: 0.5 * r @ inverse_mass @ r, begin, inverse_mass, step, key)
        return tree.num_proposals, tree.z_proposal, tree.sum_accept_probs / tree.num_proposals, tree.diverging

    return jax.vmap(one)(jax.random.split(jax.random.key(3), MANY), momenta)


@cache
def programs():
    return jax.jit(ours), jax.jit(numpyros)


def figures(leapfrogs, z, accepted, _):
    """Of every trajectory: how many leapfrogs it took, where it ended, how well it kept its energy."""
    counts = [leapfrogs == n for n in (1, 2, 3, 5, 7, 11, 13, 15)]
    return np.stack([*counts, leapfrogs, *z.T, *z.T**2, z[:, 0] * z[:, 1], accepted, accepted**2], axis=-1).astype(float)


def apart(one, other):
    """Differences of means, in standard errors."""
    one, other = figures(*one), figures(*other)
    error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / MANY)
    return np.abs(one.mean(axis=0) - other.mean(axis=0)) / np.maximum(error, 1e-9)


@pytest.mark.parametrize("step", [0.15, 0.5, 1.1])
def test_the_law_of_a_trajectory_is_that_of_numpyros(step):
    mine, theirs = programs()
    assert apart(mine(step, 1.0), theirs(step)).max() < 4


def test_control_another_potential_is_seen():
    mine, theirs = programs()
    assert apart(mine(0.5, 1.1), theirs(0.5)).max() > 4


def test_a_trajectory_that_gains_energy_stays_where_it_was():
    _, z, accepted, diverged = programs()[0](200.0, 1.0)
    gone = np.asarray(diverged)
    assert gone.mean() > 0.9
    np.testing.assert_array_equal(np.asarray(z)[gone], np.broadcast_to(START, (gone.sum(), 2)))
    assert (np.asarray(accepted)[gone] < 1e-6).all()


@pytest.mark.parametrize("warm_up", [1, 19, 20, 21, 50, 149, 150, 151, 200, 500, 1000, 1234])
def test_windows_are_stans(warm_up):
    expected = [window.end for window in hmc_util.build_adaptation_schedule(warm_up)]
    assert windows(warm_up).tolist() == expected


@pytest.mark.parametrize("dense", [True, False])
def test_what_is_learnt_is_numpyros(dense):
    """Steps of dual averaging within a window, the covariance at its end."""
    ends, rng = windows(150), np.random.default_rng(0)
    z, lack = (x.astype(np.float32) for x in (rng.standard_normal((150, 2)) * [2, 0.5] + [5, 0], rng.uniform(-0.2, 0.3, 150)))
    learnt, told, step = nothing_learnt(jnp.zeros(2), dense), [], jax.jit(lambda *args: learning(ends, *args))
    for i in range(150):
        learnt = step(learnt, i, z[i], lack[i])
        told.append(learnt)
    begin, update = hmc_util.dual_averaging()
    state = begin(np.log(10.0))
    for i in range(75):
        state = update(lack[i], state)
        np.testing.assert_allclose(told[i].step, np.exp(state[0]), rtol=1e-4)
    begin, update, end = hmc_util.welford_covariance(diagonal=not dense)
    state = begin(2)
    for i in range(75, 100):
        state = update(z[i], state)
    covariance, _, _ = end(state, regularize=True)
    factor = told[99].factor
    np.testing.assert_allclose(factor @ factor.T if dense else factor**2, covariance, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(told[98].factor, nothing_learnt(jnp.zeros(2), dense).factor)
    np.testing.assert_allclose(told[-1].step, np.exp(told[-1].log_average), rtol=1e-6)
