"""The examples run as they stand (with --quick, on no real data), and their numbers mean what they say."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "examples"

Checks = dict[str, Callable[[dict[str, Any], str], None]]
CHECKS: Checks = {}
"""By file: what must hold of its variables and of what it printed."""


def check(function: Callable[[dict[str, Any], str], None]) -> Callable[[dict[str, Any], str], None]:
    CHECKS[f"{function.__name__}.py"] = function
    return function


def in_halves(values):
    return values[: len(values) // 2], values[len(values) // 2 :]


@check
def logistic_regression(found, printed):
    early, late = ([np.mean(half) for half in halves] for halves in zip(*map(in_halves, found["losses"].values()), strict=True))
    large, small, centred = late
    assert "made-up data: 20,000 rows" in printed
    assert centred < small < large
    assert small < np.log(2)
    assert abs(early[2] - centred) < 0.1 * (early[1] - small)  # sgldcv starts where sgld is still on its way to


@check
def storage_constraints(found, printed):
    kept, every = found["out"].kept, found["every"]
    assert len(found["losses"]) == found["n_iters"] // every == len(kept["log_loss"])
    np.testing.assert_allclose(found["losses"], kept["log_loss"], atol=1e-5)
    np.testing.assert_allclose(found["mean"]["beta"], kept["mean"].mean["beta"], atol=1e-5)
    assert np.mean(found["losses"]) < found["burn_in_losses"][0] < np.log(2)
    assert "iteration  log loss" in printed


@check
def multivariate_gaussian(found, printed):
    right, plain = found["tables"]["sgldcv"], found["tables"]["sgld"]
    # Two components of two samplers: 4.5 standard errors is a false alarm of 3e-5 in all.
    assert max(right["z"].abs().max(), plain["z"].abs().max()) < 4.5
    # The error of a standard deviation is about 1/sqrt(2 ess) of it; ε is a fifth of the smallest variance: at most 2.6 % bias.
    assert (np.abs(right["sd ratio"] - 1) < 0.026 + 4 / np.sqrt(2 * right["ess"])).all()
    assert (plain["sd ratio"] > 1.1).all()  # the control: plain minibatches at this step size widen the posterior
    assert found["inside"]["sgld"] < found["inside"]["sgldcv"] - 0.05
    assert "exact sd" in printed


@check
def gaussian_mixture(found, printed):
    assert (found["crossings"][0.1] > 20).all()
    assert (np.abs(found["shares"][0.1] - 0.5) < 0.4).all()
    assert found["crossings"][1.0].sum() == 0
    np.testing.assert_array_equal(found["shares"][1.0], [0, 0, 1, 1])
    assert "No chain has seen the other mode" in printed
    assert (found["exchanges"] > 50).all()
    assert abs(found["exchanged"].mean() - 0.5) < 4 * found["exchanged"].std(ddof=1) / 2  # of four chains


@check
def neural_network(found, printed):
    single, averaged = found["single"], found["averaged"]
    assert (averaged <= single.mean(axis=0)).all()
    assert averaged[0] < 0.3  # a guess is wrong nine times in ten
    assert all((values > 0).all() for values in found["out"].kept["precisions"].values())
    assert "made-up images" in printed


@check
def equinox_network(found, printed):
    assert found["among"] < 0.25  # 0.16 with 199 of 200 rows in every gradient
    assert 2 * found["among"] < min(found["between"], found["outside"])
    assert 0.8 * found["noise"] < found["residual_sd"] < 1.5 * found["noise"]
    assert type(found["out"].final_state.params) is type(found["model"])
    assert "95 % interval" in printed


@check
def topics(found, printed):
    near = {name: value / found["exact"] for name, value in found["averaged"].items()}
    assert max(near.values()) < 1.06
    assert min(near.values()) > 0.99
    assert found["perplexity"](found["train"].mean(axis=0) / found["LENGTH"]) > 1.4 * found["exact"]
    np.testing.assert_allclose(found["topics"].sum(axis=1), 1.0, rtol=1e-5)
    assert "perplexity of words left out" in printed


@check
def own_sampler(found, printed):
    assert found["report"].ok
    assert found["exact"] < 1e-10
    assert found["control"] > 0.5
    assert len((FOLDER / "own_sampler.py").read_text().splitlines()) < 60
    table = found["out"].summary()
    assert (np.abs(table["mean"] - found["truth"]) < 4.5 * table["sd"]).all()  # the truth is that of 10,000 rows' posterior
    assert (table["r_hat"] < 1.02).all()
    assert "\nlaw " in printed


@pytest.mark.parametrize("file", CHECKS)
def test_example_runs(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if file.startswith("equinox"):
        pytest.importorskip("equinox")
    picture = tmp_path / "picture.png"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SGMCMC_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [file, "--quick", "--out", str(picture)])
    found = runpy.run_path(str(FOLDER / file), run_name="__main__")
    printed = capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    assert f"picture: {picture}" in printed
    CHECKS[file](found, printed)


def test_every_example_is_run_and_listed() -> None:
    files = {path.name for path in FOLDER.glob("*.py")}
    listed = set(re.findall(r"^\| \[`(\w+\.py)`\]\(\1\) .*`python examples/\1` \|$", (FOLDER / "README.md").read_text(), re.M))
    assert files == set(CHECKS), "tests/test_examples.py and examples/ have different files"
    assert files <= listed, f"examples/README.md does not list {files - listed}"
    assert listed <= files, f"examples/README.md lists {listed - files}, which are not there"
