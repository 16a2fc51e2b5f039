"""Files fetched over a bad network: tried again, verified, from the next home, by one process at a time, whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import itertools
import os
import subprocess
import sys
import threading
import time

import pytest
from dataset_server import *  # noqa: F403
from dataset_server import NAME, NOWHERE, PACKED, data_file, get, good, names

import sgmcmc
from sgmcmc.core import files
from sgmcmc.data.datasets import local
from sgmcmc.data.datasets.catalogue import CATALOGUE, Entry


def test_download(folder, home, capsys):
    reports = []
    assert good(get(progress=reports.append))
    assert home.asked == 1
    assert names(folder) == [NAME]
    assert (folder / NAME).read_bytes() == PACKED
    assert {report["stage"] for report in reports} == {f"downloading {NAME}"}
    assert reports[-1]["done"] == reports[-1]["total"] == len(PACKED)
    assert all(before["done"] <= after["done"] for before, after in itertools.pairwise(reports))
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_only_what_is_missing_is_fetched(folder, monkeypatch, new_home):
    homes = [new_home(gzip.compress(content)) for content in (b"1", b"2")]
    files = data_file("one.gz", b"1", homes[0].url), data_file("two.gz", b"2", homes[1].url)
    monkeypatch.setitem(CATALOGUE, "mnist", Entry((files,), lambda arrays: b"".join(array.tobytes() for array in arrays)))
    (folder / "one.gz").write_bytes(gzip.compress(b"1"))
    assert sgmcmc.get_dataset("mnist", progress=False) == b"12"
    assert [home.asked for home in homes] == [0, 1]


def test_a_transfer_that_breaks_off_is_tried_again_from_its_start(folder, home, monkeypatch):
    pauses = []
    monkeypatch.setattr(local, "PAUSE", 0.001)
    monkeypatch.setattr(local.time, "sleep", pauses.append)
    home.cuts = [10_000, 25_000]
    assert good(get())
    assert (home.asked, home.sent) == (3, 35_000 + len(PACKED))
    assert pauses == [0.001, 0.002]
    assert names(folder) == [NAME]


def test_a_transfer_that_keeps_breaking_off_leaves_nothing(folder, home):
    home.cuts = [1000] * local.TRIES
    with pytest.raises(sgmcmc.SgmcmcError, match=r"broke off \(IncompleteRead\(1000 bytes read.*; put tiny\.gz into"):
        get()
    assert home.asked == local.TRIES
    assert names(folder) == []
    assert good(get())


def test_a_transfer_that_keeps_breaking_off_leads_to_the_next_home(folder, offer, new_home):
    weak, strong = new_home(), new_home()
    weak.cuts = [50_000] * local.TRIES
    strong.content = PACKED
    offer(weak.url, strong.url)
    assert good(get())
    assert (weak.asked, strong.asked) == (local.TRIES, 1)
    assert (folder / NAME).read_bytes() == PACKED


def test_a_silent_server_times_out(folder, home, monkeypatch):
    monkeypatch.setattr(local, "TIMEOUT", 0.5)
    monkeypatch.setattr(local, "TRIES", 1)
    home.gate, home.gate_at = threading.Event(), 5000
    with pytest.raises(sgmcmc.SgmcmcError, match=r"the transfer broke off \(timed out\)"):
        get()
    assert names(folder) == []


@pytest.mark.parametrize("temper", [{"length": False}, {"encoding": "gzip"}, {"encoding": "x-gzip"}])
def test_a_server_with_ways_of_its_own(folder, home, temper):
    vars(home).update(temper)
    reports = []
    assert good(get(progress=reports.append))
    assert (folder / NAME).read_bytes() == PACKED
    assert reports[-1]["total"] == (len(PACKED) if home.length else None)


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
    assert names(folder) == []


@pytest.mark.parametrize("status", [None, 202, 404, 503])
def test_a_refusal_or_wrong_content_leads_to_the_next_home(folder, offer, new_home, status):
    refusing, right = new_home(gzip.compress(b"something else")), new_home()
    refusing.status = status
    offer(NOWHERE, refusing.url, right.url)
    assert good(get())
    assert refusing.asked == right.asked == 1
    assert names(folder) == [NAME]


def test_no_network_leads_to_a_clear_error_and_leaves_nothing(tmp_path, offer):
    offer(NOWHERE, f"{NOWHERE}second")
    with pytest.raises(sgmcmc.SgmcmcError) as caught:
        get()
    message, place = str(caught.value), local.cache_folder()
    assert f"{NOWHERE}: no answer (" in message
    assert f"{NOWHERE}second: no answer (" in message
    assert f"put {NAME} into {place} yourself, or set SGMCMC_DATA to the folder that has it" in message
    assert names(tmp_path) == []


def test_no_network_leaves_a_named_folder_as_it_was(folder, offer):
    offer(NOWHERE)
    with pytest.raises(sgmcmc.SgmcmcError, match="no answer"):
        get()
    assert names(folder) == []


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


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("refusing", [(files, "locked"), (os, "fsync")], ids=["at the start", "at the end"])
def test_a_disk_that_refuses(folder, home, monkeypatch, number, refusing):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*refusing, refuse)
    with pytest.raises(sgmcmc.SgmcmcError, match=rf"writing there fails \({os.strerror(number)}\); put .* with room"):
        get()
    assert names(folder) == []


CHILD = """
import sys
from pathlib import Path
from sgmcmc.data.datasets.catalogue import DataFile
from sgmcmc.data.datasets.local import download

download(DataFile(sys.argv[1], sys.argv[2], (sys.argv[3],), lambda content: content), Path(sys.argv[4]), False)
"""


@pytest.fixture
def halfway(folder, offer, home):
    """Another process that downloads and has the first bytes; the others come when `home.gate` opens."""
    file = offer(home.url)
    home.gate, home.gate_at = threading.Event(), 30_000
    with subprocess.Popen([sys.executable, "-c", CHILD, NAME, file.sha256, home.url, str(folder)]) as child:
        for _ in range(6000):
            if home.sent:
                break
            time.sleep(0.01)
        yield child
        child.kill()


def test_two_processes_download_once(folder, home, halfway):
    stages = []

    def open_gate(report):
        stages.append(report["stage"])
        home.gate.set()

    assert good(get(progress=open_gate))
    assert halfway.wait(30) == 0
    assert set(stages) == {f"waiting for another process that downloads {NAME}"}
    assert home.asked == 1
    assert names(folder) == [NAME]


def test_a_killed_process_leaves_no_lock(folder, home, halfway):
    halfway.kill()
    halfway.wait()
    assert NAME not in names(folder)
    home.gate.set()
    assert good(get())
    assert home.asked == 2
    assert names(folder) == [NAME]


def test_the_network_is_imported_only_when_it_is_needed():
    script = "import sys, sgmcmc; print(*{'pooch', 'requests', 'urllib3'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "\n"
