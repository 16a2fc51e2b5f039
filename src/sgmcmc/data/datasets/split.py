"""Rows for training and rows for testing."""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import Dataset
from sgmcmc.rows.table import check_row_counts


def train_test_split(
    dataset: Dataset, test_size: float, *, seed: int | np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A random part of the rows for testing, the others for training.

    Args:
        dataset: a dict of arrays with rows on the first axis. Types are kept; rows of both parts stay in their order.
        test_size: how many rows to test with: a count such as 10_000, or a proportion such as 0.1.
        seed: a whole number or a NumPy generator; the same number gives the same rows.

    Returns:
        The training part and the testing part, each a dict with the names of `dataset`.

    >>> import numpy as np, sgmcmc
    >>> dataset = {"X": np.arange(12).reshape(6, 2), "y": np.arange(6)}
    >>> train, test = sgmcmc.train_test_split(dataset, 2, seed=1)
    >>> train["X"].shape, test["X"].shape
    ((4, 2), (2, 2))
    >>> sorted([*train["y"].tolist(), *test["y"].tolist()])
    [0, 1, 2, 3, 4, 5]
    """
    arrays, n_rows = _check_rows(dataset)
    count = _check_test_size(test_size, n_rows)
    in_test = np.zeros(n_rows, bool)
    in_test[_generator(seed).choice(n_rows, count, replace=False, shuffle=False)] = True
    train = {name: array[~in_test] for name, array in arrays.items()}
    return train, {name: array[in_test] for name, array in arrays.items()}


def _check_rows(dataset: Any) -> tuple[dict[str, np.ndarray], int]:
    if not isinstance(dataset, Mapping) and not hasattr(dataset, "items"):
        raise InputError(
            f"dataset is {describe(dataset)}; expected a dict of arrays with rows on the first axis, such as {{'X': X, 'y': y}}"
        )
    arrays = {str(name): _check_array(str(name), values) for name, values in dataset.items()}
    if not arrays:
        raise InputError("dataset has no arrays; expected a dict such as {'X': X, 'y': y}, rows on the first axis")
    n_rows = check_row_counts(arrays)
    if n_rows < 2:
        raise InputError(f"dataset has {n_rows} rows; expected at least 2, one for each part")
    return arrays, n_rows


def _check_array(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asanyarray(values)  # not asarray, which forgets what is masked
    except ValueError as error:
        raise InputError(f"dataset[{name!r}] is no array ({error}); expected rows of one shape") from error
    if array.ndim == 0:
        raise InputError(f"dataset[{name!r}] is {describe(values)}; expected an array with rows on the first axis")
    return array


def _check_test_size(test_size: Any, n_rows: int) -> int:
    expected = f"expected a count from 1 to {n_rows - 1} or a proportion such as 0.1"
    if isinstance(test_size, bool) or not isinstance(test_size, numbers.Real):
        raise InputError(f"test_size is {describe(test_size)}; {expected}")
    if isinstance(test_size, numbers.Integral):
        count = int(test_size)
    elif 0 < float(test_size) < 1:
        count = round(float(test_size) * n_rows)
    else:
        raise InputError(f"test_size is {describe(test_size)}; {expected}")
    if not 0 < count < n_rows:
        raise InputError(f"test_size is {test_size}, {count} of {n_rows} rows, which leaves a part empty; {expected}")
    return count


def _generator(seed: Any) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise InputError(f"seed is {describe(seed)}; expected a whole number such as seed=1, or a NumPy generator")
    return np.random.default_rng(int(seed))
