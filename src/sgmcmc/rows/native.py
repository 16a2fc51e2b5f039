"""The compiled functions of `rows.c`. Wheels bring them; from a source tree they are compiled on first use, where there is a C
compiler, and kept in the user's cache folder.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

SETTING = "SGMCMC_NATIVE"
"""The environment variable that turns compiled functions off, with the value 0."""

SOURCE = Path(__file__).with_name("rows.c")

FLAGS = ("-std=c99", "-O3", "-shared", "-fPIC")
"""Nothing that ties the result to this very processor: a cache folder may be shared between machines."""

COMPILER_SECONDS = 60


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where there are none to be had."""
    if os.environ.get(SETTING) == "0":
        return None
    compiler = found_compiler()
    try:
        return brought() or (None if compiler is None else compiled(compiler, cache_folder()))
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None


def found_compiler() -> str | None:
    """A C compiler."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def cache_folder() -> Path:
    """Where what is compiled on first use is kept."""
    from platformdirs import user_cache_dir  # whoever builds a wheel reads this file without it

    return Path(user_cache_dir("sgmcmc")) / "native"


def brought() -> ctypes.CDLL | None:
    """The functions that lie beside their source, if they were compiled from it and load here."""
    target = SOURCE.with_name(file_name())
    if target.exists():
        with suppress(OSError, AttributeError):  # of a wheel for another kind of machine
            return _typed(ctypes.CDLL(str(target)))
    return None


def file_name(told: tuple[str, ...] = ()) -> str:
    """Of what the source compiles to; other options or another platform, another name."""
    digest = hashlib.sha256("\n".join([SOURCE.read_text(), *FLAGS, *told]).encode()).hexdigest()
    return f"rows-{digest[:16]}.so"


def compiled(compiler: str, folder: Path, options: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The functions as compiled into `folder`, now or earlier; made again if what is there does not load."""
    target = folder / file_name((*options, sysconfig.get_platform()))
    if target.exists():
        with suppress(OSError, AttributeError):  # damaged: a crash of the machine can do that
            return _typed(ctypes.CDLL(str(target)))
    folder.mkdir(parents=True, exist_ok=True)
    compile_to(compiler, target, options)
    return _typed(ctypes.CDLL(str(target)))


def compile_to(compiler: str, target: Path, options: tuple[str, ...] = ()) -> None:
    """Compile the source into a file, which appears there whole."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        command = [compiler, *FLAGS, *options, str(SOURCE), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=COMPILER_SECONDS)
        made.replace(target)


def _typed(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.copy_rows.argtypes = [pointer, number, number, pointer, number, pointer]
    found.draw_distinct.argtypes = [pointer, *[number] * 5, pointer, pointer, ctypes.c_int32, pointer]
    found.copy_rows.restype = found.draw_distinct.restype = None
    return found
