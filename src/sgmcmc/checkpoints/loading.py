"""`load`: the result of a run from its folder, finished or not."""

from pathlib import Path

from sgmcmc.checkpoints.reading import Reading, read
from sgmcmc.checkpoints.saving import WEIGHTS
from sgmcmc.core.errors import SgmcmcError
from sgmcmc.results.result import Record, Result, assemble


def load(path: str | Path) -> Result:
    """The result so far of a run with `checkpoint=path`, also while it runs; the model and the data are not needed.

    The draws stay on disk until they are used. Parameters in nodes other than dicts, lists and tuples come as dicts by name.

    >>> import tempfile, numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> folder = tempfile.mkdtemp()
    >>> out = sgmcmc.sgld(log_lik, {"x": np.zeros(100)}, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=500, seed=1,
    ...                   checkpoint=folder)
    >>> bool((sgmcmc.load(folder)["mu"] == out["mu"]).all())
    True
    """
    reading = _latest(read(path))
    last = reading.last
    if last is None:
        raise SgmcmcError(f"{path} holds no draws yet: its run has not reached the first checkpoint")
    draws = dict(reading.draws)
    weights = draws.pop(WEIGHTS, None)
    return assemble(Record.unpacked(last.contents["record"]), last.contents["state"], last.contents["kept"] | draws, weights)


def _latest(reading: Reading) -> Reading:
    """The run itself, or of one that began anew the last beginning that made draws."""
    begun = [part for _, part in sorted(reading.parts.items()) if part.last is not None]
    drawn = [part for part in begun if part.last is not None and any(part.last.n_draws.values())]
    return (drawn or begun or [reading])[-1]
