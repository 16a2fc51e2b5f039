"""The datasets of the paper's examples, read from the user's data folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from pathlib import Path

import numpy as np

from sgmcmc.checks import check_choice
from sgmcmc.errors import SgmcmcError

FOLDER_SETTING = "SGMCMC_DATA"
"""The environment variable that names the data folder."""

COVERTYPE_FILE = "covtype.data.gz"
COVERTYPE_SHA256 = "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"
"""Of the text inside the gzip wrapper, which UCI has made more than once."""


def get_dataset(name: str) -> np.ndarray:
    """A dataset of the paper, from your data folder (the environment variable `SGMCMC_DATA`).

    `"covertype"` is a matrix of 581,012 × 55 float32 numbers: the label (1 for lodgepole pine, else 0) and 54 features
    scaled to [0, 1]. It is read from `covtype.data.gz` as the UCI repository has it (dataset 31), checksum included.

    >>> import sgmcmc
    >>> sgmcmc.get_dataset("iris")
    Traceback (most recent call last):
    sgmcmc.errors.InputError: name is 'iris'; expected one of 'covertype'
    """
    check_choice("name", name, ("covertype",))
    return _covertype(_find(COVERTYPE_FILE, "the UCI Machine Learning Repository, dataset 31"))


def _find(file: str, home: str) -> Path:
    folder = os.environ.get(FOLDER_SETTING)
    if folder is None:
        raise SgmcmcError(f"no data folder is set; put {file} (from {home}) into a folder and name it in {FOLDER_SETTING}")
    path = Path(folder).expanduser() / file
    if not path.is_file():
        raise SgmcmcError(f"{path} is not there; put {file} (from {home}) into that folder, or set {FOLDER_SETTING} to another")
    return path


def _covertype(path: Path) -> np.ndarray:
    import pandas

    text = gzip.decompress(path.read_bytes())
    found = hashlib.sha256(text).hexdigest()
    if found != COVERTYPE_SHA256:
        raise SgmcmcError(f"{path} is damaged or another version: its text has SHA-256 {found}, expected {COVERTYPE_SHA256}")
    raw = pandas.read_csv(io.BytesIO(text), header=None, dtype=np.int16).to_numpy()
    features = raw[:, :54].astype(np.float64)
    low, high = features.min(axis=0), features.max(axis=0)
    label = raw[:, 54:] == 2
    return np.concatenate([label, (features - low) / (high - low)], axis=1, dtype=np.float32, casting="unsafe")
