"""`sgmcmc fit` and `sgmcmc predict`: from files to a folder, from a folder to a file, also after a kill."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import sgmcmc
from sgmcmc.__main__ import main
from sgmcmc.models.regression import sources, told

N = 800
FORMULA = "claims ~ age + fuel + offset(log(years))"
FIT = ["--family", "poisson", "--missing", "age=median", "--prior", "age=Normal(0, 0.1)", "--draws", "200", "--seed", "1"]


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files of rows, and the folder of a fit."""
    folder = tmp_path_factory.mktemp("claims")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.uniform(18, 80, N), "fuel": rng.choice(["petrol", "diesel"], N), "years": rng.uniform(0.1, 1, N)}
    )
    frame["claims"] = rng.poisson(frame.years * np.exp(-1 + 0.02 * frame.age))
    frame["policy"] = [f"p{i}" for i in range(N)]
    frame.loc[::50, "age"] = np.nan
    frame.iloc[:300].to_csv(folder / "claims-1.csv", index=False)
    frame.iloc[300:].to_csv(folder / "claims-2.csv", index=False)
    frame.drop(columns="claims").to_parquet(folder / "new.parquet")
    ended = run("fit", FORMULA, folder / "claims-1.csv", folder / "claims-2.csv", "--out", folder / "run", *FIT)
    assert ended.exit_code == 0, ended.output
    (folder / "told.txt").write_text(ended.stdout)
    return folder


def test_a_fit_says_what_it_found_and_leaves_a_page(place):
    said = (place / "told.txt").read_text()
    assert all(
        word in said
        for word in ("fuel[petrol]", "r_hat", "missing values of age became", "age ~ Normal(0, 0.1)", "report.html: ")
    )
    page = (place / "run" / "report.html").read_text()
    assert FORMULA in page
    assert "What the model would have observed" in page
    fit = sgmcmc.load(place / "run")
    assert fit["age"].shape == (4, 200)


def test_the_same_command_has_its_draws_at_once_and_another_is_refused(place):
    again = run("fit", FORMULA, place / "claims-1.csv", place / "claims-2.csv", "--out", place / "run", *FIT, "-q")
    assert (again.exit_code, again.output) == (0, "")
    other = run("fit", "claims ~ age", place / "claims-1.csv", "--out", place / "run", *FIT, "-q")
    assert other.exit_code == 1
    assert "holds another run" in other.output


def test_predictions_are_those_of_python_block_by_block(place, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_ROWS", 333)
    ended = run("predict", place / "run", place / "new.parquet", "--of", "mean", "--keep", "policy", "--out", place / "p.parquet")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout == f"{place / 'p.parquet'}: {N} rows\n"
    found, fit = pd.read_parquet(place / "p.parquet"), sgmcmc.load(place / "run")
    assert list(found) == ["policy", "mean", "lower", "upper"]
    assert list(found.policy) == [f"p{i}" for i in range(N)]
    np.testing.assert_array_equal(found["mean"], fit.predict(place / "new.parquet", progress=False))
    lower, upper = fit.predict(place / "new.parquet", "interval", of="mean", progress=False)
    np.testing.assert_array_equal(found[["lower", "upper"]], np.column_stack([lower, upper]))


def test_predictions_as_text(place):
    ended = run("predict", place / "run", place / "new.parquet", "--level", "0.5", "--out", place / "p.csv", "-q")
    assert (ended.exit_code, ended.output) == (0, "")
    found = pd.read_csv(place / "p.csv")
    assert (found.lower <= found.upper).all()
    assert found.lower.dtype.kind == "i"  # outcomes are counts


def test_columns_that_are_kept_may_have_gaps_further_down_and_must_stay_of_one_kind(place):
    names, files = "age,fuel,years,id,mixed\n", [place / "first.csv", place / "second.csv"]
    files[0].write_text(names + "30,diesel,0.5,7,7\n" * 2)
    files[1].write_text(names + "30,diesel,0.5,7,7\n30,diesel,0.5,,p8\n")
    ended = run("predict", place / "run", *files, "--keep", "id", "--out", place / "gaps.parquet", "-q")
    assert (ended.exit_code, ended.output) == (0, "")
    assert pd.read_parquet(place / "gaps.parquet").id.isna().tolist() == [False, False, False, True]
    ended = run("predict", place / "run", *files, "--keep", "mixed", "--out", place / "mixed.parquet", "-q")
    assert ended.exit_code == 1
    assert "has values of other kinds further down" in ended.output
    assert "expected a .csv file as out" in ended.output
    assert not (place / "mixed.parquet").exists()


WRONG = [
    (["fit", "claims ~ agee", "claims-1.csv", "--out", "other"], "names 'agee'.* did you mean 'age'"),
    (["fit", "claims ~ age", "nowhere.csv", "--out", "other"], "there is no file"),
    (["fit", "claims ~ age", "claims-1.csv", "--out", "other"], "'age' misses 6; say missing='drop'"),
    (["fit", "claims ~ age", "claims-1.csv", "--out", "other", "--missing", "age"], "'age' is not understood; expected drop"),
    (["fit", "claims ~ fuel", "claims-1.csv", "--out", "other", "--prior", "fuel=Normal"], "prior 'fuel=Normal' is not"),
    (["fit", "claims ~ fuel", "claims-1.csv", "--out", "other", "--levels", "fuel"], "--levels 'fuel' is not understood"),
    (["fit", "claims ~ fuel", "claims-1.csv", "--out", "other", "--family", "possion"], "expected one of 'gaussian'"),
    (["predict", "run", "claims-1.csv", "--out", "p.xls"], "expected the name of a .parquet or .csv file"),
    (["predict", "run", "claims-1.csv", "--out", "nowhere/p.csv"], "in a folder that is not there"),
    (["predict", "run", "claims-1.csv", "--out", "p.csv", "--keep", "id"], "no column 'id', which is to be kept"),
    (["predict", "run", "mean.csv", "--out", "p.csv", "--keep", "mean"], "'mean' is to be kept, and is what predictions are"),
    (["predict", "run", "short.csv", "--out", "p.csv"], "the new frame has no column 'years'"),
    (["predict", "claims-1.csv", "claims-1.csv", "--out", "p.csv"], "no file that fit.save"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_wrong_is_told_in_a_line(arguments, message, place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "short.csv").write_text("age,fuel\n20,diesel\n")
    (place / "mean.csv").write_text("age,fuel,years,mean\n20,diesel,1,5\n")
    ended = run(*arguments, "-q")
    assert ended.exit_code == 1
    assert ended.output.startswith("sgmcmc: ")
    assert ended.output.count("\n") == 1
    assert pd.Series([ended.output]).str.contains(message).all(), ended.output
    assert not (place / "other").exists()
    assert not list(place.glob("p.xls*"))


def test_words_of_the_command_line():
    assert told.missing(["drop"]) == "drop"
    assert told.missing(["age=median", "bmi=3", "region=unknown"]) == {"age": "median", "bmi": 3.0, "region": "unknown"}
    assert told.levels(["grade=low,high"]) == {"grade": ["low", "high"]}
    assert (told.missing([]), told.levels([]), told.priors([])) == (None, None, None)
    assert told.files(["a.csv"]) == "a.csv"


def test_help_is_not_cut():
    listed = run("--help").output.partition("Commands:")[2].splitlines()
    commands = [line for line in listed if line.startswith("  ") and "COMMAND" not in line]
    assert len(commands) >= 6
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


LONG = [
    "claims ~ fuel + age",
    "claims-2.csv",
    "--family",
    "poisson",
    "--missing",
    "drop",
    "--draws",
    "20000",
    "--seed",
    "3",
    "-q",
]


@pytest.mark.slow  # three processes, of which one has to have come far enough to be killed
def test_after_a_kill_the_same_command_goes_on_bit_for_bit(place):
    def command(out):
        return [sys.executable, "-W", "ignore", "-m", "sgmcmc", "fit", *LONG, "--seed", "3", "-q", "--out", out]

    killed = subprocess.Popen(command("killed"), cwd=place)
    saved = place / "killed" / "run 0" / "state.npz"
    deadline = time.monotonic() + 300
    while not saved.exists() and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert killed.poll() is None, "it was done before it could be killed"
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (place / "killed" / "report.html").exists()
    half = sgmcmc.load(place / "killed")
    assert isinstance(half, sgmcmc.Regression)
    assert half["age"].shape[1] < 20_000
    for out in ("killed", "whole"):
        subprocess.run(command(out), cwd=place, check=True)
    one, other = (sgmcmc.load(place / name) for name in ("killed", "whole"))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    assert (place / "killed" / "report.html").exists()
