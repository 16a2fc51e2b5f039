"""Data and parameters as people have them: taken where their meaning is clear, else refused in a line with the repair."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse
import xarray

import sgmcmc
from sgmcmc.problem.posterior import check_params, log_lik_shape
from sgmcmc.run.request import Problem

N = 60
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, 2)).astype(np.float32), RNG.normal(size=N).astype(np.float32)
GROUP = np.resize(["b", "a", "c"], N)
FRAME = pandas.DataFrame({"x": X[:, 0], "y": Y})
WITH_GROUP = FRAME.assign(group=pandas.Categorical(GROUP, ["a", "b", "c"]))


class Tensor:
    """What a tensor of PyTorch can do, here one that requires a gradient."""

    def __init__(self, values, attached=True):
        self.values, self.attached = values, attached
        self.shape, self.dtype = values.shape, values.dtype

    def detach(self):
        return Tensor(self.values, attached=False)

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        if self.attached:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return np.asarray(self.values, dtype)


def of_x_and_y(params, rows):
    return -0.5 * ((rows["y"] - params["slope"] * rows["x"]) ** 2).sum()


def of_pair(params, rows):
    return -0.5 * ((rows["y"] - rows["X"] @ params["beta"]) ** 2).sum()


def of_groups(params, rows):
    return -0.5 * ((rows["y"] - params["u"][rows["group"]]) ** 2).sum()


SLOPE, BETA, U = {"slope": 0.0}, {"beta": np.zeros(2)}, {"u": np.zeros(3)}
BY_GROUP = {"dims": {"u": ["group"]}}
COLUMNS = {"x": X[:, 0], "y": Y}
ARROW = pyarrow.table(COLUMNS)
RECORDS = np.rec.fromarrays([X[:, 0], Y], names=["x", "y"])
LEVELS = pyarrow.array(GROUP.tolist()).dictionary_encode()
POLARS = polars.DataFrame(COLUMNS)
ENUM = polars.DataFrame({"y": Y, "group": polars.Series(GROUP, dtype=polars.Enum(["a", "b", "c"]))})
POOL = polars.DataFrame({"y": Y, "group": polars.Series(GROUP, dtype=polars.Categorical)})
LACKING = FRAME.assign(group=pandas.Categorical.from_codes(np.resize([1, 0, -1], N), ["a", "b"]))
TALL = {name: column[:, None] for name, column in COLUMNS.items()}


def by_row(params, rows):
    return -0.5 * (rows["y"] - params["slope"] * rows["x"]) ** 2


def with_numpy(params, rows):
    return np.log(params["slope"] + rows["y"]).sum()


TAKEN = {
    "dict of arrays": (of_x_and_y, COLUMNS, SLOPE),
    "pandas frame": (of_x_and_y, FRAME, SLOPE),
    "pandas with nullable numbers": (of_x_and_y, FRAME.astype("Float32"), SLOPE),
    "polars frame": (of_x_and_y, POLARS, SLOPE),
    "Arrow table": (of_x_and_y, ARROW, SLOPE),
    "Arrow record batch": (of_x_and_y, ARROW.to_batches()[0], SLOPE),
    "recarray": (of_x_and_y, RECORDS, SLOPE),
    "structured array": (of_x_and_y, np.asarray(RECORDS), SLOPE),
    "xarray dataset": (of_x_and_y, xarray.Dataset({name: ("row", column) for name, column in COLUMNS.items()}), SLOPE),
    "tensors that require a gradient": (of_x_and_y, {name: Tensor(column) for name, column in COLUMNS.items()}, SLOPE),
    "(X, y)": (of_pair, (X, Y), BETA),
    "[X, y] with a frame": (of_pair, [pandas.DataFrame(X), pandas.Series(Y)], BETA),
    "pandas categories": (of_groups, WITH_GROUP[["y", "group"]], U),
    "polars categories": (of_groups, POOL, U),
    "polars levels": (of_groups, ENUM, U),
    "Arrow dictionaries": (of_groups, pyarrow.table({"y": Y, "group": LEVELS}), U),
    "labels (n, 1), values by row": (by_row, TALL, SLOPE),
}  # fmt: skip

REFUSED = {
    "polars lazy frame": (of_x_and_y, POLARS.lazy(), SLOPE, r"give dataset.collect\(\)"),
    "nested dict": (of_x_and_y, {"y": Y, "features": {"x": Y, "z": Y}}, SLOPE, "beside the others, {'x': ..., 'z': ...}"),
    "sparse matrix": (of_pair, {"X": scipy.sparse.csr_matrix(X), "y": Y}, BETA, r"X.toarray\(\), of 4.8e-07 GB"),
    "text": (of_groups, FRAME.assign(group=GROUP), U, r"group.astype\('category'\) of pandas"),
    "category without a value": (of_groups, LACKING, U, "no value in row 2"),
    "one array": (of_pair, X, BETA, "dataset is ndarray of shape"),
    "one series": (of_x_and_y, FRAME["x"], SLOPE, "dataset is Series of shape"),
    "three arrays": (of_pair, (X, Y, Y), BETA, "expected a dict of arrays"),
    "np.log": (with_numpy, COLUMNS, SLOPE, r"function of NumPy in line \d+ \(.*np.log.*write jnp for np"),
    "math.log": (lambda p, r: math.log(p["slope"]) * r["y"].sum(), COLUMNS, SLOPE, "jnp.log for math.log"),
    "if": (lambda p, r: r["y"].sum() if p["slope"] > 0 else 0.0, COLUMNS, SLOPE, "write jnp.where"),
    "(n, n) by row": (by_row, {"x": X[:, 0], "y": TALL["y"]}, SLOPE, r"\(n,\) array met an \(n, 1\)"),
    "dropout's random key": (of_x_and_y, COLUMNS, {"slope": 0.0, "rng": jax.random.key(0)}, "nnx.split"),
    "dropout's counter": (of_x_and_y, COLUMNS, {"slope": 0.0, "count": np.uint32(3)}, "nnx.split"),
}  # fmt: skip


def test_there_are_at_least_25():
    assert len(TAKEN) + len(REFUSED) >= 25


def problem(log_lik, dataset, params, **options):
    return Problem.of_model(sgmcmc.Model(log_lik, dataset, params, **options))


@pytest.mark.parametrize("case", list(TAKEN))
def test_taken(case):
    log_lik, dataset, params = TAKEN[case]
    found = problem(log_lik, dataset, params)
    assert found.table.n_rows == N
    start = check_params(params)
    rows = {name: jnp.asarray(column) for name, column in found.table.items()}
    np.testing.assert_allclose(np.ravel(rows["y"]), Y)
    if "group" in rows:
        np.testing.assert_array_equal(np.asarray(found.table.levels["group"])[rows["group"]], GROUP)
        assert problem(log_lik, dataset, params, **BY_GROUP).posterior.names.labels("u", (3,)) == [
            f"u[{level}]" for level in found.table.levels["group"]
        ]
    each = found.posterior.each_row(start, rows)
    assert each.shape == (N,)
    np.testing.assert_allclose(each.sum(), jnp.sum(log_lik(start, rows)), rtol=1e-4)


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused(case):
    log_lik, dataset, params, message = REFUSED[case]
    with pytest.raises(sgmcmc.InputError, match=message) as caught:
        problem(log_lik, dataset, params)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_new_rows_are_coded_as_those_of_the_fit_were():
    model = sgmcmc.Model(
        of_groups, WITH_GROUP, U, mean=lambda params, rows: params["u"][rows["group"]], observed=("y",), **BY_GROUP
    )
    fit = sgmcmc.sgld(model, 1e-3, minibatch_size=20, n_iters=200, seed=1, progress=False)
    assert list(fit.summary().index) == ["u[a]", "u[b]", "u[c]"]
    new = pandas.DataFrame({"group": pandas.Categorical(["c", "a"])})  # whose own codes would be 1 and 0
    np.testing.assert_allclose(fit.predict(new, draws=200, progress=False), fit["u"].mean(axis=0)[[2, 0]], rtol=1e-5)
    with pytest.raises(sgmcmc.InputError, match="has the level 'd', which the rows of the fit had not: they had a, b, c"):
        fit.predict(pandas.DataFrame({"group": pandas.Categorical(["d"])}))


def test_a_whole_module_is_sampled():
    """Its activation is part of it and no number."""
    network = eqx.nn.MLP(2, "scalar", 3, 1, activation=jnp.tanh, key=jax.random.key(0))

    def log_lik(network, rows):
        return -0.5 * ((rows["y"] - jax.vmap(network)(rows["X"])) ** 2).sum()

    fit = sgmcmc.sgld(log_lik, (X, Y), network, 1e-4, minibatch_size=20, n_iters=5, seed=1, progress=False)
    last = fit.final_state.params
    assert type(last) is type(network)
    assert jax.vmap(last)(X).shape == (N,)
    assert log_lik_shape(log_lik, check_params(network), {"X": X, "y": Y}) is False


def test_distributions_are_a_module_to_import_from():
    import numpyro.distributions

    import sgmcmc.distributions
    from sgmcmc.constraints import positive
    from sgmcmc.distributions import Normal
    from sgmcmc.distributions.transforms import AffineTransform

    assert Normal is numpyro.distributions.Normal
    assert positive is numpyro.distributions.constraints.positive
    assert AffineTransform is numpyro.distributions.transforms.AffineTransform
    assert sgmcmc.distributions.__spec__.name == "numpyro.distributions"
    with pytest.raises(ModuleNotFoundError, match="nothing_of_the_kind"):
        import sgmcmc.distributions.nothing_of_the_kind
