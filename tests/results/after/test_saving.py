"""One file: every bit again in another process, without the model and without pickle."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from saved_results import account

import sgmcmc
from sgmcmc.core.array_files import read_arrays, write_arrays
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.core.files import DamagedFileError
from sgmcmc.results.result import Result

X = np.random.default_rng(0).normal(1.0, 2.0, size=(500, 2))
LIMIT = {"s": sgmcmc.constraints.positive}


def log_lik(params, rows):
    z = (rows["x"] - params["mu"]) / params["s"]
    return -0.5 * (z**2).sum(axis=1) - 2 * jax.numpy.log(params["s"])


MODEL = sgmcmc.Model(
    log_lik, {"x": X}, {"mu": np.zeros(2), "s": 1.0}, constraints=LIMIT, coords={"axis": ["left", "right"]},
    dims={"mu": ["axis"]}, mean=lambda params, rows: params["mu"] + 0 * rows["x"],
)  # fmt: skip
KEEP = {"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments(covariance=True), "quantiles": sgmcmc.Quantiles()}


@pytest.fixture(scope="module")
def fit():
    options = {"precondition": "laplace", "minibatch_size": 100, "n_iters": 400, "n_chains": 2, "seed": 1, "diagnose": True}
    return sgmcmc.baoacv(MODEL, 0.5, keep=KEEP, progress=False, **options)


@pytest.fixture(scope="module")
def file(fit, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "fit.sgmcmc"
    fit.save(path)
    return path


def test_another_process_finds_every_bit(fit, file):
    script = Path(__file__).parents[2] / "support/saved_results.py"
    told = subprocess.run([sys.executable, str(script), str(file)], capture_output=True, text=True, check=True).stdout
    assert told == account(fit)
    other = replace(fit, draws={**fit.draws, "s": np.nextafter(fit["s"], np.float32(9))})
    assert told != account(other)  # in the last bits alone


def test_a_loaded_result_goes_on_where_it_can(fit, file):
    loaded = sgmcmc.load(file)
    assert loaded.model is None
    assert list(loaded.summary().index) == ["mu[left]", "mu[right]", "s"]
    with pytest.raises(sgmcmc.InputError, match=r"load\(path, model=model\)"):
        loaded.predict()
    again = sgmcmc.load(str(file), model=MODEL)
    assert np.array_equal(again.predict(), fit.predict())
    sampler = sgmcmc.baoacv_setup(MODEL, 0.5, precondition="laplace", minibatch_size=100)
    here, there = (sampler.run(one.final_state, 5, progress=False) for one in (fit, again))
    assert np.array_equal(here["mu"], there["mu"])


def test_the_file_is_plain_arrays(file):
    with np.load(file, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "fiub" for name in arrays.files)
        assert (2, 400, 2) in [arrays[name].shape for name in arrays.files]


class Pair(NamedTuple):
    a: object
    b: object


def test_trees_of_other_kinds_come_as_dicts_or_as_the_models(tmp_path):
    model = sgmcmc.Model(lambda p, rows: -0.5 * ((rows["x"] - p.a) ** 2).sum(), {"x": X}, Pair(0.0, {"w": np.zeros(2)}))
    out = sgmcmc.sgld(model, 1e-5, minibatch_size=50, n_iters=20, seed=1, progress=False)
    out.save(tmp_path / "fit")
    assert list(sgmcmc.load(tmp_path / "fit")) == ["a", "b.w"]
    loaded = sgmcmc.load(tmp_path / "fit", model=model)
    assert type(loaded.draws) is Pair
    assert np.array_equal(loaded.draws.b["w"], out.draws.b["w"])
    with pytest.raises(sgmcmc.InputError, match=r"the file has parameters a, b.w, the model mu, s; load it without model="):
        sgmcmc.load(tmp_path / "fit", model=MODEL)


def test_runs_on_disk_and_saved_again(tmp_path):
    weighted = sgmcmc.sgld(
        MODEL,
        lambda t: 1e-4 * (10 + t) ** -0.33,
        minibatch_size=50,
        n_iters=30,
        seed=1,
        progress=False,
        checkpoint=tmp_path / "run",
    )
    sgmcmc.load(tmp_path / "run").save(tmp_path / "one")
    sgmcmc.load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert np.array_equal(sgmcmc.load(tmp_path / "two").weights, weighted.weights)
    assert sgmcmc.load(tmp_path / "two").settings == sgmcmc.load(tmp_path / "run").settings


def test_settings_that_are_code_are_text_and_so_much_is_said(tmp_path):
    bare = Result({"a": np.zeros(3)}, {}, object(), {"stepsize": {"a": np.sin}, "pair": (1, len)})
    with pytest.warns(sgmcmc.SgmcmcWarning, match="the file has no final_state, from which a run goes on: .*cannot be saved"):
        bare.save(tmp_path / "fit")
    loaded = sgmcmc.load(tmp_path / "fit")
    assert loaded.final_state is None
    assert loaded.settings == {"stepsize": {"a": str(np.sin)}, "pair": (1, str(len))}
    with pytest.raises(sgmcmc.InputError, match=r"kept\.mine is .*which cannot be saved"):
        Result({"a": np.zeros(3)}, {"mine": object()}, None, {}).save(tmp_path / "fit")
    assert np.array_equal(sgmcmc.load(tmp_path / "fit")["a"], np.zeros(3))  # the old file is still whole


def test_what_is_no_such_file_is_said(file, tmp_path):
    with pytest.raises(sgmcmc.InputError, match=r"which is a folder; expected the name of a file, such as 'fit.sgmcmc'"):
        sgmcmc.load(file).save(tmp_path)
    with pytest.raises(sgmcmc.InputError, match="in a folder that is not there"):
        sgmcmc.load(file).save(tmp_path / "no/fit")
    with pytest.raises(sgmcmc.InputError, match=r"or a file that fit.save made"):
        sgmcmc.load(tmp_path / "nothing")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(DamagedFileError, match=r"or it is no file that fit.save"):
        sgmcmc.load(tmp_path / "other.npz")
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    (tmp_path / "bad").write_bytes(contents)
    with pytest.raises(DamagedFileError, match="its checksum does not fit"):
        sgmcmc.load(tmp_path / "bad")
    spec, arrays = read_arrays(file)
    write_arrays(tmp_path / "newer", spec | {"version": 3}, arrays)
    with pytest.raises(SgmcmcError, match="has format version 3, and this release of sgmcmc reads up to 2"):
        sgmcmc.load(tmp_path / "newer")
    write_arrays(tmp_path / "stage", {"tree": {}}, [])
    with pytest.raises(sgmcmc.InputError, match=r"is no file that fit.save"):
        sgmcmc.load(tmp_path / "stage")
