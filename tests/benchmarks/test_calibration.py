"""Simulation-based calibration: ranks, both tests with their rate of false alarms and what they must catch, the five models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.calibration import fits, models, ranks, report
from benchmarks.calibration.__main__ import PAGE, shared

CAMPAIGNS, N = 400, 200


def uniform(rng, sets, n=N):
    return rng.integers(0, ranks.DRAWS + 1, (sets, n))


def of_normals(rng, n=N, width=1.0, shift=0.0):
    """Ranks where the posterior is N(0, 1) and the draws are wider or elsewhere."""
    return (shift + width * rng.normal(size=(n, ranks.DRAWS)) < rng.normal(size=(n, 1))).sum(axis=1)


def test_ranks_count_the_draws_below_among_evenly_spaced_ones():
    draws = np.arange(10_000.0).reshape(4, 2_500)
    assert len(ranks.thinned(draws)) == ranks.DRAWS
    assert ranks.thinned(draws)[[0, -1]].tolist() == [0.0, 9_999.0]
    assert [ranks.rank(draws, truth) for truth in (-1.0, 5_050.0, 1e6)] == [0, 50, 99]


def test_all_tests_together_fail_as_often_as_declared():
    """Ten parameters in each campaign: the declared rate within four standard errors."""
    rng, rate, laws = np.random.default_rng(1), 0.05, ranks.laws(N)
    level = ranks.level(20, rate)
    assert 1 - (1 - level) ** 20 == pytest.approx(rate)
    alarms = 0
    for _ in range(CAMPAIGNS):
        counts = [ranks.counted(one) for one in uniform(rng, 10)]
        alarms += min(min(laws.p_chi_squared(c), laws.p_departure(c)) for c in counts) <= level
    se = np.sqrt(rate * (1 - rate) / CAMPAIGNS)
    assert alarms / CAMPAIGNS < rate + 4 * se  # both tests look at the same ranks, so it may be less
    assert alarms / CAMPAIGNS > rate / 2 - 4 * se


@pytest.mark.parametrize("test", ["p_chi_squared", "p_departure"])
def test_each_test_has_its_level(test):
    rng, laws = np.random.default_rng(2), ranks.laws(N)
    p = np.array([getattr(laws, test)(ranks.counted(one)) for one in uniform(rng, 2_000)])
    for level in (0.01, 0.05):
        assert (p <= level).mean() == pytest.approx(level, abs=4 * np.sqrt(level / 2_000))


def test_the_band_holds_what_the_test_passes():
    rng, level = np.random.default_rng(3), 0.05
    at, low, high = ranks.band(N, level)
    laws, outside = ranks.laws(N), 0
    for one in uniform(rng, 1_000):
        counts = ranks.counted(one)
        below = np.cumsum(counts)[:-1] / N
        beyond = bool(((below < low) | (below > high)).any())
        assert beyond == (ranks.departure(counts) < laws.tail(level))
        outside += beyond
    assert outside / 1_000 == pytest.approx(level, abs=4 * np.sqrt(level / 1_000))
    assert (low <= at).all()
    assert (at <= high).all()


def test_draws_too_wide_too_narrow_or_elsewhere_are_caught_and_right_ones_are_not():
    rng, tests = np.random.default_rng(4), 46
    assert ranks.judged(of_normals(rng), tests).passed
    for wrong in ({"width": 1.7}, {"width": 0.6}, {"shift": 0.5}):
        found = ranks.judged(of_normals(rng, **wrong), tests)
        assert not found.passed
        assert max(found.p_chi_squared, found.p_band) < 0.01


@pytest.mark.parametrize("name", list(models.MODELS))
def test_parameters_and_rows_are_drawn_from_the_model(name):
    """Shapes and support, the same for the same number; and the rows are likelier at the truth than elsewhere."""
    model = models.MODELS[name]
    (truth, data), (again, same) = models.simulated(model, 3), models.simulated(model, 3)
    assert all(np.array_equal(truth[key], again[key]) for key in truth)
    assert all(np.array_equal(data[key], same[key]) for key in data)
    assert {key: np.shape(value) for key, value in truth.items()} == {key: np.shape(value) for key, value in model.start.items()}
    assert {len(column) for column in data.values()} == {models.ROWS}
    assert np.isfinite(float(model.log_prior(truth)))
    value = jax.jit(lambda params: jnp.sum(model.log_lik(params, data)))
    assert float(value(truth)) > float(value(models.simulated(model, 4)[0]))
    assert list(model.seen(truth)) == list(model.seen({key: np.zeros((2, 5, *np.shape(v))) for key, v in truth.items()}))


def draws_about(truth, width, rng):
    return {name: value + width * rng.normal(size=(4, 250, *np.shape(value))) for name, value in truth.items()}


def test_ranks_of_a_fit_are_those_of_its_numbers():
    model = models.MODELS["Poisson with exposure"]
    truth, rng = {"a": 1.0, "beta": np.array([2.0, 3.0])}, np.random.default_rng(5)
    draws = draws_about(truth, 1.0, rng)
    draws["beta"][..., 1] += 100
    found = fits.ranked(model, truth, draws)
    assert 30 < found["ranks"]["a"] < 70
    assert (found["ranks"]["beta[1]"], found["few"]) == (0, False)
    stuck = {name: np.broadcast_to(value[:, :1], value.shape) + 1e-9 * draws[name] for name, value in draws.items()}
    assert fits.ranked(model, truth, stuck)["few"]


def campaign(width, kind, rng, n=100):
    drawn = {"outcome": "draws", "kinds": [], "few": False, "seconds": 2.0}
    made = [drawn | {"ranks": {"a": int(one)}} for one in of_normals(rng, n, width)]
    return report.Line("one number", kind, [*made, {"outcome": "refused", "message": "InputError: no", "seconds": 1.0}])


def test_the_report_fails_where_ranks_are_not_uniform_or_the_control_passes():
    rng = np.random.default_rng(6)
    right, wide = campaign(1.0, fits.SAMPLE, rng), campaign(2.5, fits.SAMPLE, rng)
    caught, missed = campaign(2.5, fits.CONTROL, rng), campaign(1.0, fits.CONTROL, rng)
    assert [report.failed(lines) for lines in ([right, caught], [wide, caught], [right, missed])] == [False, True, True]
    page = report.page([right, caught])
    assert "1 refused" in page
    assert "NOT UNIFORM" in page
    assert "not uniform: 0 of 1" in page
    assert len(report.figure([right, caught]).axes) == report.COLUMNS


def test_the_page_says_what_the_command_says():
    assert PAGE.read_text().startswith(report.page([]))


def test_replications_are_shared_among_processes():
    assert shared("a", "sample", [3, 4, 5], 2) == [("a", "sample", [3, 5]), ("a", "sample", [4])]
    assert shared("a", "sample", [], 2) == []
