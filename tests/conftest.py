"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Before JAX starts: compiling is most of what the tests cost, and much of that is optimisation which short chains never repay.
# Level 0 would compile faster still, but there a long chain takes more than ten times as long. Without the fusion emitters a
# program takes two thirds of the time to compile, and as long to run; in one part instead of 32 for as many threads, less again.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

# A job in the background of a shell ignores Ctrl-C, and so would all that it starts. Some tests are about Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax
import pytest

from sgmcmc.core.programs_on_disk import SETTING, keep_programs

collect_ignore = ["support"]  # no tests, and one of them joins a job of several processes when it is imported


@pytest.fixture(scope="session", autouse=True)
def shared_compilations(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Programs that several tests or workers need are compiled once: compiling is most of what the tests cost."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    os.environ[SETTING] = str(shared / "programs")  # processes that a test starts have it too
    jax.config.update("jax_compilation_cache_dir", None)
    keep_programs.cache_clear()
    assert keep_programs() is not None


MOST_PAGES = 420_000
"""Of memory, 4 kB each, beyond which a worker drops its compiled programs: they come back from the folder that all share."""


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """A program takes a megabyte, and thousands of them are compiled."""
    yield
    told = Path("/proc/self/statm")
    if told.exists() and int(told.read_text().split()[1]) > MOST_PAGES:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision, for tests at 1e-10."""
    with jax.enable_x64(True):
        yield
