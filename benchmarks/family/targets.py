"""Four posteriors whose moments are known: badly scaled, narrowing, of two modes, and real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

CONDITION, DIMENSIONS = 1e4, 10
NARROW = 9
RIGHT, APART = 0.3, 4.0


@dataclass(frozen=True)
class Target:
    """A posterior, and what its functionals are: means and standard deviations.

    Attributes:
        model: log likelihood, dataset, start and options, as samplers take them.
        look: from draws (a tree, chains and draws in front) to functionals: chain, draw, functional.
        mean, sd: of these.
        minibatch: rows per gradient.
        unit: the smallest variance in the variables that move, to which step sizes are relative.
        rows: row gradients of a chain.
        has_mode: whether control variates may be anchored at one.
    """

    log_lik: Callable[[Any, Any], Any]
    dataset: dict[str, Any]
    params: Any
    look: Callable[[Any], np.ndarray]
    mean: np.ndarray
    sd: np.ndarray
    minibatch: int
    unit: float
    rows: float
    has_mode: bool
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.dataset.values())))


def gaussian() -> Target:
    """Ten means, known with precisions from 1 to 10,000 a row."""
    precision = np.geomspace(1, CONDITION, DIMENSIONS).astype(np.float32)
    rng, n = np.random.default_rng(0), 1000
    x = (rng.normal(size=(n, DIMENSIONS)) / np.sqrt(precision)).astype(np.float32)

    def log_lik(theta, batch):
        return -0.5 * (precision * (batch["x"] - theta) ** 2).sum()

    sd = 1 / np.sqrt(n * precision.astype(float))
    return Target(log_lik, {"x": x}, x.mean(axis=0), np.asarray, x.mean(axis=0), sd, 50, float(sd.min() ** 2), 1e7, True)


def funnel() -> Target:
    """v ~ N(0, 3²), and nine numbers that are N(0, e^v): only v is looked at. Each row is a noisy share of the log density."""

    def log_density(params):
        v, x = params["v"], params["x"]
        return -0.5 * (v / 3) ** 2 - 0.5 * (x**2).sum() * jnp.exp(-v) - 0.5 * NARROW * v

    def look(draws):
        return np.asarray(draws["v"])[..., None]

    params = {"v": 0.0, "x": np.ones(NARROW, np.float32)}
    return shared(log_density, params, look, np.zeros(1), np.full(1, 3.0), noise=0.1)


def mixture() -> Target:
    """Two normals in the plane, 8 standard deviations apart: the one on the right has 0.3 of the mass. Chains begin there."""
    m = np.full(2, APART / np.sqrt(2), np.float32)

    def log_density(theta):
        left, right = -0.5 * ((theta + m) ** 2).sum(), -0.5 * ((theta - m) ** 2).sum()
        return jnp.logaddexp(np.log(1 - RIGHT) + left, np.log(RIGHT) + right)

    def look(draws):
        return (np.asarray(draws) @ m > 0)[..., None].astype(float)

    return shared(log_density, m, look, np.array([RIGHT]), np.array([np.sqrt(RIGHT * (1 - RIGHT))]), noise=0.3)


def shared(log_density: Any, params: Any, look: Any, mean: np.ndarray, sd: np.ndarray, noise: float) -> Target:
    """A density of which 50 rows have a share each; minibatches of 10."""
    share = 1 + noise * np.random.default_rng(1).normal(size=50)
    share = (share / share.sum()).astype(np.float32)

    def log_lik(params, batch):
        return batch["share"].sum() * log_density(params)

    return Target(log_lik, {"share": share}, params, look, mean, sd, 10, 1.0, 4e5, False)


def covertype() -> Target | None:
    """The article's logistic regression, 581,012 rows, whitened by a look at its mode; None without the data."""
    import sgmcmc
    from benchmarks.auto import covertype as real
    from benchmarks.common.problem import log_lik, log_prior
    from references.estimates import load

    try:
        data = real.data()
    except sgmcmc.SgmcmcError:
        return None
    options = {"log_prior": log_prior, "minibatch_size": 500, "progress": False}
    sampler = sgmcmc.baoacv_setup(log_lik, data, real.start(), 0.1, precondition="laplace", **options)
    looked = sampler.init(seed=1, progress=False)
    factor = np.asarray(looked.estimator.whitening.factor, float)
    reference = load(real.REFERENCE)

    def look(draws):
        return np.concatenate([np.asarray(draws["bias"])[..., None], np.asarray(draws["beta"])], axis=-1)

    params = {name: np.asarray(value) for name, value in looked.params.items()}
    options = {"log_prior": log_prior, "precondition": factor @ factor.T}
    mean, sd = np.asarray(reference.mean), np.asarray(reference.sd)
    return Target(log_lik, data, params, look, mean, sd, 500, 1.0, 5e6, True, options)


TARGETS: dict[str, Callable[[], Target | None]] = {
    "Gaussian, condition 10⁴": gaussian, "funnel": funnel, "two modes": mixture, "covertype": covertype,
}  # fmt: skip
