"""The length of chunks: about a third of a second, whatever an iteration and a chunk cost."""

from __future__ import annotations

import numpy as np
import pytest

from sgmcmc.run import loop


def lengths(monkeypatch, seconds, chunks, capacity=1000):
    """The lengths of so many chunks, of which one of `count` iterations takes `seconds(count)`."""
    now = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    clock, found = loop.Pace(capacity), []
    for _ in range(chunks):
        found.append(clock.count)
        clock.start()
        now[0] += seconds(clock.count)
        clock.stop(found[-1], False)
    return found


def test_fast_iterations_fill_the_chunk(monkeypatch):
    assert lengths(monkeypatch, lambda count: 2e-5 * count, 12)[-1] == 1000


@pytest.mark.parametrize("per_iteration", [0.01, 0.1, 1.0, 10.0])
def test_slow_iterations_are_heard_between(monkeypatch, per_iteration):
    found = lengths(monkeypatch, lambda count: per_iteration * count, 30)
    assert max(found[4:]) <= max(1, round(0.3 / per_iteration))


@pytest.mark.parametrize("fixed", [0.1, 2.0, 20.0])
def test_what_a_chunk_costs_however_short_does_not_make_it_shorter(monkeypatch, fixed):
    found = lengths(monkeypatch, lambda count: fixed + 1e-4 * count, 30)
    assert min(found[-4:]) == 1000


def test_noise_lengthens_a_chunk_by_no_more_than_the_bound(monkeypatch):
    rng = np.random.default_rng(0)
    found = lengths(monkeypatch, lambda count: 0.02 * count * rng.uniform(0.5, 2.0), 300)
    assert max(found) <= loop.GROWTH * 2 * 0.3 / 0.02


@pytest.mark.parametrize(("seconds", "first"), [(1e-5, 1000), (0.01, 30), (10.0, 1), (1e-9, 1000)])
def test_what_an_earlier_run_told_makes_the_first_chunk(seconds, first):
    clock = loop.Pace(1000, seconds)
    assert clock.count == clock.upcoming == first


def test_whoever_is_asked_to_end_proposes_nothing():
    clock = loop.Pace(100)
    clock.start()
    clock.stop(8, True)
    assert clock.proposal == 0
    assert clock.ended


def test_several_processes_keep_the_pace_they_agreed_on():
    clock = loop.Pace(100)
    clock.start()
    clock.stop(8, False, agreed=5)
    assert clock.upcoming == 5
    assert not clock.ended
