"""Every warning of the library comes at the user's own line, and none is added without a case here."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import flip

import sgmcmc
from sgmcmc.run.shared_folder import Follower

SOURCE = Path(sgmcmc.__file__).parent
DATA = {"x": np.random.default_rng(0).normal(1.0, 1.0, 200).astype(np.float32)}
QUIET = {"minibatch_size": 20, "seed": 1, "progress": False}


def log_lik(params, batch):
    return -0.5 * ((batch["x"][:, None] - params["mu"]) ** 2).sum()


def sgld(checkpoint=None, **options):
    return sgmcmc.sgld(log_lik, DATA, {"mu": np.zeros(2)}, 1e-4, **QUIET, **({"n_iters": 20} | options), checkpoint=checkpoint)


def fisher(**options):
    return sgmcmc.sghmc(log_lik, DATA, {"mu": np.zeros(2)}, L=None, noise_estimate="fisher", n_iters=10, **QUIET, **options)


# The cases, by the file and the function in which the library warns.


def damaged_state(folder):
    sgld(folder)
    sgld(folder, n_iters=40)
    flip(folder / "state.npz", 200)
    sgmcmc.load(folder)


def damaged_stage(folder):
    sgld(folder)
    flip(folder / "stage-start.npz", 200)
    sgld(folder, n_iters=40)


def long_summary(folder):
    sgld().summary(max_rows=1)


def saved_with_code(folder):
    """An estimator of the user's own, whose state has a function in it."""
    out = sgld()
    state = replace(out.final_state, estimator={"scale": jax.tree_util.Partial(np.sqrt)})
    replace(out, final_state=state).save(folder.with_suffix(".sgmcmc"))


def peers_disk(folder):
    """What a process does that cannot see process 0's disk; not to be had in one process."""
    follower = Follower(folder / "kept.draws", {"mu": jax.ShapeDtypeStruct((2,), np.float32)}, chained=False)
    follower.add((3, None))
    follower.draws()


def outside_the_support(folder):
    def bounded(params, batch):
        return jnp.where(batch["x"] < 2.5 - params, 0.0, -jnp.inf) - jnp.zeros_like(batch["x"])

    sgmcmc.sgld(bounded, {"x": np.linspace(0.0, 2.0, 200)}, 0.0, 0.1, n_iters=200, **QUIET)


def interrupted(folder):
    def impatient(figures):
        if figures["done"] > 10:
            raise KeyboardInterrupt

    sgmcmc.sgld(log_lik, DATA, {"mu": np.zeros(2)}, 1e-4, **(QUIET | {"progress": impatient}))


def draws_of_the_warmup(folder):
    fisher(stepsize=1e-9, alpha=0.1, noise_warmup=100)


def too_noisy(folder):
    fisher(stepsize=1e-2, alpha=0.01, noise_warmup=50, burn_in=50)


def few_draws(folder):
    sgmcmc.sample(log_lik, DATA, {"mu": np.zeros(2)}, draws=20, chains=2, seed=1, progress=False)


def few_draws_of_an_estimator(folder):
    from sgmcmc.sklearn import BayesianRegressor

    X = np.random.default_rng(0).normal(size=(50, 2))
    BayesianRegressor(draws=20, chains=2, random_state=1).fit(X, X[:, 0] + 0.1 * X[:, 1] ** 2)


def rows_in_order(folder):
    folder.mkdir()
    kept = np.memmap(folder / "x", np.float32, "w+", shape=(200,))
    kept[:] = DATA["x"]
    sgmcmc.sgld_setup(log_lik, {"x": kept}, {"mu": np.zeros(2)}, 1e-4, minibatch_size=20, rows="window", progress=False)


def large_share(folder):
    rows = {"x": np.zeros(10_000_001, np.float32)}
    sgmcmc.sgld_setup(log_lik, rows, {"mu": np.zeros(2)}, 1e-9, minibatch_size=0.011, progress=False)


def separable():
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    return {"x": x, "y": (x > 0).astype(np.float32)}


def logistic(params, batch):
    z = batch["x"] * params["beta"]
    return (batch["y"] * z - jnp.logaddexp(0.0, z)).sum()


def no_mode(folder):
    sampler = sgmcmc.sgldcv_setup(logistic, separable(), {"beta": 0.0}, 1e-4, minibatch_size=20, progress=False)
    sampler.init(seed=1, progress=False)


CASES = {
    "checkpoints/folder.py stage": (damaged_stage, "computed again"),
    "checkpoints/reading.py last_recorded": (damaged_state, "going back to the checkpoint before"),
    "models/estimators/fitting.py _as_convergence_warnings": (few_draws_of_an_estimator, r"See result_\.health\(\)"),
    "results/after/saving.py contents": (saved_with_code, "the file has no final_state"),
    "results/result.py summary": (long_summary, "summary shows 1 of 2 numbers"),
    "run/sampler.py _told": (outside_the_support, "log posterior was not finite"),
    "run/sampler.py _told 2": (interrupted, "interrupted: the result holds"),
    "run/sampler.py _warn_of_early_draws": (draws_of_the_warmup, "burn_in=100"),
    "run/sampler.py _warn_of_noise": (too_noisy, "raise alpha or minibatch_size"),
    "run/shared_folder.py draws": (peers_disk, "the draws are with process 0"),
    "samplers/composing.py _rows": (rows_in_order, "were not shuffled"),
    "samplers/composing.py check_minibatch": (large_share, "110000 rows for every step"),
    "samplers/sample.py _warn": (few_draws, r"See health\(\)"),
    "tune/preparation.py warn_of_distance": (no_mode, "search for the centre"),
}


def sites(tree, path):
    """Where a module warns: its path, the innermost function, and a number from the second in a function on."""
    found = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and called(node) == "warn"]
            found += [f"{path} {function.name}{f' {number}' if number > 1 else ''}" for number in range(1, len(calls) + 1)]
    return found


def called(node):
    """The name of a function that is called, with or without its module."""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def test_every_place_that_warns_has_a_case():
    paths = sorted(SOURCE.rglob("*.py"))
    found = [site for path in paths for site in sites(ast.parse(path.read_text()), path.relative_to(SOURCE).as_posix())]
    assert sorted(found) == sorted(CASES)
    assert sites(ast.parse("def f():\n    warn('a')\n    warnings.warn('b')"), "m.py") == ["m.py f", "m.py f 2"]


@pytest.mark.parametrize("site", CASES)
def test_a_warning_is_at_the_users_line(site, tmp_path):
    case, words = CASES[site]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        case(tmp_path / "run")
    ours = [warning for warning in told if issubclass(warning.category, sgmcmc.SgmcmcWarning)]
    assert any(re.search(words, str(warning.message)) for warning in ours)
    assert {warning.filename for warning in ours} == {__file__}
