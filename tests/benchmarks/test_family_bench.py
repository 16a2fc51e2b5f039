"""The table of the family: what is called right, what is off, and what an effective draw costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.family.fitting import ALLOWED, CHAINS, best, judged
from benchmarks.family.report import cell, digits, figure, page, report
from benchmarks.family.targets import gaussian, mixture


def test_independent_draws_are_right_and_cost_what_they_are_and_wide_ones_are_off():
    target = gaussian()
    normals = np.random.default_rng(0).normal(size=(CHAINS, 2000, 10))
    counts = np.full(2000, 1 / 2000)
    bias, size = judged(target.mean + target.sd * normals, counts, target)
    assert bias < 0.02
    assert 0.8 < size / (CHAINS * 2000) < 1.2
    wide, _ = judged(target.mean + 1.2 * target.sd * normals, counts, target)
    moved, _ = judged(target.mean + target.sd * (normals + 0.2), counts, target)
    assert min(wide, moved) > ALLOWED


def test_chains_that_never_leave_a_mode_are_off():
    target = mixture()
    stuck, size = judged(np.ones((CHAINS, 2000, 1)), np.full(2000, 1 / 2000), target)
    assert stuck == pytest.approx((1 - 0.3) / np.sqrt(0.21))
    assert size == 1.0


def test_a_sampler_is_given_its_best_step_and_one_without_a_mode_is_not_tried():
    target = replace(mixture(), rows=4e3)
    assert best("SGLD, control variates", target, 1.0) == {"outcome": "needs a mode"}


def test_the_page_has_every_outcome():
    fit = {"outcome": "right", "rows_per_draw": 1234.0, "seconds_per_1000": 0.123, "bias": 0.01}
    off = {"outcome": "off", "bias": 0.4567}
    fits = {"one": {"a": fit, "b": off, "c": {"outcome": "needs a mode"}}, "two": {"a": off | {"bias": float("inf")}}}
    assert cell(fit) == "1.2 (0.12 s)"
    assert [cell(one) for one in fits["one"].values()][1:] == ["off 0.46", "needs a mode"]
    assert cell(fits["two"]["a"]) == "diverges"
    assert cell(off | {"bias": 0.05}) == "too slow"
    assert digits(12345) == "12,000"
    assert report(fits) in page(fits, quick=False)
    assert "quick run" in page(fits, quick=True)
    assert len(figure(fits).axes) == 2
