"""Five models that are drawn from their own priors: the parameters, then the rows, and the same model as a user writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import BernoulliLogits, LogNormal, Normal, OrderedLogistic, Poisson, StudentT

from benchmarks.everyday.models import draws_of
from sgmcmc import constraints

ROWS = 20_000

Params = dict[str, Any]
Data = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """What is drawn, and how it is sampled.

    Attributes:
        draw: parameters from the prior.
        rows: data from the model, given the parameters.
        seen: the numbers whose ranks are taken, of parameters whose own axes are last.
        has_mode: whether the joint density has one, so that chains about it can be the control.
    """

    draw: Callable[[np.random.Generator], Params]
    rows: Callable[[np.random.Generator, Params], Data]
    log_lik: Callable[[Params, Any], Any]
    log_prior: Callable[[Params], Any]
    start: Params
    seen: Callable[[Params], dict[str, Any]]
    constraints: dict[str, Any] = field(default_factory=dict)
    has_mode: bool = True


def simulated(model: Model, replication: int, seed: int = 1) -> tuple[Params, Data]:
    """The truth and its data: the same ones for the same numbers."""
    rng = np.random.default_rng([seed, replication])
    truth = model.draw(rng)
    return truth, model.rows(rng, truth)


def numbers(name: str, values: Any, count: int) -> dict[str, Any]:
    """The first few numbers of a parameter, by their places."""
    return {f"{name}[{k}]": np.asarray(values)[..., k] for k in range(count)}


LEVELS = (10_000, 6_980, 3_000, 20)
"""Rows of each level of a column; the last is rare."""


def rare_draw(rng: np.random.Generator) -> Params:
    return {"a": rng.normal(-1.0, 0.5), "b": rng.normal(0.0, 0.5), "level": rng.normal(0.0, 1.0, len(LEVELS) - 1)}


def rare_rows(rng: np.random.Generator, params: Params) -> Data:
    code, x = rng.permutation(np.repeat(np.arange(len(LEVELS)), LEVELS)).astype(np.int32), rng.normal(size=ROWS)
    eta = params["a"] + params["b"] * x + np.r_[0.0, params["level"]][code]
    return {"code": code, "x": x.astype(np.float32), "y": draws_of(rng, eta)}


def rare_lik(params: Params, batch: Any) -> Any:
    level = jnp.concatenate([jnp.zeros(1), params["level"]])
    return BernoulliLogits(params["a"] + params["b"] * batch["x"] + level[batch["code"]]).log_prob(batch["y"])


def rare_prior(params: Params) -> Any:
    lines = Normal(-1.0, 0.5).log_prob(params["a"]) + Normal(0.0, 0.5).log_prob(params["b"])
    return lines + Normal(0.0, 1.0).log_prob(params["level"]).sum()


def rare_seen(params: Params) -> dict[str, Any]:
    return {"a": params["a"], "b": params["b"], **numbers("level", params["level"], len(LEVELS) - 1)}


GROUPS = 30


def groups_draw(rng: np.random.Generator) -> Params:
    mu, tau = rng.normal(0.0, 0.5), rng.lognormal(-1.0, 0.4)
    return {"beta": rng.normal(0.0, 0.5), "mu": mu, "tau": tau, "u": rng.normal(mu, tau, GROUPS)}


def groups_rows(rng: np.random.Generator, params: Params) -> Data:
    group, x = rng.integers(0, GROUPS, ROWS).astype(np.int32), rng.normal(size=ROWS)
    y = rng.poisson(np.exp(params["u"][group] + params["beta"] * x))
    return {"group": group, "x": x.astype(np.float32), "y": y.astype(np.float32)}


def groups_lik(params: Params, batch: Any) -> Any:
    return Poisson(jnp.exp(params["u"][batch["group"]] + params["beta"] * batch["x"])).log_prob(batch["y"])


def groups_prior(params: Params) -> Any:
    above = Normal(0.0, 0.5).log_prob(params["mu"]) + LogNormal(-1.0, 0.4).log_prob(params["tau"])
    effects = Normal(params["mu"], params["tau"]).log_prob(params["u"]).sum()
    return above + effects + Normal(0.0, 0.5).log_prob(params["beta"])


def groups_seen(params: Params) -> dict[str, Any]:
    return {name: params[name] for name in ("beta", "mu", "tau")} | numbers("u", params["u"], 3)


DEGREES = 4.0


def heavy_draw(rng: np.random.Generator) -> Params:
    return {"a": rng.normal(0.0, 1.0), "b": rng.normal(0.0, 1.0), "sigma": rng.lognormal(0.0, 0.5)}


def heavy_rows(rng: np.random.Generator, params: Params) -> Data:
    x = rng.normal(size=ROWS)
    y = params["a"] + params["b"] * x + params["sigma"] * rng.standard_t(DEGREES, ROWS)
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def heavy_lik(params: Params, batch: Any) -> Any:
    return StudentT(DEGREES, params["a"] + params["b"] * batch["x"], params["sigma"]).log_prob(batch["y"])


def heavy_prior(params: Params) -> Any:
    lines = Normal(0.0, 1.0).log_prob(params["a"]) + Normal(0.0, 1.0).log_prob(params["b"])
    return lines + LogNormal(0.0, 0.5).log_prob(params["sigma"])


def exposed_draw(rng: np.random.Generator) -> Params:
    return {"a": rng.normal(-1.0, 0.5), "beta": rng.normal(0.0, 0.3, 2)}


def exposed_rows(rng: np.random.Generator, params: Params) -> Data:
    X, exposure = rng.normal(size=(ROWS, 2)), rng.gamma(2.0, 0.5, ROWS)
    y = rng.poisson(exposure * np.exp(params["a"] + X @ params["beta"]))
    return {name: array.astype(np.float32) for name, array in {"X": X, "exposure": exposure, "y": y}.items()}


def exposed_lik(params: Params, batch: Any) -> Any:
    return Poisson(batch["exposure"] * jnp.exp(params["a"] + batch["X"] @ params["beta"])).log_prob(batch["y"])


def exposed_prior(params: Params) -> Any:
    return Normal(-1.0, 0.5).log_prob(params["a"]) + Normal(0.0, 0.3).log_prob(params["beta"]).sum()


def exposed_seen(params: Params) -> dict[str, Any]:
    return {"a": params["a"], **numbers("beta", params["beta"], 2)}


CUTS = 3


def graded_draw(rng: np.random.Generator) -> Params:
    first, gaps = rng.normal(-1.5, 0.5), rng.lognormal(0.0, 0.3, CUTS - 1)
    return {"beta": rng.normal(0.0, 0.5, 2), "cuts": first + np.r_[0.0, np.cumsum(gaps)]}


def graded_rows(rng: np.random.Generator, params: Params) -> Data:
    X = rng.normal(size=(ROWS, 2))
    y = np.searchsorted(params["cuts"], X @ params["beta"] + rng.logistic(size=ROWS))
    return {"X": X.astype(np.float32), "y": y.astype(np.int32)}


def graded_lik(params: Params, batch: Any) -> Any:
    return OrderedLogistic(batch["X"] @ params["beta"], params["cuts"]).log_prob(batch["y"])


def graded_prior(params: Params) -> Any:
    gaps = LogNormal(0.0, 0.3).log_prob(jnp.diff(params["cuts"])).sum()
    return Normal(0.0, 0.5).log_prob(params["beta"]).sum() + Normal(-1.5, 0.5).log_prob(params["cuts"][0]) + gaps


def graded_seen(params: Params) -> dict[str, Any]:
    return numbers("beta", params["beta"], 2) | numbers("cuts", params["cuts"], CUTS)


MODELS: dict[str, Model] = {
    "logistic, a rare level": Model(
        rare_draw, rare_rows, rare_lik, rare_prior, {"a": 0.0, "b": 0.0, "level": np.zeros(len(LEVELS) - 1)}, rare_seen
    ),
    "hierarchy, centred": Model(
        groups_draw, groups_rows, groups_lik, groups_prior, {"beta": 0.0, "mu": 0.0, "tau": 1.0, "u": np.zeros(GROUPS)},
        groups_seen, {"tau": constraints.positive}, has_mode=False,
    ),
    "Student-t, unknown scale": Model(
        heavy_draw, heavy_rows, heavy_lik, heavy_prior, {"a": 0.0, "b": 0.0, "sigma": 1.0}, dict, {"sigma": constraints.positive}
    ),
    "Poisson with exposure": Model(
        exposed_draw, exposed_rows, exposed_lik, exposed_prior, {"a": 0.0, "beta": np.zeros(2)}, exposed_seen
    ),
    "ordinal": Model(
        graded_draw, graded_rows, graded_lik, graded_prior, {"beta": np.zeros(2), "cuts": np.arange(-1.0, CUTS - 1.0)},
        graded_seen, {"cuts": constraints.ordered_vector},
    ),
}  # fmt: skip
