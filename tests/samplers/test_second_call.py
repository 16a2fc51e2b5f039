"""Nothing compiles twice in a process, with other data, another seed, another step size, or other objects of the same code."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations

import sgmcmc

NAMES = ("sgld", "sghmc", "sgnht", "baoa", "sgldcv", "sghmccv", "sgnhtcv", "baoacv")


def model(width=1.0):
    """A regression with a prior of some width: other function objects every time."""

    def log_lik(params, batch):
        return -0.5 * ((batch["y"] - batch["X"] @ params["beta"]) ** 2).sum()

    return log_lik, lambda params: -0.5 * ((params["beta"] / width) ** 2).sum()


def data(seed, n=200):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)).astype(np.float32)
    return {"X": X, "y": X @ np.array([1.0, -1.0], np.float32) + rng.standard_normal(n).astype(np.float32)}


START = {"beta": np.zeros(2)}


def run(name, seed=1, stepsize=1e-4, width=1.0, **told):
    log_lik, log_prior = model(width)
    told = {"minibatch_size": 20, "n_iters": 30, "progress": False} | told
    return getattr(sgmcmc, name)(log_lik, data(seed), START, stepsize, log_prior=log_prior, seed=seed, **told)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_call_compiles_nothing(name):
    first = run(name)
    with compilations() as compiled:
        again, other = run(name), run(name, seed=2, stepsize=2e-4)
    assert compiled == []
    np.testing.assert_array_equal(first["beta"], again["beta"])
    assert not np.array_equal(first["beta"], other["beta"])


def test_another_prior_is_another_program():
    """The control: with a constant of another value the same code must not share programs, or the draws would be wrong."""
    narrow = run("sgld", width=0.01)
    with compilations() as compiled:
        wide = run("sgld", width=100.0)
    assert len(compiled) > 0
    assert not np.array_equal(narrow["beta"], wide["beta"])


@pytest.mark.parametrize(
    "told",
    [{"n_chains": 2}, {"rows": "window"}, {"precondition": "diagonal"}, {"keep": sgmcmc.Moments()}],
    ids=["chains", "windows", "preconditioned", "moments"],
)
def test_options_compile_nothing_twice(told):
    run("sgldcv", **told)
    with compilations() as compiled:
        run("sgldcv", seed=2, stepsize=3e-4, **told)
    assert compiled == []


def test_functions_of_the_users_compile_nothing_twice():
    def with_functions(power):
        keep = sgmcmc.Expectation(lambda params: params["beta"] ** power)
        return run("sgld", stepsize=lambda t: 1e-4 * (1 + t) ** -0.3, keep={"draws": sgmcmc.Trace(), "power": keep})

    with_functions(2)
    with compilations() as compiled:
        square = with_functions(2)
    assert compiled == []
    with compilations() as compiled:
        cube = with_functions(3)
    assert any("chunk" in name for name in compiled)
    np.testing.assert_array_equal(square["beta"], cube["beta"])
    assert not np.allclose(square.kept["power"], cube.kept["power"])


def test_a_setup_compiles_nothing_twice():
    def steps(seed):
        log_lik, log_prior = model()
        sampler = sgmcmc.sghmccv_setup(log_lik, data(seed), START, 1e-5 * seed, log_prior=log_prior, minibatch_size=20)
        state = sampler.step(sampler.init(seed, n_chains=2, progress=False))
        state = sampler.step(state, {name: column[:7] for name, column in data(3).items()})
        sampler.log_posterior(state)
        sampler.log_posterior(state, full=True)
        return sampler.run(state, 30, progress=False)

    steps(1)
    with compilations() as compiled:
        steps(2)
    assert compiled == []


@pytest.mark.filterwarnings("ignore::sgmcmc.SgmcmcWarning")  # few draws
@pytest.mark.parametrize("engine", ["nuts", "sgmcmc"])
def test_a_second_sample_compiles_nothing(engine):
    def draws(seed):
        log_lik, log_prior = model()
        told = {"engine": engine, "draws": 50, "chains": 2, "progress": False}
        return sgmcmc.sample(log_lik, data(1, 1000), START, log_prior=log_prior, seed=seed, **told)

    first = draws(1)
    with compilations() as compiled:
        again = draws(1)
    assert compiled == []
    np.testing.assert_array_equal(first["beta"], again["beta"])


def test_trial_and_run_are_one_program():
    log_lik, log_prior = model(width=7.0)
    with compilations() as compiled:
        sgmcmc.sample(log_lik, data(1, 1000), START, log_prior=log_prior, engine="sgmcmc", seed=1, progress=False)
    assert sum("_chunk" in name for name in compiled) == 1


@pytest.mark.filterwarnings("ignore::sgmcmc.SgmcmcWarning")
def test_exact_chains_on_other_data_compile_nothing():
    log_lik, log_prior = model()
    told = {"log_prior": log_prior, "engine": "nuts", "draws": 50, "chains": 2, "progress": False}
    sgmcmc.sample(log_lik, data(1), START, seed=1, **told)
    with compilations() as compiled:
        sgmcmc.sample(log_lik, data(2), START, seed=2, **told)
    assert compiled == []


def test_a_global_that_changes_is_seen():
    """A function that reads a global is another function when that has another value."""
    space = {"jnp": jnp, "CENTRE": 5.0}
    exec("def log_lik(params, batch):\n    return -0.5 * ((batch['x'] - params['mu'] - CENTRE) ** 2).sum()", space)
    told = {"minibatch_size": 100, "n_iters": 200, "burn_in": 100, "seed": 1, "progress": False}
    rows = {"x": np.zeros(1000, np.float32)}
    assert abs(np.mean(sgmcmc.sgld(space["log_lik"], rows, {"mu": 0.0}, 1e-3, **told)["mu"]) + 5) < 0.5
    space["CENTRE"] = -5.0
    assert abs(np.mean(sgmcmc.sgld(space["log_lik"], rows, {"mu": 0.0}, 1e-3, **told)["mu"]) - 5) < 0.5


def test_a_sampler_set_up_before_a_change_spoils_nothing():
    """What is compiled after a global has changed must not serve those for whom it has not."""
    space = {"CENTRE": 5.0}
    exec("def log_lik(params, batch):\n    return -0.5 * ((batch['x'] - params['mu'] - CENTRE) ** 2).sum()", space)
    rows, told = {"x": np.zeros(500, np.float32)}, {"minibatch_size": 50}

    def mean(sampler):
        return np.mean(sampler.run(sampler.init(1, progress=False), 200, burn_in=100, progress=False)["mu"])

    early = sgmcmc.sgld_setup(space["log_lik"], rows, {"mu": 0.0}, 2e-3, **told)
    space["CENTRE"] = -5.0
    mean(early)
    space["CENTRE"] = 5.0
    assert abs(mean(sgmcmc.sgld_setup(space["log_lik"], rows, {"mu": 0.0}, 2e-3, **told)) + 5) < 0.5


def test_an_object_that_changes_is_seen():
    """So is one whose insides cannot be looked into: what JAX makes of the function tells."""

    class Hidden:
        __slots__ = ("__weakref__", "centre")

    hidden = Hidden()

    def log_lik(params, batch):
        return -0.5 * ((batch["x"] - params["mu"] - hidden.centre) ** 2).sum()

    told = {"minibatch_size": 100, "n_iters": 200, "burn_in": 100, "seed": 1, "progress": False}
    for centre in (5.0, -5.0):
        hidden.centre = centre
        draws = sgmcmc.sgld(log_lik, {"x": np.zeros(1000, np.float32)}, {"mu": 0.0}, 1e-3, **told)["mu"]
        assert abs(np.mean(draws) + centre) < 0.5


def test_a_callback_is_made_to_whoever_asked_for_it():
    def heard():
        calls = []

        def log_lik(params, batch):
            jax.debug.callback(lambda _: calls.append(1), params["mu"])
            return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()

        sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, 1e-3, minibatch_size=10, n_iters=5, seed=1, progress=False)
        jax.effects_barrier()
        return len(calls)

    assert heard() > 0
    assert heard() > 0


def test_data_are_not_kept_alive():
    class Watched(np.ndarray):
        pass

    def gone():
        log_lik, log_prior = model()
        rows = {name: column.view(Watched) for name, column in data(1).items()}
        told = {"minibatch_size": 20, "n_iters": 10, "seed": 1, "progress": False}
        for rows_drawn in ("random", "window"):
            sgmcmc.sgldcv(log_lik, rows, START, 1e-4, log_prior=log_prior, rows=rows_drawn, **told)
        return [weakref.ref(column) for column in rows.values()]

    references = gone()
    gc.collect()
    assert [reference() for reference in references] == [None, None]
