"""How many programs JAX compiles for a call, for the same call again, and for it in a new process: numbers, seconds.

    python tools/compilations.py              # all calls
    python tools/compilations.py sgld few -v  # some of them, with the names of the programs

Every call is made twice, with other data of the same shapes, another seed and new function objects the second time; then once in
a new process. Programs are kept in an empty folder on disk, where the new process finds them: then they are read, not compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc

Model = tuple[Callable[..., Any], dict[str, np.ndarray], dict[str, np.ndarray], Callable[..., Any]]


def logistic(n_rows: int, d: int, seed: int) -> Model:
    """A logistic regression: other functions and other data every time."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, d), np.float32)
    y = rng.random(n_rows) < 1 / (1 + np.exp(-(X @ np.linspace(-1, 1, d, dtype=np.float32))))

    def log_lik(params: Any, batch: Any) -> jax.Array:
        eta = batch["X"] @ params["beta"]
        return jax.nn.log_sigmoid(jnp.where(batch["y"], eta, -eta)).sum()

    def log_prior(params: Any) -> jax.Array:
        return -0.5 * (params["beta"] ** 2).sum()

    return log_lik, {"X": X, "y": y}, {"beta": np.zeros(d)}, log_prior


def sgld(seed: int) -> None:
    """`sgld` on 10,000 rows of 5 columns."""
    *model, log_prior = logistic(10_000, 5, seed)
    told: dict[str, Any] = {"minibatch_size": 100, "n_iters": 1000, "progress": False}
    sgmcmc.sgld(*model, 1e-4 * seed, log_prior=log_prior, seed=seed, **told)


def few(seed: int) -> None:
    """`sample` on 300 rows of 5 columns: NUTS."""
    *model, log_prior = logistic(300, 5, seed)
    sgmcmc.sample(*model, log_prior=log_prior, seed=seed, progress=False)


def many(_: int) -> None:
    """`sample` on 581,012 rows of 54 columns, as many as covertype has: minibatches. The same data both times: how many rows a
    minibatch has follows from these.
    """
    *model, log_prior = logistic(581_012, 54, 1)
    sgmcmc.sample(*model, log_prior=log_prior, seed=1, progress=False)


CALLS = {"sgld": sgld, "few": few, "many": many}


def counted(call: Callable[[int], None], seed: int) -> dict[str, Any]:
    """What a call compiles, and how long that and the whole take."""
    found: list[tuple[str, float]] = []
    hits: list[str] = []

    def listen(event: str, seconds: float, **told: Any) -> None:
        if event.endswith("backend_compile_duration"):
            found.append((str(told.get("fun_name", "?")), seconds))

    def hear(event: str, **_: Any) -> None:
        if event.endswith("compilation_cache/cache_hits"):
            hits.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.monitoring.register_event_listener(hear)
    clock, worked = time.perf_counter(), time.process_time()
    call(seed)
    seconds, worked = time.perf_counter() - clock, time.process_time() - worked
    jax.monitoring.clear_event_listeners()
    names = Counter(name for name, _ in found)
    told = {"programs": len(found), "read": len(hits), "compiling": sum(s for _, s in found), "names": names}
    return told | {"seconds": seconds, "worked": worked}


def told(name: str, when: str, found: dict[str, Any]) -> None:
    """A line on one call."""
    programs = f"{found['programs']} programs, {found['read']} of them read from disk, in {found['compiling']:.2f} s"
    print(f"{name}, {when}: {programs}; {found['seconds']:.1f} s in all, {found['worked']:.1f} s of all cores", flush=True)
    if "-v" in sys.argv:
        print("   ", ", ".join(f"{count} × {name}" for name, count in sorted(found["names"].items())), flush=True)


def in_a_new_process(folder: str, name: str, times: int) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--one", name, str(times)]
    done = subprocess.run(command, env=os.environ | {"SGMCMC_CACHE": folder}, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def main() -> None:
    if "--one" in sys.argv:
        name, times = sys.argv[2:4]
        print(json.dumps([counted(CALLS[name], seed) for seed in range(1, int(times) + 1)]))
        return
    for name in [name for name in sys.argv[1:] if name in CALLS] or CALLS:
        with tempfile.TemporaryDirectory() as folder:
            for when, found in zip(("first call", "second call"), in_a_new_process(folder, name, 2), strict=True):
                told(name, when, found)
            told(name, "new process", in_a_new_process(folder, name, 1)[0])


if __name__ == "__main__":
    main()
