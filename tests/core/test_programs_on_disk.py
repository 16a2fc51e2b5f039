"""Compiled programs on disk: found by the next process, whatever happens to the folder, and right draws in every case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sgmcmc.core import programs_on_disk
from sgmcmc.core.programs_on_disk import SETTING

SCRIPT = Path(__file__).parents[1] / "support" / "kept_on_disk.py"


def start(folder, **settings):
    """A process with its programs in a folder. Warnings are shown, so that none goes unseen."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    told = {SETTING: str(folder), "HOME": str(Path(folder).parent), **settings}
    command = [sys.executable, "-W", "always", SCRIPT]
    return subprocess.Popen(command, env=kept | told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told_by(process):
    """What such a process found, once it has ended well and without a word."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert err == ""
    return json.loads(out)


def entries(folder):
    return sorted(Path(folder).glob("*/*-cache"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder that a process has filled, and what that found."""
    folder = tmp_path_factory.mktemp("home") / "programs"
    return folder, told_by(start(folder))


def test_the_next_process_compiles_nothing(filled):
    folder, first = filled
    assert first["found"] == 0
    assert first["compiled"] == len(entries(folder)) > 10
    again = told_by(start(folder))
    assert again["found"] == again["compiled"] == first["compiled"]
    assert again["draws"] == first["draws"]


def test_a_truncated_entry_is_compiled_again(filled, tmp_path):
    folder, first = filled
    for number, entry in enumerate(entries(folder)):
        copy = tmp_path / "programs" / entry.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        whole = entry.read_bytes()
        copy.write_bytes(whole[: (0, len(whole) // 2, len(whole) - 1)[number % 3]])
    again = told_by(start(tmp_path / "programs"))
    assert again["found"] == 0
    assert again["draws"] == first["draws"]


def test_eight_processes_fill_one_folder(filled, tmp_path):
    _, first = filled
    for one in [told_by(process) for process in [start(tmp_path / "programs") for _ in range(8)]]:
        assert one["draws"] == first["draws"]
    again = told_by(start(tmp_path / "programs"))
    assert again["found"] == again["compiled"]
    assert again["draws"] == first["draws"]


def test_a_full_disk_is_of_no_concern(filled, tmp_path):
    """Of files one may write 2,000 bytes: too few for most programs."""
    _, first = filled
    found = told_by(start(tmp_path / "programs", LARGEST_FILE="2000"))
    assert found["draws"] == first["draws"]
    assert max(entry.stat().st_size for entry in entries(tmp_path / "programs")) <= 2000


def test_a_disk_that_is_full_from_the_start_is_left_alone(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": programs_on_disk.LEAST_FREE - 1})
    monkeypatch.setattr(programs_on_disk.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="left on the disk"):
        programs_on_disk._prepared(tmp_path)


@pytest.mark.parametrize("what", ["a file", "read-only"])
def test_a_folder_that_cannot_be_written_is_left_alone(filled, tmp_path, what):
    _, first = filled
    place = Path("/proc/sys/programs") if what == "read-only" else tmp_path / "file"
    if what == "a file":
        place.write_text("")
    found = told_by(start(place))
    assert found["folder"] is None
    assert found["draws"] == first["draws"]


def test_it_can_be_turned_off(filled, tmp_path):
    _, first = filled
    found = told_by(start("0", HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path)))
    assert found["folder"] is None
    assert found["draws"] == first["draws"]
    assert not list(tmp_path.rglob("*-cache"))


def test_the_users_own_cache_is_left_to_the_user(filled, tmp_path):
    _, first = filled
    found = told_by(start(tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")))
    assert found["folder"] == str(tmp_path / "own")
    assert found["draws"] == first["draws"]
    assert not (tmp_path / "ours").exists()


def test_it_is_in_the_users_cache_folder(filled, tmp_path):
    _, first = filled
    found = told_by(start("", XDG_CACHE_HOME=str(tmp_path)))
    assert Path(found["folder"]).parent == tmp_path / "sgmcmc" / "programs"
    assert found["draws"] == first["draws"]


def test_several_devices_have_none(tmp_path):
    """XLA ends with a segmentation fault in a program that sums over devices of the CPU backend and comes from disk."""
    found = told_by(start(tmp_path / "programs", XLA_FLAGS="--xla_force_host_platform_device_count=2"))
    assert found["folder"] is None


def test_what_was_used_longest_ago_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(programs_on_disk, "MOST_BYTES", 250)
    for age, name in enumerate(["new", "used", "old"]):
        (tmp_path / "machine").mkdir(exist_ok=True)
        path = tmp_path / "machine" / f"{name}-cache"
        path.write_bytes(b"0" * 100)
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "machine" / "empty-cache").touch()
    (tmp_path / "machine" / "note").write_text("not ours")
    programs_on_disk._sweep(tmp_path)
    assert sorted(path.name for path in (tmp_path / "machine").iterdir()) == ["new-cache", "note", "used-cache"]
