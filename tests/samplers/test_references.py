"""`sample` beside posteriors that are known: exactly, or from long runs of full-data samplers (see references/)."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sgmcmc
from reproduction.models import logistic_regression
from sgmcmc.core.trees import join
from sgmcmc.data.datasets import FOLDER_SETTING, local
from sgmcmc.data.datasets.catalogue import COVERTYPE_UCI
from sgmcmc.run.request import Problem
from sgmcmc.tune.survey import take_survey

sys.path.insert(0, str(Path(__file__).parents[2] / "references"))
from estimates import FOLDER, Estimate, estimated, exact, load

from models import PROBLEMS, linear_posterior

LIMIT = 4.0
"""Standard errors."""

ALLOWANCE = 0.03
"""Beyond them: of an sd in the means, and relative in the sds. `sample` claims to be close, not exact."""

needs_covertype = pytest.mark.skipif(
    not (Path(os.environ.get(FOLDER_SETTING) or "nowhere") / COVERTYPE_UCI.name).is_file(),
    reason=f"the data folder ({FOLDER_SETTING}) has no {COVERTYPE_UCI.name}; it is too large to ship",
)


def complaints(found: Estimate, reference: Estimate) -> list[str]:
    """What is too far from the reference."""
    off = {
        "mean": np.abs(found.mean_errors(reference)) > LIMIT * found.mean_se(reference) + ALLOWANCE,
        "sd": np.abs(found.sd_errors(reference)) > LIMIT * found.sd_se(reference) + ALLOWANCE,
    }
    return [f"{what} of number {i}" for what, wrong in off.items() for i in np.flatnonzero(wrong)]


ALWAYS = {("robust", "sgmcmc"), ("poisson", "sgmcmc")}
BOTH = [(name, engine) for name in PROBLEMS for engine in ("sgmcmc", "nuts")]


@pytest.mark.parametrize(("name", "engine"), [pytest.param(*one, marks=[pytest.mark.slow] * (one not in ALWAYS)) for one in BOTH])
def test_sample_gives_the_reference(name, engine):
    problem, reference = PROBLEMS[name], load(name)
    fit = sgmcmc.sample(
        problem.log_lik, problem.data(), problem.start, log_prior=problem.log_prior, constraints=problem.constraints,
        engine=engine, seed=1, progress=False,
    )  # fmt: skip
    draws, on_all_rows = problem.numbers(fit), engine == "nuts"
    assert on_all_rows or fit.settings["minibatch_size"] < fit.settings["n_rows"] / 10  # else minibatches were not under test
    assert not complaints(estimated(draws), reference)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    numbers = range(len(reference.sd))
    assert complaints(estimated(mean + 1.2 * (draws - mean)), reference) == [f"sd of number {i}" for i in numbers]
    assert complaints(estimated(draws + 0.2 * sd), reference) == [f"mean of number {i}" for i in numbers]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_files_are_well_formed(path):
    content, reference = json.loads(path.read_text()), load(path.stem)
    assert all(content[key] for key in ("model", "origin", "method", "order"))
    assert f"`{path.name}`" in (FOLDER / "README.md").read_text()
    columns = (reference.mean, reference.sd, reference.mcse_mean, reference.mcse_sd, reference.ess)
    assert {column.shape for column in columns} == {reference.mean.shape}
    assert all(np.isfinite(column).all() for column in columns[:-1])
    assert (reference.sd > 0).all()
    assert (reference.ess > 1_000).all()
    assert (reference.mcse_mean < 0.025 * reference.sd).all()
    if path.stem in PROBLEMS:
        assert content["order"] == PROBLEMS[path.stem].order
        assert (reference.mcse_sd < 0.01 * reference.sd).all()


def test_every_reference_is_there():
    assert {path.stem for path in FOLDER.glob("*.json")} == {*PROBLEMS, "covertype_laplace"}


def test_data_are_those_of_the_references():
    """The closed form is cheap enough to make again; a change of the generator's data would show in its digits."""
    again = exact(*linear_posterior())
    np.testing.assert_allclose(again.mean, load("linear").mean, rtol=2e-6)
    np.testing.assert_allclose(again.sd, load("linear").sd, rtol=2e-6)


def covertype_complaints(found: Estimate, reference: Estimate) -> list[str]:
    """What of the bars for covertype is missed. They are wider: its reference has errors of its own, and long tails."""
    in_means = np.abs(found.mean_errors(reference)) - 3 * found.mean_se(reference)
    in_sds = np.abs(found.sd_errors(reference))
    missed = {
        "means": in_means.max() > 0.08,
        "sds, root mean square": np.sqrt(np.mean(in_sds**2)) > 0.05,
        "sds, largest": in_sds.max() > 0.15,
        "effective sample size": found.ess.min() < 1_000,
    }
    return [what for what, is_missed in missed.items() if is_missed]


@pytest.mark.slow
@needs_covertype
def test_sample_gives_the_reference_of_covertype(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "user_cache_dir", lambda app: str(tmp_path))  # the user's cache folder is not ours to fill
    table = sgmcmc.get_dataset("covertype", download=False)
    data, start = {"X": table[:, 1:], "y": table[:, 0]}, {"bias": 0.0, "beta": np.zeros(54)}
    log_lik, log_prior, reference = logistic_regression.log_lik, logistic_regression.log_prior, load("covertype_laplace")
    fit = sgmcmc.sample(log_lik, data, start, log_prior=log_prior, seed=1, progress=False)
    draws = np.concatenate([fit["bias"][..., None], fit["beta"]], axis=-1)
    assert not covertype_complaints(estimated(draws), reference)
    problem = Problem.of(log_lik, data, start, log_prior)
    survey = take_survey(problem, 1, False)
    mode, covariance = survey.centre.position, np.linalg.inv(survey.precision)
    by_laplace = exact(join(mode), covariance)
    bias_first = replace(by_laplace, mean=np.roll(by_laplace.mean, 1), sd=np.roll(by_laplace.sd, 1))
    assert covertype_complaints(bias_first, reference) == ["means", "sds, root mean square", "sds, largest"]
