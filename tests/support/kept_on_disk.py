"""A short run in a process of its own, for the tests of compiled programs on disk: `python kept_on_disk.py`.

With `LARGEST_FILE` in the environment it may write no larger file. Printed are how many programs were compiled, how many of
them were found on disk, a hash of the draws, and JAX's folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc

EVENTS: list[str] = []


def main() -> None:
    jax.monitoring.register_event_listener(lambda event, **_: EVENTS.append(event))
    jax.monitoring.register_event_duration_secs_listener(lambda event, _, **__: EVENTS.append(event))
    before = jax.config.jax_compilation_cache_dir
    jnp.ones(3).sum().block_until_ready()  # a program of the user's, before the first sampler
    assert jax.config.jax_compilation_cache_dir == before, "touched before any sampler was called"
    EVENTS.clear()
    if "LARGEST_FILE" in os.environ:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LARGEST_FILE"]),) * 2)
    data = {"x": np.random.default_rng(0).normal(size=100).astype(np.float32)}
    result = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-3, minibatch_size=10, n_iters=20, seed=1, progress=False)
    told = {
        "compiled": sum(event.endswith("backend_compile_duration") for event in EVENTS),
        "found": sum(event.endswith("compilation_cache/cache_hits") for event in EVENTS),
        "draws": hashlib.sha256(np.asarray(result["mu"]).tobytes()).hexdigest(),
        "folder": jax.config.jax_compilation_cache_dir,
    }
    print(json.dumps(told))


def log_lik(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()


if __name__ == "__main__":
    main()
