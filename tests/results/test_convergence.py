"""Effective sample size and R-hat are ArviZ's, to twelve digits."""

import numpy as np
import pytest
from arviz_stats.base.array import array_stats
from scipy.stats import norm, rankdata

from sgmcmc.results.convergence import bulk_effective_size, effective_size, r_hat


def chains(n_chains, n_draws, phi, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_chains, n_draws))
    for t in range(1, n_draws):
        x[:, t] += phi * x[:, t - 1]
    return x


OF_EVERY_KIND = {
    "as they are": lambda x: x,
    "alike": np.round,
    "apart": lambda x: x + 2 * np.arange(len(x))[:, None],
    "without a variance": lambda x: np.exp(3 * x),
    "constant chains": lambda x: x * 0 + np.arange(len(x))[:, None],
    "constant": np.zeros_like,
    "unknown": lambda x: np.where(x == x.max(), np.nan, x),
}


@pytest.mark.parametrize("kind", OF_EVERY_KIND)
@pytest.mark.parametrize("n_draws", [3, 4, 5, 9, 20, 101, 1000])
def test_the_numbers_of_arviz(n_draws, kind):
    with np.errstate(all="ignore"):
        for n_chains in (1, 2, 4):
            for phi in (-0.9, 0.0, 0.5, 0.99):
                draws = OF_EVERY_KIND[kind](chains(n_chains, n_draws, phi))
                found = [effective_size(draws), bulk_effective_size(draws)]
                expected = [array_stats.ess(draws, chain_axis=0, draw_axis=1, method=method) for method in ("mean", "bulk")]
                if n_chains > 1:
                    found.append(r_hat(draws))
                    expected.append(array_stats.rhat(draws, chain_axis=0, draw_axis=1))
                found, expected = (np.minimum(x, 1e9) for x in (found, expected))  # of constant chains rounding decides
                np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_one_chain_is_compared_with_itself():
    halves = (np.linspace(0, 1, 100) + 0.1 * chains(1, 100, 0.0)).reshape(2, 50)
    folded = np.abs(halves - np.median(halves))
    scores = [norm.ppf((rankdata(x).reshape(2, 50) - 3 / 8) / 100.25) for x in (halves, folded)]
    expected = max(array_stats.rhat(x, chain_axis=0, draw_axis=1, method="identity") for x in scores)
    np.testing.assert_allclose(r_hat(halves.reshape(1, 100)), expected, rtol=1e-12)


def test_a_chain_that_mixes_is_told_from_one_that_does_not():
    assert abs(r_hat(chains(4, 1000, 0.0)) - 1) < 0.01
    assert r_hat(chains(4, 1000, 0.999)) > 1.1
    assert abs(effective_size(chains(4, 5000, 0.5)) / (20_000 / 3) - 1) < 0.15
