"""From the content of a file to an array."""

import io
import math
from typing import Any

import numpy as np

from sgmcmc.data.datasets.contents import DamagedError
from sgmcmc.data.libsvm import read_rows

COVERTYPE_WIDTHS = np.array([1999, 360, 66, 1397, 774, 7117, 254, 254, 254, 7173] + [1] * 44)
"""Largest minus smallest whole number in each column as UCI has it."""

LODGEPOLE_PINE = 2
BLOCK_ROWS = 20_000
BLOCK_BYTES = 1 << 22
"""Rows are turned over in blocks: one double precision copy of everything would be the largest thing in memory."""

VALIDATION_ROWS = 5000
"""Rows at the start of MNIST's training files that TensorFlow's split keeps for validation."""


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
        raise DamagedError(
            f"it starts with the bytes {content[:4].hex(' ')}, expected 00 00 08 and the number of axes (idx, uint8)"
        )
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
    return {
        "train": {"images": _grey(images[VALIDATION_ROWS:]), "labels": _one_hot(labels[VALIDATION_ROWS:])},
        "test": {"images": _grey(test_images), "labels": _one_hot(test_labels)},
    }


def _grey(images: np.ndarray) -> np.ndarray:
    return np.divide(images.reshape(len(images), -1), np.float32(255), dtype=np.float32)


def _one_hot(labels: np.ndarray) -> np.ndarray:
    return np.eye(10, dtype=np.float32)[labels]
