"""Where a run is kept: all places alike, longer runs in memory as on disk, and no folder for a call that is refused."""

from __future__ import annotations

import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from keeping import Last

import sgmcmc
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.places import Account, Nowhere, Place, Saver
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import open_place
from sgmcmc.run.shared_folder import SharedFolder

DATA = {"x": np.random.default_rng(0).normal(1.0, 1.0, 300).astype(np.float32)}
START = {"mu": 0.0}
KEY = jax.random.key(1)


def log_lik(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()


def nowhere(path):
    return Nowhere(KEY)


def folder(path):
    return RunFolder.open(path, {"run": "this"}, KEY, START)


def shared(path):
    """As process 0 of several has it."""
    held = folder(path)
    return SharedFolder(held, path, held.key, held.version_changes)


PLACES = {"nowhere": nowhere, "folder": folder, "shared folder": shared}
each_place = pytest.mark.parametrize("kind", PLACES)


def methods(kind):
    """What a kind of place or saver can be asked to do."""
    return {
        name: list(inspect.signature(value).parameters)
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if name != "__init__"
    }


def account():
    return Account({"kept": sgmcmc.Trace()}, START, 10, 10, lambda standing: {})


@each_place
def test_all_places_have_the_same_methods(kind, tmp_path):
    with PLACES[kind](tmp_path / "run") as place:
        for thing, base in ((place, Place), (place.sub("part"), Place), (place.saver(account()), Saver)):
            wanted, found = methods(base), methods(type(thing))
            assert {name: parameters for name, parameters in found.items() if name in wanted} == wanted
            assert {name for name in vars(base) if not name.startswith("_")} <= set(dir(thing))
            assert isinstance(thing, base)
    assert {"stage", "sub", "saver", "close"} <= set(methods(Place))
    assert {"store", "resume", "save"} <= set(methods(Saver))


@each_place
def test_all_places_have_the_seed_they_were_given(kind, tmp_path):
    with PLACES[kind](tmp_path / "run") as place:
        np.testing.assert_array_equal(jax.random.key_data(place.key), jax.random.key_data(KEY))
        np.testing.assert_array_equal(jax.random.key_data(place.sub("part").key), jax.random.key_data(place.key))
        assert place.version_changes == []
        assert place.durable == (kind != "nowhere")
        assert ("the same call goes on" in place.way_back) == place.durable


@each_place
def test_set_up_work_is_what_was_computed(kind, tmp_path):
    with PLACES[kind](tmp_path / "run") as place:
        found = place.stage("work", lambda: {"a": jnp.arange(3.0), "b": None})
        np.testing.assert_array_equal(found["a"], np.arange(3.0))
        assert found["b"] is None


def test_a_path_decides(tmp_path):
    identity = {"run": "this"}
    assert isinstance(open_place(None, lambda: pytest.fail("asked for nothing"), KEY, START), Nowhere)
    with open_place(tmp_path / "run", lambda: identity, KEY, START) as place:
        assert isinstance(place, RunFolder)


def sampler():
    return sgmcmc.sgldcv_setup(log_lik, DATA, START, 1e-3, minibatch_size=20, progress=False)


KEEP = {"draws": sgmcmc.Trace(), "some": sgmcmc.Trace(lambda params: params["mu"] ** 2, thin=3), "moments": sgmcmc.Moments()}


@each_place
def test_a_run_can_be_made_longer(kind, tmp_path):
    one = sampler()
    state = one.init(seed=1, n_chains=2, progress=False)
    whole = one.run(state, 300, burn_in=15, keep=KEEP, progress=False)
    with PLACES[kind](tmp_path / "run") as place:
        for n_iters in (40, 150, 300):
            result = one.carry_out(Request(n_iters, 15, keep=KEEP, progress=False), state, place)
            np.testing.assert_array_equal(result["mu"], whole["mu"][:, :n_iters])
            np.testing.assert_array_equal(result.kept["some"], whole.kept["some"][:, : n_iters // 3])
        assert result.final_state.step == whole.final_state.step
        np.testing.assert_allclose(result.kept["moments"].mean["mu"], whole.kept["moments"].mean["mu"], rtol=1e-5)
        other = one.carry_out(Request(40, 15, keep=KEEP, progress=False), state, place.sub("part"))  # a part begins anew
        np.testing.assert_array_equal(other["mu"], whole["mu"][:, :40])


def test_what_came_back_earlier_stays_what_it_was():
    """In memory the longer run goes on with the same stores."""
    one, place = sampler(), Nowhere(KEY)
    state = one.init(seed=1, n_chains=2, progress=False)
    short = one.carry_out(Request(40, progress=False), state, place)
    held = short["mu"].copy()
    one.carry_out(Request(300, progress=False), state, place)
    np.testing.assert_array_equal(short["mu"], held)


@pytest.mark.slow
def test_sample_made_longer_is_the_same_with_and_without_a_folder(tmp_path):
    def sampled(checkpoint):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sgmcmc.SgmcmcWarning)  # so few draws, whatever they look like
            return sgmcmc.sample(
                log_lik, DATA, START, draws=50, chains=2, target_ess=150, seed=1, progress=False, checkpoint=checkpoint
            )

    here, there = sampled(None), sampled(tmp_path / "run")
    assert here["mu"].shape[1] > 50
    np.testing.assert_array_equal(here["mu"], there["mu"])
    np.testing.assert_array_equal(here.pairs.gradients, there.pairs.gradients)
    assert here.decisions["target_ess"] == there.decisions["target_ess"]


def falling(step):
    return 1e-3 / (1 + step) ** 0.33


REFUSED = {
    "keep": ({"keep": "everything"}, r"keep\['kept'\] is 'everything'"),
    "keep of a wrong function": ({"keep": sgmcmc.Expectation(lambda params: params["nu"])}, "failed on params"),
    "keep without state": ({"keep": Last()}, "cannot go into a checkpoint"),
    "thin": ({"thin": 1000}, "thin is 1000 for 50 iterations"),
    "thin of a trace": ({"keep": sgmcmc.Trace(thin=1000)}, "stores nothing"),
    "diagnose with a schedule": ({"diagnose": True, "stepsize": falling}, "stepsize that changes"),
    "unknown option": ({"n_itres": 5}, "did you mean 'n_iters'"),
    "n_chains": ({"n_chains": 0}, "n_chains is 0"),
    "burn_in": ({"burn_in": -1}, "burn_in is -1"),
    "seed": ({"seed": "one"}, "seed"),
    "progress": ({"progress": "loud"}, "progress is 'loud'"),
    "minibatch_size": ({"minibatch_size": 10_000}, "minibatch_size is 10000"),
    "rows": ({"rows": "importance"}, "has no control variates"),
    "stepsize": ({"stepsize": -1.0}, "stepsize"),
    "params": ({"params": {"mu": 1}}, "not a float"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_call_leaves_no_folder(name, tmp_path):
    changes, words = REFUSED[name]
    usual = {"params": START, "stepsize": 1e-3, "minibatch_size": 20, "n_iters": 50, "seed": 1, "progress": False}
    with pytest.raises(sgmcmc.InputError, match=words):
        sgmcmc.sgld(log_lik, DATA, **(usual | changes), checkpoint=tmp_path / "run")
    assert not any(tmp_path.iterdir())
