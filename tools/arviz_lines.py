"""What ArviZ makes of our trees, in both of its lines: summary, trace, forest, predictive plot, loo, compare, files.

    python tools/arviz_lines.py    # with arviz 0.23 (Python 3.11) or arviz 1.x (Python 3.12 and later) installed

Prints what each call gives; ends with an error where one fails.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import arviz
import jax
import matplotlib
import numpy as np

import sgmcmc

ROWS = 500
GROUPS = ["posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data"]


def fitted(columns: int) -> sgmcmc.Result:
    """A regression on the first so many columns; the name of its parameter has a slash."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2)).astype(np.float32)
    y = (X @ np.array([1.0, 0.5]) + rng.normal(size=ROWS)).astype(np.float32)

    def mean(params: Any, rows: Any) -> Any:
        return rows["X"][:, :columns] @ params["net/b"]

    def log_lik(params: Any, rows: Any) -> Any:
        return jax.scipy.stats.norm.logpdf(rows["y"], mean(params, rows))

    def simulate(key: Any, params: Any, rows: Any) -> Any:
        return {"y": mean(params, rows) + jax.random.normal(key, rows["X"].shape[:1])}

    model = sgmcmc.Model(log_lik, {"X": X, "y": y}, {"net/b": np.zeros(columns)}, observed=("y",), simulate=simulate)
    return sgmcmc.sample(model, seed=1, progress=False)


def main() -> None:
    matplotlib.use("Agg")
    print("arviz", arviz.__version__)
    fits = {"two columns": fitted(2), "one column": fitted(1)}
    trees = {name: fit.to_arviz(GROUPS, rows=ROWS, progress=False) for name, fit in fits.items()}
    if arviz.__version__.startswith("0."):
        trees = {name: arviz.InferenceData.from_datatree(tree) for name, tree in trees.items()}
    tree = trees["two columns"]
    print(arviz.summary(tree))
    for plot in ("plot_trace", "plot_forest", "plot_ppc" if hasattr(arviz, "plot_ppc") else "plot_ppc_dist"):
        print(plot, type(getattr(arviz, plot)(tree)).__name__)
    print(arviz.loo(tree))
    print(arviz.compare(trees))
    print(sgmcmc.compare(fits, progress=False))
    with tempfile.TemporaryDirectory() as folder:
        plain = fits["two columns"].to_arviz(["posterior", "log_likelihood"], progress=False)
        plain.to_netcdf(Path(folder) / "fit.nc")
        plain.to_zarr(Path(folder) / "fit.zarr")
    print("files written")


if __name__ == "__main__":
    main()
