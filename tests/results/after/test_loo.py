"""Leave-one-out: exact densities, full importance sampling within the stated error, unbiased over all draws of rows."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import sgmcmc
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.results.after.densities import Sums
from sgmcmc.results.after.loo import _difference, _standard_error
from sgmcmc.results.after.pareto import smoothed
from sgmcmc.results.result import Result

RNG = np.random.default_rng(8)
N = 2000
X = RNG.normal(size=(N, 3)).astype(np.float32)
Y = (X @ [0.5, -1.0, 0.2] + RNG.normal(size=N)).astype(np.float32)


def laplace_fit(log_lik, data, at, draws=2000):
    """A result whose draws are normal about the mode, by the curvature there: near enough to the posterior."""

    def log_density(b):
        return log_lik({"b": b}, data).sum()

    slope_and_hessian = jax.jit(lambda b: (jax.grad(log_density)(b), jax.hessian(log_density)(b)))
    for _ in range(8):
        slope, hessian = (np.asarray(x, np.float64) for x in slope_and_hessian(at))
        at = at - np.linalg.solve(hessian, slope)
    factor = np.linalg.cholesky(np.linalg.inv(-hessian))
    b = np.asarray(at) + np.random.default_rng(1).normal(size=(draws, len(at))) @ factor.T
    model = sgmcmc.Model(log_lik, data, {"b": np.zeros(len(at))}, observed=("y",))
    return Result({"b": b.astype(np.float32)}, {}, None, {}, model=model)


def linear(params, rows):
    return jax.scipy.stats.norm.logpdf(rows["y"], rows["X"] @ params["b"])


def logistic(params, rows):
    eta = rows["X"] @ params["b"]
    return jax.nn.log_sigmoid(jnp.where(rows["y"] > 0, eta, -eta))


def poisson(params, rows):
    return jax.scipy.stats.poisson.logpmf(rows["y"], jnp.exp(0.5 * rows["X"] @ params["b"]))


MODELS = {
    "linear": (linear, Y),
    "logistic": (logistic, RNG.random(N) < 1 / (1 + np.exp(-X @ [0.5, -1.0, 0.2]))),
    "poisson": (poisson, RNG.poisson(np.exp(0.5 * X @ [0.5, -1.0, 0.2])).astype(np.float32)),
}


@pytest.fixture(scope="module")
def fits():
    return {name: laplace_fit(log_lik, {"X": X, "y": y}, jnp.zeros(3)) for name, (log_lik, y) in MODELS.items()}


def test_weights_are_those_of_arviz():
    from arviz_stats.base.array import array_stats

    log_lik = RNG.standard_t(4, size=(30, 1000)) * np.linspace(0.1, 2, 30)[:, None]
    for efficiency in (1.0, 0.3):
        weights, k = smoothed(-log_lik, efficiency)
        expected = array_stats.psislw(log_lik, r_eff=efficiency)
        assert np.allclose(weights, expected[0], atol=1e-10)
        assert np.allclose(k, expected[1], atol=1e-10)
    even, k = smoothed(np.zeros((1, 200)))
    assert np.allclose(even, -np.log(200))
    assert k == 0


def test_the_density_of_a_normal_row_given_the_others_is_exact():
    """x ~ Normal(mu, 1), flat prior: given the others a row is Normal(their mean, 1 + 1/(n-1))."""
    n = 50
    x = np.random.default_rng(3).normal(size=n)
    draws = (x.mean() + np.random.default_rng(4).normal(size=20_000) / np.sqrt(n)).astype(np.float32)
    model = sgmcmc.Model(lambda p, rows: jax.scipy.stats.norm.logpdf(rows["x"], p["mu"]).sum(), {"x": x}, {"mu": 0.0})
    found = sgmcmc.loo(Result({"mu": draws}, {}, None, {}, model=model), n, draws=20_000)
    others = (n * x.mean() - x) / (n - 1)
    exact = norm.logpdf(x, others, np.sqrt(1 + 1 / (n - 1)))
    assert np.abs(found.pointwise - exact).max() < 5e-3
    assert abs(found.elpd - exact.sum()) < 0.03
    kept_in = norm.logpdf(x, x.mean(), np.sqrt(1 + 1 / n))
    assert abs(found.p_loo - (kept_in - exact).sum()) < 0.03
    assert np.abs(found.pointwise - kept_in).max() > 5e-2  # rows that are not left out are foreseen better
    assert np.isclose(found.se, np.sqrt(n) * exact.std(), rtol=0.01)
    assert found.error == 0
    assert found.ok


@pytest.mark.parametrize("name", MODELS)
def test_some_rows_say_what_all_do_within_their_error(fits, name):
    full, some = sgmcmc.loo(fits[name], N), [sgmcmc.loo(fits[name], 100, seed=seed) for seed in range(20)]
    assert full.error == 0
    assert full.ok
    z = np.array([(one.elpd - full.elpd) / one.error for one in some])
    assert (z**2).sum() < 45.3  # 20 degrees of freedom, 1 in 1,000
    assert np.mean([one.error for one in some]) < 0.02 * full.se
    assert all(np.isclose(one.se, full.se, rtol=0.01) for one in some)
    without = np.array([N * one.pointwise.mean() - full.elpd for one in some])  # rows alone, without the pass over all of them
    assert np.sqrt((without**2).mean()) > 10 * np.sqrt(np.mean([one.error**2 for one in some]))
    assert abs(full.p_loo - 3) < 1.0


def test_the_estimate_is_unbiased_over_all_draws_of_rows():
    """Of six rows every three are drawn once: means of the estimate, of its squared error and of the variance are exact."""
    near = np.array([-1.3, 0.2, 0.9, -2.0, 1.1, 0.4])
    exact = near + np.array([0.1, -0.2, 0.15, -0.1, 0.3, 0.0])
    sums = Sums().plus(near[:2]).plus(near[2:])
    estimates, errors, variances = [], [], []
    for chosen in map(list, combinations(range(6), 3)):
        elpd, error = _difference(sums.total, exact[chosen] - near[chosen], 6)
        estimates.append(elpd)
        errors.append(error**2)
        variances.append(_standard_error(sums, exact[chosen], near[chosen], elpd, error) ** 2)
    assert np.isclose(np.mean(estimates), exact.sum())
    assert np.isclose(np.mean(errors), np.var(estimates))
    assert np.isclose(sums.sd, near.std(ddof=1))
    assert min(variances) > 0
    assert np.isclose(np.mean(variances), 6 * exact.var())


def test_heavy_rows_are_named():
    x = np.append(np.random.default_rng(3).normal(size=30), 12.0)
    mu = x.mean() + np.random.default_rng(4).normal(size=2000) / np.sqrt(31)
    model = sgmcmc.Model(lambda p, rows: jax.scipy.stats.norm.logpdf(rows["x"], p["mu"]), {"x": x}, {"mu": 0.0})
    found = sgmcmc.loo(Result({"mu": mu}, {}, None, {}, model=model), 31, draws=2000)
    assert not found.ok
    assert np.argmax(found.pareto_k) == 30
    assert "in 1 rows (3.2%), worst in row 30" in str(found)


def test_comparisons_are_of_the_same_rows(fits):
    rest = laplace_fit(lambda p, rows: linear({"b": p["b"] * jnp.array([1.0, 1.0, 0.0])}, rows) - 1e-6 * p["b"][2] ** 2,
                       {"X": X, "y": Y}, jnp.zeros(3))  # fmt: skip
    full = {name: sgmcmc.loo(one, N) for name, one in {"all": fits["linear"], "two": rest}.items()}
    table = sgmcmc.compare(full)
    assert list(table.index) == ["all", "two"]
    exact = full["two"].pointwise - full["all"].pointwise
    assert np.isclose(table["difference"]["two"], exact.sum())
    assert np.isclose(table["difference_se"]["two"], np.sqrt(N) * exact.std(ddof=1))
    assert table["difference_error"]["two"] == 0
    some = sgmcmc.compare({"two": rest, "all": fits["linear"]}, rows=200, seed=3)
    assert abs(some["difference"]["two"] - exact.sum()) < 3.3 * some["difference_error"]["two"]
    assert some["difference_error"]["two"] < some["error"]["two"] + some["error"]["all"]
    with pytest.raises(sgmcmc.InputError, match="needs the same rows left out: 'b' has 100 of 2000 rows and 'all' 2000 of"):
        sgmcmc.compare({"all": full["all"], "b": sgmcmc.loo(fits["logistic"], 100)})
    with pytest.raises(sgmcmc.InputError, match="observed different values in the same rows"):
        sgmcmc.compare({"a": full["all"], "b": sgmcmc.loo(fits["logistic"], N)})
    with pytest.raises(sgmcmc.InputError, match="expected two fits or more by name"):
        sgmcmc.compare({"a": full["all"]})


def test_a_mean_that_is_no_parameter_is_replaced_by_a_draw():
    """The density is nothing between two modes, and the mean lies there."""

    def log_lik(p, rows):
        return jax.scipy.stats.norm.logpdf(rows["x"], jnp.abs(p["mu"])) + jnp.where(jnp.abs(p["mu"]) < 1, -jnp.inf, 0.0)

    x = np.random.default_rng(3).normal(2.0, 1.0, 300)
    mu = x.mean() + np.random.default_rng(4).normal(size=1000) / np.sqrt(300)
    model = sgmcmc.Model(log_lik, {"x": x}, {"mu": 2.0})
    both = Result({"mu": np.where(np.arange(1000) % 2, mu, -mu)}, {}, None, {}, model=model)
    one = Result({"mu": mu}, {}, None, {}, model=model)
    assert np.isclose(sgmcmc.loo(both, 300).elpd, sgmcmc.loo(one, 300).elpd, atol=0.05)
    broken = sgmcmc.Model(lambda p, rows: jnp.where(rows["x"] > 4, -jnp.inf, 0.0 * p["mu"]), {"x": x}, {"mu": 2.0})
    with pytest.raises(SgmcmcError, match=f"log_lik is -inf in row {np.argmax(x > 4)}; leave the row out"):
        sgmcmc.loo(Result({"mu": mu}, {}, None, {}, model=broken))


def test_held_out_rows_are_scored_by_the_mean_of_their_density(fits, tmp_path):
    fit, new = fits["linear"], {"X": X[:150], "y": Y[:150] + 1}
    found = fit.log_score(new, draws=500)
    eta = X[:150] @ np.asarray(fit["b"][2::4].T, np.float64)
    rows = np.log(norm.pdf(new["y"][:, None], eta).mean(axis=1))
    assert np.isclose(found.total, rows.sum(), rtol=1e-5)
    assert np.isclose(found.se, rows.std(ddof=1) / np.sqrt(150), rtol=1e-4)
    assert str(found).startswith(f"log score {rows.mean():.4f} ±")
    folder = sgmcmc.data.convert(new, tmp_path / "rows", shuffle=False, progress=False)
    assert fit.log_score(folder, draws=500) == found


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda fit: sgmcmc.loo(Result(fit.draws, {}, None, {})), r"loo needs the model.*sgmcmc.load\(path, model=model\)"),
        (lambda fit: sgmcmc.loo(fit, draws=50), "loo has 50 draws; expected at least 100"),
        (lambda fit: sgmcmc.loo(fit, rows=0), "rows is 0"),
        (lambda fit: fit.log_score({"X": X}), "log_lik asks for 'y'"),
    ],
)
def test_what_is_missing_is_said(fits, call, said):
    with pytest.raises(sgmcmc.InputError, match=said):
        call(fits["linear"])
