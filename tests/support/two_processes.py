"""What tests/run/test_hosts.py starts twice: one process of a job of two, or the same problem in one process alone.

    python two_processes.py PROCESS PORT TASK FILE

PROCESS is 0, 1, or `alone`. TASK is `sample`, which writes its findings to FILE, `run`, which touches FILE when its chain is
under way and never ends by itself, `resume`, a run with a checkpoint beside FILE, or `whole`, the same run without one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

process, port, task, file = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
if process != "alone":
    jax.distributed.initialize(f"localhost:{port}", 2, int(process))

import sgmcmc  # noqa: E402 (JAX must know of the other process before anything runs)
from sgmcmc.algorithms import ControlVariate  # noqa: E402
from sgmcmc.checkpoints import places  # noqa: E402
from sgmcmc.problem.passes import FullPasses  # noqa: E402

N, D, SHARE = 3000, 3, 0.3
rng = np.random.default_rng(1)
X = rng.normal(size=(N, D)).astype(np.float32)
y = rng.random(N) < 1 / (1 + np.exp(-X @ np.linspace(-1, 1, D)))
order = np.argsort(X[:, 0])  # strata that differ: small values of the first column here, large ones there
data = {"X": X[order], "y": y[order].astype(np.float32)}
start = {"beta": np.zeros(D, np.float32)}


def log_lik(params, batch):
    z = batch["X"] @ params["beta"]
    return jnp.sum(batch["y"] * z - jnp.logaddexp(0, z))


def log_prior(params):
    return -0.5 * jnp.sum(params["beta"] ** 2)


def my_part():
    cut = int(SHARE * N)
    part = {"0": slice(0, cut), "1": slice(cut, N)}.get(process, slice(None))
    rows = {name: column[part] for name, column in data.items()}
    return rows if process == "alone" else sgmcmc.hosts.stratum(rows)


def sample():
    found = {"refusal": np.frombuffer(refusal().encode(), np.uint8)}
    options = {"log_prior": log_prior, "n_iters": 1500, "n_chains": 2, "seed": 5, "progress": False}
    for name, stepsize, rows, n in (("sgldcv", 2e-3, "window", 100), ("sgld", 2e-4, "random", 600)):
        sampler = getattr(sgmcmc, name)
        keep = {"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments()}
        out = sampler(log_lik, my_part(), start, stepsize, rows=rows, minibatch_size=n, burn_in=300, keep=keep, **options)
        found |= {name: out["beta"], f"{name} mean": out.kept["moments"].mean["beta"], f"{name} rows": out.settings["n_rows"]}
    sampler = sgmcmc.sgldcv_setup(log_lik, my_part(), start, 1e-3, log_prior=log_prior, minibatch_size=100, progress=False)
    point = {"beta": jnp.full(D, 0.25)}
    found["gradient"] = ControlVariate().init(sampler.posterior, point, FullPasses(sampler.source.arrays)).gradient["beta"]
    found["mode"] = sampler.init(seed=2 if process == "0" else None, progress=False).params["beta"]  # process 0's seed counts
    found["word"] = np.frombuffer(sgmcmc.rows.hosts.from_first(f"from {process}".encode()), np.uint8)
    np.savez(file, **{name: np.asarray(value) for name, value in found.items()})


def refusal():
    """What a process says to a row that is not finite, which only process 1 has."""
    rows = {name: column.copy() for name, column in data.items()}
    rows["X"][7] = np.nan if process == "1" else 0.0
    try:
        part = rows if process == "alone" else sgmcmc.hosts.stratum(rows)
        sgmcmc.sgld_setup(log_lik, part, start, 1e-3, minibatch_size=100, progress=False)
    except sgmcmc.InputError as error:
        return str(error)
    return ""


def run():
    def under_way(figures):
        file.touch()

    sgmcmc.sgld(log_lik, my_part(), start, 1e-5, minibatch_size=50, n_iters=10**9, thin=10**6, seed=1, progress=under_way)


def resume():
    """Long enough to be killed on the way: it waits at every chunk until somebody has seen that it is under way."""
    begun = file.with_suffix(".begun")

    def under_way(figures):
        if figures["stage"] == "sgldcv" and figures["done"] > 200:
            begun.touch()
            time.sleep(0.2)

    places.SAVE_SECONDS = 0.05
    options = {"log_prior": log_prior, "minibatch_size": 100, "n_iters": 2000, "n_chains": 2, "rows": "window", "seed": 5}
    keep = {"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments()}
    progress = under_way if task == "resume" else False
    checkpoint = None if task == "whole" else file.with_name("run")
    out = sgmcmc.sgldcv(log_lik, my_part(), start, 1e-3, keep=keep, progress=progress, checkpoint=checkpoint, **options)
    np.savez(file, draws=out["beta"], mean=out.kept["moments"].mean["beta"], stored=len(out["beta"]))


{"sample": sample, "run": run, "resume": resume, "whole": resume}[task]()
