"""What is said of a fit: errors against the reference with their standard errors, and one word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.everyday.cases import Case

MEANS, SDS = 0.15, 0.1
"""The largest error of a mean in posterior sds, and of an sd relative to it, with which a fit is right."""

PREDICTIONS = 1.1
"""Root mean square error of predictions, in sds of the noise, up to which a network is right."""

SURE = 3.0
"""Standard errors by which an error has to be beyond its bound to count."""

RIGHT, FLAGGED, ALARM, WRONG = "right", "flagged", "false alarm", "SILENTLY WRONG"
REFUSED, FALSELY, UNNAMED = "refused, rightly", "REFUSED FALSELY", "REFUSED, NOTHING NAMED"
CRASHED, ENDLESS, UNKNOWN = "CRASHED", "NOT ENDED", "NO REFERENCE"
BAD = (WRONG, FALSELY, UNNAMED, CRASHED, ENDLESS, UNKNOWN)
"""What must not happen."""


@dataclass(frozen=True)
class Error:
    """The largest error of all numbers, its standard error, whose it is, and by how much any is surely beyond the bound."""

    value: float
    se: float
    whose: str
    beyond: float

    def surely_within(self, bound: float) -> bool:
        """Within the bound, and not by chance: a run too short to tell is rightly flagged."""
        return self.value <= bound and SURE * self.se <= bound

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.se:.2f}"


@dataclass(frozen=True)
class Judgement:
    word: str
    means: Error | None = None
    sds: Error | None = None
    rmse: float | None = None


def mean_error(fit: Mapping[str, Any], reference: Mapping[str, Any]) -> Error:
    """In posterior sds. The standard error is that of a right fit with as many effective draws as this one has."""
    sd = np.asarray(reference["sd"])
    error = np.abs(np.subtract(fit["mean"], reference["mean"])) / sd
    return largest(error, np.sqrt(1 / effective(fit["ess"]) + 1 / effective(reference["ess"])), MEANS, reference["names"])


def sd_error(fit: Mapping[str, Any], reference: Mapping[str, Any]) -> Error:
    """Relative. The standard error knows the tails of the reference: squares of heavy ones vary more."""
    error = np.abs(np.divide(fit["sd"], reference["sd"]) - 1)
    spread = np.sqrt(np.maximum(np.asarray(reference["kurtosis"]) - 1, 0)) / 2
    se = spread * np.sqrt(1 / effective(fit["ess_of_squares"]) + 1 / effective(reference["ess_of_squares"]))
    return largest(error, se, SDS, reference["names"])


def effective(draws: Any) -> np.ndarray:
    """At least one, also for a number that never moved."""
    return np.maximum(np.nan_to_num(np.asarray(draws, np.float64), nan=1.0), 1.0)


def largest(error: np.ndarray, se: np.ndarray, bound: float, names: list[str]) -> Error:
    error = np.nan_to_num(error, nan=np.inf)
    worst = int(np.argmax(error))
    return Error(float(error[worst]), float(se[worst]), names[worst], float((error - SURE * se).max() - bound))


def judge(case: Case, fit: Mapping[str, Any], reference: Mapping[str, Any] | None) -> Judgement:
    """One word for a fit, and the errors it rests on."""
    if fit["outcome"] != "draws":
        return Judgement(ended(case, fit))
    healthy = not fit["kinds"]
    if not case.proper:
        return Judgement(WRONG if healthy else FLAGGED)
    if case.predictions is not None:
        near = fit["rmse"] <= PREDICTIONS
        return Judgement((RIGHT if near else WRONG) if healthy else FLAGGED, rmse=fit["rmse"])
    if reference is None:
        return Judgement(UNKNOWN)
    means, sds = mean_error(fit, reference), sd_error(fit, reference)
    if healthy:
        return Judgement(RIGHT if max(means.beyond, sds.beyond) <= 0 else WRONG, means, sds)
    return Judgement(ALARM if means.surely_within(MEANS) and sds.surely_within(SDS) else FLAGGED, means, sds)


def ended(case: Case, fit: Mapping[str, Any]) -> str:
    """The word for a call that gave no draws."""
    if fit["outcome"] != "refused":
        return CRASHED if fit["outcome"] == "crashed" else ENDLESS
    if not case.naming:
        return FALSELY
    return REFUSED if re.search(case.naming, fit["message"]) else UNNAMED
