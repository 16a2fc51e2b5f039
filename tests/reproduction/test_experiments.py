"""The experiments measure what they say, on little data; the whole of them runs with `python -m reproduction`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import sgmcmc
from reproduction import background, gaussian_mixture, logistic_regression, neural_network, stan
from reproduction.figures import density, levels_of_mass
from reproduction.rivals import Nuts
from reproduction.settings import METHODS, SETTINGS, TWINS, lengths, paper, stepsize
from reproduction.workbook import Workbook

METHOD = {method.label: method for method in METHODS}


@pytest.fixture
def book(tmp_path):
    return Workbook(tmp_path, "test", quick=True, seed=None, progress=False, say=lambda text: None)


def test_the_table_has_the_articles_numbers():
    """Burn-in and iterations of sections 6.1 to 6.3, and a reason for every number that is ours."""
    for experiment in ("gaussian-mixture", "logistic-regression", "neural-network"):
        assert lengths(experiment, METHOD["sgld"], quick=False) == (10_000, 10_000)
        burn_in = 2_000 if experiment == "logistic-regression" else 10_000
        assert lengths(experiment, METHOD["sghmc"], quick=False) == (burn_in, 2_000)
        assert lengths(experiment, METHOD["sgnhtcv"], quick=False) == (0, 10_000)
        assert lengths(experiment, METHOD["sghmccv"], quick=False) == (0, 2_000)
        assert stepsize(experiment, METHOD["sghmc"]) == stepsize(experiment, METHOD["sghmc corrected"])
    assert stepsize("logistic-regression", METHOD["sgldcv"]) == 1e-5
    assert stepsize("gaussian-mixture", METHOD["sghmccv"]) == 1.5e-3
    assert stepsize("neural-network", METHOD["sgnhtcv"]) == 5e-7
    assert all(METHOD[label].options == {"scheme": "paper"} for label in ("sghmc", "sghmccv"))
    assert all(given.why for table in SETTINGS.values() for given in table.values() if given.origin == "ours")


def test_a_part_is_computed_once(book):
    calls = []

    def compute():
        calls.append(1)
        return {"value": np.arange(3)}

    first, second = book.part("one", compute, step=1.0), book.part("one", compute, step=1.0)
    np.testing.assert_array_equal(first["value"], second["value"])
    assert len(calls) == 1
    book.part("one", compute, step=2.0)
    assert len(calls) == 2, "another setting is another part"
    path = book.folder / "parts" / "test" / "one.npz"
    path.write_bytes(path.read_bytes()[:100])
    book.part("one", compute, step=2.0)
    assert len(calls) == 3, "a damaged part is computed again"


def test_half_a_part_is_none(book, monkeypatch):
    """A sampler that is interrupted returns what it has, with a warning; the workbook must not take that for a finished part."""

    def compute():
        import warnings

        warnings.warn("interrupted: the result holds the 5 draws made so far", sgmcmc.SgmcmcWarning, stacklevel=1)
        return {"value": 1}

    with pytest.raises(KeyboardInterrupt):
        book.part("one", compute)
    assert not list((book.folder).rglob("*.npz"))


def test_kl_of_normals_is_the_integral():
    first, second = stats.norm(0.3, 1.2), stats.norm(-0.1, 0.8)
    grid = np.linspace(-12, 12, 200_001)
    integral = np.trapezoid(first.pdf(grid) * (first.logpdf(grid) - second.logpdf(grid)), grid)
    assert stan.kl_of_normals(0.3, 1.44, -0.1, 0.64) == pytest.approx(integral, rel=1e-9)


def test_sgldcv_has_the_kl_of_its_exact_law():
    """At ε = 0.2/N the chain's variance is 1/(1 - 0.05) of the posterior's; with few effective draws the KL is of order 1/ess."""
    found = stan._ours(1_000, 1, quick=True)
    exact = stan.kl_of_normals(0, 1 / (1 - 0.05), 0, 1)
    effective = 2_000 * (0.1 / (2 - 0.1))  # autocorrelation time (2 - hA)/(hA), with hA = 0.1
    assert exact < found["kl"] + 5 / effective
    assert found["kl"] < exact + 10 / effective
    assert stan._paper(1_000, 1, quick=True)["kl"] > 10 * found["kl"], "the control: one step of 1e-6 does not mix at N = 1,000"


def test_nuts_samples_the_exact_posterior():
    x = np.random.default_rng(1).normal(size=1_000)
    run = Nuts().sample(x, 200, 1_000, seed=1)
    assert stan.kl_divergence(run.draws, x) < 10 / 300  # at least 300 effective draws
    assert run.seconds > 0


def test_mala_and_gibbs_have_their_laws():
    draws, accepted = background.mala(1.0, 5_000, 20, seed=1)
    n_effective = draws.size * 0.2
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / n_effective)
    assert 0.8 < accepted < 1
    two = background.gibbs(0.9, 20_000, 20, seed=1)
    lag_1 = np.mean([np.corrcoef(chain[:-1], chain[1:])[0, 1] for chain in two])
    assert lag_1 == pytest.approx(0.81, abs=4 / np.sqrt(two.size / 10))  # ρ², the exact autocorrelation


def test_contours_hold_their_mass():
    draws = np.random.default_rng(1).normal(size=(100_000, 2))
    _, _, heights = density(draws, (-4, 4, -4, 4), cells=80)
    levels = levels_of_mass(heights, (0.9, 0.5))
    inside = [heights[heights >= level].sum() / heights.sum() for level in levels]
    np.testing.assert_allclose(inside, [0.9, 0.5], atol=0.02)


def test_energy_distance_and_sides():
    rng = np.random.default_rng(1)
    one, same, other = rng.normal(size=(800, 2)), rng.normal(size=(800, 2)), rng.normal(1.0, 1.0, (800, 2))
    assert abs(gaussian_mixture.energy_distance(one, same)) < 0.02 < 0.2 < gaussian_mixture.energy_distance(one, other)
    labelled = np.concatenate([np.tile([1.0, 1, 0, 0], (30, 1)), np.tile([0.0, 0, 1, 1], (70, 1))])
    assert gaussian_mixture.side(labelled).mean() == 0.3
    assert gaussian_mixture.spread(labelled, within=True) == 0 < gaussian_mixture.spread(labelled)


def shorten(monkeypatch, experiment, **values):
    for name, value in {"n_iters": 60, "burn_in": 20, "n_iters_opt": 50, "repeats": 2, **values}.items():
        monkeypatch.setitem(SETTINGS[experiment], name, paper(value, value))


def test_a_chain_of_the_mixture(book, monkeypatch):
    """The article's step for sgldcv is above the limit of stability, 4/(N/2) = 0.008: it is halved until no chain diverges."""
    shorten(monkeypatch, "gaussian-mixture", n_iters=600, n_iters_opt=500)
    data = gaussian_mixture.make_data(0.5, 1_000, seed=2)
    found = gaussian_mixture._chains(gaussian_mixture.VARIANTS[-1], data, METHOD["sgldcv"], 2, book)
    assert found["draws"].shape == (2, 600, 4)
    assert found["stepsize"] < 0.008
    assert found["repeatable"]


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    X = rng.random((4_000, 54), np.float32)
    y = (rng.random(4_000) < 1 / (1 + np.exp(-(X @ rng.normal(0, 1, 54))))).astype(np.float32)
    return sgmcmc.train_test_split({"X": X, "y": y}, 1_000, seed=1)


def test_a_chain_and_the_optimum_of_the_logistic_regression(book, monkeypatch, rows):
    shorten(monkeypatch, "logistic-regression", stepsize={"sgldcv": 1e-4}, opt_stepsize=1e-4)
    train, test = rows
    found = logistic_regression._chains(METHOD["sgldcv"], train, test, book)
    assert found["log loss"].shape == (2, 6)
    optimum = logistic_regression._optimum(train, test, quick=False)
    sampler = sgmcmc.sgldcv_setup(
        logistic_regression.model.log_lik,
        train,
        {"beta": np.zeros(54), "bias": 0.0},
        1e-5,
        log_prior=logistic_regression.model.log_prior,
        minibatch_size=100,
    )
    mode = sampler.init(1, progress=False).params
    # Two searches that share no code: the centre is within 0.05 posterior variances of the mode, in the mean.
    assert float(logistic_regression._log_losses(test)(mode)) == pytest.approx(float(optimum["log loss"]), abs=0.01)
    assert optimum["curvature"] > 0


def test_a_chain_and_the_optimum_of_the_network(book, monkeypatch):
    rng = np.random.default_rng(4)
    template, labels = rng.random((10, 784)), rng.integers(0, 10, 1_200)
    X = np.clip(template[labels] + 0.1 * rng.normal(size=(1_200, 784)), 0, 1).astype(np.float32)
    train, test = sgmcmc.train_test_split({"X": X, "y": np.eye(10, dtype=np.float32)[labels]}, 200, seed=1)
    shorten(monkeypatch, "neural-network", **{"Adam steps": 100})
    found = neural_network._chain(METHOD["sgld"], train, test, book)
    assert len(found["log loss"]) == len(found["error"]) == 6
    assert float(found["predictive log loss"]) <= np.mean(found["log loss"]), "Jensen: the mean of probabilities loses less"
    adam = neural_network._adam(train, test, book)
    assert adam["error"] < 0.5 < np.mean(found["error"]), "a guess is wrong nine times in ten"


def test_every_pair_is_known():
    assert {label for pair in TWINS for label in pair} <= set(METHOD)
