"""What a run returns: draws by parameter, what was kept instead of them, and how they came about."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgmcmc._tree import children, leaf_names
from sgmcmc._types import PyTree, State
from sgmcmc.diagnostics import QUANTILES, mixing, weighted_mean_sd, weighted_quantiles
from sgmcmc.errors import InputError, SgmcmcWarning

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

LONGEST_SUMMARY = 200
"""Numbers a summary describes unless told otherwise."""


@dataclass(frozen=True)
class Result(Mapping[str, Any]):
    """The draws of a run: a mapping of the parameters' names to arrays.

    Without chains `result["beta"]` has shape `(draws, *shape of beta)`; with them the chains come first.

    Attributes:
        draws: the draws as a tree like `params`, or None where `keep` replaced them.
        kept: what the objects of `keep` returned, by name; the object's own value where `keep` was one object.
        final_state: where to continue from, with `run` of the matching `*_setup` sampler.
        settings: what the run was told and what it decided, with the versions of the software.
        weights: one weight per draw under a step-size schedule, else None. `summary` uses it.

    >>> import numpy as np, sgmcmc
    >>> def log_lik(params, batch):
    ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.zeros(100, np.float32)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-2, minibatch_size=10, n_iters=500, n_chains=2, seed=1)
    >>> out["mu"].shape
    (2, 500)
    >>> list(out.summary().columns)
    ['mean', 'sd', '5%', '50%', '95%', 'ess', 'r_hat']
    """

    draws: PyTree | None
    kept: Any
    final_state: State
    settings: dict[str, Any]
    weights: np.ndarray | None = None
    chained: bool = False
    _children: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_children", {} if self.draws is None else children(self.draws))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._children[name]
        except KeyError:
            raise KeyError(f"{name!r}; this result has {', '.join(map(repr, self._children)) or 'no draws, see .kept'}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)

    def __repr__(self) -> str:
        names, leaves = leaf_names(self.draws), jax.tree.leaves(self.draws)
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in zip(names, leaves, strict=True))
        return f"<Result of {self.settings.get('sampler')}: {shapes or 'no draws kept, see .kept'}>"

    def summary(self, max_rows: int = LONGEST_SUMMARY) -> pandas.DataFrame:
        """Mean, standard deviation, quantiles, effective sample size and R-hat of every number.

        The last two measure how well the chain mixes, not whether its law is the posterior. With one chain, R-hat
        compares its halves. Under a step-size schedule mean, sd and quantiles weight each draw by its step size.

        Args:
            max_rows: describe only the first so many numbers (a network has too many to read).
        """
        import pandas

        total = sum(math.prod(draws.shape[2:]) for _, draws in self._named_draws())
        if total > max_rows:
            warnings.warn(f"summary shows {max_rows} of {total} numbers; raise max_rows to see all", SgmcmcWarning, stacklevel=2)
        columns = ["mean", "sd", *(f"{q:.0%}" for q in QUANTILES), "ess", "r_hat"]
        rows, left = {}, max_rows
        for name, draws in self._named_draws():
            flat = draws.reshape(*draws.shape[:2], -1)[..., : max(left, 0)]
            if flat.shape[2] == 0:
                break
            table = [*weighted_mean_sd(flat, self.weights), *weighted_quantiles(flat, self.weights), *mixing(flat)]
            labels = _labels(name, draws.shape[2:])
            rows.update(dict(zip(labels, np.stack(table, axis=1), strict=False)))
            left -= flat.shape[2]
        return pandas.DataFrame.from_dict(rows, orient="index", columns=columns)

    def to_arviz(self) -> Any:
        """The draws as an ArviZ `DataTree` with a posterior group; settings go to its attributes.

        >>> import numpy as np, sgmcmc
        >>> def log_lik(params, batch):
        ...     return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
        >>> data = {"x": np.zeros((100, 3))}
        >>> out = sgmcmc.sgld(log_lik, data, {"mu": np.zeros(3)}, 1e-2, minibatch_size=10, n_iters=50, seed=1)
        >>> dict(out.to_arviz().posterior.sizes)
        {'chain': 1, 'draw': 50, 'mu_dim_0': 3}
        """
        from arviz_base import from_dict

        draws = dict(self._named_draws())
        attributes = {name: str(value) for name, value in self.settings.items()}
        return from_dict({"posterior": draws}, attrs={"posterior": attributes})

    def plot(self, names: list[str] | None = None, max_rows: int = 12) -> Figure:
        """Traces and densities, a row for each number: a matplotlib figure to show or save.

        Args:
            names: the parameters to draw; None draws them all.
            max_rows: draw at most so many numbers.
        """
        from sgmcmc.pictures import traces_and_densities

        draws = dict(self._named_draws())
        unknown = [name for name in names or [] if name not in draws]
        if unknown:
            raise InputError(f"plot was asked for {unknown[0]!r}; this result has {', '.join(draws)}")
        chosen = draws if names is None else {name: draws[name] for name in names}
        series = [
            (label, array.reshape(*array.shape[:2], -1)[..., i])
            for name, array in chosen.items()
            for i, label in enumerate(_labels(name, array.shape[2:]))
        ]
        return traces_and_densities(series[:max_rows], str(self.settings.get("sampler")), self.weights)

    def _named_draws(self) -> list[tuple[str, np.ndarray]]:
        """Every leaf by name, with axes chain, draw, and its own."""
        if self.draws is None:
            raise InputError("this result kept no draws; leave keep out, or put sgmcmc.Trace() into it")
        leaves = jax.tree.leaves(self.draws)
        if leaves[0].shape[self.chained] == 0:
            raise InputError("this result has no draws: the run ended in its burn-in")
        chained = [leaf if self.chained else leaf[None] for leaf in leaves]
        return list(zip(leaf_names(self.draws), chained, strict=True))


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name + (f"[{','.join(map(str, index))}]" if index else "") for index in np.ndindex(*shape)]
