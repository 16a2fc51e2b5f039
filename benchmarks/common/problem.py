"""The job every benchmark does: logistic regression of the shape of covertype, in minibatches of 500 rows.

JAX is imported inside functions: the cold start benchmark loads its data before its clock, and JAX's import, begin.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

BUILD = Path(__file__).parents[1] / "build"

ROWS = 571_012
COLUMNS = 54
MINIBATCH = 500
ITERATIONS = 10_000
STEPSIZE = 5e-6
FEATURE_RANGE = 0.25  # keeps the step size from overshooting, as the features of covertype do

Dataset = dict[str, np.ndarray]


def log_lik(params: Any, batch: Any) -> Any:
    import jax.numpy as jnp

    z = (params["bias"] + batch["X"] @ params["beta"]).squeeze()
    return (batch["y"] * z - jnp.logaddexp(0.0, z)).sum()


def log_prior(params: Any) -> Any:
    import jax.numpy as jnp

    return -(jnp.abs(params["beta"]).sum() + jnp.abs(params["bias"]).sum())


def start() -> dict[str, Any]:
    return {"bias": 0.0, "beta": np.zeros((COLUMNS, 1))}


def stepsize(n_rows: int) -> float:
    """The step size that is as stable for `n_rows` as `STEPSIZE` is for covertype."""
    return STEPSIZE * ROWS / n_rows


def arguments(data: Dataset) -> tuple[Any, ...]:
    """What `sgld` and its siblings take first."""
    return log_lik, data, start(), stepsize(len(data["y"]))


def options(rows: str = "random") -> dict[str, Any]:
    return {"log_prior": log_prior, "minibatch_size": MINIBATCH, "rows": rows}


def synthetic(n_rows: int) -> Dataset:
    """Made in place: the peak is the array itself and a few vectors of labels."""
    random = np.random.default_rng(1)
    X, beta = np.empty((n_rows, COLUMNS), np.float32), random.normal(size=COLUMNS).astype(np.float32)
    random.random(dtype=np.float32, out=X)
    X *= FEATURE_RANGE
    probability = 1 / (1 + np.exp(-(X @ beta)))
    return {"X": X, "y": (random.random(n_rows, np.float32) < probability).astype(np.float32)}


def covertype() -> Path | None:
    """The real covertype as an .npz file, made once from the folder named by SGMCMC_DATA; None where that is not there."""
    source = Path(os.environ.get("SGMCMC_DATA", "")) / "covtype.data.gz"
    if "SGMCMC_DATA" not in os.environ or not source.exists():
        return None
    target = BUILD / "covertype.npz"
    if not target.exists():
        import pandas as pd

        raw = pd.read_csv(source, header=None, dtype=np.int16).to_numpy()
        X = raw[:, :COLUMNS].astype(np.float64)
        X = (X - X.min(0)) / (X.max(0) - X.min(0))
        np.savez(target, X=X.astype(np.float32), y=(raw[:, COLUMNS] == 2).astype(np.float32))
    return target
