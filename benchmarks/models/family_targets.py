"""Other families for the references, in float64: scales, degrees of freedom and concentrations are moved as logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from benchmarks.everyday.cases import Draws, Target
from benchmarks.everyday.targets import exponential_of, softplus
from benchmarks.models.hierarchy_targets import effects, half_normal, normal, parts

Rows = Mapping[str, Any]


def student(theta: Any, rows: Rows) -> Any:
    """Residuals of Student's law with unknown degrees of freedom; these have a gamma prior of shape 2 and rate 0.1."""
    beta, log_nu, log_sigma = parts(theta, rows["X"].shape[1], 1, 1)
    nu, n = jnp.exp(log_nu), len(rows["y"])
    r = (rows["y"] - rows["X"] @ beta) * jnp.exp(-log_sigma)
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - log_nu / 2 - log_sigma
    prior = normal(beta, 2.0) + half_normal(log_sigma, 2.0) + 2 * log_nu - 0.1 * nu
    return n * constant - (nu + 1) / 2 * jnp.sum(jnp.log1p(r**2 / nu)) + prior


def student_target(X: np.ndarray, y: np.ndarray) -> Target:
    rows = {"X": np.asarray(X, np.float64), "y": np.asarray(y, np.float64)}
    shapes: dict[str, tuple[int, ...]] = {"beta": (X.shape[1],), "nu": (), "sigma": ()}
    return Target(student, rows, shapes, student, partial(exponential_of, names=("nu", "sigma")))


def negative_binomial(theta: Any, rows: Rows) -> Any:
    """Counts of mean m and variance m + m²/phi: the gamma functions once for each count that there is."""
    beta, log_phi = parts(theta, rows["X"].shape[1], 1)
    phi, eta = jnp.exp(log_phi), rows["X"] @ beta
    gammas = rows["times"] @ (gammaln(rows["count"] + phi) - gammaln(phi) + phi * log_phi)
    said = rows["events"] @ beta - jnp.sum((rows["y"] + phi) * jnp.log(jnp.exp(eta) + phi))
    return gammas + said + normal(beta, 1.0) + normal(log_phi, 1.0)


def negative_binomial_target(X: np.ndarray, y: np.ndarray) -> Target:
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    count, times = np.unique(y, return_counts=True)
    rows = {"X": X, "y": y, "count": count, "times": times.astype(np.float64), "events": X.T @ y}
    shapes: dict[str, tuple[int, ...]] = {"beta": (X.shape[1],), "phi": ()}
    return Target(negative_binomial, rows, shapes, negative_binomial, partial(exponential_of, names=("phi",)))


def mixture(theta: Any, rows: Rows) -> Any:
    """Of two normal laws: logit of the first one's weight, its mean, the logarithms of the gap and of both scales."""
    logit, first, log_gap, log_one, log_other = theta
    second = first + jnp.exp(log_gap)

    def law(mean: Any, log_scale: Any) -> Any:
        return -(((rows["y"] - mean) * jnp.exp(-log_scale)) ** 2) / 2 - log_scale

    one, other = -softplus(-logit) + law(first, log_one), -softplus(logit) + law(second, log_other)
    weight = -2 * (softplus(logit) + softplus(-logit))
    prior = weight + normal(first, 5.0) + normal(second, 5.0) + log_gap + half_normal(log_one, 2.0) + half_normal(log_other, 2.0)
    return jnp.sum(jnp.logaddexp(one, other)) + prior


def two_laws(split: Draws) -> Draws:
    """Weight, ordered means and scales, as the user has them."""
    first, gap = split["mu"][..., :1], jnp.exp(split["mu"][..., 1:])
    means = jnp.concatenate([first, first + gap], axis=-1)
    return {"weight": jax.nn.sigmoid(split["weight"]), "mu": means, "sigma": jnp.exp(split["sigma"])}


def mixture_target(y: np.ndarray) -> Target:
    shapes: dict[str, tuple[int, ...]] = {"weight": (), "mu": (2,), "sigma": (2,)}
    return Target(mixture, {"y": np.asarray(y, np.float64)}, shapes, mixture, two_laws)


def counties(theta: Any, rows: Rows, bowl: bool = False) -> Any:
    """Normal answers with intercepts of counties about a mean, and a slope."""
    beta, mu, log_sigma, log_tau, u = parts(theta, 1, 1, 1, 1, len(rows["members"]))
    squares = jnp.sum((rows["y"] - u[rows["county"]] - beta * rows["x"]) ** 2)
    said = -squares * jnp.exp(-2 * log_sigma) / 2 - len(rows["y"]) * log_sigma
    prior = normal(beta, 2.0) + normal(mu, 2.0) + half_normal(log_sigma) + half_normal(log_tau)
    return said + prior + effects(u, mu, log_tau, rows["members"] / rows["noise"] if bowl else None)


def counties_target(x: np.ndarray, county: np.ndarray, y: np.ndarray, noise: float, count: int) -> Target:
    """`noise` is about the variance of an answer given its county."""
    members = np.bincount(county, minlength=count).astype(np.float64)
    rows = {"x": np.asarray(x, np.float64), "y": np.asarray(y, np.float64), "county": county}
    rows |= {"members": members, "noise": np.asarray(noise)}
    single = dict.fromkeys(("beta", "mu", "sigma", "tau"), ())
    shapes: dict[str, tuple[int, ...]] = {**single, "u": (count,)}
    return Target(counties, rows, shapes, partial(counties, bowl=True), partial(exponential_of, names=("sigma", "tau")))


def crossed(theta: Any, rows: Rows, bowl: bool = False) -> Any:
    """Trials and events in cells, effects of three crossed groupings about 0."""
    sizes = [len(rows[f"information_{k}"]) for k in range(3)]
    a, beta, log_tau, *every = parts(theta, 1, rows["X"].shape[1], 3, *sizes)
    eta = a + rows["X"] @ beta + sum(u[rows["codes"][:, k]] for k, u in enumerate(every))
    said = jnp.sum(rows["events"] * eta - rows["trials"] * softplus(eta)) + normal(a, 2.0) + normal(beta, 1.0)
    for k, u in enumerate(every):
        said = said + half_normal(log_tau[k]) + effects(u, 0.0, log_tau[k], rows[f"information_{k}"] if bowl else None)
    return said


def crossed_target(X: np.ndarray, codes: dict[str, np.ndarray], y: np.ndarray, sizes: tuple[int, ...]) -> Target:
    cells, which = np.unique(np.column_stack([*codes.values(), X]), axis=0, return_inverse=True)
    trials, chance, count = np.bincount(which.ravel()).astype(np.float64), float(np.mean(y)), len(codes)
    rows = {
        "X": cells[:, count:].astype(np.float64),
        "codes": cells[:, :count].astype(np.int32),
        "trials": trials,
        "events": np.bincount(which.ravel(), y),
    }
    for k, size in enumerate(sizes):
        rows[f"information_{k}"] = np.bincount(rows["codes"][:, k], trials, size) * chance * (1 - chance)
    shapes: dict[str, tuple[int, ...]] = {"a": (), "beta": (X.shape[1],), "tau": (count,)}
    shapes |= {name: (size,) for name, size in zip(codes, sizes, strict=True)}
    return Target(crossed, rows, shapes, partial(crossed, bowl=True), partial(exponential_of, names=("tau",)))
