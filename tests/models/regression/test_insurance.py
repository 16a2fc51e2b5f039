"""The insurance task beside its reference posterior, on fewer rows than in the benchmark."""

import numpy as np
import pytest

from benchmarks.regression.insurance import fitted, reference

ROWS = 20_000


@pytest.mark.slow  # 110 numbers that NUTS takes minutes for
def test_effects_of_regions_are_those_of_nuts_in_double_precision():
    """Bounds: means within 0.15 posterior sds, sds within 10 %, the worst of all numbers, effects of 100 regions among them."""
    ours, theirs = fitted(ROWS), reference(ROWS)
    assert ours["names"] == theirs["names"]
    mean, sd = np.asarray(theirs["mean"]), np.asarray(theirs["sd"])
    assert (np.abs(np.asarray(ours["mean"]) - mean) / sd).max() < 0.15
    assert np.abs(np.asarray(ours["sd"]) / sd - 1).max() < 0.1
    assert (np.abs(mean) / sd).max() > 3  # the control: 0 is no answer
