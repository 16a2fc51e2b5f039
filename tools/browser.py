"""A page in Chromium as a reader has it: what it says, what it asks the network for, and a picture of it.

    python -m tools.browser page.html picture.png --width 390 --dark

It speaks the DevTools protocol through two pipes, so that no port is open and no driver is needed.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
]  # fmt: skip
PATIENCE = 60.0
"""Seconds for an answer."""

START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):  # where Chromium looks for its pipes
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


@dataclass
class Seen:
    """What a page did while it was loaded: lines of its console, and addresses that it asked for."""

    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Browser:
    """One tab of a Chromium that runs."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._numbers, self._rest = to, back, itertools.count(1), b""
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol, and its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False, scale: float = 1.0) -> Seen:
        """Load a page in a window so wide, and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())
        self.call("Runtime.evaluate", expression="document.fonts.ready", awaitPromise=True)
        return self._seen()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path, part: str | None = None, most: int | None = None) -> None:
        """A PNG of the page, or of the first element that a selector finds, of at most so many pixels' height."""
        box = "document.documentElement" if part is None else f"document.querySelector({json.dumps(part)})"
        x, y, width, height = self.evaluate(
            f"(r => [r.x + scrollX, r.y + scrollY, r.width, r.height])({box}.getBoundingClientRect())"
        )
        clip = {"x": x, "y": y, "width": width, "height": min(height, most or height), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _seen(self) -> Seen:
        seen = Seen()
        for event in self._events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Network.requestWillBeSent":
                seen.requests.append(params["request"]["url"])
            elif method == "Log.entryAdded":
                seen.console.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled":
                seen.console.append(str([one.get("value") for one in params["args"]]))
            elif method == "Runtime.exceptionThrown":
                seen.console.append(params["exceptionDetails"]["text"])
        return seen

    def _next(self) -> dict[str, Any]:
        """The next message, an answer or an event."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._back, 1 << 16) if ready else b""
            if not piece:
                raise TimeoutError("Chromium does not answer")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a profile of its own, which is gone afterwards with all of its processes."""
    path = installed()
    if path is None:
        raise FileNotFoundError("there is no Chromium; make browser installs it")
    (theirs_in, to), (back, theirs_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [sys.executable, "-S", "-c", START, str(theirs_in), str(theirs_out), path, *FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command,
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            found = Browser(to, back)
            yield found
            found._session = None
            with suppress(OSError, TimeoutError):
                found.call("Browser.close")
                process.wait(10)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to)
            os.close(back)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--most", type=int, help="pixels of height at most")
    parser.add_argument("--part", help="a selector: the picture is of this element")
    parser.add_argument("--dark", action="store_true")
    told = parser.parse_args()
    with browser() as tab:
        seen = tab.open(told.page, told.width, dark=told.dark)
        tab.picture(told.picture, told.part, told.most)
    print(f"{told.picture}: {len(seen.requests)} request, {len(seen.console)} lines on the console")


if __name__ == "__main__":
    main()
