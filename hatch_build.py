"""Wheels bring the compiled functions of `src/sgmcmc/rows/rows.c` with them, where there is a C compiler to build them.

They are loaded by ctypes and know nothing of Python, so one wheel of a platform serves all versions of it. `CC`, `CFLAGS` and
`ARCHFLAGS` are heard. Without a compiler, or with `SGMCMC_NATIVE=0`, the wheel is one for any platform, and compiles on first use
like a source tree.
"""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = Path("src") / "sgmcmc" / "rows"


class CompiledFunctions(BuildHookInterface):
    """Compiles them into a folder of its own, from which they go into the wheel beside their source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is put together."""
        native = runpy.run_path(str(Path(self.root) / ROOM / "native.py"))
        compiler = os.environ.get("CC") or native["found_compiler"]()
        if version == "editable" or os.environ.get(native["SETTING"]) == "0":
            return
        if compiler is None:
            self.app.display_warning("No C compiler: this wheel compiles its functions on first use, as a source tree does.")
            return
        self.scratch = Path(tempfile.mkdtemp())
        made = self.scratch / native["file_name"]()
        command, *options = shlex.split(compiler)
        options += shlex.split(f"{os.environ.get('CFLAGS', '')} {os.environ.get('ARCHFLAGS', '')}")
        native["compile_to"](command, made, tuple(options))
        build_data["force_include"][str(made)] = f"sgmcmc/rows/{made.name}"
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after it."""
        shutil.rmtree(getattr(self, "scratch", Path("/nonexistent")), ignore_errors=True)
