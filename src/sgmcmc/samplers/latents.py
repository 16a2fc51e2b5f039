"""What `latent=` asks for: latent variables of rows, checked, and put into a composition and the model it samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.gradients.latent import Carrying, Complete, Completing, Latent
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.kernel import Dynamics, Estimator
from sgmcmc.checkpoints.fingerprint import of_value
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import PyTree, Rows, shapes, tree_map
from sgmcmc.problem.model import Model
from sgmcmc.problem.posterior import check_params
from sgmcmc.rows.table import IMPORTANCE, Table, check_dataset

EXAMPLE = "latent=draw, where draw(key, params, rows) returns z for these rows, and log_lik(params, rows, z)"


@dataclass(frozen=True)
class Joint:
    """The log likelihood of a model with latent variables, for what comes after the fit: that needs z summed out."""

    log_lik: Callable[..., Any]

    def __call__(self, params: PyTree, rows: Rows) -> Any:
        repair = "expected a log_lik(params, rows) with z summed out: dataclasses.replace(fit, model=Model(...)) has one"
        raise InputError(f"log_lik is that of rows and their latent variables together; {repair}")


def latent_of(given: Any) -> Latent | None:
    """From what a call says: a function or a `Latent`."""
    if given is None or isinstance(given, Latent):
        return given
    if not callable(given):
        raise InputError(f"latent is {describe(given)}; expected a function or a sgmcmc.Latent: {EXAMPLE}")
    return Latent(given)


def completed(model: Model, latent: Latent | None, owned: tuple[str, ...]) -> Model:
    """The model whose log likelihood is that of rows and latent variables; what does not fit is refused."""
    if latent is None:
        return model
    if not callable(model.log_lik):
        raise InputError(f"log_lik is {describe(model.log_lik)}; expected a function log_lik(params, rows, z)")
    _check(Complete(model.log_lik, latent), check_params(model.params, owned), check_dataset(model.dataset))
    return replace(model, log_lik=Complete(model.log_lik, latent))


def completing(composition: Any, latent: Latent | None) -> Any:
    """The composition with an estimator of rows whose latent variables are drawn."""
    if latent is None:
        return composition
    if type(composition.dynamics).kernel is not Dynamics.kernel:
        found = f"latent came with {type(composition.dynamics).__name__}, whose tests need log likelihoods with z summed out"
        raise InputError(f"{found}; expected dynamics of leaps alone, such as 'langevin' or 'baoa'")
    kept = "" if latent.kept is None else f": {of_value(latent.kept)}"
    told = {**composition.told, "latent": f"{latent}{kept}"}
    return replace(composition, gradient=_estimator(composition.gradient, latent), told=told)


def _estimator(gradient: Estimator, latent: Latent) -> Estimator:
    if not gradient.follows_posterior:
        found = f"latent came with {type(gradient).__name__}, which needs gradients of all rows with z summed out"
        raise InputError(f"{found}; expected gradient='minibatch' or 'saga' (sgld for sgldcv)")
    if latent.kept is None:
        return Completing(gradient, latent)
    if type(gradient) is not Minibatch or gradient.with_variance:
        raise InputError(f"latent with kept came with {gradient}; expected gradient='minibatch', which remembers nothing else")
    return Carrying(gradient, latent)


def check_beside(latent: Latent | None, rows: str, auto: bool, precondition: str | None) -> None:
    """Refuse what would look at the curvature of the log likelihood: that with z summed out is not known."""
    if latent is None:
        return
    for asked, said in ((rows == IMPORTANCE, f"rows={rows!r}"), (auto, "stepsize='auto'")):
        if asked:
            raise InputError(f"{said} came with latent, where the curvature with z summed out is not known; leave it out")
    if precondition in ("laplace", "diagonal"):
        found = f"precondition={precondition!r} came with latent, where the curvature with z summed out is not known"
        raise InputError(f"{found}; expected a tree of standard deviations, a covariance matrix, or none")


def model_after(model: Model) -> Model:
    """The model for what comes after the fit."""
    log_lik = model.log_lik
    return replace(model, log_lik=Joint(log_lik.log_lik)) if isinstance(log_lik, Complete) else model


def _check(complete: Complete, params: PyTree, table: Table) -> None:
    """What is drawn must have the rows first, and be as what is kept."""
    count, latent = min(3, table.n_rows), complete.latent
    rows = {name: jax.ShapeDtypeStruct((count, *c.shape[1:]), c.dtype) for name, c in table.items()}
    given: tuple[PyTree, ...] = ()
    if latent.kept is not None:
        if table.in_strata:
            raise InputError("latent with kept came with rows in strata; expected a dataset on one process")
        sizes = {np.shape(z)[0] if np.ndim(z) else None for z in jax.tree.leaves(latent.kept)}
        if sizes != {table.n_rows}:
            raise InputError(f"kept of Latent is {describe(latent.kept)}; expected arrays with {table.n_rows} rows first")
        given = (tree_map(lambda z: jax.ShapeDtypeStruct((count, *np.shape(z)[1:]), jnp.asarray(z).dtype), latent.kept),)
    what = "key, params and a few rows" + (" and their z" if given else "")
    try:
        z = jax.eval_shape(latent.draw, jax.eval_shape(lambda: jax.random.key(0)), shapes(params), rows, *given)
    except Exception as error:
        raise InputError(f"latent failed when called with {what}: {type(error).__name__}: {error}") from error
    leaves = jax.tree.leaves(z)
    if not leaves or any(leaf.shape[:1] != (count,) for leaf in leaves):
        raise InputError(f"latent returned {describe(z)} for {count} rows; expected an array with {count} rows first")
    if given and tree_map(lambda x: x.shape, z) != tree_map(lambda x: x.shape, given[0]):
        raise InputError(f"latent returned {describe(z)} for {count} rows; expected what kept has, {describe(given[0])}")
