"""A stand-in dataset, and a server on this machine that has it. `from dataset_server import *` brings the fixtures."""

from __future__ import annotations

import gzip
import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import sgmcmc
from sgmcmc.core import files
from sgmcmc.data.datasets import FOLDER_SETTING, catalogue, local
from sgmcmc.data.datasets.catalogue import CATALOGUE, DataFile, Entry

__all__ = ["folder", "home", "new_home", "offer", "own_world"]

CONTENT = np.random.default_rng(1).bytes(60_000)
PACKED = gzip.compress(CONTENT, mtime=0)
NAME = "tiny.gz"
NOWHERE = "http://127.0.0.1:1/"


def get(**options):
    return sgmcmc.get_dataset("covertype", progress=options.pop("progress", False), **options)


def good(array) -> bool:
    return array.tobytes() == CONTENT


def as_bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def data_file(name: str, content: bytes, *homes: str, reader=as_bytes) -> DataFile:
    return DataFile(name, hashlib.sha256(content).hexdigest(), homes, reader)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


class Home(ThreadingHTTPServer):
    """A server with one file and a temper.

    `cuts`: after how many bytes to break off, request by request. `gate`: what to wait for after the first `gate_at` bytes.
    `status`: what to answer instead. `length`: whether it tells it. `encoding`: what it calls the packing.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, content: bytes = PACKED) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cuts, self.status, self.encoding = content, [], None, None
        self.gate, self.gate_at, self.length = None, 0, True
        self.asked = self.sent = 0
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
        home = self.server
        home.asked += 1
        body = home.content if home.status is None else b""
        self.send_response(home.status or 200)
        if home.encoding:
            self.send_header("Content-Encoding", home.encoding)
        if home.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
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


@pytest.fixture(autouse=True)
def own_world(tmp_path, monkeypatch):
    """No setting, cache, wait or network of the machine reaches a test."""
    real = socket.getaddrinfo

    def local_address(host, *arguments, **options):
        assert host == "127.0.0.1", "a test went to the network"
        return real(host, *arguments, **options)

    monkeypatch.delenv(FOLDER_SETTING, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(local, "user_cache_dir", lambda app: str(tmp_path / "home" / "cache" / app))
    monkeypatch.setattr(socket, "getaddrinfo", local_address)
    monkeypatch.setattr(local, "PAUSE", 0.0)
    monkeypatch.setattr(files, "POLL", 0.01)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv(FOLDER_SETTING, str(place))
    return place


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
def offer(monkeypatch):
    """Put a stand-in with these homes into the catalogue, as "covertype"."""

    def enter(*homes: str, content: bytes = CONTENT, reader=as_bytes) -> DataFile:
        file = data_file(NAME, content, *homes, reader=reader)
        monkeypatch.setitem(CATALOGUE, "covertype", Entry(((file,),), catalogue.only))
        return file

    return enter


@pytest.fixture
def home(new_home, offer):
    """Where the stand-in comes from, unless a test offers another."""
    made = new_home()
    offer(made.url)
    return made
