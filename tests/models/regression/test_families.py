"""Every family: log densities of SciPy, links that turn back, simulations with the mean they claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from sgmcmc.core.errors import InputError
from sgmcmc.models.regression.families import FAMILIES, find_family
from sgmcmc.models.regression.links import FORWARD, INVERSES, log_between, log_no, log_yes

ETA = np.array([-1.3, -0.2, 0.1, 0.7, 1.9])
MU = np.exp(ETA)
P = expit(ETA)
COUNTS = np.array([0, 2, 0, 5, 11])
TIMES = np.array([0.2, 1.5, 0.7, 3.0, 9.0])
EVENTS = np.array([1, 0, 1, 1, 0])
TRIALS = np.array([4, 9, 1, 6, 20])
YES = np.array([1, 2, 0, 6, 17])
SHARES = np.array([0.02, 0.4, 0.5, 0.77, 0.99])
TRUTHS = np.array([0, 1, 1, 0, 1])
LIMITS = np.array([-1.0, 0.3, 1.1])


def zero_inflated(y, mu, zero):
    return np.where(y == 0, np.log(zero + (1 - zero) * np.exp(-mu)), np.log1p(-zero) + stats.poisson.logpmf(y, mu))


def censored(law):
    return np.where(EVENTS, law.logpdf(TIMES), law.logsf(TIMES))


def ordinal(cdf):
    ends = np.concatenate([[-np.inf], LIMITS, [np.inf]])
    y = np.array([0, 1, 2, 3, 1])
    return y, np.log(cdf(ends[y + 1] - ETA) - cdf(ends[y] - ETA))


def of_cloglog(x):
    return -np.expm1(-np.exp(x))


TWO = np.stack([ETA, ETA[::-1]], axis=1)
CLASSES = np.array([0, 1, 2, 1, 0])
SOFTMAX = np.exp(np.column_stack([np.zeros(5), TWO]))
SOFTMAX /= SOFTMAX.sum(axis=1, keepdims=True)

CASES = {
    "gaussian": (ETA, {"sigma": 0.7}, {"y": TIMES}, stats.norm(ETA, 0.7).logpdf(TIMES)),
    "gaussian log": (ETA, {"sigma": 0.7}, {"y": TIMES}, stats.norm(MU, 0.7).logpdf(TIMES)),
    "student": (ETA, {"sigma": 0.7, "nu": 3.5}, {"y": TIMES}, stats.t(3.5, ETA, 0.7).logpdf(TIMES)),
    "bernoulli": (ETA, {}, {"y": TRUTHS}, stats.bernoulli(P).logpmf(TRUTHS)),
    "bernoulli probit": (ETA, {}, {"y": TRUTHS}, stats.bernoulli(stats.norm.cdf(ETA)).logpmf(TRUTHS)),
    "bernoulli cloglog": (ETA, {}, {"y": TRUTHS}, stats.bernoulli(of_cloglog(ETA)).logpmf(TRUTHS)),
    "binomial": (ETA, {}, {"y": YES, "trials": TRIALS}, stats.binom(TRIALS, P).logpmf(YES)),
    "binomial cloglog": (ETA, {}, {"y": YES, "trials": TRIALS}, stats.binom(TRIALS, of_cloglog(ETA)).logpmf(YES)),
    "poisson": (ETA, {}, {"y": COUNTS}, stats.poisson(MU).logpmf(COUNTS)),
    "negative binomial": (ETA, {"shape": 1.7}, {"y": COUNTS}, stats.nbinom(1.7, 1.7 / (1.7 + MU)).logpmf(COUNTS)),
    "zero inflated poisson": (ETA, {"zero": 0.3}, {"y": COUNTS}, zero_inflated(COUNTS, MU, 0.3)),
    "gamma": (ETA, {"shape": 2.3}, {"y": TIMES}, stats.gamma(2.3, scale=MU / 2.3).logpdf(TIMES)),
    "beta": (ETA, {"precision": 6.0}, {"y": SHARES}, stats.beta(6 * P, 6 * (1 - P)).logpdf(SHARES)),
    "exponential": (ETA, {}, {"y": TIMES, "event": EVENTS}, censored(stats.expon(scale=MU))),
    "weibull": (ETA, {"shape": 1.4}, {"y": TIMES, "event": EVENTS}, censored(stats.weibull_min(1.4, scale=MU))),
    "ordinal": (ETA, {"thresholds": LIMITS}, {"y": ordinal(expit)[0]}, ordinal(expit)[1]),
    "ordinal probit": (ETA, {"thresholds": LIMITS}, {"y": ordinal(stats.norm.cdf)[0]}, ordinal(stats.norm.cdf)[1]),
    "ordinal cloglog": (ETA, {"thresholds": LIMITS}, {"y": ordinal(of_cloglog)[0]}, ordinal(of_cloglog)[1]),
    "categorical": (TWO, {}, {"y": CLASSES}, np.log(SOFTMAX[np.arange(5), CLASSES])),
}


def family_of(case):
    name, _, link = case.rpartition(" ")
    return find_family(name, link) if link in INVERSES else find_family(case)


def arrays(tree):
    return {name: jnp.asarray(value, float) for name, value in tree.items()}


@pytest.mark.parametrize("case", CASES)
def test_log_densities_are_those_of_scipy(case):
    (family, link), (eta, own, rows, expected) = family_of(case), CASES[case]
    with jax.enable_x64(True):
        found = family.log_density(link, jnp.asarray(eta), arrays(own), arrays(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_every_family_is_there():
    assert {family_of(case)[0].name for case in CASES} == set(FAMILIES)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite_far_out(case):
    """Where a chain may go in its first steps, in single precision."""
    (family, link), (eta, own, rows, _) = family_of(case), CASES[case]

    def total(eta, own):
        return family.log_density(link, eta, own, arrays(rows)).sum()

    for far in (-12.0, 0.0, 12.0):
        gradients = jax.grad(total, argnums=(0, 1))(jnp.full(eta.shape, far), arrays(own))
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradients)), far


@pytest.mark.parametrize("link", INVERSES)
def test_links_turn_back(link):
    with jax.enable_x64(True):
        eta = jnp.linspace(-3, 3, 13)
        np.testing.assert_allclose(FORWARD[link](INVERSES[link](eta)), eta, atol=1e-10)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_probabilities_and_their_rest_make_one(link):
    with jax.enable_x64(True):
        eta = jnp.linspace(-6, 3, 19)
        np.testing.assert_allclose(jnp.exp(log_yes(link, eta)) + jnp.exp(log_no(link, eta)), 1, rtol=1e-12)
        np.testing.assert_allclose(
            log_between(link, eta + 0.5, eta), np.log(INVERSES[link](eta + 0.5) - INVERSES[link](eta)), rtol=1e-8
        )


DRAWS = 10_000
FALSE_ALARM = 4.5
"""Standard errors: less than one in 100,000 for each comparison."""


def z_scores(draws, expected):
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return np.abs(draws.mean(axis=0) - expected) / np.maximum(error, 0.01 / np.sqrt(len(draws)))


@pytest.mark.parametrize("case", CASES)
def test_simulations_have_the_mean_that_the_family_claims(case):
    (family, link), (eta, own, rows, _) = family_of(case), CASES[case]
    own, rows = arrays(own), arrays({name: value for name, value in rows.items() if name == "trials"})
    keys = jax.random.split(jax.random.key(3), DRAWS)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: family.simulate(key, link, jnp.asarray(eta, float), own, rows)))(keys), float)
    expected = np.asarray(family.mean(link, jnp.asarray(eta, float), own, rows), float)
    if expected.ndim == 2:
        draws = draws[..., None] == np.arange(expected.shape[1])
        draws = draws.astype(float)
    scores = z_scores(draws, expected)
    assert scores.max() < FALSE_ALARM
    assert z_scores(draws, 1.2 * expected + 0.1).max() > FALSE_ALARM  # a mean that is a little off


def test_unknown_families_and_links():
    with pytest.raises(InputError, match="'possion'; did you mean 'poisson'; expected one of 'gaussian'"):
        find_family("possion")
    with pytest.raises(InputError, match="'poisson' has 'log'"):
        find_family("poisson", "logit")
    assert find_family("negative-binomial")[0] is find_family("negative_binomial")[0]
