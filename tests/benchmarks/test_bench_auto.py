"""The benchmark of `sample`: what it calls exact is, its clock adds up, and the figures it stored give tables and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.auto import growth, peers, race
from benchmarks.common.stages import Stages, middle

STORED = Path(__file__).parents[2] / "docs" / "assets" / "auto.json"


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text())


def test_fewer_rows_are_the_first_of_more():
    few, more = growth.synthetic(500), growth.synthetic(growth.BLOCK + 500)
    assert all((few[name] == more[name][:500]).all() for name in few)
    assert 0.3 < more["y"].mean() < 0.7


def test_the_exact_curvature_is_that_of_the_model(x64):
    import jax

    data = {name: array.astype(np.float64) for name, array in growth.synthetic(2_000).items()}
    mode, precision = growth.laplace(data)

    def log_posterior(beta):
        return growth.log_lik({"beta": beta}, data).sum() + growth.log_prior({"beta": beta})

    away = np.asarray(jax.grad(log_posterior)(mode)) / np.sqrt(np.diag(precision))
    assert np.abs(away).max() < 1e-5
    np.testing.assert_allclose(-jax.hessian(log_posterior)(mode), precision, rtol=1e-8, atol=1e-8)


def test_stages_add_up_bars_of_one_name():
    stages = Stages("test")
    for stage, done in (("a", 5), ("a", 9), ("b", 3), ("a", 5), ("a", 5)):
        stages({"stage": stage, "done": done, "total": None})
    assert stages.work == {"a": 19, "b": 3}
    assert stages.bars == {"a": 3, "b": 1}
    assert stages.finish() == pytest.approx(sum(stages.seconds.values()))


def test_medians_of_runs_keep_the_runs():
    runs = [{"a": a, "of": {"b": -a}, "list": [a]} for a in (3.0, 1.0, 2.0)]
    assert middle(runs) == {"a": 2.0, "of": {"b": -2.0}, "rounds": runs}


def test_one_round_of_timed_steps():
    times = growth.steps_timed([1_000, 2_000], minibatch=16, steps=10, rounds=1)
    assert list(times) == ["ours", "bare"]
    assert all(len(times[who][size]) == 1 for who in times for size in (1_000, 2_000))


def test_the_stored_figures_give_the_tables_and_the_picture(stored):
    assert race.report(stored["covertype"]).count("\n|") > 20
    assert growth.report(stored["growth"]).count("met") >= 3
    left, right = race.figure(stored["covertype"]).axes
    for axes in (left, right):
        assert axes.get_xscale() == axes.get_yscale() == "log"
        assert "seconds" in axes.get_xlabel()


def test_the_stored_figures_say_what_the_docs_say(stored):
    """`sample` is near the reference, where the Laplace approximation and the article's settings are not."""
    runs = stored["covertype"]
    ours = race.usual(runs)
    for error, bar in (("mean_rms", 0.05), ("sd_rms", 0.05)):
        assert ours[error] < bar < runs["laplace"][error]
        assert ours[error] < min(run[error] for run in runs["article"].values())


def looked_at(seconds):
    errors = dict.fromkeys(("mean_rms", "mean_max", "sd_rms", "sd_max"), 0.5)
    return errors | {"seconds": seconds, "iterations": 10, "row_gradients": 581_012}


def test_peers_are_in_the_table_and_in_the_picture(stored):
    """Each as often as it was looked at; one that did not end is said to have not."""
    names = list(peers.PEERS)
    runs = {name: {"path": [looked_at(10.0), looked_at(20.0)], "warm_up": 0} for name in names[:-1]}
    runs[names[-1]] = {"path": [], "warm_up": 0, "ended_after": 240.0}
    result = stored["covertype"] | {"peers": runs}
    words = race.report(result)
    assert [words.count(f"| {name}, iteration 10 ") for name in names] == [2, 2, 2, 0]
    assert f"| {names[-1]}, ended in its warm-up" in words
    labels = [line.get_label() for line in race.figure(result).axes[0].lines]
    assert set(names) <= set(labels)


@pytest.mark.slow
@pytest.mark.parametrize("name", peers.PEERS)
def test_each_peer_runs(name, monkeypatch):
    rng = np.random.default_rng(0)
    rows = {"X": rng.random((2_000, 54), np.float32), "y": (rng.random(2_000) < 0.5).astype(np.float32)}
    monkeypatch.setattr(peers, "data", lambda: rows)
    found = peers.by(name, 1.0)
    assert found["path"][-1]["iterations"] > 0
    assert np.isfinite(found["path"][-1]["mean_rms"])
