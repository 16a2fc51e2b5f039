"""Everyday models, as users write them, with data made on the spot: every class with three seeds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.everyday import targets
from benchmarks.everyday.cases import Case, Draws, Predictions, Target
from sgmcmc import constraints, distributions

SEEDS = (1, 2, 3)

Rowwise = Callable[[Any, Any], Any]
"""From predictor and answer to the log likelihood of every row."""


def bernoulli_logits(eta: Any, y: Any) -> Any:
    return distributions.BernoulliLogits(logits=eta).log_prob(y)


def bernoulli_probs(eta: Any, y: Any) -> Any:
    return distributions.Bernoulli(probs=jax.nn.sigmoid(eta)).log_prob(y)


def log_sigmoid(eta: Any, y: Any) -> Any:
    return jax.nn.log_sigmoid(jnp.where(y == 1, eta, -eta))


def logaddexp(eta: Any, y: Any) -> Any:
    return y * eta - jnp.logaddexp(0.0, eta)


def naive_product(eta: Any, y: Any) -> Any:
    p = 1 / (1 + jnp.exp(-eta))
    return y * jnp.log(p) + (1 - y) * jnp.log(1 - p)


def naive_choice(eta: Any, y: Any) -> Any:
    return jnp.log(1 / (1 + jnp.exp(-jnp.where(y == 1, eta, -eta))))


def poisson(eta: Any, y: Any) -> Any:
    return distributions.Poisson(jnp.exp(eta)).log_prob(y)


def poisson_formula(eta: Any, y: Any) -> Any:
    return y * eta - jnp.exp(eta)


WAYS = {
    "BernoulliLogits": bernoulli_logits,
    "Bernoulli(probs)": bernoulli_probs,
    "log_sigmoid": log_sigmoid,
    "logaddexp": logaddexp,
}
NAIVE = {"log(p) and log(1 - p)": naive_product, "log(1/(1 + exp(-z)))": naive_choice}
COUNTS = {"Poisson": poisson, "y*eta - exp(eta)": poisson_formula}


def normal_prior(scale: Any) -> Callable[[Any], Any]:
    """The same normal prior for every parameter, or one for each by name."""

    def log_prior(params: Any) -> Any:
        scales = scale if isinstance(scale, dict) else dict.fromkeys(params, scale)
        return sum(distributions.Normal(0.0, scales[name]).log_prob(value).sum() for name, value in params.items())

    return log_prior


def with_intercept(*columns: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(columns[0])), *columns])


def chance(eta: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-eta))


def draws_of(rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
    return (rng.random(len(eta)) < chance(eta)).astype(np.float32)


def line(way: Rowwise, params: Any, batch: Any) -> Any:
    """One column and an intercept."""
    return way(params["a"] + params["b"] * batch["x"], batch["y"])


def columns(way: Rowwise, params: Any, batch: Any) -> Any:
    """A matrix of columns and an intercept."""
    return way(params["a"] + batch["X"] @ params["beta"], batch["y"])


def from_zeros(way: Rowwise, n: int, seed: int) -> Case:
    """Seven per cent ones; the column has two decimals."""
    rng = np.random.default_rng([seed, n])
    x = rng.normal(size=n).round(2).astype(np.float32)
    y = draws_of(rng, -2.75 + 0.6 * x)
    target = targets.regression_target(with_intercept(x), y, 5.0, {"a": (), "b": ()})
    return Case(partial(line, way), {"x": x, "y": y}, {"a": 0.0, "b": 0.0}, normal_prior(5.0), target=target)


LEVELS = (4_000, 3_000, 1_500, 800, 400, 280, 5, 5, 4, 3, 2, 1)
"""Rows in each level of a categorical column; of the rare ones the first has no event and the second nothing else."""


def categories(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    code = np.repeat(np.arange(len(LEVELS)), LEVELS)
    y = draws_of(rng, rng.normal(-1.0, 1.0, len(LEVELS))[code])
    y[code == 6], y[code == 7] = 0.0, 1.0
    shuffled = rng.permutation(len(code))
    return code[shuffled].astype(np.int32), y[shuffled]


def by_code(params: Any, batch: Any) -> Any:
    return log_sigmoid(params["a"] + params["beta"][batch["code"]], batch["y"])


def one_hot(way: str, seed: int) -> Case:
    code, y = categories(np.random.default_rng([seed, 12]))
    hot = np.eye(len(LEVELS), dtype=np.float32)[code]
    start = {"a": 0.0, "beta": np.zeros(len(LEVELS))}
    target = targets.regression_target(with_intercept(hot), y, 5.0, {"a": (), "beta": (len(LEVELS),)})
    log_lik, X = (by_code, {"code": code}) if way == "codes" else (partial(columns, bernoulli_logits), {"X": hot})
    return Case(log_lik, {**X, "y": y}, start, normal_prior(5.0), target=target)


def rare_column(way: Rowwise, n: int, seed: int) -> Case:
    """Events are one in 700; age in decades, sex, and a column that is 1 in 8 rows, none of them an event."""
    rng = np.random.default_rng([seed, n])
    age = ((rng.integers(18, 90, n) - 50) / 10).astype(np.float32)
    sex, rare = (rng.random(n) < 0.5).astype(np.float32), np.zeros(n, np.float32)
    rare[rng.choice(n, 8, replace=False)] = 1.0
    y = draws_of(rng, -6.5 + 0.2 * age + 0.3 * sex) * (1 - rare)
    X = np.column_stack([age, sex, rare])
    target = targets.regression_target(with_intercept(X), y, 5.0, {"a": (), "beta": (3,)})
    start, seconds = {"a": 0.0, "beta": np.zeros(3)}, 30.0 if n == 400_000 else None
    log_lik, data = partial(columns, way), {"X": X, "y": y}
    return Case(log_lik, data, start, normal_prior(5.0), target=target, most_seconds=seconds)


def heavy_prior(params: Any) -> Any:
    return sum(distributions.StudentT(3.0, 0.0, 2.5).log_prob(value).sum() for value in params.values())


def rare_cell(seed: int) -> Case:
    """Two columns of 0 and 1, and their product, which is 1 in 3 rows, none of them an event: its prior is Student's."""
    rng, n = np.random.default_rng([seed, 77]), 100_000
    first, second = (rng.random(n) < 0.03).astype(np.float32), (rng.random(n) < 0.02).astype(np.float32)
    second[np.flatnonzero(first * second)[3:]] = 0.0
    x = rng.normal(size=n).round(1).astype(np.float32)
    y = draws_of(rng, -2.0 + 0.5 * first - 0.3 * second + 0.4 * x) * (1 - first * second)
    X = np.column_stack([first, second, first * second, x])
    target = targets.regression_target(with_intercept(X), y, 2.5, {"a": (), "beta": (4,)}, prior="heavy")
    start = {"a": 0.0, "beta": np.zeros(4)}
    return Case(partial(columns, log_sigmoid), {"X": X, "y": y}, start, heavy_prior, target=target)


def exposed(way: Rowwise, params: Any, batch: Any) -> Any:
    return way(params["a"] + batch["X"] @ params["beta"] + jnp.log(batch["exposure"]), batch["y"])


def claims(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Counts with exposures, a column of measurements and three rare levels of 1, 3 and 5 rows."""
    n = 20_000
    X = np.zeros((n, 4), np.float32)
    X[:, 0] = rng.normal(size=n)
    for column, count in ((1, 1), (2, 3), (3, 5)):
        X[rng.choice(n, count, replace=False), column] = 1.0
    exposure = rng.gamma(2.0, 0.5, n).astype(np.float32)
    rate = exposure * np.exp(-2.0 + 0.4 * X[:, 0] + 0.5 * X[:, 1:].sum(axis=1))
    return {"X": X, "exposure": exposure, "y": rng.poisson(rate).astype(np.float32)}


def regression_on(data: dict[str, np.ndarray], scale: float) -> Target:
    """The target of counts with exposures."""
    X, shapes = with_intercept(data["X"]), {"a": (), "beta": data["X"].shape[1:]}
    return targets.regression_target(X, data["y"], scale, shapes, exposure=data["exposure"], family="poisson")


def counts(way: Rowwise, seed: int) -> Case:
    data = claims(np.random.default_rng([seed, 4]))
    start = {"a": 0.0, "beta": np.zeros(4)}
    return Case(partial(exposed, way), data, start, normal_prior(5.0), target=regression_on(data, 5.0))


def no_exposure(way: Rowwise, prior: bool, seed: int) -> Case:
    """One row was exposed for no time, and has no event: with a distribution's own limits it may count for nothing."""
    rng = np.random.default_rng([seed, 4])
    data = claims(rng)
    row, data["X"] = int(rng.integers(100, 20_000)), data["X"][:, :1]
    data["exposure"][row] = data["y"][row] = 0.0
    scale = 5.0 if prior else np.inf
    target = regression_on(data, scale) if way is poisson else None
    log_prior, start = normal_prior(scale) if prior else None, {"a": 0.0, "beta": np.zeros(1)}
    named = rf"\b({row}|{row:,})\b"
    return Case(partial(exposed, way), data, start, log_prior, target=target, naming=named, proper=target is not None)


def large_predictors(way: Rowwise, seed: int) -> Case:
    """A column with a few values in the hundreds, too much for 1 - p and exp in float32; one row is against the others."""
    rng = np.random.default_rng([seed, 5])
    x = rng.normal(size=20_000).astype(np.float32)
    far = rng.choice(20_000, 40, replace=False)
    x[far] = rng.choice([-1, 1], 40) * rng.uniform(30, 300, 40)
    y = draws_of(rng, np.clip(-1.0 + 0.9 * x, -80, 80))
    x[far[0]], y[far[0]] = 130.0, 0.0
    target = targets.regression_target(with_intercept(x), y, 5.0, {"a": (), "b": ()})
    data, start, named = {"x": x, "y": y}, {"a": 0.0, "b": 0.0}, r"row [\d,]+|log_sigmoid"
    return Case(partial(line, way), data, start, normal_prior(5.0), target=target, naming=named)


def separable(n: int, prior: bool, seed: int) -> Case:
    """The answer is the sign of the column."""
    rng = np.random.default_rng([seed, n])
    x = rng.normal(size=n).astype(np.float32)
    y = (x > 0.1).astype(np.float32)
    data, start, log_lik = {"x": x, "y": y}, {"a": 0.0, "b": 0.0}, partial(line, bernoulli_logits)
    if not prior:
        return Case(log_lik, data, start, None, naming=r"\bb\b", proper=False)
    target = targets.regression_target(with_intercept(x), y, 2.5, {"a": (), "b": ()})
    return Case(log_lik, data, start, normal_prior(2.5), target=target)


def correlated(seed: int) -> Case:
    """Six columns that share most of what they say, on scales from 10⁻⁴ to 10⁵."""
    rng, n = np.random.default_rng([seed, 6]), 20_000
    scale = np.array([1e-4, 1e-2, 1.0, 1e2, 1e4, 1e5])
    standard = np.sqrt(0.95) * rng.normal(size=(n, 1)) + np.sqrt(0.05) * rng.normal(size=(n, 6))
    X = (standard * scale).astype(np.float32)
    y = draws_of(rng, -1.0 + standard @ rng.normal(0, 0.5, 6))
    target = targets.regression_target(with_intercept(X), y, np.r_[5.0, 5 / scale], {"a": (), "beta": (6,)})
    prior = normal_prior({"a": 5.0, "beta": 5 / scale})
    return Case(partial(columns, log_sigmoid), {"X": X, "y": y}, {"a": 0.0, "beta": np.zeros(6)}, prior, target=target)


BEND = 0.5
"""Standard deviation of a spline's second differences."""


def cubic_basis(x: np.ndarray, count: int) -> np.ndarray:
    """Cubic B-splines with equal distances, over the unit interval."""
    away = np.abs(x[:, None] * (count - 3) + 1 - np.arange(count))
    inner, outer = 2 / 3 - away**2 + away**3 / 2, np.maximum(2 - away, 0) ** 3 / 6
    return np.where(away < 1, inner, outer)


def spline_lik(params: Any, batch: Any) -> Any:
    return distributions.Normal(batch["B"] @ params["w"], params["sigma"]).log_prob(batch["y"])


def spline_prior(params: Any) -> Any:
    ridge = distributions.Normal(0.0, 10.0).log_prob(params["w"]).sum()
    noise = distributions.HalfNormal(1.0).log_prob(params["sigma"])
    bends = distributions.Normal(0.0, params.get("tau", BEND)).log_prob(jnp.diff(params["w"], 2)).sum()
    return bends + ridge + noise


def bent_prior(params: Any) -> Any:
    return spline_prior(params) + distributions.HalfNormal(1.0).log_prob(params["tau"])


def curve(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, 20_000])
    x = rng.random(20_000)
    y = np.sin(8 * x) + x + 0.5 * rng.normal(size=len(x))
    return {"B": cubic_basis(x, 20).astype(np.float32), "y": y.astype(np.float32)}


def spline(seed: int) -> Case:
    data, start, support = curve(seed), {"sigma": 1.0, "w": np.zeros(20)}, {"sigma": constraints.positive}
    return Case(spline_lik, data, start, spline_prior, support, targets.smooth_target(*data.values(), BEND))


def bent_spline(seed: int) -> Case:
    """How smooth it is has to be learnt."""
    data, start = curve(seed), {"sigma": 1.0, "tau": 1.0, "w": np.zeros(20)}
    support = dict.fromkeys(("sigma", "tau"), constraints.positive)
    return Case(spline_lik, data, start, bent_prior, support, targets.bent_target(*data.values()))


NOISE = 0.1


def network_output(params: Any, x: Any) -> Any:
    hidden = jnp.tanh(x[:, None] @ params["w1"] + params["b1"])
    hidden = jnp.tanh(hidden @ params["w2"] + params["b2"])
    return (hidden @ params["w3"] + params["b3"])[:, 0]


def network_lik(params: Any, batch: Any) -> Any:
    return distributions.Normal(network_output(params, batch["x"]), NOISE).log_prob(batch["y"])


def wiggle(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.uniform(-2, 2, n).astype(np.float32)
    return x, (np.sin(3 * x) + 0.3 * x + NOISE * rng.normal(size=n)).astype(np.float32)


def network(seed: int) -> Case:
    """1-32-32-1: no number of it means anything alone, so its predictions are judged."""
    rng, widths = np.random.default_rng([seed, 32]), (1, 32, 32, 1)
    start: dict[str, Any] = {}
    for layer, (before, after) in enumerate(pairwise(widths), 1):
        start |= {f"w{layer}": rng.normal(size=(before, after)) / np.sqrt(before), f"b{layer}": np.zeros(after)}
    x, y = wiggle(rng, 2_000)
    predictions = Predictions(network_output, *wiggle(rng, 1_000), noise=NOISE)
    return Case(network_lik, {"x": x, "y": y}, start, normal_prior(1.0), predictions=predictions)


def small_logistic(n: int, d: int, seed: int) -> Case:
    rng = np.random.default_rng([seed, n])
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = draws_of(rng, X @ rng.normal(size=d))
    scale = 5.0 if n > 20 else 2.5
    target = targets.regression_target(with_intercept(X), y, scale, {"a": (), "beta": (d,)})
    start, log_lik = {"a": 0.0, "beta": np.zeros(d)}, partial(columns, bernoulli_logits)
    return Case(log_lik, {"X": X, "y": y}, start, normal_prior(scale), target=target, beside_nuts=n == 300)


def numbers_lik(params: Any, batch: Any) -> Any:
    return distributions.Normal(params["mu"], params["sigma"]).log_prob(batch["x"])


def numbers_prior(params: Any) -> Any:
    return distributions.Normal(0.0, 10.0).log_prob(params["mu"]) + distributions.HalfNormal(5.0).log_prob(params["sigma"])


def twenty_numbers(seed: int) -> Case:
    x = np.random.default_rng([seed, 20]).normal(3.0, 2.0, 20).astype(np.float32)
    start, support = {"mu": 0.0, "sigma": 1.0}, {"sigma": constraints.positive}
    return Case(numbers_lik, {"x": x}, start, numbers_prior, support, targets.normal_target(x))


def survival_lik(params: Any, batch: Any) -> Any:
    k, scale = params["k"], jnp.exp(params["a"] + params["b"] * batch["x"])
    whole = (batch["t"] / scale) ** k
    return batch["event"] * (jnp.log(k) - jnp.log(scale) + (k - 1) * jnp.log(batch["t"] / scale)) - whole


def survival_prior(params: Any) -> Any:
    lines = sum(distributions.Normal(0.0, 5.0).log_prob(params[name]) for name in ("a", "b"))
    return lines + distributions.HalfNormal(5.0).log_prob(params["k"])


def survival(seed: int) -> Case:
    """Weibull times; two thirds of the rows are censored."""
    rng, n = np.random.default_rng([seed, 7]), 20_000
    x = rng.normal(size=n).astype(np.float32)
    time, end = np.exp(1.0 + 0.5 * x) * rng.weibull(1.7, n), rng.exponential(2.0, n) + 0.01
    data = {"t": np.minimum(time, end).astype(np.float32), "x": x, "event": (time < end).astype(np.float32)}
    start, support = {"a": 0.0, "b": 0.0, "k": 1.0}, {"k": constraints.positive}
    return Case(survival_lik, data, start, survival_prior, support, targets.weibull_target(**data))


def grades_lik(params: Any, batch: Any) -> Any:
    return distributions.OrderedLogistic(batch["X"] @ params["beta"], params["cuts"]).log_prob(batch["y"])


def grades_prior(params: Any) -> Any:
    cuts = distributions.Normal(0.0, 5.0).log_prob(params["cuts"]).sum()
    return cuts + distributions.Normal(0.0, 2.5).log_prob(params["beta"]).sum()


def grades(seed: int) -> Case:
    """Five ordered answers, the last of them rare."""
    rng, n = np.random.default_rng([seed, 8]), 20_000
    X = rng.normal(size=(n, 3)).astype(np.float32)
    latent = X @ np.array([0.8, -0.4, 0.1]) + rng.logistic(size=n)
    y = np.searchsorted([-1.0, 0.5, 2.0, 6.5], latent).astype(np.int32)
    start, support = {"beta": np.zeros(3), "cuts": np.arange(4.0)}, {"cuts": constraints.ordered_vector}
    return Case(grades_lik, {"X": X, "y": y}, start, grades_prior, support, targets.ordinal_target(X, y))


def shrunk_lik(params: Any, batch: Any) -> Any:
    beta = params["z"] * params["lam"] * params["tau"]
    return distributions.Normal(batch["X"] @ beta, params["sigma"]).log_prob(batch["y"])


def shrunk_prior(params: Any) -> Any:
    scales = distributions.HalfCauchy(1.0).log_prob(params["lam"]).sum() + distributions.HalfCauchy(0.1).log_prob(params["tau"])
    return scales + distributions.HalfNormal(2.0).log_prob(params["sigma"]) + distributions.Normal().log_prob(params["z"]).sum()


def shrunk_seen(draws: Draws) -> Draws:
    """Coefficients, and logarithms of the scales: those have no moments themselves."""
    logarithms = {f"log {name}": np.log(draws[name]) for name in ("lam", "sigma", "tau")}
    return {"beta": draws["z"] * draws["lam"] * np.asarray(draws["tau"])[..., None]} | logarithms


def shrunk(seed: int) -> Case:
    """Horseshoe: 50 columns, 5 of which matter."""
    rng, n, d = np.random.default_rng([seed, 9]), 5_000, 50
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = (X[:, :5] @ np.array([1.0, -0.7, 0.5, 0.3, 0.1]) + rng.normal(size=n)).astype(np.float32)
    start = {"lam": np.ones(d), "sigma": 1.0, "tau": 0.1, "z": np.zeros(d)}
    support = dict.fromkeys(("lam", "sigma", "tau"), constraints.positive)
    target: Target = targets.horseshoe_target(X, y)
    return Case(shrunk_lik, {"X": X, "y": y}, start, shrunk_prior, support, target, seen=shrunk_seen, patience=1_800.0)


MODELS: dict[str, Callable[[int], Case]] = {
    **{f"from zeros, {name}, N = {n:,}": partial(from_zeros, way, n) for n in (3_000, 100_000) for name, way in WAYS.items()},
    **{f"rare levels, {way}": partial(one_hot, way) for way in ("one-hot", "codes")},
    **{f"rare column, N = {n:,}": partial(rare_column, bernoulli_logits, n) for n in (50_000, 400_000)},
    "rare column, N = 400,000, log_sigmoid": partial(rare_column, log_sigmoid, 400_000),
    "rare cell, heavy prior": rare_cell,
    **{f"exposures, {name}": partial(counts, way) for name, way in COUNTS.items()},
    **{f"an exposure of 0, {name}": partial(no_exposure, way, True) for name, way in COUNTS.items()},
    "an exposure of 0, no prior": partial(no_exposure, poisson, False),
    **{f"large z, {name}": partial(large_predictors, way) for name, way in NAIVE.items()},
    **{f"separable, with a prior, N = {n:,}": partial(separable, n, True) for n in (200, 20_000)},
    "separable, no prior": partial(separable, 20_000, False),
    "correlated, scales 1e-4 to 1e5": correlated,
    "spline": spline,
    "spline, smoothness unknown": bent_spline,
    "network 1-32-32-1": network,
    "20 rows, logistic": partial(small_logistic, 20, 3),
    "20 rows, normal": twenty_numbers,
    "300 rows": partial(small_logistic, 300, 5),
    "Weibull, censored": survival,
    "ordinal": grades,
}

SLOW: dict[str, Callable[[int], Case]] = {"horseshoe": shrunk}
