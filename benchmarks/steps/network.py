"""Milliseconds per step of a larger model, beside a scan written by hand, and its peak memory in a fresh process."""

from __future__ import annotations

from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from tqdm import tqdm

from benchmarks.common.freshly import freshly
from benchmarks.common.problem import MINIBATCH, Dataset
from benchmarks.common.table import gigabytes, spread, table, verdict
from benchmarks.fresh.jobs import network
from benchmarks.steps.network_problem import KEEP, START, STEPSIZE, images, log_posterior, network_sampler
from benchmarks.steps.speed import Timed, clock

OURS, BY_HAND = "sgld", "scan by hand"
BAR = 1.5
"""Largest ratio to the scan."""

MEMORY_BAR = 2 * 10**9


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Both once per round, so that a ratio compares neighbours in time."""
    name, data = images()
    jobs = {OURS: sgld_job(data, steps), BY_HAND: scan_job(data, steps)}
    times: dict[str, list[float]] = {job: [] for job in jobs}
    with tqdm(total=(1 + rounds) * len(jobs) + 1, desc="network", unit="run") as bar:
        for number in range(1 + rounds):
            for job, run in jobs.items():
                bar.set_postfix_str(f"{job}, {f'round {number}' if number else 'warm-up'}")
                milliseconds = run() / 1000
                if number:
                    times[job].append(milliseconds)
                bar.update()
        bar.set_postfix_str("memory")
        memory = freshly(network, steps=rounds * steps)
        bar.update()
    return {"data": name, "rows": len(data["y"]), "steps": steps, "ms_per_step": times, "memory": memory}


def sgld_job(data: Dataset, steps: int) -> Timed:
    sampler = network_sampler(data)
    state = sampler.init(1)
    return lambda: clock(lambda: sampler.run(state, steps, keep=KEEP, progress=False), steps)


def scan_job(data: Dataset, steps: int) -> Timed:
    """What a user of JAX would write for this model alone: rows drawn and gathered on the device, threefry noise."""
    device_data, position, n_rows = jax.device_put(data), jax.tree.map(jnp.asarray, START), len(data["y"])
    flat, unflatten = ravel_pytree(position)

    @jax.jit
    def chain(key: jax.Array, position: Any, data: Any) -> jax.Array:
        def step(position: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            rows_key, noise_key = jax.random.split(key)
            index = jax.random.randint(rows_key, (MINIBATCH,), 0, n_rows)
            rows = {name: array[index] for name, array in data.items()}
            gradient = jax.grad(log_posterior)(position, rows, n_rows)
            noise = unflatten(jax.random.normal(noise_key, flat.shape))
            moved = jax.tree.map(lambda x, g, z: x + STEPSIZE / 2 * g + STEPSIZE**0.5 * z, position, gradient, noise)
            return moved, moved["lambdaA"]

        return jax.lax.scan(step, position, jax.random.split(key, steps))[1]

    return lambda: clock(lambda: chain(jax.random.key(1), position, device_data).block_until_ready(), steps)


def report(result: dict[str, Any]) -> str:
    times, memory = result["ms_per_step"], result["memory"]
    ratios = [ours / by_hand for ours, by_hand in zip(times[OURS], times[BY_HAND], strict=True)]
    lines = [
        [OURS, spread(times[OURS]), spread(ratios), f"{BAR:g}: {verdict(median(ratios), BAR)}"],
        [BY_HAND, spread(times[BY_HAND]), "", ""],
    ]
    peak = memory["peak_bytes"]
    return "\n".join([
        "## Network",
        "",
        f"SGLD for the two-layer network on {result['data']}, {result['rows']:,} rows, minibatches of {MINIBATCH}, one "
        f"precision kept, compilation excluded: {len(ratios)} rounds of {result['steps']:,} steps of each, median (range) of "
        "rounds; a ratio is taken within its round. The scan draws its rows with replacement, sgld without.",
        "",
        table(["", "ms per step", "ratio", "bar"], lines),
        "",
        f"Peak resident memory of {memory['steps']:,} steps of `sgld` in a fresh process: {gigabytes(peak)} GB, "
        f"{gigabytes(memory['peak_before_bytes'])} GB of it before the sampler was made "
        f"(bar {gigabytes(MEMORY_BAR)} GB: {verdict(peak, MEMORY_BAR)}).",
    ])  # fmt: skip
