"""Make the references of the four regressions again: `python references/make.py`, a minute or three.

Linear regression is exact. The others are NumPyro's NUTS on all rows, in double precision, of models written a second time in
NumPyro's own language, so that a slip in `models.py` would show as a difference. That of covertype took 70,000 full gradients
and is not made here: see README.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from estimates import FOLDER, Estimate, estimated, exact
from numpyro.infer import MCMC, NUTS

from models import COLUMNS, FREEDOM, PRIOR_SD, PROBLEMS, Problem, linear_posterior

CHAINS, WARM_UP, DRAWS, SEED = 4, 1_000, 10_000, 1
DIGITS = 7


def regression(X: jax.Array, y: jax.Array, law: Callable[[jax.Array], dist.Distribution]) -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, PRIOR_SD).expand([COLUMNS]).to_event(1))
    numpyro.sample("y", law(X @ beta), obs=y)


def logistic(X: jax.Array, y: jax.Array) -> None:
    regression(X, y, lambda eta: dist.Bernoulli(logits=eta))


def poisson(X: jax.Array, y: jax.Array) -> None:
    regression(X, y, lambda eta: dist.Poisson(jnp.exp(eta)))


def robust(X: jax.Array, y: jax.Array) -> None:
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    regression(X, y, lambda eta: dist.StudentT(FREEDOM, eta, sigma))


MODELS = {"logistic": logistic, "poisson": poisson, "robust": robust}


def by_nuts(problem: Problem, progress: bool) -> tuple[Estimate, str]:
    """Long enough for standard errors of the sds well below 1 %."""
    data = {name: jnp.asarray(array, jnp.float64) for name, array in problem.data().items()}
    chains = MCMC(
        NUTS(MODELS[problem.name]), num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS,
        chain_method="vectorized", progress_bar=progress,
    )  # fmt: skip
    chains.run(jax.random.key(SEED), **data)
    divergences = int(np.sum(chains.get_extra_fields()["diverging"]))
    assert divergences == 0, f"{divergences} divergent transitions: not a reference"
    method = (
        f"NumPyro {numpyro.__version__}, NUTS on all {len(data['y']):,} rows in float64, seed {SEED}: {CHAINS} chains of "
        f"{DRAWS:,} draws after {WARM_UP:,} of warm-up, no divergent transitions; errors by ArviZ"
    )
    return estimated(problem.numbers(chains.get_samples(group_by_chain=True))), method


def made(problem: Problem, progress: bool) -> dict[str, Any]:
    """The content of a reference file."""
    if problem.name == "linear":
        estimate, method = exact(*linear_posterior()), "exact: the posterior is normal, and this is its closed form in float64"
    else:
        estimate, method = by_nuts(problem, progress)
    return {
        "model": problem.about,
        "data": f"references/models.py, {problem.data.__name__}()",
        "origin": "python references/make.py",
        "method": method,
        "order": problem.order,
        "mean": numbers(estimate.mean),
        "sd": numbers(estimate.sd),
        "mcse_mean": numbers(estimate.mcse_mean),
        "mcse_sd": numbers(estimate.mcse_sd),
        "ess": None if np.isinf(estimate.ess).all() else numbers(estimate.ess),
    }


def numbers(array: np.ndarray) -> list[float]:
    return [float(f"{x:.{DIGITS}g}") for x in array]


def as_text(content: dict[str, Any]) -> str:
    """JSON with a line for each key."""
    lines = (f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(PROBLEMS), metavar="NAME", help=" ".join(PROBLEMS))
    parser.add_argument("--quiet", action="store_true", help="no bars")
    chosen = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in chosen.names:
        content = made(PROBLEMS[name], not chosen.quiet)
        (FOLDER / f"{name}.json").write_text(as_text(content))
        worst = max(error / sd for error, sd in zip(content["mcse_sd"], content["sd"], strict=True))
        print(f"{name}.json: largest standard error of an sd {worst:.2%} of it")


if __name__ == "__main__":
    main()
