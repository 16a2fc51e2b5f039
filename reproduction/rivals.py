"""Samplers that look at all the data in every iteration: Stan where it is installed, NumPyro's NUTS."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.trees import LogLik, LogPrior, PyTree

STAN_PROGRAM = """
data { int N; vector[N] x; }
parameters { real theta; }
model { theta ~ normal(0, sqrt(10)); x ~ normal(theta, 1); }
"""

STAN_WITH_A_DISCRETE_PARAMETER = "parameters { int<lower=0, upper=1> z; } model { z ~ bernoulli(0.5); }"


@dataclass(frozen=True)
class Run:
    """Draws, and the seconds that sampling took, with and without compilation."""

    draws: np.ndarray
    seconds: float
    compile_seconds: float


def have_stan() -> bool:
    """Whether Stan is installed: it comes with the extra `reproduction`."""
    return find_spec("stan") is not None


class Stan:
    """The normal-mean model in Stan, through pystan (imported by name: it is an extra)."""

    label = "Stan"

    def compile(self) -> float:
        """Build the program anew, as the article does for every run; the seconds it took."""
        import_module("httpstan.cache").delete_model_directory(self._name)
        clock = time.perf_counter()
        self._build(np.zeros(1), 1)
        return time.perf_counter() - clock

    def sample(self, x: np.ndarray, warm_up: int, draws: int, seed: int) -> Run:
        """One chain on a program built before."""
        for fit in (import_module("httpstan.cache").model_directory(self._name) / "fits").glob("*"):
            fit.unlink()  # pystan remembers fits: a second run would take no time
        clock = time.perf_counter()
        model = self._build(x, seed)
        with _quiet():
            fit = model.sample(num_chains=1, num_warmup=warm_up, num_samples=draws)
        return Run(np.asarray(fit["theta"]).ravel(), time.perf_counter() - clock, 0.0)

    def refuses_discrete(self) -> bool:
        """Whether a program with a discrete parameter is refused."""
        try:
            with _quiet():
                import_module("stan").build(STAN_WITH_A_DISCRETE_PARAMETER)
        except ValueError:
            return True
        return False

    @property
    def _name(self) -> str:
        return import_module("httpstan.models").calculate_model_name(STAN_PROGRAM)

    def _build(self, x: np.ndarray, seed: int) -> Any:
        with _quiet():
            return import_module("stan").build(STAN_PROGRAM, data={"N": len(x), "x": x.tolist()}, random_seed=seed)


class Nuts:
    """The same in NumPyro, for machines without Stan."""

    label = "NUTS (NumPyro)"

    def compile(self) -> float:
        return 0.0  # every run of NumPyro compiles: see sample

    def sample(self, x: np.ndarray, warm_up: int, draws: int, seed: int) -> Run:
        from reproduction.models import normal_mean

        data = {"x": jnp.asarray(x, jnp.float32)}
        run = nuts(
            normal_mean.log_lik, data, {"theta": jnp.zeros((1,))}, normal_mean.log_prior, 1, warm_up, draws, seed, timed=True
        )
        return Run(run.draws["theta"].ravel(), run.seconds, run.compile_seconds)

    def refuses_discrete(self) -> bool:
        import numpyro
        import numpyro.distributions as dist
        from numpyro.infer import MCMC, NUTS

        def model() -> None:
            numpyro.sample("z", dist.Poisson(1.0))

        try:
            MCMC(NUTS(model), num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0))
        except (ValueError, RuntimeError, NotImplementedError):
            return True
        return False


@dataclass(frozen=True)
class NutsRun:
    """Draws by parameter (chains first), gradient evaluations, acceptance, and seconds."""

    draws: dict[str, np.ndarray]
    gradients: int
    acceptance: float
    seconds: float
    compile_seconds: float


def nuts(
    log_lik: LogLik,
    data: dict[str, jax.Array],
    start: PyTree,
    log_prior: LogPrior,
    chains: int,
    warm_up: int,
    draws: int,
    seed: int,
    *,
    timed: bool = False,
) -> NutsRun:
    """NumPyro's NUTS on all of the data. `start` has the chains on its first axis; `timed` runs again with all compiled."""
    from numpyro.infer import MCMC, NUTS

    def minus_log_posterior(params: PyTree) -> jax.Array:
        return -(jnp.sum(log_lik(params, data)) + log_prior(params))

    sampler = MCMC(
        NUTS(potential_fn=minus_log_posterior),
        num_warmup=warm_up,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    first = jax.tree.map(lambda x: x if chains > 1 else x[0], start)
    seconds = []
    for attempt in range(1 + timed):
        clock = time.perf_counter()
        sampler.run(jax.random.key(seed + attempt), init_params=first, extra_fields=("num_steps", "accept_prob"))
        jax.block_until_ready(sampler.get_samples())
        seconds.append(time.perf_counter() - clock)
    fields = sampler.get_extra_fields()
    return NutsRun(
        {name: np.asarray(value) for name, value in sampler.get_samples(group_by_chain=True).items()},
        int(np.sum(fields["num_steps"])),
        float(np.mean(fields["accept_prob"])),
        seconds[-1],
        max(0.0, seconds[0] - seconds[-1]),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """pystan, its compiler and its server write to the terminal, past Python's own streams."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    kept = [os.dup(stream) for stream in (1, 2)]
    with open(os.devnull, "w") as nowhere, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
        try:
            yield
        finally:
            for stream, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, stream)
                os.close(copy)
            logging.disable(level)


def rival() -> Stan | Nuts:
    """Stan where it is installed, else NUTS."""
    return Stan() if have_stan() else Nuts()
