"""The benchmark of imports: both are measured, and the difference is judged."""

from __future__ import annotations

from benchmarks import ratios
from benchmarks.fresh import imports


def test_the_import_is_compared_with_that_of_jax():
    found = imports.measure(rounds=1)
    assert [len(times) for times in found["seconds"].values()] == [1, 1]
    judged = {"seconds": {"jax": [0.5, 0.5, 0.5], "sgmcmc": [1.0, 2.0, 1.6]}}
    assert "3.20 (2.00 to 4.00)" in ratios.report({"import": judged})
    assert "at most 1 s more: MISSED" in ratios.report({"import": judged})
    assert "1.10 (0.50 to 1.50) | MISSED" in imports.report(judged)
