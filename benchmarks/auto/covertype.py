"""The article's logistic regression on all of covertype: how far from the reference posterior, after how many seconds.

Every run is a process of its own; its clock starts with the data in memory and stops with the draws, compilation included.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.common.freshly import ROOT
from benchmarks.common.stages import Stages, say

sys.path.insert(0, str(ROOT / "references"))
from estimates import Estimate, estimated, load

REFERENCE = "covertype_laplace"
NUMBERS = 55


def data() -> dict[str, np.ndarray]:
    import sgmcmc

    table = sgmcmc.get_dataset("covertype", progress=False)
    return {"X": np.ascontiguousarray(table[:, 1:]), "y": np.ascontiguousarray(table[:, 0])}


def start() -> dict[str, Any]:
    return {"bias": 0.0, "beta": np.zeros(54)}


def errors(found: Estimate) -> dict[str, float]:
    """Root mean square and largest, over the 55 numbers."""
    reference = load(REFERENCE)
    means, sds = np.abs(found.mean_errors(reference)), np.abs(found.sd_errors(reference))
    return {"mean_rms": rms(means), "mean_max": float(means.max()), "sd_rms": rms(sds), "sd_max": float(sds.max())}


def own_errors() -> dict[str, float]:
    """The reference's own standard errors, in the same terms."""
    reference = load(REFERENCE)
    means, sds = reference.mcse_mean / reference.sd, reference.mcse_sd / reference.sd
    return {"mean_rms": rms(means), "mean_max": float(means.max()), "sd_rms": rms(sds), "sd_max": float(sds.max())}


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def together(bias: Any, beta: Any) -> np.ndarray:
    """The reference's order: chain, draw, number."""
    return np.concatenate([np.asarray(bias)[..., None], np.asarray(beta)], axis=-1)


def by_sample(draws: int, seed: int) -> dict[str, Any]:
    rows = data()
    import sgmcmc
    from reproduction.models import logistic_regression as model

    stages = Stages(f"sample, {draws:,} draws")
    fit = sgmcmc.sample(model.log_lik, rows, start(), log_prior=model.log_prior, draws=draws, seed=seed, progress=stages)
    seconds, found = stages.finish(), estimated(together(fit["bias"], fit["beta"]))
    steps = stages.work["warm-up"] + stages.work["sample"]
    chain = 2 * fit.settings["n_chains"] * fit.settings["minibatch_size"] * steps  # at the draw and at the centre
    return {
        **errors(found),
        "seconds": seconds,
        "stages": stages.seconds,
        "row_gradients": survey_gradients(stages, fit.decisions["mode"], len(rows["y"])) + pilot_gradients(stages) + chain,
        "minibatch": fit.settings["minibatch_size"],
        "ess_least": float(found.ess.min()),
        "independent": float(1 / np.mean((found.mcse_mean / found.sd) ** 2)),
        "healthy": fit.health().ok,
    }


def survey_gradients(stages: Stages, passes: int, n_rows: int) -> int:
    """Of the mode, the full gradients and the Hessian, whose rows count once for each of its columns."""
    return passes * n_rows + stages.work["full gradient"] + NUMBERS * stages.work["curvature"]


def pilot_gradients(stages: Stages) -> int:
    """Of the row weights, at 16 points and the centre, and of the noise: measured for every design and every trial."""
    from sgmcmc.tune.pilot import MOST_POINTS, NOISE_POINTS, NOISE_ROWS

    noise = 2 * stages.bars["row weights"] * NOISE_ROWS * (NOISE_POINTS + 1)
    return (MOST_POINTS + 1) * stages.work["row weights"] + noise


def surveyed(rows: dict[str, np.ndarray], stages: Stages) -> Any:
    """The mode and the curvature there."""
    from reproduction.models import logistic_regression as model
    from sgmcmc.run.request import Problem
    from sgmcmc.tune.survey import take_survey

    return take_survey(Problem.of(model.log_lik, rows, start(), model.log_prior), 1, stages)


def by_laplace() -> dict[str, Any]:
    rows = data()
    stages = Stages("Laplace approximation")
    survey = surveyed(rows, stages)
    seconds, nothing = stages.finish(), np.zeros(NUMBERS)
    mode, sd = survey.centre.position, np.sqrt(np.diag(np.linalg.inv(survey.precision)))
    mean = together(np.asarray(mode["bias"], np.float64), np.asarray(mode["beta"], np.float64))
    found = Estimate(mean, np.roll(sd, 1), nothing, nothing, nothing)  # the survey has the bias last
    return {**errors(found), "seconds": seconds, "row_gradients": survey_gradients(stages, survey.passes, len(rows["y"]))}


def by_the_article(label: str, own_centre: bool, quick: bool) -> dict[str, Any]:
    """One of the six with the article's settings, one chain; `own_centre` finds the control variates' centre by the library."""
    rows = data()
    import sgmcmc
    from reproduction.models import logistic_regression as model
    from reproduction.runs import set_up, standard_normal, start_chains
    from reproduction.settings import METHODS, lengths, setting

    (method,) = (method for method in METHODS if method.label == label)
    name, first = "logistic-regression", standard_normal({"beta": (54,), "bias": ()}, 1)
    burn_in, n_iters = lengths(name, method, quick)
    changes = {"opt_stepsize": None} if own_centre else {}
    say(f"{label}: {burn_in:,} + {n_iters:,} iterations")
    clock = time.perf_counter()
    sampler: sgmcmc.Sampler = set_up(name, method, model.log_lik, model.log_prior, rows, first, quick, **changes)
    out = sampler.run(start_chains(sampler, method, [first], 1, False), n_iters, burn_in=burn_in, progress=False)
    seconds = time.perf_counter() - clock
    work, searched = (burn_in + n_iters) * method.leaps, 0 if own_centre else setting(name, "n_iters_opt", quick)
    per_step = setting(name, "minibatch_size", quick)
    gradients = (2 * work + searched) * per_step + len(rows["y"]) if method.control_variates else work * per_step
    found = estimated(together(out["bias"], out["beta"]))
    return {**errors(found), "seconds": seconds, "row_gradients": gradients}
