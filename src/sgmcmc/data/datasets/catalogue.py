"""The files of each dataset: what they are called, where they come from, and how their content becomes arrays."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.data.libsvm import read_rows

COVERTYPE_WIDTHS = np.array([1999, 360, 66, 1397, 774, 7117, 254, 254, 254, 7173] + [1] * 44)
"""Largest minus smallest whole number in each column as UCI has it."""

LODGEPOLE_PINE = 2
BLOCK_ROWS = 20_000
BLOCK_BYTES = 1 << 22
"""Rows are turned over in blocks: one double precision copy of everything would be the largest thing in memory."""

VALIDATION_ROWS = 5000
"""Rows at the start of MNIST's training files that TensorFlow's split keeps for validation."""


class DamagedError(Exception):
    """Bytes that are not what the catalogue says: what was found, and what was expected."""


@dataclass(frozen=True)
class DataFile:
    """A packed file: the checksum of its content (the wrapper exists in several versions), and where to fetch it, in order."""

    name: str
    sha256: str
    homes: tuple[str, ...]
    parse: Callable[[bytes], np.ndarray]


@dataclass(frozen=True)
class Entry:
    """A dataset: sets of files that each suffice, the first to be downloaded, and what the user gets of the files' arrays."""

    routes: tuple[tuple[DataFile, ...], ...]
    finish: Callable[[list[np.ndarray]], Any]


def covertype_from_uci(content: bytes) -> np.ndarray:
    """Rows of 54 whole numbers and a class from 1 to 7."""
    import pandas

    raw = pandas.read_csv(io.BytesIO(content), header=None, dtype=np.int16).to_numpy()
    features, kind = raw[:, :-1], raw[:, -1]
    low = features.min(axis=0).astype(np.float64)
    width = features.max(axis=0) - low
    table = np.empty(raw.shape, np.float32)
    table[:, 0] = kind == LODGEPOLE_PINE
    for start in range(0, len(raw), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        table[rows, 1:] = (features[rows] - low) / width
    return table


def covertype_from_libsvm(content: bytes) -> np.ndarray:
    """LIBSVM text: labels 1 and 2, values scaled.

    The values have six digits, enough to recover the whole numbers behind them: the array is that of UCI's file, bit for bit.
    """
    table, done = np.empty((content.count(b"\n"), 1 + len(COVERTYPE_WIDTHS)), np.float32), 0
    for features, labels in read_rows(io.BytesIO(content), len(COVERTYPE_WIDTHS), BLOCK_BYTES, "covertype"):
        rows = slice(done, done + len(labels))
        table[rows, 0] = labels - 1
        table[rows, 1:] = np.rint(features * COVERTYPE_WIDTHS) / COVERTYPE_WIDTHS
        done += len(labels)
    return table


def idx(content: bytes) -> np.ndarray:
    """Two zero bytes, 8 for uint8, the number of axes, a big-endian uint32 for each, then the numbers."""
    n_axes = content[3] if len(content) > 3 else 0
    start = 4 + 4 * n_axes
    if content[:3] != b"\0\0\x08" or n_axes == 0 or len(content) < start:
        raise DamagedError(f"it starts with the bytes {content[:4].hex(' ')}, expected 00 00 08 and how many axes (idx)")
    shape = tuple(np.frombuffer(content, ">u4", n_axes, 4).tolist())
    if math.prod(shape) != len(content) - start:
        raise DamagedError(f"its header says shape {shape}, expected one for the {len(content) - start} numbers it has")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def only(arrays: list[np.ndarray]) -> np.ndarray:
    """The dataset is its one array."""
    return arrays[0]


def mnist(arrays: list[np.ndarray]) -> dict[str, Any]:
    """Images in rows, grey levels from 0 to 1, labels one-hot; the first rows of the training files are left out."""
    images, labels, test_images, test_labels = arrays
    train, test = _mnist_part(images[VALIDATION_ROWS:], labels[VALIDATION_ROWS:]), _mnist_part(test_images, test_labels)
    return {"train": train, "test": test}


def _mnist_part(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    grey = np.divide(images.reshape(len(images), -1), np.float32(255), dtype=np.float32)
    return {"images": grey, "labels": np.eye(10, dtype=np.float32)[labels]}


def _mnist(name: str, sha256: str) -> DataFile:
    homes = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return DataFile(name, sha256, tuple(home + name for home in homes), idx)


UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz"
FIGSHARE = "https://ndownloader.figshare.com/files/5976039"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/covtype.libsvm.binary.scale.bz2"

OF_UCI, OF_LIBSVM = (
    "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
    "859809c092ca933e1a8cc1cfa15e33b56cb11651e4e0a5b52b702abc315a6c0f",
)
COVERTYPE_UCI = DataFile("covtype.data.gz", OF_UCI, (UCI, FIGSHARE), covertype_from_uci)
COVERTYPE_LIBSVM = DataFile("covtype.libsvm.binary.scale.bz2", OF_LIBSVM, (LIBSVM,), covertype_from_libsvm)

MNIST = (
    _mnist("train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    _mnist("train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    _mnist("t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    _mnist("t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)

CATALOGUE = {"covertype": Entry(((COVERTYPE_UCI,), (COVERTYPE_LIBSVM,)), only), "mnist": Entry((MNIST,), mnist)}
