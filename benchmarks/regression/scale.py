"""Many levels and many rows: seconds, memory, and how often the frame is read."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.common.freshly import ROOT

LEVELS, WRITTEN = 10_000, 1_000_000
FOLDER = ROOT / "build" / "regression"


def levels(n_rows: int) -> dict[str, Any]:
    """A frame in memory with ten thousand levels: how large its rows are without pooling; a fit with it."""
    import pandas as pd

    from sgmcmc.models.regression.building import build_design
    from sgmcmc.models.regression.families import find_family
    from sgmcmc.models.regression.storing import in_memory

    rng = np.random.default_rng(0)
    shop, x = rng.integers(0, LEVELS, n_rows), rng.normal(size=n_rows)
    effects = rng.normal(0, 0.4, LEVELS)
    names = np.array([f"shop {number}" for number in range(LEVELS)])
    frame = pd.DataFrame({"x": x, "shop": names[shop], "y": rng.poisson(np.exp(0.3 * x + effects[shop]))})
    clock = time.perf_counter()
    design, source = build_design("y ~ x + shop", frame, *find_family("poisson"))
    sparse = sum(values.nbytes for values in in_memory(design, source).values())
    encoding = time.perf_counter() - clock
    found = measured("y ~ x + (1 | shop)", frame, {"x": 0.3, "sd(1|shop)": float(effects.std())})
    return {"rows": n_rows, "levels": LEVELS, "bytes": sparse, "dense": 4 * n_rows * LEVELS, "encoding": encoding, **found}


def disk(n_rows: int) -> dict[str, Any]:
    """A Parquet file that is read block by block into a folder of rows, from which the chains read."""
    path = FOLDER / f"rows-{n_rows}.parquet"
    if not path.exists():
        written(path, n_rows)
    truth = {"age": 0.02, "power": -0.3, "fuel[petrol]": 0.2}
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        found = measured("y ~ age + power + fuel", str(path), truth, family="bernoulli", folder=folder)
        rows = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    return {"rows": n_rows, "file": path.stat().st_size, "folder": rows, **found}


def written(path: Path, n_rows: int) -> None:
    """The file, a million rows at a time."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    draft, rng, writer = path.with_suffix(".draft"), np.random.default_rng(0), None
    for start in range(0, n_rows, WRITTEN):
        n = min(WRITTEN, n_rows - start)
        age, power, petrol = rng.uniform(18, 85, n), rng.exponential(1.0, n), rng.random(n) < 0.6
        eta = -1.5 + 0.02 * age - 0.3 * power + 0.2 * petrol
        columns = {"age": age, "power": power, "fuel": np.where(petrol, "petrol", "diesel")}
        table = pyarrow.table(columns | {"y": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(np.int8)})
        writer = writer or ParquetWriter(draft, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    draft.rename(path)


def measured(formula: str, frame: Any, truth: dict[str, float], family: str = "poisson", **told: Any) -> dict[str, Any]:
    """A fit on the clock, with the memory that the process had at most, and how far the truth is away in posterior sds."""
    from sgmcmc.models.regression.sources import Source, find_source

    source, passes = find_source(frame), []

    def read(columns: list[str]) -> Any:
        passes.append(len(columns))
        return source.read(columns)

    clock = time.perf_counter()
    watched = Source(source.names, read, source.in_memory)
    fit = sgmcmc.glm(formula, watched, family=family, seed=1, progress=False, **told)
    seconds = time.perf_counter() - clock
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    table = fit.summary(max_rows=100)
    away = {name: float(abs(table.loc[name, "mean"] - value) / table.loc[name, "sd"]) for name, value in truth.items()}
    told = {"seconds": seconds, "memory": memory, "passes": len(passes), "engine": fit.settings["engine"]}
    return {**told, "ok": fit.health().ok, "away": max(away.values())}
