"""The files of each dataset: what they are called, what is in them, and where they come from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.data.datasets.parse import covertype_from_libsvm, covertype_from_uci, idx, mnist, only


@dataclass(frozen=True)
class DataFile:
    """A packed file.

    Attributes:
        name: of the file, in any folder.
        sha256: checksum of the content; the wrapper around it exists in several versions.
        homes: where to fetch it, in the order to try.
        parse: from content to array.
    """

    name: str
    sha256: str
    homes: tuple[str, ...]
    parse: Callable[[bytes], np.ndarray]


@dataclass(frozen=True)
class Entry:
    """A dataset.

    Attributes:
        routes: sets of files that each suffice; the first is the one to download.
        finish: from the files' arrays to what the user gets.
    """

    routes: tuple[tuple[DataFile, ...], ...]
    finish: Callable[[list[np.ndarray]], Any]


def _mnist(name: str, sha256: str) -> DataFile:
    homes = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return DataFile(name, sha256, tuple(home + name for home in homes), idx)


COVERTYPE_UCI = DataFile(
    "covtype.data.gz",
    "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
    (
        "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
        "https://ndownloader.figshare.com/files/5976039",
    ),
    covertype_from_uci,
)

COVERTYPE_LIBSVM = DataFile(
    "covtype.libsvm.binary.scale.bz2",
    "859809c092ca933e1a8cc1cfa15e33b56cb11651e4e0a5b52b702abc315a6c0f",
    ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/covtype.libsvm.binary.scale.bz2",),
    covertype_from_libsvm,
)

MNIST = (
    _mnist("train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    _mnist("train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    _mnist("t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    _mnist("t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)

CATALOGUE = {
    "covertype": Entry(((COVERTYPE_UCI,), (COVERTYPE_LIBSVM,)), only),
    "mnist": Entry((MNIST,), mnist),
}
