"""Copies of random rows: compiled and NumPy alike to the last bit, and memory lent again only when nobody looks at it."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.rows import gathering, native
from sgmcmc.rows.gathering import ALIGNMENT, SMALLEST_LOAN, Shelf, take_rows

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
compiles = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
RNG = np.random.default_rng(3)


@pytest.fixture(params=["numpy", pytest.param("compiled", marks=compiles)])
def way(request, monkeypatch, tmp_path_factory):
    """Both ways of doing it."""
    found = native.compiled(COMPILER, tmp_path_factory.getbasetemp() / "native") if request.param == "compiled" else None
    monkeypatch.setattr(native, "library", lambda: found)


ARRAYS = {
    "rows of 216 bytes": RNG.normal(size=(500, 54)).astype(np.float32),
    "one number": RNG.normal(size=500).astype(np.float32),
    "one wide number": RNG.normal(size=500),
    "flags": RNG.random(500) < 0.5,
    "three bytes": RNG.integers(0, 256, (500, 3)).astype(np.uint8),
    "images": RNG.normal(size=(500, 40, 30)),
    "one row": RNG.normal(size=(1, 7)),
    "empty rows": np.empty((500, 0), np.float32),
    "every other column": RNG.normal(size=(500, 8))[:, ::2],
    "another order": np.asfortranarray(RNG.normal(size=(500, 8))),
    "texts": np.array([str(k) for k in range(500)]),
    "objects": np.array([{k} for k in range(500)]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("shape", [(7, 2, 30), (1,), (0,), (3, 0)])
def test_rows_are_those_of_plain_indexing(way, name, shape):
    array = ARRAYS[name]
    index = RNG.integers(0, len(array), shape).astype(np.int32)
    for numbers in (index, index.astype(np.int64), index[::-1]):
        out = np.empty((*shape, *array.shape[1:]), array.dtype)
        take_rows(array, numbers, out)
        np.testing.assert_array_equal(out, array[numbers])


def test_a_row_number_out_of_bounds_reads_no_other_memory(way):
    array, out = np.arange(20.0).reshape(10, 2), np.empty((4, 2))
    take_rows(array, np.array([-1, 10, -(2**31), 2**31 - 1], np.int32), out)
    np.testing.assert_array_equal(out, array[[0, 9, 0, 9]])


def test_shapes_that_do_not_fit_are_refused(way):
    with pytest.raises(ValueError, match="does not match"):
        take_rows(np.zeros((10, 2)), np.zeros(4, np.int32), np.zeros((3, 2)))
    with pytest.raises(IndexError):
        take_rows(np.zeros((0, 2)), np.zeros(4, np.int32), np.zeros((4, 2)))


def test_memory_is_lent_again_only_when_nothing_shares_it():
    shelf, shape = Shelf(1 << 24), (SMALLEST_LOAN // 4,)
    first = shelf.lend(shape, np.float32)
    address, part = first.ctypes.data, first[5:].reshape(-1, 1)
    assert address % ALIGNMENT == 0
    del first
    second = shelf.lend(shape, np.float32)
    assert second.ctypes.data != address, "a view of it is still there"
    del part
    assert shelf.lend(shape, np.float32).ctypes.data == address
    assert shelf.lend((*shape, 1), np.int32).ctypes.data == address


def test_memory_that_jax_shares_is_not_written_to():
    """Many loans in flight, each checked after later ones were filled."""
    shelf, add = Shelf(1 << 24), jax.jit(lambda x: x.sum() / x.size)
    alive, sums = [], []
    for k in range(200):
        array = shelf.lend((SMALLEST_LOAN // 4,), np.float32)
        array[:] = k
        shared = jax.device_put(array)
        del array
        sums.append(add(shared))
        alive = [*alive[-2:], (k, shared)]
        del shared
        assert all(float(old[0]) == number == float(old[-1]) for number, old in alive)
    np.testing.assert_array_equal(np.asarray(jnp.stack(sums)), np.arange(200))


def test_the_shelf_is_bounded():
    shelf = Shelf(4 * SMALLEST_LOAN)
    loans = [shelf.lend((SMALLEST_LOAN + 64 * k,), np.uint8) for k in range(10)]
    loans.append(shelf.lend((5 * SMALLEST_LOAN,), np.uint8))
    del loans
    gc.collect()
    assert 1 <= len(shelf._blocks) <= 4
    assert sum(block.nbytes for block in shelf._blocks) <= 4 * SMALLEST_LOAN


def test_draws_do_not_depend_on_the_way(monkeypatch):
    data = {"x": RNG.normal(size=(5_000, 40)).astype(np.float32), "y": RNG.normal(size=5_000).astype(np.float32)}

    def log_lik(params, batch):
        return -0.5 * ((batch["y"] - batch["x"] @ params["w"]) ** 2).sum()

    sampler = sgmcmc.sgld_setup(log_lik, data, {"w": np.zeros(40)}, 1e-6, minibatch_size=100)
    state = sampler.init(1, progress=False)
    with_library = sampler.run(state, 300, progress=False, chunk_size=50)["w"]
    monkeypatch.setattr(native, "library", lambda: None)
    without = sampler.run(state, 300, progress=False, chunk_size=50)["w"]
    taken = []

    def fresh(shape, dtype):
        taken.append(shape)
        return gathering.aligned(shape, dtype)

    monkeypatch.setattr(gathering, "lend", fresh)
    afresh = sampler.run(state, 300, progress=False, chunk_size=50)["w"]
    assert taken.count((50, 1, 100, 40)) >= 6, "the rows of every chunk were in fresh memory"
    np.testing.assert_array_equal(with_library, without)
    np.testing.assert_array_equal(with_library, afresh)


@compiles
def test_compiled_once_and_made_again_if_damaged(tmp_path):
    native.compiled(COMPILER, tmp_path)
    (made,) = tmp_path.iterdir()
    before = made.stat().st_mtime_ns
    native.compiled("/no/compiler", tmp_path)
    assert made.stat().st_mtime_ns == before
    damaged = tmp_path / "other" / made.name  # elsewhere: this process has the first one open
    damaged.parent.mkdir()
    damaged.write_bytes(b"not a library")
    native.compiled(COMPILER, damaged.parent)
    assert damaged.stat().st_size == made.stat().st_size


@compiles
def test_several_processes_at_once(tmp_path):
    script = "import sys, pathlib; from sgmcmc.rows.native import compiled; compiled(sys.argv[1], pathlib.Path(sys.argv[2]))"
    processes = [subprocess.Popen([sys.executable, "-c", script, str(COMPILER), str(tmp_path)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("failure", ["turned off", "no compiler", "compiler fails", "no folder"])
def test_without_a_library_there_is_silence(failure, monkeypatch, tmp_path):
    bad = tmp_path / "cc"
    bad.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    bad.chmod(0o755)
    (tmp_path / "file").touch()
    monkeypatch.setattr(native, "cache_folder", lambda: tmp_path / ("file" if failure == "no folder" else "cache") / "native")
    if failure == "turned off":
        monkeypatch.setenv(native.SETTING, "0")
    if failure in ("no compiler", "compiler fails"):
        monkeypatch.setenv("PATH", str(tmp_path) if failure == "compiler fails" else os.devnull)
    native.library.cache_clear()
    try:
        assert native.library() is None
    finally:
        native.library.cache_clear()
