"""Rows by importance as an object: the law of the rows, the noise that they leave, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import sgmcmc
from sgmcmc.algorithms import SAGA, Importance

RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=30), "share": RNG.pareto(1.2, 30) + 0.01}


def log_lik(theta, batch):
    return -0.5 * batch["share"] @ (batch["x"] - theta) ** 2


def setup(rows, **parts):
    return sgmcmc.sampler_setup(log_lik, DATA, 0.0, 1e-3, rows=rows, minibatch_size=3, progress=False, **parts)


def test_scores_of_ones_own_are_the_law_and_need_no_centre():
    source = setup(Importance(DATA["share"], uniform_share=0.2)).source
    expected = 0.8 * DATA["share"] / DATA["share"].sum() + 0.2 / 30
    np.testing.assert_allclose(source.law.probabilities, expected, atol=1e-7)


def variance_of_gradients(rows):
    sampler = setup(rows)
    state = sampler.init(seed=1, n_chains=1000)
    gradient, full = np.asarray(state.gradient, np.float64), float(DATA["share"] @ DATA["x"])
    z = (gradient.mean() - full) / (gradient.std() / np.sqrt(1000))
    return gradient.var(), z


def test_gradients_are_unbiased_and_have_the_variance_of_their_law():
    found, z = variance_of_gradients(Importance(DATA["share"]))
    assert abs(z) < 4
    q = 0.9 * DATA["share"] / DATA["share"].sum() + 0.1 / 30
    terms = DATA["share"] * DATA["x"]
    law = ((terms**2 / q).sum() - terms.sum() ** 2) / 3
    assert abs(found / law - 1) < 4 * np.sqrt(2.0 / 1000) * 1.5  # the terms' tails are a little heavier than a normal's
    alike, _ = variance_of_gradients("random")
    assert alike > 2 * law


def test_measured_scores_have_the_share_that_is_asked_for():
    options = {"gradient": "control-variates", "minibatch_size": 3, "progress": False}
    model = lambda theta, batch: -(batch["share"] * (batch["x"] - theta) ** 4).sum()  # noqa: E731
    smallest = []
    for share in (0.1, 0.6):
        sampler = sgmcmc.sampler_setup(model, DATA, 0.1, 1e-3, rows=Importance(uniform_share=share), **options)
        smallest.append(sampler.source.law.probabilities.min() * 30)
    assert smallest[0] >= 0.1 - 1e-6
    assert smallest[1] >= 0.6 - 1e-6
    assert smallest[0] < 0.5


def test_what_does_not_suit_is_refused():
    with pytest.raises(sgmcmc.InputError, match=r"scores is .* expected one number for each of the 30 rows"):
        setup(Importance(np.ones(29)))
    with pytest.raises(sgmcmc.InputError, match=r"scores\[3\] is -1"):
        setup(Importance(np.where(np.arange(30) == 3, -1.0, 1.0)))
    with pytest.raises(sgmcmc.InputError, match="no control variates"):
        setup(Importance())
    with pytest.raises(sgmcmc.InputError, match="needs distinct rows"):
        setup(Importance(DATA["share"]), gradient=SAGA())
    with pytest.raises(sgmcmc.InputError, match=r"Importance\(scores\)"):
        setup(DATA["share"])
