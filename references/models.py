"""Four small regressions whose posteriors are known: the models, and data that every machine makes alike.

Data are rounded to float32, so that runs in either precision look at the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

ROWS, COLUMNS = 4_000, 6
CORRELATION, RARE = 0.6, 0.05
PRIOR_SD = 2.5
NOISE_SD = 0.7
FREEDOM = 4.0

Data = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A model, its data and where to start.

    Attributes:
        name: of its file, `<name>.json`.
        about: the model in a sentence.
        log_lik: one value per row.
        log_prior: of the parameters as the user sees them.
        data: makes the rows.
        start: names and shapes of the parameters; references list their numbers in this order.
    """

    name: str
    about: str
    log_lik: Callable[[Any, Any], Any]
    log_prior: Callable[[Any], Any]
    data: Callable[[], Data]
    start: Mapping[str, Any]
    constraints: Mapping[str, Any] | None = None

    def numbers(self, draws: Mapping[str, Any]) -> np.ndarray:
        """Draws of all parameters in one array: chain, draw, number."""
        arrays = [np.asarray(draws[name], np.float64) for name in self.start]
        return np.concatenate([array.reshape(*array.shape[:2], -1) for array in arrays], axis=-1)

    @property
    def order(self) -> list[str]:
        """The numbers' names."""
        return [name + (f"[{i}]" if np.ndim(value) else "") for name, value in self.start.items() for i in range(np.size(value))]


def design(rng: np.random.Generator) -> np.ndarray:
    """A column of ones, correlated columns of different scales, and a rare indicator."""
    inner = COLUMNS - 2
    mixing = np.linalg.cholesky(CORRELATION + (1 - CORRELATION) * np.eye(inner))
    columns = rng.standard_normal((ROWS, inner)) @ mixing.T * np.geomspace(0.3, 3.0, inner)
    return np.column_stack([np.ones(ROWS), columns, rng.random(ROWS) < RARE])


def coefficients(rng: np.random.Generator, X: np.ndarray, size: float) -> np.ndarray:
    """True values, each with an effect of about `size` whatever its column's scale."""
    scale = np.maximum(X.std(axis=0), 0.5)
    return size * rng.standard_normal(COLUMNS) / scale


def rounded(**arrays: np.ndarray) -> Data:
    return {name: np.asarray(array, np.float32) for name, array in arrays.items()}


def normal_prior(params: Any) -> Any:
    """Coefficients N(0, 2.5²)."""
    return -0.5 * jnp.sum((params["beta"] / PRIOR_SD) ** 2)


def linear_data() -> Data:
    rng = np.random.default_rng(11)
    X = design(rng)
    return rounded(X=X, y=X @ coefficients(rng, X, 0.5) + NOISE_SD * rng.standard_normal(ROWS))


def linear_log_lik(params: Any, batch: Any) -> Any:
    return -0.5 * ((batch["y"] - batch["X"] @ params["beta"]) / NOISE_SD) ** 2


def linear_posterior() -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance: this one is normal."""
    data = {name: array.astype(np.float64) for name, array in linear_data().items()}
    precision = data["X"].T @ data["X"] / NOISE_SD**2 + np.eye(COLUMNS) / PRIOR_SD**2
    covariance = np.linalg.inv(precision)
    return covariance @ (data["X"].T @ data["y"]) / NOISE_SD**2, covariance


def logistic_data() -> Data:
    rng = np.random.default_rng(12)
    X = design(rng)
    return rounded(X=X, y=rng.random(ROWS) < 1 / (1 + np.exp(-X @ coefficients(rng, X, 0.7))))


def logistic_log_lik(params: Any, batch: Any) -> Any:
    eta = batch["X"] @ params["beta"]
    return batch["y"] * eta - jnp.logaddexp(0.0, eta)


def poisson_data() -> Data:
    rng = np.random.default_rng(13)
    X = design(rng)
    return rounded(X=X, y=rng.poisson(np.exp(X @ coefficients(rng, X, 0.4))))


def poisson_log_lik(params: Any, batch: Any) -> Any:
    eta = batch["X"] @ params["beta"]
    return batch["y"] * eta - jnp.exp(eta)


def robust_data() -> Data:
    rng = np.random.default_rng(14)
    X = design(rng)
    return rounded(X=X, y=X @ coefficients(rng, X, 0.5) + NOISE_SD * rng.standard_t(FREEDOM, ROWS))


def robust_log_lik(params: Any, batch: Any) -> Any:
    away = (batch["y"] - batch["X"] @ params["beta"]) / params["sigma"]
    return -0.5 * (FREEDOM + 1) * jnp.log1p(away**2 / FREEDOM) - jnp.log(params["sigma"])


def robust_log_prior(params: Any) -> Any:
    """Coefficients N(0, 2.5²), the scale exponential with mean 1."""
    return normal_prior(params) - params["sigma"]


START = {"beta": np.zeros(COLUMNS)}
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("linear", "y ~ N(xβ, 0.7²), β ~ N(0, 2.5²)", linear_log_lik, normal_prior, linear_data, START),
        Problem("logistic", "P(y = 1) = 1/(1 + exp(-xβ)), β ~ N(0, 2.5²)", logistic_log_lik, normal_prior, logistic_data, START),
        Problem("poisson", "y ~ Poisson(exp(xβ)), β ~ N(0, 2.5²)", poisson_log_lik, normal_prior, poisson_data, START),
        Problem(
            "robust",
            "y ~ Student's t, 4 degrees of freedom, at xβ with scale σ; β ~ N(0, 2.5²), σ ~ Exponential(1)",
            robust_log_lik,
            robust_log_prior,
            robust_data,
            START | {"sigma": 1.0},
            {"sigma": constraints.positive},
        ),
    )
}
