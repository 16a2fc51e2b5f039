"""Variance inflation, on linear chains whose stationary law a Lyapunov equation gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from sgmcmc.core.errors import InputError
from sgmcmc.results.diagnostics import (
    MANY,
    MOST_RANKED,
    Pairs,
    direction_inflation,
    mixing,
    mixing_of_worst,
    parameter_inflation,
    standard_error,
)

LIMIT = 4.0
CORRELATED = np.linalg.inv(np.array([[1.0, 0.95], [0.95, 1.0]]))


def langevin(precision, h, noise, chains, draws, seed):
    """θ' = θ + hĝ + N(0, 2h), ĝ = -Aθ + N(0, noise), started in its stationary law: positions, gradients, covariance."""
    rng, d = np.random.default_rng(seed), len(precision)
    step = np.eye(d) - h * precision
    covariance = solve_discrete_lyapunov(step, (h**2 * noise + 2 * h) * np.eye(d))
    positions, gradients = np.empty((2, draws, chains, d))
    z = rng.normal(size=(chains, d)) @ np.linalg.cholesky(covariance).T
    for k in range(draws):
        g = -z @ precision + np.sqrt(noise) * rng.normal(size=z.shape)
        positions[k], gradients[k] = z, g
        z = z + h * g + np.sqrt(2 * h) * rng.normal(size=z.shape)
    return positions.swapaxes(0, 1), gradients.swapaxes(0, 1), covariance


def true_inflation(precision, covariance):
    return np.diag(covariance) / np.diag(np.linalg.inv(precision))


def scores(inflation, truth):
    return (inflation.value - truth) / inflation.error


def precision_of(d, seed):
    rows = np.random.default_rng(seed).normal(size=(4 * d, d))
    return rows.T @ rows / (4 * d)


def test_the_inflation_of_a_direction_is_the_covariance_times_the_precision_on_its_diagonal():
    rng, precision = np.random.default_rng(1), precision_of(4, 2)
    z = rng.normal(size=(3, 50, 4)) + 7.0
    sample = np.cov(z.reshape(-1, 4).T, ddof=0)
    found = direction_inflation(z, -z @ precision).value
    np.testing.assert_allclose(found, np.diag(sample @ precision), rtol=1e-12, atol=1e-12)


def test_with_exact_gradients_the_inflation_is_the_jackknifed_variance_over_the_true_one():
    """Then M⁻¹S is A⁻¹ whatever the draws, and what is left is the sample variance with its bias taken away."""
    precision = precision_of(3, 3)
    z = np.random.default_rng(4).normal(size=(2, 500, 3))
    flat, batches = z.reshape(-1, 3), np.arange(1000).reshape(20, 50)
    without = np.array([np.delete(flat, batch, axis=0).var(axis=0) for batch in batches])
    found, posterior = parameter_inflation(z, -(z - 1.0) @ precision), np.diag(np.linalg.inv(precision))
    np.testing.assert_allclose(found.value, (20 * flat.var(axis=0) - 19 * without.mean(axis=0)) / posterior, rtol=1e-10)
    np.testing.assert_allclose(found.error, np.sqrt(19 * without.var(axis=0) * 19 / 17) / posterior, rtol=1e-10)


def test_correlated_parameters():
    """At correlation 0.95 the diagonal of M is far off, the ratio of variances is not."""
    z, g, covariance = langevin(CORRELATED, 0.075, 1.0, 4, 10_000, seed=1)
    truth = true_inflation(CORRELATED, covariance)
    found, naive = parameter_inflation(z, g), direction_inflation(z, g)
    assert found.joint
    assert not naive.joint
    assert (abs(scores(found, truth)) < LIMIT).all()
    assert (found.error < 0.06).all()
    assert (naive.value - truth > 1.3).all()
    assert (scores(naive, truth) > 10 * LIMIT).all()
    assert (abs(scores(naive, np.diag(covariance @ CORRELATED))) < LIMIT).all()


@pytest.mark.parametrize("noise", [0.0, 1.0, 10.0])
def test_errors_are_honest_and_noise_does_not_bias(noise):
    """Over 200 repetitions. Errors of directions are too wide with much noise (see there), and then tested for no more."""
    correlations = 0.5 * np.eye(3) + 0.5
    precision = np.linalg.inv(correlations)
    z, g, covariance = langevin(precision, 0.3, noise, 800, 1_000, seed=5)
    truth, naive = true_inflation(precision, covariance), np.diag(covariance @ precision)
    of_parameters = [parameter_inflation(z[k : k + 4], g[k : k + 4]) for k in range(0, 800, 4)]
    of_directions = [direction_inflation(z[k : k + 4], g[k : k + 4]) for k in range(0, 800, 4)]
    for found, expected in ((of_parameters, truth), (of_directions, naive)):
        spread = np.array([scores(one, expected) for one in found]).std(axis=0)
        assert (spread < 1 + 3 / np.sqrt(2 * 200)).all()
        assert (spread > (0.75 if noise > 1 and found is of_directions else 1 - 3 / np.sqrt(2 * 200))).all()
        values = np.array([one.value for one in found])
        assert (abs(values.mean(axis=0) - expected) < LIMIT * values.std(axis=0) / np.sqrt(200)).all()
    values = np.array([one.value for one in of_parameters])
    assert (abs(values.mean(axis=0) - 1.03 * truth) > LIMIT * values.std(axis=0) / np.sqrt(200)).all()


def test_the_bias_of_the_inverse_is_taken_away():
    from sgmcmc.results import diagnostics

    d, precision = 40, np.eye(40)
    corrected, plain = [], []
    for seed in range(12):
        z, g, covariance = langevin(precision, 0.1, 10.0, 4, 1_000, seed)
        found = parameter_inflation(z, g)
        assert found.joint
        corrected.append(found.value / np.diag(covariance))
        plain.append(diagnostics._ratio(diagnostics._moments(z, g), np.eye(d)) / np.diag(covariance))
    error = np.std(corrected) / np.sqrt(12 * d)
    assert abs(np.mean(corrected) - 1) < LIMIT * error
    assert abs(np.mean(plain) - 1) > LIMIT * error


def test_parameters_behind_a_whitening():
    """Pairs of z with a factor say of θ what pairs of θ would; scales and centres say nothing."""
    z, g, covariance = langevin(np.eye(3), 0.3, 1.0, 4, 2_000, seed=6)
    L = np.array([[1e3, 0.0, 0.0], [0.5, 1.0, 0.0], [2e-3, 1e-3, 1e-3]])
    behind = parameter_inflation(z, g, L)
    direct = parameter_inflation(5.0 + z @ L.T, g @ np.linalg.inv(L))
    np.testing.assert_allclose(behind.value, direct.value, rtol=1e-6)
    np.testing.assert_allclose(behind.error, direct.error, rtol=1e-6)
    assert (abs(scores(behind, np.diag(covariance))) < LIMIT).all()
    np.testing.assert_allclose(parameter_inflation(z, g, np.array([1.0, 10.0, 100.0])).value, parameter_inflation(z, g).value)


def test_any_smooth_target():
    """Logistic draws have inflation 1; stretched by a tenth they have more. Neither is a Gaussian matter."""
    rng = np.random.default_rng(7)
    z = rng.logistic(size=(4, 5_000, 2))
    for measure in (direction_inflation, parameter_inflation):
        exact = measure(z, -np.tanh(z / 2) + rng.normal(size=z.shape))
        assert (abs(scores(exact, 1.0)) < LIMIT).all()
        stretched = measure(1.1 * z, -np.tanh(1.1 * z / 2) + rng.normal(size=z.shape))
        assert (scores(stretched, 1.0) > LIMIT).all()


def test_too_many_directions_for_an_inverse():
    z, g, covariance = langevin(np.diag(np.linspace(0.5, 1.5, 100)), 0.3, 1.0, 4, 100, seed=8)
    found, alone = parameter_inflation(z, g), direction_inflation(z, g)
    assert not found.joint
    np.testing.assert_array_equal(found.value, alone.value)
    z, g, covariance = langevin(np.eye(100), 0.3, 1.0, 4, 100, seed=9)
    rotation = np.linalg.qr(np.random.default_rng(10).normal(size=(100, 100)))[0]
    mixed = parameter_inflation(z, g, rotation)
    assert not mixed.joint
    assert abs(scores(mixed, covariance[0, 0])).max() < LIMIT
    np.testing.assert_allclose(mixed.value, rotation**2 @ direction_inflation(z, g).value)


def test_too_much_noise_for_an_inverse():
    """Noise counts against what the positions explain of the gradients: a chain blown up by its own noise can be inverted."""
    rng = np.random.default_rng(11)
    z = rng.normal(size=(4, 500, 10))
    assert not parameter_inflation(z, -z + 100 * rng.normal(size=z.shape)).joint
    z, g, covariance = langevin(np.eye(10), 0.5, 100.0, 4, 500, seed=11)
    found = parameter_inflation(z, g)
    assert found.joint
    assert covariance[0, 0] > 10
    assert (abs(scores(found, covariance[0, 0])) < LIMIT).all()


@pytest.mark.parametrize("where", [3.0, 0.1, 1e-9])
def test_directions_that_do_not_move_or_have_no_gradient(where):
    z, g, covariance = langevin(np.eye(3), 0.3, 0.0, 4, 500, seed=12)
    still = z.copy()
    still[..., 1] = where
    found = parameter_inflation(still, g)
    assert not found.joint
    assert abs(found.value[1]) < 1e-12
    assert found.error[1] < 1e-12
    assert (abs(found.value - covariance[0, 0])[[0, 2]] < LIMIT * found.error[[0, 2]]).all()
    flat = g.copy()
    flat[..., 1] = 0.0
    assert not parameter_inflation(z, flat).joint
    twice = [np.concatenate([pair, pair[..., :1]], axis=2) for pair in (z, g)]
    assert not parameter_inflation(*twice).joint


def test_standard_errors():
    rng = np.random.default_rng(13)
    white = rng.normal(size=(4, 1_000, 2)) * np.array([1.0, 1e-25]) + 1e-20
    np.testing.assert_allclose(standard_error(white), np.array([1.0, 1e-25]) / np.sqrt(4_000), rtol=0.2)
    slow = langevin(np.eye(20), 0.3, 0.0, 4, 5_000, seed=13)[0]
    np.testing.assert_allclose(standard_error(slow).mean(), np.sqrt(1 / 0.85 * (1.7 / 0.3) / 20_000), rtol=0.05)
    assert np.isnan(standard_error(white[:, :3])).all()
    assert (standard_error(np.ones((2, 10, 1))) == 0).all()


def test_short_runs_have_values_without_errors():
    z = np.random.default_rng(14).normal(size=(1, 3, 1))
    found = parameter_inflation(z, -z)
    assert np.isfinite(found.value).all()
    assert np.isnan(found.error).all()
    z = np.random.default_rng(15).normal(size=(10, 1, 1))
    assert parameter_inflation(z, -z).joint
    assert np.isfinite(parameter_inflation(z, -z).error).all()


def test_what_is_refused():
    z = np.zeros((2, 10, 3))
    with pytest.raises(InputError, match=r"one shape \(chains, draws, d\)"):
        direction_inflation(z, z[..., :2])
    with pytest.raises(InputError, match=r"positions\[None\]"):
        direction_inflation(z[0], z[0])
    spoilt = z.copy()
    spoilt[1, 4, 2] = np.nan
    with pytest.raises(InputError, match="gradients has nan at chain 1, draw 4, direction 2"):
        parameter_inflation(z, spoilt)
    with pytest.raises(InputError, match="factor is ndarray of shape"):
        parameter_inflation(z, z, np.eye(2))


@pytest.mark.parametrize("wrong", ["apart", "slow", "wider"])
def test_of_very_many_numbers_the_worst_are_looked_at(wrong):
    rng, culprit = np.random.default_rng(3), 234
    draws = rng.normal(size=(4, 400, 4 * MOST_RANKED))
    if wrong == "apart":
        draws[2, :, culprit] += 2
    elif wrong == "slow":
        draws[..., culprit] = np.repeat(draws[:, ::40, culprit], 40, axis=1)
    else:
        draws[1, :, culprit] *= 3
    ess, r_hat = mixing_of_worst(draws)
    looked_at = np.flatnonzero(~np.isnan(ess))
    assert MOST_RANKED / 2 <= len(looked_at) <= MOST_RANKED
    np.testing.assert_array_equal(np.stack([ess, r_hat])[:, looked_at], mixing(draws[..., looked_at]))
    assert np.nanargmin(ess) == culprit if wrong == "slow" else np.nanargmax(r_hat) == culprit


def test_of_very_many_numbers_standard_errors_are_those_of_batch_means():
    """Of first-order autoregressions, whose means have a known law; those of independent draws would be the control's."""
    rng, slope, d = np.random.default_rng(5), 0.7, MANY + 1
    noise, draws = rng.normal(size=(4, 2_000, d)) * np.sqrt(1 - slope**2), np.empty((4, 2_000, d))
    draws[:, 0] = rng.normal(size=(4, d))
    for k in range(1, draws.shape[1]):
        draws[:, k] = slope * draws[:, k - 1] + noise[:, k]
    scores = draws.mean(axis=(0, 1)) / standard_error(draws)
    spread, error = scores.std(), 1 / np.sqrt(2 * d)
    assert abs(spread - 1) < LIMIT * error + 0.03  # batches are 100 draws long: their means are a little alike
    as_independent = draws.mean(axis=(0, 1)) / (draws.std(axis=(0, 1)) / np.sqrt(8_000))
    assert as_independent.std() > 2


def test_of_very_many_numbers_every_so_manyth_draw_is_looked_at():
    z = np.zeros((4, 10_000, MANY + 1), np.float32)
    names = [f"x[{i}]" for i in range(MANY + 1)]
    pairs = Pairs(z, z, names, None, None)
    assert pairs.looked_at().positions.shape == pairs.looked_at().gradients.shape == (4, -(-10_000 // 3), MANY + 1)
    few = Pairs(z[..., :5], z[..., :5], names[:5], None, None)
    assert few.looked_at() is few


def test_few_numbers_are_all_looked_at():
    draws = np.random.default_rng(4).normal(size=(2, 100, 5))
    np.testing.assert_array_equal(mixing_of_worst(draws), mixing(draws))
