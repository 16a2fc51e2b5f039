"""The datasets of the paper's examples, and the split into training and testing rows."""

import os
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from sgmcmc.core.checks import Progress, check_choice, check_progress
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.data.datasets.catalogue import CATALOGUE, DataFile
from sgmcmc.data.datasets.contents import arrays_of
from sgmcmc.data.datasets.download import download as fetch
from sgmcmc.data.datasets.folders import FOLDER_SETTING, data_folder
from sgmcmc.data.datasets.split import train_test_split

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
        _obtain(file, folder, progress, download)
    return entry.finish(arrays_of(name, files, folder))


def _missing(files: tuple[DataFile, ...], folder: Path) -> list[DataFile]:
    return [file for file in files if not os.path.isfile(folder / file.name)]


def _obtain(file: DataFile, folder: Path, progress: Progress, download: bool) -> None:
    if not download:
        raise SgmcmcError(
            f"{file.name} is not in {folder}, and download=False; put it there (from {file.homes[0]}), "
            f"or set {FOLDER_SETTING} to the folder that has it, or leave out download=False"
        )
    fetch(file, folder, progress)
