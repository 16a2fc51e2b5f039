"""The benchmark of feeding: every candidate makes a round, and is fed as its name says."""

from __future__ import annotations

import shutil

import pytest

import sgmcmc
from benchmarks.common.problem import COLUMNS, MINIBATCH, arguments, options, synthetic
from benchmarks.steps import feeding, limit
from sgmcmc.rows import gathering

ITERATIONS = 20


@pytest.fixture(scope="module")
def data():
    return synthetic(2_000)


@pytest.mark.slow  # many programs are compiled
@pytest.mark.skipif(shutil.which(feeding.C_COMPILER) is None, reason="no C compiler")
def test_one_round_of_every_candidate(data, tmp_path, monkeypatch):
    monkeypatch.setattr(feeding, "BUILD", tmp_path)
    monkeypatch.setattr(limit, "BUILD", tmp_path)
    monkeypatch.setattr(feeding, "CHUNK_SIZES", (8,))
    c_loop = limit.compile_limit()
    copies = feeding.measured(feeding.copying_jobs(data, c_loop, minibatches=5), 1, "copying")
    steps = feeding.measured(feeding.step_jobs(data, c_loop, ITERATIONS), 1, "steps")
    assert all(wall > 0 for times in (copies, steps) for ((wall, _),) in times.values())
    assert feeding.report_copies(copies).count("\n|") == 2 + len(copies)
    assert feeding.report_steps(steps).count("\n|") == 2 + len(steps)


def test_rows_go_into_the_memory_that_a_candidate_names(data):
    lent = []

    def lend(shape, dtype):
        lent.append(shape)
        return gathering.aligned(shape, dtype)

    sampler = sgmcmc.sgld_setup(*arguments(data), **options("random"))
    feeding.sgld_job(ITERATIONS, sampler, None, lend)()
    assert any(shape[-2:] == (MINIBATCH, COLUMNS) for shape in lent)
