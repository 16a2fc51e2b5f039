"""Files fetched over a bad network: resumed, verified, from the next home, by one process at a time, whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import subprocess
import sys
import threading
import time

import pytest
from dataset_server import *  # noqa: F403
from dataset_server import NAME, NOWHERE, PACKED, data_file, get, good, names

import sgmcmc
from sgmcmc.data.datasets import download, folders, locks, transfer
from sgmcmc.data.datasets.catalogue import CATALOGUE, Entry

PART = f"{NAME}.part"
needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="no locks there")


def test_download(folder, home, capsys):
    reports = []
    assert good(get(progress=reports.append))
    assert home.asked == [None]
    assert names(folder) == [NAME]
    assert (folder / NAME).read_bytes() == PACKED
    assert {report["stage"] for report in reports} == {f"downloading {NAME}"}
    assert reports[-1]["done"] == reports[-1]["total"] == len(PACKED)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_only_what_is_missing_is_fetched(folder, monkeypatch, new_home):
    homes = [new_home(gzip.compress(content)) for content in (b"1", b"2")]
    files = data_file("one.gz", b"1", homes[0].url), data_file("two.gz", b"2", homes[1].url)
    monkeypatch.setitem(CATALOGUE, "mnist", Entry((files,), lambda arrays: b"".join(array.tobytes() for array in arrays)))
    (folder / "one.gz").write_bytes(gzip.compress(b"1"))
    assert sgmcmc.get_dataset("mnist", progress=False) == b"12"
    assert [home.asked for home in homes] == [[], [None]]


def test_truncated_transfers_are_resumed(folder, home):
    home.cuts = [10_000, 25_000]
    assert good(get())
    assert home.asked == [None, "bytes=10000-", "bytes=35000-"]
    assert home.sent == len(PACKED)
    assert names(folder) == [NAME]


def test_a_transfer_that_keeps_breaking_off_is_kept_for_the_next_call(folder, home):
    home.cuts = [1000] * download.TRIES
    with pytest.raises(
        sgmcmc.SgmcmcError, match=r"broke off after 4000 of \d+ bytes\); the 4000 bytes .* calling again continues"
    ):
        get()
    assert names(folder) == [PART]
    reports = []
    assert good(get(progress=reports.append))
    assert reports[0]["done"] == 4000
    assert home.asked[-1] == "bytes=4000-"
    assert home.sent == len(PACKED)


def test_a_silent_server_times_out_and_what_came_is_kept(folder, home, monkeypatch):
    monkeypatch.setattr(transfer, "TIMEOUT", 2.0)
    monkeypatch.setattr(download, "TRIES", 1)
    home.gate, home.gate_at = threading.Event(), 5000
    with pytest.raises(sgmcmc.SgmcmcError, match=r"broke off \(timed out\).*calling again continues"):
        get()
    assert (folder / PART).read_bytes() == PACKED[:5000]


@pytest.mark.parametrize(
    ("temper", "part", "asked_again"),
    [
        ({}, PACKED[:20_000], False),
        ({}, PACKED, False),
        ({"ranges": False}, PACKED[:20_000], False),
        ({"shift": 7, "length": False}, PACKED[:20_000], True),
        ({}, b"x" * 100, True),
        ({}, b"x" * len(PACKED), True),
        ({}, b"x" * 100_000, True),
    ],
    ids=["half", "all", "no ranges", "another range, no length", "rubbish", "rubbish as long", "rubbish longer"],
)
def test_a_part_is_completed_or_fetched_anew(folder, home, temper, part, asked_again):
    vars(home).update(temper)
    (folder / PART).write_bytes(part)
    assert good(get())
    assert home.asked == [f"bytes={len(part)}-", *([None] if asked_again else [])]
    assert names(folder) == [NAME]


def test_wrong_content_everywhere_leaves_nothing(folder, offer, new_home):
    wrong, broken = new_home(gzip.compress(b"something else")), new_home(b"<html>please log in</html>")
    file = offer(wrong.url, broken.url)
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(sgmcmc.SgmcmcError) as caught:
        get()
    message = str(caught.value)
    assert f"{wrong.url}: what it sent is damaged or another version: its content has SHA-256 {found}" in message
    assert f"{broken.url}: what it sent is damaged or another version: it does not unpack" in message
    assert f"expected content with SHA-256 {file.sha256}" in message
    assert "calling again" not in message
    assert names(folder) == []


@pytest.mark.parametrize("status", [None, 202, 404, 503])
def test_a_refusal_or_wrong_content_leads_to_the_next_home(folder, offer, new_home, status):
    refusing, right = new_home(gzip.compress(b"something else")), new_home()
    refusing.status = status
    offer(NOWHERE, refusing.url, right.url)
    if status is not None:
        (folder / PART).write_bytes(PACKED[:100])
    assert good(get())
    assert refusing.asked == right.asked == [None if status is None else "bytes=100-"]
    assert names(folder) == [NAME]


def test_no_network_leads_to_a_clear_error_and_leaves_nothing(tmp_path, offer):
    offer(NOWHERE, f"{NOWHERE}second")
    with pytest.raises(sgmcmc.SgmcmcError) as caught:
        get()
    message, place = str(caught.value), folders.cache_folder()
    assert f"{NOWHERE}: no answer (" in message
    assert f"{NOWHERE}second: no answer (" in message
    assert f"put {NAME} into {place} yourself, or set SGMCMC_DATA to the folder that has it" in message
    assert names(tmp_path) == []


def test_no_network_leaves_a_named_folder_as_it_was(folder, offer):
    offer(NOWHERE)
    with pytest.raises(sgmcmc.SgmcmcError, match="no answer"):
        get()
    assert names(folder) == []
    (folder / PART).write_bytes(PACKED[:100])
    with pytest.raises(sgmcmc.SgmcmcError, match="the 100 bytes that came are kept"):
        get()
    assert (folder / PART).read_bytes() == PACKED[:100]


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permissions there")
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(folder, home):
    folder.chmod(0o555)
    try:
        with pytest.raises(sgmcmc.SgmcmcError, match=r"writing there fails \(Permission denied\); put tiny\.gz into"):
            get()
    finally:
        folder.chmod(0o755)
    assert names(folder) == []


@needs_locks
@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("refusing", [(locks, "_locked"), (download.os, "fsync")], ids=["at the start", "at the end"])
def test_a_disk_that_refuses(folder, home, monkeypatch, number, refusing):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*refusing, refuse)
    with pytest.raises(sgmcmc.SgmcmcError, match=rf"writing there fails \({os.strerror(number)}\); put .* with room"):
        get()
    assert NAME not in names(folder)


CHILD = """
import sys
from pathlib import Path
from sgmcmc.data.datasets.catalogue import DataFile
from sgmcmc.data.datasets.download import download

download(DataFile(sys.argv[1], sys.argv[2], (sys.argv[3],), lambda content: content), Path(sys.argv[4]), False)
"""


@pytest.fixture
def halfway(folder, offer, home):
    """Another process that downloads and has the first bytes; the others come when `home.gate` opens."""
    file = offer(home.url)
    home.gate, home.gate_at = threading.Event(), 30_000
    with subprocess.Popen([sys.executable, "-c", CHILD, NAME, file.sha256, home.url, str(folder)]) as child:
        for _ in range(6000):
            if (folder / PART).exists() and (folder / PART).stat().st_size > 0:
                break
            time.sleep(0.01)
        yield child
        child.kill()


@needs_locks
def test_two_processes_download_once(folder, home, halfway):
    stages = []

    def open_gate(report):
        stages.append(report["stage"])
        home.gate.set()

    assert good(get(progress=open_gate))
    assert halfway.wait(30) == 0
    assert set(stages) == {f"waiting for another process that downloads {NAME}"}
    assert home.asked == [None]
    assert names(folder) == [NAME]


@needs_locks
def test_a_killed_process_leaves_no_lock_and_its_bytes_are_used(folder, home, halfway):
    halfway.kill()
    halfway.wait()
    home.gate.set()
    there = (folder / PART).stat().st_size
    assert good(get())
    assert home.asked == [None, f"bytes={there}-"]


@needs_locks
def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(tmp_path, monkeypatch):
    part, handles, wait_for_lock = tmp_path / "part", [], locks.wait_for_lock

    def wait(handle, *arguments):
        wait_for_lock(handle, *arguments)
        if not handles:
            part.unlink()
        handles.append(handle)

    monkeypatch.setattr(locks, "wait_for_lock", wait)
    with locks.alone(part, False):
        assert os.path.samestat(os.fstat(handles[1]), part.stat())
    assert names(tmp_path) == []
