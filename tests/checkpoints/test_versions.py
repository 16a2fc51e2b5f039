"""A checkpoint of other versions of the software: refused with the option that allows it, allowed, and on record."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

import sgmcmc
from sgmcmc.checkpoints.fingerprint import VERSIONS
from sgmcmc.checkpoints.reading import read_manifest

DATA = {"x": np.random.default_rng(0).normal(1.0, 1.0, 300).astype(np.float32)}
REFUSAL = "use another folder, or delete this one to start over; or say allow_version_change=True to go on all the same"


def log_lik(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()


def wider(params, batch):
    return 0.5 * log_lik(params, batch)


def whole_chain(checkpoint=None, n_iters=60, lik=log_lik, data=DATA, **options):
    usual = {"minibatch_size": 20, "n_chains": 2, "seed": 1, "progress": False}
    return sgmcmc.sgld(lik, data, {"mu": 0.0}, 1e-3, n_iters=n_iters, checkpoint=checkpoint, **(usual | options))


def step_by_step(checkpoint=None, n_iters=60, **options):
    sampler = sgmcmc.sgld_setup(log_lik, DATA, {"mu": 0.0}, 1e-3, minibatch_size=20, progress=False)
    return sampler.run(sampler.init(seed=1, n_chains=2), n_iters, checkpoint=checkpoint, progress=False, **options)


CALLS = {"whole chain": whole_chain, "step by step": step_by_step}


def other_version(monkeypatch, name, number="99.0.0"):
    def version(package):
        return number if package == name else importlib.metadata.version(package)

    monkeypatch.setattr("sgmcmc.checkpoints.fingerprint.version", version)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("name", "call"), [*((name, "whole chain") for name in VERSIONS), ("sgmcmc", "step by step")])
def test_refused_with_the_option_allowed_with_it_and_recorded(name, call, tmp_path, monkeypatch):
    run, folder = CALLS[call], tmp_path / "run"
    run(folder, 30)
    before = files(folder)
    other_version(monkeypatch, name)
    with pytest.raises(sgmcmc.InputError, match=rf"holds another run: {name} was .*, is 99.0.*; {REFUSAL}"):
        run(folder)
    assert files(folder) == before
    result = run(folder, allow_version_change=True)
    np.testing.assert_array_equal(result["mu"], run()["mu"])  # it was only called another version
    changes = read_manifest(folder)["version_changes"]
    assert [change.partition(" ")[0] for change in changes] == [name]
    assert result.settings["version_changes"] == changes
    assert sgmcmc.load(folder).settings["version_changes"] == changes
    assert run(folder, 90).settings["version_changes"] == changes  # the new version is the run's own now


def test_changes_add_up(tmp_path, monkeypatch):
    whole_chain(tmp_path / "run", 20)
    for number, n_iters in (("98.0", 40), ("99.0", 60)):
        other_version(monkeypatch, "jax", number)
        result = whole_chain(tmp_path / "run", n_iters, allow_version_change=True)
    first, second = result.settings["version_changes"]
    assert first.endswith("is 98.0")
    assert second == "jax was 98.0, is 99.0"


def test_without_a_change_nothing_is_recorded(tmp_path):
    whole_chain(tmp_path / "run", 30)
    result = whole_chain(tmp_path / "run", allow_version_change=True)
    assert "version_changes" not in result.settings
    assert "version_changes" not in read_manifest(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lik": wider}, "log_lik is another function"),
        ({"data": {"x": DATA["x"] + 1}}, "the data differ"),
        ({"seed": 2}, "seed was 1, is 2"),
        ({"thin": 2}, "thin was 1, is 2"),
    ],
)
def test_other_differences_are_still_refused(changes, words, tmp_path, monkeypatch):
    whole_chain(tmp_path / "run", 30)
    before = files(tmp_path / "run")
    other_version(monkeypatch, "sgmcmc")
    for allowed in (False, True):
        with pytest.raises(sgmcmc.InputError, match=words) as refusal:
            whole_chain(tmp_path / "run", allow_version_change=allowed, **changes)
        assert "allow_version_change" not in str(refusal.value)
        assert ("sgmcmc was" in str(refusal.value)) is not allowed
    assert files(tmp_path / "run") == before


@pytest.mark.parametrize("call", CALLS)
def test_it_is_yes_or_no(call, tmp_path):
    for checkpoint in (None, tmp_path / "run"):
        with pytest.raises(sgmcmc.InputError, match="allow_version_change is 'no'"):
            CALLS[call](checkpoint, allow_version_change="no")
    assert not (tmp_path / "run").exists()


def test_sample(tmp_path, monkeypatch):
    def run(**options):
        usual = {"draws": 400, "chains": 2, "seed": 1, "progress": False}
        return sgmcmc.sample(log_lik, DATA, {"mu": 0.0}, checkpoint=tmp_path / "run", **usual, **options)

    first = np.array(run()["mu"])
    other_version(monkeypatch, "jaxlib")
    with pytest.raises(sgmcmc.InputError, match="say allow_version_change=True"):
        run()
    again = run(allow_version_change=True)
    np.testing.assert_array_equal(again["mu"], first)
    assert again.settings["version_changes"][0].startswith("jaxlib was")
