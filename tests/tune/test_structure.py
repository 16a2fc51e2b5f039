"""What a model shows of itself: parameters that no row knows, parameters of groups, and products with a scale."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc import constraints
from sgmcmc.algorithms.gradients.control_variate import Centre
from sgmcmc.problem.arrow import Layout
from sgmcmc.problem.recentring import Product, Recentred
from sgmcmc.run.request import Problem
from sgmcmc.tune import structure
from sgmcmc.tune.curvatures import is_arrow, is_arrow_of_prior, likelihood_curvature
from sgmcmc.tune.recentre import products_of, recentred, told_by_rows, trading_off
from sgmcmc.tune.structure import groups_of, unseen_by_rows
from sgmcmc.tune.survey import Survey

N, J, K = 400, 80, 30
RNG = np.random.default_rng(9)
POSITIVE = constraints.positive
DATA = {
    "g": np.concatenate([np.arange(J), RNG.integers(0, J, N - J)]).astype(np.int32),
    "h": np.concatenate([np.arange(K), RNG.integers(0, K, N - K)]).astype(np.int32),
    "x": RNG.normal(size=N).astype(np.float32) * (RNG.random(N) < 0.5),
    "wide": RNG.normal(size=(N, 90)).astype(np.float32),
    "y": RNG.normal(size=N).astype(np.float32),
}


def normal(mean, batch):
    return -0.5 * (batch["y"] - mean) ** 2


def prior(params):
    return -0.5 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


def hierarchy(params):
    z = (params["u"] - params["mu"]) / params["tau"]
    return -0.5 * (z**2).sum() - J * jnp.log(params["tau"]) - 0.5 * params["mu"] ** 2 - params["tau"]


def problem(mean, params, log_prior=prior, bounds=None, data=DATA):
    return Problem.of(lambda p, batch: normal(mean(p, batch), batch), data, params, log_prior, bounds)


def layout_of(mean, params, **more):
    found = problem(mean, params, **more)
    return groups_of(found.posterior, found.table, found.position, 0)


def unseen(mean, params, **more):
    found = problem(mean, params, **more)
    names = sorted(params)
    return {name for name, out in zip(names, unseen_by_rows(found.posterior, found.table, found.position), strict=True) if out}


# Parameters that no row knows.

HIERARCHY = {"mu": 0.1, "sigma": 1.0, "tau": 0.5, "u": np.zeros(J)}


def test_means_and_scales_of_effects_are_unseen():
    bounds = {"tau": POSITIVE, "sigma": POSITIVE}

    def mean(p, batch):
        return p["u"][batch["g"]] / p["sigma"]

    assert unseen(mean, HIERARCHY, log_prior=hierarchy, bounds=bounds) == {"mu", "tau"}
    assert unseen(jax.jit(mean), HIERARCHY, log_prior=hierarchy, bounds=bounds) == {"mu", "tau"}


def test_a_scale_that_multiplies_effects_is_seen():
    params = {"mu": 0.1, "tau": 0.5, "z": np.zeros(J)}
    bounds = {"tau": POSITIVE}
    assert unseen(lambda p, b: p["mu"] + p["tau"] * p["z"][b["g"]], params, bounds=bounds) == set()


def test_a_parameter_that_vanishes_at_the_start_is_seen():
    """Its gradient is 0 there, yet rows know it."""
    assert unseen(lambda p, b: p["a"] * p["u"][b["g"]] ** 2, {"a": 0.0, "u": np.zeros(J)}) == set()


# Parameters of groups.


def test_effects_of_groups():
    layout = layout_of(lambda p, b: p["u"][b["g"]], HIERARCHY, log_prior=hierarchy, bounds={"tau": POSITIVE})
    assert layout.axes == (None, None, None, 0)
    assert layout.groups == J


@pytest.mark.parametrize("axis", [0, 1])
def test_slopes_that_some_rows_do_not_know_are_of_the_same_groups(axis):
    """Half of the rows have a covariate of 0: their gradient by the slope vanishes."""
    shape = (J, 2) if axis == 0 else (2, J)

    def mean(p, batch):
        rows = p["w"][batch["g"]] if axis == 0 else p["w"][:, batch["g"]].T
        return p["a"] + p["s"][batch["g"]] * batch["x"] + p["u"][batch["g"]] + rows @ jnp.array([1.0, 2.0])

    layout = layout_of(mean, {"a": 0.0, "s": np.zeros(J), "u": np.zeros(J), "w": np.zeros(shape)})
    assert layout.axes == (None, 0, 0, axis)
    assert (layout.shared, layout.own, layout.groups) == (1, 4, J)


def test_of_crossed_groupings_the_largest_counts():
    layout = layout_of(lambda p, b: p["u"][b["g"]] + p["v"][b["h"]], {"u": np.zeros(J), "v": np.zeros(K)})
    assert layout.axes == (0, None)
    assert layout.shared == K
    same = layout_of(lambda p, b: p["u"][b["g"]] + p["v"][(b["g"] * 7 + b["h"]) % J], {"u": np.zeros(J), "v": np.zeros(J)})
    assert same.axes == (0, None), "as many groups, but others"


def test_a_table_of_columns_has_no_groups():
    assert layout_of(lambda p, b: b["wide"] @ p["beta"], {"beta": np.zeros(90)}) is None


def test_rows_that_know_two_groups_are_of_none():
    assert layout_of(lambda p, b: p["u"][b["g"]] - p["u"][b["h"]], {"u": np.zeros(J)}) is None
    mixed = {"u": np.zeros(J), "v": np.zeros(K)}
    assert layout_of(lambda p, b: p["u"][b["g"]] - p["u"][b["h"]] + p["v"][b["h"]], mixed).axes == (None, 0)


def test_few_parameters_need_no_groups():
    assert layout_of(lambda p, b: p["v"][b["h"]], {"v": np.zeros(K)}) is None
    assert K < structure.FEWEST_GROUPED


def test_a_second_grouping_that_no_looked_at_row_shows_is_found_by_the_product():
    """One row of 5,000 knows two groups: 256 looked at do not have it; the curvature's product with a random vector does."""
    n = 5000
    data = {"g": np.arange(n, dtype=np.int32) % J, "y": np.ones(n, np.float32), "far": np.zeros(n, np.float32)}
    for rows, expected in (([], True), ([1234], False)):
        data["far"][rows] = 100.0
        found = problem(lambda p, b: p["u"][b["g"]] + b["far"] * p["u"][0], {"u": np.zeros(J)}, data=data)
        layout = groups_of(found.posterior, found.table, found.position, 0)
        assert layout.axes == (0,)
        arrow = likelihood_curvature(found.posterior, found.table, found.position, layout)
        assert is_arrow(found.posterior, found.table, found.position, layout, arrow, 0) is expected


@pytest.mark.parametrize(("far", "expected"), [(0.0, True), (1.0, False)])
def test_one_pair_of_many_groups_is_found_by_the_product(far, expected):
    """A correlation of 0.4 between two of 5,000 groups: nothing beside all of the product, but not beside its own number."""
    count = 5000
    data = {"g": np.arange(2 * count, dtype=np.int32) % count, "y": np.ones(2 * count, np.float32)}
    data["far"] = far * (np.arange(2 * count) == 1234).astype(np.float32)
    found = problem(lambda p, b: p["u"][b["g"]] + b["far"] * p["u"][0], {"u": np.zeros(count)}, data=data)
    layout = Layout((0,), ((count,),))
    arrow = likelihood_curvature(found.posterior, found.table, found.position, layout)
    assert is_arrow(found.posterior, found.table, found.position, layout, arrow, 0) is expected


@pytest.mark.parametrize(("coupled", "expected"), [(False, True), (True, False)])
def test_a_prior_between_groups_beside_a_precise_one_is_no_arrow(coupled, expected):
    def smooth(params):
        return prior(params) - 0.5 * coupled * (jnp.diff(params["u"]) ** 2).sum() - 0.5 * 1e8 * params["a"] ** 2

    found = problem(lambda p, b: p["a"] + p["u"][b["g"]], {"a": 0.0, "u": np.zeros(J)}, log_prior=smooth)
    layout = groups_of(found.posterior, found.table, found.position, 0)
    assert is_arrow_of_prior(found.posterior, found.position, layout, 0) is expected


@pytest.mark.parametrize(("coupled", "expected"), [(False, True), (True, False)])
def test_a_prior_between_groups_is_no_arrow(coupled, expected):
    def smooth(params):
        return prior(params) - 0.5 * coupled * (jnp.diff(params["u"]) ** 2).sum()

    found = problem(lambda p, b: p["u"][b["g"]], {"u": np.zeros(J)}, log_prior=smooth)
    layout = groups_of(found.posterior, found.table, found.position, 0)
    assert is_arrow_of_prior(found.posterior, found.position, layout, 0) is expected


# Products.


def products(mean, params, bounds=None, log_prior=prior):
    found = problem(mean, params, bounds=bounds, log_prior=log_prior)
    layout = groups_of(found.posterior, found.table, found.position, 0)
    return products_of(found.posterior, found.table, found.position, layout, 0)


SCALED = {"mu": 0.1, "tau": 0.5, "z": np.zeros(J)}
SLOPED = {"mu": 0.1, "s": np.array([0.5, 2.0]), "tau": 1.0, "z": np.zeros((J, 2))}


def sloped(p, batch, s):
    effects = p["z"][batch["g"]] * s
    return p["mu"] + effects[:, 0] + effects[:, 1] * batch["x"]


FOUND = {
    "scale": (lambda p, b: p["mu"] + p["tau"] * p["z"][b["g"]], SCALED, {"tau": POSITIVE}, Product(1, 2, 0, False)),
    "logged": (lambda p, b: p["mu"] + jnp.exp(p["tau"]) * p["z"][b["g"]], SCALED, None, Product(1, 2, 0, True)),
    "vector": (lambda p, b: sloped(p, b, p["s"]), SLOPED, {"s": POSITIVE}, Product(1, 3, 0, False)),
    "logged vector": (lambda p, b: sloped(p, b, jnp.exp(p["s"])), SLOPED, None, Product(1, 3, 0, True)),
    "one of many": (lambda p, b: sloped(p, b, p["tau"]), SLOPED, {"tau": POSITIVE}, Product(2, 3, 0, False)),
}


@pytest.mark.parametrize("name", FOUND)
def test_products_are_found(name):
    mean, params, bounds, expected = FOUND[name]
    assert products(mean, params, bounds) == (expected,)


NONE = {
    "centred": (lambda p, b: p["u"][b["g"]], HIERARCHY, {"tau": POSITIVE}),
    "a free factor": (lambda p, b: p["mu"] + p["tau"] * p["z"][b["g"]], SCALED, None),
    "the scale elsewhere too": (lambda p, b: p["tau"] + p["tau"] * p["z"][b["g"]], SCALED, {"tau": POSITIVE}),
    "a mean beside the effects": (lambda p, b: p["tau"] * (p["z"][b["g"]] + p["mu"]), SCALED, {"tau": POSITIVE}),
    "squared": (lambda p, b: p["tau"] ** 2 * p["z"][b["g"]], SCALED, {"tau": POSITIVE}),
    "scales of another order": (lambda p, b: sloped(p, b, p["s"][::-1]), SLOPED, {"s": POSITIVE}),
    "a constrained effect": (
        lambda p, b: p["tau"] * p["z"][b["g"]],
        SCALED | {"z": np.ones(J)},
        {"tau": POSITIVE, "z": POSITIVE},
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_product_is_not_taken_for_one(name):
    mean, params, bounds = NONE[name]
    assert products(mean, params, bounds) == ()


HORSESHOE = {"a": 0.0, "lam": np.ones(90), "tau": 0.1, "z": np.zeros(90)}


def test_scales_and_effects_that_trade_off_are_named():
    bounds = {"lam": POSITIVE, "tau": POSITIVE}
    found = problem(lambda p, b: p["a"] + b["wide"] @ (p["z"] * p["lam"] * p["tau"]), HORSESHOE, bounds=bounds)
    assert trading_off(found, 0) == [("lam", "z"), ("tau", "z")]
    centred = problem(lambda p, b: p["a"] + b["wide"] @ p["z"], HORSESHOE, bounds=bounds)
    assert trading_off(centred, 0) == []
    both = problem(lambda p, b: p["tau"] + b["wide"] @ (p["z"] * p["tau"]), HORSESHOE, bounds=bounds)
    assert trading_off(both, 0) == []


def test_a_recentred_problem_is_the_same_posterior():
    mean, params, bounds, product = FOUND["scale"]
    plain = problem(mean, params | {"z": np.linspace(-1, 1, J)}, bounds=bounds)
    moved, sentence = recentred(plain, 0)
    assert isinstance(moved.posterior.transform, Recentred)
    assert moved.posterior.transform.products == (product,)
    assert "tau and z" in sentence
    np.testing.assert_allclose(moved.position["z"], 0.5 * np.linspace(-1, 1, J), rtol=1e-6)
    rows = {name: jnp.asarray(array[:50]) for name, array in DATA.items()}
    values = [p.posterior.sum_of_rows(p.position, rows) for p in (plain, moved)]
    np.testing.assert_allclose(*values, rtol=1e-5)
    seen = unseen_by_rows(moved.posterior, moved.table, moved.position)
    assert seen == (False, True, False), "of the product rows know, of its scale nothing"
    assert recentred(problem(NONE["centred"][0], HIERARCHY, bounds={"tau": POSITIVE}), 0) is None


@pytest.mark.parametrize(("per_group", "expected"), [(2, False), (30, True)])
def test_rows_tell_products_where_there_are_enough_for_each_group(per_group, expected):
    """Each row has information 1 on its group's product, whose prior has variance tau² = 1/10."""
    data = {"g": np.repeat(np.arange(J), per_group).astype(np.int32), "y": np.zeros(J * per_group, np.float32)}
    params = SCALED | {"tau": np.sqrt(0.1)}
    plain = problem(FOUND["scale"][0], params, bounds={"tau": POSITIVE}, data=data)
    moved, _ = recentred(plain, 0)
    layout = groups_of(moved.posterior, moved.table, moved.position, 0)
    arrow = likelihood_curvature(moved.posterior, moved.table, moved.position, layout)
    np.testing.assert_allclose(arrow.within.ravel(), per_group, rtol=1e-4)
    survey = Survey(Centre(moved.position, moved.position, 0.0, True), arrow, "anchor", 1, 0, arrow, layout)
    assert told_by_rows(moved, survey) is expected
    dense = Survey(Centre(moved.position, moved.position, 0.0, True), np.eye(J + 2), "hessian", 1, 0, None, None)
    assert told_by_rows(moved, dense) is False
