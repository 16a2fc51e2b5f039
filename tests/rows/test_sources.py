"""Minibatches: every subset equally likely, the same on host and device, windows that cover every row alike."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sgmcmc.rows.drawing import distinct_rows, first_distinct, stream_length, streams
from sgmcmc.rows.sources import (
    BLOCK_BYTES,
    AllRows,
    DeviceRows,
    HostRows,
    WindowRows,
    block_rows,
    blocks,
    make_source,
    subsample,
)
from sgmcmc.rows.table import as_table

FALSE_ALARM = 1e-4


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def host_minibatches(N, n, count, seed=0):
    source = HostRows({"x": np.arange(N, dtype=np.float32)}, n)
    (rows, index) = source.prepare(source.draw(keys(count, seed)), count)
    np.testing.assert_array_equal(np.asarray(rows["x"]), np.asarray(index))
    return np.asarray(index)


def subset_p_value(index, N, n):
    subsets = dict.fromkeys(itertools.combinations(range(N), n), 0)
    for rows in np.sort(index, axis=1).tolist():
        key = tuple(rows)
        if key not in subsets:
            return 0.0
        subsets[key] += 1
    return scipy.stats.chisquare(list(subsets.values())).pvalue


@pytest.mark.parametrize(("N", "n"), [(6, 2), (6, 3), (7, 5), (5, 1), (8, 4)])
def test_every_subset_is_equally_likely(N, n):
    assert subset_p_value(host_minibatches(N, n, 20_000), N, n) > FALSE_ALARM


def test_control_rows_with_replacement_are_caught():
    index = np.random.default_rng(0).integers(0, 6, (20_000, 2))
    assert subset_p_value(index, 6, 2) < FALSE_ALARM


def test_control_a_slight_preference_is_caught():
    index = host_minibatches(6, 2, 20_000).copy()
    index[:400] = [0, 1]
    assert subset_p_value(index, 6, 2) < FALSE_ALARM


@pytest.mark.parametrize(("N", "n"), [(6, 2), (1000, 400), (1000, 700), (581_012, 500), (10_000_000, 1000)])
def test_host_and_device_draw_the_same_rows_without_repetition(N, n):
    drawn = keys(40)
    on_device = np.asarray(distinct_rows(drawn, N, n))
    on_host = host_minibatches(N, n, 40) if N < 10**6 else None
    if on_host is not None:
        np.testing.assert_array_equal(on_host, on_device)
    assert on_device.min() >= 0
    assert on_device.max() < N
    assert all(len(set(rows)) == n for rows in on_device.tolist())


def test_a_stream_with_too_few_rows_is_drawn_again():
    N, n, drawn = 50, 20, keys(8)
    poor = jnp.zeros((8, stream_length(N, n)), jnp.int32)
    again = np.asarray(streams(drawn, 1, N, stream_length(N, n)))
    rows = first_distinct(drawn, poor, N, n)
    for row, stream in zip(rows, again, strict=True):
        assert row.tolist() == list(dict.fromkeys(stream.tolist()))[:n]


def test_batch_means_have_the_variance_of_sampling_without_replacement():
    """On sorted data, where a poor permutation shows: relative error over its standard error."""
    N, n, count = 1000, 50, 40_000
    means = np.sort(np.random.default_rng(1).normal(size=N))[host_minibatches(N, n, count)].mean(axis=1)
    truth = np.var(np.sort(np.random.default_rng(1).normal(size=N)), ddof=1) / n * (1 - n / N)
    ratio = means.var() / truth
    assert abs(ratio - 1) / np.sqrt(2 / count) < 4


@pytest.mark.parametrize(("N", "n"), [(11, 4), (10, 9), (7, 1)])
def test_windows_cover_every_row_alike(N, n):
    source = WindowRows({"x": np.arange(N, dtype=np.float32)}, n)
    taken = [source.take(source.data, jnp.int32(start)) for start in range(N)]
    counts = np.bincount(np.concatenate([np.asarray(batch.index) for batch in taken]), minlength=N)
    assert (counts == n).all()
    for batch in taken:
        np.testing.assert_array_equal(np.asarray(batch.rows["x"]), np.asarray(batch.index))
        assert float(batch.weight) == pytest.approx(N / n)


def test_window_starts_are_uniform():
    source = WindowRows({"x": np.arange(7, dtype=np.float32)}, 3)
    counts = np.bincount(np.asarray(source.draw(keys(20_000))), minlength=7)
    assert scipy.stats.chisquare(counts).pvalue > FALSE_ALARM


def test_the_right_source_is_made():
    arrays = {"x": np.zeros(10, np.float32)}
    assert isinstance(make_source(arrays, 10, "random"), AllRows)
    assert isinstance(make_source(arrays, 10, "window"), AllRows)
    assert isinstance(make_source(arrays, 3, "window"), WindowRows)
    assert isinstance(make_source(arrays, 3, "random"), HostRows if jax.default_backend() == "cpu" else DeviceRows)


def test_device_rows_give_the_batches_of_host_rows():
    arrays = {"x": np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32), "k": np.arange(100, dtype=np.int32)}
    host, device = HostRows(arrays, 7), DeviceRows(arrays, 7)
    plans = [source.prepare(source.draw(keys(5)), 5) for source in (host, device)]
    for i in range(5):
        left, right = (
            source.take(source.data, jax.tree.map(lambda x, i=i: x[i], plan))
            for source, plan in zip((host, device), plans, strict=True)
        )
        jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize(("N", "largest"), [(10, 3), (10, 10), (10, 100), (1, 5), (9, 3)])
def test_blocks_cover_everything_in_at_most_two_sizes(N, largest):
    parts = [rows["x"] for rows in blocks({"x": np.arange(N)}, largest)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(N))
    assert len({len(part) for part in parts}) <= 2
    assert max(map(len, parts)) <= largest


@pytest.mark.parametrize(("extra", "least"), [(0, 1), (4, 1), (1000, 1), (1000, 10_000)])
def test_blocks_of_a_program_that_needs_more_are_parts_of_those_of_one_that_needs_less(extra, least):
    table = as_table({"x": np.zeros((10, 7), np.float32)})
    whole, part = block_rows(table), block_rows(table, extra, least)
    assert whole % part == 0
    assert whole <= BLOCK_BYTES // 28 < 2 * whole
    assert part * (28 + extra) <= BLOCK_BYTES or least / 2 < part <= least


def test_samples_have_whole_blocks(monkeypatch):
    monkeypatch.setattr("sgmcmc.rows.sources.BLOCK_BYTES", 64)
    arrays = {"x": np.arange(1000, dtype=np.float32)}
    assert [subsample(arrays, count, seed=1).n_rows for count in (1, 16, 17, 100, 990, 2000)] == [16, 16, 32, 112, 992, 1000]
    assert len(np.unique(subsample(arrays, 100, seed=1)["x"])) == 112
