"""Microseconds per iteration beside the C loop, all in the same minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from tqdm import tqdm

from benchmarks.common.problem import (
    ITERATIONS,
    MINIBATCH,
    ROWS,
    STEPSIZE,
    Dataset,
    arguments,
    log_lik,
    log_prior,
    options,
    start,
    synthetic,
)
from benchmarks.common.table import spread, table, verdict
from benchmarks.steps.limit import Limit

LIMIT, REFERENCE = "C loop, random rows", "reference C loop, random rows"
LONG_LIMIT, LONG = "C loop, random rows, long run", ", long run"
CHAINS, FOUR = 4, ", four chains"

MOST = {"random": 1.4, "window": 1.1}
"""Largest ratio to the C loop, for each kind of rows, whatever the length of the run."""

MOST_FOUR = 1.15
"""Largest ratio of an iteration of one of four chains to that of one chain alone."""

BARS = {f"sgld rows={rows}{of}": most for rows, most in MOST.items() for of in ("", LONG)}
BARS |= {f"sgld rows={rows}{FOUR}": MOST_FOUR for rows in MOST}

LONG_ITERATIONS = 100_000
PYTHON_LOOP_ITERATIONS = 1000

Timed = Callable[[], float]


def measure(rounds: int, limit: Limit | None) -> dict[str, Any]:
    """Everything once per round, so that a ratio compares neighbours in time."""
    data = synthetic(ROWS)
    jobs: dict[str, Timed] = {}
    if limit is not None:
        jobs[LIMIT] = lambda: limit.microseconds("random", (ROWS,))[ROWS]
        if limit.reference is not None:
            jobs[REFERENCE] = limit.reference_microseconds
        jobs["C loop, window of rows"] = lambda: limit.microseconds("window", (ROWS,))[ROWS]
    jobs |= {f"sgld rows={rows}": sgld_job(data, rows) for rows in MOST}
    jobs |= {f"sgld rows={rows}{FOUR}": sgld_job(data, rows, n_chains=CHAINS) for rows in MOST}
    if limit is not None:
        jobs[LONG_LIMIT] = lambda: limit.microseconds("random", (ROWS,), LONG_ITERATIONS)[ROWS]
    jobs |= {f"sgld rows={rows}{LONG}": sgld_job(data, rows, LONG_ITERATIONS) for rows in MOST}
    jobs |= blackjax_jobs(data)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    with tqdm(total=(1 + rounds) * len(jobs), desc="speed", unit="run") as bar:
        for number in range(1 + rounds):
            for name, job in jobs.items():
                bar.set_postfix_str(f"{name}, {f'round {number}' if number else 'warm-up'}")
                microseconds = job()
                if number:
                    times[name].append(microseconds)
                bar.update()
    return {"rows": ROWS, "iterations": ITERATIONS, "minibatch": MINIBATCH, "us_per_iteration": times}


def sgld_job(data: Dataset, rows: str, iterations: int = ITERATIONS, n_chains: int | None = None) -> Timed:
    """Our sampler, by the iteration of one chain; its first call compiles."""
    import sgmcmc

    sampler = sgmcmc.sgld_setup(*arguments(data), **options(rows))
    state = sampler.init(1, n_chains=n_chains, progress=False)
    return lambda: clock(lambda: sampler.run(state, iterations, progress=False), iterations * (n_chains or 1))


def clock(work: Callable[[], Any], iterations: int) -> float:
    begin = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - begin) / iterations


def blackjax_jobs(data: Dataset) -> dict[str, Timed]:
    """blackjax gives one step; the loop around it is its user's: compiled, or in Python as its documentation shows."""
    try:
        import blackjax
    except ImportError:
        return {}
    import jax
    import jax.numpy as jnp

    n_rows = len(data["y"])
    algorithm = blackjax.sgld(blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_lik, n_rows))
    device_data, position = jax.device_put(data), jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start())
    half_stepsize = STEPSIZE / 2  # blackjax writes the drift as ε ĝ, without the half

    def minibatch(key: jax.Array, data: Any) -> Any:
        index = jax.random.randint(key, (MINIBATCH,), 0, n_rows)
        return jax.tree.map(lambda array: array[index], data)

    @jax.jit
    def chain(keys: jax.Array, position: Any, data: Any) -> Any:
        def iteration(position: Any, key: jax.Array) -> tuple[Any, Any]:
            rows_key, noise_key = jax.random.split(key)
            position = algorithm.step(noise_key, position, minibatch(rows_key, data), half_stepsize)
            return position, position

        return jax.lax.scan(iteration, position, keys)[1]

    def scan() -> None:
        jax.block_until_ready(chain(jax.random.split(jax.random.key(1), ITERATIONS), position, device_data))

    step = jax.jit(algorithm.step)

    def python_loop() -> None:
        draws, now = [], position
        for key in jax.random.split(jax.random.key(1), PYTHON_LOOP_ITERATIONS):
            rows_key, noise_key = jax.random.split(key)
            now = step(noise_key, now, minibatch(rows_key, device_data), half_stepsize)
            draws.append(now)
        jax.block_until_ready(draws)

    return {
        "blackjax, user-written scan": lambda: clock(scan, ITERATIONS),
        "blackjax, Python loop": lambda: clock(python_loop, PYTHON_LOOP_ITERATIONS),
    }


def against(name: str) -> str:
    """What something is compared with."""
    if name.endswith(FOUR):
        return name.removesuffix(FOUR)
    return LONG_LIMIT if name.endswith(LONG) else LIMIT


def ratios(result: dict[str, Any], name: str) -> list[float]:
    """To what it is compared with, within each round."""
    times = result["us_per_iteration"]
    if name not in times or against(name) not in times:
        return []
    return [mine / its for mine, its in zip(times[name], times[against(name)], strict=True)]


def report(result: dict[str, Any]) -> str:
    times = result["us_per_iteration"]
    lines = []
    for name, values in times.items():
        found = ratios(result, name)
        bar = f"{BARS[name]:g}: {verdict(median(found), BARS[name])}" if found and name in BARS else ""
        lines.append([name, spread(values, 1), against(name), spread(found) if found else "no C compiler", bar])
    rounds = len(next(iter(times.values())))
    text = [
        "## Speed",
        "",
        f"Logistic regression SGLD, {result['rows']:,} rows of 54 float32, minibatches of {result['minibatch']}, "
        f"{result['iterations']:,} iterations ({LONG_ITERATIONS:,} in long runs, {PYTHON_LOOP_ITERATIONS:,} in the Python loop), "
        f"every draw kept, compilation excluded. Median (range) of {rounds} rounds; a ratio is taken within its round. The C "
        "loop uses one core and, like blackjax here, draws rows with replacement; sgld draws them without. Of four chains, the "
        "time of an iteration of one of them.",
        "",
        table(["", "µs per iteration", "compared with", "ratio", "bar"], lines),
    ]
    if REFERENCE in times:
        ours_to_reference = [1 / ratio for ratio in ratios(result, REFERENCE)]
        text += ["", f"Our C loop takes {spread(ours_to_reference)} times as long as the reference C loop (bar: within 10 %)."]
    return "\n".join(text)
