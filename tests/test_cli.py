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
    assert all(name in helped for name in ("convert", "demo", "report", "version"))
    assert "Examples:" in run("demo", "--help").output


def test_the_version_alone():
    assert run("--version").output == f"sgmcmc {sgmcmc.__version__}\n"
    assert run("-V").output == run("--version").output


def test_convert_makes_a_folder_of_rows(tmp_path):
    csv, folder = tmp_path / "claims.csv", tmp_path / "rows"
    csv.write_text("age,power,claims\n1,2,0\n3,4,1\n5,6,1\n")
    ended = run("convert", csv, folder, "--columns", "X=age,power", "--columns", "y=claims", "--no-shuffle")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.strip().endswith("rows: X (3, 2), y (3,). Give the folder's path as dataset")
    rows = sgmcmc.data.open(folder)
    assert rows["X"][:].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert rows["y"][:].tolist() == [0, 1, 1]
    assert run("convert", csv, folder, "--columns", "y=...", "-q").exit_code == 1  # other rows are there
    assert run("convert", csv, folder, "--columns", "y=...", "-q", "--overwrite").output == ""
    assert "expected the name of an array" in run("convert", csv, folder, "--columns", "X").output


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
