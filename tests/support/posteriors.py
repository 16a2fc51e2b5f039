"""The posteriors of the benchmarks' cases, as their users wrote them."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np


def log_posterior(case, theta):
    """What the user wrote, with the change of variables: the target must be this and a constant."""
    params = case.target.parameters(theta)

    def flat(theta):
        return jnp.concatenate([jnp.ravel(value) for value in case.target.parameters(theta).values()])

    volume = jnp.linalg.slogdet(jax.jacobian(flat)(theta))[1]
    return jnp.sum(case.log_lik(params, case.data)) + case.log_prior(params) + volume


def in_doubles(case):
    data = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in case.data.items()}
    return replace(case, data=data)
