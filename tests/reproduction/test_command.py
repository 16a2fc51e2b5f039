"""The command `python -m reproduction`: what it prints, what it leaves behind, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from dataset_server import *  # noqa: F403 (fixtures)

from reproduction import gaussian_mixture
from reproduction.__main__ import EXPERIMENTS, STOPPED, main
from reproduction.settings import METHODS


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_help_names_the_experiments():
    helped = run("--help").output
    assert all(name in helped for name in EXPERIMENTS)
    assert "Examples" in helped


def test_it_runs_in_the_projects_folder():
    command = [sys.executable, "-m", "reproduction", "--help"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]).stdout
    assert told.startswith("Usage: python -m reproduction [OPTIONS] EXPERIMENT")


def test_an_unknown_experiment_is_refused():
    ended = run("figure-7")
    assert ended.exit_code == 2
    assert "figure-7" in ended.output


def test_without_data_nothing_is_left_behind(tmp_path, own_world, offer):
    offer("http://127.0.0.1:1/")
    out = tmp_path / "out"
    ended = run("logistic-regression", "--out", out)
    assert ended.exit_code == 1
    assert "could not be downloaded" in ended.output
    assert "SGMCMC_DATA" in ended.output
    assert not out.exists()


def test_without_optax_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.reproduce.find_spec", lambda name: None)
    ended = run("neural-network", "--out", tmp_path / "out")
    assert ended.exit_code == 1
    assert "optax" in ended.output
    assert "[reproduction]" in ended.output
    assert not (tmp_path / "out").exists()


@pytest.fixture
def instant(monkeypatch):
    """The mixture experiment without its samplers: draws out of the air, and a list of the parts that were computed."""
    computed: list[str] = []
    rng = np.random.default_rng(1)

    def draws(chains, n):
        upper = rng.integers(0, 2, (chains, n, 1))
        return np.concatenate([0.4 * upper, 0.4 * upper, 0.4 - 0.4 * upper, 0.4 - 0.4 * upper], -1) + 0.1 * rng.normal(
            size=(chains, n, 4)
        )

    def hmc(variant, data, quick):
        computed.append("HMC")
        return {"draws": draws(4, 30), "r_hat": 1.0}

    def chains(variant, data, method, repeats, book):
        if method.label == "sgnhtcv" and "stopped" not in computed:
            computed.append("stopped")
            raise KeyboardInterrupt
        computed.append(method.label)
        return {"draws": draws(repeats, 30), "sampling": 1.0, "stepsize": 1e-3, "repeatable": True}

    monkeypatch.setattr(gaussian_mixture, "_hmc", hmc)
    monkeypatch.setattr(gaussian_mixture, "_chains", chains)
    return computed


def test_an_interrupted_reproduction_continues(tmp_path, instant):
    command = ("gaussian-mixture", "--quick", "--out", tmp_path)
    first = run(*command)
    assert first.exit_code == STOPPED
    assert "goes on" in first.output
    assert not (tmp_path / "report.md").exists()
    before = list(instant)
    second = run(*command)
    assert second.exit_code == 0, second.output
    assert second.output.count("done before") == len(before) - 1
    assert [label for label in instant if label != "stopped"] == ["HMC", *(method.label for method in METHODS)]
    files = {path.name for path in tmp_path.iterdir()}
    assert {"report.md", "gaussian-mixture.json", "figure-3-code.png", "figure-3-code.svg"} <= files
    found = json.loads((tmp_path / "gaussian-mixture.json").read_text())
    assert found["quick"]
    assert {row["setting"]: row["from"] for row in found["settings"]}["repeats"] == "ours"
    report = (tmp_path / "report.md").read_text()
    assert "![" in report
    assert "| 6.1 |" in report


def test_quiet_is_quiet(tmp_path, instant):
    instant.append("stopped")
    ended = run("gaussian-mixture", "--quick", "--quiet", "--out", tmp_path)
    assert (ended.exit_code, ended.output) == (0, "")


def test_all_runs_each_in_a_process_of_its_own_and_stops_with_the_first_that_fails(tmp_path, monkeypatch):
    commands, codes = [], iter([0, STOPPED])

    def ended(command, check):
        commands.append(command[3:])
        return subprocess.CompletedProcess(command, next(codes))

    monkeypatch.setattr("reproduction.__main__.subprocess.run", ended)
    monkeypatch.setattr("reproduction.reproduce.check_data", lambda names, progress: None)
    assert run("all", "--quick", "--seed", 0, "--out", tmp_path).exit_code == STOPPED
    assert [command[0] for command in commands] == list(EXPERIMENTS[:2])
    assert commands[0][1:] == ["--out", str(tmp_path), "--quick", "--seed", "0"]
