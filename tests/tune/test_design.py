"""Designs: one after another, and what they carry for control variates of second order."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.algorithms.gradients.second_order import CurvedCentre
from sgmcmc.core.trees import Batch
from sgmcmc.problem.whitening import whitened
from sgmcmc.run.request import Problem
from sgmcmc.tune.design import control_variates
from sgmcmc.tune.pilot import Pilot
from sgmcmc.tune.survey import take_survey


def counts(params, batch):
    eta = batch["x"] @ params["beta"]
    return batch["y"] * eta - jnp.exp(eta)


def problem(n, d=3):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)).astype(np.float32)
    data = {"x": x, "y": rng.poisson(np.exp(0.3 * x[:, 0])).astype(np.float32)}
    return Problem.of(counts, data, {"beta": np.zeros(d)}, lambda p: -0.5 * (p["beta"] ** 2).sum())


def design(found, survey, *more):
    return control_variates(Pilot(found.posterior, found.table, 1), survey.centre, survey.whitening, 4, 0, *more)


@pytest.mark.parametrize("diagonal", [False, True])
def test_after_exact_gradients_there_is_another_design(diagonal):
    found = problem(50)
    survey = take_survey(found, 0, False, diagonal=diagonal)
    exact = design(found, survey)
    assert (exact.order, exact.source.kind) == (0, "all"), "so few rows that all are cheaper"
    again = design(found, survey, exact, np.random.default_rng(1).normal(size=(100, 3)))
    assert again.source.batch_size <= 50


@pytest.mark.usefixtures("x64")
def test_of_second_order_it_carries_the_hessian_of_all_rows_and_keeps_its_order():
    found = problem(20_000, 10)
    survey = take_survey(found, 0, False)
    first = control_variates(
        Pilot(found.posterior, found.table, 1), survey.centre, survey.whitening, 4, 0, likelihood=survey.likelihood
    )
    assert first.order == 2
    again = design(found, survey, first, np.random.default_rng(1).normal(size=(100, 10)))
    assert again.order == 2, "computed anew: without the survey's"
    rows = {name: jnp.asarray(column) for name, column in found.table.items()}
    everything = Batch(rows, jnp.array(1.0), jnp.arange(20_000))
    for one in (first, again):
        centre = one.est_state.inner
        assert isinstance(centre, CurvedCentre)
        of_z = whitened(found.posterior, one.whitening)
        exact = jax.hessian(lambda z, of_z=of_z: of_z.log_likelihood(z, everything))(one.whitening.zero())
        np.testing.assert_allclose(centre.hessian.values, exact, atol=1e-5)
