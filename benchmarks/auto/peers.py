"""What one would pick instead on covertype, each as its own documentation shows it, until its time is up.

One chain each, float32. The minibatch methods begin at the mode that the survey of `sample` finds, with its seconds counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.auto.covertype import NUMBERS, data, start, survey_gradients, surveyed, together
from benchmarks.auto.watched import Watched
from benchmarks.common.stages import Stages, say

SUBSAMPLE, BLOCKS, ECS_WARM_UP = 1_000, 100, 300
GUIDE_ROWS, GUIDE_STEP, GUIDE_TOGETHER = 2_000, 1e-2, 200
WINDOW_WARM_UP, MCLMC_TOGETHER, TUNING_SHARE = 300, 20, 0.3


def _subsampled_model(X: Any, y: Any, rows: int) -> None:
    import numpyro
    import numpyro.distributions as dist

    bias = numpyro.sample("bias", dist.Laplace(0.0, 1.0))
    beta = numpyro.sample("beta", dist.Laplace(0.0, 1.0).expand([NUMBERS - 1]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=rows):
        some, label = numpyro.subsample(X, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=bias + some @ beta), obs=label)


def by_ecs(budget: float) -> dict[str, Any]:
    """NumPyro's HMCECS: energy conserving subsampling with a Taylor proxy at the mode."""
    rows, stages = data(), Stages("HMCECS")
    import jax
    import jax.numpy as jnp
    from numpyro.infer import HMCECS, NUTS

    chain = Watched("HMCECS", budget, ECS_WARM_UP)
    survey = surveyed(rows, stages)
    mode = {name: jnp.asarray(value) for name, value in survey.centre.position.items()}
    chain.work = survey_gradients(stages, survey.passes, len(rows["y"]))
    kernel = HMCECS(NUTS(_subsampled_model), num_blocks=BLOCKS, proxy=HMCECS.taylor_proxy(mode))
    arguments = (jnp.asarray(rows["X"]), jnp.asarray(rows["y"]), SUBSAMPLE)
    say("HMCECS: compiling")
    state = kernel.init(jax.random.key(1), chain.warm_up, mode, arguments, {})
    step = jax.jit(lambda state: kernel.sample(state, arguments, {}))
    while not chain.over:
        state = step(state)
        chain.add(_together(state.z), int(state.hmc_state.num_steps) * SUBSAMPLE)
    return {"path": chain.path, "warm_up": chain.warm_up}


def by_guide(budget: float) -> dict[str, Any]:
    """NumPyro's SVI: a normal law with all correlations, by Adam on minibatches."""
    rows = data()
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    chain, steps = Watched("SVI", budget, 0), 0
    guide = AutoMultivariateNormal(_subsampled_model, init_scale=0.01)
    svi = SVI(_subsampled_model, guide, numpyro.optim.Adam(GUIDE_STEP), Trace_ELBO())
    arguments = (jnp.asarray(rows["X"]), jnp.asarray(rows["y"]), GUIDE_ROWS)
    state = svi.init(jax.random.key(1), *arguments)
    several = jax.jit(lambda state: jax.lax.fori_loop(0, GUIDE_TOGETHER, lambda _, s: svi.update(s, *arguments)[0], state))
    places = guide._unpack_latent(jnp.arange(float(NUMBERS)))
    order = together(places["bias"], places["beta"]).astype(int)

    def found() -> tuple[np.ndarray, np.ndarray]:
        law = guide.get_posterior(svi.get_params(state))
        return np.asarray(law.mean, np.float64)[order], np.sqrt(np.asarray(law.variance, np.float64))[order]

    while not chain.over:
        state, steps = jax.block_until_ready(several(state)), steps + GUIDE_TOGETHER
        chain.went_on(steps, GUIDE_TOGETHER * GUIDE_ROWS, found)
    return {"path": chain.path, "warm_up": 0}


def by_mclmc(budget: float) -> dict[str, Any]:
    """BlackJAX's MCLMC on all rows: tuned in a third of its time, as its documentation does it."""
    rows = data()
    import blackjax
    import jax

    chain = Watched("MCLMC", budget, 0)
    density, first, passes = _on_all_rows(rows)
    seconds = _seconds_of(jax.jit(jax.value_and_grad(density)), first)
    tuning = max(20, int(TUNING_SHARE * budget / (2 * seconds)))
    state = blackjax.mcmc.mclmc.init(first, density, jax.random.key(1))
    kernel = blackjax.mcmc.mclmc.build_kernel()
    say(f"MCLMC: tuning in {tuning} steps")
    state, found, _ = blackjax.mclmc_find_L_and_step_size(kernel, tuning, state, jax.random.key(2), logdensity_fn=density)
    algorithm = blackjax.mclmc(density, L=found.L, step_size=found.step_size, inverse_mass_matrix=found.inverse_mass_matrix)
    chain.work += 2 * tuning * passes

    @jax.jit
    def several(state: Any, key: Any) -> Any:
        def one(state: Any, key: Any) -> tuple[Any, Any]:
            state, _ = algorithm.step(key, state)
            return state, state.position

        return jax.lax.scan(one, state, jax.random.split(key, MCLMC_TOGETHER))

    key = jax.random.key(3)
    while not chain.over:
        key, own = jax.random.split(key)
        state, positions = several(state, own)
        chain.add(_together(positions), 2 * MCLMC_TOGETHER * passes)
    return {"path": chain.path, "warm_up": tuning}


def by_window_adaptation(budget: float) -> dict[str, Any]:
    """BlackJAX's NUTS on all rows after its window adaptation, which cannot be looked into: it may take longer than its time."""
    rows = data()
    import blackjax
    import jax

    chain = Watched("window adaptation", budget, 0)
    density, first, passes = _on_all_rows(rows)
    adapted, _ = blackjax.window_adaptation(blackjax.nuts, density).run(jax.random.key(1), first, WINDOW_WARM_UP)
    step = jax.jit(blackjax.nuts(density, **adapted.parameters).step)
    state, key = adapted.state, jax.random.key(2)
    while not chain.over:
        key, own = jax.random.split(key)
        state, about = step(own, state)
        chain.add(_together(state.position), int(about.num_integration_steps) * passes)
    return {"path": chain.path, "warm_up": WINDOW_WARM_UP}


def _on_all_rows(rows: dict[str, np.ndarray]) -> tuple[Callable[[Any], Any], dict[str, Any], int]:
    """The log posterior, where it starts, and the rows of one gradient."""
    import jax
    import jax.numpy as jnp

    from reproduction.models import logistic_regression as model

    on_device = jax.tree.map(jnp.asarray, rows)
    density = lambda params: jnp.sum(model.log_lik(params, on_device)) + model.log_prior(params)  # noqa: E731
    return density, jax.tree.map(lambda x: jnp.asarray(x, float), start()), len(rows["y"])


def _seconds_of(function: Callable[..., Any], argument: Any) -> float:
    import jax

    jax.block_until_ready(function(argument))
    clock = time.perf_counter()
    jax.block_until_ready(function(argument))
    return time.perf_counter() - clock


def _together(params: dict[str, Any]) -> np.ndarray:
    return together(params["bias"], params["beta"]).astype(np.float64)


def by(name: str, budget: float) -> dict[str, Any]:
    """By its name in the table."""
    return PEERS[name](budget)


PEERS: dict[str, Callable[[float], dict[str, Any]]] = {
    "NumPyro HMCECS, Taylor proxy, given the mode": by_ecs,
    "NumPyro SVI, normal of full rank": by_guide,
    "BlackJAX MCLMC, all rows": by_mclmc,
    "BlackJAX NUTS, window adaptation, all rows": by_window_adaptation,
}
