"""NumPyro models: the posterior of `sample` beside that of NumPyro's own NUTS on the model as it was written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro_models import BIG, Whole

import sgmcmc

FARTHEST, WIDEST = 0.15, 0.10
"""How far means may be from those of NUTS, in its sds, and sds, as a part of them."""


def by_nuts(case, names):
    """Draws of NumPyro's own NUTS on all rows, of the parameters and of what follows from them."""
    runs = MCMC(
        NUTS(Whole(case.model)), num_warmup=1000, num_samples=4000, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    runs.run(jax.random.key(0), **{name: jnp.asarray(values) for name, values in case.data.items()}, **case.static)
    return {name: np.asarray(draws) for name, draws in runs.get_samples().items() if name in names}


def apart(fit, reference):
    """The farthest mean, and sd, over all numbers."""
    means, sds = [], []
    for name, theirs in reference.items():
        mine = np.asarray(fit[name]).reshape(-1, *theirs.shape[1:])
        moving = theirs.std(axis=0) > 1e-6  # a Cholesky factor has numbers that are fixed
        sd = theirs.std(axis=0)[moving]
        means.append(np.abs(mine.mean(axis=0) - theirs.mean(axis=0))[moving] / sd)
        sds.append(np.abs(mine.std(axis=0)[moving] / sd - 1))
    return max(np.max(one) for one in means), max(np.max(one) for one in sds)


@pytest.mark.slow
@pytest.mark.parametrize("name", BIG)
def test_posteriors_are_those_of_nuts(name):
    case = BIG[name]
    model = sgmcmc.from_numpyro(case.model, case.data, static=case.static)
    reference = by_nuts(case, model.params)
    fit = sgmcmc.sample(model, seed=1, engine="sgmcmc", target_ess=2000, progress=False)
    mean, sd = apart(fit, reference)
    print(f"{name}: means within {mean:.3f} sd, sds within {sd:.1%}, {fit.settings['engine']}")
    assert mean < FARTHEST
    assert sd < WIDEST
    shifted = {name: draws + 0.3 * draws.std(axis=0) for name, draws in reference.items()}
    assert apart(fit, shifted)[0] > FARTHEST  # the control
