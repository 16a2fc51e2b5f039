"""The posterior of a folder of logistic regression rows to relative order d/N, by passes over it in float64."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks.common.problem import COLUMNS, Dataset

BLOCK = 10_000
SOME_ROWS = 1_000_000
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""For the process that does it: products of such thin matrices take ten times as long with two threads as with one."""

CLOSE = 0.02
"""Posterior standard deviations: a step of Newton's method shorter than this is the last, and leaves an error of its square."""


def log_prior(params: Any) -> Any:
    """N(0, 1) for all numbers: smooth, unlike the prior of `problem`, so that the derivatives tell the posterior."""
    import jax.numpy as jnp

    return -(jnp.sum(params["beta"] ** 2) + jnp.sum(params["bias"] ** 2)) / 2


def exact_posterior(folder: str) -> Iterator[dict[str, Any]]:
    """A job: mean and sd of bias and coefficients.

    The mode by Newton's method, from that of some rows; the mean is the mode moved by the third derivatives,
    ½ H⁻¹ Σ ℓ'''(zᵢ) xᵢ (xᵢᵀ H⁻¹ xᵢ); the covariance is H⁻¹.
    """
    import sgmcmc.data

    begin, rows = time.perf_counter(), sgmcmc.data.open(folder)
    some = [{name: column[: min(SOME_ROWS, rows.n_rows // 10)] for name, column in rows.items()}]
    near, _, _ = newton(lambda: some, np.zeros(1 + COLUMNS))

    def all_rows() -> Iterator[Dataset]:
        for start in range(0, rows.n_rows, BLOCK):
            yield {name: column[start : start + BLOCK] for name, column in rows.items()}

    mode, covariance, skewness = newton(all_rows, near)
    sd = np.sqrt(np.diag(covariance))
    mean = mode + covariance @ skewness / 2
    yield {"mean": mean.tolist(), "sd": sd.tolist(), "seconds": time.perf_counter() - begin}


def newton(passes: Callable[[], Iterable[Dataset]], position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mode, inverse of the negative Hessian there, and Σ ℓ'''(zᵢ) xᵢ (xᵢᵀ H⁻¹ xᵢ)."""
    covariance = np.zeros((len(position), len(position)))
    while True:
        gradient, precision, skewness = derivatives(passes(), position, covariance)
        covariance = np.linalg.inv(precision)
        step = covariance @ gradient
        position = position + step
        if np.max(np.abs(step) / np.sqrt(np.diag(covariance))) < CLOSE:
            return position, covariance, skewness


def derivatives(blocks: Iterable[Dataset], position: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of the log posterior: gradient, negative Hessian, and the third derivatives summed against a covariance."""
    d = len(position)
    gradient, precision, third = -position, np.eye(d), np.zeros(d)
    for rows in blocks:
        X = np.column_stack([np.ones(len(rows["y"])), rows["X"]]).astype(np.float64)
        p = 1 / (1 + np.exp(-(X @ position)))
        weighted = X * (p * (1 - p))[:, None]
        gradient += X.T @ (rows["y"] - p)
        precision += X.T @ weighted
        third -= weighted.T @ ((1 - 2 * p) * np.einsum("ij,ij->i", X @ covariance, X))
    return gradient, precision, third
