"""Causes: each is told from made-up draws that have it, and from none that do not."""

from __future__ import annotations

import numpy as np
import pytest

from sgmcmc.results.causes import cause, collapsed_scale, ridge, separated_level

DRAWS = 4000
NONE = np.zeros(3, bool)


def draws(*columns):
    return np.stack(columns, axis=1)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_a_scale_that_runs_to_0(rng):
    tau = np.abs(rng.standard_normal(DRAWS))
    x, names, scales = draws(rng.standard_normal(DRAWS), np.log(tau)), ["mu", "tau"], np.array([False, True])
    told = collapsed_scale(x, names, scales)
    assert told is not None
    assert told.startswith("tau runs to 0")
    assert "tau * z with z ~ Normal(0, 1)" in told
    assert cause(x, names, scales, 0) == told
    assert collapsed_scale(x, names, np.zeros(2, bool)) is None
    for width in (0.1, 2.0):
        steady = draws(x[:, 0], width * rng.standard_normal(DRAWS))
        assert collapsed_scale(steady, names, scales) is None


def test_two_numbers_that_trade_off(rng):
    a, b = rng.standard_normal((2, DRAWS))
    names = ["a", "b", "c"]
    told = ridge(draws(a, -a + 0.1 * b, b), names, NONE, 0)
    assert told is not None
    assert told.startswith("a and b trade off")
    assert ridge(draws(a, -a + b, b), names, NONE, 0) is None
    assert ridge(draws(a, np.full(DRAWS, 2.0), b), names, NONE, 0) is None


def test_a_scale_and_an_effect_that_trade_off(rng):
    log_tau = 0.5 * rng.standard_normal(DRAWS)
    effect = 2 * np.exp(-log_tau + 0.05 * rng.standard_normal(DRAWS))
    x, names, scales = draws(log_tau, effect, log_tau[::-1]), ["tau", "z[3]", "c"], np.array([True, False, False])
    told = ridge(x, names, scales, 1)
    assert told is not None
    assert told.startswith("tau and z[3] trade off: the data tell their product")
    loose = draws(log_tau, effect[::-1], log_tau[::-1])
    assert ridge(loose, names, scales, 1) is None
    assert ridge(draws(log_tau, effect - 2, log_tau[::-1]), names, scales, 1) is None


def test_a_level_that_the_data_hardly_tell(rng):
    x = 0.2 * rng.standard_normal((DRAWS, 4))
    names = ["beta[0]", "beta[1]", "beta[2]", "alpha"]
    x[:, 1] = -np.abs(5 * rng.standard_normal(DRAWS))
    told = separated_level(x, names, 1)
    assert told is not None
    assert "say little of beta[1]" in told
    assert separated_level(x, names, 0) is None
    x[:, 1] = 5 * rng.standard_normal(DRAWS)
    assert separated_level(x, names, 1) is None
    x[:, 1] = -np.abs(0.3 * rng.standard_normal(DRAWS))
    assert separated_level(x, names, 1) is None
    x[:, 3] = -np.abs(5 * rng.standard_normal(DRAWS))
    assert separated_level(x, names, 3) is None


def test_no_cause_for_good_draws(rng):
    assert cause(rng.standard_normal((DRAWS, 3)), ["a", "b", "c"], np.array([True, False, False]), 0) is None
