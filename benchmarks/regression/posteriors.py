"""The posterior of each family from minibatches, beside NUTS on the same design."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.regression.frames import frame_of


def compare(family: str, n_rows: int, draws: int = 2500) -> dict[str, Any]:
    """How far means are apart, in posterior sds, and sds as ratios: the worst of all numbers."""
    formula, frame = frame_of(family, n_rows)
    found: dict[str, Any] = {"family": family, "rows": n_rows}
    tables = {}
    for engine in ("sgmcmc", "nuts"):
        began = time.perf_counter()
        fit = sgmcmc.glm(formula, frame, family=family, engine=engine, draws=draws, seed=1, progress=False)
        found[engine] = time.perf_counter() - began
        tables[engine] = fit.summary()
        found[f"{engine} ok"] = fit.health().ok
    ours, theirs = tables["sgmcmc"], tables["nuts"]
    found["means"] = float((np.abs(ours["mean"] - theirs["mean"]) / theirs["sd"]).max())
    found["sds"] = float(np.abs(ours["sd"] / theirs["sd"] - 1).max())
    return found
