"""Contracts that every sampler keeps: the public battery, entered by all; and what samplers share beside it."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.algorithms import (
    BAOA,
    SVRG,
    Barker,
    Importance,
    MetropolisHamiltonian,
    PersistentHamiltonian,
    PreconditionedLangevin,
    ReplicaExchange,
    RMSLangevin,
    SecondOrder,
    SymmetricHamiltonian,
)
from sgmcmc.testing import check_sampler

RNG = np.random.default_rng(5)
DATA = {
    "x": RNG.normal(size=(300, 2)).astype(np.float32),
    "y": RNG.normal(size=300).astype(np.float32),
    "group": RNG.integers(0, 4, 300),
}
PARAMS = {"beta": np.zeros(2), "nest": {"u": np.zeros(4), "log_s": 0.0}}


def log_lik(params, batch):
    mean = batch["x"] @ params["beta"] + params["nest"]["u"][batch["group"]]
    return (-0.5 * (batch["y"] - mean) ** 2 * jnp.exp(-2 * params["nest"]["log_s"]) - params["nest"]["log_s"]).sum()


def log_prior(params):
    return -0.5 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


def composed(**parts):
    return partial(sgmcmc.sampler_setup, **parts)


def metric(params):
    """Larger steps where parameters are larger."""
    return jax.tree.map(lambda x: 1 + 0.1 * jnp.tanh(x) ** 2, params)


EVERY_ROW = {"minibatch_size": 12}
"""Tests and swaps are exact where they look at all rows, and where the error of an estimate is normal: of 6 of 12 it is not."""

CONTRACTS = "state chunks continuing stepping seeds checkpoint float64 schedule compiling rows keys unbiased target law apart"

BATTERY = {
    "sgld": (sgmcmc.sgld_setup, {}),
    "sghmc": (sgmcmc.sghmc_setup, {"L": 3}),
    "sghmc-paper": (sgmcmc.sghmc_setup, {"L": 3, "scheme": "paper", "variance": 1.5}),  # L/(L-1), as the method has it
    "sghmc-persistent": (sgmcmc.sghmc_setup, {"L": None, "alpha": 0.1}),
    "sghmc-learning": (sgmcmc.sghmc_setup, {"L": None, "alpha": 0.1, "noise_estimate": "fisher", "noise_warmup": 500}),
    "sgnht": (sgmcmc.sgnht_setup, {}),
    "sgnht-symmetric": (sgmcmc.sgnht_setup, {"scheme": "symmetric"}),
    "obabo": (composed(dynamics="obabo"), {}),
    "barker": (composed(dynamics="barker"), {}),
    "barker-learning": (composed(dynamics=Barker(warmup=500)), {}),
    "barker-svrg": (composed(dynamics="barker", gradient=SVRG(epoch=40)), {}),
    "metropolis": (composed(dynamics="metropolis"), EVERY_ROW),
    "metropolis-few-rows": (composed(dynamics=MetropolisHamiltonian(L=2, rows=3)), EVERY_ROW | {"but": "rows"}),  # not the leaps
    "replicas": (
        composed(dynamics=ReplicaExchange((1, 2), every=2)),
        EVERY_ROW | {"but": "schedule"},
    ),  # swaps are as long as ever
    "preconditioned": (composed(dynamics=PreconditionedLangevin(metric)), {}),
    "rms-langevin": (composed(dynamics=RMSLangevin(freeze=500)), {"stepsize": 0.2}),
    "baoa": (sgmcmc.baoa_setup, {}),
    "baoa-learning": (sgmcmc.baoa_setup, {"noise_estimate": "fisher", "noise_warmup": 500}),
    "sgldcv": (sgmcmc.sgldcv_setup, {}),
    "sghmccv": (sgmcmc.sghmccv_setup, {"L": 3}),
    "sgnhtcv": (sgmcmc.sgnhtcv_setup, {}),
    "baoacv": (sgmcmc.baoacv_setup, {}),
    "saga": (composed(gradient="saga"), {}),
    "saga-hamiltonian": (composed(gradient="saga", dynamics=SymmetricHamiltonian(L=3)), {}),
    "saga-persistent": (composed(gradient="saga", dynamics=PersistentHamiltonian()), {}),
    "saga-nose-hoover": (composed(gradient="saga", dynamics="nose-hoover"), {}),
    "saga-baoa": (composed(gradient="saga", dynamics="baoa"), {}),
    "svrg": (composed(gradient=SVRG(epoch=40)), {}),
    "svrg-hamiltonian": (composed(gradient=SVRG(epoch=20), dynamics=SymmetricHamiltonian(L=3)), {}),
    "svrg-learning": (composed(gradient=SVRG(epoch=40), dynamics=BAOA(warmup=500)), {}),
    "svrg-laplace": (composed(gradient=SVRG(epoch=40)), {"precondition": "laplace"}),
    "second-order": (composed(gradient=SecondOrder()), {}),
    "second-order-baoa": (composed(gradient=SecondOrder(), dynamics="baoa"), {}),
    "second-order-learning": (composed(gradient=SecondOrder(), dynamics=BAOA(warmup=500)), {}),
    "second-order-laplace": (composed(gradient=SecondOrder()), {"precondition": "laplace"}),
    "importance": (composed(rows=Importance(np.arange(1.0, 13.0))), {}),
    "importance-svrg": (composed(rows=Importance(np.arange(1.0, 13.0)), gradient=SVRG(epoch=40), dynamics="baoa"), {}),
    "importance-centred": (composed(rows="importance", gradient="control-variates", dynamics="baoa"), {}),
    "baoacv-laplace": (sgmcmc.baoacv_setup, {"precondition": "laplace"}),
    "diagonal": (sgmcmc.sgld_setup, {"precondition": "diagonal"}),
    "scir": (composed(dynamics="scir"), {"positive": True}),
    "sgrld": (composed(dynamics="sgrld"), {"positive": True}),
    "sgrld-saga": (composed(dynamics="sgrld", gradient="saga"), {"positive": True}),
    "saga-laplace": (composed(gradient="saga"), {"precondition": "laplace"}),
}
SOME = ("sgld", "sghmc", "baoacv-laplace", "saga", "second-order-laplace")
ALL = [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in BATTERY]
"""One leap and several, each estimator, and whitening at every change; all others with the slow tests."""


@pytest.mark.parametrize("name", ALL)
def test_battery(name):
    setup, options = BATTERY[name]
    looked_at = [one for one in CONTRACTS.split() if one != options.get("but")]
    report = check_sampler(setup, checks=looked_at, progress=False, **{k: v for k, v in options.items() if k != "but"})
    assert report.ok


def test_the_battery_has_no_other_contracts():
    with pytest.raises(sgmcmc.InputError) as error:
        check_sampler(sgmcmc.sgld_setup, checks=["none"])
    assert re.findall(r"'(\w+)'", str(error.value))[1:] == CONTRACTS.split()


def make(setup=sgmcmc.sgld_setup, stepsize=1e-5, **options):
    return setup(log_lik, DATA, PARAMS, stepsize, **{"log_prior": log_prior, "minibatch_size": 30, **options})


def draws_of(result):
    return np.concatenate(
        [leaf.reshape(*leaf.shape[: 1 + result.chained], -1) for leaf in jax.tree.leaves(result.draws)], axis=-1
    )


@pytest.mark.slow
@pytest.mark.parametrize("setup", [sgmcmc.sgld_setup, sgmcmc.sghmccv_setup])
@pytest.mark.parametrize("extra", [{"rows": "window"}, {"minibatch_size": 300}, {"minibatch_size": 0.6}])
def test_every_source_gives_the_same_bits_for_every_chunk_size(setup, extra):
    sampler = make(setup, **extra)
    state = sampler.init(seed=4, progress=False)
    long, short = (draws_of(sampler.run(state, 30, progress=False, chunk_size=size)) for size in (30, 7))
    np.testing.assert_array_equal(long, short)
    assert np.isfinite(long).all()


def test_per_parameter_steps_move_parameters_at_their_own_pace():
    sampler = make(stepsize={"beta": 1e-12, "nest": {"u": 1e-5, "log_s": 1e-5}})
    result = sampler.run(sampler.init(seed=1, progress=False), 200, progress=False)
    assert result["beta"].std() < 1e-4 < result["nest"]["u"].std()


def test_own_minibatch():
    sampler = make(minibatch_size=30)
    state = sampler.init(seed=1)
    rows = {name: array[:50] for name, array in DATA.items()}
    gradient = sampler.step(state, rows).gradient
    moved = sampler.step(state)
    weight = 300 / 50
    truth = jax.grad(lambda p: weight * log_lik(p, rows) + log_prior(p))(moved.params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), gradient, truth)


def test_replace_moves_and_reevaluates():
    sampler = make(sgmcmc.sgldcv_setup)
    state = sampler.init(seed=1, progress=False, n_chains=2)
    there = jax.tree.map(lambda x: x + 0.5, state.params)
    moved = sampler.replace(state, there)
    jax.tree.map(np.testing.assert_allclose, moved.params, there)
    assert not np.allclose(moved.gradient["beta"], state.gradient["beta"])
    with pytest.raises(sgmcmc.InputError, match="expected beta"):
        sampler.replace(state, {"gamma": 0.0})


def test_log_posterior_estimates_the_full_one():
    sampler = make(minibatch_size=299)
    state = sampler.init(seed=1)
    exact = float(log_lik(state.params, DATA) + log_prior(state.params))
    assert sampler.log_posterior(state, full=True) == pytest.approx(exact, rel=1e-5)
    assert sampler.log_posterior(state) == pytest.approx(exact, rel=0.02)
    chains = sampler.init(seed=1, n_chains=3)
    assert sampler.log_posterior(chains).shape == sampler.log_posterior(chains, full=True).shape == (3,)


def test_seeds_of_every_kind():
    sampler = make()
    for seed in (7, np.int64(7), jax.random.key(7), jax.random.PRNGKey(7)):
        np.testing.assert_array_equal(sampler.init(seed).key, sampler.init(7).key)
    assert not np.array_equal(sampler.init().key, sampler.init().key)


def test_results_record_the_seed_that_was_drawn():
    out = sgmcmc.sgld(log_lik, DATA, PARAMS, 1e-5, minibatch_size=30, n_iters=5, progress=False)
    again = sgmcmc.sgld(log_lik, DATA, PARAMS, 1e-5, minibatch_size=30, n_iters=5, progress=False, seed=out.settings["seed"])
    np.testing.assert_array_equal(out["beta"], again["beta"])


@pytest.mark.parametrize("params", [np.zeros(2), [np.zeros(2)], (np.zeros(2),)])
def test_any_tree_of_params(params):
    def model(params, batch):
        beta = jax.tree.leaves(params)[0]
        return -0.5 * ((batch["y"] - batch["x"] @ beta) ** 2).sum()

    out = sgmcmc.sgldcv(model, DATA, params, 1e-5, minibatch_size=30, n_iters=5, progress=False, seed=1)
    assert jax.tree.leaves(out.draws)[0].shape == (5, 2)
    assert next(iter(out.values())).shape == (5, 2)
    assert len(out.summary()) >= 2
