"""Moves that are accepted by an estimate: detailed balance of every path, invariance by quadrature, the noise-corrected test."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import mean_and_variance
from scipy.stats import norm

import sgmcmc
from sgmcmc.algorithms import SAGA, MetropolisHamiltonian, Motion, SymmetricHamiltonian
from sgmcmc.algorithms.energies import acceptance
from sgmcmc.algorithms.laws import Directions, inflation

ROWS = np.array([-1.1, 0.2, 0.6, 1.7])
PAIRS = [list(pair) for pair in itertools.combinations(range(4), 2)]


def log_posterior(theta):
    """Neither Gaussian nor symmetric."""
    return -0.5 * sum((theta - x) ** 2 for x in ROWS) - 0.3 * (theta - 0.2) ** 4


def gradient(theta, pair):
    """From two of the four rows."""
    return -2 * sum(theta - x for x in ROWS[pair]) - 1.2 * (theta - 0.2) ** 3


def leaps(dynamics, theta, nu, noise, pairs, eps):
    """The end, the momentum before its last friction, and the work, along a path of leaps with the noise of each friction."""
    begin = {"momentum": nu, "work": jnp.zeros_like(theta), "accepted": jnp.zeros_like(theta)}
    motion, rubbed = Motion(theta, gradient(theta, pairs[0]), begin), nu
    for pair, z in zip(pairs[1:], noise, strict=True):
        there = dynamics.move(motion, eps, z)
        motion = dynamics.settle(there, gradient(there.position, pair), {}, eps, z, 1)
        rubbed = there.auxiliary["momentum"] + eps / 2 * motion.gradient
    return motion.position, rubbed, motion.auxiliary["work"]


def accepted(theta, there, work):
    return acceptance(log_posterior(there) - log_posterior(theta) - work, 0.0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(5))
def test_every_path_and_its_reverse_balance(seed):
    """Whatever the minibatches and the noise of the friction: with the same ones in reverse order, the chain comes back."""
    rng, eps, alpha, L = np.random.default_rng(seed), jnp.asarray(0.3), 0.4, 3
    pairs = [PAIRS[i] for i in rng.integers(0, 6, L + 1)]
    theta, nu, *noise = (jnp.asarray(x) for x in rng.normal(size=2 + L))
    dynamics = MetropolisHamiltonian(alpha=alpha, L=L)
    there, last, work = leaps(dynamics, theta, nu * jnp.sqrt(eps), noise, pairs, eps)

    loss, gain, back, at, momentum = 1 - alpha, np.sqrt((1 - (1 - alpha) ** 2) * eps), [], theta, nu * jnp.sqrt(eps)
    for n, z in enumerate(noise[:-1]):  # the noise that takes the momentum back, turned round
        at, before, _ = leaps(dynamics, at, momentum, [z], pairs[n : n + 2], eps)
        momentum = loss * before + gain * z
        back.append((-before + loss * momentum) / gain)
    home, turned, undone = leaps(dynamics, there, -last, [*back[::-1], noise[-1]], pairs[::-1], eps)

    assert float(home) == pytest.approx(float(theta), abs=1e-10)
    assert float(-turned) == pytest.approx(float(nu * jnp.sqrt(eps)), abs=1e-10)
    assert float(undone) == pytest.approx(-float(work), abs=1e-10)

    def flow(theta, there, nu, noise, work):
        normals = sum(x**2 for x in [nu / jnp.sqrt(eps), *noise])
        return log_posterior(theta) - normals / 2 + jnp.log(accepted(theta, there, work))

    forth = flow(theta, there, nu * jnp.sqrt(eps), noise[:-1], work)
    assert float(flow(there, theta, last, back, undone)) == pytest.approx(float(forth), abs=1e-10)
    assert abs(work) > 0.01


def drift_of_moments(test, eps=0.4):
    """What an iteration of one leap adds to moments of the posterior, over all minibatches: by the trapezium rule in θ and ν."""
    theta, nu = (jnp.asarray(x) for x in np.meshgrid(np.linspace(-2.6, 3.0, 421), np.linspace(-6, 6, 361), indexing="ij"))
    weight = jnp.exp(log_posterior(theta) - nu**2 / 2)
    weight /= weight.sum()

    @jax.jit
    def after(first, second):
        pairs = [jnp.asarray(PAIRS)[first], jnp.asarray(PAIRS)[second]]
        motion = Motion(theta, batch_gradient(theta, pairs[0]), {"momentum": jnp.sqrt(eps) * nu, "work": jnp.zeros_like(theta)})
        there = DYNAMICS.move(motion, jnp.full_like(theta, eps), nu)
        end = DYNAMICS.settle(there, batch_gradient(there.position, pairs[1]), {}, jnp.full_like(theta, eps), nu, 1)
        chance = test(theta, there.position, work_at(motion, end, eps))
        return jnp.stack([(weight * chance * (there.position**k - theta**k)).sum() for k in (1, 2)])

    return np.mean([after(i, j) for i in range(6) for j in range(6)], axis=0)


DYNAMICS = MetropolisHamiltonian(alpha=0.5, L=1)


def batch_gradient(theta, pair):
    return -2 * (2 * theta - jnp.asarray(ROWS)[pair].sum()) - 1.2 * (theta - 0.2) ** 3


def work_at(motion, end, eps):
    """At each point of a grid, where the dynamics have one sum over all."""
    nu = motion.auxiliary["momentum"]
    kicked = nu + eps / 2 * (motion.gradient + end.gradient)
    return (kicked**2 - nu**2) / (2 * eps)


@pytest.mark.usefixtures("x64")
def test_an_iteration_leaves_the_posterior_alone_and_one_without_the_test_does_not():
    assert np.abs(drift_of_moments(accepted)).max() < 1e-5
    assert np.abs(drift_of_moments(lambda *_: 1.0))[1] > 0.05
    assert np.abs(drift_of_moments(lambda theta, there, work: accepted(theta, there, 0.9 * work)))[1] > 1e-3


def mean_acceptance(delta, sd, variance):
    x = np.linspace(delta - 12 * sd, delta + 12 * sd, 400_001)
    return np.trapezoid(norm.pdf(x, delta, sd) * np.asarray(acceptance(x, variance)), x)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("sd", [0.3, 1.0, 2.5])
def test_the_noise_corrected_test_balances_exactly_where_the_noise_is_normal(sd):
    for delta in (0.1, 1.0, 3.0):
        up, down = (mean_acceptance(sign * delta, sd, sd**2) for sign in (1, -1))
        closed = norm.cdf((delta - sd**2 / 2) / sd) + np.exp(delta) * norm.cdf((-delta - sd**2 / 2) / sd)
        assert up == pytest.approx(closed, rel=1e-8)
        assert up / down == pytest.approx(np.exp(delta), rel=1e-8)
        naive = mean_acceptance(delta, sd, 0.0) / mean_acceptance(-delta, sd, 0.0)
        assert abs(naive / np.exp(delta) - 1) > 0.005


def log_lik(theta, batch):
    return -0.5 * ((batch["x"] - theta) ** 2).sum()


def chains(data, dynamics, eps, n):
    sampler = sgmcmc.sampler_setup(log_lik, {"x": data}, np.zeros(()), eps, dynamics=dynamics, minibatch_size=n, progress=False)
    out = sampler.run(sampler.init(seed=2, n_chains=1000), 200, burn_in=100, thin=10, progress=False)
    part = np.asarray(out.final_state.auxiliary["accepted"]).mean() / 300
    return mean_and_variance(out.draws, data.mean())[1], part


def test_chains_on_gradients_of_one_row_have_the_posterior():
    """One of four rows in a gradient, all in the test; without it the variance would be far off."""
    eps = 0.1
    variance, part = chains(ROWS, MetropolisHamiltonian(alpha=0.2, L=2, rows=1), eps, 4)
    assert abs(variance.z(1 / 4)) < 4
    assert 0.2 < part < 0.9
    noise = 16 * np.var(ROWS)
    untested = inflation(SymmetricHamiltonian(0.2, 2), eps, Directions(np.array([4.0]), np.array([noise])))[0] / 4
    assert abs(variance.z(untested)) > 10


def test_chains_that_are_tested_on_minibatches_have_nearly_the_posterior(monkeypatch):
    """Of normal rows the error is nearly normal. Uncorrected, the chains are too wide."""
    data, eps = np.random.default_rng(3).normal(size=400), 0.3 / 400
    variance, _ = chains(data, MetropolisHamiltonian(alpha=0.2, L=3), eps, 100)
    assert abs(variance.z(1 / 400)) < 4
    monkeypatch.setattr("sgmcmc.algorithms.dynamics.metropolis.acceptance", lambda ratio, _: acceptance(ratio, 0.0))
    uncorrected, _ = chains(data, MetropolisHamiltonian(alpha=0.2, L=4), eps, 100)  # another program
    assert abs(uncorrected.z(1 / 400)) > 10


def test_what_cannot_be_tested_is_refused():
    data = {"x": ROWS}
    with pytest.raises(sgmcmc.InputError, match="SAGA needs distinct ones"):
        sgmcmc.sampler_setup(log_lik, data, 0.0, 0.1, dynamics=MetropolisHamiltonian(rows=2), gradient=SAGA(), minibatch_size=4)
    sampler = sgmcmc.sampler_setup(log_lik, data, 0.0, 0.1, dynamics="metropolis", minibatch_size=1)
    with pytest.raises(sgmcmc.InputError, match="at least 2"):
        sampler.step(sampler.init(seed=1))


def test_gibbs_steps_beside_tested_leaps_leave_the_joint_law_alone():
    """theta given z ~ N(z, 1/4) by leaps on one of four rows, z given theta ~ N(theta/2, 1/8) by draws: a joint Gaussian."""

    def joint(params, batch):
        return -0.5 * batch["one"].sum() * (params["theta"] - params["z"]) ** 2

    def log_prior(params):
        return -0.5 * params["z"] ** 2 * 4

    def draw(key, params):
        return params["theta"] / 2 + jnp.sqrt(1 / 8) * jax.random.normal(key)

    share = np.array([0.1, 0.7, 1.2, 2.0])
    sampler = sgmcmc.sampler_setup(
        joint, {"one": share}, {"theta": 0.0, "z": 0.0}, 0.2, log_prior=log_prior, minibatch_size=4, progress=False,
        dynamics=MetropolisHamiltonian(alpha=0.2, L=2, rows=1), gibbs={"z": sgmcmc.Gibbs(draw, rows="none")},
    )  # fmt: skip
    out = sampler.run(sampler.init(seed=2, n_chains=1000), 200, burn_in=100, thin=10, progress=False)
    for name, law in (("theta", 1 / 2), ("z", 1 / 4)):  # precisions 4 (theta - z)² + 4 z²
        assert abs(mean_and_variance(out[name], 0.0)[1].z(law)) < 4
