"""`load`: results from files and folders, a regression where it is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sgmcmc.checkpoints.reading import BESIDE, read, result_of
from sgmcmc.core.errors import InputError
from sgmcmc.problem.model import Model
from sgmcmc.results.after.reading import read_result
from sgmcmc.results.result import Result


def load(path: str | Path, model: Model | None = None) -> Result:
    """The result that `fit.save(path)` wrote, or the result so far of a run with `checkpoint=path`, also while it runs; the model
    and the data are not needed.

    The draws of a run stay on disk until they are used. Parameters in nodes other than dicts, lists and tuples come as dicts by
    name. A `model` is put into the result, for what needs one after the fit: predictions, checks, leave-one-out. What `glm` has
    made comes back as a `Regression`, with its formula, and predicts for new frames. Nothing that is read is executed.

    >>> import tempfile, numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> folder = tempfile.mkdtemp()
    >>> out = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=500, seed=1,
    ...                   checkpoint=folder)
    >>> bool((sgmcmc.load(folder)["mu"] == out["mu"]).all())
    True
    """
    place = Path(path).expanduser()
    if place.is_file():
        result, beside = read_result(place, model)
        return result if beside is None else _regression(result, beside, model, place, of_folder=False)
    reading = read(path)
    result = result_of(reading, model)
    beside = reading.stages.get(BESIDE)
    return result if beside is None else _regression(result, beside, model, place, of_folder=True)


def _regression(result: Result, beside: Any, model: Model | None, path: Path, of_folder: bool) -> Result:
    from sgmcmc.models.regression.reading import regression_of

    if model is not None:
        raise InputError(f"{path} is a regression, whose model comes with it; leave model= out")
    return regression_of(result, beside, path, of_folder)
