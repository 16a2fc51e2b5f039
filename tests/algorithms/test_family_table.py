"""The command that compares exact laws with the formulas: digits for a pair that carries much, none where a formula is wrong."""

from __future__ import annotations

import jax
import pytest

from tools import family


def test_a_pair_agrees_to_ten_digits_and_a_wrong_formula_does_not(monkeypatch):
    move, look = "`BAOA`", "`SAGA`"
    with jax.enable_x64(True):
        found = family.of_library(family.DYNAMICS[move], family.ESTIMATORS[look])
    assert family.of_formulas(move, look) == pytest.approx(found, rel=1e-10)
    monkeypatch.setattr(family, "gradient_of", lambda _, *given: gradient_without_memory(*given))
    assert abs(family.of_formulas(move, look) / found - 1) > 0.1


def gradient_without_memory(theta, visited, index, weight):
    return weight @ (family.ROWS[index] - theta), visited
