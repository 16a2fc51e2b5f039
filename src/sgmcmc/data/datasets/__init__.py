"""The datasets of the paper's examples, and the split into training and testing rows."""

import numbers
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from sgmcmc.core.checks import Progress, check_choice, check_progress
from sgmcmc.core.errors import InputError, SgmcmcError, describe
from sgmcmc.core.trees import Dataset
from sgmcmc.data.datasets.catalogue import CATALOGUE, DataFile
from sgmcmc.data.datasets.local import FOLDER_SETTING, arrays_of, data_folder
from sgmcmc.data.datasets.local import download as fetch
from sgmcmc.rows.table import check_row_counts

__all__ = ["FOLDER_SETTING", "get_dataset", "train_test_split"]

Parts: TypeAlias = dict[str, dict[str, np.ndarray]]
"""A dataset that comes split: {"train": {...}, "test": {...}}, each a dict of arrays with rows on the first axis."""


@overload
def get_dataset(name: Literal["covertype"], *, progress: Progress = True, download: bool = True) -> np.ndarray: ...
@overload
def get_dataset(name: Literal["mnist"], *, progress: Progress = True, download: bool = True) -> Parts: ...
@overload
def get_dataset(name: str, *, progress: Progress = True, download: bool = True) -> Any: ...
def get_dataset(name: str, *, progress: Progress = True, download: bool = True) -> Any:
    """A dataset of the paper: from your data folder, or downloaded into it the first time.

    `"covertype"` is a matrix of 581,012 × 55 float32 numbers: the label (1 for lodgepole pine, else 0) and 54 features
    scaled to [0, 1].

    `"mnist"` is `{"train": {"images": ..., "labels": ...}, "test": {...}}`: 55,000 and 10,000 images, each a row of 784
    grey levels in [0, 1], and their labels, one-hot in rows of 10, all float32. As TensorFlow splits them, the training
    part is without the first 5,000 training images.

    The data folder is the one named in the environment variable `SGMCMC_DATA`, or else your platform's cache folder.
    Every file is verified by its checksum. A copy in the cache folder makes later calls quick.

    Args:
        name: `"covertype"` or `"mnist"`.
        progress: True shows a bar while downloading, False nothing; a function is called with what the bar would show.
        download: False never touches the network: a file that is not there is an error.

    >>> import sgmcmc
    >>> sgmcmc.get_dataset("iris")
    Traceback (most recent call last):
    sgmcmc.core.errors.InputError: name is 'iris'; expected one of 'covertype', 'mnist'
    """
    check_choice("name", name, tuple(CATALOGUE))
    check_progress(progress)
    check_choice("download", download, (True, False))
    folder, entry = data_folder(), CATALOGUE[name]
    complete = (files for files in entry.routes if not _missing(files, folder))
    files = next(complete, entry.routes[0])
    for file in _missing(files, folder):
        if not download:
            remedy = f"put it there (from {file.homes[0]}), set {FOLDER_SETTING} to where it is, or leave out download=False"
            raise SgmcmcError(f"{file.name} is not in {folder}, and download=False; {remedy}")
        fetch(file, folder, progress)
    return entry.finish(arrays_of(name, files, folder))


def _missing(files: tuple[DataFile, ...], folder: Path) -> list[DataFile]:
    return [file for file in files if not os.path.isfile(folder / file.name)]


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
    natural = isinstance(seed, numbers.Integral) and not isinstance(seed, bool) and int(seed) >= 0
    if not (natural or isinstance(seed, np.random.Generator)):
        raise InputError(f"seed is {describe(seed)}; expected a whole number such as seed=1, or a NumPy generator")
    in_test = np.zeros(n_rows, bool)
    in_test[np.random.default_rng(seed).choice(n_rows, count, replace=False, shuffle=False)] = True
    train = {name: array[~in_test] for name, array in arrays.items()}
    return train, {name: array[in_test] for name, array in arrays.items()}


def _check_rows(dataset: Any) -> tuple[dict[str, np.ndarray], int]:
    expected = "expected a dict of arrays with rows on the first axis, such as {'X': X, 'y': y}"
    if not hasattr(dataset, "items"):
        raise InputError(f"dataset is {describe(dataset)}; {expected}")
    arrays = {str(name): _check_array(str(name), values) for name, values in dataset.items()}
    if not arrays:
        raise InputError(f"dataset has no arrays; {expected}")
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
    if isinstance(test_size, numbers.Integral) and not isinstance(test_size, bool):
        count = int(test_size)
    elif isinstance(test_size, numbers.Real) and 0 < float(test_size) < 1:
        count = round(float(test_size) * n_rows)
    else:
        raise InputError(f"test_size is {describe(test_size)}; {expected}")
    if not 0 < count < n_rows:
        raise InputError(f"test_size is {test_size}, {count} of {n_rows} rows, which leaves a part empty; {expected}")
    return count
