"""NumPyro models: the same log density, minibatches without bias, and refusals in words."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro_models import CASES, N, away_from, log_density_of_all

import sgmcmc

PARTS = np.random.default_rng(1).permutation(N).reshape(6, 4)
"""A partition of the rows into minibatches."""


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CASES)
def test_log_density_and_minibatches_are_exact(name):
    case = CASES[name]
    model = sgmcmc.from_numpyro(case.model, case.data, static=case.static, plate=case.plate)
    params = away_from(model)
    batches = {column: jnp.asarray(values)[PARTS] for column, values in case.data.items()}

    def of_batch(params, rows):
        return model.log_prior(params) + N / 4 * model.log_lik(params, rows).sum()

    def mine(params):
        of_batches = jax.vmap(of_batch, (None, 0))(params, batches)
        return of_batches.mean(), (of_batches, model.log_prior(params) + model.log_lik(params, case.data).sum())

    both = jax.value_and_grad(mine, has_aux=True), jax.value_and_grad(lambda params: log_density_of_all(case, params))
    ((mean, (of_batches, whole)), slope), (value, gradient) = jax.jit(lambda params: [each(params) for each in both])(params)
    assert abs(whole / value - 1) < 1e-12
    assert abs(mean / value - 1) < 1e-12
    assert abs(of_batches - value).max() > 1e-3  # they differ, as minibatches do
    for one, other in zip(jax.tree.leaves(slope), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
