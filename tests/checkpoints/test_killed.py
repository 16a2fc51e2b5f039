"""Runs that are ended at random moments and begun again: the same draws, bit for bit, and a readable folder at every moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "killed_samplers.py"


def ended_again_and_again(problem, signal, endings, place):
    """What `killed_samplers.py` tells. It compares every draw with the uninterrupted run itself."""
    programs = {
        "JAX_COMPILATION_CACHE_DIR": str(place.parent / "programs of killed runs"),  # a kill may leave one half written
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, SCRIPT, problem, signal, str(endings), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600 + 150 * endings, env=os.environ | programs)
    assert done.returncode == 0, done.stdout + done.stderr
    told = {name: int(number) for name, number in (line.split(": ") for line in done.stdout.splitlines())}
    assert told["endings"] == endings
    return told


def test_kill_9(tmp_path):
    told = ended_again_and_again("logistic", "SIGKILL", 6, tmp_path)
    assert told["resumed in the middle"] >= 1
    assert told["readings"] > 2


def test_the_signal_that_ends_a_job(tmp_path):
    """The process ends by itself, with what there is; all of that is in the folder."""
    told = ended_again_and_again("logistic", "SIGTERM", 3, tmp_path)
    assert told["came back"] >= 1


def test_ctrl_c(tmp_path):
    told = ended_again_and_again("schedule", "SIGINT", 2, tmp_path)
    assert told["came back"] >= 1


@pytest.mark.parametrize(
    "problem", ["rows", "sample", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nuts", "saga"))]
)
def test_kill_9_of_other_runs(problem, tmp_path):
    ended_again_and_again(problem, "SIGKILL", 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_fifty_times(signal, tmp_path):
    told = ended_again_and_again("logistic", signal, 50, tmp_path)
    assert told["resumed in the middle"] >= 12


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["rows", "sample", "nuts", "schedule"])
def test_fifteen_times(problem, tmp_path):
    told = ended_again_and_again(problem, "SIGKILL", 15, tmp_path)
    assert told["resumed in the middle"] >= 3
