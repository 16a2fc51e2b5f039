"""Replications: data from the prior, draws by `sample` or by the control, ranks. Many in one process, which compiles once."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.calibration.models import MODELS, Data, Model, simulated
from benchmarks.calibration.ranks import DRAWS, rank

SAMPLE, CONTROL = "sample", "control"
PATIENCE = 300.0
"""Seconds after which a fit counts as not ended."""

USUAL_STEP, TIMES = 0.49, 4.0
"""The step of the chains of `sample` on a unit Gaussian, and how many times too large that of the control is."""

CONTROL_ROWS, CONTROL_DRAWS = 1_000, 2_500


def replications(model: str, kind: str, chosen: list[int]) -> Iterator[dict[str, Any]]:
    """A word of the set-up, then what came of each of the chosen replications."""
    yield {"model": model, "kind": kind}
    for number in chosen:
        yield {"replication": number} | replicated(MODELS[model], kind, number)


def replicated(model: Model, kind: str, number: int) -> dict[str, Any]:
    """Ranks of the truth, or how the fit ended."""
    import sgmcmc

    truth, data = simulated(model, number)
    warnings.simplefilter("ignore", sgmcmc.SgmcmcWarning)
    clock = time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        fit = sampled(model, data, number) if kind == SAMPLE else too_large_steps(model, data, number)
        kinds = list(fit.health().kinds) if kind == SAMPLE else []
    except Exception as error:
        ended = "not ended" if isinstance(error, TimeoutError) else "refused"
        ended = ended if isinstance(error, sgmcmc.SgmcmcError | TimeoutError) else "crashed"
        return {"outcome": ended, "message": f"{type(error).__name__}: {error}"[:400], "seconds": time.perf_counter() - clock}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    seconds = time.perf_counter() - clock
    return {"outcome": "draws", "seconds": seconds, "kinds": kinds, **ranked(model, truth, dict(fit))}


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer after {PATIENCE:.0f} s")


def sampled(model: Model, data: Data, seed: int) -> Any:
    """By `sample`, on minibatches."""
    import sgmcmc

    options: dict[str, Any] = {"log_prior": model.log_prior, "constraints": model.constraints, "engine": "sgmcmc"}
    return sgmcmc.sample(model.log_lik, data, model.start, **options, seed=seed, progress=False)


def too_large_steps(model: Model, data: Data, seed: int) -> Any:
    """Langevin chains in the variables of `sample`, with a step so many times too large."""
    import sgmcmc

    options: dict[str, Any] = {"log_prior": model.log_prior, "constraints": model.constraints or None, "precondition": "laplace"}
    options |= {"minibatch_size": CONTROL_ROWS, "n_iters": CONTROL_DRAWS, "burn_in": 100, "n_chains": 4}
    step = TIMES * USUAL_STEP
    return sgmcmc.sgldcv(model.log_lik, data, model.start, step, **options, seed=seed, progress=False)


def ranked(model: Model, truth: dict[str, Any], draws: dict[str, Any]) -> dict[str, Any]:
    """The rank of every number that is looked at, and whether the draws are too few for the thinned ones to be independent."""
    from sgmcmc.results.diagnostics import autocorrelation_time

    truths = model.seen(truth)
    seen = {name: np.asarray(values, np.float64) for name, values in model.seen(draws).items()}
    every = np.stack([seen[name] for name in truths], axis=-1)
    ess = every.shape[0] * every.shape[1] / autocorrelation_time(every)
    least = float(np.nan_to_num(ess).min())
    return {"ranks": {name: rank(seen[name], float(truths[name])) for name in truths}, "ess": least, "few": least < 2 * DRAWS}
