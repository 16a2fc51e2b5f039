"""Four chains on one device and on two that the host is made to pretend to have: a process for each, in turns."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from tqdm import tqdm

from benchmarks.common.problem import ITERATIONS, MINIBATCH, ROWS, log_lik, options, start, stepsize, synthetic
from benchmarks.common.table import reached, spread, table
from benchmarks.common.workers import Worker

CHAINS = 4
LEAST_RATIO = 1.6
BARRED = "mixture"
KINDS = {
    BARRED: "Gaussian mixture, windows",
    "window": "logistic regression, windows",
    "random": "logistic regression, random rows",
}
"""The bar is one for a model whose steps compute. A step of the logistic regression is mostly memory and calls, which one device
batches over its chains; and random rows are gathered by the host, whatever the devices."""

COMPONENTS = 10


def mixture(n_rows: int) -> tuple[Any, ...]:
    """Locations of a mixture of ten Gaussians in the plane: log likelihood, data, start, step size."""
    import jax
    import numpy as np

    def log_lik(params: Any, batch: Any) -> Any:
        squares = ((batch["x"][:, None] - params["location"]) ** 2).sum(axis=2)
        return jax.nn.logsumexp(-0.5 * squares, axis=1).sum()

    rng = np.random.default_rng(0)
    data = {"x": rng.standard_normal((n_rows, 2), np.float32)}
    return log_lik, data, {"location": rng.standard_normal((COMPONENTS, 2), np.float32)}, 1 / n_rows


def chains(kind: str, n_rows: int = ROWS, iterations: int = ITERATIONS) -> Iterator[dict[str, Any]]:
    """A job: four chains of sgld on all devices there are."""
    import sgmcmc

    if kind == BARRED:
        made = sgmcmc.sgld_setup(*mixture(n_rows), minibatch_size=MINIBATCH, rows="window", progress=False)
    else:
        made = sgmcmc.sgld_setup(log_lik, synthetic(n_rows), start(), stepsize(n_rows), **options(kind))
    state = made.init(1, n_chains=CHAINS, progress=False)
    out = made.run(state, iterations, progress=False)  # compiles
    yield {"devices": out.settings.get("devices", 1)}
    while True:
        begin = time.perf_counter()
        made.run(state, iterations, progress=False)
        yield {"us_per_iteration": 1e6 * (time.perf_counter() - begin) / iterations}


def measure(rounds: int, n_rows: int = ROWS, iterations: int = ITERATIONS) -> dict[str, Any]:
    with tqdm(total=len(KINDS) * (1 + rounds), desc="devices", unit="round") as bar:
        pairs = {kind: in_turns(kind, rounds, n_rows, iterations, bar) for kind in KINDS}
    return {"rows": n_rows, "iterations": iterations, "cores": os.cpu_count(), "pairs": pairs}


def in_turns(kind: str, rounds: int, n_rows: int, iterations: int, bar: Any) -> dict[str, Any]:
    """The same job on one device and on two, one round of each after the other."""
    common = {"kind": kind, "n_rows": n_rows, "iterations": iterations}
    bar.set_postfix_str(KINDS[kind])
    with Worker(chains, on_devices(1), **common) as on_one, Worker(chains, on_devices(2), **common) as on_two:
        used = [worker.turn()["devices"] for worker in (on_one, on_two)]
        bar.update()
        times = []
        for _ in range(rounds):
            times.append([worker.turn()["us_per_iteration"] for worker in (on_one, on_two)])
            bar.update()
    return {"devices": used, "us": times}


def on_devices(count: int) -> dict[str, str]:
    """The environment in which JAX finds so many devices on a CPU."""
    others = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in flag]
    return {"XLA_FLAGS": " ".join([*others, f"--xla_force_host_platform_device_count={count}"])}


def ratios(result: dict[str, Any], kind: str) -> list[float]:
    """Speed on two devices over speed on one, within each round."""
    return [one / two for one, two in result["pairs"][kind]["us"]]


def judged(result: dict[str, Any], kind: str) -> str:
    """Against the bar; where the library did not spread the chains, there is nothing to judge."""
    if result["pairs"][kind]["devices"] != [1, 2]:
        return "not spread"
    return reached(median(ratios(result, kind)), LEAST_RATIO) if kind == BARRED else ""


def report(result: dict[str, Any]) -> str:
    lines = []
    for kind, name in KINDS.items():
        found, against = result["pairs"][kind], ratios(result, kind)
        one, two = zip(*found["us"], strict=True)
        used = " and ".join(map(str, found["devices"]))
        lines.append([name, used, spread(one, 1), spread(two, 1), spread(against), judged(result, kind)])
    rounds = len(result["pairs"][BARRED]["us"])
    return "\n".join([
        "## Devices",
        "",
        f"{CHAINS} chains of SGLD on one host device and on two (`--xla_force_host_platform_device_count=2`) "
        f"of a machine with {result['cores']} cores; {result['rows']:,} rows, minibatches of {MINIBATCH}, "
        f"{result['iterations']:,} iterations a round, compilation excluded; each a process of its own, in turns, "
        f"{rounds} rounds; µs per iteration of all chains, median (range). Ratio: speed on two over that on one, within a round.",
        "",
        table(["", "devices", "one, µs", "two, µs", "ratio", f"bar {LEAST_RATIO:g}"], lines),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    chosen = parser.parse_args()
    print(report(measure(chosen.rounds, iterations=chosen.iterations)))


if __name__ == "__main__":
    main()
