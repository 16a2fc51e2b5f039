"""Wheels bring the compiled functions: built, installed and used where no compiler is to be seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sgmcmc.rows import native

ROOT = Path(__file__).parents[2]
COMPILER = native.found_compiler()
compiles = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

USE = """
import numpy as np, sgmcmc
from sgmcmc.rows import drawing, native
data = {"x": np.linspace(-1, 1, 2000, dtype=np.float32)}
log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-4, minibatch_size=20, n_iters=50, seed=1, progress=False)
print(sgmcmc.__file__, native.library()._name if native.library() else None, out["mu"].tobytes().hex(), sep="\\n")
"""


def build(folder, **environment):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "-w",
        str(folder),
        ".",
    ]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | environment, timeout=600)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.mark.slow  # builds and installs
@compiles
def test_a_wheel_is_used_without_a_compiler(tmp_path):
    wheel = build(tmp_path / "wheel")
    assert "py3-none" in wheel.name
    assert "any" not in wheel.name
    assert f"sgmcmc/rows/{native.file_name()}" in zipfile.ZipFile(wheel).namelist()
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True)
    bare = {"PATH": os.devnull, "HOME": str(tmp_path), "PYTHONPATH": str(Path(np.__file__).parents[1])}  # what it depends on
    told = {}
    for setting in ("1", "0"):
        run = [python, "-c", USE]
        given = bare | {native.SETTING: setting}
        told[setting] = subprocess.run(run, check=True, capture_output=True, text=True, env=given, timeout=300).stdout.split("\n")
    assert Path(told["1"][0]).is_relative_to(tmp_path / "venv")
    assert Path(told["1"][1]).name == native.file_name()
    assert Path(told["1"][1]).is_relative_to(tmp_path / "venv")
    assert told["0"][1] == "None"
    assert told["1"][2] == told["0"][2]
    assert not list(tmp_path.rglob("native/*.so")), "nothing was compiled"


@pytest.mark.slow
def test_a_wheel_without_compiled_functions_is_for_any_platform(tmp_path):
    wheel = build(tmp_path, **{native.SETTING: "0"})
    assert wheel.name.endswith("py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


@compiles
def test_what_lies_beside_the_source_is_taken_if_it_was_made_from_it(tmp_path, monkeypatch):
    source = shutil.copy(native.SOURCE, tmp_path)
    monkeypatch.setattr(native, "SOURCE", Path(source))
    assert native.brought() is None
    native.compile_to(str(COMPILER), tmp_path / native.file_name())
    assert Path(native.brought()._name).parent == tmp_path
    with Path(source).open("a") as more:
        more.write("\n/* changed */\n")
    assert native.brought() is None, "of another source"
    (tmp_path / native.file_name()).write_bytes(b"for another machine")
    assert native.brought() is None
