"""NumPyro models that minibatches cannot sample: refused with the rewriting that they can."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro_models import GROUP, GROUPS, REAL, N, X, decentred, hierarchical, with_plate

import sgmcmc

ROWS = {"X": X, "y": REAL}
PAIR = {"y": REAL, "z": X[:, 0]}


def normal(mean, y, sd=1.0):
    numpyro.sample("y", dist.Normal(mean, sd), obs=y)


def start():
    return numpyro.sample("m", dist.Normal(0, 1))


def latent_by_row(y):
    m = start()
    with numpyro.plate("rows", len(y)):
        normal(numpyro.sample("z", dist.Normal(m, 1)), y)


def masked(y):
    m = start()
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(m, 1), obs=y, obs_mask=y > 0)


def prior_of_data(y):
    normal(numpyro.sample("m", dist.Normal(y.mean(), 1)), y)


def prior_of_count(y):
    normal(numpyro.sample("m", dist.Normal(0, 1 / len(y))), y)


def summed_factor(y):
    numpyro.factor("rows", -0.5 * ((y - start()) ** 2).sum())


def one_event(y):
    numpyro.sample("y", dist.Normal(start(), 1).expand(y.shape).to_event(1), obs=y)


def moving_support(y):
    low = start()
    normal(numpyro.sample("top", dist.Uniform(low, low + 1)), y)


def optimised(y):
    normal(numpyro.param("loc", 0.0) + start(), y)


def nothing_observed(X, y=None):
    with_plate(X)


def square(X, y):
    normal((X @ jnp.ones((2, 1))) * start(), y)


def counted(y, group):
    u = numpyro.sample("u", dist.Normal(0, 1).expand([int(group.max()) + 1]))
    normal(u[group], y)


def other_size(y):
    with numpyro.plate("rows", 1000, subsample_size=10):
        normal(start(), y)


def two_of_a_size(y, group):
    with numpyro.plate("cells", N):
        u = numpyro.sample("u", dist.Normal(0, 1))
    with numpyro.plate("rows", N):
        normal(u[group], y)


def global_class(y):
    k, m = numpyro.sample("k", dist.Bernoulli(0.5)), start()
    with numpyro.plate("rows", len(y)):
        normal(m + k, y)


def no_parameter(y):
    normal(0.0, y)


def by_position(y, /):
    normal(start(), y)


HIERARCHY = {"X": X, "y": REAL, "group": GROUP}

Y = {"y": REAL}

REFUSED = {
    "a latent number for every row": (
        latent_by_row,
        {"y": REAL},
        {},
        "'z' is latent and has a value for every row.*StudentT for a",
    ),
    "obs_mask": (masked, Y, {}, r"obs_mask= makes 'y_unobserved'.*numpyro.handlers.mask\(mask="),
    "prior from data": (
        prior_of_data,
        {"y": REAL},
        {},
        "the prior of 'm' depends on 'y', of which a minibatch has a part.*static=",
    ),
    "prior from their number": (prior_of_count, Y, {}, "'m' depends on how many rows there are.*static={'n_rows'"),
    "factor of a sum": (
        summed_factor,
        {"y": REAL},
        {},
        r"site 'rows' adds up all rows to one number.*leave .sum\(\) out of",
    ),
    "one event": (one_event, Y, {}, r"site 'y' adds up all rows.*\.to_event\(1\) where it covers the rows"),
    "moving support": (moving_support, Y, {}, r"support of 'top' depends on 'm'.*low \+ \(high - low\) \* u"),
    "numpyro.param": (optimised, Y, {}, r"'loc' is a numpyro.param.*write numpyro.sample\('loc', ...\) with a prior"),
    "nothing observed": (nothing_observed, ROWS, {}, "the model observes nothing.*give the column that it observes"),
    "(n, 1) against (n,)": (square, ROWS, {}, r"compares every row with every other: it adds \(2, 2\) numbers.*jnp.squeeze"),
    "values while traced": (counted, {"y": REAL, "group": GROUP}, {}, "computes with values of the data.*static={'n_groups': 8}"),
    "unknown column": (hierarchical, HIERARCHY | {"w": REAL}, {"n_groups": GROUPS}, "have a column 'w'.*make it an argument"),
    "missing argument": (decentred, HIERARCHY, {}, r"takes 'n_groups'; expected a column.*static={'n_groups': ...}"),
    "unknown static": (with_plate, ROWS, {"n": 3}, "static has 'n', and the model takes X, y; leave it out"),
    "static and data": (with_plate, ROWS, {"y": REAL}, "static and data both have 'y'"),
    "rows as static": (
        with_plate,
        {"X": X},
        {"y": REAL},
        "failed on 2 of the 24 rows.*arrays of all rows belong in data",
    ),
    "plate of another size": (other_size, Y, {}, r"'rows' takes 10 of 1,000, and the data have 24 rows.*y.shape\[0\]"),
    "two plates of a size": (two_of_a_size, {"y": REAL, "group": np.arange(N)}, {}, "plates 'cells' and 'rows'.*plate='...'"),
    "one class for all": (global_class, Y, {}, "'k' is discrete and one for all rows"),
    "no parameter": (no_parameter, Y, {}, "the model has no parameter"),
    "by position": (by_position, Y, {}, "takes 'y' by position only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_minibatches_cannot_sample_is_refused_with_what_they_can(name):
    model, data, static, said = REFUSED[name]
    with pytest.raises(sgmcmc.InputError, match=said):
        sgmcmc.from_numpyro(model, data, static=static)


def test_plates_that_size_does_not_tell_apart_are_told_by_name():
    data = {"y": REAL, "group": np.arange(N)}
    model = sgmcmc.from_numpyro(two_of_a_size, data, plate="rows")
    assert model.params["u"].shape == (N,)
    assert model.dims == {"u": ["cells"]}
    with pytest.raises(sgmcmc.InputError, match="plate names 'row'; the model has cells, rows"):
        sgmcmc.from_numpyro(two_of_a_size, data, plate="row")


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ({"mu": 0.5, "tau": 1.0, "v": 0.0}, "init has 'v', which is no parameter of the model; it has mu, tau, u, b, s"),
        ({"u": np.zeros(3)}, r"init\['u'\] has shape \(3,\); expected \(4,\)"),
        ("median", "init is 'median'; expected a dict of values by name, or a strategy"),
    ],
)
def test_where_parameters_start(init, said):
    call = {"static": {"n_groups": GROUPS}}
    with pytest.raises(sgmcmc.InputError, match=said):
        sgmcmc.from_numpyro(hierarchical, HIERARCHY, init=init, **call)


def test_they_start_where_they_are_told_to():
    model = sgmcmc.from_numpyro(hierarchical, HIERARCHY, static={"n_groups": GROUPS}, init={"mu": 0.5, "u": np.arange(4.0)})
    assert model.params["mu"] == 0.5
    assert model.params["u"].tolist() == [0, 1, 2, 3]
    assert model.params["tau"] > 0
