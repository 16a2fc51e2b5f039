"""Bad input is refused before anything is compiled, by the library's own error, with the culprit's name in it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints
from sgmcmc.run.request import Problem

X = np.linspace(-1.0, 1.0, 40, dtype=np.float32)
DATA = {"x": X}
PARAMS = {"mu": 0.0, "s": 1.0}


def log_lik(params, batch):
    return (-0.5 * ((batch["x"] - params["mu"]) / params["s"]) ** 2 - jnp.log(params["s"])).sum()


def call(**changes):
    """`sghmccv` takes every argument; each case changes one thing."""
    arguments = {"log_lik": log_lik, "dataset": DATA, "params": PARAMS, "stepsize": 1e-4, "minibatch_size": 10, "n_iters": 10}
    arguments |= changes
    positional = [arguments.pop(name) for name in ("log_lik", "dataset", "params", "stepsize")]
    return sgmcmc.sghmccv(*positional, **{"progress": False, "seed": 1, **arguments})


def mean_instead_of_sum(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).mean()


def broadcast_by_accident(params, batch):
    return -0.5 * ((batch["x"][:, None] - params["mu"] - batch["x"]) ** 2).sum()


BAD = {
    "empty dataset": ({"dataset": {}}, "dataset has no arrays"),
    "dataset not a dict": ({"dataset": X}, "dataset is ndarray"),
    "ragged rows": ({"dataset": {"x": X, "y": X[:7]}}, "'y' has 7"),
    "array without rows": ({"dataset": {"x": X[:0]}}, r"dataset\['x'\] is empty"),
    "single number as data": ({"dataset": {"x": 3.0}}, r"dataset\['x'\] is a single number"),
    "text in the data": ({"dataset": {"x": np.array(["a", "b"])}}, r"dataset\['x'\] has dtype"),
    "NaN in the data": ({"dataset": {"x": np.where(np.arange(40) == 17, np.nan, X)}}, r"dataset\['x'\].* row 17"),
    "integers too large": ({"dataset": {"x": X, "id": np.full(40, 2**40)}}, r"dataset\['id'\] has integers"),
    "integer params": ({"params": {"mu": 0, "s": 1.0}}, r"params\['mu'\]"),
    "NaN in params": ({"params": {"mu": np.nan, "s": 1.0}}, r"params\['mu'\]"),
    "no params": ({"params": {}}, "params is {}"),
    "text as a parameter": ({"params": {"mu": "zero", "s": 1.0}}, r"params\['mu'\]"),
    "minibatch larger than N": ({"minibatch_size": 41}, "minibatch_size is 41 for 40 rows"),
    "minibatch of zero": ({"minibatch_size": 0}, "minibatch_size is 0"),
    "proportion above one": ({"minibatch_size": 1.5}, "minibatch_size is 1.5"),
    "unknown rows": ({"rows": "sorted"}, "rows is 'sorted'"),
    "negative step size": ({"stepsize": -1e-4}, "stepsize for parameter 'mu'"),
    "step size of an unknown parameter": ({"stepsize": {"mu": 1.0, "s": 1.0, "tau": 1.0}}, "stepsize names an unknown .* 'tau'"),
    "step size missing": ({"stepsize": {"mu": 1e-4}}, "stepsize is missing for parameter 's'"),
    "step size function that fails": ({"stepsize": lambda t: {}[t]}, "stepsize is a function that failed"),
    "step size of the wrong shape": ({"stepsize": np.ones(3)}, "stepsize is"),
    "step size as text": ({"stepsize": "big"}, "stepsize is 'big'"),
    "no iterations": ({"n_iters": 0}, "n_iters is 0"),
    "fractional iterations": ({"n_iters": 2.5}, "n_iters is 2.5"),
    "negative burn-in": ({"burn_in": -1}, "burn_in is -1"),
    "thin larger than the run": ({"thin": 11}, "thin is 11"),
    "no chains": ({"n_chains": 0}, "n_chains is 0"),
    "masked values": ({"dataset": {"x": np.ma.masked_greater(X, 0.5)}}, r"dataset\['x'\] has masked values"),
    "constraints as a list": ({"constraints": [constraints.positive]}, "constraints is"),
    "seed too large": ({"seed": 2**32}, "seed is 4294967296"),
    "negative seed": ({"seed": -3}, "seed is -3"),
    "mean instead of sum": ({"log_lik": mean_instead_of_sum}, "log_lik .* mean"),
    "all rows in place of those given": (
        {"log_lik": lambda params, batch: -0.5 * ((X - params["mu"]) ** 2).sum()},
        "looks at other rows than those of its second argument",
    ),
    "broadcast (n,) against (n, 1)": ({"log_lik": broadcast_by_accident}, r"log_lik .* \(n, 1\)"),
    "log_lik of the wrong shape": ({"log_lik": lambda params, batch: jnp.ones((3, 2))}, "log_lik returned"),
    "log_lik not a function": ({"log_lik": 3.0}, "log_lik is 3.0"),
    "log_lik asks for a missing column": ({"log_lik": lambda params, batch: batch["z"].sum()}, "log_lik asks for 'z'"),
    "log_lik that raises": ({"log_lik": lambda params, batch: batch["x"] @ jnp.ones(3)}, "log_lik failed"),
    "log_lik not finite at the start": ({"params": {"mu": 0.0, "s": -1.0}}, "log_lik is nan"),
    "log_prior not finite at the start": ({"log_prior": lambda params: jnp.log(params["mu"])}, "log_prior is -inf"),
    "log_prior not a scalar": ({"log_prior": lambda params: jnp.ones(2)}, "log_prior returned"),
    "constraint for an unknown parameter": ({"constraints": {"tau": constraints.positive}}, "constraints names .* 'tau'"),
    "start outside the constraint": ({"constraints": {"mu": constraints.positive}}, r"params\['mu'\] starts at"),
    "constraint that is none": ({"constraints": {"s": "positive"}}, r"constraints\['s'\]"),
    "friction above one": ({"alpha": 1.5}, "alpha for parameter"),
    "no leaps": ({"L": 0}, "L is 0"),
    "unknown scheme": ({"scheme": "leapfrog"}, "scheme is 'leapfrog'"),
    "the paper's scheme with one leap": ({"scheme": "paper", "L": 1}, "scheme='paper' with L=1"),
    "noise estimate with resampling": ({"noise_estimate": "fisher"}, "noise_estimate='fisher'"),
    "negative optimiser step": ({"opt_stepsize": -1.0}, "opt_stepsize for parameter"),
    "no optimiser steps": ({"n_iters_opt": 0}, "n_iters_opt is 0"),
    "keep of the wrong kind": ({"keep": "all"}, "keep"),
    "unknown argument": ({"n_iter": 10}, "'n_iter'; did you mean 'n_iters'"),
    "progress of the wrong kind": ({"progress": "yes"}, "progress is 'yes'"),
}  # fmt: skip


def test_there_are_at_least_25():
    assert len(BAD) >= 25


@pytest.mark.parametrize("case", list(BAD))
def test_refused(case, monkeypatch):
    def compiling(*_args, **_kwargs):
        raise AssertionError("compiled before refusing")

    monkeypatch.setattr(sgmcmc.run.sampler.Sampler, "init", compiling)
    changes, message = BAD[case]
    with pytest.raises(sgmcmc.InputError, match=message):
        call(**changes)


def test_the_call_itself_is_good():
    assert call()["mu"].shape == (10,)


def test_errors_are_value_errors():
    with pytest.raises(ValueError, match="minibatch_size"):
        call(minibatch_size=0)


@pytest.mark.parametrize("kind", [Exception, KeyError, TypeError])
def test_a_user_function_keeps_its_own_error_as_the_cause(kind):
    def broken(params, batch):
        raise kind("mine")

    with pytest.raises(sgmcmc.InputError) as caught:
        call(log_lik=broken)
    assert isinstance(caught.value.__cause__, kind)


def test_own_batches_are_checked():
    sampler = sgmcmc.sgld_setup(log_lik, DATA, PARAMS, 1e-5, minibatch_size=10)
    state = sampler.init(seed=1)
    with pytest.raises(sgmcmc.InputError, match="batch has no 'x'"):
        sampler.step(state, {"z": X})


def test_large_proportions_warn():
    data = {"x": np.zeros(10_000_001, np.float32)}
    with pytest.warns(sgmcmc.SgmcmcWarning, match="110000 rows"):
        sgmcmc.sgld_setup(log_lik, data, PARAMS, 1e-9, minibatch_size=0.011)


def test_data_of_every_kind_are_taken():
    import pandas

    frame = pandas.DataFrame({"x": X.astype(np.float64)})
    for values in (X, X.astype(np.float64), jnp.asarray(X), frame["x"], X[::-1], np.asfortranarray(X[:, None])[:, 0], X.tolist()):
        sampler = sgmcmc.sgld_setup(log_lik, {"x": values}, PARAMS, 1e-5, minibatch_size=10)
        array = sampler.source.arrays["x"]
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, np.asarray(values, np.float32))
    assert call(dataset=frame, n_iters=2)["mu"].shape == (2,)


def test_integer_columns_stay_integers():
    def grouped(params, batch):
        assert jnp.issubdtype(batch["g"].dtype, jnp.integer)
        return -0.5 * ((batch["x"] - params["u"][batch["g"]]) ** 2).sum()

    data = {"x": X, "g": np.arange(40) % 4}
    out = sgmcmc.sgld(grouped, data, {"u": np.zeros(4)}, 1e-3, minibatch_size=10, n_iters=5, seed=1, progress=False)
    assert out["u"].shape == (5, 4)


def steep_counts(params, batch):
    """exp(eta) of each row is finite beside the start, that of a thousand in one sum is not."""
    return params["b"] * batch["x"].sum() - jnp.exp(params["b"] * batch["x"]).sum()


@pytest.mark.parametrize("per_row", [True, False])
def test_rows_too_large_to_be_added_up_beside_the_start_are_no_wrong_sum(per_row):
    nudge = 0.1 * np.random.default_rng(0).normal()
    x = np.full(2000, 88.0 / nudge, np.float32)
    each = float(jnp.exp(jnp.float32(nudge) * x[0]))
    assert np.isfinite(each)
    assert 1000 * each > float(np.finfo(np.float32).max)

    def of_rows(params, batch):
        return params["b"] * batch["x"] - jnp.exp(params["b"] * batch["x"])

    posterior = Problem.of(of_rows if per_row else steep_counts, {"x": x}, {"b": 0.0}).posterior
    assert posterior.n_rows == 2000


def test_one_value_per_row_is_as_good_as_the_sum():
    def rowwise(params, batch):
        return -0.5 * ((batch["x"] - params["mu"]) / params["s"]) ** 2 - jnp.log(params["s"])

    sums, rows = call(n_iters=5), call(log_lik=rowwise, n_iters=5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), sums.draws, rows.draws)


def test_one_row_of_data():
    data = {"x": np.array([0.5])}
    out = sgmcmc.sgld(
        lambda p, b: -0.5 * ((b["x"] - p) ** 2).sum(), data, 0.0, 0.1, minibatch_size=1, n_iters=5, seed=1, progress=False
    )
    assert out["params"].shape == (5,)
