"""NUTS as a kernel: its law against exact moments, the same bits however a run is cut, what it counts."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.algorithms import warm_up
from sgmcmc.algorithms.gradients.whitened import WhitenedState
from sgmcmc.algorithms.nuts import Nuts
from sgmcmc.problem.schedules import Schedule
from sgmcmc.problem.whitening import Whitening
from sgmcmc.results.diagnostics import mixing
from sgmcmc.results.packing import pack, unpack
from sgmcmc.rows.sources import AllRows
from sgmcmc.run.request import Problem
from sgmcmc.run.sampler import Given, Sampler

LIMIT = 4.0
ROWS = np.random.default_rng(0).multivariate_normal([1.0, -2.0, 0.5], [[4, 1.8, 0], [1.8, 1, 0.2], [0, 0.2, 9]], 30)
SHAPE = 3.0


def problem(power=1.0, log_prior=None):
    """A mean with correlated rows, and a gamma variable beside it; all to some power."""
    precision = np.linalg.inv(np.cov(ROWS.T)).astype(np.float32)

    def log_lik(params, batch):
        away = batch["x"] - params["mu"]
        return -0.5 * power * jnp.einsum("ni,ij,nj->n", away, precision, away)

    def gamma(params):
        return power * ((SHAPE - 1) * jnp.log(params["rate"]) - params["rate"])

    positive = {"rate": sgmcmc.constraints.positive}
    return Problem.of(log_lik, {"x": ROWS}, {"mu": np.zeros(3), "rate": 1.0}, log_prior or gamma, positive)


def nuts(one, **options):
    """In units a little off."""
    whitening = Whitening(one.position, {"mu": jnp.full(3, 0.5), "rate": jnp.float32(0.7)}, dense=False)
    schedule = Schedule(jax.tree.map(jnp.ones_like, whitening.zero()))
    kernel = Nuts(one.posterior, schedule=schedule, **({"warm_up": 200, "acceptance": 0.9} | options))
    begin = Given(whitening.zero(), WhitenedState(whitening, ()))
    return Sampler("nuts", kernel, AllRows(one.table, len(ROWS)), one.position, begin, {})


def ran(sampler, n_iters=1500, **options):
    state = sampler.init(1, n_chains=4, progress=False)
    return sampler.run(state, n_iters, burn_in=200, progress=False, **({"chunk_size": 300, "diagnose": True} | options))


@cache
def law(power):
    return ran(nuts(problem(power)))


def errors(power):
    """Means, squares and cubes about the exact means, off by so many standard errors."""
    result, covariance = law(power), np.cov(ROWS.T) / len(ROWS)
    away = np.concatenate([result["mu"] - ROWS.mean(axis=0), result["rate"][..., None] - SHAPE], axis=-1).astype(float)
    crossed = away[..., 0] * away[..., 1]
    seen = np.concatenate([away, away**2, crossed[..., None], away[..., 3:] ** 3], axis=-1)
    variance = [*np.diag(covariance), SHAPE]
    expected = np.concatenate([np.zeros(4), variance, [covariance[0, 1], 2 * SHAPE]])
    ess, _ = mixing(seen)
    return np.abs(seen.mean(axis=(0, 1)) - expected) / (seen.std(axis=(0, 1)) / np.sqrt(ess))


def test_the_law_is_that_of_the_posterior():
    assert errors(1.0).max() < LIMIT
    assert law(1.0).health().ok


def test_control_a_potential_a_third_too_steep_is_seen():
    assert errors(1.3)[4:].max() > LIMIT


def test_what_is_counted():
    carried = law(1.0).final_state.auxiliary
    assert set(carried) == {"nuts", "divergences", "deepest", "leapfrogs"}
    assert carried["deepest"].tolist() == carried["divergences"].tolist() == [0] * 4
    assert (np.asarray(carried["leapfrogs"]) > 1700).all()
    assert set(np.unique(carried["nuts"]["leapfrogs"])) <= {1, 3, 5, 7, 9, 11, 13, 15}


def test_divergences_count_after_the_warm_up_only():
    def cliff(params):
        return -0.5 * params["rate"] ** 2 - jnp.where(params["rate"] > 1.0, 5000.0, 0.0)

    sampler, told = nuts(problem(log_prior=cliff)), {"progress": False, "chunk_size": 300}
    warm = sampler.run(sampler.init(1, n_chains=4, progress=False), 200, **told).final_state
    after = sampler.run(warm, 300, **told).final_state
    assert np.asarray(warm.auxiliary["divergences"]).sum() == 0
    assert np.asarray(after.auxiliary["divergences"]).sum() > 0


def test_what_a_chain_carries_goes_through_a_checkpoint():
    state = law(1.0).final_state
    again = unpack(*pack(state, state.params), state.params)
    jax.tree.map(np.testing.assert_array_equal, again, state)


def test_a_run_cut_in_two_in_its_warm_up_is_the_same_run():
    """By samplers of their own, as in two processes: what NumPyro remembers between its functions is not in a state."""
    whole = law(1.0)
    sampler = nuts(problem())
    state = sampler.init(1, n_chains=4, progress=False)
    half = sampler.run(state, 90, progress=False, chunk_size=300, diagnose=True)
    rest = nuts(problem()).run(half.final_state, 110 + 1500, progress=False, chunk_size=300, diagnose=True)
    np.testing.assert_array_equal(rest["mu"][:, 110:], whole["mu"])
    np.testing.assert_array_equal(rest.pairs.gradients[:, 110:], whole.pairs.gradients)


@pytest.mark.slow
def test_other_chunks_are_the_same_chain():
    other = ran(nuts(problem()), 60, chunk_size=37)
    np.testing.assert_array_equal(other["mu"], law(1.0)["mu"][:, :60])


def test_chains_start_apart_and_where_the_log_posterior_is_finite():
    def narrow(params):
        return jnp.log(0.02 - (params["rate"] - 1.0) ** 2)

    sampler = nuts(problem(log_prior=narrow), scatter=1.5)
    state = sampler.init(1, n_chains=4, progress=False)
    assert np.isfinite(state.gradient["rate"]).all()
    assert np.unique(np.asarray(state.params["rate"])).size == 4


def test_gradients_are_those_of_the_log_posterior_where_the_chain_is():
    result = law(1.0)
    posterior = nuts(problem()).kernel.posterior_at(result.final_state)
    rows = {"x": jnp.asarray(ROWS, jnp.result_type(float))}
    batch = sgmcmc.Batch(rows, jnp.float32(1.0), jnp.arange(len(ROWS)))
    exact = jax.vmap(lambda z: posterior.gradient(z, batch))(result.final_state.position)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), result.final_state.gradient, exact)


@pytest.mark.slow
def test_in_double_precision(x64):
    result = ran(nuts(problem()), 300)
    assert result["mu"].dtype == np.float64
    assert np.isfinite(result["mu"]).all()


def test_steps_that_came_to_be_none_are_begun_again():
    """A chain that starts among cliffs shrinks its step until it is 0 in single precision: the next window has a step again."""
    lost = warm_up.nothing_learnt(jnp.zeros(2), True)._replace(log_average=jnp.float32(-200.0), seen=jnp.int32(25))
    assert np.exp(np.float32(lost.log_average)) == 0
    found = warm_up._renewed(lost)
    assert found.step == np.float32(warm_up.SMALLEST)
    assert np.isfinite(found.centre)
    usual = warm_up._renewed(lost._replace(log_average=jnp.float32(-1.0)))
    np.testing.assert_allclose([usual.step, usual.centre], [np.exp(-1), np.log(10) - 1], rtol=1e-6)
