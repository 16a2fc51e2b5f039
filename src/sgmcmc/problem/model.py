"""A model as one object: what samplers take in place of their first arguments, and what predictions and checks work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import jax
import numpy as np

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe, shortened
from sgmcmc.core.html import Markup, element, joined, pairs
from sgmcmc.core.names import Coords, Dims
from sgmcmc.core.trees import Dataset, LogLik, LogPrior, PyTree, Rows, leaf_names, size, with_functions_fixed

Simulate: TypeAlias = Callable[[jax.Array, PyTree, Rows], Mapping[str, Any]]
"""`simulate(key, params, rows)`: what the model would have observed in these rows, by column: arrays with rows first."""

Mean: TypeAlias = Callable[[PyTree, Rows], Any]
"""`mean(params, rows)`: the expected value of what is observed in these rows, rows first."""

DrawPrior: TypeAlias = Callable[[jax.Array], PyTree]
"""`draw_prior(key)`: parameters from the prior, a tree like `params`."""

Deterministic: TypeAlias = Callable[[PyTree], Mapping[str, Any]]
"""`deterministic(params)`: what follows from parameters, by name."""

LocScale: TypeAlias = Callable[[PyTree], Mapping[str, tuple[Any, Any]]]
"""`loc_scale(params)`: by name, location and scale of the prior of parameters for which other parameters tell these."""

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")

MODEL_ARGUMENTS = ("log_lik", "dataset", "params")
"""What a model stands for in a call; the rest of it are options."""

AFTERWARDS = ("observed", "simulate", "mean", "draw_prior", "deterministic")
BREAK = Markup("<br>")

MODEL_OPTIONS = ("log_prior", "constraints", "coords", "dims")


@dataclass(frozen=True)
class Model:
    """Everything about a model in one object; samplers and `sample` take it in place of `log_lik, dataset, params`.

    What follows `dims` is for life after the fit, and may be left out: predictions and checks then say what they miss.

    Attributes:
        log_lik: `log_lik(params, batch)`, the sum over the rows of `batch`, or one value per row.
        dataset: a dict of arrays, rows on the first axis, or a folder made by `sgmcmc.data.convert`.
        params: starting values: any tree of floats.
        log_prior: `log_prior(params)`, a scalar; a flat prior when left out.
        constraints: NumPyro constraints by parameter name.
        coords: labels along every named axis, as ArviZ has them: `{"region": ["North", "South"]}`.
        dims: the names of each parameter's axes: `{"u": ["region"]}`.
        observed: the columns of the dataset that are observations: those that `simulate` makes.
        simulate: `simulate(key, params, rows)`: what the model would have observed, a dict by column, rows first.
        mean: `mean(params, rows)`: the expected value of what is observed, rows first.
        draw_prior: `draw_prior(key)`: parameters from the prior.
        deterministic: `deterministic(params)`: what follows from the parameters, by name: `Result.deterministic` has its draws.
        loc_scale: `loc_scale(params)`: by name, location and scale of the prior of parameters for which other parameters tell
            these, `{"u": (params["mu"], params["tau"])}`: where chains do not come to terms with them, `sample` moves others.
        beside: what the folder of a run of `sample` keeps beside the draws: a tree of arrays, numbers and text.

    >>> import jax, numpy as np, sgmcmc
    >>> model = sgmcmc.Model(
    ...     log_lik=lambda params, rows: -0.5 * ((rows["y"] - rows["X"] @ params["beta"]) ** 2).sum(),
    ...     dataset={"X": np.eye(3).repeat(200, 0), "y": np.arange(3.0).repeat(200)},
    ...     params={"beta": np.zeros(3)},
    ...     coords={"term": ["age", "height", "weight"]}, dims={"beta": ["term"]},
    ...     observed=("y",), mean=lambda params, rows: rows["X"] @ params["beta"],
    ... )
    >>> fit = sgmcmc.sgld(model, 1e-4, minibatch_size=60, n_iters=500, seed=1, progress=False)
    >>> list(fit.summary().index)
    ['beta[age]', 'beta[height]', 'beta[weight]']
    """

    log_lik: LogLik
    dataset: Dataset
    params: PyTree
    log_prior: LogPrior | None = None
    constraints: Mapping[str, Any] | None = None
    coords: Coords | None = None
    dims: Dims | None = None
    observed: tuple[str, ...] = ()
    simulate: Simulate | None = field(default=None, repr=False)
    mean: Mean | None = field(default=None, repr=False)
    draw_prior: DrawPrior | None = field(default=None, repr=False)
    deterministic: Deterministic | None = field(default=None, repr=False)
    loc_scale: LocScale | None = field(default=None, repr=False)
    beside: PyTree = field(default=None, repr=False)

    def __repr__(self) -> str:
        columns = ", ".join(self.dataset) if isinstance(self.dataset, Mapping) else _columns(self.dataset)
        return f"<Model of {columns}: {size(self.params)} numbers in {', '.join(leaf_names(self.params))}>"

    def _repr_html_(self) -> Markup:
        rows = {name: describe(values) for name, values in self.dataset.items()} if isinstance(self.dataset, Mapping) else {}
        start = zip(leaf_names(self.params), jax.tree.leaves(self.params), strict=True)
        parts = {
            "data": joined((f"{name}: {told}" for name, told in rows.items()), BREAK) if rows else _columns(self.dataset),
            "params": joined((self._told(name, jax.numpy.shape(leaf)) for name, leaf in start), BREAK),
            "coords": joined(
                (f"{axis}: {shortened(', '.join(map(str, along)))}" for axis, along in (self.coords or {}).items()), BREAK
            ),
            "after the fit": ", ".join(name for name in AFTERWARDS if getattr(self, name)) or None,
        }
        return joined([element("b", repr(self)), pairs({name: told for name, told in parts.items() if told})])

    def _told(self, name: str, shape: tuple[int, ...]) -> str:
        """A parameter in a line."""
        axes, limit = (self.dims or {}).get(name), (self.constraints or {}).get(name)
        told = [f"{name} of shape {shape}" if shape else name]
        told += [] if axes is None else [f"by {axes if isinstance(axes, str) else ', '.join(axes)}"]
        return ", ".join([*told, *([] if limit is None else [str(limit)])])

    def named(self, params: PyTree) -> PyTree:
        """All whose axes may have names: parameters, and what follows from them, as shapes."""
        if self.deterministic is None or not isinstance(params, Mapping) or {*map(str, self.dims or ())} <= {*map(str, params)}:
            return params
        return {**params, **jax.eval_shape(self.deterministic, params)}

    def with_options(self, given: Mapping[str, Any], call: str) -> Model:
        """The model with what a call gives beside it; what both have is refused, but for names, where the call's are taken."""
        for name in ("log_prior", "constraints"):
            if given.get(name) is not None and getattr(self, name) is not None:
                raise InputError(f"{call} got a Model, which has {name}, and {name}= as well; leave one of them out")
        told = {name: given[name] for name in MODEL_OPTIONS if given.get(name) is not None}
        return replace(self, **told) if told else self

    def prior_predictive(
        self, new: Dataset | None = None, *, draws: int = 500, seed: Any = 0, progress: Progress = True
    ) -> dict[str, np.ndarray]:
        """Observations as the model makes them before it has seen any, by column: draws first, then rows.

        Parameters come from `draw_prior`, observations from `simulate`, in the rows of `new`, or of the dataset.

        >>> import jax, numpy as np, sgmcmc
        >>> model = sgmcmc.Model(
        ...     lambda params, rows: -0.5 * ((rows["x"] - params["mu"]) ** 2).sum(), {"x": np.zeros(100)}, {"mu": 0.0},
        ...     simulate=lambda key, params, rows: {"x": params["mu"] + jax.random.normal(key, rows["x"].shape)},
        ...     draw_prior=lambda key: {"mu": 10.0 * jax.random.normal(key)},
        ... )
        >>> model.prior_predictive(draws=200)["x"].shape
        (200, 100)
        """
        from sgmcmc.problem.simulating import prior_predictive

        return prior_predictive(self, new, draws, seed, progress)


def takes_model(call: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """A call whose first three arguments may be one model: what follows it moves to where it would be after them."""

    @wraps(call)
    def with_model(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        moved: Any = (args[0], None, None, *args[1:]) if args and isinstance(args[0], Model) else args
        return call(*moved, **kwargs)

    return with_model


def model_of_call(call: str, log_lik: LogLik | Model, dataset: Any, params: PyTree, options: Mapping[str, Any]) -> Model:
    """The model that a call speaks of, with what its options say of it."""
    if not isinstance(log_lik, Model):
        return Model(log_lik, dataset, with_functions_fixed(params)).with_options(options, call)
    if dataset is not None or params is not None:
        raise InputError(f"{call} got a Model, which has a dataset and params, and these as well; leave them out")
    fixed = with_functions_fixed(log_lik.params)
    model = log_lik if fixed is log_lik.params else replace(log_lik, params=fixed)
    return model.with_options(options, call)


def _columns(dataset: Any) -> str:
    """What a dataset that is no dict is called: a frame by its columns, else as it is written if that is short."""
    names = getattr(dataset, "columns", None)
    if names is not None:
        return ", ".join(map(str, names))
    return str(dataset) if isinstance(dataset, str) or hasattr(dataset, "__fspath__") else describe(dataset)
