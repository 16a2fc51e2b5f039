"""A portfolio of car insurance: a frame with strings, dates as text, missing values and exposures, to report and predictions.

The reference posterior is NumPyro's NUTS in double precision, the model written a second time. Ages are whole years, so that
claims and exposures summed over policies of equal age, fuel, year and region are all that the likelihood knows.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import sgmcmc
from benchmarks.common.freshly import ROOT

FORMULA = "claims ~ bs(age, df=5) + fuel + C(year(start)) + (1 | region) + offset(log(exposure))"
REGIONS = 100
REFERENCES = ROOT / "references" / "regression"
DRAWS, WARM_UP, CHAINS = 4_000, 2_000, 4


def policies(n_rows: int, seed: int = 0) -> pd.DataFrame:
    """The frame."""
    rng = np.random.default_rng(seed)
    age, region = rng.integers(18, 86, n_rows), rng.choice(REGIONS, n_rows, p=rng.dirichlet(np.full(REGIONS, 2.0)))
    fuel = rng.choice(["petrol", "diesel", "electric"], n_rows, p=[0.6, 0.3, 0.1])
    start = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 730, n_rows), unit="D")
    exposure = rng.uniform(0.1, 1.0, n_rows)
    rate = np.exp(-2 + 1.2 * np.exp(-(age - 18) / 12) + 0.3 * (fuel == "diesel") + 0.1 * (start.year == 2024))
    rate = rate * np.exp(rng.normal(0, 0.3, REGIONS))[region]
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n_rows) < 0.02, np.nan, age),
            "fuel": fuel,
            "region": [f"region {number:02}" for number in region],
            "start": start.strftime("%Y-%m-%d"),
            "exposure": exposure,
            "claims": rng.poisson(exposure * rate),
        }
    )


def fitted(n_rows: int, seed: int = 1) -> dict[str, Any]:
    """The whole task on the clock, and its posterior."""
    frame = policies(n_rows)
    new = frame.drop(columns="claims").head(1_000).replace({"region": {"region 00": "a new one"}})
    with tempfile.TemporaryDirectory() as folder:
        clock = time.perf_counter()
        fit = sgmcmc.glm(FORMULA, frame, family="poisson", missing={"age": "median"}, seed=seed, progress=False)
        seconds = {"fit": time.perf_counter() - clock}
        fit.report(f"{folder}/claims.html")
        expected, interval = fit.predict(new, progress=False), fit.predict(new, "interval", progress=False)
        seconds["all"] = time.perf_counter() - clock
    table = fit.summary(max_rows=1_000)
    assert np.isfinite(expected).all()
    assert (interval.lower <= interval.upper).all()
    found = {name: table[name].tolist() for name in ("mean", "sd", "ess")}
    return {"names": list(table.index), **found, **seconds, "engine": fit.settings["engine"], "ok": fit.health().ok}


def compare(n_rows: int) -> dict[str, Any]:
    """The fit beside the reference: the worst of all numbers, effects of regions among them."""
    ours, theirs = fitted(n_rows), reference(n_rows)
    assert ours["names"] == theirs["names"]
    mean, sd = np.asarray(theirs["mean"]), np.asarray(theirs["sd"])
    apart, ratio = np.abs(np.asarray(ours["mean"]) - mean) / sd, np.asarray(ours["sd"]) / sd - 1
    worst = {"means": float(apart.max()), "of": ours["names"][int(apart.argmax())], "sds": float(np.abs(ratio).max())}
    told = {name: ours[name] for name in ("fit", "all", "engine", "ok")}
    return {"rows": n_rows, "numbers": len(mean), **worst, **told, "ess": float(min(ours["ess"])), "nuts": theirs["seconds"]}


def reference(n_rows: int) -> dict[str, Any]:
    """The reference, made if it is not there."""
    path = Path(REFERENCES / f"insurance-{n_rows}.json")
    if not path.exists():
        with jax.enable_x64(True):
            made = _by_nuts(n_rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made) + "\n")
    return json.loads(path.read_text())


def _by_nuts(n_rows: int) -> dict[str, Any]:
    import numpyro
    from numpyro import distributions as law
    from numpyro.infer import MCMC, NUTS

    from sgmcmc.models.regression.building import build_design, core_of
    from sgmcmc.models.regression.families import find_family
    from sgmcmc.models.regression.report import reported

    frame = policies(n_rows)
    design, _ = build_design(FORMULA, frame, *find_family("poisson"), missing={"age": "median"})
    core = core_of(design, *find_family("poisson"))
    filled = frame.assign(age=frame.age.fillna(design.missing.fill["age"]), start=frame.start.str[:4] + "-01-01")
    cells, cell = _cells(filled[["age", "fuel", "start"]])
    x = design.matrix.of(design.facts.typed(cells))
    region, count = design.varying[0].levels.codes(filled), len(core.groups[0].labels)
    exposures = np.zeros((len(cells), count))
    np.add.at(exposures, (cell, region), filled.exposure)
    by_cell = np.bincount(cell, filled.claims, len(cells))
    by_region = np.bincount(region, filled.claims, count)
    middle = float(np.log(frame.claims.mean())) - core.mean_offset

    def model() -> None:
        intercept = numpyro.sample("Intercept", law.Normal(middle, 2.5))
        slopes = numpyro.sample("coefficients", law.Normal(0, 2.5).expand([x.shape[1]]))
        scale = numpyro.sample("sd of region", law.HalfNormal(2.5))
        effects = numpyro.sample("effects of region", law.Normal(0, scale).expand([count]))
        eta = intercept + x @ slopes
        numpyro.factor("claims", by_cell @ eta + by_region @ effects - jnp.exp(eta) @ exposures @ jnp.exp(effects))

    clock = time.perf_counter()
    run = MCMC(NUTS(model, dense_mass=True), num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS, progress_bar=False,
               chain_method="vectorized")  # fmt: skip
    run.run(jax.random.key(0))
    jax.block_until_ready(run.get_samples())
    seconds = time.perf_counter() - clock
    draws, names = reported(core, jax.tree.map(np.asarray, run.get_samples(group_by_chain=True)))
    told: dict[str, list[Any]] = {"names": [], "mean": [], "sd": [], "r_hat": []}
    for name, values in draws.items():
        flat = np.asarray(values, np.float64).reshape(CHAINS, DRAWS, -1)
        told["names"] += names.labels(name, values.shape[2:])
        told["mean"] += flat.mean(axis=(0, 1)).tolist()
        told["sd"] += flat.reshape(-1, flat.shape[2]).std(axis=0, ddof=1).tolist()
        told["r_hat"] += np.sqrt(1 + flat.mean(axis=1).var(axis=0, ddof=1) / flat.var(axis=1).mean(axis=0)).tolist()
    assert max(told["r_hat"]) < 1.01
    return {**told, "seconds": seconds, "draws": CHAINS * DRAWS}


def _cells(columns: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """The different rows, and for every row which it is."""
    groups = columns.groupby(list(columns), sort=True)
    return groups.size().reset_index()[list(columns)], groups.ngroup().to_numpy()
