"""Samplers ended again and again: `python killed_samplers.py problem signal endings folder`. Run by test_killed.py.

The process forks its workers before it has used JAX, so that each begins at once. Every worker makes the same call with the
same run folder; the last one is left to finish. A worker that is done before its end comes leaves a finished run, and the next
begins in another folder, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import numpy as np
from forked import started

import sgmcmc
from sgmcmc.checkpoints import places

places.SAVE_SECONDS = 0.02
N, D = 4000, 8
CHUNK_SLEEP = 0.03
"""After every chunk: so that it is not the machine's speed that decides how many chunks there are before the end."""

MOMENTS = ("any", "chains", "stage", "chains")
"""Ends come by turns at any time from the start on, while the chains run, and soon after the first stage began."""


def log_lik(params, batch):
    eta = batch["X"] @ params["beta"]
    return batch["y"] * eta - jax.nn.softplus(eta)


def log_prior(params):
    return -0.5 * (params["beta"] ** 2).sum()


def arrays():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-X @ np.linspace(-1, 1, D)))).astype(np.int32)
    return {"X": X, "y": y}


START = {"beta": np.zeros(D, np.float32)}
USUAL = {"log_prior": log_prior, "minibatch_size": 50, "seed": 1, "n_chains": 3}


def logistic(place, iterations, dataset=None, **options):
    keep = {"draws": sgmcmc.Trace(thin=5), "moments": sgmcmc.Moments(covariance=True)}
    told = USUAL | {"n_iters": iterations, "burn_in": 50, "thin": 2, "diagnose": True, "keep": keep}
    return sgmcmc.sgldcv(log_lik, dataset or arrays(), START, 1e-4, **(told | options))


def rows(place, iterations, **options):
    return logistic(place, iterations, place / "rows", rows="window", **options)


def schedule(place, iterations, **options):
    def smaller(step):
        return 1e-5 / (1 + step / 100) ** 0.33

    return sgmcmc.sghmc(log_lik, arrays(), START, smaller, L=2, **USUAL, n_iters=iterations, thin=2, **options)


def sample(place, iterations, engine="sgmcmc", **options):
    told = {"log_prior": log_prior, "chains": 2, "draws": iterations, "seed": 1, "engine": engine}
    return sgmcmc.sample(log_lik, arrays(), START, **told, **options)


def nuts(place, iterations, **options):
    return sample(place, iterations, "nuts", **options)


def saga(place, iterations, checkpoint, progress):
    told = {"log_prior": log_prior, "minibatch_size": 50, "gradient": "saga", "progress": False}
    sampler = sgmcmc.sampler_setup(log_lik, arrays(), START, 1e-4, **told)
    state = sampler.init(seed=1, n_chains=3, progress=False)
    return sampler.run(state, iterations, thin=2, checkpoint=checkpoint, progress=progress)


PROBLEMS = {"logistic": logistic, "rows": rows, "schedule": schedule, "sample": sample, "nuts": nuts, "saga": saga}
STAGES = {"logistic": "sgldcv", "rows": "sgldcv", "schedule": "sghmc", "sample": "sample", "nuts": "sample", "saga": "sampler"}
ITERATIONS = {"logistic": 6000, "rows": 6000, "schedule": 6000, "sample": 1000, "nuts": 1000, "saga": 6000}
"""For every ending."""


def contents(result):
    """Draw by draw, what a result holds."""
    pairs = {} if result.pairs is None else {"positions": result.pairs.positions, "gradients": result.pairs.gradients}
    chained = {name: np.moveaxis(np.asarray(values), 1, 0) for name, values in {"beta": result["beta"], **pairs}.items()}
    return chained if result.weights is None else chained | {"weights": np.asarray(result.weights)}


def summaries(result):
    moments = result.kept["moments"] if result.kept else None
    return {} if moments is None else {"mean": moments.mean["beta"], "sd": moments.sd["beta"], "cov": moments.covariance}


def work(problem, place, iterations, folder, pipe=None, out=None):
    """The call itself; `pipe` is told of stages and of chunks."""
    chunks = 0

    def progress(figures):
        nonlocal chunks
        chunks += figures["stage"] == STAGES[problem]
        if pipe is not None:
            os.write(pipe, b"c" if chunks > 1 else b"s")  # the first is only told where it stands
            time.sleep(CHUNK_SLEEP if chunks else 0.0)

    result = PROBLEMS[problem](place, iterations, checkpoint=folder, progress=progress)
    if out is not None:
        np.savez(out, **contents(result), **summaries(result))


def check(folder, reference, least, returned=None):
    """How many draws a folder holds: those of the whole run from its beginning, bit for bit, and at least so many."""
    try:
        found = sgmcmc.load(folder)
    except sgmcmc.SgmcmcError as error:
        if least or not ("holds no draws yet" in str(error) or "there is no folder" in str(error)):
            raise
        return 0
    held, expected = contents(found), np.load(reference)
    count = len(held["beta"])
    assert count >= least, (count, least)
    for name, values in held.items():
        assert values.tobytes() == expected[name][: len(values)].tobytes(), (name, count)
    if returned is not None:
        came_back = np.load(returned)
        for name, values in held.items():
            assert values.tobytes() == came_back[name].tobytes(), (name, "returned", len(came_back[name]), count)
    if count == len(expected["beta"]):
        for name, values in summaries(found).items():  # chunks end elsewhere, so sums round otherwise
            np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-7)
    return count


def watch(folder, reference, pipe):
    """Read until told to stop; tell how often."""
    told, readings, last = [], 0, 0
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    while not told:
        last = check(folder, reference, last)
        readings += last > 0
        time.sleep(0.3)
    os.write(pipe, str(readings).encode())


def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def number_from(function, *arguments):
    """A number, computed where it may start JAX."""
    out, into = os.pipe()
    assert ended(started(lambda: os.write(into, str(function(*arguments)).encode()))) == 0
    os.close(into)
    with os.fdopen(out) as file:
        return int(file.read())


def wait_for(pipe, word, process):
    """Until the worker has got so far, or is at its end."""
    seen = b""
    while word not in seen and os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if select.select([pipe], [], [], 0.05)[0]:
            seen += os.read(pipe, 1000)


def end_one(number, how, run, folder, out):
    """Start a worker, and end it at some moment; how it ended."""
    heard, tells = os.pipe()
    worker = started(partial(run, folder, tells, out))
    os.close(tells)
    moment = MOMENTS[number % len(MOMENTS)]
    if moment != "any":
        wait_for(heard, moment[:1].encode(), worker)
    time.sleep(random.uniform(0.0, 1.0 if moment == "any" else 0.4))
    os.kill(worker, how)
    code = ended(worker)
    os.close(heard)
    return code


def main(problem, how, endings, place):
    random.seed(endings)
    if problem == "rows":
        assert ended(started(lambda: sgmcmc.data.convert(arrays(), place / "rows", progress=False))) == 0
    iterations = ITERATIONS[problem] * endings
    run = partial(work, problem, place, iterations)
    reference, returned = place / "reference.npz", place / "returned.npz"
    folders, counts, came_back = [place / "run 0"], [0], 0

    def end(number):
        nonlocal came_back
        returned.unlink(missing_ok=True)
        code = end_one(number, how, run, folders[-1], returned)
        expected = {signal.SIGKILL: (-9, 0), signal.SIGTERM: (-15, 0), signal.SIGINT: (130, 0)}[how]
        assert code in expected, code
        came_back += code == 0

    end(0)  # while nothing is compiled yet
    assert ended(started(run, None, None, reference)) == 0
    total = number_from(lambda: len(np.load(reference)["beta"]))
    out, into = os.pipe()
    reader = started(watch, folders[0], reference, into)
    done = number = 0
    while done < endings - 1:
        number += 1
        end(number)
        counts.append(number_from(check, folders[-1], reference, counts[-1], returned if returned.exists() else None))
        done += counts[-1] < total
        if counts[-1] == total:
            folders.append(place / f"run {len(folders)}")
            counts.append(0)
    assert ended(started(run, folders[-1], None, returned)) == 0
    assert number_from(check, folders[-1], reference, total, returned) == total
    os.kill(reader, signal.SIGTERM)
    assert ended(reader) == 0
    print(f"endings: {done + 1}")
    print(f"came back: {came_back}")
    print(f"resumed in the middle: {len({count for count in counts if 0 < count < total})}")
    print(f"readings: {os.read(out, 20).decode()}")
    print(f"draws: {total}")


if __name__ == "__main__":
    warnings.simplefilter("error", sgmcmc.SgmcmcWarning)
    warnings.filterwarnings("ignore", message="interrupted")
    warnings.filterwarnings("ignore", message=".*fork")
    main(sys.argv[1], getattr(signal, sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
