"""The anchor: exact where the posterior is Gaussian; in the mass of a hierarchy, whose posterior is known by quadrature."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc import constraints
from sgmcmc.algorithms.gradients.control_variate import ControlVariate
from sgmcmc.core.trees import flat
from sgmcmc.problem.arrow import Arrow, Layout
from sgmcmc.problem.passes import FullPasses
from sgmcmc.run.request import Problem
from sgmcmc.tune import anchor as module
from sgmcmc.tune.anchor import FEW_ROWS, find_anchor, fitted, spread
from sgmcmc.tune.curvatures import likelihood_curvature, whitening_of
from sgmcmc.tune.mode import find_mode
from sgmcmc.tune.structure import groups_of, unseen_by_rows

# A Gaussian: y ~ N(a + u_j, s), u_j ~ N(0, t), a ~ N(0, 2).

J, S, T = 5, 0.8, 0.6
RNG = np.random.default_rng(2)
G = RNG.integers(0, J, 60).astype(np.int32)
Y = 1.0 + RNG.normal(0, T, J)[G] + RNG.normal(0, S, 60)
LAYOUT = Layout((None, 0), ((), (J,)))


def linear():
    def log_lik(p, batch):
        return -0.5 * ((batch["y"] - p["a"] - p["u"][batch["g"]]) / S) ** 2

    def log_prior(p):
        return -0.5 * (p["u"] ** 2).sum() / T**2 - 0.5 * (p["a"] / 2) ** 2

    return Problem.of(log_lik, {"g": G, "y": Y}, {"a": 0.0, "u": np.zeros(J)}, log_prior)


def of_linear():
    """Mean and precision, written out; and the rows' part in it."""
    design = np.concatenate([np.ones((60, 1)), np.eye(J)[G]], axis=1)
    likelihood = design.T @ design / S**2
    precision = likelihood + np.diag([1 / 4] + [1 / T**2] * J)
    return np.linalg.solve(precision, design.T @ Y / S**2), precision, likelihood


@pytest.mark.usefixtures("x64")
def test_on_a_gaussian_with_groups_the_anchor_is_exact():
    anchor = find_anchor(linear(), LAYOUT, (False, False), 0, False)
    mean, precision, likelihood = of_linear()
    np.testing.assert_allclose(flat(anchor.centre.position), mean, atol=1e-10)
    L = np.asarray(whitening_of(anchor.precision, anchor.centre.position, LAYOUT).factor)
    np.testing.assert_allclose(L @ L.T, np.linalg.inv(precision), atol=1e-10)
    np.testing.assert_allclose(anchor.likelihood.diagonal, np.diag(likelihood), rtol=1e-10)
    np.testing.assert_allclose(anchor.likelihood.coupling[:, 0, 0], likelihood[0, 1:], rtol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("layout", [LAYOUT, None], ids=["arrow", "matrix"])
def test_the_gaussian_fitted_to_a_gaussian_is_that_gaussian(layout):
    """Fitted from elsewhere: in whitened variables its mean is the gradient there, and its standard deviations are 1."""
    problem, (mean, precision, _) = linear(), of_linear()
    away = np.random.default_rng(0).normal(size=J + 1)
    position = {"a": jnp.asarray(mean[0] + away[0]), "u": jnp.asarray(mean[1:] + away[1:])}
    centre = ControlVariate().init(problem.posterior, position, FullPasses(problem.table))
    likelihood = likelihood_curvature(problem.posterior, problem.table, position, layout)
    prior = np.diag([1 / 4] + [1 / T**2] * J)
    if layout is not None:
        whitening = whitening_of(likelihood + Arrow(prior[:1, :1], 0.0, prior[1, 1]), position, layout)
    else:
        whitening = whitening_of(likelihood + prior, position)
    found, deviations = fitted(problem.posterior, whitening, centre, likelihood, 0)
    there = np.asarray(flat(whitening.leave(jnp.asarray(found))))
    scales = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.abs((np.asarray(flat(position)) - mean) / scales).max() > 1, "it had to move"
    np.testing.assert_allclose((there - mean) / scales, 0, atol=0.02)
    np.testing.assert_allclose(deviations, 1, atol=0.2)
    draws = spread(whitening, found, deviations, 3)
    np.testing.assert_allclose(np.mean(draws["u"], axis=0), there[1:], atol=1e-10)  # mirrored pairs


# A hierarchy: y_ij ~ N(u_j, s), u_j ~ N(mu, tau), mu ~ N(0, 10), tau ~ Exponential(1).

GROUPS, EACH, SD = 80, 4, 1.0


class Exact(NamedTuple):
    mu: tuple[float, float]
    log_tau: tuple[float, float]
    u: tuple[np.ndarray, np.ndarray]


def hierarchy():
    rng = np.random.default_rng(4)
    u = 1 + 0.4 * rng.standard_normal(GROUPS)
    g = np.repeat(np.arange(GROUPS), EACH).astype(np.int32)
    y = (u[g] + SD * rng.standard_normal(len(g))).astype(np.float32)

    def log_lik(p, batch):
        return -0.5 * ((batch["y"] - p["u"][batch["g"]]) / SD) ** 2

    def log_prior(p):
        effects = -0.5 * (((p["u"] - p["mu"]) / p["tau"]) ** 2).sum() - GROUPS * jnp.log(p["tau"])
        return effects - 0.5 * (p["mu"] / 10) ** 2 - p["tau"]

    start = {"mu": 0.0, "tau": 1.0, "u": np.zeros(GROUPS)}
    return Problem.of(log_lik, {"g": g, "y": y}, start, log_prior, {"tau": constraints.positive}), y


def by_quadrature(y):
    """Means and standard deviations: effects integrated out by hand, mu and log tau on a grid."""
    means, v = y.astype(float).reshape(GROUPS, EACH).mean(axis=1), SD**2 / EACH
    mu, log_tau = np.meshgrid(np.linspace(0.5, 1.5, 201), np.linspace(-4, 0.5, 451), indexing="ij")
    tau2 = np.exp(2 * log_tau)
    log_density = -0.5 * (mu / 10) ** 2 - np.exp(log_tau) + log_tau
    for mean in means:
        log_density = log_density - 0.5 * (mean - mu) ** 2 / (tau2 + v) - 0.5 * np.log(tau2 + v)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    assert max(weight[0].sum(), weight[-1].sum(), weight[:, 0].sum(), weight[:, -1].sum()) < 1e-4, "the grid is wide enough"

    def moments(value, variance=0.0):
        first = np.sum(weight * value)
        return first, np.sqrt(np.sum(weight * (value**2 + variance)) - first**2)

    shrunk = tau2 / (tau2 + v)
    of_u = [moments(shrunk * mean + (1 - shrunk) * mu, shrunk * v) for mean in means]
    return Exact(moments(mu), moments(log_tau), (np.array([m for m, _ in of_u]), np.array([s for _, s in of_u])))


@pytest.mark.parametrize("grouped", [True, False], ids=["arrow", "matrix"])
def test_of_a_hierarchy_the_anchor_is_in_the_mass(grouped):
    problem, y = hierarchy()
    layout = groups_of(problem.posterior, problem.table, problem.position, 0)
    unseen = unseen_by_rows(problem.posterior, problem.table, problem.position)
    assert layout.axes == (None, None, 0)
    assert unseen == (True, True, False)
    anchor = find_anchor(problem, layout if grouped else None, unseen, 0, False)
    assert anchor.layout == (layout if grouped else None)
    exact, there = by_quadrature(y), anchor.centre.position

    def off(position):
        pairs = ((position["mu"], exact.mu), (position["tau"], exact.log_tau))
        return [abs(float(value) - mean) / sd for value, (mean, sd) in pairs]

    assert max(off(there)) < 0.5
    assert np.sqrt(np.mean(((np.asarray(there["u"]) - exact.u[0]) / exact.u[1]) ** 2)) < 0.3
    whitening = whitening_of(anchor.precision, there, anchor.layout)
    scales = np.linalg.norm(np.asarray(whitening.factor, np.float64), axis=1)
    assert scales[0] == pytest.approx(exact.mu[1], rel=0.1)
    np.testing.assert_allclose(scales[2:], exact.u[1], rtol=0.1)
    mode = find_mode(problem.posterior, problem.table, problem.position, 0, False)
    assert off(mode.position)[1] > 5, "a control: the joint density rises as tau falls"


def test_without_groups_and_without_unseen_parameters_there_is_no_anchor():
    assert find_anchor(linear(), None, (False, False), 0, False) is None


def test_how_far_a_hair_is_takes_a_few_rows_in_blocks_that_fit(monkeypatch):
    """Squared gradients take a number for each row and each parameter: a whole block of narrow rows would fill the memory."""
    seen, groups, full_sum = [], 3000, module.full_sum

    def watched(program, table, *told, **also):
        seen.append((table.n_rows, also.get("extra", 0)))
        return full_sum(program, table, *told, **also)

    monkeypatch.setattr(module, "full_sum", watched)
    data = {"g": np.tile(np.arange(groups, dtype=np.int32), 2), "y": np.zeros(2 * groups)}
    start = {"a": 0.0, "u": np.zeros(groups)}
    problem = Problem.of(lambda p, rows: -0.5 * (rows["y"] - p["a"] - p["u"][rows["g"]]) ** 2, data, start, None)
    layout = Layout((None, 0), ((), (groups,)))
    moved = module._nudged(problem, layout, np.zeros(layout.size, bool), 0)
    assert seen == [(FEW_ROWS, 4 * layout.size)]
    assert 0 < float(jnp.abs(flat(moved)).max()) < 0.1
