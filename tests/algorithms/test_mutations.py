"""Deliberate mistakes in a copy of the library must make the tests of the law fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sgmcmc

SOURCE = Path(sgmcmc.__file__).parent
TESTS = Path(__file__).parents[1]

MUTATIONS = {
    "SGLD noise with variance ε/2": (
        "algorithms/dynamics/langevin.py",
        "x + e / 2 * g + jnp.sqrt(e) * z",
        "x + e / 2 * g + jnp.sqrt(e / 2) * z",
    ),
    "SGLD drift twice too large": (
        "algorithms/dynamics/langevin.py",
        "x + e / 2 * g + jnp.sqrt(e) * z",
        "x + e * g + jnp.sqrt(e) * z",
    ),
    "friction noise of the paper": (
        "algorithms/dynamics/hamiltonian.py",
        "jnp.sqrt(renewed(alpha) * e) * z",
        "jnp.sqrt(2 * alpha * e) * z",
    ),
    "momentum with variance 1": ("algorithms/dynamics/momentum.py", "lambda e, z: jnp.sqrt(e) * z", "lambda e, z: z"),
    "weights forgotten": ("problem/posterior.py", "return batch.weight * self.sum_of_rows", "return self.sum_of_rows"),
}


def run_law_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(TESTS / "support")])}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull]
    tests = [str(TESTS / "algorithms" / "test_laws.py"), "--rootdir", str(folder)]
    return subprocess.run([*command, *tests], env=environment, capture_output=True, text=True, check=False, cwd=folder)


def mutated(folder: Path, file: str, right: str, wrong: str) -> Path:
    shutil.copytree(SOURCE, folder / "sgmcmc", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "sgmcmc" / file
    text = path.read_text()
    assert right in text, f"{file} no longer has {right!r}: bring this test up to date"
    path.write_text(text.replace(right, wrong))
    return folder


@pytest.mark.parametrize(
    "mistake", [next(iter(MUTATIONS)), *(pytest.param(name, marks=pytest.mark.slow) for name in list(MUTATIONS)[1:])]
)
def test_a_wrong_noise_scale_fails_the_suite(tmp_path, mistake):
    result = run_law_tests(mutated(tmp_path, *MUTATIONS[mistake]))
    assert result.returncode == 1, result.stdout
    assert "1 failed" in result.stdout


@pytest.mark.slow
def test_the_unchanged_copy_passes(tmp_path):
    result = run_law_tests(mutated(tmp_path, "algorithms/dynamics/langevin.py", "jnp.sqrt(e)", "jnp.sqrt(e)"))
    assert result.returncode == 0, result.stdout
