"""NumPyro's NUTS on all rows of covertype until its time is up: one chain, float32, data as arguments of what is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.auto.covertype import NUMBERS, data, start, survey_gradients, surveyed, together
from benchmarks.auto.watched import Watched
from benchmarks.common.stages import Stages, say

WARM_UP, SHORT_WARM_UP = 300, 50


def by_nuts(budget: float, given: bool) -> dict[str, Any]:
    """`given`: it starts at the mode, in variables in which the posterior is near a unit ball, from the survey of `sample`."""
    rows = data()
    import jax
    import jax.numpy as jnp
    from numpyro.infer import NUTS

    chain = Watched("NUTS", budget, SHORT_WARM_UP if given else WARM_UP)
    arguments: tuple[Any, ...] = tuple(jnp.asarray(array) for array in rows.values())
    stages = Stages("NUTS")
    if given:
        survey = surveyed(rows, stages)
        arguments, chain.work = (*arguments, survey.whitening), survey_gradients(stages, survey.passes, len(rows["y"]))
        kernel, first = NUTS(_whitened_model, adapt_mass_matrix=False), {"z": jnp.zeros(NUMBERS)}
    else:
        kernel, first = NUTS(_plain_model), jax.tree.map(jnp.asarray, start())
    say("NUTS: compiling")
    state = kernel.init(jax.random.key(1), chain.warm_up, first, model_args=arguments)
    step = jax.jit(lambda state, *arguments: kernel.sample(state, arguments, {}))
    steps = []
    while not chain.over:
        state = step(state, *arguments)
        steps.append(int(state.num_steps))
        chain.add(_parameters(state.z, *arguments[2:]), steps[-1] * len(rows["y"]))
    per_gradient = (chain.times[-1] - chain.times[0]) / max(1, sum(steps[1:]))
    return {"path": chain.path, "warm_up": chain.warm_up, "steps": steps, "seconds_per_gradient": per_gradient}


def _parameters(z: dict[str, Any], whitening: Any = None) -> np.ndarray:
    params = z if whitening is None else whitening.leave(z["z"])
    return together(params["bias"], params["beta"]).astype(np.float64)


def _plain_model(X: Any, y: Any) -> None:
    import numpyro
    import numpyro.distributions as dist

    bias = numpyro.sample("bias", dist.Laplace(0.0, 1.0))
    beta = numpyro.sample("beta", dist.Laplace(0.0, 1.0).expand([NUMBERS - 1]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=bias + X @ beta), obs=y)


def _whitened_model(X: Any, y: Any, whitening: Any) -> None:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from reproduction.models import logistic_regression as model

    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (NUMBERS,)))
    params = whitening.leave(z)
    numpyro.factor("posterior", jnp.sum(model.log_lik(params, {"X": X, "y": y})) + model.log_prior(params))
