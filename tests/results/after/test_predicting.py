"""Predictions: averages by hand, the law of what is simulated, and the same bits however rows are cut."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.problem.over_draws import CELL, OverDraws
from sgmcmc.results.after.draws import some_draws
from sgmcmc.results.result import Result
from sgmcmc.rows.table import check_dataset

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 3)).astype(np.float32)
DRAWS = {"a": RNG.normal(size=(2, 40)).astype(np.float32), "b": RNG.normal(size=(2, 40, 3)).astype(np.float32)}
PROBABILITY = jax.nn.sigmoid(DRAWS["a"].reshape(80, 1) + DRAWS["b"].reshape(80, 3) @ X.T)


def eta(params, rows):
    return params["a"] + rows["X"] @ params["b"]


def mean(params, rows):
    return jax.nn.sigmoid(eta(params, rows))


def simulate(key, params, rows):
    return {"y": jax.random.bernoulli(key, mean(params, rows)).astype(jnp.int32)}


def log_lik(params, rows):
    return jax.nn.log_sigmoid(jnp.where(rows["y"], eta(params, rows), -eta(params, rows))).sum()


MODEL = sgmcmc.Model(
    log_lik, {"X": X, "y": RNG.random(300) < 0.5}, {"a": 0.0, "b": np.zeros(3)}, observed=("y",), simulate=simulate, mean=mean
)


def fit(model=MODEL, draws=DRAWS, **options):
    return Result(draws, {}, None, {"sampler": "by hand"}, chained=True, model=model, **options)


def test_the_mean_is_the_average_over_the_draws():
    assert np.allclose(fit().predict(), PROBABILITY.mean(axis=0), atol=1e-6)
    new = {"X": X[:7].astype(np.float64)}
    assert np.allclose(fit().predict(new), PROBABILITY[:, :7].mean(axis=0), atol=1e-6)
    thinned = fit().predict(new, draws=8)
    assert np.allclose(thinned, PROBABILITY[5::10, :7].mean(axis=0), atol=1e-6)
    assert not np.allclose(thinned, PROBABILITY[:8, :7].mean(axis=0), atol=1e-3)  # the first eight would not do


def test_any_function_of_params_and_rows_is_predicted():
    new = {"X": X[:70]}
    by_draw = fit(None).predict(new, "draws", function=mean)
    assert np.allclose(by_draw, PROBABILITY[:, :70], atol=1e-6)
    ends = fit(None).predict(new, "interval", function=mean, level=0.8)
    assert np.allclose(ends, np.quantile(by_draw, [0.1, 0.9], axis=0), atol=1e-6)
    both = fit(None).predict(new, function=lambda params, rows: {"p": mean(params, rows), "two": rows["X"][:, :2]})
    assert np.allclose(both["p"], by_draw.mean(axis=0), atol=1e-6)
    assert np.allclose(both["two"], X[:70, :2], atol=1e-6)


def test_simulated_observations_have_the_right_law():
    """Counts of ones in each row, over draws and seeds, in units of their exact standard deviation."""
    seeds = 60
    ones = sum(fit().predict(kind="draws", seed=seed).sum(axis=0) for seed in range(seeds))
    chance = np.asarray(PROBABILITY, np.float64)
    z = (ones - seeds * chance.sum(axis=0)) / np.sqrt(seeds * (chance * (1 - chance)).sum(axis=0))
    assert abs((z**2).sum() - 300) < 5 * np.sqrt(2 * 300)
    assert np.abs(z).max() < 4.5
    wrong = (ones - seeds * np.sort(chance.sum(axis=0))) / np.sqrt(seeds * (chance * (1 - chance)).sum(axis=0))
    assert np.abs(wrong).max() > 10  # the rows in another order


def test_intervals_of_counts_are_counts_that_hold_the_level():
    counts = fit(None).predict({"X": X[:5]}, "draws", function=lambda p, rows: jnp.floor(5 * mean(p, rows)).astype(int))
    lower, upper = fit(None).predict(
        {"X": X[:5]}, "interval", function=lambda p, rows: jnp.floor(5 * mean(p, rows)).astype(int), level=0.8
    )
    assert lower.dtype.kind == "i"
    held = ((lower <= counts) & (counts <= upper)).mean(axis=0)
    assert (held >= 0.8).all()
    assert ((lower < counts) & (counts < upper)).mean() < 0.8


def test_two_rows_of_two_draws_are_independent():
    """All sixteen outcomes of two rows, of one cell or two, for two draws with the same parameters."""
    draws, new = {"a": np.zeros((1, 4000)), "b": np.zeros((1, 4000, 3))}, {"X": np.zeros((CELL + 1, 3))}
    for row in (1, CELL):
        y = fit(draws=draws).predict(new, "draws", draws=4000, seed=3)[:, [0, row]]
        outcome = (y.reshape(2000, 4) @ [1, 2, 4, 8]).astype(int)
        counts = np.bincount(outcome, minlength=16)
        assert ((counts - 125) ** 2 / 125).sum() < 37.7  # 15 degrees of freedom, 1 in 1,000


def test_the_same_bits_however_rows_are_cut():
    ask = OverDraws("simulate", simulate, some_draws(fit(), 20), jax.random.key(1))
    noise = OverDraws("noise", gaussian, some_draws(fit(), 20), jax.random.key(1))
    for one in (ask, noise):
        whole = one.all(check_dataset({"X": X}))
        for bytes_at_once in (1, 15_000):
            cut = OverDraws(one.name, one.function, one.draws, one.key, block_bytes=bytes_at_once)
            parts = list(cut.blocks(check_dataset({"X": X})))
            assert len(parts) > 1
            assert parts[-1][0].stop == 300
            assert np.array_equal(cut.all(check_dataset({"X": X}))["y"], whole["y"])
        shorter = one.all(check_dataset({"X": X[:101]}))
        assert np.array_equal(shorter["y"], whole["y"][:, :101])


def gaussian(key, params, rows):
    return {"y": eta(params, rows) + jax.random.normal(key, rows["X"].shape[:1])}


def test_rows_may_be_anywhere(tmp_path):
    folder = sgmcmc.data.convert({"X": X}, tmp_path / "rows", shuffle=False, progress=False)
    mapped = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, X.shape)
    mapped[:] = X
    expected = fit().predict({"X": X}, "draws", draws=10)
    for new in (tmp_path / "rows", folder, {"X": mapped}):
        assert np.array_equal(fit().predict(new, "draws", draws=10), expected)


def test_prior_and_posterior_predictive_draws():
    model = sgmcmc.Model(
        log_lik, MODEL.dataset, MODEL.params, simulate=gaussian, observed=("y",),
        draw_prior=lambda key: {"a": 3.0 + 2.0 * jax.random.normal(key), "b": jnp.zeros(3)},
    )  # fmt: skip
    y = model.prior_predictive({"X": np.zeros((2, 3))}, draws=4000, progress=False)["y"]
    assert y.shape == (4000, 2)
    assert np.allclose(y.mean(axis=0), 3, atol=4 * np.sqrt(5 / 4000))
    assert np.allclose(np.cov(y.T), [[5, 4], [4, 5]], atol=4 * np.sqrt(2 * 25 / 4000))  # what the rows share is the parameter
    after = fit(model).posterior_predictive(draws=8)
    assert after["y"].shape == (8, 300)
    assert np.array_equal(after["y"], fit(model).predict(kind="draws", draws=8))


def test_draws_that_do_not_count_the_same_are_taken_by_weight():
    weights = np.where(np.arange(40) < 20, 3.0, 1.0)
    places = np.searchsorted(DRAWS["a"].ravel(), some_draws(fit(weights=weights), 16)["a"], sorter=np.argsort(DRAWS["a"].ravel()))
    draw = np.argsort(DRAWS["a"].ravel())[places] % 40
    assert (draw < 20).sum() == 12


def test_a_bar_is_told_of_all_rows():
    told = []
    fit().predict(progress=told.append)
    assert told[-1] == {"stage": "predicting", "done": 300, "total": 300}


def test_trees_read_from_a_file_are_built_as_the_models_parameters():
    nested = sgmcmc.Model(log_lik, MODEL.dataset, (np.zeros(2), {"w": 1.0}), mean=lambda p, rows: rows["X"][:, 0] * p[1]["w"])
    read = Result({"0": np.ones((5, 2)), "1.w": np.full(5, 2.0)}, {}, None, {}, model=nested)
    assert np.allclose(read.predict(), 2 * X[:, 0])


BARE = sgmcmc.Model(log_lik, MODEL.dataset, MODEL.params)
ONE = {"X": X[:1]}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit(None).predict(ONE), r"needs the model.*sgmcmc.load\(path, model=model\), or give function="),
        (lambda: fit(None).predict(function=mean), r"no rows, and this result has no model.*model=model\), or give predict rows"),
        (lambda: fit(None).posterior_predictive(ONE), "posterior_predictive needs the model"),
        (lambda: fit(BARE).predict(), r"needs sgmcmc.Model\(..., mean=...\) or Model\(..., simulate=...\)"),
        (lambda: fit(BARE).predict(kind="draws"), r"needs sgmcmc.Model\(..., simulate=...\); give it that, or give"),
        (lambda: fit(BARE).posterior_predictive(), "this model cannot simulate"),
        (lambda: BARE.prior_predictive(), "cannot draw from its prior"),
        (lambda: fit().predict(kind="median"), "expected one of 'mean', 'draws', 'interval'"),
        (lambda: fit().predict(level=90), "level is 90; expected a number between 0 and 1"),
        (lambda: fit().predict(draws=0), "draws is 0"),
        (lambda: fit().predict(function=3), "function is 3"),
        (lambda: fit().predict({"Z": X}), "mean asks for 'X'; params has a, b and the rows have Z"),
        (lambda: fit().predict({"X": X[:, :2]}), "mean failed for params and 64 rows: TypeError"),
        (lambda: fit().predict(function=lambda p, rows: p["a"]), "function returned .* expected rows on the first axis"),
        (lambda: fit(draws=None).predict(), "this result kept no draws"),
    ],
)
def test_what_is_missing_is_said(call, said):
    with pytest.raises(sgmcmc.InputError, match=said):
        call()


def test_draws_that_would_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("sgmcmc.problem.simulating.physical_memory", lambda: 10_000)
    with pytest.raises(sgmcmc.InputError, match=r"80 draws for 300 rows are .* GB.*ask for fewer draws="):
        fit().predict(kind="draws")
    assert fit().predict(kind="interval").lower.shape == (300,)
