"""What is asked for is checked once, and the problem too."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import sgmcmc
from sgmcmc.results.keeps import PairTrace
from sgmcmc.results.result import PAIRS
from sgmcmc.run import request
from sgmcmc.run.request import Problem, Request

DATA = {"x": np.random.default_rng(0).normal(1.0, 1.0, 200).astype(np.float32)}
QUICK = {"minibatch_size": 20, "progress": False}


def log_lik(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()


@pytest.fixture
def made(monkeypatch):
    """How many requests and problems were built, and how often a likelihood was checked."""
    counted = Counter()

    def counting(owner, name, what):
        real = getattr(owner, name)

        def call(*arguments, **options):
            counted[what] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    counting(Request, "__post_init__", "requests")
    counting(Problem, "__init__", "problems")
    counting(request, "check_log_lik", "likelihoods")
    counting(request, "check_dataset", "datasets")
    return counted


ONCE = {"requests": 1, "problems": 1, "likelihoods": 1, "datasets": 1}


@pytest.mark.parametrize("name", ["sgld", "sghmc", "sgnhtcv", "baoacv"])
def test_a_whole_chain_is_one_request_for_one_problem(made, name):
    getattr(sgmcmc, name)(log_lik, DATA, {"mu": 0.0}, 1e-4, n_iters=5, seed=1, n_chains=2, **QUICK)
    assert made == ONCE


@pytest.mark.slow
def test_so_it_is_with_a_folder_and_everything_else(made, tmp_path):
    for n_iters in (10, 20):
        made.clear()
        sgmcmc.sgldcv(
            log_lik, DATA, {"mu": 0.0}, "auto", precondition="laplace", rows="importance", n_iters=n_iters, burn_in=5, seed=1,
            diagnose=True, keep={"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments()}, checkpoint=tmp_path / "run", **QUICK,
        )  # fmt: skip
        assert made == ONCE


def test_step_by_step_the_problem_is_checked_at_set_up_and_the_request_when_it_comes(made):
    sampler = sgmcmc.sgld_setup(log_lik, DATA, {"mu": 0.0}, 1e-4, **QUICK)
    assert made | {"requests": 1} == ONCE
    assert not made["requests"]
    state = sampler.init(seed=1)
    sampler.run(state, 5, progress=False)
    assert made == ONCE


@pytest.mark.slow
def test_sample_checks_its_problem_once(made):
    sgmcmc.sample(log_lik, DATA, {"mu": 0.0}, draws=400, chains=2, seed=1, progress=False)
    assert (made["problems"], made["likelihoods"], made["datasets"]) == (1, 1, 1)


def test_what_a_request_says():
    asked = Request(100, 20, 3, diagnose=True)
    assert (asked.total, asked.looks) == (120, 33)
    assert list(asked.keeps) == ["kept", PAIRS]
    assert isinstance(asked.keeps[PAIRS], PairTrace)
    assert Request(keep={}).keeps == {}


def test_a_problem_has_its_start_both_ways():
    def positive(params, batch):
        return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum() / params["s"]

    found = Problem.of(positive, DATA, {"mu": 0.0, "s": 2.0}, constraints={"s": sgmcmc.constraints.positive})
    assert found.params == {"mu": 0.0, "s": 2.0}
    assert float(found.position["s"]) == pytest.approx(np.log(2.0), rel=1e-6)
    assert found.posterior.n_rows == found.table.n_rows == 200
