"""Zero-variance means and the kernel Stein discrepancy."""

from __future__ import annotations

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_inflation import CORRELATED, LIMIT, langevin

from sgmcmc.core.errors import InputError
from sgmcmc.results.stein import stein_discrepancy, stein_kernel, zero_variance_mean


def gaussian(variance, seed, noise=0.0, shape=(4, 250, 3)):
    """Independent draws, and gradients of a standard normal."""
    rng = np.random.default_rng(seed)
    z = np.sqrt(variance) * rng.normal(size=shape)
    return z, -z + np.sqrt(noise) * rng.normal(size=shape)


def test_the_kernel_is_the_stein_operator_on_both_sides(x64):
    rng = np.random.default_rng(1)
    x, y, score_x, score_y = rng.normal(size=(4, 5, 3))

    def k(a, b):
        return (1 + jnp.sum((a - b) ** 2)) ** -0.5

    def k0(a, b, score_a, score_b):
        by_first, by_second = jax.grad(k, 0)(a, b), jax.grad(k, 1)(a, b)
        divergence = jnp.trace(jax.jacfwd(jax.grad(k, 1), 0)(a, b))
        return score_a @ score_b * k(a, b) + score_a @ by_second + score_b @ by_first + divergence

    expected = [[k0(a, b, s, t) for b, t in zip(y, score_y, strict=True)] for a, s in zip(x, score_x, strict=True)]
    np.testing.assert_allclose(stein_kernel(x, score_x, y, score_y), np.array(expected), rtol=1e-10, atol=1e-10)


def test_the_discrepancy_is_a_mean_over_pairs_that_are_apart():
    z, g = gaussian(1.0, 2, shape=(2, 40, 2))
    found = stein_discrepancy(z, g, autocorrelation=2.0, max_points=40)
    kept = [(chain, draw) for chain in range(2) for draw in range(0, 40, 2)]
    values = []
    for one in kept:
        for other in kept:
            if one[0] != other[0] or abs(one[1] - other[1]) >= 6:
                values.append(stein_kernel(z[one][None], g[one][None], z[other][None], g[other][None]).item())
    faded = (1 / 3) ** 2
    sd = np.sqrt(2 * np.mean(np.square(values)) / len(values)) * (1 + faded) / (1 - faded)
    assert found.points == 40
    assert found.value == pytest.approx(np.mean(values), rel=1e-10)
    assert found.z_score == pytest.approx(np.mean(values) / sd, rel=1e-10)


@pytest.mark.parametrize(("noise", "stretch"), [(0.0, 1.3), (1.0, 1.4)])
def test_perfect_draws_pass_and_stretched_ones_do_not(noise, stretch):
    """Noise costs power; it shifts nothing, while it would inflate the mean over all pairs, equal ones included."""
    perfect = [stein_discrepancy(*gaussian(1.0, seed, noise), 1.0) for seed in range(16)]
    stretched = [stein_discrepancy(*gaussian(stretch, seed, noise), 1.0) for seed in range(8)]
    standard = np.array([one.z_score for one in perfect])
    assert abs(standard).max() < LIMIT
    assert abs(standard.mean()) < LIMIT / np.sqrt(16)
    assert 0.4 < standard.std() < 1.6
    assert np.mean([one.z_score for one in stretched]) > LIMIT
    values = np.array([one.value for one in perfect])
    inflated = values + 3 * (2 + noise) / 1_000  # 3 directions, 1,000 points: what equal pairs would add
    assert abs(values.mean()) < LIMIT * values.std() / np.sqrt(16)
    assert inflated.mean() > LIMIT * inflated.std() / np.sqrt(16)


def test_chains_are_judged_on_the_safe_side():
    """An AR(1) chain with the right law passes, unless its autocorrelation is kept from the test; one too wide does not.

    A thousand consecutive draws are worth few, so that what is flagged comes from every fourth.
    """
    rng, rho, right, unaware, wide = np.random.default_rng(3), 0.8, [], [], []
    for _ in range(12):
        z = rng.normal(size=(4, 800, 3))
        for k in range(1, 800):
            z[:, k] = rho * z[:, k - 1] + np.sqrt(1 - rho**2) * z[:, k]
        noise = rng.normal(size=z.shape)
        right += [stein_discrepancy(z[:, :n], (-z + noise)[:, :n], 9.0).z_score for n in (200, 800)]
        unaware.append(stein_discrepancy(z[:, :200], (-z + noise)[:, :200], 1.0).z_score)
        wide.append(stein_discrepancy(1.5 * z, -1.5 * z + noise, 9.0).z_score)
    assert np.max(np.abs(right)) < LIMIT
    assert np.std(right) < 1.6
    assert np.max(unaware) > LIMIT
    assert np.mean(wide) > LIMIT


def test_memory_stays_small():
    z, g = gaussian(1.0, 4, shape=(4, 2_500, 200))
    tracemalloc.start()
    found = stein_discrepancy(z, g, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.points == 1_000
    assert peak < 50e6


def test_nothing_to_compare_and_what_is_refused():
    z, g = gaussian(1.0, 5, shape=(1, 20, 2))
    assert np.isnan(stein_discrepancy(z, g, 10.0).value)
    assert stein_discrepancy(z, g, np.array([0.5, 1.0])) == stein_discrepancy(z, g, 1.0)
    with pytest.raises(InputError, match="autocorrelation is nan"):
        stein_discrepancy(z, g, float("nan"))
    with pytest.raises(InputError, match="one shape"):
        stein_discrepancy(z, g[:, 1:], 1.0)


def test_the_mean_of_a_gaussian_is_exact_whatever_the_chain():
    z, _, _ = langevin(CORRELATED, 0.075, 0.0, 4, 200, seed=6)
    truth = np.array([3.0, -2.0])
    found = zero_variance_mean(z + truth + 0.1, -(z + 0.1) @ CORRELATED)
    np.testing.assert_allclose(found.mean, truth, atol=1e-10)
    assert (found.mcse < 1e-10).all()
    assert (found.plain_mcse > 0.01).all()
    assert (abs((z + 0.1).mean(axis=(0, 1))) > 1e-3).all()


def test_the_mean_behind_a_whitening():
    z, g, _ = langevin(np.eye(3), 0.3, 1.0, 4, 500, seed=7)
    L, centre = np.array([[2.0, 0.0, 0.0], [0.5, 1.0, 0.0], [3.0, 1.0, 0.1]]), np.array([1.0, 2.0, 3.0])
    behind, direct = zero_variance_mean(z, g, L, centre), zero_variance_mean(centre + z @ L.T, g @ np.linalg.inv(L))
    for one, other in zip(behind, direct, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
    scaled, plain = zero_variance_mean(z, g, np.array([1.0, 2.0, 4.0])), zero_variance_mean(z, g)
    np.testing.assert_allclose(scaled.mean, plain.mean * np.array([1.0, 2.0, 4.0]))


@pytest.mark.parametrize("draws", [15, 250])
def test_with_noise_the_mean_is_better_and_its_error_honest(draws):
    """Over 200 repetitions; with 15 draws of each of 4 chains for 3 directions the regression itself costs something."""
    z, g, _ = langevin(np.eye(3), 0.5, 0.2, 800, draws, seed=8)
    found = [zero_variance_mean(z[k : k + 4], g[k : k + 4]) for k in range(0, 800, 4)]
    means, mcse, plain = (np.array(part) for part in zip(*found, strict=True))
    assert (means.std(axis=0) < 0.8 * z.reshape(200, -1, 3).mean(axis=1).std(axis=0)).all()
    assert mcse.mean() < 0.8 * plain.mean()
    assert abs(means.mean()) < LIMIT * means.std() / np.sqrt(600)
    if draws > 100:
        assert abs((means / mcse).std() - 1) < 3 / np.sqrt(2 * 600)
    else:
        assert (means / mcse).std() < 1.25


def test_with_few_draws_it_is_the_plain_mean():
    z, g = gaussian(1.0, 9, shape=(2, 10, 3))
    found = zero_variance_mean(z, g)
    np.testing.assert_array_equal(found.mean, z.mean(axis=(0, 1)))
    np.testing.assert_array_equal(found.mcse, found.plain_mcse)


def test_directions_without_a_gradient_keep_their_mean():
    z, g, _ = langevin(np.eye(2), 0.3, 0.0, 4, 200, seed=10)
    g[..., 1] = 0.0
    found = zero_variance_mean(z, g)
    assert abs(found.mean[0]) < 1e-10
    assert abs(found.mean[1] - z[..., 1].mean()) < LIMIT * found.plain_mcse[1]
