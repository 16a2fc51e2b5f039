"""Replica exchange: the law of every copy, swaps by noisy minibatches, and modes of known weights that one chain does not see."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import over_chains

import sgmcmc
from sgmcmc.algorithms import (
    BAOA,
    OBABO,
    SVRG,
    Barker,
    Langevin,
    PersistentHamiltonian,
    ReplicaExchange,
    SymmetricNoseHoover,
)
from sgmcmc.algorithms.energies import acceptance

N = 200
ROWS = np.random.default_rng(1).normal(size=N)


def location(theta, batch):
    return -0.5 * ((batch["x"] - theta) ** 2).sum()


EPS = 0.04
STEPPED = np.array([1, 3, 9]) / (1 - EPS / 4)
"""The law of `OBABO` at each temperature. Its momentum is independent of the position, so positions may be swapped without."""


def copies(n, temperatures=(1, 3, 9), eps=EPS):
    """Variances of all copies in units of the posterior's; with control variates there is no gradient noise here."""
    dynamics = ReplicaExchange(temperatures, OBABO(alpha=0.3), every=2)
    sampler = sgmcmc.sampler_setup(
        location, {"x": ROWS}, np.zeros(()), eps / N, dynamics=dynamics, gradient="control-variates", minibatch_size=n,
        progress=False,
    )  # fmt: skip
    begun, squares = sampler.init(seed=1, n_chains=1000, progress=False), []
    for state in sampler.iterate(begun, 600, every=50):
        places = np.concatenate([np.asarray(state.position)[:, None], np.asarray(state.auxiliary["hot"]["position"])], axis=1)
        squares.append((places - ROWS.mean()) ** 2 * N)
    swaps = np.asarray(state.auxiliary["swaps"]).mean(axis=0) * 4 / 600
    return over_chains(np.mean(squares[3:], axis=0)), swaps


def test_every_copy_has_its_temperature_and_swaps_by_noisy_minibatches_leave_it_alone(monkeypatch):
    """The control, where no noise is taken off: swaps that should not be mix the temperatures."""
    variance, swaps = copies(40)
    assert np.abs(variance.z(STEPPED)).max() < 4
    assert (swaps > 0.2).all()
    monkeypatch.setattr("sgmcmc.algorithms.dynamics.replicas.acceptance", lambda ratio, _: acceptance(ratio, 0.0))
    uncorrected, _ = copies(40, temperatures=(1, 3, 8.999))  # another program
    assert np.abs(uncorrected.z(STEPPED)).max() > 10


# Mixtures of two normals of equal shape and known weights, every row a noisy share of the same log density.


def two_modes(d, distance, weight):
    """log of (1 - weight) N(-m, I) + weight N(m, I), |m| = distance; and its dataset."""
    m = np.full(d, distance / np.sqrt(d), np.float32)
    rng = np.random.default_rng(5)
    share = 1 + 0.3 * rng.normal(size=50)

    def log_lik(theta, batch):
        left, right = -0.5 * ((theta + m) ** 2).sum(), -0.5 * ((theta - m) ** 2).sum()
        return batch["share"].sum() * jnp.logaddexp(np.log(1 - weight) + left, np.log(weight) + right)

    return log_lik, {"share": share / share.sum()}, m


def weight_found(d, distance, weight, dynamics, eps, n_iters):
    """How often chains that begin in the mode on the right are on that side, and its error."""
    log_lik, data, m = two_modes(d, distance, weight)
    sampler = sgmcmc.sampler_setup(log_lik, data, m, eps, dynamics=dynamics, minibatch_size=25, progress=False)
    out = sampler.run(sampler.init(seed=3, n_chains=40), n_iters, burn_in=n_iters // 4, thin=10, progress=False)
    return over_chains((np.asarray(out.draws) @ m > 0).mean(axis=1))


@pytest.mark.parametrize(
    ("d", "distance", "temperatures", "n_iters"),
    [(2, 4.0, (1, 2, 4, 8), 2500), (20, 5.0, (1, 1.3, 1.7, 2.2, 2.9, 3.8, 5.0, 6.5), 4000)],
)
def test_modes_have_their_weights_where_one_chain_misses_them(d, distance, temperatures, n_iters):
    found = weight_found(d, distance, 0.3, ReplicaExchange(temperatures, OBABO(alpha=0.3), every=2), 0.2, n_iters)
    assert abs(found.z(0.3)) < 4
    assert found.error < 0.03
    alone = weight_found(d, distance, 0.3, Langevin(), 0.2, n_iters)
    assert alone.value > 0.7


def test_what_cannot_be_exchanged_is_refused():
    def setup(**parts):
        return sgmcmc.sampler_setup(location, {"x": ROWS}, 0.0, 1e-3, **parts)

    for temperatures in ((1,), (2, 3), (1, 3, 2), 4, (1, "hot"), (1, np.nan), (1, np.inf)):
        with pytest.raises(sgmcmc.InputError, match="expected 1 and larger ones"):
            setup(dynamics=ReplicaExchange(temperatures))
    for inner in (Barker(), SymmetricNoseHoover(), BAOA(warmup=10), ReplicaExchange()):
        with pytest.raises(sgmcmc.InputError, match="temperature is not that of its noise"):
            setup(dynamics=ReplicaExchange(dynamics=inner))
    for inner in (BAOA(alpha=0.3), PersistentHamiltonian()):
        with pytest.raises(sgmcmc.InputError, match=r"depends on the position where an iteration ends.*expected OBABO"):
            setup(dynamics=ReplicaExchange(dynamics=inner))
    with pytest.raises(sgmcmc.InputError, match="dynamics of ReplicaExchange is 'obabo'; expected an object"):
        setup(dynamics=ReplicaExchange(dynamics="obabo"))
    with pytest.raises(sgmcmc.InputError, match="came with SVRG"):
        setup(dynamics="replica-exchange", gradient=SVRG())
    params = {"theta": 0.0, "tau": 1.0}
    gibbs = {"tau": sgmcmc.Gibbs(lambda key, params: params["tau"], rows="none")}
    with pytest.raises(sgmcmc.InputError, match="ReplicaExchange came with gibbs"):
        sgmcmc.sampler_setup(with_scale, {"x": ROWS}, params, 1e-3, dynamics=ReplicaExchange(), gibbs=gibbs)
    for dynamics in ("replica-exchange", "metropolis"):
        with pytest.raises(sgmcmc.InputError, match="whose tests need log likelihoods with z summed out"):
            sgmcmc.sampler_setup(with_latent, {"x": ROWS}, {"theta": 0.0}, 1e-3, dynamics=dynamics, latent=latent)


def with_scale(params, batch):
    return location(params["theta"], batch) * params["tau"]


def with_latent(params, batch, z):
    return -0.5 * ((batch["x"] - z) ** 2 + (z - params["theta"]) ** 2).sum()


def latent(key, params, rows):
    return (rows["x"] + params["theta"]) / 2 + jnp.sqrt(0.5) * jax.random.normal(key, rows["x"].shape)


def test_a_copy_that_leaves_the_finite_numbers_is_told():
    def narrow(theta, batch):
        return (batch["x"] * jnp.sqrt(9 - theta**2)).sum()

    sampler = sgmcmc.sampler_setup(
        narrow, {"x": np.ones(1)}, 0.0, 0.5, dynamics=ReplicaExchange((1, 400)), minibatch_size=1, progress=False
    )
    with pytest.raises(sgmcmc.DivergenceError):
        sampler.run(sampler.init(seed=1), 200, progress=False)
