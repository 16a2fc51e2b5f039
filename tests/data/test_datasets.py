"""What `get_dataset` returns, where it looks for files, and what it says of files that are not there or damaged."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from dataset_server import *  # noqa: F403
from dataset_server import CONTENT, NAME, NOWHERE, PACKED, data_file, get, good, names

import sgmcmc
from sgmcmc.data import libsvm
from sgmcmc.data.datasets import FOLDER_SETTING, catalogue, local
from sgmcmc.data.datasets.catalogue import CATALOGUE, COVERTYPE_LIBSVM, COVERTYPE_UCI, MNIST, DataFile, Entry

REAL_FOLDER = Path(os.environ.get(FOLDER_SETTING) or "nowhere")


def needs(*files: DataFile):
    missing = [file.name for file in files if not (REAL_FOLDER / file.name).is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"the data folder ({FOLDER_SETTING}) has no {', '.join(missing)}")


def test_a_file_in_the_folder_is_used_without_the_network(folder, home):
    for wrapped in (PACKED, gzip.compress(CONTENT, 1, mtime=12345)):
        (folder / NAME).write_bytes(wrapped)
        assert good(get())
    assert home.asked == 0
    assert names(folder) == [NAME]


@pytest.mark.parametrize("setting", [None, ""])
def test_without_a_setting_the_cache_folder_is_used(home, monkeypatch, setting):
    if setting is not None:
        monkeypatch.setenv(FOLDER_SETTING, setting)
    assert good(get())
    assert names(local.cache_folder()) == ["covertype.npz", NAME]
    (local.cache_folder() / "covertype.npz").unlink()
    assert good(get(download=False))


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch, home):
    monkeypatch.setenv(FOLDER_SETTING, str(tmp_path / "typo"))
    with pytest.raises(sgmcmc.SgmcmcError, match=r"SGMCMC_DATA is '.*typo', which is not a folder; make it, or set"):
        get()
    assert home.asked == 0
    assert not (tmp_path / "typo").exists()


def test_download_false_stays_off_the_network(folder, home):
    with pytest.raises(sgmcmc.SgmcmcError, match=r"tiny\.gz is not in .*data, and download=False; put it there \(from http"):
        get(download=False)
    assert home.asked == 0
    assert names(folder) == []


def test_wrong_arguments_are_refused_before_anything_is_done(home):
    with pytest.raises(sgmcmc.InputError, match="expected one of 'covertype', 'mnist'"):
        sgmcmc.get_dataset("iris")
    with pytest.raises(sgmcmc.InputError, match="progress is 3"):
        get(progress=3)
    with pytest.raises(sgmcmc.InputError, match="download is 'no'"):
        get(download="no")
    assert home.asked == 0


def test_the_libsvm_file_serves_where_only_that_is_there(folder, monkeypatch):
    files = data_file("a.gz", b"uci", NOWHERE), data_file("b.bz2", b"libsvm", NOWHERE)
    monkeypatch.setitem(CATALOGUE, "covertype", Entry(tuple((file,) for file in files), catalogue.only))
    (folder / "b.bz2").write_bytes(bz2.compress(b"libsvm"))
    assert get().tobytes() == b"libsvm"
    (folder / "a.gz").write_bytes(gzip.compress(b"uci"))
    assert get().tobytes() == b"uci"
    (folder / "a.gz").unlink()
    (folder / "b.bz2").write_bytes(bz2.compress(b"libsvm")[:-1])
    with pytest.raises(sgmcmc.SgmcmcError, match=r"b\.bz2 is damaged or another version: it does not unpack"):
        get()


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (gzip.compress(b"1,2,3"), f"its content has SHA-256 {hashlib.sha256(b'1,2,3').hexdigest()}, expected"),
        (PACKED[:-100], r"it does not unpack \(EOFError"),
        (b"", "its content has SHA-256 e3b0c442"),
        (b"<html></html>", r"it does not unpack \(BadGzipFile"),
        (PACKED[:5000] + b"?" + PACKED[5001:], r"it does not unpack \("),
        (PACKED + b"more", r"it does not unpack \(BadGzipFile"),
    ],
    ids=["other", "truncated", "empty", "not gzip", "a byte changed", "more behind"],
)
def test_a_damaged_file_is_named(folder, offer, home, packed, reason):
    file = offer(home.url)
    (folder / NAME).write_bytes(packed)
    with pytest.raises(sgmcmc.SgmcmcError, match=reason) as caught:
        get()
    message = str(caught.value)
    assert message.startswith(f"{folder / NAME} is damaged or another version: ")
    assert f"SHA-256 {file.sha256}" in message
    assert f"delete it and call again, or put there what {home.url} has" in message
    assert (folder / NAME).read_bytes() == packed
    assert not local.cache_folder().exists()
    (folder / NAME).unlink()
    assert good(get())


def test_a_file_that_cannot_be_read_is_named(folder, home, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    (folder / NAME).write_bytes(PACKED)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(sgmcmc.SgmcmcError, match=r"tiny\.gz cannot be read \(Permission denied\)"):
        get()


def idx(*shape: int, numbers: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + numbers


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it starts with the bytes "),
        (b"\0\0\x0d\x01\0\0\0\0", "it starts with the bytes 00 00 0d 01, expected 00 00 08"),
        (idx(2, 3, numbers=b"12345"), r"its header says shape \(2, 3\), expected one for the 5 numbers it has"),
    ],
    ids=["empty", "floats", "too few"],
)
def test_a_wrong_idx_header_is_named(folder, offer, home, content, reason):
    offer(home.url, content=content, reader=catalogue.idx)
    (folder / NAME).write_bytes(gzip.compress(content))
    with pytest.raises(sgmcmc.SgmcmcError, match=rf"tiny\.gz is damaged or another version: {reason}"):
        get()


def covertype_table(n_rows: int) -> np.ndarray:
    """Rows as UCI has them: ten quantities, two groups of indicators, a class."""
    rng = np.random.default_rng(2)
    quantities = rng.integers(0, catalogue.COVERTYPE_WIDTHS[:10] + 1, (n_rows, 10))
    quantities[:2] = np.zeros(10), catalogue.COVERTYPE_WIDTHS[:10]
    quantities[:, 4] -= 173
    groups = [np.eye(width, dtype=int)[np.r_[:width, rng.integers(0, width, n_rows - width)]] for width in (4, 40)]
    return np.column_stack([quantities, *groups, rng.integers(1, 8, n_rows)])


def test_covertype_from_either_file(monkeypatch):
    monkeypatch.setattr(catalogue, "BLOCK_ROWS", 7)
    monkeypatch.setattr(catalogue, "BLOCK_BYTES", 8 * 54 * 7)
    monkeypatch.setattr(libsvm, "TEXT_BLOCK", 1000)
    table = covertype_table(100)
    features = table[:, :-1]
    features = (features - features.min(0)) / (features.max(0) - features.min(0))
    expected = np.column_stack([table[:, -1] == 2, features]).astype(np.float32)
    text = "".join(",".join(map(str, row)) + "\n" for row in table)
    lines = [
        f"{1 + (kind == 2)} " + "".join(f"{column}:{value:g} " for column, value in enumerate(row, 1) if value) + "\n"
        for row, kind in zip(features, table[:, -1], strict=True)
    ]
    lines[50:50] = ["1 \n"]
    uci, scaled = catalogue.covertype_from_uci(text.encode()), catalogue.covertype_from_libsvm("".join(lines).encode())
    assert uci.dtype == scaled.dtype == np.float32
    np.testing.assert_array_equal(uci, expected)
    np.testing.assert_array_equal(scaled, np.insert(expected, 50, 0, axis=0))


def test_mnist(monkeypatch):
    monkeypatch.setattr(catalogue, "VALIDATION_ROWS", 2)
    images = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
    contents = [idx(5, 28, 28, numbers=images.tobytes()), idx(5, numbers=bytes([0, 1, 2, 3, 9]))] * 2
    parts = catalogue.mnist([catalogue.idx(content) for content in contents])
    assert {name: (part["images"].shape, part["labels"].shape) for name, part in parts.items()} == {
        "train": ((3, 784), (3, 10)),
        "test": ((5, 784), (5, 10)),
    }
    np.testing.assert_array_equal(parts["train"]["images"], images[2:].reshape(3, 784).astype(np.float32) / 255)
    np.testing.assert_array_equal(parts["train"]["labels"].argmax(1), [2, 3, 9])
    assert all(array.dtype == np.float32 and array.flags.writeable for part in parts.values() for array in part.values())


@needs(COVERTYPE_UCI, COVERTYPE_LIBSVM)
def test_real_covertype_is_the_same_from_both_files(folder, monkeypatch):
    (folder / COVERTYPE_LIBSVM.name).symlink_to(REAL_FOLDER / COVERTYPE_LIBSVM.name)
    scaled = sgmcmc.get_dataset("covertype", download=False)
    monkeypatch.setenv(FOLDER_SETTING, str(REAL_FOLDER))
    uci = sgmcmc.get_dataset("covertype", download=False)
    assert uci.shape == (581_012, 55)
    assert uci.dtype == scaled.dtype == np.float32
    assert (uci[:, 0].sum(), uci.min(), uci.max()) == (283_301, 0, 1)
    np.testing.assert_array_equal(scaled, uci)


@needs(*MNIST)
def test_real_mnist(monkeypatch):
    monkeypatch.setenv(FOLDER_SETTING, str(REAL_FOLDER))
    mnist = sgmcmc.get_dataset("mnist", download=False)
    assert {name: [(array.shape, array.dtype) for array in part.values()] for name, part in mnist.items()} == {
        "train": [((55_000, 784), np.float32), ((55_000, 10), np.float32)],
        "test": [((10_000, 784), np.float32), ((10_000, 10), np.float32)],
    }
    counts = {name: part["labels"].sum(axis=0).astype(int).tolist() for name, part in mnist.items()}
    assert counts["train"] == [5444, 6179, 5470, 5638, 5307, 4987, 5417, 5715, 5389, 5454]
    assert counts["test"] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    for part in mnist.values():
        assert (part["images"].min(), part["images"].max()) == (0, 1)
