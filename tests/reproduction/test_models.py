"""The article's models are the densities they claim to be."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

import sgmcmc
from reproduction.models import gaussian_mixture, logistic_regression, neural_network, normal_mean

rng = np.random.default_rng(1)
pytestmark = pytest.mark.usefixtures("x64")


def differences(function, density, places):
    """What is left of two log densities after their constant."""
    ours = np.array([float(np.sum(function(place))) for place in places])
    theirs = np.array([float(density(place)) for place in places])
    return (ours - ours[0]) - (theirs - theirs[0])


def test_normal_mean():
    x = rng.normal(size=20)
    places = [{"theta": value} for value in rng.normal(size=5)]
    left = differences(lambda p: normal_mean.log_lik(p, {"x": x}), lambda p: stats.norm(p["theta"]).logpdf(x).sum(), places)
    np.testing.assert_allclose(left, 0, atol=1e-12)
    prior = differences(normal_mean.log_prior, lambda p: stats.norm(0, np.sqrt(10)).logpdf(p["theta"]), places)
    np.testing.assert_allclose(prior, 0, atol=1e-12)
    mean, variance = normal_mean.exact_posterior(x)
    grid = np.linspace(mean - 8 * variance**0.5, mean + 8 * variance**0.5, 20_001)
    heights = np.array([-0.5 * ((x - t) ** 2).sum() - t**2 / 20 for t in grid])
    shares = np.exp(heights - heights.max())
    shares /= shares.sum()
    np.testing.assert_allclose([shares @ grid, shares @ (grid - mean) ** 2], [mean, variance], rtol=1e-8)


@pytest.mark.parametrize(("prior", "sd"), [("log_prior", np.sqrt(10)), ("log_prior_as_coded", 10.0)])
def test_gaussian_mixture(prior, sd):
    X = rng.normal(size=(20, 2))
    places = [{"theta1": a, "theta2": b} for a, b in rng.normal(size=(5, 2, 2))]

    def density(p):
        parts = [stats.multivariate_normal(p[name], np.eye(2)).pdf(X) for name in ("theta1", "theta2")]
        return np.log(0.5 * parts[0] + 0.5 * parts[1])

    for place in places:
        np.testing.assert_allclose(gaussian_mixture.log_lik(place, {"X": X}), density(place), rtol=1e-12)
    left = differences(
        getattr(gaussian_mixture, prior), lambda p: sum(stats.norm(0, sd).logpdf(value).sum() for value in p.values()), places
    )
    np.testing.assert_allclose(left, 0, atol=1e-12)


def test_logistic_regression():
    X, y = rng.normal(size=(20, 3)), rng.integers(0, 2, 20)
    places = [{"beta": b, "bias": c} for b, c in zip(rng.normal(size=(5, 3)), rng.normal(size=5), strict=True)]
    for place in places:
        p = 1 / (1 + np.exp(-(place["bias"] + X @ place["beta"])))
        ours = logistic_regression.log_lik(place, {"X": X, "y": y})
        np.testing.assert_allclose(ours, stats.bernoulli(p).logpmf(y), rtol=1e-10)
        np.testing.assert_allclose(logistic_regression.log_loss(place, {"X": X, "y": y}), -np.mean(ours), rtol=1e-12)
    left = differences(
        logistic_regression.log_prior,
        lambda p: stats.laplace.logpdf(p["bias"]) + stats.laplace.logpdf(p["beta"]).sum(),
        places,
    )
    np.testing.assert_allclose(left, 0, atol=1e-12)


def test_neural_network():
    X, y = rng.random((7, 6)), np.eye(3)[rng.integers(0, 3, 7)]
    places = [jax.tree.map(np.float64, neural_network.start(seed, 6, 4, 3)) for seed in range(5)]

    def softmax(values):
        return np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)

    def prior(p):
        blocks = zip(neural_network.WEIGHTS, neural_network.PRECISIONS, strict=True)
        return sum(
            stats.norm(0, p[precision] ** -0.5).logpdf(p[weight]).sum() + stats.gamma(1).logpdf(p[precision])
            for weight, precision in blocks
        )

    for p in places:
        chances = softmax(softmax(X @ p["B"] + p["b"]) @ p["A"] + p["a"])
        np.testing.assert_allclose(neural_network.log_lik(p, {"X": X, "y": y}), np.log((y * chances).sum(axis=1)), rtol=1e-10)
    np.testing.assert_allclose(differences(neural_network.log_prior, prior, places), 0, atol=1e-9)


def test_the_precisions_stay_positive_with_constraints():
    """The control: as they are, a large step takes them below zero."""
    rng = np.random.default_rng(7)
    X, y = rng.random((200, 6)), np.eye(3)[rng.integers(0, 3, 200)]
    start = neural_network.start(1, 6, 4, 3)
    problem = (neural_network.log_lik, {"X": X, "y": y}, start, {**dict.fromkeys(start, 1e-3), "lambdaa": 0.5})
    options = {"log_prior": neural_network.log_prior, "minibatch_size": 20, "n_iters": 300, "seed": 1, "progress": False}
    with pytest.raises(sgmcmc.DivergenceError, match="not finite"):  # below 0, λ drives its weights away
        sgmcmc.sgld(*problem, **options)
    kept = sgmcmc.sgld(*problem, constraints=neural_network.constraints(), **options)
    assert all((kept[name] > 0).all() for name in neural_network.PRECISIONS)
