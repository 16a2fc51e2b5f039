"""Tails: what the draws have not seen of a variance is told from gradients; tails that they have seen raise no alarm."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from test_excursions import log_gamma, noisy, normal, student

import sgmcmc
from sgmcmc.results.tails import sd_error, unseen
from sgmcmc.results.words import ROUGH, tails

LIMIT = 4.0


def laplace(rng, size):
    z = rng.laplace(size=size)
    return z, -np.sign(z)


@pytest.mark.parametrize(
    "law", [normal, noisy(normal, 0.5, 1.0), laplace, log_gamma(1.0), log_gamma(0.1), student(7), noisy(student(7), 0.5, 1.0)]
)
def test_tails_with_all_moments_that_matter_raise_no_alarm(law):
    rng = np.random.default_rng(1)
    for _ in range(20):
        z, g = law(rng, (4, 2500, 5))
        assert not tails(unseen(z, g), sd_error(z), list("abcde"))


@pytest.mark.parametrize("draws", [25, 50, 100, 250])
def test_few_draws_of_a_normal_raise_no_alarm(draws):
    z, g = normal(np.random.default_rng(1), (4, draws, 1000))
    assert (unseen(z, g) < 2 * ROUGH).all()


@pytest.mark.parametrize("freedom", [1, 2])
def test_tails_without_a_variance_are_named(freedom):
    z, g = student(freedom)(np.random.default_rng(1), (4, 2500, 2))
    z[..., 1], g[..., 1] = normal(np.random.default_rng(2), (4, 2500))
    lacking = unseen(z, g)
    assert np.isinf(lacking[0])
    assert lacking[1] < ROUGH
    (finding,) = tails(lacking, sd_error(z), ["heavy", "light"])
    assert (finding.kind, finding.about) == ("tails", "heavy")
    assert "no variance" in str(finding)
    assert "normal" in finding.remedy


def test_what_is_lacking_is_what_was_cut_off():
    """Flat up to 1, then tails 0.1·(κ-1)·x^-κ to either side, of which nothing was seen beyond r: a closed form."""
    fall, r = 3.3, 6.0
    lost = 0.1 * r ** (1 - fall)
    above = (0.5 - lost) * (np.arange(100_000) + 0.5) / 100_000
    x = np.where(above < 0.4, above / 0.4, ((0.5 - above) / 0.1) ** (1 / (1 - fall)))
    seen = np.concatenate([-x, x]).reshape(4, -1, 1)
    slope = np.where(np.abs(seen) > 1, -fall / seen, 0.0)

    def beyond(x):
        return 0.1 * (fall - 1) / (fall - 3) * x ** (3 - fall)

    begin = ((0.01 * (1 - 2 * lost) + lost) / 0.1) ** (1 / (1 - fall))  # of the outermost draws
    tail = 0.01 * begin**2 * (fall - 1) / (fall - 3)  # with all the probability that these have
    lacking = (tail - (beyond(begin) - beyond(r)) / (1 - 2 * lost)) / seen.var()
    assert unseen(seen, slope).item() == pytest.approx(lacking, rel=2e-3)
    assert lacking > 2 * ROUGH
    assert unseen(seen, 3 * slope).item() < ROUGH  # had the tails fallen three times as fast


def test_directions_are_looked_at_by_the_numbers_that_they_make():
    """Numbers of θ = L z, one of which is the heavy direction."""
    rng, factor = np.random.default_rng(3), np.array([[0.6, 0.8], [-0.8, 0.6]])
    theta, slope = student(1)(rng, (4, 2500, 2))
    theta[..., 1], slope[..., 1] = normal(rng, (4, 2500))
    z, g = theta @ factor, slope @ factor  # L is orthogonal
    assert np.isinf(unseen(z, g, factor)[0])
    assert unseen(z, g, factor)[1] < ROUGH


def test_an_sd_that_one_excursion_makes_up_is_not_known():
    rng = np.random.default_rng(4)
    z = rng.standard_normal((4, 2500, 1))
    assert sd_error(z).item() == pytest.approx(1 / np.sqrt(2 * 10_000), rel=0.2)
    assert not tails(np.zeros(1), sd_error(z), ["a"])
    z[2, 700:760] = 15 + rng.standard_normal((60, 1))
    (finding,) = tails(np.zeros(1), sd_error(z), ["a"])
    assert "only known to" in str(finding)


@pytest.mark.slow
def test_a_rare_cell_under_a_heavy_prior_is_flagged_and_under_a_normal_one_it_is_not():
    """Three rows without an event; the sd by quadrature, the other parameters next to known."""
    rng, n = np.random.default_rng(5), 60_000
    cell = np.zeros(n, np.float32)
    cell[:3] = 1.0
    y = ((rng.random(n) < 0.12) & (cell == 0)).astype(np.float32)

    def log_lik(params, batch):
        eta = params["a"] + params["b"] * batch["cell"]
        return batch["y"] * eta - jnp.logaddexp(0.0, eta)

    def fitted(prior):
        def log_prior(params):
            return prior.log_prob(params["a"]) + prior.log_prob(params["b"])

        told = {"log_prior": log_prior, "seed": 1, "progress": False, "engine": "sgmcmc"}
        return sgmcmc.sample(log_lik, {"cell": cell, "y": y}, {"a": -1.0, "b": 0.0}, **told)

    with pytest.warns(sgmcmc.SgmcmcWarning, match="tails of b"):
        heavy = fitted(sgmcmc.distributions.Cauchy(0.0, 2.5))
    assert heavy.health().kinds == ("tails",)
    light = fitted(sgmcmc.distributions.Normal(0.0, 2.5))
    assert light.health().ok
    grid = np.linspace(-40, 10, 100_001)
    density = np.exp(-0.5 * (grid / 2.5) ** 2 - 3 * np.logaddexp(0.0, grid + light["a"].mean()))
    mean = (grid * density).sum() / density.sum()
    sd = np.sqrt(((grid - mean) ** 2 * density).sum() / density.sum())
    assert abs(light["b"].std() / sd - 1) < LIMIT * sd_error(light["b"][..., None]).item()
