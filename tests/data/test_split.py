"""Rows for training and rows for testing."""

from __future__ import annotations

import numpy as np
import pytest

import sgmcmc

ROWS = {"X": np.arange(200.0).reshape(100, 2), "y": np.arange(100)}


@pytest.mark.parametrize(("test_size", "count"), [(1, 1), (99, 99), (0.25, 25), (np.int64(10), 10), (np.float32(0.5), 50)])
def test_split(test_size, count):
    train, test = sgmcmc.train_test_split(ROWS, test_size, seed=3)
    assert (len(train["y"]), len(test["y"])) == (100 - count, count)
    assert sorted([*train["y"], *test["y"]]) == list(range(100))
    for part in (train, test):
        assert list(part) == ["X", "y"]
        assert part["X"].dtype == np.float64
        np.testing.assert_array_equal(part["X"][:, 0], 2 * part["y"])
        np.testing.assert_array_equal(part["y"], np.sort(part["y"]))


def test_split_follows_its_seed():
    def rows(seed):
        return sgmcmc.train_test_split(ROWS, 30, seed=seed)[1]["y"].tolist()

    assert rows(1) == rows(1) == rows(np.int64(1)) == rows(np.random.default_rng(1))
    assert rows(1) != rows(2)
    generator = np.random.default_rng(1)
    assert rows(generator) != rows(generator)


def test_split_gives_every_row_its_chance():
    rng, n_splits = np.random.default_rng(4), 2000
    tested = sum(
        np.bincount(sgmcmc.train_test_split({"y": range(10)}, 3, seed=rng)[1]["y"], minlength=10) for _ in range(n_splits)
    )
    error = np.sqrt(n_splits * 0.3 * 0.7)
    assert np.abs(tested - 0.3 * n_splits).max() < 4.5 * error  # ten counts: a false alarm in 15,000 seeds


def test_split_takes_what_numpy_takes():
    import jax.numpy as jnp
    import pandas

    train, test = sgmcmc.train_test_split({"a": [1, 2, 3], "b": jnp.ones((3, 2)), "c": ["x", "y", "z"]}, 1, seed=1)
    assert (train["b"].shape, test["b"].shape, len(test["c"])) == ((2, 2), (1, 2), 1)
    assert all(type(array) is np.ndarray for array in train.values())
    frame_test = sgmcmc.train_test_split(pandas.DataFrame({"a": [1, 2, 3]}), 1, seed=1)[1]
    np.testing.assert_array_equal(frame_test["a"], test["a"])
    masked = sgmcmc.train_test_split({"a": np.ma.masked_equal([1, 1, 1], 1)}, 1, seed=1)[0]["a"]
    assert np.ma.is_masked(masked)


@pytest.mark.parametrize(
    ("dataset", "test_size", "seed", "message"),
    [
        (np.ones((5, 2)), 1, 1, r"dataset is ndarray of shape \(5, 2\).*expected a dict of arrays"),
        ({}, 1, 1, "dataset has no arrays"),
        ({"X": np.ones((5, 2)), "y": np.ones(4)}, 1, 1, "different numbers of rows: 'X' has 5, 'y' has 4"),
        ({"X": [[1, 2], [3]]}, 1, 1, r"dataset\['X'\] is no array .*expected rows of one shape"),
        ({"n": 5}, 1, 1, r"dataset\['n'\] is 5; expected an array with rows"),
        ({"train": {"x": [1, 2]}}, 1, 1, r"dataset\['train'\] is \{'x': \[1, 2\]\}; expected an array"),
        ({"x": [1.0]}, 1, 1, "dataset has 1 rows; expected at least 2"),
        (ROWS, 0, 1, "test_size is 0, 0 of 100 rows, which leaves a part empty; expected a count from 1 to 99"),
        (ROWS, 100, 1, "which leaves a part empty"),
        (ROWS, 0.001, 1, "test_size is 0.001, 0 of 100 rows"),
        (ROWS, 0.999, 1, "test_size is 0.999, 100 of 100 rows"),
        (ROWS, 20.0, 1, "test_size is 20.0; expected a count"),
        (ROWS, float("nan"), 1, "test_size is nan"),
        (ROWS, True, 1, "test_size is True"),
        (ROWS, "10%", 1, "test_size is '10%'"),
        (ROWS, 10, None, "seed is None; expected a whole number such as seed=1, or a NumPy generator"),
        (ROWS, 10, True, "seed is True"),
        (ROWS, 10, -1, "seed is -1"),
        (ROWS, 10, 1.5, "seed is 1.5"),
    ],
)
def test_split_refuses(dataset, test_size, seed, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        sgmcmc.train_test_split(dataset, test_size, seed=seed)
