"""Ways to feed random rows to the compiled loop, beside the C loop: why it is done as it is.

All of them once per round, so that a ratio compares neighbours in time. Tables go to benchmarks/build/feeding.md.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import jax
import numpy as np
from tqdm import tqdm

import sgmcmc
from benchmarks.common.problem import BUILD, COLUMNS, ITERATIONS, MINIBATCH, ROWS, Dataset, arguments, options, synthetic
from benchmarks.common.table import spread, table
from benchmarks.steps.limit import Limit, compile_limit
from sgmcmc.core.trees import Batch
from sgmcmc.rows import drawing, gathering, native, sources
from sgmcmc.rows.table import whole

MINIBATCHES = 299
"""In a chunk of 32 MB."""

CHUNK_SIZES = (64, 128, 600)
"""Iterations in a chunk of other sizes."""

C_COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or "cc"

OURS = "compiled, memory used again"
LIMIT = "C loop, random rows"

Timed = Callable[[], tuple[float, float]]
"""Microseconds by the clock and of all processors, per iteration or minibatch."""

Times = dict[str, list[tuple[float, float]]]
Take = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
"""`take(array, index, out)`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    BUILD.mkdir(exist_ok=True)
    limit, data = compile_limit(), synthetic(ROWS)
    if limit is None:
        raise SystemExit("feeding: there is no C compiler (cc, gcc or clang), so there is nothing to compare with")
    begin = os.getloadavg()
    copies = measured(copying_jobs(data, limit), rounds, "copying")
    steps = measured(step_jobs(data, limit), rounds, "steps")
    load = f"Load of the machine ({os.cpu_count()} cores): {begin[0]:.1f} before, {os.getloadavg()[0]:.1f} after."
    text = "\n\n".join([report_copies(copies), report_steps(steps), load])
    (BUILD / "feeding.md").write_text(text + "\n")
    print(text)


def clock(work: Callable[[], Any], count: int) -> tuple[float, float]:
    begin, used = time.perf_counter(), time.process_time()
    work()
    return 1e6 * (time.perf_counter() - begin) / count, 1e6 * (time.process_time() - used) / count


def c_loop(limit: Limit, data: Dataset) -> tuple[float, float]:
    n_rows = len(data["y"])
    microseconds = limit.microseconds("random", (n_rows,))[n_rows]
    return microseconds, microseconds


def measured(jobs: dict[str, Timed], rounds: int, what: str) -> Times:
    times: Times = {name: [] for name in jobs}
    with tqdm(total=(1 + rounds) * len(jobs), desc=what, unit="run") as bar:
        for number in range(1 + rounds):
            for name, job in jobs.items():
                microseconds = job()
                if number:
                    times[name].append(microseconds)
                bar.update()
    return times


# Copying alone


def copying_jobs(data: Dataset, limit: Limit, minibatches: int = MINIBATCHES) -> dict[str, Timed]:
    """The features of a chunk's minibatches, copied in several ways; microseconds per minibatch."""
    X, rng = data["X"], np.random.default_rng(0)
    chunks = [rng.integers(0, len(X), (minibatches, MINIBATCH)).astype(np.int32) for _ in range(3)]
    ordered = [np.sort(index, axis=1) for index in chunks]
    packed = np.concatenate([X, data["y"][:, None]], axis=1)
    warm = {width: np.zeros((minibatches, MINIBATCH, width), np.float32) for width in (COLUMNS, COLUMNS + 1)}

    in_use: deque[np.ndarray] = deque(maxlen=2)  # as in a run: one chunk computes, one waits, one is being copied

    def fresh() -> np.ndarray:
        in_use.append(gathering.aligned((minibatches, MINIBATCH, COLUMNS), np.float32))
        return in_use[-1]

    def job(copy: Take, chunks: Any = chunks, out: Any = None, X: Any = X) -> Timed:
        def work() -> None:
            for index in chunks:
                copy(X, index, warm[X.shape[1]] if out is None else out())

        return lambda: clock(work, len(chunks) * minibatches)

    return {
        LIMIT: lambda: c_loop(limit, data),
        "NumPy, fresh memory": job(numpy_take, out=fresh),
        "NumPy, memory used again": job(numpy_take),
        "NumPy, rows with their label in one matrix": job(numpy_take, X=packed),
        "NumPy, row numbers sorted": job(numpy_take, ordered),
        "compiled, nothing announced": job(compiled_take("-DROWS_AHEAD=1000000000")),
        "compiled, announced to the first-level cache": job(compiled_take("-DLOCALITY=3")),
        "compiled, announced 4 rows ahead": job(compiled_take("-DROWS_AHEAD=4")),
        "compiled, announced 64 rows ahead": job(compiled_take("-DROWS_AHEAD=64")),
        "compiled, fresh memory": job(compiled_take(), out=fresh),
        OURS: job(compiled_take()),
        "the same in two threads": job(in_two_threads(compiled_take())),
    }


def numpy_take(array: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    np.take(array, index, axis=0, out=out, mode="clip")


def compiled_take(*flags: str) -> Take:
    library = compiled(*flags)

    def take(array: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
        library.copy_rows(array.ctypes.data, len(array), array[0].nbytes, index.ctypes.data, index.size, out.ctypes.data)

    return take


def compiled(*flags: str) -> ctypes.CDLL:
    return native.compiled(C_COMPILER, BUILD, flags)


def in_two_threads(take: Take) -> Take:
    def both(array: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
        half = len(index) // 2
        other = threading.Thread(target=take, args=(array, index[:half], out[:half]))
        other.start()
        take(array, index[half:], out[half:])
        other.join()

    return both


# The whole step


def step_jobs(data: Dataset, limit: Limit, iterations: int = ITERATIONS) -> dict[str, Timed]:
    """`sgld` with its rows fed in several ways; microseconds per iteration."""
    sampler = sgmcmc.sgld_setup(*arguments(data), **options("random"))
    again, library, job = gathering.lend, compiled(), partial(sgld_job, iterations)
    random = {
        "NumPy, fresh memory": job(sampler, None, gathering.aligned),
        "NumPy, memory used again": job(sampler, None, again),
        "compiled, fresh memory": job(sampler, library, gathering.aligned),
        OURS: job(sampler, library, again),
        **{f"the same, {size} iterations a chunk": job(sampler, library, again, size) for size in CHUNK_SIZES},
    }
    register_foreign_gather()
    inside = replace(sampler, source=InTheLoop(sampler.source.arrays, MINIBATCH))
    ready = replace(sampler, source=Ready(sampler.source.arrays, MINIBATCH))
    windows = sgmcmc.sgld_setup(*arguments(data), **options("window"))
    return {
        LIMIT: lambda: c_loop(limit, data),
        **random,
        "compiled, inside the loop (jax.ffi)": job(inside, library, again),
        "no gather: the same rows again and again": job(ready, library, again),
        "no gather: windows": job(windows, library, again),
    }


def sgld_job(iterations: int, sampler: Any, library: ctypes.CDLL | None, lend: Any, chunk_size: int | None = None) -> Timed:
    """`library` copies rows, or NumPy where it is None, into memory from `lend`."""
    state = sampler.init(1, progress=False)

    def job() -> tuple[float, float]:
        with mock.patch.object(native, "library", return_value=library), mock.patch.object(gathering, "lend", lend):
            return clock(lambda: sampler.run(state, iterations, progress=False, chunk_size=chunk_size), iterations)

    return job


@dataclass(frozen=True)
class Ready(sources.HostRows):
    """The gather left out: what is left is the device's work."""

    @cached_property
    def plans(self) -> dict[int, Any]:
        return {}

    def prepare(self, drawn: Any, count: int) -> Any:
        capacity = len(jax.tree.leaves(drawn)[0])
        if capacity not in self.plans:
            self.plans[capacity] = super().prepare(drawn, capacity)
        jax.block_until_ready(drawn)  # as the gather would
        return self.plans[capacity]


@dataclass(frozen=True)
class InTheLoop(sources.HostRows):
    """Row numbers made by the host; rows copied by a foreign function inside the compiled loop."""

    bytes_per_batch = 4 * MINIBATCH

    @cached_property
    def data(self) -> Any:
        return jax.device_put(whole(self.table))

    def prepare(self, drawn: Any, count: int) -> Any:
        capacity, index = drawing.distinct(drawn, count, self.n_rows, self.batch_size)
        return gathering.filled_up(index, capacity)

    @property
    def take(self) -> sources.Take:
        return TakeInTheLoop(self.n_rows, self.batch_size)


class TakeInTheLoop(sources.Take):
    """By the foreign function."""

    def __call__(self, data: Any, entry: jax.Array) -> Batch:
        def rows(column: jax.Array) -> jax.Array:
            out = jax.ShapeDtypeStruct((len(entry), *column.shape[1:]), column.dtype)
            row_bytes, n_rows = np.int64(column.nbytes // len(column)), np.int64(len(column))
            return jax.ffi.ffi_call("feeding_gather", out)(column, entry, bytes=row_bytes, rows=n_rows)

        return Batch({name: rows(column) for name, column in data.items()}, self.weight(), entry)


def register_foreign_gather() -> None:
    """Compile the foreign function and make it known to JAX."""
    source, target = Path(__file__).parent / "feeding_ffi.c", BUILD / "feeding_ffi.so"
    includes = (f"-I{jax.ffi.include_dir()}", f"-I{native.SOURCE.parent}")
    subprocess.run([C_COMPILER, *native.FLAGS, *includes, str(source), "-o", str(target)], check=True)
    jax.ffi.register_ffi_target("feeding_gather", jax.ffi.pycapsule(ctypes.CDLL(str(target)).gather_rows), platform="cpu")


# Reports

HEADER = ["", "µs, median (range)", "ratio to the C loop, median (range)", "least µs", "their ratio", "least processor µs"]


def lines(times: Times) -> Iterator[list[str]]:
    limit = [wall for wall, _ in times[LIMIT]]
    for name, values in times.items():
        walls = [wall for wall, _ in values]
        ratios = [mine / its for mine, its in zip(walls, limit, strict=True)]
        least, processor = min(walls), min(used for _, used in values)
        yield [name, spread(walls, 1), spread(ratios), f"{least:.1f}", f"{least / min(limit):.2f}", f"{processor:.1f}"]


def report_copies(times: Times) -> str:
    text = (
        f"µs to copy the features of one minibatch ({MINIBATCH} random rows of {4 * COLUMNS} bytes of {ROWS:,}), nothing else "
        f"done by the process. The C loop's are for its whole iteration. {len(times[LIMIT])} rounds."
    )
    return "\n".join(["### Copying rows", "", text, "", table(HEADER, list(lines(times)))])


def report_steps(times: Times) -> str:
    text = (
        f"µs per iteration of `sgld`, {ITERATIONS:,} iterations, every draw kept, compilation excluded, its random rows fed in "
        f"several ways. {len(times[LIMIT])} rounds; a ratio is taken within its round."
    )
    gain = median(old / new for (old, _), (new, _) in zip(times["NumPy, fresh memory"], times[OURS], strict=True))
    after = f"“{OURS}” is what the library does; within a round it is {gain:.2f} times as fast as “NumPy, fresh memory”."
    return "\n".join(["### Feeding the loop", "", text, "", table(HEADER, list(lines(times))), "", after])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
