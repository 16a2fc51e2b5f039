"""The hand-written C loop that everything is compared with: compiled here, run in processes of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.problem import BUILD, COLUMNS, ITERATIONS, MINIBATCH

HERE = Path(__file__).parent
REFERENCE = HERE.parents[2] / "shared" / "bench" / "limit_sgld_logistic.c"
"""A second loop for the same job, compared with ours where it is there."""

FLAGS = ("-O3", "-march=native", "-ffast-math")


@dataclass(frozen=True)
class Limit:
    """The compiled loops; `reference` is None where there is none."""

    ours: Path
    reference: Path | None
    compiler: str

    def microseconds(self, mode: str, sizes: tuple[int, ...], iterations: int = ITERATIONS) -> dict[int, float]:
        """Per iteration, for each number of rows."""
        command = [self.ours, mode, str(iterations), str(MINIBATCH), str(COLUMNS), *map(str, sizes)]
        lines = _output(command).splitlines()
        fields = [dict(field.split("=") for field in line.split()) for line in lines]
        return {int(field["rows"]): float(field["us_per_iteration"]) for field in fields}

    def reference_microseconds(self) -> float:
        found = re.search(r"([\d.]+) us/iter", _output([self.reference])) if self.reference else None
        if found is None:
            raise RuntimeError(f"{REFERENCE.name} did not print its time")
        return float(found[1])


def compile_limit() -> Limit | None:
    """None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    reference = _compile(compiler, REFERENCE) if REFERENCE.exists() else None
    version = _output([compiler, "--version"]).splitlines()[0]
    return Limit(_compile(compiler, HERE / "limit.c"), reference, f"{version}, {' '.join(FLAGS)}")


def _compile(compiler: str, source: Path) -> Path:
    BUILD.mkdir(exist_ok=True)
    target = BUILD / source.stem
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(target), "-lm"], check=True)
    return target


def _output(command: list[str | Path | None]) -> str:
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
