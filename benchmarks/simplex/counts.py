"""A posterior that is known, Dirichlet(α + counts), with most counts zero."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import sgmcmc
from sgmcmc import constraints

COUNTS = np.array([800, 150, 40, 8, 2, 0, 0, 0, 0, 0])
ALPHA = 0.1
MEAN = (ALPHA + COUNTS) / (ALPHA + COUNTS).sum()
EMPTY = COUNTS == 0


def log_lik(params: Any, batch: Any) -> Any:
    return jnp.log(params["theta"])[batch["category"]].sum()


def log_prior(params: Any) -> Any:
    return (ALPHA - 1) * jnp.log(params["theta"]).sum()


def measured(dynamics: str, stepsize: float, minibatch: int, chains: int = 400) -> dict[str, float]:
    """The posterior mean of categories without an observation over the truth, its standard error, and how far others are off."""
    rows = {"category": np.random.default_rng(0).permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))}
    sampler = sgmcmc.sampler_setup(
        log_lik, rows, {"theta": np.full(len(COUNTS), 1 / len(COUNTS))}, stepsize, dynamics=dynamics, log_prior=log_prior,
        constraints={"theta": constraints.simplex}, minibatch_size=minibatch, progress=False,
    )  # fmt: skip
    span = round(20 / stepsize)
    result = sampler.run(
        sampler.init(seed=1, n_chains=chains, progress=False), 4 * span, burn_in=span, thin=max(1, span // 20), progress=False
    )
    means = np.asarray(result["theta"], np.float64).mean(axis=1)
    empty = means[:, EMPTY].mean(axis=1) / MEAN[EMPTY].mean()
    others = (means[:, ~EMPTY].mean(axis=0) - MEAN[~EMPTY]) / (means[:, ~EMPTY].std(axis=0, ddof=1) / np.sqrt(chains))
    return {"ratio": empty.mean(), "error": empty.std(ddof=1) / np.sqrt(chains), "others": np.abs(others).max()}
