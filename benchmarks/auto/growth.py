"""How accuracy, set-up and the cost of a step change with the number of rows: logistic regression, 20 correlated columns.

The truth is the Laplace approximation at the mode, in double precision: exact up to a relative error of order d/N.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common.freshly import freshly
from benchmarks.common.stages import Stages, middle, say
from benchmarks.common.table import spread, table, verdict

COLUMNS, CORRELATION, EFFECT = 20, 0.5, 0.3
BLOCK = 100_000
CHAINS, STEP = 4, 0.49
BAR = 1.3
"""How much more than that of a bare JAX loop the cost of a step may grow."""

Data = dict[str, np.ndarray]


def synthetic(n_rows: int) -> Data:
    """Made in blocks, so that fewer rows are the first of more."""
    beta = EFFECT * np.random.default_rng(1).standard_normal(COLUMNS).astype(np.float32)
    distance = np.abs(np.subtract.outer(np.arange(COLUMNS), np.arange(COLUMNS)))
    mixing = np.linalg.cholesky(CORRELATION**distance).T.astype(np.float32)
    X, y = np.empty((n_rows, COLUMNS), np.float32), np.empty(n_rows, np.float32)
    for number, first in enumerate(range(0, n_rows, BLOCK)):
        random = np.random.default_rng([2, number])
        block = random.standard_normal((BLOCK, COLUMNS), np.float32) @ mixing
        labels = random.random(BLOCK, np.float32) < 1 / (1 + np.exp(-block @ beta))
        X[first : first + BLOCK], y[first : first + BLOCK] = (part[: n_rows - first] for part in (block, labels))
    return {"X": X, "y": y}


def log_lik(params: Any, batch: Any) -> Any:
    import jax.numpy as jnp

    eta = batch["X"] @ params["beta"]
    return batch["y"] * eta - jnp.logaddexp(0.0, eta)


def log_prior(params: Any) -> Any:
    return -0.5 * (params["beta"] ** 2).sum()


def start() -> dict[str, Any]:
    return {"beta": np.zeros(COLUMNS)}


def laplace(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Mode and precision there by Newton's method in float64, first on some rows."""
    few = {name: array[:BLOCK] for name, array in data.items()}
    beta = np.zeros(COLUMNS)
    for rows in (few, data):
        away = np.inf
        while away > 1e-6:
            gradient, precision = _derivatives(beta, rows)
            step = np.linalg.solve(precision, gradient)
            beta, away = beta + step, float(gradient @ step)
    return beta, _derivatives(beta, data)[1]


def _derivatives(beta: np.ndarray, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and minus the Hessian of the log posterior."""
    gradient, precision = -beta, np.eye(COLUMNS)
    for first in range(0, len(data["y"]), BLOCK):
        X, y = (data[name][first : first + BLOCK].astype(np.float64) for name in ("X", "y"))
        p = 1 / (1 + np.exp(-X @ beta))
        gradient = gradient + X.T @ (y - p)
        precision = precision + (X * (p * (1 - p))[:, None]).T @ X
    return gradient, precision


def by_sample(n_rows: int, draws: int, seed: int) -> dict[str, Any]:
    """`sample` in a process of its own: variances along the axes of the exact Laplace covariance, and seconds by stage."""
    import sgmcmc
    from sgmcmc.results.diagnostics import standard_error

    say(f"N = {n_rows:,}: data and exact curvature")
    data = synthetic(n_rows)
    mode, precision = laplace(data)
    stages = Stages(f"N = {n_rows:,}")
    fit = sgmcmc.sample(log_lik, data, start(), log_prior=log_prior, draws=draws, chains=CHAINS, seed=seed, progress=stages)
    seconds = stages.finish()
    z = (np.asarray(fit["beta"], np.float64) - mode) @ np.linalg.cholesky(precision)
    squares = (z - z.mean(axis=(0, 1))) ** 2
    average = squares.mean(axis=2, keepdims=True)
    return {
        "minibatch": fit.settings["minibatch_size"],
        "ratios": squares.mean(axis=(0, 1)).tolist(),
        "ratio_errors": standard_error(squares).tolist(),
        "ratio_mean": float(average.mean()),
        "ratio_mean_error": float(standard_error(average)[0]),
        "shift": float(np.abs(z.mean(axis=(0, 1))).max()),
        "seconds": seconds,
        "stages": stages.seconds,
        "steps": stages.work["sample"],
        "healthy": fit.health().ok,
    }


def steps_timed(sizes: list[int], minibatch: int, steps: int, rounds: int) -> dict[str, Any]:
    """µs per step of our chains and of a bare JAX loop, alternating, all compiled before."""
    whole = synthetic(max(sizes))
    jobs = {}
    for size in sizes:
        say(f"N = {size:,}: set-up")
        data = {name: array[:size] for name, array in whole.items()}
        jobs["ours", size], jobs["bare", size] = _our_job(data, minibatch, steps), _bare_job(data, minibatch, steps)
    times: dict[str, dict[int, list[float]]] = {who: {size: [] for size in sizes} for who in ("ours", "bare")}
    for number in range(rounds + 1):
        say(f"timing, round {number} of {rounds}" if number else "compiling")
        for (who, size), job in jobs.items():
            clock = time.perf_counter()
            job()
            if number:
                times[who][size].append(1e6 * (time.perf_counter() - clock) / steps)
    return times


def _our_job(data: Data, minibatch: int, steps: int) -> Any:
    import sgmcmc

    sampler = sgmcmc.baoacv_setup(
        log_lik, data, start(), STEP, log_prior=log_prior, minibatch_size=minibatch, rows="importance", precondition="laplace",
        progress=False,
    )  # fmt: skip
    state = sampler.init(1, n_chains=CHAINS, progress=False)
    return lambda: sampler.run(state, steps, progress=False)


def _bare_job(data: Data, minibatch: int, steps: int) -> Any:
    """What one would write by hand: a scan of control variate steps on uniformly random rows, every draw kept."""
    import jax
    import jax.numpy as jnp

    X, y, n_rows = jnp.asarray(data["X"]), jnp.asarray(data["y"]), len(data["y"])
    eps, mode = 0.1 / n_rows, jnp.asarray(laplace({name: array[:BLOCK] for name, array in data.items()})[0], jnp.float32)
    likelihood = jax.grad(lambda beta, X, y: log_lik({"beta": beta}, {"X": X, "y": y}).sum())

    @jax.jit
    def run(X: jax.Array, y: jax.Array, mode: jax.Array, key: jax.Array) -> jax.Array:
        def one(beta: jax.Array, key: jax.Array) -> jax.Array:
            rows, noise = jax.random.split(key)
            index = jax.random.randint(rows, (minibatch,), 0, n_rows)
            gradient = (likelihood(beta, X[index], y[index]) - likelihood(mode, X[index], y[index])) * (n_rows / minibatch) - beta
            return beta + eps / 2 * gradient + jnp.sqrt(eps) * jax.random.normal(noise, beta.shape)

        def step(betas: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            betas = jax.vmap(one)(betas, jax.random.split(key, CHAINS))
            return betas, betas

        return jax.lax.scan(step, jnp.tile(mode, (CHAINS, 1)), jax.random.split(key, steps))[1]

    return lambda: np.asarray(run(X, y, mode, jax.random.key(1)))


def measure(sizes: tuple[int, ...], draws: int, seeds: int, steps: int, rounds: int) -> dict[str, Any]:
    runs = [{size: freshly(by_sample, n_rows=size, draws=draws, seed=seed) for size in sizes} for seed in range(1, seeds + 1)]
    found = {size: middle([run[size] for run in runs]) for size in sizes}
    minibatch = int(max(run["minibatch"] for run in found.values()))
    times = freshly(steps_timed, sizes=list(sizes), minibatch=minibatch, steps=steps, rounds=rounds)
    return {"sample": {str(size): run for size, run in found.items()}, "minibatch": minibatch, "steps": steps, "times": times}


def report(result: dict[str, Any]) -> str:
    runs, times = result["sample"], result["times"]
    sizes = list(runs)
    return "\n".join([
        "## Growth with the number of rows", "",
        f"Logistic regression, {COLUMNS} correlated columns, synthetic. `sample` with nothing set, every run a fresh process, "
        f"{len(runs[sizes[0]]['rounds'])} seeds. Variance of the draws over that of the exact Laplace covariance at the mode "
        f"(float64; exact up to order d/N), along its {COLUMNS} axes: their average with its standard error over all seeds, the "
        "errors of the axes in standard errors (1 if there is nothing but Monte Carlo error), and the axis that is farthest off. "
        "Seconds are medians and include compilation.", "",
        table(
            ["N", "rows per step", "average ratio - 1", "axes, rms", "farthest axis", "set-up s", "sampling s", "checks s"],
            [_accuracy(size, runs[size]) for size in sizes],
        ), "",
        f"µs per step of {CHAINS} chains with {result['minibatch']} rows each, {result['steps']:,} steps, compilation excluded: "
        "`baoacv` as `sample` runs it, and a bare `lax.scan` of control variate steps that gathers uniformly random rows on the "
        f"device. {len(times['ours'][sizes[0]])} rounds, alternating; median (range). Growth is relative to N = "
        f"{int(sizes[0]):,} within a round. Bar: our growth at most {BAR} times that of the bare loop.", "",
        table(
            ["N", "ours µs", "growth", "bare loop µs", "growth", "ratio of growths", f"bar {BAR}"],
            [_growth(size, sizes[0], times) for size in sizes],
        ),
    ])  # fmt: skip


def _accuracy(size: str, run: dict[str, Any]) -> list[str]:
    seeds, seconds = run["rounds"], run["stages"]
    ratios = np.mean([one["ratios"] for one in seeds], axis=0)
    errors = np.sqrt(np.mean(np.square([one["ratio_errors"] for one in seeds]), axis=0) / len(seeds))
    away, average = (ratios - 1) / errors, np.mean([one["ratio_mean"] for one in seeds])
    error = np.sqrt(np.mean(np.square([one["ratio_mean_error"] for one in seeds])) / len(seeds))
    worst = int(np.argmax(np.abs(away)))
    return [
        f"{int(size):,}",
        f"{run['minibatch']:,}",
        f"{average - 1:+.4f} ± {error:.4f}",
        f"{np.sqrt(np.mean(away**2)):.2f}",
        f"{ratios[worst] - 1:+.3f} ± {errors[worst]:.3f}",
        f"{run['seconds'] - seconds['sample'] - seconds['checks']:.1f}",
        f"{seconds['sample']:.1f}",
        f"{seconds['checks']:.1f}",
    ]


def _growth(size: str, first: str, times: dict[str, dict[str, list[float]]]) -> list[str]:
    growth = {who: np.array(times[who][size]) / np.array(times[who][first]) for who in ("ours", "bare")}
    ratio = (growth["ours"] / growth["bare"]).tolist()
    return [
        f"{int(size):,}",
        spread(times["ours"][size], 0),
        f"{median(growth['ours']):.2f}",
        spread(times["bare"][size], 0),
        f"{median(growth['bare']):.2f}",
        spread(ratio),
        verdict(median(ratio), BAR) if size != first else "",
    ]
