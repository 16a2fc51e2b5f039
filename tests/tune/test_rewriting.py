"""Where chains do not come to terms with scales of effects, the other way to write these is tried, and said."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpyro_models import SCHOOLS

import sgmcmc
from sgmcmc.tune.rewriting import centredness


def test_rows_centre_as_far_as_they_tell():
    assert centredness(np.array([0.0, 1.0, 4.0]), np.array(0.5)).tolist() == [0.0, 0.2, 0.5]


@pytest.fixture(scope="module")
def fit():
    model = sgmcmc.from_numpyro(SCHOOLS.model, SCHOOLS.data, static=SCHOOLS.static, plate=SCHOOLS.plate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sgmcmc.SgmcmcWarning)
        return sgmcmc.sample(model, seed=1, draws=500, progress=False)


def test_schools_are_sampled_relative_to_their_scale(fit):
    assert fit.decisions["rewritten"] == ("theta",)
    assert "theta (centred by 0." in str(fit.decisions)
    assert fit.health().ok
    assert sorted(fit) == ["mu", "tau", "theta"]  # as the user wrote them
    assert fit["theta"].shape == (4, 500, 40)
    truth = integrated()
    errors = np.asarray(fit.summary()["mcse"], float)
    found = np.concatenate([np.ravel(fit[name].mean(axis=(0, 1))) for name in ("mu", "tau", "theta")])
    assert np.abs((found - truth) / errors).max() < 5  # 42 numbers: by chance once in 40,000 times
    assert np.abs((found - 1.3 * truth) / errors).max() > 5  # the control


def integrated():
    """Posterior means: on a grid of tau, where all else is Gaussian."""
    y, v = SCHOOLS.data["y"], SCHOOLS.data["sd"] ** 2
    tau = np.linspace(1e-3, 60, 20_001)[:, None]
    w = 1 / (v + tau**2)
    precision, pull = w.sum(axis=1) + 1 / 25, (w * y).sum(axis=1)
    mean = pull / precision
    log_p = 0.5 * np.log(w).sum(axis=1) - 0.5 * np.log(precision) - 0.5 * (w * y**2).sum(axis=1) + 0.5 * pull**2 / precision
    log_p -= np.log1p((tau[:, 0] / 5) ** 2)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    shrunk = (y / v + mean[:, None] / tau**2) / (1 / v + 1 / tau**2)
    return np.array([p @ mean, p @ tau[:, 0], *(p @ shrunk)])
