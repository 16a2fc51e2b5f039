"""Compiled programs on disk: JAX's own cache, in the user's cache folder, so that another process compiles nothing again."""

import hashlib
import os
import platform
import shutil
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax
from platformdirs import user_cache_dir

SETTING = "SGMCMC_CACHE"
"""The environment variable that turns it off, with the value 0, or names another folder."""

MOST_BYTES = 128 << 20
"""What the folder may hold when a process begins: what was used longest ago is removed."""

LEAST_FREE = 64 << 20
"""Bytes below which a disk counts as full."""

ENTIRELY = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}
"""Settings by which JAX keeps programs however small: hundreds of small ones take seconds."""


@cache
def keep_programs() -> Path | None:
    """Have JAX keep what it compiles, from the first sampler on. None where it does not: as the user says, where the user has a
    cache already, or where the folder cannot be written.
    """
    wanted = os.environ.get(SETTING, "")
    if wanted == "0" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None or _summing_devices():
        return None
    try:
        folder = _prepared(Path(wanted) if wanted else Path(user_cache_dir("sgmcmc")) / "programs")
    except OSError:
        return None
    # Half an entry, of a process that was killed or for want of space, is compiled again and of no concern to anybody.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    for name, value in {**ENTIRELY, "jax_compilation_cache_dir": str(folder)}.items():
        jax.config.update(name, value)
    return folder


def _summing_devices() -> bool:
    """Several devices of the CPU backend: XLA ends with a segmentation fault in a program from disk that sums over them."""
    return jax.default_backend() == "cpu" and jax.device_count() > 1


def _prepared(every: Path) -> Path:
    """The folder for this kind of machine, tried out; in all of them there is room."""
    folder = every / _machine()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"0")
    if shutil.disk_usage(folder).free < LEAST_FREE:
        raise OSError(f"less than {LEAST_FREE >> 20} MB are left on the disk of {folder}")
    _sweep(every)
    return folder


def _machine() -> str:
    """Programs are made for a processor: in a home that several machines share, each kind has a folder of its own."""
    told = f"{platform.machine()} {platform.processor()}"
    with suppress(OSError):  # Linux alone has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        told += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _sweep(every: Path) -> None:
    """Remove what was used longest ago, and what is empty. Other processes may do the same."""
    found: list[tuple[float, int, Path]] = []
    for path in every.glob("*/*-cache"):
        with suppress(OSError):
            told = path.stat()
            found.append((max(told.st_atime, told.st_mtime), told.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total > MOST_BYTES or size == 0:
            with suppress(OSError):
                path.unlink()
            total -= size
