"""Two real processes on this machine: the same posterior as one, and an end with a clear error when one of them is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import sgmcmc

SCRIPT = Path(__file__).parents[1] / "support" / "two_processes.py"
SILENCE = 20
"""Seconds after which the watchdogs of tests that lose a peer give it up, instead of 45; a busy machine may take a few."""

PATIENCE = 1200
"""Seconds to wait for what must come: far more than it takes, for machines that are slow or busy."""


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def start(task, folder, *processes, silence=45):
    cache = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    port, environment = free_port(), {**os.environ, **cache, "SGMCMC_PEER_TIMEOUT": str(silence)}
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, process, str(port), task, folder / f"{task}-{process}.npz"],
            stderr=subprocess.PIPE, env=environment, text=True,
        )
        for process in processes
    ]  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes with 30 % and 70 % of the rows find, and one with all of them."""
    folder = tmp_path_factory.mktemp("hosts")
    processes = start("sample", folder, "0", "1", "alone")
    errors = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    return {name: np.load(folder / f"sample-{name}.npz") for name in ("0", "1", "alone")}


def test_both_processes_have_the_same_chain_to_the_last_bit(found):
    for name in set(found["0"]) - {"refusal"}:
        np.testing.assert_array_equal(found["0"][name], found["1"][name])


def test_the_full_gradient_is_that_of_all_rows(found):
    together, alone = found["0"]["gradient"], found["alone"]["gradient"]
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_process_0_speaks_for_all(found):
    assert found["1"]["word"].tobytes() == b"from 0"


@pytest.mark.parametrize("name", ["sgldcv", "sgld"])
def test_posterior_mean_and_sd_are_those_of_one_process(found, name):
    together, alone = found["0"][name], found["alone"][name]
    assert found["0"][f"{name} rows"] == 3000
    for figure in (np.mean, np.std):
        difference = figure(together, axis=(0, 1)) - figure(alone, axis=(0, 1))
        error = np.hypot(standard_error(together, figure), standard_error(alone, figure))
        assert (np.abs(difference) < 4 * error).all()
        assert (error < 0.2 * alone.std(axis=(0, 1))).all()  # a difference of one sd would be seen
    np.testing.assert_allclose(found["0"][f"{name} mean"], together.mean(axis=1), atol=1e-5)


def standard_error(draws, figure, blocks=20):
    """Of a figure of chains, from blocks that are longer than the chains' memory."""
    cut = draws.reshape(draws.shape[0] * blocks, -1, draws.shape[-1])
    return np.std(figure(cut, axis=1), axis=0, ddof=1) / np.sqrt(len(cut))


def test_what_one_process_refuses_all_refuse(found):
    said = {process: results["refusal"].tobytes().decode() for process, results in found.items()}
    assert "not finite in row 7" in said["1"]
    assert said["0"] == f"process 1 refused its part: {said['1']}"
    assert not said["alone"]


@pytest.mark.parametrize(("sent", "says"), [("SIGKILL", "process 1 is gone"), ("SIGSTOP", "process 1 has shown no sign of life")])
def test_a_lost_peer_ends_the_job_with_a_clear_error(tmp_path, sent, says):
    survivor, victim = start("run", tmp_path, "0", "1", silence=SILENCE)
    try:
        wait_for(tmp_path / "run-0.npz")
        victim.send_signal(getattr(signal, sent))
        _, errors = survivor.communicate(timeout=PATIENCE)
        assert survivor.returncode == 75
        assert says in errors
        assert "restart the job with the same call" in errors
    finally:
        survivor.kill()
        victim.kill()
        victim.communicate()


def test_a_job_that_lost_a_process_resumes_bitwise(tmp_path):
    whole = start("whole", tmp_path, "0", "1")
    killed = start("resume", tmp_path, "0", "1")
    wait_for(tmp_path / "resume-0.begun")
    time.sleep(1)
    killed[1].kill()
    ended = [process.communicate(timeout=PATIENCE) for process in killed]
    assert killed[0].returncode == 75
    assert "restart the job with the same call" in ended[0][1]
    so_far = sgmcmc.load(tmp_path / "run")["beta"]
    assert 0 < so_far.shape[1] < 2000
    again = start("resume", tmp_path, "0", "1")
    for process in (*whole, *again):
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    expected = np.load(tmp_path / "whole-0.npz")
    np.testing.assert_array_equal(so_far, expected["draws"][:, : so_far.shape[1]])
    for name in ("resume-0", "resume-1", "whole-1"):
        found = np.load(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(found["draws"], expected["draws"])
        np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-5, atol=1e-6)


def test_sigterm_for_one_process_ends_all_together(tmp_path):
    processes = start("resume", tmp_path, "0", "1")
    wait_for(tmp_path / "resume-0.begun")
    processes[1].terminate()
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "interrupted" in errors
    draws = [np.load(tmp_path / f"resume-{number}.npz")["draws"] for number in (0, 1)]
    assert 0 < draws[0].shape[1] < 2000
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(sgmcmc.load(tmp_path / "run")["beta"], draws[0])


def wait_for(file, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not appear"
        time.sleep(0.1)
