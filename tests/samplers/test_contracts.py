"""Contracts that every sampler keeps: one battery, entered by all six (and by the variants of SGHMC)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc

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


SETUPS = {
    "sgld": (sgmcmc.sgld_setup, {}),
    "sghmc": (sgmcmc.sghmc_setup, {"L": 3}),
    "sghmc-paper": (sgmcmc.sghmc_setup, {"L": 3, "scheme": "paper"}),
    "sghmc-persistent": (sgmcmc.sghmc_setup, {"L": None, "alpha": 0.1}),
    "sgnht": (sgmcmc.sgnht_setup, {}),
    "sgldcv": (sgmcmc.sgldcv_setup, {}),
    "sghmccv": (sgmcmc.sghmccv_setup, {"L": 3}),
    "sgnhtcv": (sgmcmc.sgnhtcv_setup, {}),
}


def make(name, **more):
    setup, options = SETUPS[name]
    options = {"log_prior": log_prior, "minibatch_size": 30, **options, **more}
    return setup(log_lik, DATA, PARAMS, more.pop("stepsize", 1e-5), **{k: v for k, v in options.items() if k != "stepsize"})


def draws_of(result):
    return np.concatenate(
        [leaf.reshape(*leaf.shape[: 1 + result.chained], -1) for leaf in jax.tree.leaves(result.draws)], axis=-1
    )


SOME = ("sgld", "sghmc", "sgnht", "sgldcv")
ALL = [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in SETUPS]
"""Each dynamics and each estimator at every change; every pair of them, and the variants of SGHMC, with the slow tests."""


@pytest.fixture(scope="module", params=ALL)
def sampler(request):
    return make(request.param)


@pytest.fixture(scope="module")
def state(sampler):
    return sampler.init(seed=4, progress=False)


@pytest.fixture(scope="module")
def draws(sampler, state):
    return draws_of(sampler.run(state, 60, progress=False))


def test_structure_and_dtype(sampler, state):
    expected = jax.tree.structure(PARAMS)
    assert jax.tree.structure(state.params) == expected
    assert jax.tree.structure(sampler.step(state).params) == expected
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((state.params, state.gradient)))


@pytest.mark.parametrize("chunk_size", [7, pytest.param(1000, marks=pytest.mark.slow)])
def test_chunk_size_changes_no_bit(sampler, state, draws, chunk_size):
    again = draws_of(sampler.run(state, 60, progress=False, chunk_size=chunk_size))
    np.testing.assert_array_equal(draws, again)


def test_iterate_changes_no_bit(sampler, state, draws):
    states = list(sampler.iterate(state, 60, every=25))
    assert [int(s.step) for s in states] == [25, 50, 60]
    for s in states:
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(s.params)])
        np.testing.assert_array_equal(flat, draws[int(s.step) - 1])


def test_continuing_changes_no_bit(sampler, state, draws):
    first = sampler.run(state, 23, progress=False)
    second = sampler.run(first.final_state, 37, progress=False)
    np.testing.assert_array_equal(np.concatenate([draws_of(first), draws_of(second)]), draws)


def test_step_by_step_agrees_to_rounding(sampler, state, draws):
    s = state
    for k in range(20):
        s = sampler.step(s)
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(s.params)])
        np.testing.assert_allclose(flat, draws[k], rtol=1e-4, atol=1e-6)


def test_one_chain_is_the_first_of_four(sampler, draws):
    four = draws_of(sampler.run(sampler.init(seed=4, n_chains=4, progress=False), 60, progress=False))
    assert four.shape == (4, *draws.shape)
    np.testing.assert_allclose(four[0], draws, rtol=1e-3, atol=1e-5)
    assert not np.allclose(four[0], four[1], atol=1e-4)


def test_burn_in_and_thin_choose_among_the_same_draws(sampler, state, draws):
    result = sampler.run(state, 40, burn_in=20, thin=3, progress=False)
    np.testing.assert_array_equal(draws_of(result), draws[22::3])


def test_other_seeds_give_other_draws(sampler, draws):
    other = draws_of(sampler.run(sampler.init(seed=5, progress=False), 60, progress=False))
    assert not np.allclose(other, draws, atol=1e-4)


def test_compiles_once(sampler, state):
    sampler.run(state, 50, progress=False, chunk_size=7)
    before = sampler.loop.programs.chunk._cache_size()
    sampler.run(state, 33, burn_in=4, progress=False, chunk_size=7)
    sampler.run(sampler.init(seed=9, progress=False), 57, thin=5, progress=False, chunk_size=7)
    assert sampler.loop.programs.chunk._cache_size() == before


def test_float64(sampler):
    with jax.enable_x64(True):
        wide = make(sampler.name)
        result = wide.run(wide.init(seed=4, progress=False), 5, progress=False)
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(result.draws))


@pytest.mark.parametrize("name", [pytest.param("sgld", marks=pytest.mark.slow), "sghmccv"])
@pytest.mark.parametrize("extra", [{"rows": "window"}, {"minibatch_size": 300}, {"minibatch_size": 0.6}])
def test_every_source(name, extra):
    sampler = make(name, **extra)
    state = sampler.init(seed=4, progress=False)
    long, short = (draws_of(sampler.run(state, 30, progress=False, chunk_size=size)) for size in (30, 7))
    np.testing.assert_array_equal(long, short)
    assert np.isfinite(long).all()


@pytest.mark.parametrize("name", ALL)
def test_schedules(name):
    def decreasing(t):
        return 1e-5 * (1 + t) ** -0.33

    sampler = make(name, stepsize=decreasing, rows="window")
    result = sampler.run(sampler.init(seed=4, progress=False), 30, progress=False)
    expected = decreasing(np.arange(1, 31))
    np.testing.assert_allclose(result.weights / result.weights[0], expected / expected[0], rtol=1e-5)
    assert np.isfinite(result.summary()["mean"]).all()


def test_per_parameter_steps_move_parameters_at_their_own_pace():
    sampler = make("sgld", stepsize={"beta": 1e-12, "nest": {"u": 1e-5, "log_s": 1e-5}})
    result = sampler.run(sampler.init(seed=1, progress=False), 200, progress=False)
    assert result["beta"].std() < 1e-4 < result["nest"]["u"].std()


def test_own_minibatch():
    sampler = make("sgld", minibatch_size=30)
    state = sampler.init(seed=1)
    rows = {name: array[:50] for name, array in DATA.items()}
    gradient = sampler.step(state, rows).gradient
    moved = sampler.step(state)
    weight = 300 / 50
    truth = jax.grad(lambda p: weight * log_lik(p, rows) + log_prior(p))(moved.params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), gradient, truth)


def test_replace_moves_and_reevaluates():
    sampler = make("sgldcv")
    state = sampler.init(seed=1, progress=False, n_chains=2)
    there = jax.tree.map(lambda x: x + 0.5, state.params)
    moved = sampler.replace(state, there)
    jax.tree.map(np.testing.assert_allclose, moved.params, there)
    assert not np.allclose(moved.gradient["beta"], state.gradient["beta"])
    with pytest.raises(sgmcmc.InputError, match="expected beta"):
        sampler.replace(state, {"gamma": 0.0})


def test_log_posterior_estimates_the_full_one():
    sampler = make("sgld", minibatch_size=299)
    state = sampler.init(seed=1)
    exact = float(log_lik(state.params, DATA) + log_prior(state.params))
    assert sampler.log_posterior(state, full=True) == pytest.approx(exact, rel=1e-5)
    assert sampler.log_posterior(state) == pytest.approx(exact, rel=0.02)
    chains = sampler.init(seed=1, n_chains=3)
    assert sampler.log_posterior(chains).shape == sampler.log_posterior(chains, full=True).shape == (3,)


def test_seeds_of_every_kind():
    sampler = make("sgld")
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


def test_key_reuse():
    with jax.debug_key_reuse(True):
        sampler = make("sghmc")
        sampler.run(sampler.init(seed=1), 5, progress=False)
