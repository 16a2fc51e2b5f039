"""Arrows against dense matrices: from probes, times, whitened, and the order of numbers in nested trees."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.core.names import Names
from sgmcmc.core.trees import flat
from sgmcmc.problem.arrow import Arrow, ArrowWhitening, Layout, probes

pytestmark = pytest.mark.usefixtures("x64")

J = 4
LIKE = {"b": np.zeros((2, J)), "nest": {"mu": np.zeros(2), "u": np.zeros(J)}, "w": np.zeros((J, 2)), "z": np.array(0.0)}
"""Leaves in this order: b, with its groups on axis 1; nest.mu, shared; nest.u and w, with theirs on axis 0; z, shared."""
LAYOUT = Layout((1, None, 0, 0, None), ((2, J), (2,), (J,), (J, 2), ()))
SHARED_NAMES = ["nest.mu[0]", "nest.mu[1]", "z"]
NAMES = SHARED_NAMES + [n for j in range(J) for n in (f"b[0,{j}]", f"b[1,{j}]", f"nest.u[{j}]", f"w[{j},0]", f"w[{j},1]")]

ALL_GROUPED = Layout((0,), ((J, 3),))
LAYOUTS = {"nested": (LAYOUT, LIKE), "nothing shared": (ALL_GROUPED, {"u": np.zeros((J, 3))})}


def some_tree(like, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=np.shape(x))), like)


def dense_arrow(layout, seed, positive=False):
    """A symmetric matrix with zeros between the groups, in the order of the layout."""
    rng, k, q = np.random.default_rng(seed), layout.shared, layout.own
    d = k + layout.groups * q
    A = rng.normal(size=(d, d))
    A = A @ A.T if positive else A + A.T
    for i in range(layout.groups):
        for j in range(layout.groups):
            if i != j:
                A[k + i * q : k + (i + 1) * q, k + j * q : k + (j + 1) * q] = 0
    return A + 2 * d * np.eye(d) if positive else A


def arrow_of(A, layout):
    return Arrow.of_products(probes(layout) @ A, layout)


def dense(arrow):
    """The matrix of an arrow, block by block."""
    k, (groups, q, _) = len(arrow.outer), arrow.within.shape
    A = np.zeros((k + groups * q,) * 2)
    A[:k, :k] = arrow.outer
    for j in range(groups):
        own = slice(k + j * q, k + (j + 1) * q)
        A[own, own], A[own, :k], A[:k, own] = arrow.within[j], arrow.coupling[j], arrow.coupling[j].T
    return A


@pytest.fixture(params=LAYOUTS)
def case(request):
    layout, like = LAYOUTS[request.param]
    A = dense_arrow(layout, 1, positive=True)
    return layout, like, A, ArrowWhitening.of(arrow_of(A, layout), some_tree(like, 2), layout)


def factor_in_layout(whitening):
    """L with rows and columns in the order of the layout, through the tree and its names alone."""
    return np.asarray(whitening.factor)[whitening.layout.order(whitening.origin)]


# Layouts.


def test_the_sizes_of_a_layout():
    assert (LAYOUT.groups, LAYOUT.shared, LAYOUT.own, LAYOUT.size, LAYOUT.per_row) == (J, 3, 5, 3 + 5 * J, 8)
    assert (ALL_GROUPED.groups, ALL_GROUPED.shared, ALL_GROUPED.own, ALL_GROUPED.per_row) == (J, 0, 3, 3)


def test_names_and_order_are_what_is_shared_then_group_after_group():
    names = Names().numbers(LIKE)
    assert [names[i] for i in LAYOUT.order(LIKE)] == NAMES
    tree = some_tree(LIKE, 0)
    np.testing.assert_array_equal(LAYOUT.vector(tree), flat(tree)[LAYOUT.order(LIKE)])
    b, u, w = tree["b"], tree["nest"]["u"], tree["w"]
    third = [b[0, 2], b[1, 2], u[2], w[2, 0], w[2, 1]]
    np.testing.assert_array_equal(LAYOUT.vector(tree)[3 + 2 * 5 : 3 + 3 * 5], third)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_vector_is_its_tree_again(name):
    layout, like = LAYOUTS[name]
    tree = some_tree(like, 0)
    jax.tree.map(np.testing.assert_array_equal, layout.of_vector(layout.vector(tree), tree), tree)
    vector = np.random.default_rng(1).normal(size=layout.size)
    np.testing.assert_array_equal(layout.vector(layout.of_vector(jnp.asarray(vector), like)), vector)


# Arrows.


@pytest.mark.parametrize("name", LAYOUTS)
def test_probes_tell_all_of_an_arrow(name):
    layout, _ = LAYOUTS[name]
    A = dense_arrow(layout, 3)
    assert len(probes(layout)) == layout.per_row
    np.testing.assert_allclose(dense(arrow_of(A, layout)), A, atol=1e-10)
    np.testing.assert_allclose(arrow_of(A, layout).diagonal, np.diag(A), atol=1e-10)
    between = A.copy()
    between[-1, layout.shared] = between[layout.shared, -1] = 1.0
    assert np.abs(dense(arrow_of(between, layout)) - between).max() > 0.5, "two groups that know each other are no arrow"


@pytest.mark.parametrize("name", LAYOUTS)
def test_products_sums_and_multiples_are_those_of_the_matrix(name):
    layout, _ = LAYOUTS[name]
    A, B = dense_arrow(layout, 3), dense_arrow(layout, 4)
    v = np.random.default_rng(5).normal(size=layout.size)
    np.testing.assert_allclose(arrow_of(A, layout).times(v), A @ v, atol=1e-10)
    np.testing.assert_allclose(dense(arrow_of(A, layout) + arrow_of(B, layout)), A + B, atol=1e-10)
    np.testing.assert_allclose(dense(arrow_of(A, layout).scaled(-0.5)), -0.5 * A, atol=1e-10)


# Whitenings.


def test_the_whitening_times_its_transpose_is_the_inverse(case):
    layout, _, A, whitening = case
    L = factor_in_layout(whitening)
    np.testing.assert_allclose(L @ L.T, np.linalg.inv(A), atol=1e-10)
    np.testing.assert_allclose(L.T @ A @ L, np.eye(layout.size), atol=1e-10)
    np.testing.assert_allclose(whitening.scales, np.sqrt(np.diag(np.linalg.inv(A))), rtol=1e-10)


def test_a_badly_scaled_precision_is_whitened_too():
    units = 10.0 ** np.random.default_rng(0).integers(-6, 7, LAYOUT.size)
    A = dense_arrow(LAYOUT, 1, positive=True) * np.outer(units, units)
    L = factor_in_layout(ArrowWhitening.of(arrow_of(A, LAYOUT), LIKE, LAYOUT))
    np.testing.assert_allclose(L.T @ A @ L, np.eye(LAYOUT.size), atol=1e-9)


def test_enter_undoes_leave(case):
    layout, like, _, whitening = case
    z = jnp.asarray(np.random.default_rng(6).normal(size=layout.size))
    there = whitening.leave(z)
    assert jax.tree.map(np.shape, there) == jax.tree.map(np.shape, like)
    np.testing.assert_allclose(whitening.enter(there), z, atol=1e-10)
    jax.tree.map(np.testing.assert_array_equal, whitening.leave(whitening.zero()), whitening.origin)
    moved = factor_in_layout(whitening) @ z
    np.testing.assert_allclose(layout.vector(there) - layout.vector(whitening.origin), moved, atol=1e-10)


def test_pull_back_is_the_transpose_and_what_autodiff_says(case):
    layout, like, _, whitening = case
    gradient = some_tree(like, 7)
    pulled = whitening.pull_back(gradient)
    np.testing.assert_allclose(pulled, factor_in_layout(whitening).T @ np.asarray(layout.vector(gradient)), atol=1e-10)

    def along(z):
        return jnp.dot(flat(whitening.leave(z)), flat(gradient))

    np.testing.assert_allclose(pulled, jax.grad(along)(whitening.zero()), atol=1e-10)
    transposed = replace(whitening, within=jnp.swapaxes(whitening.within, 1, 2))
    assert np.abs(transposed.pull_back(gradient) - pulled).max() > 1e-3, "a control: the blocks are not symmetric"


def test_of_quadratic_is_the_matrix_between_two_factors(case):
    layout, _, A, whitening = case
    L, B = factor_in_layout(whitening), dense_arrow(layout, 8)
    found = whitening.of_quadratic(arrow_of(B, layout))
    np.testing.assert_allclose(dense(found), L.T @ B @ L, atol=1e-10)
    np.testing.assert_allclose(dense(whitening.of_quadratic(arrow_of(A, layout))), np.eye(layout.size), atol=1e-10)
