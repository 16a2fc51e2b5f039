"""The maximum of the likelihood, of our design and families, beside that of statsmodels."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.regression.frames import TERMS, frame_of
from sgmcmc.models.regression import predictor as functions
from sgmcmc.models.regression.building import build_design, core_of
from sgmcmc.models.regression.families import find_family
from sgmcmc.models.regression.report import reported
from sgmcmc.models.regression.storing import in_memory
from sgmcmc.problem.posterior import make_transform

BLOCK, STEPS = 100_000, 40

OVERLAP = ("gaussian", "bernoulli", "binomial", "categorical", "ordinal", "poisson", "negative binomial", "gamma", "beta")
"""Families that statsmodels has too."""


def compare(family: str, n_rows: int) -> dict[str, Any]:
    """Seconds of both, and how far apart their coefficients are, in standard errors."""
    formula, frame = frame_of(family, n_rows)
    with jax.enable_x64(True):
        began = time.perf_counter()
        ours, rows = maximum(formula, frame, family)
        seconds = time.perf_counter() - began
    began = time.perf_counter()
    theirs, errors = of_statsmodels(family, frame)
    theirs_seconds = time.perf_counter() - began
    apart = np.abs(ours[: len(theirs)] - theirs) / errors
    return {"family": family, "rows": rows, "numbers": len(theirs), "apart": float(apart.max()), "seconds": seconds,
            "statsmodels": theirs_seconds}  # fmt: skip


def maximum(formula: str, frame: Any, family: str) -> tuple[np.ndarray, int]:
    """Our maximum by Newton's steps in double precision, on the scale of the columns."""
    chosen, link = find_family(family)
    design, source = build_design(formula, frame, chosen, link)
    core, rows = core_of(design, chosen, link), in_memory(design, source)
    params = jax.tree.map(jnp.asarray, core.start())
    transform = make_transform(core.constraints(), params)
    position, back = ravel_pytree(transform.to_position(params))

    def total(vector: Any, block: Any) -> Any:
        return functions.log_lik(core.predictor, transform.to_params(back(vector)), block).sum()

    parts = [{name: values[i : i + BLOCK] for name, values in rows.items()} for i in range(0, len(rows["y"]), BLOCK)]
    value, slope, curve = jax.jit(total), jax.jit(jax.grad(total)), jax.jit(jax.hessian(total))
    best = sum(float(value(position, part)) for part in parts)
    for _ in range(STEPS):
        gradient = sum(np.asarray(slope(position, part)) for part in parts)
        hessian = sum(np.asarray(curve(position, part)) for part in parts)
        step = uphill(hessian, gradient)
        length, higher = 1.0, -np.inf
        while length > 1e-6 and not (higher := sum(float(value(position + length * step, part)) for part in parts)) > best:
            length /= 2
        if not higher > best:
            break
        position, best = position + length * step, higher
    found, _ = reported(core, jax.tree.map(lambda x: np.asarray(x)[None], transform.to_params(back(position))))
    flat = [np.ravel(values[0]) for values in found.values()]
    return np.concatenate(flat), len(rows["y"])


def uphill(hessian: Any, gradient: Any) -> Any:
    """Newton's step, uphill also where the curvature is not that of a hill."""
    values, vectors = np.linalg.eigh(-np.asarray(hessian))
    return vectors @ ((vectors.T @ np.asarray(gradient)) / np.maximum(np.abs(values), 1e-8 * np.abs(values).max()))


def of_statsmodels(family: str, frame: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their standard errors, in the order of ours."""
    import patsy
    import statsmodels.api as sm
    from statsmodels.miscmodels.ordinal_model import OrderedModel
    from statsmodels.othermod.betareg import BetaModel

    X = np.asarray(patsy.dmatrix(TERMS, frame))[:, [0, 1, 2, 3, 4, 5, 6]]
    names = patsy.dmatrix(TERMS, frame.iloc[:50]).design_info.column_names
    order = [names.index(name) for name in ORDER]
    X, y = X[:, order], None if "y" not in frame else frame.y.to_numpy()
    if family == "ordinal":
        fitted = OrderedModel(y, X[:, 1:], distr="logit").fit(method="bfgs", disp=False, maxiter=500, gtol=1e-8)
        return fitted.params[:6], fitted.bse[:6]
    if family == "categorical":
        fitted = sm.MNLogit(np.unique(y, return_inverse=True)[1], X).fit(disp=False, maxiter=100)
        return np.asarray(fitted.params).ravel(), np.asarray(fitted.bse).ravel()
    if family == "beta":
        fitted = BetaModel(y, X).fit(disp=False, maxiter=500)
        return fitted.params[:7], fitted.bse[:7]
    if family == "negative binomial":
        fitted = sm.NegativeBinomial(y, X).fit(disp=False, maxiter=500, method="newton")
        return fitted.params[:7], fitted.bse[:7]
    if family == "binomial":
        y = np.column_stack([frame.y, frame.n - frame.y])
    kinds = {"gaussian": sm.families.Gaussian(), "bernoulli": sm.families.Binomial(), "binomial": sm.families.Binomial(),
             "poisson": sm.families.Poisson(), "gamma": sm.families.Gamma(sm.families.links.Log())}  # fmt: skip
    fitted = sm.GLM(np.asarray(y, float), X, family=kinds[family]).fit(tol=1e-12)
    return fitted.params, fitted.bse


ORDER = ["Intercept", "x", "group[T.b]", "group[T.c]", "z", "x:group[T.b]", "x:group[T.c]"]
