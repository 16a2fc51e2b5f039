"""Whether chains agree in what they say of rows, where parameters have more names than one."""

from __future__ import annotations

import numpy as np
import pytest

from sgmcmc.results.agreement import agreement
from sgmcmc.results.words import APART
from sgmcmc.run.request import Problem

RNG = np.random.default_rng(3)
X = RNG.normal(size=400)
START = {"a": 1.0, "b": 1.0}


def of_product(params, rows):
    """Rows know the product only: (a, b) and (-a, -b) are the same."""
    return -0.5 * (rows["y"] - params["a"] * params["b"] * rows["x"]) ** 2


def summed(params, rows):
    return of_product(params, rows).sum()


def drawn(product):
    """Draws of two chains, the second with the other signs, with products about those given."""
    b = np.stack([np.full(80, 2.0), np.full(80, -2.0)])
    return {"a": (np.asarray(product)[:, None] + 0.1 * RNG.normal(size=(2, 80))) / b, "b": b}


@pytest.mark.parametrize("log_lik", [of_product, summed], ids=["by row", "sum"])
def test_chains_that_differ_by_names_agree_and_others_do_not(log_lik):
    problem = Problem.of(log_lik, {"x": X, "y": X}, START, None)

    def of(draws):
        return agreement(problem.posterior, problem.table, draws, seed=1)

    alike = of(drawn([1.0, 1.0]))
    assert alike["predictions"] < APART
    assert "they agree in what they predict" in str(alike)
    apart = of(drawn([1.0, 1.5]))
    assert apart["predictions"] > APART
    assert "do not predict alike" in str(apart)
    assert not of({"a": np.zeros((2, 3)), "b": np.zeros((2, 3))}).made
