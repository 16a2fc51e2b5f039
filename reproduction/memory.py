"""How much memory the process has held at most."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Measure from here on, where the system can (Linux); elsewhere the peak is that of the whole process."""
    with contextlib.suppress(OSError):
        RESET.write_text("5")


def peak_gigabytes() -> float:
    """Peak resident memory in GB (10⁹ bytes)."""
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e9
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
