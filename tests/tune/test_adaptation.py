"""From design to trial: steps that fit the curvature, scales that excursions do not move, complaints by their cause."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.algorithms.dynamics.baoa import noise_amplification
from sgmcmc.results.words import Decisions
from sgmcmc.run.request import Problem
from sgmcmc.tune.adaptation import Trial, complaint_about, reshaped
from sgmcmc.tune.curvatures import dense_whitening
from sgmcmc.tune.design import (
    FRICTION,
    MOST_WORK,
    NOISE,
    SMALLEST_STEP,
    STEEP,
    STEP,
    TOO_STEEP,
    control_variates,
    friction_for,
    kept_rows,
    rows_and_step,
    step_for,
    usual_size,
)
from sgmcmc.tune.pilot import Pilot
from sgmcmc.tune.survey import take_survey


@pytest.mark.parametrize("steepest", [0.5, 1.0, 6.0, 7.0, 30.0, 500.0])
def test_the_step_is_stable_where_it_is_steepest(steepest):
    eps = step_for(steepest)
    assert eps * steepest <= TOO_STEEP
    assert eps == STEP or eps * steepest > STEEP / 2, "no smaller than need be"


def test_steps_before_are_kept_while_they_will_do():
    assert step_for(30.0, before=0.08) == 0.08
    assert step_for(100.0, before=0.08) < 0.08
    assert step_for(1.0, before=0.08) == STEP, "a step far too small grows again"
    assert step_for(np.inf) == step_for(1e9) == SMALLEST_STEP


def test_friction_per_distance_stays_the_same_and_noise_falls_with_the_step():
    assert friction_for(STEP) == pytest.approx(FRICTION)
    assert (1 - friction_for(STEP / 16)) ** 4 == pytest.approx(1 - FRICTION)
    noise = [noise_amplification(eps, friction_for(eps), 1.0) for eps in (STEP, STEP / 16)]
    assert noise[0] / noise[1] == pytest.approx(4, rel=0.25), "as the step, not as its square"


def test_minibatches_have_one_of_a_few_sizes() -> None:
    sizes = [usual_size(rows) for rows in range(1, 4097)]
    assert sorted(set(sizes))[-17:] == [
        *range(256, 512, 64),
        *range(512, 1024, 128),
        *range(1024, 2048, 256),
        *range(2048, 4097, 512),
    ]
    assert all(rows <= size <= max(1.25 * rows, rows) for rows, size in enumerate(sizes, 1))
    assert [usual_size(size) for size in sizes] == sizes


def test_as_many_rows_as_are_needed_on_the_grid_but_never_more_than_there_are_or_are_affordable() -> None:
    few, more = (rows_and_step(noise, 100_000, 5)[1] for noise in (9.9, 10.1))
    assert few == more == usual_size(few), "two seeds of one model share a program"
    assert rows_and_step(1e3, 100_000, 5)[1] == usual_size(8_377)
    assert rows_and_step(1e4, 100_000, 5)[1] == 83_761, "most of all rows: all of them will be used, in one program anyway"
    assert rows_and_step(10.0, 90, 5)[1] <= 90
    assert rows_and_step(1e9, 10**9, 1000)[1] == MOST_WORK // 1000


def test_rows_of_the_design_before_are_kept_by_those_that_are_drawn():
    assert kept_rows(needed=105, before=100, always=0) == 100
    assert kept_rows(needed=120, before=100, always=0) == 120
    assert kept_rows(needed=240, before=220, always=200) == 240, "20 drawn would be half of what is needed"
    assert kept_rows(needed=362, before=332, always=330) == 362


def logistic(params, batch):
    eta = batch["x"] @ params["beta"]
    return batch["y"] * eta - jnp.logaddexp(0.0, eta)


def test_a_step_that_was_made_smaller_does_not_grow_back():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2)).astype(np.float32)
    rows = {"x": x, "y": (rng.random(4000) < 0.5).astype(np.float32)}
    found = Problem.of(logistic, rows, {"beta": np.zeros(2)}, lambda params: -0.5 * (params["beta"] ** 2).sum())
    survey, pilot = take_survey(found, 1, False), Pilot(found.posterior, found.table, 1)

    def designed(before=None):
        return control_variates(pilot, survey.centre, survey.whitening, 4, 1, before)

    slower = designed().slower()
    assert slower.eps == slower.largest_eps == STEP / 4
    again = designed(slower)
    assert again.eps == again.largest_eps == STEP / 4
    unpacked = type(again).unpacked(found.posterior, found.table, **again.packed())
    assert unpacked.largest_eps == STEP / 4
    assert designed(replace(slower, largest_eps=STEP)).eps == STEP, "by the curvature alone"


# Made-up trials of two directions on a unit Gaussian.


def trial(positions, gradients=None, steepest=1.0, noise=0.0, eps=STEP):
    source = SimpleNamespace(drawn=100)
    whitening = dense_whitening(np.eye(2), {"theta": jnp.zeros(2)})
    design = SimpleNamespace(order=1, noise_share=NOISE, eps=eps, amplification=0.42, source=source, whitening=whitening)
    gradients = -positions if gradients is None else gradients
    shown = {"positions": positions, "gradients": gradients, "stride": 1, "noise": noise, "steepest": steepest}
    return Trial(sampler=None, design=design, state=None, round=0, decisions=Decisions(), **shown)


def gaussian(sd=1.0):
    return sd * np.random.default_rng(0).standard_normal((4, 600, 2))


def test_good_chains_are_not_complained_about():
    assert complaint_about(trial(gaussian())) is None


@pytest.mark.parametrize(
    ("wrong", "cause", "says"),
    [
        (trial(gaussian(), steepest=20.0), "step", "20 times as steep"),
        (trial(gaussian(1.3)), "step", "times what it should be"),
        (trial(gaussian(0.7)), "shape", "times what it should be"),
        (trial(gaussian(), noise=50.0), "noise", "21% of the variance"),
    ],
)
def test_complaints_have_a_cause(wrong, cause, says):
    complaint = complaint_about(wrong)
    assert complaint.cause == cause
    assert says in str(complaint)


def thrown_out():
    positions = gaussian()
    positions[0, 100:110, 0] = -60.0
    return positions


def test_draws_thrown_out_call_for_a_smaller_step():
    complaint = complaint_about(trial(thrown_out()))
    assert complaint.cause == "step"
    assert "10 draws" in str(complaint)
    assert complaint_about(trial(gaussian(), eps=SMALLEST_STEP, steepest=1e9)) is None, "there is none smaller"


def test_scales_do_not_grow_from_draws_that_were_thrown_out():
    whitening, away = reshaped(trial(thrown_out()))
    grown = np.linalg.norm(np.asarray(whitening.factor), axis=1)
    assert np.all(np.abs(grown - 1) < 0.1)
    assert thrown_out()[..., 0].std() > 3, "the control: the plain covariance would"
    assert away.shape == (2400, 2)


def test_scales_grow_by_a_bounded_factor_and_follow_good_chains():
    grown = [np.linalg.norm(np.asarray(reshaped(trial(gaussian(sd)))[0].factor), axis=1) for sd in (2.0, 100.0)]
    assert np.all(np.abs(grown[0] / 2 - 1) < 0.1)
    np.testing.assert_allclose(grown[1], 4.0, rtol=1e-5)
