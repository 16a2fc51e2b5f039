"""NumPyro's NUTS on all rows of covertype until its time is up: one chain, float32, data as arguments of what is compiled."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.auto.covertype import NUMBERS, Estimate, data, errors, start, survey_gradients, surveyed, together
from benchmarks.common.stages import Stages, say

WARM_UP, SHORT_WARM_UP = 300, 50
LOOKS = (1 / 8, 1 / 4, 1 / 2, 1)
"""Parts of its time after which the draws are looked at."""


def by_nuts(budget: float, given: bool) -> dict[str, Any]:
    """`given`: it starts at the mode, in variables in which the posterior is near a unit ball, from the survey of `sample`."""
    rows = data()
    import jax
    import jax.numpy as jnp
    from numpyro.infer import NUTS

    clock = time.perf_counter()
    arguments: tuple[Any, ...] = tuple(jnp.asarray(array) for array in rows.values())
    work, stages = 0, Stages("NUTS")
    if given:
        survey = surveyed(rows, stages)
        arguments, work = (*arguments, survey.whitening), survey_gradients(stages, survey.passes, len(rows["y"]))
        kernel, warm_up, first = NUTS(_whitened_model, adapt_mass_matrix=False), SHORT_WARM_UP, {"z": jnp.zeros(NUMBERS)}
    else:
        kernel, warm_up, first = NUTS(_plain_model), WARM_UP, jax.tree.map(jnp.asarray, start())
    say("NUTS: compiling")
    state = kernel.init(jax.random.key(1), warm_up, first, model_args=arguments)
    step = jax.jit(lambda state, *arguments: kernel.sample(state, arguments, {}))
    looks, times, draws, steps, path = [budget * part for part in LOOKS], [], [], [], []
    while looks:
        state = step(state, *arguments)
        steps.append(int(state.num_steps))
        times.append(time.perf_counter() - clock)
        draws.append(_parameters(state.z, *arguments[2:]))
        if times[-1] >= looks[0]:
            looks = [look for look in looks if look > times[-1]]
            path.append(_look(draws, steps, times[-1], warm_up) | {"row_gradients": work + sum(steps) * len(rows["y"])})
    per_gradient = (times[-1] - times[0]) / max(1, sum(steps[1:]))
    return {"path": path, "warm_up": warm_up, "steps": steps, "seconds_per_gradient": per_gradient}


def _look(draws: list[np.ndarray], steps: list[int], seconds: float, warm_up: int) -> dict[str, Any]:
    """Errors so far: of what came after the warm-up, or of the second half as long as that is less."""
    kept = np.array(draws[min(warm_up, len(draws) // 2) :])
    say(f"NUTS: {seconds:.0f} s, {len(draws)} iterations, {sum(steps)} gradients")
    found = Estimate(kept.mean(axis=0), kept.std(axis=0), *np.zeros((3, NUMBERS)))
    return {**errors(found), "seconds": seconds, "iterations": len(draws)}


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
