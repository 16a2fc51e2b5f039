"""The C functions of `rows.c`, compiled on first use where there is a C compiler.

What was compiled is kept in the user's cache folder under a name that depends on its contents. It is written to a file of its
own and renamed, so any number of processes may do this at once. Where anything fails there is no library, and NumPy does the
work: the results are the same to the last bit. `SGMCMC_NATIVE=0` turns it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

from platformdirs import user_cache_dir

SETTING = "SGMCMC_NATIVE"
"""The environment variable that turns compiled functions off, with the value 0."""

SOURCE = Path(__file__).parent / "rows.c"

FLAGS = ("-std=c99", "-O2", "-shared", "-fPIC")
"""Nothing that ties the result to this very processor: a cache folder may be shared between machines."""

COMPILER_SECONDS = 60


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where there are none to be had."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get(SETTING) == "0" or compiler is None:
        return None
    try:
        return compiled(compiler, Path(user_cache_dir("sgmcmc")) / "native")
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None


def compiled(compiler: str, folder: Path, options: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The functions as compiled into `folder`, now or earlier; made again if what is there does not load."""
    told = "\n".join([SOURCE.read_text(), *FLAGS, *options, sysconfig.get_platform()])
    target = folder / f"rows-{hashlib.sha256(told.encode()).hexdigest()[:16]}.so"
    if target.exists():
        try:
            return _typed(ctypes.CDLL(str(target)))
        except (OSError, AttributeError):
            pass  # damaged: a crash of the machine can do that
    _compile(compiler, target, options)
    return _typed(ctypes.CDLL(str(target)))


def _compile(compiler: str, target: Path, options: tuple[str, ...]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command = [compiler, *FLAGS, *options, str(SOURCE), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=COMPILER_SECONDS)
        made.replace(target)


def _typed(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.copy_rows.argtypes = [pointer, number, number, pointer, number, pointer]
    found.first_distinct.argtypes = [pointer, number, number, number, pointer, pointer, ctypes.c_int32, pointer]
    found.copy_rows.restype = found.first_distinct.restype = None
    return found
