"""Making a folder of rows: the same bytes from every format, in the stated order, however often it is interrupted."""

from __future__ import annotations

import bz2
import errno
import filecmp
import gzip
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc import InputError, SgmcmcError
from sgmcmc.data import convert, readers, writing
from sgmcmc.data import open as open_folder
from sgmcmc.rows import sources
from sgmcmc.rows.files import open_rows

N, D = 997, 5
NAMES = ["y", *[f"x{j}" for j in range(D)]]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = np.where(rng.random((N, D)) < 0.7, rng.normal(size=(N, D)), 0).astype(np.float32)
    return {"X": X, "y": rng.integers(0, 3, N).astype(np.int32)}


@pytest.fixture(scope="module")
def frame(table):
    columns = {"y": table["y"]} | {f"x{j}": table["X"][:, j] for j in range(D)}
    return pd.DataFrame(columns)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Many blocks, so that their edges are tested too; and nobody pulls the plug, so there is no waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 8 * (D + 1) * 100)


def in_order(table, seed=sources.SHUFFLE_SEED):
    order = np.argsort(np.random.PCG64(seed).random_raw(len(table["y"])), kind="stable")
    return {name: values[order] for name, values in table.items()}


def same_files(one, other):
    names = sorted(path.name for path in Path(one).iterdir() if path.suffix == ".rows" or path.name == "header.json")
    assert names == sorted(path.name for path in Path(other).iterdir() if path.name != "conversion.json")
    assert filecmp.cmpfiles(one, other, names, shallow=False) == (names, [], [])


def libsvm_text(table):
    lines = []
    for label, row in zip(table["y"], table["X"], strict=True):
        lines.append(" ".join([str(label), *[f"{j + 1}:{value!s}" for j, value in enumerate(row) if value]]))
    return "\n".join(lines)


CHOICE = {"columns": {"X": [f"x{j}" for j in range(D)], "y": "y"}}
LIBSVM = {"dtype": {"y": "int32"}}


def csv(frame, table, path):
    frame.to_csv(path / "a.csv", index=False)
    return path / "a.csv", CHOICE


def csv_rest(frame, table, path):
    frame.to_csv(path / "a.csv.gz", index=False)
    return str(path / "a.csv.gz"), {"columns": {"X": ..., "y": "y"}}


def csv_without_header(frame, table, path):
    frame.to_csv(path / "a.data", index=False, header=False, sep=";")
    return path / "a.data", {**CHOICE, "names": NAMES, "format": "csv", "separator": ";"}


def tsv(frame, table, path):
    frame.to_csv(path / "a.tsv", index=False, sep="\t")
    return path / "a.tsv", CHOICE


def several_csv(frame, table, path):
    for number, (start, stop) in enumerate([(0, 10), (10, 10), (10, 700), (700, N)]):
        order = NAMES if number % 2 else NAMES[::-1]
        frame.iloc[start:stop][order].to_csv(path / f"part-{number}.csv", index=False)
    return str(path / "part-*.csv"), CHOICE


def parquet(frame, table, path):
    frame.to_parquet(path / "a.parquet", row_group_size=300)
    return path / "a.parquet", CHOICE


def several_parquet(frame, table, path):
    frame.iloc[:400].to_parquet(path / "0.parquet")
    frame.iloc[400:].to_parquet(path / "1.parquet")
    return [path / "0.parquet", path / "1.parquet"], CHOICE


def feather(frame, table, path):
    frame.to_feather(path / "a.feather", chunksize=130)
    return path / "a.feather", CHOICE


def arrow_stream(frame, table, path):
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(table["X"].ravel()), D)
    whole = pa.table({"X": lists, "y": table["y"]})
    with pa.ipc.new_stream(path / "a.arrow", whole.schema) as writer:
        writer.write_table(whole, 77)
    return path / "a.arrow", {}


def libsvm(frame, table, path):
    (path / "a.svm").write_text(libsvm_text(table))
    return path / "a.svm", LIBSVM


def libsvm_compressed(frame, table, path):
    text = "# a comment\n\n" + libsvm_text(table).replace("\n", " # here too\r\n") + "\n"
    (path / "a.binary.bz2").write_bytes(bz2.compress(text.encode()))
    return path / "a.binary.bz2", {**LIBSVM, "format": "libsvm", "n_features": D}


def zarr_store(frame, table, path):
    import zarr

    group = zarr.open_group(path / "store", mode="w")
    for name, values in table.items():
        group.create_array(name, data=values, chunks=(64, *values.shape[1:]))
    return path / "store", {}


def zarr_arrays(frame, table, path):
    import zarr

    return {name: zarr.array(values, chunks=(50, *values.shape[1:])) for name, values in table.items()}, {}


def arrays(frame, table, path):
    return {"X": table["X"].astype(np.float64), "y": table["y"].tolist()}, {}


def data_frame(frame, table, path):
    return frame, CHOICE


def blocks(frame, table, path):
    edges = [0, 1, 1, 5, 300, 301, N]
    return (
        lambda: ({name: v[a:b] for name, v in table.items()} for a, b in itertools.pairwise(edges)),
        {},
    )


def folder_of_rows(frame, table, path):
    return convert(table, path / "first", shuffle=False, progress=False), {}


SOURCES = [csv, csv_rest, csv_without_header, tsv, several_csv, parquet, several_parquet, feather, arrow_stream, libsvm]
SOURCES += [libsvm_compressed, zarr_store, zarr_arrays, arrays, data_frame, blocks, folder_of_rows]


@pytest.fixture(scope="module")
def expected(table, tmp_path_factory):
    """What all of them must give."""
    folder = tmp_path_factory.mktemp("expected") / "rows"
    convert(table, folder, progress=False)
    return folder


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_every_format_gives_the_same_bytes(source, frame, table, expected, tmp_path):
    given, options = source(frame, table, tmp_path)
    rows = convert(given, tmp_path / "rows", progress=False, memory=5_000, **options)
    assert rows.shuffled
    same_files(expected, tmp_path / "rows")
    for name, values in in_order(table).items():
        assert np.array_equal(rows[name][:], values)
    assert {path.name for path in (tmp_path / "rows").iterdir()} == {"header.json", "conversion.json", "X.rows", "y.rows"}


@pytest.mark.parametrize("memory", [100, 1_000, 3_000, 20_000, 2**27])
def test_the_order_is_that_of_the_stream_whatever_the_memory(memory, table, tmp_path):
    few = {name: values[:150] for name, values in table.items()}
    rows = convert(few, tmp_path / "rows", seed=7, memory=memory, progress=False)
    for name, values in in_order(few, 7).items():
        assert np.array_equal(rows[name][:], values)
    assert not np.array_equal(rows["X"][:], in_order(few, 8)["X"])


def test_rows_with_equal_numbers_keep_their_order(table, tmp_path, monkeypatch):
    def coarse(seed, start, count):
        return np.random.PCG64(seed).advance(start).random_raw(count) >> np.uint64(60) << np.uint64(60)

    monkeypatch.setattr(writing, "keys", coarse)
    rows = convert(table, tmp_path / "rows", seed=7, memory=4_000, progress=False)
    order = np.argsort(coarse(7, 0, N), kind="stable")
    assert np.array_equal(rows["X"][:], table["X"][order])


def test_the_stream_can_be_entered_anywhere():
    whole = np.random.PCG64(3).random_raw(1_000)
    assert np.array_equal(np.concatenate([writing.keys(3, start, 100) for start in range(0, 1_000, 100)]), whole)


def test_without_shuffling_rows_stay_in_place(frame, table, tmp_path):
    given, options = several_csv(frame, table, tmp_path)
    rows = convert(given, tmp_path / "rows", shuffle=False, memory=5_000, progress=False, **options)
    assert not rows.shuffled
    assert not open_folder(tmp_path / "rows", in_memory=True).shuffled
    for name, values in table.items():
        assert np.array_equal(rows[name][:], values)
    sgmcmc.data.verify(rows, progress=False)


def test_types(tmp_path):
    given = {"f": np.array([0.1, 2.0]), "i": np.array([1, -2]), "b": np.array([True, False]), "h": np.array([1, 2], np.float16)}
    rows = convert(given, tmp_path / "a", shuffle=False, progress=False)
    assert {name: rows[name].dtype.str for name in rows} == {"f": "<f4", "i": "<i4", "b": "|b1", "h": "<f4"}
    rows = convert(given, tmp_path / "b", dtype="float64", shuffle=False, progress=False)
    assert {name: rows[name].dtype.str for name in rows} == {"f": "<f8", "i": "<i4", "b": "|b1", "h": "<f8"}
    assert rows["f"][0] == 0.1
    rows = convert(given, tmp_path / "c", dtype={"h": "int8", "i": "float32"}, shuffle=False, progress=False)
    assert {name: rows[name].dtype.str for name in rows} == {"f": "<f4", "i": "<f4", "b": "|b1", "h": "|i1"}
    big = convert({"x": np.array([2**40])}, tmp_path / "d", dtype={"x": np.int64}, progress=False)
    assert big["x"][0] == 2**40


# What is refused, and how


def refused(source, tmp_path, message, **options):
    with pytest.raises(InputError, match=message):
        convert(source, tmp_path / "rows", progress=False, **options)
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,,3", r"a\.csv, row 251, column 'b' is missing or not a number; expected a finite number"),
        ("1,inf,3", r"a\.csv, row 251, column 'b' is inf; expected a finite number"),
        (
            "1,1e300,3",
            r"row 251, column 'b' is 1e\+300, which float32, the type of array 'b', cannot hold; say dtype={'b': 'float64'}",
        ),
        ("1.5,2,3", r"row 251, column 'a' is 1\.5, which int32, .* cannot hold; say dtype={'a': 'float32'}"),
        ("3000000000,2,3", r"row 251, column 'a' is 3000000000, which int32, .* say dtype={'a': 'int64'}"),
        ("1,green,3", r"a\.csv, row 251, column 'b' is 'green'; expected a number"),
        ("1,2,3,4", r"a\.csv is not a table in CSV \(.*line 252.*\)"),
        ("1,2", r"a\.csv, row 251, column 'c' is missing or not a number"),
    ],
)
def test_a_bad_line_is_named(line, message, tmp_path):
    good = ["a,b,c", *["1,0.5,3"] * 250]
    (tmp_path / "a.csv").write_text("\n".join([*good, line, "1,2.5,3"]))
    refused(tmp_path / "a.csv", tmp_path, message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2:0.5 2:0.5", r"a\.svm, row 21 is '1 2:0\.5 2:0\.5'; expected a label, then index:value, indices ascending"),
        ("1 0:0.5", "row 21 is .* ascending from 1"),
        ("1 3", "row 21"),
        ("1 3:", "row 21"),
        ("1 x:3", "row 21"),
        ("1,2 1:3", "row 21"),
        ("1 qid:3 4:5", "row 21"),
        ("1 2:nan", "row 21 is '1 2:nan'"),
        ("inf 2:1", "row 21, column 'y' is inf"),
    ],
)
def test_a_bad_line_of_libsvm_is_named(line, message, tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2 3:4\n" * 20 + line + "\n1 1:2 3:4\n")
    refused(tmp_path / "a.svm", tmp_path, message, n_features=9)
    refused(tmp_path / "a.svm", tmp_path, "has a feature 3 in rows|row 21", n_features=2)


def test_missing_values_of_parquet_are_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for values, message in [
        (pa.array([1, None, 3]), "column 'a' is missing"),
        (pa.array([True, None, False]), "row 2, column 'a' is None"),
        (pa.array(["1", "x", "2"]), "row 2, column 'a' is 'x'"),
    ]:
        pq.write_table(pa.table({"a": values}), tmp_path / "a.parquet")
        refused(tmp_path / "a.parquet", tmp_path, message)


def test_columns_that_are_not_there(frame, table, tmp_path):
    given, _ = csv(frame, table, tmp_path)
    refused(given, tmp_path, r"a\.csv has no column 'z'; it has 'x0'", columns={"y": ["x0", "z"]})
    frame.assign(z=1).to_csv(tmp_path / "b.csv", index=False)
    refused([given, tmp_path / "b.csv"], tmp_path, r"b\.csv has columns that were not there before: 'z'")
    refused([tmp_path / "b.csv", given], tmp_path, r"a\.csv has no column 'z'")
    rows = convert([given, tmp_path / "b.csv"], tmp_path / "rows", progress=False, **CHOICE)
    assert rows.n_rows == 2 * N


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nothing.csv", {}, "there is no file 'nothing.csv'"),
        (3, {}, "source is 3; expected the path of"),
        ([], {}, r"source is \[\]"),
        (iter([]), {}, "source has no blocks of rows"),
        (lambda: iter([{"x": np.zeros(0)}]), {}, "the source has no rows"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, {}, r"different numbers of rows, {'x': 3, 'y': 4}"),
        (lambda: iter([{"x": [1.0], "y": [1.0, 2.0]}]), {}, r"the blocks, from row 1: different numbers of rows"),
        (
            lambda: iter([{"x": [[1.0]]}, {"x": [[1.0, 2.0]]}]),
            {},
            r"from row 2: 'x' has rows of shape \(2,\), before it was \(1,\)",
        ),
        (lambda: iter([{"x": [1.0]}, [1.0]]), {}, r"block 1 is \[1\.0\]; expected a dict of arrays"),
        ({"x": 3.0}, {}, "expected an array with rows on the first axis"),
        ({"x": np.array(["a"])}, {}, "column 'x' is .*expected a number"),
        ({"x": np.zeros((3, 0))}, {}, "which hold nothing"),
        ({"x": [1.0], "X": [1.0]}, {}, "differ in case only"),
        ({"x": [1.0]}, {"columns": {"x": 1}}, r"columns\['x'\] is 1; expected a dict such as"),
        ({"x": [1.0]}, {"columns": ["x"]}, r"columns is \['x'\]; expected a dict such as"),
        ({"x": [[1.0]]}, {"columns": {"a": ["x"]}}, "only columns can be put side by side"),
        ({"x": [1.0]}, {"dtype": "int32"}, "dtype is 'int32'; expected one of 'float32', 'float64', or a dict"),
        ({"x": [1.0]}, {"dtype": {"z": "int32"}}, "dtype is for 'z'; the arrays are 'x'"),
        ({"x": [1.0]}, {"dtype": {"x": "complex64"}}, "expected one of 'bool'"),
        ({"x": [1.0]}, {"seed": -1}, "seed is -1; expected a whole number"),
        ({"x": [1.0]}, {"memory": 0}, "memory is 0; expected a whole number of at least 1"),
        ({"x": [1.0]}, {"format": "excel"}, "format is 'excel'; expected one of"),
        ({"x": [1.0]}, {"names": "abc"}, "names is 'abc'; expected a list"),
    ],
)
def test_bad_arguments(source, options, message, tmp_path):
    refused(source, tmp_path, message, **options)


def test_files_that_are_not_what_they_seem(tmp_path):
    (tmp_path / "a.txt").write_text("x\n1\n")
    refused(tmp_path / "a.txt", tmp_path, "does not tell its format; say format=, one of 'csv'")
    refused(tmp_path, tmp_path, "is a folder; give a pattern such as")
    for name, message in [
        ("a.parquet", "is not a Parquet file"),
        ("a.arrow", "neither an Arrow file"),
        ("a.csv", "not a table in CSV"),
    ]:
        (tmp_path / name).write_bytes(b"" if name == "a.csv" else b"nonsense" * 10)
        refused(tmp_path / name, tmp_path, message)
    refused([tmp_path / "a.csv", tmp_path / "a.arrow"], tmp_path, "different formats")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x\n" + b"1\n" * 10_000)[:-20])
    refused(tmp_path / "b.csv.gz", tmp_path, "cannot be decompressed")


def test_formats_of_the_extra_say_what_to_install(frame, table, tmp_path, monkeypatch):
    given, options = parquet(frame, table, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    refused(given, tmp_path, r"needs pyarrow, which is not installed; pip install 'sgmcmc\[data\]'", **options)


# Again, interrupted, and with a full disk


def test_the_same_call_returns_what_is_there(table, tmp_path):
    first = convert(table, tmp_path / "rows", progress=False)
    before = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    assert convert(table, tmp_path / "rows", progress=False).checksum == first.checksum
    assert before == {path: path.stat().st_mtime_ns for path in first.path.iterdir()}


def test_another_call_is_refused_unless_it_may_overwrite(table, tmp_path):
    convert(table, tmp_path / "rows", progress=False)
    with pytest.raises(InputError, match=r"holds the data of another call: seed is 5, there it was 20180512; .*overwrite=True"):
        convert(table, tmp_path / "rows", seed=5, progress=False)
    changed = {**table, "y": table["y"] + 1}
    with pytest.raises(InputError, match="another call: source is"):
        convert(changed, tmp_path / "rows", progress=False)
    rows = convert(changed, tmp_path / "rows", progress=False, overwrite=True)
    assert np.array_equal(rows["y"][:], in_order(changed)["y"])


def test_overwriting_mends_a_damaged_file(table, expected, tmp_path):
    rows = convert(table, tmp_path / "rows", progress=False)
    rows["X"].path.write_bytes(b"")
    convert(table, tmp_path / "rows", progress=False, overwrite=True)
    same_files(expected, tmp_path / "rows")


def test_a_folder_of_something_else_is_never_touched(table, tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"is not empty and not a folder of rows \(it has 'thesis\.tex'\)"):
            convert(table, tmp_path, progress=False, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_full_disk_at_any_write_and_on_again(shuffled, table, tmp_path, monkeypatch):
    whole = convert(table, tmp_path / "whole", memory=8_000, shuffle=shuffled, progress=False)
    written, limit = 0, 0

    def full(file, view):
        nonlocal written
        if written >= limit:
            raise OSError(errno.ENOSPC, "No space left on device")
        written += 1
        return os.write(file, view[: max(1, len(view) // 2)])  # a disk may take a part only

    monkeypatch.setattr(writing, "write", full)
    told = []
    while not (tmp_path / "rows" / "header.json").exists():
        written, limit = 0, 60  # a run and its checkpoint come to less
        try:
            convert(table, tmp_path / "rows", memory=8_000, shuffle=shuffled, progress=False)
        except SgmcmcError as error:
            told.append(str(error))
    assert all("is full (" in message and "make room and run the same call again" in message for message in told)
    assert len(told) >= 3
    same_files(whole.path, tmp_path / "rows")


def test_an_unfinished_folder_of_another_call_is_refused(table, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "write", lambda file, view: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(SgmcmcError, match="is full"):
        convert(table, tmp_path / "rows", progress=False)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"unfinished conversion of another call: dtype is \"float64\", there it was null"):
        convert(table, tmp_path / "rows", dtype="float64", progress=False)
    with pytest.raises(InputError, match="unfinished; run the same"):
        open_rows(tmp_path / "rows")
    assert convert(table, tmp_path / "rows", dtype="float64", overwrite=True, progress=False)["X"].dtype == np.float64


def test_a_folder_that_cannot_be_written(table, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(SgmcmcError, match=r"could not be written .*check its permissions"):
        convert(table, tmp_path / "file" / "rows", progress=False)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SgmcmcError, match=r"could not be written \(.*Permission denied\); check its permissions"):
        convert(table, tmp_path / "rows", progress=False)


def test_too_small_a_disk_is_told_before_anything_is_written(table, tmp_path, monkeypatch):
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10_000}))
    needed = N * (24 + 32)
    with pytest.raises(
        SgmcmcError, match=rf"has 10\.0 kB free, .* needs {needed / 1e3:.1f} kB more .*: {needed / 1e3 - 10:.1f} kB are missing"
    ):
        convert(table, tmp_path / "rows", progress=False)
    monkeypatch.undo()
    assert convert(table, tmp_path / "rows", progress=False).n_rows == N


def test_a_source_that_fails_half_way(table, expected, tmp_path):
    def failing(broken):
        for start in range(0, N, 100):
            if broken and start == 500:
                raise OSError(errno.EIO, "Input/output error")
            yield {name: values[start : start + 100] for name, values in table.items()}

    with pytest.raises(SgmcmcError, match=r"the blocks could not be read .* run the same call again"):
        convert(lambda: failing(True), tmp_path / "rows", memory=8_000, progress=False)
    assert json.loads((tmp_path / "rows" / "conversion.json").read_text())["rows"] > 400
    convert(lambda: failing(False), tmp_path / "rows", memory=8_000, progress=False)
    same_files(expected, tmp_path / "rows")


HOLDER = """
import sys
from sgmcmc.data.conversion import PROGRESS, alone
from pathlib import Path

with alone(Path(sys.argv[1]) / PROGRESS, "waits for the end of its input", False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_one_process_at_a_time(end, table, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    told: list[dict] = []
    thread = threading.Thread(target=lambda: convert(table, folder, progress=told.append))
    with subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        thread.start()
        while not told:
            time.sleep(0.01)
        assert told[0]["stage"] == f"waiting for another process that converts into {folder}"
        assert [path.name for path in folder.iterdir()] == ["conversion.json.lock"]
        holder.kill() if end == "is killed" else holder.stdin.close()
    thread.join()
    assert {path.name for path in folder.iterdir()} == {"header.json", "conversion.json", "X.rows", "y.rows"}
    assert open_rows(folder).n_rows == N


def test_a_finished_folder_needs_no_lock(table, tmp_path, monkeypatch):
    rows = convert(table, tmp_path / "rows", progress=False)

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("sgmcmc.core.files.locked", refuse)
    assert convert(table, tmp_path / "rows", progress=False).checksum == rows.checksum
    with pytest.raises(SgmcmcError, match="Permission denied"):
        convert(table, tmp_path / "rows", progress=False, overwrite=True)


@pytest.mark.parametrize("leftover", ["conversion.json.lock", "conversion.json.tmp"])
def test_what_a_killed_process_left_is_no_obstacle(leftover, table, tmp_path):
    (tmp_path / leftover).write_text("")
    convert(table, tmp_path, progress=False)
    (tmp_path / leftover).write_text("")
    assert convert(table, tmp_path, progress=False).n_rows == N
    assert not (tmp_path / "conversion.json.lock").exists()


def test_the_bars(frame, table, tmp_path):
    given, options = several_csv(frame, table, tmp_path)
    told: list[dict] = []
    convert(given, tmp_path / "rows", progress=told.append, memory=5_000, **options)
    for stage in ("reading", "sorting"):
        last = [entry for entry in told if entry["stage"] == stage][-1]
        assert last["done"] == last["total"] > 0


KILLER = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import pandas
from sgmcmc.data import convert, readers

source, folder, options, moments = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3]), sys.argv[4]
readers.BLOCK_BYTES = 4800

def attempt(die_at, folder=folder):
    child = os.fork()
    if child:
        return child
    events = 0
    def counted(function):
        def called(*args, **kwargs):
            nonlocal events
            events += 1
            if events == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return called
    os.fsync = lambda file: None
    for name in ("write", "fsync", "replace", "ftruncate"):
        setattr(os, name, counted(getattr(os, name)))
    Path.unlink = counted(Path.unlink)
    convert(source, folder, progress=False, **options)
    os._exit(0)

kills, random_numbers, begun = 0, random.Random(5), time.perf_counter()
os.waitpid(attempt(0, folder + "-undisturbed"), 0)
whole = time.perf_counter() - begun
while True:
    child = attempt(random_numbers.randint(1, 40) if moments == "events" else 0)
    if moments == "times":
        time.sleep(random_numbers.random() * 0.1 * whole * (1 + kills / 10))  # longer and longer, so that it ends
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    kills += 1
print(kills)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
@pytest.mark.parametrize(("source", "moments"), [(several_csv, "events"), (libsvm, "times")], ids=["events", "times"])
def test_killed_at_random_moments_and_resumed(source, moments, frame, table, expected, tmp_path):
    given, options = source(frame, table, tmp_path)
    if source is several_csv:
        given = tmp_path / "part-*.csv"
    arguments = [str(given), str(tmp_path / "rows"), repr({**options, "memory": 6_000}), moments]
    ended = subprocess.run([sys.executable, "-c", KILLER, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 8
    same_files(expected, tmp_path / "rows")


# Covertype


def covertype(path, n_rows):
    """The stored LIBSVM file, or its first lines, and the same numbers as CSV and Parquet."""
    stored = Path(os.environ.get("SGMCMC_DATA", "")) / "covtype.libsvm.binary.scale.bz2"
    if not stored.is_file():
        pytest.skip("SGMCMC_DATA names no folder with covertype as LIBSVM text")
    with bz2.open(stored) as text:
        (path / "covertype.svm").write_bytes(b"".join(itertools.islice(text, n_rows)))
    with open(path / "covertype.svm", "rb") as text:
        blocks = list(readers.read_rows(text, 54, 2**25, "covertype"))
    whole = pd.DataFrame(np.concatenate([rows for rows, _ in blocks]), columns=[f"x{j}" for j in range(54)])
    whole["y"] = np.concatenate([labels for _, labels in blocks])
    whole.to_csv(path / "covertype.csv", index=False)
    whole.to_parquet(path / "covertype.parquet", row_group_size=50_000)
    return [path / f"covertype.{suffix}" for suffix in ("svm", "csv", "parquet")]


def draws_of_logistic_regression(folder):
    def log_lik(params, batch):
        eta = batch["X"] @ params["beta"]
        return (jnp.where(batch["y"] > 1.5, eta, 0.0) - jnp.logaddexp(0.0, eta)).sum()

    def log_prior(params):
        return -0.5 * (params["beta"] ** 2).sum()

    options = {"minibatch_size": 100, "n_iters": 500, "seed": 1, "progress": False, "log_prior": log_prior}
    return sgmcmc.sgldcv(log_lik, folder, {"beta": np.zeros(54, np.float32)}, 1e-5, **options)["beta"]


@pytest.mark.parametrize("n_rows", [3_000, pytest.param(None, marks=pytest.mark.slow)])
def test_covertype_is_the_same_from_three_formats(n_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_BYTES", 2**20 if n_rows else 2**25)
    for path in covertype(tmp_path, n_rows):
        chosen = None if path.suffix == ".svm" else {"X": ..., "y": "y"}
        rows = convert(path, tmp_path / path.suffix, columns=chosen, memory=2**19 if n_rows else 2**25, progress=False)
        assert rows.n_rows == (n_rows or 581_012)
        assert rows["X"].shape == (rows.n_rows, 54)
    same_files(tmp_path / ".svm", tmp_path / ".csv")
    same_files(tmp_path / ".svm", tmp_path / ".parquet")
    draws = [draws_of_logistic_regression(tmp_path / suffix) for suffix in (".svm", ".csv", ".parquet")]
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[2])
