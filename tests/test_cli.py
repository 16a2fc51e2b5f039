"""The command `sgmcmc`: what it prints, what it leaves behind, and how it ends."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import sgmcmc
from sgmcmc.__main__ import STOPPED, main


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_version_and_help():
    assert run("version").output.startswith("sgmcmc 0.")
    helped = run("--help").output
    assert all(name in helped for name in ("demo", "version"))
    assert "Examples:" in run("demo", "--help").output


def test_python_m_sgmcmc_is_the_command_and_loads_no_pictures_before_one_is_drawn():
    script = "import sys, sgmcmc.__main__; sys.exit(len({'matplotlib', 'pandas', 'numpyro'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    told = subprocess.run([sys.executable, "-m", "sgmcmc", "version"], check=True, capture_output=True, text=True).stdout
    assert told == run("version").output


def test_an_unknown_command_is_refused():
    ended = run("reproduce", "all")
    assert ended.exit_code == 2
    assert "reproduce" in ended.output


def test_demo_runs_on_little_data(tmp_path):
    picture = tmp_path / "demo.png"
    ended = run("demo", "--rows", 20_000, "--draws", 400, "--out", picture)
    assert ended.exit_code == 0, ended.output
    assert picture.stat().st_size > 10_000
    assert "r_hat" in ended.output
    assert str(picture) in ended.output


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (sgmcmc.SgmcmcError("no such thing"), 1, "sgmcmc: no such thing\n"),
        (OSError("disk full"), 1, "sgmcmc: disk full\n"),
        (KeyboardInterrupt(), STOPPED, "sgmcmc: stopped\n"),
    ],
)
def test_errors_are_told_in_a_line(raised, code, told, monkeypatch):
    def sample(*args, **options):
        raise raised

    monkeypatch.setattr(sgmcmc, "sample", sample)
    ended = run("demo", "--rows", 100, "--quiet")
    assert (ended.exit_code, ended.output) == (code, told)
