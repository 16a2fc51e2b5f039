"""Data that are not in memory: the same draws as from memory, whatever they are kept in, and a pool of them for `sample`."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats

import sgmcmc
from sgmcmc.problem import passes
from sgmcmc.rows import sources, table
from sgmcmc.rows.importance import UNIFORM_SHARE, draw_pool
from sgmcmc.rows.table import check_dataset
from sgmcmc.tune import pilot

N, D = 5000, 3


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-X @ np.array([1.0, -1.0, 0.5])))).astype(np.int32)
    return {"X": X, "y": y}


@pytest.fixture(scope="module")
def folder(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "logistic"
    sgmcmc.data.convert(arrays, path, progress=False)
    return path


def log_lik(params, batch):
    eta = batch["X"] @ params["beta"]
    return batch["y"] * eta - jax.nn.softplus(eta)


def log_prior(params):
    return -0.5 * (params["beta"] ** 2).sum()


START = {"beta": np.zeros(D, np.float32)}


def draws(dataset, sampler=sgmcmc.sgldcv, **options):
    usual = {"minibatch_size": 50, "n_iters": 300, "n_chains": 2, "seed": 1, "progress": False}
    return sampler(log_lik, dataset, START, 1e-4, log_prior=log_prior, **(usual | options))


@pytest.mark.parametrize("rows", ["random", "window", "importance"])
def test_a_folder_gives_the_draws_of_memory(folder, rows):
    from_memory = draws(sgmcmc.data.open(folder, in_memory=True), rows=rows)
    from_files = draws(str(folder), rows=rows)
    np.testing.assert_array_equal(from_files["beta"], from_memory["beta"])
    assert from_files.settings["rows"] == rows


@pytest.mark.parametrize("kind", ["memmap", "float64 memmap", "zarr"])
def test_random_rows_of_anything_are_those_of_arrays(arrays, tmp_path, kind):
    if kind == "zarr":
        import zarr

        kept = {name: zarr.create_array(str(tmp_path / name), data=array, chunks=(512, *array.shape[1:]))
                for name, array in arrays.items()}  # fmt: skip
    else:
        kept = {}
        for name, array in arrays.items():
            dtype = np.float64 if kind == "float64 memmap" and name == "X" else array.dtype
            kept[name] = np.memmap(tmp_path / name, dtype, "w+", shape=array.shape)
            kept[name][:] = array
    assert not check_dataset(kept).in_memory
    small = {"n_iters": 20, "rows": "random"}
    np.testing.assert_array_equal(draws(kept, **small)["beta"], draws(arrays, **small)["beta"])


def test_windows_of_rows_that_were_not_shuffled_are_warned_of(arrays, tmp_path):
    kept = {}
    for name, array in arrays.items():
        kept[name] = np.memmap(tmp_path / name, array.dtype, "w+", shape=array.shape)
        kept[name][:] = array
    with pytest.warns(sgmcmc.SgmcmcWarning, match="not shuffled"):
        out = draws(kept, sampler=sgmcmc.sgld, rows="window", n_iters=20)
    assert out["beta"].shape == (2, 20, D)


def test_full_passes_read_block_by_block(arrays, folder, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_BYTES", 4096)
    on_disk = check_dataset(folder)
    total = passes.full_sum(lambda rows: rows["X"].sum(axis=0), on_disk)
    np.testing.assert_allclose(total, arrays["X"].sum(axis=0, dtype=np.float64), rtol=1e-4)
    largest = max(len(rows["y"]) for rows in passes.all_rows(on_disk))
    assert largest <= 4096 // on_disk.row_bytes


def test_windows_wrap_and_cover_every_row_alike(folder):
    on_disk = check_dataset(folder)
    source = sources.ReadWindows(on_disk, 7)
    starts = np.arange(N, dtype=np.int32)
    rows, index = source.prepare(jax.numpy.asarray(starts), N)
    np.testing.assert_array_equal(np.bincount(index.ravel()), 7)
    everything = sources.whole(on_disk)
    for name in everything:
        np.testing.assert_array_equal(rows[name], everything[name][index])


def test_the_rows_are_decided_by_size_and_recorded(folder, monkeypatch):
    assert draws(folder, n_iters=5).settings["rows"] == "random"
    monkeypatch.setattr(table, "physical_memory", lambda: 1000)
    out = draws(folder, n_iters=5)
    assert out.settings["rows"] == "window"
    assert "windows" in str(out.decisions)
    with pytest.raises(sgmcmc.InputError, match="do not fit into memory"):
        draws(folder, minibatch_size=N)
    with pytest.raises(sgmcmc.InputError, match="pool"):
        draws(folder, rows="importance")


def test_a_number_that_is_not_finite_is_found_before_sampling(arrays, tmp_path):
    bad = np.memmap(tmp_path / "X", np.float32, "w+", shape=(N, D))
    bad[:] = arrays["X"]
    bad[4321, 1] = np.nan
    with pytest.raises(sgmcmc.InputError, match="row 4321"):
        draws({"X": bad, "y": arrays["y"]})


def test_rows_that_cannot_be_read_end_the_run_with_its_draws(arrays, tmp_path):
    path = tmp_path / "rows"
    sgmcmc.data.convert(arrays, path, progress=False)
    sampler = sgmcmc.sgld_setup(log_lik, path, START, 1e-4, minibatch_size=50, rows="window", progress=False)
    state = sampler.init(1)

    def cut(figures):
        if figures["done"] >= 50:
            (path / "X.rows").write_bytes((path / "X.rows").read_bytes()[:100])

    with pytest.raises(sgmcmc.SgmcmcError, match=r"X\.rows") as caught:
        sampler.run(state, 100_000, progress=cut, chunk_size=10)
    assert caught.value.result["beta"].shape[0] >= 50


# --- the pool


def test_a_place_of_the_pool_holds_each_row_by_its_score():
    """The exact law of every place, whatever the blocks: by score for nine tenths of the places, alike for the rest."""
    scores = np.array([0.0, 1.0, 2.0, 0.5, 4.0, 0.25, 1.0, 3.0])
    blocks = [slice(0, 1), slice(1, 4), slice(4, 8)]
    like = table.Table({"x": np.zeros(8, np.float32)})

    def scored():
        for block in blocks:
            yield {"x": np.arange(8, dtype=np.float32)[block]}, scores[block]

    pool = draw_pool(scored(), like, 100_000, 4, seed=0)
    law = (1 - UNIFORM_SHARE) * scores / scores.sum() + UNIFORM_SHARE / 8
    np.testing.assert_array_equal(pool.rows["x"], pool.numbers)
    np.testing.assert_allclose(pool.inverse, 1 / law[pool.numbers], rtol=1e-6)
    counts = np.bincount(pool.numbers, minlength=8)
    assert scipy.stats.chisquare(counts, law * pool.size).pvalue > 1e-4
    assert scipy.stats.chisquare(counts, pool.size * (law + 0.002 * np.cos(np.arange(8) * np.pi))).pvalue < 1e-4


def test_a_pool_where_no_row_matters():
    like = table.Table({"x": np.zeros(6, np.float32)})
    pool = draw_pool([({"x": np.arange(6, dtype=np.float32)}, np.zeros(6))], like, 60, 2, seed=0)
    assert np.isfinite(pool.inverse).all()


def test_minibatches_of_a_pool_estimate_its_sum_without_bias():
    """The mean over all minibatches of a chain is the pool's own estimate: by enumeration, for every chain."""
    rng = np.random.default_rng(0)
    like = table.Table({"x": np.zeros(40, np.float32)})
    x = rng.normal(size=40).astype(np.float32)
    pool = draw_pool([({"x": x}, np.abs(x))], like, 12, 2, seed=1)
    source = pool.source(1)
    keys = jax.random.split(jax.random.key(0), 4000).reshape(2000, 2, 1)
    rows, weight, index = source.prepare(source.draw(keys), 2000)
    np.testing.assert_array_equal(x[index], rows["x"])
    for chain in range(2):
        own = slice(6 * chain, 6 * chain + 6)
        exact = np.mean(pool.inverse[own] * pool.rows["x"][own])
        places = {float(w * v): None for w, v in zip(weight[:, chain].ravel(), rows["x"][:, chain].ravel(), strict=True)}
        assert set(index[:, chain].ravel()) == set(pool.numbers[own])
        estimates = (weight[:, chain] * rows["x"][:, chain]).ravel()
        assert len(places) <= 6
        error = estimates.std() / np.sqrt(len(estimates))
        assert abs(estimates.mean() - exact) < 4 * error


def test_a_device_with_some_of_the_chains_draws_from_their_pools():
    like = table.Table({"x": np.zeros(40, np.float32)})
    pool = draw_pool([({"x": np.arange(40, dtype=np.float32)}, np.ones(40))], like, 40, 4, seed=1)
    source = pool.source(2)
    drawn = source.draw(jax.random.split(jax.random.key(0), 5 * 4).reshape(5, 4, 1))
    every = source.prepare(drawn, 5)
    last = source.prepare(jax.tree.map(lambda x: x[:, 2:], drawn), 5)
    for whole, part in zip(jax.tree.leaves(every), jax.tree.leaves(last), strict=True):
        np.testing.assert_array_equal(whole[:, 2:], part)


def test_sample_draws_a_pool_of_data_too_large_for_memory(folder, monkeypatch):
    monkeypatch.setattr(table, "physical_memory", lambda: 1000)
    monkeypatch.setattr(pilot, "POOL_ROWS", 2000)
    exact = sgmcmc.sample(log_lik, sgmcmc.data.open(folder, in_memory=True), START, log_prior=log_prior, seed=1, progress=False)
    fit = sgmcmc.sample(log_lik, folder, START, log_prior=log_prior, seed=1, progress=False)
    assert fit.settings["rows"] == "pool"
    price = fit.decisions["pool"]
    assert 0.005 < price < 0.2
    sd = exact["beta"].std(axis=(0, 1))
    shift = np.abs(fit["beta"].mean(axis=(0, 1)) - exact["beta"].mean(axis=(0, 1))) / sd
    assert (shift < 4 * np.hypot(price, 0.03)).all()
    assert (np.abs(fit["beta"].std(axis=(0, 1)) / sd - 1) < 0.1).all()
