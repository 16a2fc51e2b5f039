"""The table of models: its targets are the users' posteriors, its Gibbs steps draw from them, and it says what it found."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from posteriors import in_doubles, log_posterior

from benchmarks.models.everything import build, names


@pytest.mark.parametrize("name", names(small=True))
def test_the_target_is_the_posterior_of_the_model(name, x64):
    case = in_doubles(build(name, 1))
    one, other = (jnp.asarray(0.2 * np.random.default_rng(i).normal(size=case.target.size)) for i in (1, 2))
    theirs = log_posterior(case, one) - log_posterior(case, other)
    ours = case.target.density(one, case.target.rows) - case.target.density(other, case.target.rows)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)
