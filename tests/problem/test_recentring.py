"""Products in the place of effects: there and back, the volume, and the density of the user's parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc import constraints
from sgmcmc.core.trees import flat, split
from sgmcmc.problem.posterior import Posterior, make_transform
from sgmcmc.problem.recentring import Product, Recentred

pytestmark = pytest.mark.usefixtures("x64")

J, Q = 4, 3
RNG = np.random.default_rng(2)
POSITIVE = constraints.positive

CASES = {
    "scalar": ({"a": RNG.normal(size=2), "tau": 1.7, "z": RNG.normal(size=J)}, {"tau": POSITIVE}, Product(1, 2, 0, False)),
    "vector": (
        {"s": np.array([0.4, 1.5, 2.5]), "tau": 0.7, "z": RNG.normal(size=(J, Q))},
        {"s": POSITIVE, "tau": POSITIVE},
        Product(0, 2, 0, False),
    ),
    "groups last": ({"s": np.array([0.4, 1.5, 2.5]), "z": RNG.normal(size=(Q, J))}, {"s": POSITIVE}, Product(0, 1, 1, False)),
    "one scale of many": ({"s": 0.4, "z": RNG.normal(size=(J, Q))}, {"s": POSITIVE}, Product(0, 1, 0, False)),
    "logged": ({"log_tau": 0.3, "z": RNG.normal(size=J)}, None, Product(0, 1, 0, True)),
    "logged vector": ({"log_s": RNG.normal(size=Q), "z": RNG.normal(size=(J, Q))}, None, Product(0, 1, 0, True)),
    "interval": ({"tau": 0.6, "z": RNG.normal(size=J)}, {"tau": constraints.interval(0.0, 2.0)}, Product(0, 1, 0, False)),
}


@pytest.fixture(params=CASES)
def case(request):
    params, bounds, product = CASES[request.param]
    params = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    outer = make_transform(bounds, params)
    return params, outer, Recentred(outer, (product,)), product


def by_hand(params, product):
    """The scale as it multiplies the effects, and the effects, from the user's parameters."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(params)]
    scale, effects = leaves[product.scale], leaves[product.effects]
    scale = np.exp(scale) if product.logged else scale
    if scale.ndim and product.axis == 0:
        scale = np.stack([scale] * J)
    elif scale.ndim:
        scale = np.stack([scale] * J, axis=1)
    return scale, effects


def log_volume(transform, position):
    """log |det| of the Jacobian of all of the parameters by all of the position."""
    jacobian = jax.jacobian(lambda x: flat(transform.to_params(split(x, position))))(flat(position))
    return np.linalg.slogdet(np.asarray(jacobian))[1]


def test_there_and_back(case):
    params, outer, recentred, product = case
    position = recentred.to_position(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), recentred.to_params(position), params)
    scale, effects = by_hand(params, product)
    before, after = (jax.tree.leaves(t.to_position(params)) for t in (outer, recentred))
    np.testing.assert_allclose(after[product.effects], scale * effects, rtol=1e-12)
    for number, (a, b) in enumerate(zip(before, after, strict=True)):
        assert number == product.effects or np.array_equal(a, b), "all else stays"
    assert recentred.bijections == outer.bijections


def test_the_volume_is_that_of_the_jacobian(case):
    params, outer, recentred, product = case
    position = recentred.to_position(params)
    truth = log_volume(recentred, position)
    assert float(recentred.log_det(position)) == pytest.approx(truth, abs=1e-10)
    scale, effects = by_hand(params, product)
    stretched = np.log(np.broadcast_to(scale, effects.shape)).sum()
    before = outer.to_position(params)
    assert truth == pytest.approx(log_volume(outer, before) - stretched, abs=1e-10)
    assert abs(float(outer.log_det(before)) - truth) > 0.1, "a control: without the stretch"


def test_the_density_of_the_parameters_stays(case):
    """p(position) / |d params / d position| is the same for both transforms, wherever."""
    params, outer, recentred, _ = case
    rng = np.random.default_rng(4)

    def log_prior(params):
        return -0.5 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params)) - sum(
            jnp.cosh(leaf).sum() for leaf in jax.tree.leaves(params)
        )

    def log_lik(params, rows):
        return -0.5 * (rows["x"] - params["z"].sum()) ** 2

    rows = {"x": jnp.asarray(rng.normal(size=3))}
    for _ in range(3):
        somewhere = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), outer.to_position(params))
        there = outer.to_params(somewhere)
        densities = []
        for transform in (outer, recentred):
            posterior = Posterior(log_lik, log_prior, 3, transform, per_row=True)
            position = transform.to_position(there)
            of_position = posterior.sum_of_rows(position, rows) + posterior.log_density_prior(position)
            densities.append(float(of_position) - log_volume(transform, position))
        plain = float(log_lik(there, rows).sum() + log_prior(there))
        np.testing.assert_allclose(densities, plain, rtol=1e-12, atol=1e-10)


def test_two_products_at_once():
    params = {"s": np.array([0.5, 2.0]), "t": 3.0, "u": RNG.normal(size=J), "w": RNG.normal(size=(J, 2))}
    params = jax.tree.map(lambda x: jnp.asarray(x, float), params)
    outer = make_transform({"s": POSITIVE, "t": POSITIVE}, params)
    recentred = Recentred(outer, (Product(0, 3, 0, False), Product(1, 2, 0, False)))
    position = recentred.to_position(params)
    np.testing.assert_allclose(position["w"], params["s"] * params["w"], rtol=1e-12)
    np.testing.assert_allclose(position["u"], 3.0 * params["u"], rtol=1e-12)
    assert float(recentred.log_det(position)) == pytest.approx(log_volume(recentred, position), abs=1e-10)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), recentred.to_params(position), params)
