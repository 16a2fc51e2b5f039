"""The look before sampling: curvature against exact Hessians, and posteriors that are none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from surveys import X, Y, classes, hessian, logistic, normal_prior, problem, surveyed

import sgmcmc
from sgmcmc.tune import survey
from sgmcmc.tune.curvatures import whitening_of
from sgmcmc.tune.survey import curvature_at, is_indefinite, open_direction, speaks, with_floor

RNG = np.random.default_rng(3)


# Curvature.


@pytest.mark.usefixtures("x64")
def test_the_curvature_is_the_hessian_at_the_mode():
    found = surveyed(logistic, {"x": X, "y": Y}, {"beta": np.zeros(3)}, normal_prior)
    mode = np.asarray(found.centre.position["beta"])
    exact = hessian(X, mode)
    assert found.curvature == "hessian"
    assert bool(found.centre.converged)
    np.testing.assert_allclose(found.precision, exact, rtol=1e-6)
    np.testing.assert_allclose(found.centre.gradient["beta"], X.T @ (Y - 1 / (1 + np.exp(-X @ mode))), rtol=1e-9, atol=1e-9)
    off = np.asarray(found.centre.gradient["beta"]) - mode
    assert off @ np.linalg.solve(exact, off) / 3 < 0.05
    L = np.asarray(found.whitening.factor)
    np.testing.assert_allclose(L.T @ exact @ L, np.eye(3), atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_a_diagonal_survey_is_the_fisher_information():
    found = surveyed(logistic, {"x": X, "y": Y}, {"beta": np.zeros(3)}, normal_prior, diagonal=True)
    residuals = Y - 1 / (1 + np.exp(-X @ np.asarray(found.centre.position["beta"])))
    np.testing.assert_allclose(found.precision, ((X * residuals[:, None]) ** 2).sum(axis=0) + 1, rtol=1e-9)
    assert found.curvature == "fisher"
    assert not found.whitening.dense


def test_a_subsampled_hessian_keeps_the_scale_of_a_column_that_is_in_three_rows(monkeypatch):
    n_rows, d = 200_000, 4
    x = RNG.normal(size=(n_rows, d)).astype(np.float32)
    x[:, 1] = 0.9 * x[:, 0] + 0.3 * x[:, 1]
    x[:, 3] = 0
    x[[5, 70_000, 199_000], 3] = 1
    y = classes(x, np.array([0.5, -0.5, 1.0, 0.0])).astype(np.float32)
    monkeypatch.setattr(survey, "HESSIAN_WORK", 20_000 * d**2)
    assert survey.hessian_rows(n_rows, d) == 20_000
    posterior, arrays, _ = problem(logistic, {"x": x, "y": y}, {"beta": np.zeros(d)}, normal_prior)
    beta = np.array([0.5, -0.5, 1.0, 0.0])
    precision, kind, _ = curvature_at(posterior, arrays, {"beta": jnp.asarray(beta, jnp.float32)}, 1, False, diagonal=False)
    exact = hessian(x.astype(float), beta)
    scale = np.sqrt(np.diag(exact))
    assert kind == "hessian"
    np.testing.assert_allclose(np.sqrt(np.diag(precision)) / scale, 1, atol=0.25)
    np.testing.assert_allclose((precision / np.outer(scale, scale))[:3, :3], (exact / np.outer(scale, scale))[:3, :3], atol=0.05)


def mixture(params, batch):
    """Two clusters at ±mu: between them, at 0, the log likelihood bends upwards."""
    return jnp.logaddexp(-0.5 * (batch["x"] - params["mu"]) ** 2, -0.5 * (batch["x"] + params["mu"]) ** 2)


@pytest.mark.usefixtures("x64")
def test_the_fisher_information_stands_in_where_the_hessian_is_indefinite():
    x = np.concatenate([RNG.normal(3, 1, 100), RNG.normal(-3, 1, 100)])
    posterior, arrays, _ = problem(mixture, {"x": x}, {"mu": np.array(1.0)}, lambda p: -0.5 * p["mu"] ** 2)
    for mu, expected in ((0.5, "fisher"), (3.0, "hessian")):
        precision, kind, _ = curvature_at(posterior, arrays, {"mu": jnp.array(mu)}, 0, False, diagonal=False)
        gradients = x * np.tanh(x * mu) - mu
        bends = 1 - x**2 / np.cosh(x * mu) ** 2
        assert kind == expected
        assert precision[0, 0] == pytest.approx((gradients**2 if kind == "fisher" else bends).sum() + 1, rel=1e-9)


@pytest.mark.usefixtures("x64")
def test_a_laplace_prior_has_a_scale_at_its_kink():
    """The third coefficient's mode is at 0 exactly, where the prior has no second derivative: its squared slope stands in."""
    rate = 30.0
    found = surveyed(logistic, {"x": X, "y": Y}, {"beta": np.zeros(3)}, lambda p: -rate * jnp.abs(p["beta"]).sum())
    mode = np.asarray(found.centre.position["beta"])
    assert bool(found.centre.converged)
    assert np.abs(mode[1]) < 0.05 < mode[0]
    np.testing.assert_allclose(found.precision, hessian(X, mode, rate**2), rtol=1e-6)


def test_a_perfect_fit_is_a_mode():
    """Without residuals the rows' gradients vanish there, and with them the Fisher information: the curvature does not."""

    def regression(params, batch):
        return -0.5 * (batch["y"] - batch["x"] @ params["beta"]) ** 2

    found = surveyed(regression, {"x": X, "y": X @ [1.0, -2.0, 0.5]}, {"beta": np.zeros(3)})
    assert bool(found.centre.converged)
    assert found.curvature == "hessian"
    np.testing.assert_allclose(found.precision, X.T @ X, rtol=1e-3)


# Posteriors that are none.


def test_separable_data_with_a_flat_prior_are_refused():
    data = {"x": X, "y": (X[:, 0] > 0).astype(float)}
    with pytest.raises(sgmcmc.SgmcmcError, match="keeps rising without end"):
        surveyed(logistic, data, {"beta": np.zeros(3)})


def test_a_prior_is_enough_for_separable_data():
    data = {"x": X, "y": (X[:, 0] > 0).astype(float)}
    assert bool(surveyed(logistic, data, {"beta": np.zeros(3)}, normal_prior).centre.converged)


def test_duplicated_columns_with_a_flat_prior_are_named():
    data = {"x": X[:, [0, 2, 0]], "y": Y}
    with pytest.raises(sgmcmc.SgmcmcError, match=r"some combination of beta\[(0\], beta\[2|2\], beta\[0)\]:"):
        surveyed(logistic, data, {"beta": np.zeros(3)})


def test_an_unused_parameter_is_named():
    def forgetful(params, batch):
        return logistic(params, batch) + 0.0 * params["gamma"]

    with pytest.raises(sgmcmc.SgmcmcError, match="determine gamma:"):
        surveyed(forgetful, {"x": X, "y": Y}, {"beta": np.zeros(3), "gamma": 0.5})


def test_what_rounding_leaves_gives_way_to_the_prior():
    likelihood = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]) * 1e8
    total = with_floor(likelihood, np.eye(2), ["a", "b"])
    away = np.array([1.0, -1.0]) / np.sqrt(2)
    assert away @ total @ away == pytest.approx(1.0, rel=1e-2)
    with pytest.raises(sgmcmc.SgmcmcError, match=r"some combination of [ab], [ab]:"):
        with_floor(likelihood, np.zeros((2, 2)), ["a", "b"])
    assert not is_indefinite(likelihood - 1e-3 * np.eye(2), np.eye(2))
    assert is_indefinite(np.diag([1.0, -1.0]), 0.1 * np.eye(2))
    assert "determine sigma:" in str(open_direction(["sigma"]))


def test_a_whitening_needs_no_inverse_of_a_badly_scaled_matrix():
    with jax.enable_x64(True):
        precision = np.array([[1e12, 0.5], [0.5, 1e-12]])
        L = np.asarray(whitening_of(precision, {"a": jnp.zeros(2)}).factor)
        np.testing.assert_allclose(L.T @ precision @ L, np.eye(2), atol=1e-9)


def test_a_prior_however_weak_beside_the_rows_determines():
    """Two equal columns in large units: the rows know their sum, the prior alone their difference."""
    likelihood, names = 1e16 * np.ones((2, 2)), ["a", "b"]
    assert np.linalg.eigvalsh(with_floor(likelihood, 0.04 * np.eye(2), names))[0] > 0
    for silent in (np.zeros((2, 2)), np.ones((2, 2))):
        with pytest.raises(sgmcmc.SgmcmcError, match="some combination of"):
            with_floor(likelihood, silent, names)
    assert not speaks(np.diag([1.0, 0.0]), np.array([1e-3, 1.0])), "a prior on the other number"
