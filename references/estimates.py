"""Means and standard deviations with their Monte Carlo errors: of draws, and of the references in this folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from arviz_stats.base.array import array_stats

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Estimate:
    """One value for each number of a posterior; the errors are standard errors."""

    mean: np.ndarray
    sd: np.ndarray
    mcse_mean: np.ndarray
    mcse_sd: np.ndarray
    ess: np.ndarray

    def mean_errors(self, reference: Estimate) -> np.ndarray:
        """In standard deviations of the reference."""
        return (self.mean - reference.mean) / reference.sd

    def sd_errors(self, reference: Estimate) -> np.ndarray:
        """Relative: 0.1 is a tenth too large."""
        return self.sd / reference.sd - 1

    def mean_se(self, reference: Estimate) -> np.ndarray:
        """The standard error of `mean_errors`, from both sides."""
        return np.hypot(self.mcse_mean, reference.mcse_mean) / reference.sd

    def sd_se(self, reference: Estimate) -> np.ndarray:
        """The standard error of `sd_errors`, from both sides."""
        return np.hypot(self.mcse_sd, self.sd / reference.sd * reference.mcse_sd) / reference.sd


def estimated(draws: np.ndarray) -> Estimate:
    """From draws with axes chain, draw, number; errors by ArviZ, with autocorrelation and, for sds, kurtosis."""
    draws = np.asarray(draws, np.float64)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1), ddof=1)
    unit = (draws - mean) / sd  # ArviZ takes anything tiny for a constant
    numbers = [unit[..., i] for i in range(unit.shape[2])]

    def errors(method: str) -> np.ndarray:
        return sd * np.array([array_stats.mcse(x, chain_axis=0, draw_axis=1, method=method) for x in numbers])

    ess = np.array([array_stats.ess(x, chain_axis=0, draw_axis=1, method="bulk") for x in numbers])
    return Estimate(mean, sd, errors("mean"), errors("sd"), ess)


def exact(mean: np.ndarray, covariance: np.ndarray) -> Estimate:
    """Without Monte Carlo error."""
    sd = np.sqrt(np.diag(covariance))
    return Estimate(mean, sd, np.zeros_like(sd), np.zeros_like(sd), np.full_like(sd, np.inf))


def load(name: str) -> Estimate:
    """A reference by its name; an exact one has no effective sample size: it is infinite."""
    content = json.loads((FOLDER / f"{name}.json").read_text())
    mean, sd, mcse_mean, mcse_sd = (np.array(content[key]) for key in ("mean", "sd", "mcse_mean", "mcse_sd"))
    ess = content.get("ess", content.get("ess_mean"))
    return Estimate(mean, sd, mcse_mean, mcse_sd, np.full_like(sd, np.inf) if ess is None else np.array(ess))
