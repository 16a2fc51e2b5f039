"""`sample` on a case, and plain NUTS beside it: each in a process of its own, in float32, on the clock."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.everyday.cases import Case, Predictions, together
from benchmarks.everyday.reference import moments

DRAWS, CHAINS, WARM_UP = 2_500, 4, 1_000
HERE = "benchmarks.everyday.everything"
"""The module whose `build` makes a case from name and seed, where no other is given."""

PREDICTED = 400
"""Draws that predictions are averaged over."""


def fitted(name: str, seed: int, where: str = HERE) -> dict[str, Any]:
    """What `sample` returned, or how it ended, and after how many seconds: from data in memory, compilation included."""
    return outcome(import_module(where).build(name, seed), seed)


def outcome(case: Case, seed: int) -> dict[str, Any]:
    import sgmcmc

    warnings.simplefilter("ignore", sgmcmc.SgmcmcWarning)
    clock = time.perf_counter()
    try:
        fit = sgmcmc.sample(
            case.log_lik, case.data, case.start, log_prior=case.log_prior, constraints=case.constraints, seed=seed, progress=False
        )
        kinds = list(fit.health().kinds)
    except Exception as error:
        refused = isinstance(error, sgmcmc.SgmcmcError)
        message = f"{type(error).__name__}: {error}"
        return {"outcome": "refused" if refused else "crashed", "message": message, "seconds": time.perf_counter() - clock}
    seconds = time.perf_counter() - clock
    return {"outcome": "draws", "seconds": seconds, "engine": engine(fit), "kinds": kinds, **seen(case, fit)}


def seen(case: Case, fit: Any) -> dict[str, Any]:
    """Of the draws: moments, or the error of predictions."""
    if case.predictions is not None:
        return {"rmse": prediction_error(case.predictions, dict(fit))}
    return moments(together(case.seen({name: np.asarray(draws, np.float64) for name, draws in fit.items()})))


def prediction_error(predictions: Predictions, draws: dict[str, Any]) -> float:
    """Of the mean over draws from all chains, in sds of the noise."""
    import jax

    flat = {name: np.asarray(values).reshape(-1, *np.shape(values)[2:]) for name, values in draws.items()}
    total = len(next(iter(flat.values())))
    some = {name: values[:: max(1, total // PREDICTED)] for name, values in flat.items()}
    mean = jax.vmap(predictions.predict, in_axes=(0, None))(some, predictions.inputs).mean(axis=0)
    return float(np.sqrt(np.mean((np.asarray(mean) - predictions.answers) ** 2)) / predictions.noise)


def engine(fit: Any) -> str:
    """As the fit tells it."""
    name = fit.decisions.get("engine", fit.settings.get("engine", "sgmcmc"))
    return f"{name}, fallback" if "fallback" in fit.decisions else str(name)


def plain_nuts(name: str, seed: int, where: str = HERE, draws: int = DRAWS) -> dict[str, Any]:
    """NumPyro's NUTS on the same functions from the same start, vectorised chains: moments, and seconds with compilation."""
    case = import_module(where).build(name, seed)
    from numpyro.infer import MCMC, NUTS, init_to_value

    clock = time.perf_counter()
    import jax
    import jax.numpy as jnp

    options = {"num_chains": CHAINS, "chain_method": "vectorized", "progress_bar": False, "jit_model_args": True}
    kernel = NUTS(as_numpyro(case), init_strategy=init_to_value(values=jax.tree.map(jnp.asarray, case.start)))
    mcmc = MCMC(kernel, num_warmup=WARM_UP, num_samples=draws, **options)
    mcmc.run(jax.random.key(seed), {name: jnp.asarray(array) for name, array in case.data.items()})
    found = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - clock
    return {"seconds": seconds, **seen(case, found)}


def as_numpyro(case: Case) -> Callable[[Any], None]:
    """A NumPyro model of the user's two functions, with the data as its argument."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def flat(name: str) -> Any:
        """Everywhere within the constraint."""
        shape, support = np.shape(case.start[name]), (case.constraints or {}).get(name, dist.constraints.real)
        if support.event_dim:
            return dist.ImproperUniform(support, (), shape)
        return dist.ImproperUniform(support, (), ()).expand(shape).to_event()

    def model(data: Any) -> None:
        params = {name: numpyro.sample(name, flat(name)) for name in case.start}
        prior = 0.0 if case.log_prior is None else case.log_prior(params)
        numpyro.factor("posterior", jnp.sum(case.log_lik(params, data)) + prior)

    return model
