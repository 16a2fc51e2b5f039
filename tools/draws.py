"""Ten runs, written to a file or compared with one: whether another version of the library makes the same draws, bit for bit.

python tools/draws.py before.npz             # with the one version installed
python tools/draws.py before.npz --compare   # with the other
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc

RNG = np.random.default_rng(20)
X = RNG.standard_normal((20_000, 4)).astype(np.float32)
Y = RNG.random(20_000) < 1 / (1 + np.exp(-(X @ np.array([0.5, -1.0, 0.0, 0.25]))))
DATA = {"X": X, "y": Y}
START = {"beta": np.zeros(4), "bias": 0.0}


def log_lik(params: Any, batch: Any) -> jax.Array:
    eta = batch["X"] @ params["beta"] + params["bias"]
    return jax.nn.log_sigmoid(jnp.where(batch["y"], eta, -eta)).sum()


def log_prior(params: Any) -> jax.Array:
    return -0.5 * (params["beta"] ** 2).sum() - 0.5 * params["bias"] ** 2


def runs() -> Iterator[tuple[str, sgmcmc.Result]]:
    told = {"log_prior": log_prior, "minibatch_size": 200, "seed": 3, "n_iters": 1500, "progress": False}
    for name, step in (("sgld", 1e-4), ("sghmc", 2e-5), ("sgnht", 1e-5), ("sgldcv", 1e-4), ("sghmccv", 2e-5), ("sgnhtcv", 1e-5)):
        yield name, getattr(sgmcmc, name)(log_lik, DATA, START, step, **told)
    fisher = {"precondition": "laplace", "rows": "importance", "noise_estimate": "fisher", "burn_in": 1000}
    yield "baoacv", sgmcmc.baoacv(log_lik, DATA, START, 0.3, **(told | fisher))
    yield "sample", sgmcmc.sample(log_lik, DATA, START, log_prior=log_prior, draws=500, seed=3, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        rows = sgmcmc.data.convert(DATA, f"{folder}/rows", progress=False)
        checkpoint = {"rows": "window", "checkpoint": f"{folder}/run"}
        yield "folder", sgmcmc.sgldcv(log_lik, rows.path, START, 1e-4, **(told | checkpoint))
    yield "two chains", sgmcmc.sgld(log_lik, DATA, START, lambda t: 1e-4 * (1 + t) ** -0.3, **(told | {"n_chains": 2}))


def main() -> None:
    path, compare = sys.argv[1], "--compare" in sys.argv
    made = {}
    for name, result in runs():
        for parameter in START:
            made[f"{name}: {parameter}"] = np.asarray(result[parameter])
    if not compare:
        np.savez(path, **made)
        print(f"{len(made)} arrays of {sgmcmc.__version__} written")
        return
    with np.load(path) as before:
        wrong = [name for name, draws in made.items() if not np.array_equal(draws, before[name])]
        print(f"{len(made)} arrays compared, {len(made) - len(wrong)} bit for bit the same")
    sys.exit(f"different: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
