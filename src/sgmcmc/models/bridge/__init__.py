"""NumPyro models: their rows as a log likelihood, the rest of them as a prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.names import Coords, Dims
from sgmcmc.core.trees import Dataset
from sgmcmc.problem.model import Model


def from_numpyro(
    model: Callable[..., Any],
    data: Dataset,
    *,
    static: Mapping[str, Any] | None = None,
    plate: str | tuple[str, ...] | None = None,
    init: Any = None,
    coords: Coords | None = None,
    dims: Dims | None = None,
) -> Model:
    """A NumPyro model as a `Model`: `sample` and all samplers take it, and minibatches of its rows are unbiased.

    The columns of the data are given to the model's arguments of the same names. Observed sites, and factors, that have one value
    per row are the log likelihood; all else is the prior. Rows may be in a `plate` (with `subsample_size` or without, of the size
    of a column or of the whole dataset), or in none; `subsample`, `scale`, `mask`, `factor` and `reparam` mean what they mean in
    NumPyro. A latent discrete number of every row, in a plate, is summed over its values.

    Args:
        model: a function with sample statements, with NumPyro's handlers about it or not.
        data: a dict of arrays, rows on the first axis, or a folder made by `sgmcmc.data.convert`.
        static: arguments of the model that are no row data: sizes, flags, levels.
        plate: the name of the plate over the rows, or of several, where its size, that of the data, does not tell.
        init: where the parameters start: a dict of values by name, or one of NumPyro's strategies; left out, the prior's median.
        coords: labels along axes, as in `Model`; plates are axes with names already.
        dims: names of axes, as in `Model`, beside those that are plates.

    >>> import numpy as np, numpyro, sgmcmc
    >>> from numpyro.distributions import HalfNormal, Normal
    >>> def model(x, y, n_groups, group):
    ...     with numpyro.plate("region", n_groups):
    ...         a = numpyro.sample("a", Normal(0, 5))
    ...     b, s = numpyro.sample("b", Normal(0, 5)), numpyro.sample("s", HalfNormal(5))
    ...     with numpyro.plate("rows", len(x)):
    ...         numpyro.sample("y", Normal(a[group] + b * x, s), obs=y)
    >>> rng = np.random.default_rng(0)
    >>> x, group = rng.normal(size=900), np.arange(900) % 3
    >>> data = {"x": x, "y": group + 2 * x + rng.normal(size=900), "group": group}
    >>> bridged = sgmcmc.from_numpyro(model, data, static={"n_groups": 3}, coords={"region": ["North", "South", "East"]})
    >>> bridged
    <Model of x, y, group: 5 numbers in a, b, s>
    >>> fit = sgmcmc.sgld(bridged, 1e-4, minibatch_size=90, n_iters=200, seed=1, progress=False)
    >>> list(fit.summary().index)
    ['a[North]', 'a[South]', 'a[East]', 'b', 's']
    """
    if static is not None and not isinstance(static, Mapping):
        raise InputError(f"static is {describe(static)}; expected a dict by argument, such as {{'n_groups': 8}}")
    from sgmcmc.models.bridge.build import build  # imported here: NumPyro takes a second

    plates = (plate,) if isinstance(plate, str) else tuple(plate or ())
    return build(model, data, static or {}, plates, init, coords, dims)
