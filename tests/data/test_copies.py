"""Copies of parsed files: used when good, made again when not, and never half made."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from dataset_server import *  # noqa: F403
from dataset_server import NAME, PACKED, get, good, names

import sgmcmc
from sgmcmc.core import files
from sgmcmc.data.datasets import FOLDER_SETTING, local
from sgmcmc.data.datasets.catalogue import CATALOGUE


@pytest.fixture
def copied(folder, home):
    """A dataset loaded once, and its copy."""
    (folder / NAME).write_bytes(PACKED)
    get()
    return local.cache_folder() / "covertype.npz"


def cannot_parse(content):
    raise AssertionError("parsed again")


def test_the_second_load_uses_the_copy(copied, offer, home):
    offer(home.url, reader=cannot_parse)
    assert good(get())
    assert good(get(download=False))
    assert names(copied.parent) == [copied.name]


def test_a_damaged_copy_is_made_again(copied, folder, recwarn):
    whole = copied.read_bytes()
    places = [*range(0, 400, 7), *range(400, len(whole), 997), *range(len(whole) - 400, len(whole), 7)]
    damaged = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in places]
    for content in [*damaged, *(whole[:place] for place in places), b"rubbish"]:
        copied.write_bytes(content)
        assert good(get())
    assert local._load(copied, local._stamp(CATALOGUE["covertype"].routes[0], folder), 1) is not None
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("change", ["time", "folder", "format"])
def test_a_copy_of_something_else_is_made_again(copied, folder, offer, home, monkeypatch, change):
    offer(home.url, reader=cannot_parse)
    if change == "time":
        os.utime(folder / NAME, ns=(1, 1))
    if change == "folder":
        monkeypatch.setenv(FOLDER_SETTING, str(folder.rename(folder.parent / "elsewhere")))
    if change == "format":
        monkeypatch.setattr(local, "FORMAT", local.FORMAT + 1)
    with pytest.raises(AssertionError, match="parsed again"):
        get()
    offer(home.url)
    assert good(get())
    offer(home.url, reader=cannot_parse)
    assert good(get())


@pytest.mark.parametrize("change", ["size", "checksum"])
def test_a_copy_does_not_hide_a_wrong_file(copied, folder, offer, home, change):
    if change == "size":
        before = (folder / NAME).stat().st_mtime_ns
        os.truncate(folder / NAME, len(PACKED) - 1)
        os.utime(folder / NAME, ns=(0, before))
    if change == "checksum":
        offer(home.url, content=b"a new version")
    with pytest.raises(sgmcmc.SgmcmcError, match=r"tiny\.gz is damaged or another version"):
        get()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_copy_leaves_nothing(folder, home, monkeypatch, error):
    def interrupted(stream, *arrays):
        stream.write(b"PK half a copy")
        raise error

    (folder / NAME).write_bytes(PACKED)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if error is KeyboardInterrupt else nullcontext():
        patch.setattr(np, "savez", interrupted)
        assert good(get())
    assert names(local.cache_folder()) == []
    assert good(get())


def test_many_copies_at_once(copied, folder, monkeypatch):
    """Threads stand for processes: their locks exclude each other in the same way."""
    monkeypatch.setattr(files, "POLL", 0.001)
    copied.unlink()
    real, writing = np.savez, []

    def watched(*arguments):
        writing.append(threading.get_ident())
        real(*arguments)
        time.sleep(0.005)
        assert writing[-1] == threading.get_ident()

    monkeypatch.setattr(np, "savez", watched)
    with ThreadPoolExecutor(8) as threads:
        assert all(good(found) for found in threads.map(lambda _: get(), range(8)))
    assert local._load(copied, local._stamp(CATALOGUE["covertype"].routes[0], folder), 1) is not None
    assert names(copied.parent) == [copied.name]


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, folder, home, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(local, "user_cache_dir", lambda app: str(tmp_path / "file" / app))
    assert good(get())
    assert good(get())
    monkeypatch.delenv(FOLDER_SETTING)
    with pytest.raises(sgmcmc.SgmcmcError, match="writing there fails"):
        get()
