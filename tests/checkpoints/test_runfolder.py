"""A run's folder: nothing committed is ever lost, whatever happens to the process, the disk or the files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import flip, largest_file

from sgmcmc import InputError, SgmcmcError, SgmcmcWarning
from sgmcmc.checkpoints.durable import DamagedFileError, DrawFile, FolderLock, Layout, read_draws
from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.reading import read
from sgmcmc.core.array_files import read_arrays, write_arrays

PRINT = {"stepsize": "0.0001", "log_lik": "function: ab, captured cd"}
LIKE = {"mu": jax.ShapeDtypeStruct((2,), np.float32), "w": jax.ShapeDtypeStruct((2, 3), np.float32)}


def rows(first, count):
    """Draws `first`, `first + 1`, ... of two chains, each known by its number; the last row does not count."""
    numbers = np.arange(first, first + count + 1, dtype=np.float32)
    return count, {"mu": numbers[:, None] + [0, 0.5], "w": numbers[:, None, None] * np.ones((2, 3), np.float32)}


def begun(path, commits=2, each=5, **more):
    """A run of some checkpoints, and its file of draws."""
    folder = RunFolder.open(path, PRINT, seed=1, **more)
    file = folder.draw_file("draws", LIKE, True)
    for number in range(commits):
        file.add(rows(number * each, each))
        folder.commit({"done": (number + 1) * each, "x": np.arange(3.0) + number})
    return folder, file


def left(path, commits=2):
    """The folder of a run whose process has ended."""
    begun(path, commits)[0].close()
    return path


def check_first(draws, count):
    assert draws["mu"].shape == (2, count)
    np.testing.assert_array_equal(draws["mu"], np.arange(count) + np.array([[0], [0.5]]))
    np.testing.assert_array_equal(draws["w"], np.arange(count)[None, :, None] * np.ones((2, 1, 3)))


# --- draws ----------------------------------------------------------------------------------------------------------------


def test_draws_come_back_as_they_went_in(tmp_path):
    folder, file = begun(tmp_path / "run")
    draws = file.draws()
    check_first(draws, 10)
    assert not draws["w"].flags.writeable
    assert not draws["w"].flags.owndata
    assert type(draws["w"]) is np.ndarray
    check_first(read(folder.path).draws["draws"], 10)
    file.add(rows(10, 3))
    assert file.filled == 13
    check_first(file.draws(), 13)
    check_first(read(folder.path).draws["draws"], 10)  # what is not committed does not exist for others


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "uint32", "int8", "bool"])
@pytest.mark.parametrize("chained", [True, False])
def test_every_dtype_shape_and_tree(dtype, chained, tmp_path):
    dtype, chains = jnp.dtype(dtype), (4,) if chained else ()
    shapes = [(), (3,), (0,), (2, 5)]
    like = [(jax.ShapeDtypeStruct(chains + shape, dtype), jax.ShapeDtypeStruct(chains, np.int8)) for shape in shapes]
    rng = np.random.default_rng(1)

    def some(leaf, count):
        raw = rng.integers(0, 2 if dtype.kind == "b" else 256, (count, *leaf.shape, leaf.dtype.itemsize), dtype=np.uint8)
        return raw.view(leaf.dtype)[..., 0]

    file = DrawFile(tmp_path / "x.draws", "x", like, chained)
    pieces = [(count, jax.tree.map(lambda leaf, count=count: some(leaf, count + 2), like)) for count in (1, 0, 6)]
    for piece in pieces:
        file.add(piece)
    expected = jax.tree.map(lambda *parts: np.concatenate([part[:count] for part, (count, _) in zip(parts, pieces, strict=True)]),
                            *(tree for _, tree in pieces))  # fmt: skip
    for draws in (file.draws(), read_draws(tmp_path / "x.draws", 7)):
        for got, want in zip(jax.tree.leaves(draws), jax.tree.leaves(expected), strict=True):
            assert np.moveaxis(got, 1 if chained else 0, 0).tobytes() == want.tobytes()
            assert got.dtype == want.dtype
            assert got.flags.aligned
    assert file.draws()[0][1].shape == (*chains, 7)


def test_no_draws_and_nothing_to_draw(tmp_path):
    file = DrawFile(tmp_path / "a.draws", "a", LIKE, True)
    assert file.draws()["w"].shape == (2, 0, 3)
    empty = DrawFile(tmp_path / "b.draws", "b", {"z": jax.ShapeDtypeStruct((0,), np.float32)}, False)
    empty.add((3, {"z": np.zeros((4, 0), np.float32)}))
    assert empty.draws()["z"].shape == (3, 0)


def test_a_million_draws_of_a_hundred_thousand_numbers(tmp_path):
    folder = RunFolder.open(tmp_path / "run", PRINT, seed=1)
    file = folder.draw_file("draws", {"w": jax.ShapeDtypeStruct((100_000,), np.float32)}, False)
    os.truncate(file.path, file.path.stat().st_size + 10**6 * 400_000)  # 400 GB of holes
    file.filled = 10**6
    folder.commit({})
    file.add((1, {"w": np.ones((1, 100_000), np.float32)}))
    clock = time.perf_counter()
    folder.commit({})
    draws = read(folder.path).draws["draws"]["w"]
    assert time.perf_counter() - clock < 1
    assert draws.shape == (10**6 + 1, 100_000)
    assert draws[-1].sum() == 100_000
    assert draws[10**6 - 1].sum() == 0
    folder.close()
    assert RunFolder.open(folder.path, PRINT).draw_file("draws", {"w": draws[0]}, False).filled == 10**6 + 1


def test_large_pieces_are_copied_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("sgmcmc.checkpoints.durable.COPY_BYTES", 100)
    file = DrawFile(tmp_path / "a.draws", "a", LIKE, True)
    file.add(rows(0, 50))
    check_first(file.draws(), 50)


# --- going on ---------------------------------------------------------------------------------------------------------------


def test_the_next_process_goes_on_from_the_last_checkpoint(tmp_path):
    folder, file = begun(tmp_path / "run", params=LIKE)
    file.add(rows(10, 4))  # lost: not committed
    folder.close()
    again = RunFolder.open(tmp_path / "run", PRINT)
    progress = again.last_checkpoint()
    assert progress.contents["done"] == 10
    assert progress.n_draws == {"draws": 10}
    assert again.safe == 10
    np.testing.assert_array_equal(jax.random.key_data(again.key), [0, 1])
    file = again.draw_file("draws", LIKE, True)
    assert file.filled == 10  # what follows is written over
    file.add(rows(10, 2))
    again.commit({"done": 12})
    check_first(file.draws(), 12)
    assert again.last_checkpoint().contents == {"done": 12}
    assert read(again.path).manifest["params"] == {"dict": {"mu": "leaf", "w": "leaf"}}


def test_files_not_opened_again_keep_their_draws(tmp_path):
    again = RunFolder.open(left(tmp_path / "run"), PRINT)
    again.commit({"done": "other work"})
    check_first(read(again.path).draws["draws"], 10)


def test_parts_share_lock_and_manifest(tmp_path):
    folder = RunFolder.open(tmp_path / "run", PRINT)
    for name in ("run 1", "run/2"):
        part = folder.sub(name)
        file = part.draw_file("draws", LIKE, True)
        file.add(rows(0, 3))
        part.commit({"name": name})
    folder.close()
    found = read(tmp_path / "run")
    assert found.last is None
    assert {name: part.last.contents["name"] for name, part in found.parts.items()} == {"run 1": "run 1", "run/2": "run/2"}
    check_first(found.parts["run/2"].draws["draws"], 3)
    assert RunFolder.open(tmp_path / "run", PRINT).sub("run/2").last_checkpoint().n_draws == {"draws": 3}


def test_stages_are_computed_once(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"mode": jnp.arange(3.0), "steps": 7}

    folder = RunFolder.open(tmp_path / "run", PRINT)
    first = folder.stage("mode", compute)
    folder.commit({})
    folder.close()
    folder = RunFolder.open(tmp_path / "run", PRINT)
    again = folder.stage("mode", compute)
    assert len(calls) == 1
    assert first["steps"] == again["steps"] == 7
    np.testing.assert_array_equal(first["mode"], again["mode"])
    assert read(folder.path).stages["mode"]["steps"] == 7
    path = folder.path / "stage-mode.npz"
    path.write_bytes(path.read_bytes()[:-1])
    assert read(folder.path).stages == {}
    with pytest.warns(SgmcmcWarning, match="damaged: its checksum does not fit; it is computed again"):
        folder.stage("mode", compute)
    assert len(calls) == 2
    assert folder.stage("mode", compute)["steps"] == 7


def test_a_seed_is_drawn_once_and_then_kept(tmp_path):
    with RunFolder.open(tmp_path / "run", PRINT) as folder:
        key = jax.random.key_data(folder.key)
    with RunFolder.open(tmp_path / "run", PRINT) as folder:
        assert (jax.random.key_data(folder.key) == key).all()
    with RunFolder.open(tmp_path / "rbg", PRINT, seed=jax.random.key(5, impl="rbg")) as folder:
        assert (jax.random.key_data(folder.key) == jax.random.key_data(jax.random.key(5, impl="rbg"))).all()


# --- refusals ---------------------------------------------------------------------------------------------------------------


def test_another_run_is_refused_with_what_differs(tmp_path):
    path = left(tmp_path / "run")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(InputError) as caught:
        RunFolder.open(path, PRINT | {"stepsize": "0.0002"}, seed=2)
    assert str(caught.value) == (
        f"{path} holds another run: stepsize was 0.0001, is 0.0002; seed was 1, is 2; "
        "use another folder, or delete this one to start over"
    )
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    RunFolder.open(path, PRINT, seed=1).close()


HOLDER = """
import sys
from pathlib import Path
from sgmcmc.checkpoints.durable import FolderLock

lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time(tmp_path):
    path = left(tmp_path / "run")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        for _ in range(2):  # who it is must outlive the attempt
            with pytest.raises(SgmcmcError, match=rf"another process \({holder.pid}\) is running in .*run; wait for it, or use"):
                RunFolder.open(path, PRINT)
        check_first(read(path).draws["draws"], 10)  # readers need no lock
        holder.kill()
        holder.wait()
        folder = RunFolder.open(path, PRINT)
    with pytest.raises(SgmcmcError, match="this process already is running"):
        RunFolder.open(path, PRINT)
    folder.close()
    RunFolder.open(path, PRINT).close()


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.lock_descriptor", refuse)
    with pytest.raises(SgmcmcError, match="cannot be used for checkpoints: No locks available"):
        RunFolder.open(tmp_path / "run", PRINT)


def test_a_lock_goes_with_its_owner(tmp_path):
    lock = FolderLock(tmp_path / "lock")
    del lock
    FolderLock(tmp_path / "lock").release()


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    for attempt in (lambda: RunFolder.open(tmp_path, PRINT), lambda: read(tmp_path)):
        with pytest.raises(InputError, match=r"holds other files \(thesis.tex\) and no manifest.json"):
            attempt()
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("leftovers", [[], ["lock"], ["lock", "manifest.json.tmp"]])
def test_a_crash_before_the_manifest_leaves_a_folder_to_begin_in(leftovers, tmp_path):
    for name in leftovers:
        (tmp_path / name).write_text("12")
    with pytest.raises(SgmcmcError, match="no draws yet"):
        read(tmp_path)
    left(tmp_path)
    check_first(read(tmp_path).draws["draws"], 10)


def test_not_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SgmcmcError, match=r"file cannot be used for checkpoints: .*; make it a folder"):
        RunFolder.open(tmp_path / "file", PRINT)
    with pytest.raises(SgmcmcError, match="Not a directory"):
        RunFolder.open(tmp_path / "file" / "run", PRINT)
    with pytest.raises(InputError, match="there is no folder"):
        read(tmp_path / "file")
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written(code, tmp_path, monkeypatch):
    path = left(tmp_path / "run")

    def refuse(name, *_):
        raise OSError(code, os.strerror(code), str(name))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(SgmcmcError, match=f"lock cannot be used for checkpoints: {os.strerror(code)}"):
            RunFolder.open(path, PRINT)
        check_first(read(path).draws["draws"], 10)


def test_a_run_that_has_only_begun(tmp_path):
    folder = RunFolder.open(tmp_path / "run", PRINT)
    folder.draw_file("draws", LIKE, True).add(rows(0, 3))
    with pytest.raises(SgmcmcError, match="holds no draws yet: its run has not reached the first checkpoint"):
        read(folder.path)


def test_another_kind_of_draws_is_refused(tmp_path):
    folder = RunFolder.open(left(tmp_path / "run"), PRINT)
    with pytest.raises(SgmcmcError, match=r"holds draws of .*; expected"):
        folder.draw_file("draws", {"mu": LIKE["mu"]}, True)


# --- full disks and failing ones ----------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_in_the_middle_of_a_draw(tmp_path):
    folder, file = begun(tmp_path / "run")
    size = file.path.stat().st_size
    with largest_file(size + 5 * 32 + 7), pytest.raises(SgmcmcError) as caught:
        file.add(rows(10, 20))
    assert str(caught.value) == (
        f"{file.path} could not be written: File too large; the 10 draws of the last checkpoint are safe in {folder.path}; "
        f"free some space and make the same call again to go on, or read them with sgmcmc.load({str(folder.path)!r})"
    )
    assert file.path.stat().st_size == size
    assert file.filled == 10
    check_first(read(folder.path).draws["draws"], 10)
    file.add(rows(10, 20))  # space again
    folder.commit({})
    check_first(file.draws(), 30)


def test_a_disk_without_space_for_the_state(tmp_path):
    folder, file = begun(tmp_path / "run")
    file.add(rows(10, 5))
    with largest_file(4000), pytest.raises(SgmcmcError, match=r"state.npz could not be written: .*the 10 draws .*are safe"):
        folder.commit({"large": np.zeros(10_000)})
    assert not list(folder.path.glob("*.tmp"))
    assert read(folder.path).last.contents["done"] == 10
    folder.commit({"done": 15})
    check_first(read(folder.path).draws["draws"], 15)


def _five_more(folder, file):
    file.add(rows(10, 5))
    folder.commit({"done": 15})


@pytest.mark.parametrize(
    ("function", "code", "remedy"),
    [
        ("pwrite", errno.ENOSPC, "free some space"),
        ("fsync", errno.EIO, "see to the disk"),
        ("fsync", errno.EDQUOT, "free some space"),
        ("replace", errno.EACCES, "make the folder writable"),
    ],
)
def test_failing_calls(function, code, remedy, tmp_path, monkeypatch):
    folder, file = begun(tmp_path / "run")

    def fail(*_):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fail)
        with pytest.raises(SgmcmcError, match=f"{os.strerror(code)}; the 10 draws .*; {remedy} and make the same call again"):
            _five_more(folder, file)
    check_first(read(folder.path).draws["draws"], 10)
    folder.close()
    again = RunFolder.open(folder.path, PRINT)
    assert again.last_checkpoint().contents["done"] == 10
    assert again.draw_file("draws", LIKE, True).filled == 10


def test_a_stage_that_cannot_be_saved(tmp_path):
    folder = RunFolder.open(tmp_path / "run", PRINT)
    with largest_file(4000), pytest.raises(SgmcmcError, match=r"stage-mode.npz could not be written: .*holds no draws yet"):
        folder.stage("mode", lambda: np.zeros(10_000))


def test_file_systems_without_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = left(tmp_path / "run", commits=3)
    assert read(path).last.contents["done"] == 15
    (path / "state.npz").unlink()  # killed between the two renamings
    assert RunFolder.open(path, PRINT).last_checkpoint().contents["done"] == 10


# --- damage -----------------------------------------------------------------------------------------------------------------


def test_flipped_bits_and_cuts_are_seen_everywhere(tmp_path):
    path = tmp_path / "state.npz"
    write_arrays(path, {"a": 1}, [np.arange(4.0)])
    good = path.read_bytes()
    np.testing.assert_array_equal(read_arrays(path)[1][0], np.arange(4.0))
    with np.load(path, allow_pickle=False) as plain:  # an npz file for anyone
        np.testing.assert_array_equal(plain["a0"], np.arange(4.0))
    for position in range(0, len(good), 3):
        flip(path, position, position % 8)
        with pytest.raises(DamagedFileError):
            read_arrays(path)
        path.write_bytes(good[:position])
        with pytest.raises(DamagedFileError):
            read_arrays(path)
        path.write_bytes(good)


@pytest.mark.parametrize(
    "damage", [lambda path: flip(path, 200), lambda path: os.truncate(path, 100), lambda path: os.truncate(path, 0)]
)
def test_a_damaged_state_costs_one_checkpoint(damage, tmp_path):
    path = left(tmp_path / "run", commits=3)
    damage(path / "state.npz")
    with pytest.warns(SgmcmcWarning, match=r"state.npz is damaged.*; going back to the checkpoint before, of 10 draws"):
        check_first(read(path).draws["draws"], 10)
    with pytest.warns(SgmcmcWarning, match="going back"):
        folder = RunFolder.open(path, PRINT)
    assert folder.last_checkpoint().contents["done"] == 10  # without another warning: it is mended
    file = folder.draw_file("draws", LIKE, True)
    file.add(rows(10, 5))
    folder.commit({"done": 15})
    check_first(read(path).draws["draws"], 15)
    assert read_arrays(path / "state.previous.npz")[0]["n_draws"] == {"draws": 10}


def test_both_states_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr("sgmcmc.checkpoints.reading.PAUSE", 0.001)
    path = left(tmp_path / "run", commits=3)
    for name in ("state.npz", "state.previous.npz"):
        flip(path / name, 100)
    for attempt in (lambda: RunFolder.open(path, PRINT), lambda: read(path)):
        with pytest.raises(
            SgmcmcError, match=r"state.npz is damaged.*intact are 15 whole draws in draws.draws. Use another folder"
        ):
            attempt()


def test_draws_cut_short(tmp_path, monkeypatch):
    monkeypatch.setattr("sgmcmc.checkpoints.reading.PAUSE", 0.001)
    path = left(tmp_path / "run", commits=3)
    file = path / "draws.draws"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.warns(
        SgmcmcWarning, match=r"cut short: it holds 14 draws of 15; going back to the checkpoint before, of 10 draws"
    ):
        check_first(read(path).draws["draws"], 10)
    os.truncate(file, file.stat().st_size - 10 * 32)
    for attempt in (lambda: RunFolder.open(path, PRINT), lambda: read(path)):
        with pytest.raises(SgmcmcError, match=r"it holds 4 draws of 10; intact are 4 whole draws in draws.draws"):
            attempt()
    flip(file, 40)
    with pytest.raises(SgmcmcError, match=r"does not begin as a file of draws does.*no draws are intact"):
        RunFolder.open(path, PRINT)
    file.unlink()
    with pytest.raises(SgmcmcError, match=r"draws.draws is not there, though it should hold 15 draws"):
        read(path)


def test_a_damaged_manifest(tmp_path, monkeypatch):
    monkeypatch.setattr("sgmcmc.checkpoints.reading.PAUSE", 0.001)
    path = left(tmp_path / "run")
    manifest = path / "manifest.json"
    good = manifest.read_text()
    for text in (good.replace("0.0001", "0.0002"), good[:-5], "", "[]"):
        manifest.write_text(text)
        for attempt in (lambda: RunFolder.open(path, PRINT), lambda: read(path)):
            with pytest.raises(SgmcmcError, match=r"manifest.json is damaged"):
                attempt()
    manifest.write_text(good)
    RunFolder.open(path, PRINT).close()


def test_a_later_format(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("sgmcmc.checkpoints.folder.FORMAT", 2)
        left(tmp_path / "run")
    with pytest.raises(SgmcmcError, match="written in format 2"):
        RunFolder.open(tmp_path / "run", PRINT)


def test_headers_hold_any_name():
    layout = Layout.of("ε/keep\n", LIKE, True)
    assert len(layout.header) % 64 == 0
    assert layout.record.itemsize == 32


# --- kill -9 ----------------------------------------------------------------------------------------------------------------


def test_kill_9_at_any_moment(tmp_path):
    """Fourteen kills, a reader all the while, and at the end the draws of the uninterrupted chain."""
    script = Path(__file__).parents[1] / "support" / "killed_runs.py"
    done = subprocess.run([sys.executable, script, tmp_path / "run", "14"], capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(line.split(": ") for line in done.stdout.splitlines())
    assert int(told["kills"]) == 14
    assert int(told["resumed in the middle"]) >= 3  # else nothing is shown; the machine decides how many
    assert int(told["readings"]) > 20
    assert told["final draws equal"] == "True"
