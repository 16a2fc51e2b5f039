"""One process at a time, and nothing left behind."""

from __future__ import annotations

import errno
import os
import threading
import time

import pytest

from sgmcmc.core import files
from sgmcmc.core.files import alone, locked


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(files, "POLL", 0.001)


def test_the_lock_file_is_there_while_somebody_works(tmp_path):
    with alone(tmp_path / "file", "works", False):
        assert os.listdir(tmp_path) == ["file.lock"]
        assert locked(tmp_path / "file.lock") is None
    assert os.listdir(tmp_path) == []


def test_an_error_frees_the_lock(tmp_path):
    with pytest.raises(KeyboardInterrupt), alone(tmp_path / "file", "works", False):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_many_take_turns(tmp_path):
    """Each removes the file that the others wait for."""
    inside, most, turns = 0, 0, 0

    def work():
        nonlocal inside, most, turns
        for _ in range(20):
            with alone(tmp_path / "file", "works", False):
                inside += 1
                most, turns = max(most, inside), turns + 1
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == (1, 80)
    assert os.listdir(tmp_path) == []


def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(tmp_path, monkeypatch):
    import filelock

    real, removed = filelock.lock_descriptor, []

    def removing(handle, blocking):
        if not removed:
            (tmp_path / "lock").unlink()
            removed.append(True)
        return real(handle, blocking=blocking)

    monkeypatch.setattr(filelock, "lock_descriptor", removing)
    assert locked(tmp_path / "lock") is None
    handle = locked(tmp_path / "lock")
    assert handle is not None
    os.close(handle)


def test_without_locks_nobody_waits_unless_they_are_needed(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.lock_descriptor", refuse)
    with alone(tmp_path / "file", "works", False), alone(tmp_path / "file", "works too", False):
        pass
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="No locks available"):
        locked(tmp_path / "lock")
