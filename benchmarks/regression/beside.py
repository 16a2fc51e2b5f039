"""The insurance frame by others: bambi (in an interpreter of its own), and scikit-learn's LogisticRegression."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.regression.insurance import FORMULA, policies

ALONE = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
"""The environment of an interpreter that is not to find our modules."""

SHOWN = 9
"""Coefficients that all have: those before the regions."""

BAMBI = """
import json, sys, time
import bambi, numpy as np, pandas as pd
frame = pd.read_csv(sys.argv[1], dtype={"year": str})
clock = time.perf_counter()
formula = "claims ~ bs(age, df=5, intercept=False) + fuel + year + offset(log(exposure)) + (1 | region)"
model = bambi.Model(formula, frame, family="poisson")
found = model.fit(draws=1000, tune=1000, chains=4, cores=2, progressbar=False, random_seed=1)
seconds = time.perf_counter() - clock
draws = found.posterior
names = [name for name in draws.data_vars if not name.startswith("1|region")]
means = {name: np.asarray(draws[name].mean(("chain", "draw"))).ravel().tolist() for name in names}
sds = {name: np.asarray(draws[name].std(("chain", "draw"))).ravel().tolist() for name in names}
print(json.dumps({"seconds": seconds, "means": means, "sds": sds}))
"""


def by_bambi(python: str, n_rows: int, longest: float) -> dict[str, Any]:
    """The count regression by PyMC's NUTS; what cannot be said in its formula is put into the frame before."""
    frame = policies(n_rows)
    frame = frame.assign(age=frame.age.fillna(frame.age.median()), year=frame.start.str[:4])
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder) / "frame.csv", index=False)
        command = [python, "-W", "ignore", "-c", BAMBI, f"{folder}/frame.csv"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ALONE, start_new_session=True) as process:
            try:
                told, _ = process.communicate(timeout=longest)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its chains are processes of their own
                return {"rows": n_rows, "seconds": longest, "ended": False}
    if process.returncode:
        raise RuntimeError(f"bambi ended with code {process.returncode}; its messages are above")
    found = json.loads(told.splitlines()[-1])
    ours = of_glm(n_rows)
    order = ["Intercept", "bs(age, df=5, intercept=False)", "fuel", "year"]
    theirs = np.concatenate([found["means"][name] for name in order])
    apart = np.abs(theirs - ours["means"])[1:] / ours["sds"][1:]  # they report the intercept at the means of the columns
    line = {"rows": n_rows, "seconds": found["seconds"], "ended": True, "glm": ours["seconds"], "apart": float(apart.max())}
    return line | {"ours": ours["means"], "theirs": theirs.tolist(), "names": ours["names"]}


def of_glm(n_rows: int) -> dict[str, Any]:
    clock = time.perf_counter()
    fit = sgmcmc.glm(FORMULA, policies(n_rows), family="poisson", missing={"age": "median"}, seed=1, progress=False)
    seconds = time.perf_counter() - clock
    table = fit.summary(max_rows=1_000).iloc[:SHOWN]
    return {"seconds": seconds, "means": table["mean"].tolist(), "sds": table["sd"].tolist(), "names": list(table.index)}


def by_sklearn(n_rows: int) -> dict[str, Any]:
    """Whether there was a claim, by the same columns without effects of regions: the maximum of scikit-learn beside our means."""
    from sklearn.linear_model import LogisticRegression

    from sgmcmc.models.regression.building import build_design
    from sgmcmc.models.regression.families import find_family
    from sgmcmc.models.regression.storing import in_memory

    frame = policies(n_rows)
    frame = frame.assign(claimed=(frame.claims > 0).astype(int))
    formula, told = "claimed ~ bs(age, df=5) + fuel + C(year(start)) + exposure", {"missing": {"age": "median"}}
    clock = time.perf_counter()
    fit = sgmcmc.glm(formula, frame, family="bernoulli", seed=1, progress=False, **told)
    seconds = time.perf_counter() - clock
    design, source = build_design(formula, frame, *find_family("bernoulli"), **told)
    rows, matrix = in_memory(design, source), design.matrix
    clock = time.perf_counter()
    theirs = LogisticRegression(C=np.inf, max_iter=1_000, tol=1e-8).fit(rows["x"], rows["y"])
    their_seconds = time.perf_counter() - clock
    table = fit.summary().iloc[1:]
    slopes = theirs.coef_[0] / matrix.scales
    apart = np.abs(table["mean"].to_numpy() - slopes) / table["sd"].to_numpy()
    told_ = {"rows": n_rows, "glm": seconds, "seconds": their_seconds, "apart": float(apart.max()), "ended": True}
    return told_ | {"ours": table["mean"].tolist(), "theirs": slopes.tolist(), "names": list(table.index)}
