"""Hierarchies as users write them, with data made on the spot."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import BernoulliLogits, HalfNormal, LogNormal, Normal, Poisson

from benchmarks.everyday.cases import Case, Draws
from benchmarks.everyday.models import draws_of
from benchmarks.models import hierarchy_targets as targets
from sgmcmc import constraints

LEVELS = (2, 5, 4, 4, 3)
"""Of five questions: 13 columns of 0 and 1 beside the intercept."""

VALUES = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Of a column along which groups have slopes."""

REWRITING = r"\b(tau|z)\b"
"""What a rightful refusal of effects that are not centred names."""


def answers(rng: np.random.Generator, n: int) -> np.ndarray:
    """Dummy columns, the first level of every question left out."""
    coded = [np.eye(levels)[rng.choice(levels, n, p=rng.dirichlet(np.full(levels, 5.0)))][:, 1:] for levels in LEVELS]
    return np.concatenate(coded, axis=1).astype(np.float32)


def members(rng: np.random.Generator, n: int, groups: int) -> np.ndarray:
    """Groups of unequal sizes: the largest has many times as many rows as the smallest."""
    return rng.choice(groups, n, p=rng.dirichlet(np.full(groups, 4.0))).astype(np.int32)


def intercepts_lik(params: Any, batch: Any) -> Any:
    eta = batch["X"] @ params["beta"] + params["u"][batch["region"]]
    return Poisson(jnp.exp(eta)).log_prob(batch["y"])


def intercepts_prior(params: Any) -> Any:
    scales = HalfNormal(1.0).log_prob(params["tau"]) + Normal(0.0, 2.0).log_prob(params["mu"])
    return (
        scales + Normal(0.0, 1.0).log_prob(params["beta"]).sum() + Normal(params["mu"], params["tau"]).log_prob(params["u"]).sum()
    )


def poisson_intercepts(seed: int, rows: int, groups: int) -> Case:
    """Counts in regions with 13 columns; the regions' intercepts have standard deviation 0.305."""
    rng = np.random.default_rng([seed, 305])
    X, region = answers(rng, rows), members(rng, rows, groups)
    eta = X @ rng.normal(0.0, 0.3, X.shape[1]) + rng.normal(-0.4, 0.305, groups)[region]
    y = rng.poisson(np.exp(eta)).astype(np.float32)
    start = {"beta": np.zeros(X.shape[1]), "mu": 0.0, "tau": 1.0, "u": np.zeros(groups)}
    target = targets.poisson_intercepts_target(X, region, y, groups)
    data, support = {"X": X, "region": region, "y": y}, {"tau": constraints.positive}
    return Case(intercepts_lik, data, start, intercepts_prior, support, target)


def slopes_lik(params: Any, batch: Any) -> Any:
    region = batch["region"]
    eta = batch["X"] @ params["beta"] + params["u"][region] + params["v"][region] * batch["x"]
    return Poisson(jnp.exp(eta)).log_prob(batch["y"])


def groups_prior(params: Any) -> Any:
    """Of intercepts u and slopes v, centred."""
    means = Normal(0.0, 2.0).log_prob(params["mu"]) + Normal(0.0, 1.0).log_prob(params["nu"])
    scales = HalfNormal(1.0).log_prob(params["tau"]) + HalfNormal(1.0).log_prob(params["sigma"])
    intercepts = Normal(params["mu"], params["tau"]).log_prob(params["u"]).sum()
    return means + scales + intercepts + Normal(params["nu"], params["sigma"]).log_prob(params["v"]).sum()


def slopes_prior(params: Any) -> Any:
    return groups_prior(params) + Normal(0.0, 1.0).log_prob(params["beta"]).sum()


def group_start(groups: int) -> dict[str, Any]:
    return {"mu": 0.0, "nu": 0.0, "tau": 1.0, "sigma": 1.0, "u": np.zeros(groups), "v": np.zeros(groups)}


def poisson_slopes(seed: int, rows: int, groups: int) -> Case:
    """The same with slopes of standard deviation 0.2 along a column of five values."""
    rng = np.random.default_rng([seed, 306])
    X, region, x = answers(rng, rows), members(rng, rows, groups), rng.choice(VALUES, rows).astype(np.float32)
    u, v = rng.normal(-0.4, 0.305, groups), rng.normal(0.3, 0.2, groups)
    eta = X @ rng.normal(0.0, 0.3, X.shape[1]) + u[region] + v[region] * x
    y = rng.poisson(np.exp(eta)).astype(np.float32)
    target = targets.poisson_slopes_target(X, x, region, y, groups)
    data, support = {"X": X, "x": x, "region": region, "y": y}, dict.fromkeys(("tau", "sigma"), constraints.positive)
    start = {"beta": np.zeros(X.shape[1]), **group_start(groups)}
    return Case(slopes_lik, data, start, slopes_prior, support, target)


def many_lik(params: Any, batch: Any) -> Any:
    group = batch["group"]
    return Poisson(jnp.exp(params["u"][group] + params["v"][group] * batch["x"])).log_prob(batch["y"])


SEEN_GROUPS = 500


def some_groups(draws: Draws) -> Draws:
    """All of the means and scales, intercepts and slopes of every so manieth group: the moments of all would fill the memory."""
    every = max(1, draws["u"].shape[-1] // SEEN_GROUPS)
    return {name: values[..., ::every] if name in ("u", "v") else values for name, values in draws.items()}


def many_groups(seed: int, rows: int, groups: int) -> Case:
    """Intercepts and slopes of very many groups, of a hundred rows each."""
    rng = np.random.default_rng([seed, 10_000])
    group, x = rng.permutation(np.arange(rows) % groups).astype(np.int32), rng.choice(VALUES, rows).astype(np.float32)
    u, v = rng.normal(0.0, 0.4, groups), rng.normal(0.2, 0.3, groups)
    y = rng.poisson(np.exp(u[group] + v[group] * x)).astype(np.float32)
    target = targets.many_groups_target(x, group, y, groups)
    data, support = {"x": x, "group": group, "y": y}, dict.fromkeys(("tau", "sigma"), constraints.positive)
    return Case(many_lik, data, group_start(groups), groups_prior, support, target, seen=some_groups)


def not_centred_lik(params: Any, batch: Any) -> Any:
    eta = params["a"] + batch["X"] @ params["beta"] + params["tau"] * params["z"][batch["group"]]
    return BernoulliLogits(eta).log_prob(batch["y"])


def not_centred_prior(params: Any) -> Any:
    scales = HalfNormal(1.0).log_prob(params["tau"]) + Normal(0.0, 2.0).log_prob(params["a"])
    return scales + Normal(0.0, 1.0).log_prob(params["beta"]).sum() + Normal(0.0, 1.0).log_prob(params["z"]).sum()


def logistic_not_centred(seed: int, rows: int, groups: int) -> Case:
    """Intercepts of groups written as tau times z; each group has 250 rows or so, which say much of tau z and little of z."""
    rng = np.random.default_rng([seed, 200])
    group = members(rng, rows, groups)
    X = np.column_stack([rng.choice(VALUES, rows), rng.random(rows) < 0.5, rng.random(rows) < 0.2]).astype(np.float32)
    y = draws_of(rng, -0.8 + X @ np.array([0.6, 0.3, -0.4]) + rng.normal(0.0, 0.5, groups)[group])
    start = {"a": 0.0, "beta": np.zeros(3), "tau": 1.0, "z": np.zeros(groups)}
    target = targets.logistic_intercepts_target(X, group, y, groups)
    data, support = {"X": X, "group": group, "y": y}, {"tau": constraints.positive}
    return Case(not_centred_lik, data, start, not_centred_prior, support, target, naming=REWRITING)


def items_lik(params: Any, batch: Any) -> Any:
    person, item = batch["person"], batch["item"]
    return BernoulliLogits(params["slope"][item] * (params["ability"][person] - params["difficulty"][item])).log_prob(batch["y"])


def items_prior(params: Any) -> Any:
    abilities = Normal(0.0, 1.0).log_prob(params["ability"]).sum()
    items = Normal(0.0, 2.0).log_prob(params["difficulty"]).sum() + LogNormal(0.0, 0.5).log_prob(params["slope"]).sum()
    return abilities + items


def item_response(seed: int, persons: int, items: int) -> Case:
    """Two parameters for each item: difficulty and discrimination. A row is an answer."""
    rng = np.random.default_rng([seed, 40])
    ability, difficulty, slope = rng.normal(size=persons), rng.normal(0.0, 1.0, items), rng.lognormal(0.0, 0.4, items)
    y = draws_of(rng, (slope * (ability[:, None] - difficulty)).ravel())
    person, item = (index.ravel().astype(np.int32) for index in np.indices((persons, items)))
    start = {"ability": np.zeros(persons), "difficulty": np.zeros(items), "slope": np.ones(items)}
    target = targets.item_response_target(y.reshape(persons, items))
    data, support = {"person": person, "item": item, "y": y}, {"slope": constraints.positive}
    naming = r"\b(ability|slope|difficulty)\b"
    return Case(items_lik, data, start, items_prior, support, target, naming=naming)
