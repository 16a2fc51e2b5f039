"""Datasets: found, fetched over a bad network, verified, copied, split. The network is a server on this machine."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import sgmcmc
from sgmcmc.datasets import FOLDER_SETTING, copies, download, folders, locks, parse, transfer
from sgmcmc.datasets.catalogue import CATALOGUE, COVERTYPE_LIBSVM, COVERTYPE_UCI, MNIST, DataFile, Entry

CONTENT = np.random.default_rng(1).bytes(60_000)
PACKED = gzip.compress(CONTENT, mtime=0)
NAME = "tiny.gz"
REAL_FOLDER = Path(os.environ.get(FOLDER_SETTING) or "nowhere")


def needs(*files: DataFile):
    missing = [file.name for file in files if not (REAL_FOLDER / file.name).is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"the data folder ({FOLDER_SETTING}) has no {', '.join(missing)}")


class Home(ThreadingHTTPServer):
    """A server with one file and a temper.

    `ranges`: whether it knows of them. `cuts`: after how many bytes to break off, request by request. `gate`: what to wait for
    after the first `gate_at` bytes. `status`: what to answer instead.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, content: bytes = PACKED) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.cuts, self.status = content, True, [], None
        self.gate, self.gate_at, self.length, self.shift = None, 0, True, 0
        self.asked: list[str | None] = []
        self.sent = 0
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{NAME}"

    def close(self) -> None:
        if self.gate is not None:
            self.gate.set()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Home

    def do_GET(self) -> None:
        home, wanted = self.server, self.headers["Range"]
        home.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and home.ranges else 0
        body = home.content[start:]
        status = home.status or (206 if wanted and home.ranges else 200)
        if status == 206 and not body:
            status = 416
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start + home.shift}-{len(home.content) - 1}/{len(home.content)}")
        if home.length:
            self.send_header("Content-Length", str(len(body) if status in (200, 206) else 0))
        self.end_headers()
        if status not in (200, 206):
            return
        end = home.cuts.pop(0) if home.cuts else len(body)
        if home.gate is not None:
            self._send(body[: home.gate_at])
            home.gate.wait()
            body, end = body[home.gate_at :], end - home.gate_at
        self._send(body[:end])

    def _send(self, data: bytes) -> None:
        self.server.sent += len(data)  # before the client can have it
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *arguments) -> None:
        """Quietly."""


@pytest.fixture
def new_home():
    homes = []

    def make(content: bytes = PACKED) -> Home:
        homes.append(Home(content))
        return homes[-1]

    yield make
    for home in homes:
        home.close()


@pytest.fixture
def home(new_home):
    return new_home()


@pytest.fixture(autouse=True)
def own_world(tmp_path, monkeypatch):
    """No setting, cache, wait or network of the machine reaches a test."""
    real = transfer.urlopen

    def local_urlopen(request, timeout):
        assert request.full_url.startswith("http://127.0.0.1:"), "a test went to the network"
        return real(request, timeout=timeout)

    monkeypatch.delenv(FOLDER_SETTING, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(folders, "user_cache_dir", lambda app: str(tmp_path / "home" / "cache" / app))
    monkeypatch.setattr(transfer, "urlopen", local_urlopen)
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(locks, "POLL", 0.01)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv(FOLDER_SETTING, str(place))
    return place


@pytest.fixture
def offer(monkeypatch):
    """Put a stand-in with these homes into the catalogue, as "covertype"."""

    def enter(*homes: str, content: bytes = CONTENT, reader=lambda content: np.frombuffer(content, np.uint8)) -> DataFile:
        file = DataFile(NAME, hashlib.sha256(content).hexdigest(), homes, reader)
        monkeypatch.setitem(CATALOGUE, "covertype", Entry(((file,),), parse.only))
        return file

    return enter


@pytest.fixture
def closed_port():
    home = Home()
    url = home.url
    home.close()
    return url


def get(**options):
    return sgmcmc.get_dataset("covertype", progress=options.pop("progress", False), **options)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def good(array) -> bool:
    return array.tobytes() == CONTENT


# Found


def test_a_file_in_the_folder_is_used_without_the_network(folder, offer, home):
    offer(home.url)
    (folder / NAME).write_bytes(PACKED)
    assert good(get())
    assert home.asked == []
    assert names(folder) == [NAME]


def test_any_gzip_wrapper_will_do(folder, offer):
    offer("http://127.0.0.1:1/")
    (folder / NAME).write_bytes(gzip.compress(CONTENT, 1, mtime=12345))
    assert good(get(download=False))


def test_without_a_setting_the_cache_folder_is_used(offer, home):
    offer(home.url)
    assert good(get())
    assert names(folders.cache_folder()) == ["covertype.npz", NAME]
    (folders.cache_folder() / "covertype.npz").unlink()
    assert good(get(download=False))


def test_a_setting_that_is_empty_is_no_setting(offer, home, monkeypatch):
    offer(home.url)
    monkeypatch.setenv(FOLDER_SETTING, "")
    assert good(get())
    assert (folders.cache_folder() / NAME).is_file()


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch, offer, home):
    offer(home.url)
    monkeypatch.setenv(FOLDER_SETTING, str(tmp_path / "typo"))
    with pytest.raises(sgmcmc.SgmcmcError, match=r"SGMCMC_DATA is '.*typo', which is not a folder; make it, or set"):
        get()
    assert home.asked == []
    assert not (tmp_path / "typo").exists()


def test_download_false_stays_off_the_network(folder, offer, home):
    offer(home.url)
    with pytest.raises(sgmcmc.SgmcmcError, match=r"tiny\.gz is not in .*data, and download=False; put it there \(from http"):
        get(download=False)
    assert home.asked == []
    assert names(folder) == []


def test_wrong_arguments_are_refused_before_anything_is_done(offer, home):
    offer(home.url)
    with pytest.raises(sgmcmc.InputError, match="expected one of 'covertype', 'mnist'"):
        sgmcmc.get_dataset("iris")
    with pytest.raises(sgmcmc.InputError, match="progress is 3"):
        get(progress=3)
    with pytest.raises(sgmcmc.InputError, match="download is 'no'"):
        get(download="no")
    assert home.asked == []


# Fetched


def test_download(folder, offer, home):
    offer(home.url)
    assert good(get())
    assert home.asked == [None]
    assert names(folder) == [NAME]
    assert (folder / NAME).read_bytes() == PACKED


def test_progress_counts_bytes(folder, offer, home, capsys):
    offer(home.url)
    reports = []
    get(progress=reports.append)
    assert {report["stage"] for report in reports} == {f"downloading {NAME}"}
    assert reports[-1]["done"] == reports[-1]["total"] == len(PACKED)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_a_server_that_tells_no_length(folder, offer, home):
    home.length = False
    offer(home.url)
    assert good(get())


def test_what_is_there_is_not_fetched_again(folder, offer, home):
    offer(home.url)
    (folder / f"{NAME}.part").write_bytes(PACKED[:20_000])
    reports = []
    assert good(get(progress=reports.append))
    assert home.asked == ["bytes=20000-"]
    assert home.sent == len(PACKED) - 20_000
    assert reports[0]["done"] == 20_000
    assert names(folder) == [NAME]


def test_truncated_transfers_are_resumed(folder, offer, home):
    home.cuts = [10_000, 25_000]
    offer(home.url)
    assert good(get())
    assert home.asked == [None, "bytes=10000-", "bytes=35000-"]
    assert home.sent == len(PACKED)
    assert names(folder) == [NAME]


def test_a_transfer_that_keeps_breaking_off_is_kept_for_the_next_call(folder, offer, home):
    home.cuts = [1000] * download.TRIES
    offer(home.url)
    with pytest.raises(
        sgmcmc.SgmcmcError,
        match=r"broke off after 4000 of \d+ bytes\); the 4000 bytes .* calling again continues .*; put tiny\.gz",
    ):
        get()
    assert names(folder) == [f"{NAME}.part"]
    assert good(get())
    assert home.asked[-1] == "bytes=4000-"
    assert home.sent == len(PACKED)


def test_a_silent_server_times_out_and_what_came_is_kept(folder, offer, home, monkeypatch):
    monkeypatch.setattr(transfer, "TIMEOUT", 2.0)
    monkeypatch.setattr(download, "TRIES", 1)
    home.gate, home.gate_at = threading.Event(), 5000
    offer(home.url)
    with pytest.raises(sgmcmc.SgmcmcError, match=r"broke off \(timed out\).*calling again continues"):
        get()
    assert (folder / f"{NAME}.part").read_bytes() == PACKED[:5000]


def test_a_server_without_ranges_starts_over(folder, offer, home):
    home.ranges, home.cuts = False, [10_000]
    offer(home.url)
    assert good(get())
    assert home.asked == [None, "bytes=10000-"]
    assert home.sent == 10_000 + len(PACKED)


def test_a_server_that_sends_another_range_starts_over(folder, offer, home):
    home.shift = 7
    offer(home.url)
    (folder / f"{NAME}.part").write_bytes(PACKED[:20_000])
    assert good(get())
    assert home.asked == ["bytes=20000-", None]


def test_a_complete_part_needs_no_more_bytes(folder, offer, home):
    offer(home.url)
    (folder / f"{NAME}.part").write_bytes(PACKED)
    assert good(get())
    assert home.sent == 0


@pytest.mark.parametrize("rubbish", [b"x" * 100, b"x" * len(PACKED), b"x" * 100_000], ids=["shorter", "as long", "longer"])
def test_a_part_of_something_else_starts_over(folder, offer, home, rubbish):
    offer(home.url)
    (folder / f"{NAME}.part").write_bytes(rubbish)
    assert good(get())
    assert home.asked == [f"bytes={len(rubbish)}-", None]
    assert names(folder) == [NAME]


def test_wrong_content_leads_to_the_next_home(folder, offer, new_home):
    wrong, right = new_home(gzip.compress(b"something else")), new_home()
    offer(wrong.url, right.url)
    assert good(get())
    assert (len(wrong.asked), right.asked) == (1, [None])
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


def test_a_part_from_a_home_with_another_wrapper(folder, offer, new_home):
    first, second = new_home(), new_home(gzip.compress(b"", mtime=0) + PACKED)
    first.cuts = [30_000] + [0] * download.TRIES
    offer(first.url, second.url)
    assert good(get())
    assert second.asked == ["bytes=30000-", None]
    assert names(folder) == [NAME]


@pytest.mark.parametrize("status", [202, 404, 503])
def test_a_refusal_leads_to_the_next_home(folder, offer, new_home, status):
    refusing, right = new_home(), new_home()
    refusing.status = status
    offer(refusing.url, right.url)
    (folder / f"{NAME}.part").write_bytes(PACKED[:100])
    assert good(get())
    assert refusing.asked == right.asked == ["bytes=100-"]


def test_no_network_leads_to_a_clear_error_and_leaves_nothing(tmp_path, offer, closed_port):
    offer(closed_port, "http://127.0.0.1:1/second")
    with pytest.raises(sgmcmc.SgmcmcError) as caught:
        get()
    message, place = str(caught.value), folders.cache_folder()
    assert f"{closed_port}: no answer (" in message
    assert "http://127.0.0.1:1/second: no answer (" in message
    assert f"put {NAME} into {place} yourself, or set SGMCMC_DATA to the folder that has it" in message
    assert names(tmp_path) == []


def test_no_network_leaves_a_named_folder_as_it_was(folder, offer, closed_port):
    offer(closed_port)
    with pytest.raises(sgmcmc.SgmcmcError, match="no answer"):
        get()
    assert names(folder) == []
    (folder / f"{NAME}.part").write_bytes(PACKED[:100])
    with pytest.raises(sgmcmc.SgmcmcError, match="the 100 bytes that came are kept"):
        get()
    assert (folder / f"{NAME}.part").read_bytes() == PACKED[:100]


def test_fallback_to_the_second_home(folder, offer, home, closed_port):
    offer(closed_port, home.url)
    assert good(get())


def test_an_interrupted_download_goes_on(folder, offer, home):
    offer(home.url)
    home.gate, home.gate_at = threading.Event(), 30_000

    def interrupt(report):
        if report["done"] == 30_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(progress=interrupt)
    home.gate.set()
    assert names(folder) == [f"{NAME}.part"]
    assert good(get())
    assert home.asked == [None, "bytes=30000-"]


def test_only_what_is_missing_is_fetched(folder, monkeypatch, new_home):
    contents = {"one.gz": b"1", "two.gz": b"2"}
    homes = {name: new_home(gzip.compress(content)) for name, content in contents.items()}
    files = tuple(
        DataFile(name, hashlib.sha256(content).hexdigest(), (homes[name].url,), lambda text: np.frombuffer(text, np.uint8))
        for name, content in contents.items()
    )
    monkeypatch.setitem(CATALOGUE, "mnist", Entry((files,), lambda arrays: b"".join(array.tobytes() for array in arrays)))
    (folder / "one.gz").write_bytes(gzip.compress(b"1"))
    assert sgmcmc.get_dataset("mnist", progress=False) == b"12"
    assert (homes["one.gz"].asked, homes["two.gz"].asked) == ([], [None])


@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permissions there")
def test_a_folder_that_may_not_be_written_to(folder, offer, home):
    offer(home.url)
    folder.chmod(0o555)
    try:
        with pytest.raises(sgmcmc.SgmcmcError, match=r"writing there fails \(Permission denied\); put tiny\.gz into"):
            get()
    finally:
        folder.chmod(0o755)
    assert names(folder) == []


@pytest.mark.parametrize("module", [locks, download], ids=["at the start", "at the end"])
@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_a_disk_that_refuses(folder, offer, home, monkeypatch, module):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    offer(home.url)
    monkeypatch.setattr(*((locks, "_locked") if module is locks else (download.os, "fsync")), refuse)
    with pytest.raises(sgmcmc.SgmcmcError, match=r"writing there fails \(No space left on device\); put .* with room"):
        get()
    assert NAME not in names(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_two_at_once_download_once(folder, offer, home):
    file = offer(home.url)
    home.gate, home.gate_at = threading.Event(), 10_000
    waiting, failures = threading.Event(), []

    def fetch(progress):
        try:
            download.download(file, folder, progress)
        except BaseException as error:
            failures.append(error)

    first = threading.Thread(target=fetch, args=(False,))
    first.start()
    wait_for(lambda: home.sent == 10_000)
    second = threading.Thread(target=fetch, args=(lambda report: waiting.set(),))
    second.start()
    assert waiting.wait(30)
    home.gate.set()
    first.join()
    second.join()
    assert failures == []
    assert home.asked == [None]
    assert names(folder) == [NAME]
    assert good(get(download=False))


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_the_lock_is_on_the_file_of_that_name_even_if_it_was_removed_meanwhile(tmp_path):
    import fcntl

    part, waiting, inside, done = tmp_path / "part", threading.Event(), threading.Event(), threading.Event()

    def second():
        with locks.alone(part, lambda report: waiting.set()):
            inside.set()
            done.wait()

    thread = threading.Thread(target=second, daemon=True)
    with locks.alone(part, False):
        thread.start()
        assert waiting.wait(30)
    assert inside.wait(30)
    with part.open("rb") as third, pytest.raises(BlockingIOError):
        fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    done.set()
    thread.join()
    assert names(tmp_path) == []


def wait_for(condition) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


CHILD = """
import sys
from pathlib import Path
from sgmcmc.datasets.catalogue import DataFile
from sgmcmc.datasets.download import download

download(DataFile(sys.argv[1], sys.argv[2], (sys.argv[3],), lambda content: content), Path(sys.argv[4]), False)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
def test_a_killed_process_leaves_no_lock_and_its_bytes_are_used(folder, offer, home):
    file = offer(home.url)
    home.gate, home.gate_at = threading.Event(), 30_000
    part = folder / f"{NAME}.part"
    child = subprocess.Popen([sys.executable, "-c", CHILD, NAME, file.sha256, home.url, str(folder)])
    wait_for(lambda: part.exists() and part.stat().st_size > 0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    home.gate.set()
    there = part.stat().st_size
    assert good(get())
    assert home.asked == [None, f"bytes={there}-"]


# Verified


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (gzip.compress(b"1,2,3\n"), f"its content has SHA-256 {hashlib.sha256(b'1,2,3' + bytes([10])).hexdigest()}, expected"),
        (PACKED[:-100], r"it does not unpack \(EOFError"),
        (PACKED[:5], r"it does not unpack \(EOFError"),
        (b"", "its content has SHA-256 e3b0c442"),
        (b"<html></html>", r"it does not unpack \(BadGzipFile"),
        (PACKED[:5000] + b"?" + PACKED[5001:], r"it does not unpack \("),
        (PACKED + b"more", r"it does not unpack \(BadGzipFile"),
    ],
    ids=["other", "truncated", "header only", "empty", "not gzip", "a byte changed", "more behind"],
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
    assert not folders.cache_folder().exists()
    (folder / NAME).unlink()
    assert good(get())


def test_a_file_damaged_later_is_noticed(folder, offer, home):
    offer(home.url)
    (folder / NAME).write_bytes(PACKED)
    get()
    os.truncate(folder / NAME, len(PACKED) - 1)
    with pytest.raises(sgmcmc.SgmcmcError, match="is damaged"):
        get()


def test_a_file_that_cannot_be_read_is_named(folder, offer, home, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    offer(home.url)
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
        (b"\0\0\x08\x03\0\0", "it starts with the bytes 00 00 08 03"),
        (idx(2, 3, numbers=b"12345"), r"its header says shape \(2, 3\), expected one for the 5 numbers it has"),
    ],
    ids=["empty", "floats", "short", "too few"],
)
def test_a_wrong_idx_header_is_named(folder, offer, home, content, reason):
    offer(home.url, content=content, reader=parse.idx)
    (folder / NAME).write_bytes(gzip.compress(content))
    with pytest.raises(sgmcmc.SgmcmcError, match=rf"tiny\.gz is damaged or another version: {reason}"):
        get()


# Copied


@pytest.fixture
def copied(folder, offer, home):
    """A dataset loaded once, and its copy."""
    offer(home.url)
    (folder / NAME).write_bytes(PACKED)
    get()
    return folders.cache_folder() / "covertype.npz"


def cannot_parse(content):
    raise AssertionError("parsed again")


def test_the_second_load_uses_the_copy(copied, offer, home):
    offer(home.url, reader=cannot_parse)
    assert good(get())
    assert good(get(download=False))
    assert names(copied.parent) == [copied.name]


def test_a_damaged_copy_is_made_again(copied, recwarn):
    whole = copied.read_bytes()
    places = [*range(0, 400, 7), *range(400, len(whole), 997), *range(len(whole) - 400, len(whole), 7)]
    damaged = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in places]
    for content in [*damaged, *(whole[:place] for place in places), b"rubbish"]:
        copied.write_bytes(content)
        assert good(get())
    assert copies._load(copied, copies._stamp(CATALOGUE["covertype"].routes[0], Path(os.environ[FOLDER_SETTING])), 1) is not None
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("change", ["time", "folder", "format", "checksum"])
def test_a_copy_of_something_else_is_made_again(copied, folder, offer, home, monkeypatch, change):
    offer(home.url, reader=cannot_parse)
    if change == "time":
        os.utime(folder / NAME, ns=(1, 1))
    if change == "folder":
        (folder.parent / "elsewhere").mkdir()
        (folder.parent / "elsewhere" / NAME).write_bytes(PACKED)
        os.utime(folder.parent / "elsewhere" / NAME, ns=(0, (folder / NAME).stat().st_mtime_ns))
        monkeypatch.setenv(FOLDER_SETTING, str(folder.parent / "elsewhere"))
    if change == "format":
        monkeypatch.setattr(copies, "FORMAT", copies.FORMAT + 1)
    if change == "checksum":
        offer(home.url, content=b"a new version", reader=cannot_parse)
    with pytest.raises(sgmcmc.SgmcmcError if change == "checksum" else AssertionError):
        get()
    if change != "checksum":
        offer(home.url)
        assert good(get())
        offer(home.url, reader=cannot_parse)
        assert good(get())


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")], ids=["ctrl-c", "disk full"]
)
def test_an_interrupted_copy_leaves_nothing(folder, offer, home, monkeypatch, error):
    def interrupted(stream, *arrays):
        stream.write(b"PK half a copy")
        raise error

    offer(home.url)
    (folder / NAME).write_bytes(PACKED)
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", interrupted)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                get()
        else:
            assert good(get())
    assert names(folders.cache_folder()) == []
    assert good(get())


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, folder, offer, home, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(folders, "user_cache_dir", lambda app: str(tmp_path / "file" / app))
    offer(home.url)
    assert good(get())
    assert good(get())
    monkeypatch.delenv(FOLDER_SETTING)
    with pytest.raises(sgmcmc.SgmcmcError, match="writing there fails"):
        get()


# Parsed


def covertype_table(n_rows: int) -> np.ndarray:
    """Rows as UCI has them: ten quantities, two groups of indicators, a class."""
    rng = np.random.default_rng(2)
    quantities = rng.integers(0, parse.COVERTYPE_WIDTHS[:10] + 1, (n_rows, 10))
    quantities[:2] = np.zeros(10), parse.COVERTYPE_WIDTHS[:10]
    quantities[:, 4] -= 173
    groups = [np.eye(width, dtype=int)[np.r_[:width, rng.integers(0, width, n_rows - width)]] for width in (4, 40)]
    return np.column_stack([quantities, *groups, rng.integers(1, 8, n_rows)])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(parse, "BLOCK_ROWS", 7)
    monkeypatch.setattr(parse, "BLOCK_BYTES", 1000)


def scaled(table: np.ndarray) -> np.ndarray:
    features = table[:, :-1]
    return (features - features.min(0)) / (features.max(0) - features.min(0))


def test_covertype_from_uci(small_blocks):
    table = covertype_table(100)
    text = "".join(",".join(map(str, row)) + "\n" for row in table)
    array = parse.covertype_from_uci(text.encode())
    assert array.dtype == np.float32
    assert array.shape == (100, 55)
    np.testing.assert_array_equal(array[:, 0], table[:, -1] == 2)
    np.testing.assert_array_equal(array[:, 1:], scaled(table).astype(np.float32))


def test_covertype_from_libsvm(small_blocks):
    table = covertype_table(100)
    lines = [
        f"{1 + (kind == 2)} " + "".join(f"{column}:{value:g} " for column, value in enumerate(row, 1) if value) + "\n"
        for row, kind in zip(scaled(table), table[:, -1], strict=True)
    ]
    lines[50:50] = ["1 \n"]
    array = parse.covertype_from_libsvm("".join(lines).encode())
    assert array.dtype == np.float32
    assert array.shape == (101, 55)
    assert not array[50].any()
    array = np.delete(array, 50, axis=0)
    np.testing.assert_array_equal(array[:, 0], table[:, -1] == 2)
    np.testing.assert_array_equal(array[:, 1:], scaled(table).astype(np.float32))


def test_mnist(monkeypatch):
    monkeypatch.setattr(parse, "VALIDATION_ROWS", 2)
    images = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
    contents = [idx(5, 28, 28, numbers=images.tobytes()), idx(5, numbers=bytes([0, 1, 2, 3, 9]))] * 2
    parts = parse.mnist([parse.idx(content) for content in contents])
    assert {name: (part["images"].shape, part["labels"].shape) for name, part in parts.items()} == {
        "train": ((3, 784), (3, 10)),
        "test": ((5, 784), (5, 10)),
    }
    np.testing.assert_array_equal(parts["train"]["images"], images[2:].reshape(3, 784).astype(np.float32) / 255)
    np.testing.assert_array_equal(parts["train"]["labels"].argmax(1), [2, 3, 9])
    assert all(array.dtype == np.float32 and array.flags.writeable for part in parts.values() for array in part.values())


def test_the_libsvm_file_serves_where_only_that_is_there(folder, monkeypatch):
    uci, libsvm = b"uci", b"libsvm"
    files = [
        DataFile(name, hashlib.sha256(content).hexdigest(), ("http://127.0.0.1:1/",), lambda text: np.frombuffer(text, np.uint8))
        for name, content in (("a.gz", uci), ("b.bz2", libsvm))
    ]
    monkeypatch.setitem(CATALOGUE, "covertype", Entry(tuple((file,) for file in files), parse.only))
    (folder / "b.bz2").write_bytes(bz2.compress(libsvm))
    assert get().tobytes() == libsvm
    (folder / "a.gz").write_bytes(gzip.compress(uci))
    assert get().tobytes() == uci
    (folder / "a.gz").unlink()
    (folder / "b.bz2").write_bytes(bz2.compress(libsvm)[:-1])
    with pytest.raises(sgmcmc.SgmcmcError, match=r"b\.bz2 is damaged or another version: it does not unpack"):
        get()


# The real files


@needs(COVERTYPE_UCI)
def test_real_covertype(monkeypatch):
    monkeypatch.setenv(FOLDER_SETTING, str(REAL_FOLDER))
    covertype = sgmcmc.get_dataset("covertype", download=False)
    assert covertype.shape == (581_012, 55)
    assert covertype.dtype == np.float32
    assert covertype[:, 0].sum() == 283_301
    assert covertype.min() == 0
    assert covertype.max() == 1
    np.testing.assert_array_equal(sgmcmc.get_dataset("covertype", download=False), covertype)


@needs(COVERTYPE_UCI, COVERTYPE_LIBSVM)
def test_real_covertype_is_the_same_from_both_files(folder, monkeypatch):
    (folder / COVERTYPE_LIBSVM.name).symlink_to(REAL_FOLDER / COVERTYPE_LIBSVM.name)
    libsvm = sgmcmc.get_dataset("covertype", download=False)
    monkeypatch.setenv(FOLDER_SETTING, str(REAL_FOLDER))
    uci = sgmcmc.get_dataset("covertype", download=False)
    assert libsvm.dtype == uci.dtype
    np.testing.assert_array_equal(libsvm, uci)


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


# Split

ROWS = {"X": np.arange(200.0).reshape(100, 2), "y": np.arange(100)}


@pytest.mark.parametrize(("test_size", "count"), [(1, 1), (99, 99), (0.25, 25), (np.int64(10), 10), (np.float32(0.5), 50)])
def test_split(test_size, count):
    train, test = sgmcmc.train_test_split(ROWS, test_size, seed=3)
    assert (len(train["y"]), len(test["y"])) == (100 - count, count)
    assert sorted([*train["y"], *test["y"]]) == list(range(100))
    for part in (train, test):
        assert list(part) == ["X", "y"]
        assert part["X"].dtype == np.float64
        np.testing.assert_array_equal(part["X"][:, 0], 2 * part["y"])
        np.testing.assert_array_equal(part["y"], np.sort(part["y"]))


def test_split_follows_its_seed():
    def rows(seed):
        return sgmcmc.train_test_split(ROWS, 30, seed=seed)[1]["y"].tolist()

    assert rows(1) == rows(1) == rows(np.int64(1)) == rows(np.random.default_rng(1))
    assert rows(1) != rows(2)
    generator = np.random.default_rng(1)
    assert rows(generator) != rows(generator)


def test_split_gives_every_row_its_chance():
    rng, n_splits = np.random.default_rng(4), 2000
    tested = sum(
        np.bincount(sgmcmc.train_test_split({"y": range(10)}, 3, seed=rng)[1]["y"], minlength=10) for _ in range(n_splits)
    )
    error = np.sqrt(n_splits * 0.3 * 0.7)
    assert np.abs(tested - 0.3 * n_splits).max() < 4.5 * error  # ten counts: a false alarm in 15,000 seeds


def test_split_takes_what_numpy_takes():
    import jax.numpy as jnp
    import pandas

    train, test = sgmcmc.train_test_split({"a": [1, 2, 3], "b": jnp.ones((3, 2)), "c": ["x", "y", "z"]}, 1, seed=1)
    assert (train["b"].shape, test["b"].shape, len(test["c"])) == ((2, 2), (1, 2), 1)
    assert all(type(array) is np.ndarray for array in train.values())
    frame_test = sgmcmc.train_test_split(pandas.DataFrame({"a": [1, 2, 3]}), 1, seed=1)[1]
    np.testing.assert_array_equal(frame_test["a"], test["a"])
    masked = sgmcmc.train_test_split({"a": np.ma.masked_equal([1, 1, 1], 1)}, 1, seed=1)[0]["a"]
    assert np.ma.is_masked(masked)


@pytest.mark.parametrize(
    ("dataset", "test_size", "seed", "message"),
    [
        (np.ones((5, 2)), 1, 1, r"dataset is ndarray of shape \(5, 2\).*expected a dict of arrays"),
        ({}, 1, 1, "dataset has no arrays"),
        ({"X": np.ones((5, 2)), "y": np.ones(4)}, 1, 1, "different numbers of rows: 'X' has 5, 'y' has 4"),
        ({"X": [[1, 2], [3]]}, 1, 1, r"dataset\['X'\] is no array .*expected rows of one shape"),
        ({"n": 5}, 1, 1, r"dataset\['n'\] is 5; expected an array with rows"),
        ({"train": {"x": [1, 2]}}, 1, 1, r"dataset\['train'\] is \{'x': \[1, 2\]\}; expected an array"),
        ({"x": [1.0]}, 1, 1, "dataset has 1 rows; expected at least 2"),
        ({"x": []}, 1, 1, "dataset has 0 rows"),
        (ROWS, 0, 1, "test_size is 0, 0 of 100 rows, which leaves a part empty; expected a count from 1 to 99"),
        (ROWS, 100, 1, "which leaves a part empty"),
        (ROWS, -3, 1, "leaves a part empty"),
        (ROWS, 0.001, 1, "test_size is 0.001, 0 of 100 rows"),
        (ROWS, 0.999, 1, "test_size is 0.999, 100 of 100 rows"),
        (ROWS, 1.0, 1, "test_size is 1.0; expected a count"),
        (ROWS, 20.0, 1, "test_size is 20.0; expected a count"),
        (ROWS, float("nan"), 1, "test_size is nan"),
        (ROWS, True, 1, "test_size is True"),
        (ROWS, "10%", 1, "test_size is '10%'"),
        (ROWS, None, 1, "test_size is None"),
        (ROWS, 10, None, "seed is None; expected a whole number such as seed=1, or a NumPy generator"),
        (ROWS, 10, True, "seed is True"),
        (ROWS, 10, -1, "seed is -1"),
        (ROWS, 10, 1.5, "seed is 1.5"),
    ],
)
def test_split_refuses(dataset, test_size, seed, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        sgmcmc.train_test_split(dataset, test_size, seed=seed)


def test_split_needs_a_seed():
    with pytest.raises(TypeError, match="seed"):
        sgmcmc.train_test_split(ROWS, 10)
