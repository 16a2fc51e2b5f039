"""A folder of rows on disk: what is read is what was written, and every fault is a clear error."""

from __future__ import annotations

import gc
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import sgmcmc.data
from sgmcmc import InputError, SgmcmcError
from sgmcmc.core.files import write_json
from sgmcmc.rows import files
from sgmcmc.rows.files import HEADER, open_rows, row_file

N = 1_000


@pytest.fixture
def arrays():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 3, 7)).astype(np.float32)
    return {"X": X, "y": rng.integers(0, 9, N).astype(np.int32), "odd name/é": rng.random(N) < 0.5}


@pytest.fixture
def folder(arrays, tmp_path):
    sgmcmc.data.convert(arrays, tmp_path / "rows", shuffle=False, progress=False)
    return tmp_path / "rows"


def test_slices_rows_and_numbers_of_rows_are_numpys(folder, arrays):
    rows = open_rows(folder)
    index = np.random.default_rng(2).integers(0, N, (5, 20)).astype(np.int32)
    assert set(rows) == set(arrays)
    for name, array in arrays.items():
        column = rows[name]
        assert (column.shape, column.dtype, column.ndim, column.nbytes) == (array.shape, array.dtype, array.ndim, array.nbytes)
        for part in (slice(None), slice(10, 20), slice(-5, None), slice(20, 10), slice(990, 2000), 3, -1, [5, 2, 5]):
            assert np.array_equal(column[part], array[part])
        assert np.array_equal(column.rows(index), array[index])
        assert np.array_equal(np.asarray(column), array)
        out = np.empty((5, 20, *array.shape[1:]), array.dtype)
        column.will_need(index)
        assert column.rows(index, out) is out
        assert np.array_equal(out, array[index])


def test_slices_are_fresh_and_aligned(folder):
    column = open_rows(folder)["X"]
    first, again = column[1:50], column[1:50]
    first[:] = 0
    assert again.any()
    assert not again.ctypes.data % 64
    assert not column.rows(np.arange(3)).ctypes.data % 64


def test_rows_that_are_not_there(folder):
    column = open_rows(folder)["y"]
    with pytest.raises(IndexError, match=r"row 1000 of y\.rows, which has 1000 rows"):
        column[N]
    for index in ([0, N], [-1, 3]):
        with pytest.raises(IndexError, match="which has 1000 rows"):
            column.rows(np.array(index))
    with pytest.raises(InputError, match="expected contiguous rows"):
        column[::2]
    with pytest.raises(InputError, match="expected row numbers"):
        column.rows(np.array([0.5]))


def test_many_threads_read_at_once(folder, arrays):
    column, wrong = open_rows(folder)["X"], []

    def read(start):
        for _ in range(50):
            if not np.array_equal(column[start : start + 100], arrays["X"][start : start + 100]):
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_files_are_closed_with_the_column(folder):
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    rows = open_rows(folder)
    rows["X"][:1], rows["y"].rows(np.arange(2))
    del rows
    gc.collect()
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_where_there_are_no_reads_at_a_position(folder, arrays, monkeypatch):
    monkeypatch.delattr(os, "preadv", raising=False)
    assert np.array_equal(open_rows(folder)["X"][5:900], arrays["X"][5:900])


def test_a_folder_says_what_it_is(folder, arrays):
    rows = open_rows(folder)
    assert rows.n_rows == N
    assert rows.nbytes == sum(array.nbytes for array in arrays.values()) == 89_000
    assert not rows.shuffled
    assert str(rows).splitlines() == [
        f"RowFolder {folder}: 1,000 rows, 89.0 kB, in their original order",
        "  X: float32, rows of 3 × 7",
        "  y: int32",
        "  odd name/é: bool",
    ]
    header = json.loads((folder / HEADER).read_text())
    assert rows.checksum == header["checksum"]
    assert header["finite"] is True
    assert header["version"] == 1
    assert open_rows(folder).checksum == rows.checksum


def test_in_memory_it_is_the_same(folder, arrays):
    rows = sgmcmc.data.open(folder, in_memory=True)
    assert (rows.n_rows, rows.nbytes, rows.shuffled) == (N, 89_000, False)
    assert rows.checksum == open_rows(folder).checksum
    for name, array in arrays.items():
        assert isinstance(rows[name], np.ndarray)
        assert np.array_equal(rows[name], array)


# Faults


def test_not_a_folder_of_rows(tmp_path):
    with pytest.raises(InputError, match=r"nowhere is not a folder; expected one made by sgmcmc\.data\.convert"):
        open_rows(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"has no header\.json: it is not a folder of rows"):
        open_rows(tmp_path)


def test_an_unfinished_conversion(folder):
    (folder / HEADER).unlink()
    with pytest.raises(InputError, match=r"unfinished; run the same sgmcmc\.data\.convert call again"):
        open_rows(folder)


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: text.replace("1000", "1001"), lambda text: "[]", lambda text: ""]
)
def test_a_damaged_header(folder, damage):
    (folder / HEADER).write_text(damage((folder / HEADER).read_text()))
    with pytest.raises(InputError, match=r"header\.json is damaged; .*overwrite=True"):
        open_rows(folder)


def test_a_later_format(folder):
    header = json.loads((folder / HEADER).read_text())
    header.pop("checksum")
    header["version"] = 2
    write_json(folder / HEADER, header)
    with pytest.raises(InputError, match="has format version 2, this release of sgmcmc reads version 1"):
        open_rows(folder)


def test_a_file_cut_short_or_gone_is_told_on_opening(folder):
    with open(row_file(folder, "X"), "r+b") as file:
        file.truncate(83_999)
    with pytest.raises(InputError, match=r"X\.rows has 83,999 bytes, the header says 84,000"):
        open_rows(folder)
    row_file(folder, "X").unlink()
    with pytest.raises(InputError, match=r"X\.rows is not readable .*put it back"):
        open_rows(folder)


def test_a_file_cut_short_after_opening_is_told_on_reading(folder):
    column = open_rows(folder)["X"]
    column.rows(np.arange(3))
    with open(column.path, "r+b") as file:
        file.truncate(40_000)
    with pytest.raises(
        SgmcmcError, match=r"X\.rows: the file ends within rows 0 to 999: expected 84,000 bytes at byte 0, got 40,000"
    ):
        column[:]
    for gather in (column.rows, column.will_need):  # a look into the map would end the process
        with pytest.raises(SgmcmcError, match=r"expected a file of 84,000 bytes, found 40,000; check the disk"):
            gather(np.array([N - 1]))
    assert len(column[:10]) == 10


def test_a_file_gone_after_opening_is_told_on_reading(folder):
    column = open_rows(folder)["y"]
    column.path.unlink()
    for read in (lambda: column[:10], lambda: column.rows(np.arange(10))):
        with pytest.raises(SgmcmcError, match=r"y\.rows: .*No such file.*check the disk, or convert the data again"):
            read()


def test_an_error_of_the_disk(folder, monkeypatch):
    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(SgmcmcError, match=r"y\.rows: rows 5 to 9 could not be read \(.*Input/output error\)"):
        open_rows(folder)["y"][5:10]


def test_a_flipped_bit_is_found_by_verifying(folder):
    read = []
    files.verify(open_rows(folder), read.append)
    assert sum(read) == 89_000
    with open(row_file(folder, "y"), "r+b") as file:
        file.seek(1_234)
        bit = file.read(1)[0] ^ 1
        file.seek(1_234)
        file.write(bytes([bit]))
    rows = open_rows(folder)
    with pytest.raises(SgmcmcError, match=r"y\.rows is damaged: its sha256 is"):
        sgmcmc.data.verify(rows, progress=False)
