"""A function of a benchmark in a process of its own, so that it imports and compiles all it needs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """Of a process that finds these modules, wherever it runs, and no program that another one compiled."""
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return kept | {"PYTHONPATH": path, "SGMCMC_CACHE": "0"}


class NotEndedError(RuntimeError):
    """A function took longer than anyone would wait."""


def freshly(function: Callable[..., dict[str, Any]], *, patience: float | None = None, **arguments: Any) -> dict[str, Any]:
    """What `function(**arguments)` returns in a new process, through JSON; `patience` is how many seconds it may take."""
    command = [sys.executable, "-m", __spec__.name, function.__module__, function.__name__, json.dumps(arguments)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment(), timeout=patience)
    except subprocess.TimeoutExpired:
        raise NotEndedError(f"{function.__name__}({arguments}) did not end within {patience} s") from None
    if done.returncode:
        raise RuntimeError(f"{function.__name__}({arguments}) ended with code {done.returncode}; its messages are above")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    module, name, arguments = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(arguments))))
