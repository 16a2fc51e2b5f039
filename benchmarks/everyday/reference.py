"""Reference posteriors: NumPyro's NUTS on all rows in float64, in variables in which the posterior is near a unit ball.

Kept in files with the hash of target and data in their names, so that each is made once.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.freshly import ROOT
from benchmarks.everyday.cases import Case, Draws, Target, labels, together

FOLDER = ROOT / "build" / "everyday" / "references"
HERE = "benchmarks.everyday.everything"
"""The module whose `build` makes a case from name and seed, where no other is given."""

CHAINS, WARM_UP, BLOCK, BLOCKS = 4, 300, 100, 5
"""Draws are made in blocks, and looked at after so many."""

MOST_CORRELATED = 100
"""Parameters up to which the warm-up learns correlations: of more it would have too few draws."""

ENOUGH, AGREED = 2000.0, 1.01
"""Effective draws behind every mean, half as many behind every sd, and the R-hat to be below."""

OF_NUMBERS = ("mean", "sd", "ess", "ess_of_squares", "kurtosis", "r_hat")
"""What a reference has of every number."""

MOST_SECONDS = 1200.0
"""After which no more draws are made; the reference then says that it is not good."""


def moments(draws: np.ndarray) -> dict[str, Any]:
    """Means and sds of (chain, draw, number), the effective draws behind each, and how heavy the tails are."""
    from sgmcmc.results.diagnostics import autocorrelation_time, mixing

    mean, sd, every = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1)), draws.shape[0] * draws.shape[1]
    squares = ((draws - mean) / np.where(sd > 0, sd, 1.0)) ** 2
    found = {
        "mean": mean,
        "sd": sd,
        "ess": every / autocorrelation_time(draws),
        "ess_of_squares": every / autocorrelation_time(squares),
        "kurtosis": (squares**2).mean(axis=(0, 1)),
        "r_hat": mixing(draws)[1],
    }
    return {name: np.asarray(values).tolist() for name, values in found.items()}


def good(found: Mapping[str, Any], enough: float = ENOUGH) -> bool:
    """Whether there are enough effective draws, and the chains agree."""
    return min(found["ess"]) >= enough and min(found["ess_of_squares"]) >= enough / 2 and max(found["r_hat"]) < AGREED


def mode(log_density: Callable[[Any], Any], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Mode and curvature there: Newton's steps from zero, halved until the density rises."""
    import jax
    import jax.numpy as jnp

    value, gradient = jax.jit(log_density), jax.jit(jax.grad(log_density))
    curvature = jax.jit(lambda at: jax.lax.map(lambda v: jax.jvp(jax.grad(log_density), (at,), (v,))[1], -jnp.eye(size)))
    at = np.zeros(size)
    for _ in range(200):
        precision = positive(np.asarray(curvature(at)))
        step = np.linalg.solve(precision, gradient(at))
        while not value(at + step) >= value(at) and np.abs(step).max() > 1e-12:
            step = step / 2
        at = at + step
        if step @ precision @ step < 1e-12:
            break
    return at, positive(np.asarray(curvature(at)))


def positive(precision: np.ndarray) -> np.ndarray:
    """The same matrix where it is positive definite; where it is not, with curvatures that are."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(precision)), 1e-12))
    values, vectors = np.linalg.eigh(precision * np.outer(scale, scale))
    return (vectors * np.maximum(np.abs(values), 1e-9)) @ vectors.T / np.outer(scale, scale)


def scales(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Centre and factor of the change of variables, theta = centre + factor z: a matrix, or one number for each."""
    if target.whitening is not None:
        return target.whitening(target.rows)
    if target.bowl is None:
        return np.zeros(target.size), np.eye(target.size)
    bowl = target.bowl
    centre, precision = mode(lambda theta: bowl(theta, target.rows), target.size)
    return centre, np.linalg.inv(np.linalg.cholesky(precision)).T


def _model(target: Target, rows: Any, centre: Any, factor: Any) -> None:
    import numpyro
    import numpyro.distributions as dist

    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (target.size,)))
    numpyro.factor("posterior", target.density(centre + (factor @ z if factor.ndim == 2 else factor * z), rows))


def sampled(case: Case, warm_up: int = WARM_UP, enough: float = ENOUGH, most_seconds: float = MOST_SECONDS) -> dict[str, Any]:
    """Moments of the posterior, with more and more draws until they are good."""
    assert case.target is not None
    target, clock, parts = case.target, time.perf_counter(), []
    blocks = by_nuts(target, warm_up) if target.blocks is None else target.blocks(target.rows)
    while True:
        parts += [case.seen(next(blocks)) for _ in range(BLOCKS)]
        seen = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
        found, seconds = moments(together(seen)), time.perf_counter() - clock
        if good(found, enough) or seconds > most_seconds:
            draws = math.prod(np.shape(next(iter(seen.values())))[:2])
            return found | {"names": labels(seen), "draws": draws, "seconds": seconds}


def by_nuts(target: Target, warm_up: int) -> Iterator[Draws]:
    """Blocks of draws of the parameters as the user has them."""
    centre, factor = scales(target)
    for draws in chains(target, centre, factor, warm_up):
        yield target.parameters((draws @ factor.T if factor.ndim == 2 else draws * factor) + centre)


def chains(target: Target, centre: np.ndarray, factor: np.ndarray, warm_up: int) -> Iterator[np.ndarray]:
    """Blocks of draws of all chains, after the warm-up, without end: one compiled program, with the data as its arguments."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import NUTS

    bowl = target.bowl is not None or target.whitening is not None
    warm_up = warm_up if bowl else 5 * warm_up
    dense = bowl and target.size <= MOST_CORRELATED
    kernel = NUTS(partial(_model, target), dense_mass=dense, target_accept_prob=0.85 if bowl else 0.95)
    arguments = jax.tree.map(jnp.asarray, (target.rows, centre, factor))
    first = jax.random.normal(jax.random.key(1), (CHAINS, target.size))
    state = kernel.init(jax.random.split(jax.random.key(2), CHAINS), warm_up, {"z": first}, model_args=arguments)

    @jax.jit
    def block(state: Any, arguments: Any) -> tuple[Any, Any]:
        return jax.lax.scan(lambda state, _: (kernel.sample(state, arguments, {}), state.z["z"]), state, length=BLOCK)

    for _ in range(warm_up // BLOCK):
        state, _ = block(state, arguments)
    while True:
        state, draws = block(state, arguments)
        yield np.swapaxes(np.asarray(draws), 0, 1)


def made(name: str, seed: int, folder: str, where: str = HERE, most_seconds: float = MOST_SECONDS) -> dict[str, Any]:
    """The reference of a case, in a process of its own: double precision from the start."""
    import jax

    jax.config.update("jax_enable_x64", True)
    case: Case = import_module(where).build(name, seed)
    assert case.target is not None
    found = sampled(case, most_seconds=most_seconds)
    Path(folder).mkdir(parents=True, exist_ok=True)
    words = "-".join(re.findall(r"\w+", name))
    (Path(folder) / f"{words}-{seed}-{case.target.key()}.json").write_text(json.dumps(rounded(found)) + "\n")
    return {"seconds": found["seconds"], "good": good(found)}


def rounded(found: Mapping[str, Any]) -> dict[str, Any]:
    """With as many digits as its own error leaves room for."""
    return {name: [float(f"{x:.6g}") for x in value] if name in OF_NUMBERS else value for name, value in found.items()}


def known(case: Case, folder: Path = FOLDER) -> dict[str, Any] | None:
    """The reference of a case, if a good one was made before."""
    files = () if case.target is None else folder.glob(f"*-{case.target.key()}.json")
    every = (json.loads(file.read_text()) for file in files)
    return next(filter(good, every), None)
