"""A chain killed again and again: `python killed_runs.py folder kills`. Run by test_runfolder.py.

The process forks its workers before it has used JAX, so that each begins at once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import warnings

import jax
import numpy as np
from forked import started

from sgmcmc.checkpoints.folder import RunFolder
from sgmcmc.checkpoints.reading import read
from sgmcmc.core.errors import SgmcmcError

PRINT = {"chain": "linear congruential"}
LIKE = {"x": jax.ShapeDtypeStruct((2, 3), np.uint32), "t": jax.ShapeDtypeStruct((2,), np.int32)}
START = np.arange(6, dtype=np.uint32).reshape(2, 3)


def advance(x):
    return x * np.uint32(1664525) + np.uint32(1013904223)


def chain(folder, until, pipe=None):
    """Go on from the last checkpoint; one every few draws."""
    with RunFolder.open(folder, PRINT) as run:
        if pipe is not None:
            os.write(pipe, b"!")
        progress = run.last_checkpoint()
        x, done = (START, 0) if progress is None else (progress.contents["x"], progress.contents["done"])
        file = run.draw_file("draws", LIKE, True)
        assert file.filled == done
        while done < until:
            count = min(1 + done % 7, until - done)
            some = []
            for _ in range(count):
                x = advance(x)
                some.append(x)
            numbers = np.repeat(np.arange(done, done + count, dtype=np.int32)[:, None], 2, axis=1)
            file.add((count, {"x": np.stack(some), "t": numbers}))
            done += count
            run.commit({"x": x, "done": done})


def expected(count):
    x, all_x = START, np.empty((count, 2, 3), np.uint32)
    for t in range(count):
        all_x[t] = x = advance(x)
    return all_x


def right(draws, done):
    """Whether these are the first `done` draws of the chain."""
    whole = draws["x"].shape == (2, done, 3) and draws["t"].shape == (2, done)
    return whole and np.array_equal(np.moveaxis(draws["x"], 1, 0), expected(done)) and (draws["t"] == np.arange(done)).all()


def watch(folder, pipe):
    """Read until told to stop; tell how often."""
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    readings, last = 0, 0
    while not told:
        done, draws = committed(folder)
        assert last <= done, (last, done)
        assert right(draws, done)
        readings, last = readings + (done > 0), done
    os.write(pipe, f"{readings}".encode())


def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def committed(folder):
    """How many draws there are, and the draws."""
    try:
        found = read(folder)
    except SgmcmcError as error:
        if "no draws yet" in str(error) or "there is no folder" in str(error):
            return 0, {"x": np.empty((2, 0, 3)), "t": np.empty((2, 0))}
        raise
    assert found.last.contents["done"] == found.last.n_draws["draws"]
    return found.last.n_draws["draws"], found.draws["draws"]


def in_a_process(function):
    """A number, computed where it may start JAX."""
    out, into = os.pipe()
    assert ended(started(lambda: os.write(into, str(function()).encode()))) == 0
    os.close(into)
    with os.fdopen(out) as file:
        return int(file.read())


def main(folder, kills):
    random.seed(1)
    out, into = os.pipe()
    reader = started(watch, folder, into)
    moments = []
    for number in range(kills):
        begun, begins = os.pipe()
        worker = started(chain, folder, 10**9, begins)
        if number % 4:  # the others die while they open the folder, or soon after
            os.read(begun, 1)
        time.sleep(random.uniform(0.0, 0.3))
        os.kill(worker, signal.SIGKILL)
        assert ended(worker) == -signal.SIGKILL
        moments.append(in_a_process(lambda: committed(folder)[0]))
    assert ended(started(chain, folder, moments[-1] + 100)) == 0
    os.kill(reader, signal.SIGTERM)
    assert ended(reader) == 0
    done, draws = committed(folder)
    print(f"kills: {kills}")
    print(f"resumed in the middle: {len(set(moments) - {0})}")
    print(f"readings: {os.read(out, 100).decode()}")
    print(f"draws: {done}")
    print(f"final draws equal: {bool(right(draws, moments[-1] + 100))}")


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*fork")
    main(sys.argv[1], int(sys.argv[2]))
