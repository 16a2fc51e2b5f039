"""SVRG: unbiased wherever it was anchored, the exact law of its cycle by enumeration, and all rows again in every kind of run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import mean_and_variance
from exact import cycle_moments

import sgmcmc
from sgmcmc.algorithms import SVRG, ControlVariate, Langevin, Minibatch
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.core.trees import Batch
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.posterior import Posterior, Transform
from sgmcmc.problem.schedules import step_schedule

EXACT = 1e-10
KEY = np.zeros(2, np.uint32)

# Rows of different curvature, ℓ_i = -h_i (y_i - θ)² / 2, so that an anchor far away makes noise; and a prior.

H, Y, PRIOR = np.array([0.4, 1.0, 2.1, 3.5]), np.array([-1.0, 0.5, 0.2, 1.4]), 0.7
PRECISION = H.sum() + PRIOR
MEAN = (H * Y).sum() / PRECISION
DATA = {"h": H, "y": Y}


def log_lik(params, batch):
    return -0.5 * (batch["h"] * (batch["y"] - params["mu"]) ** 2).sum()


def log_prior(params):
    return -0.5 * PRIOR * params["mu"] ** 2


POSTERIOR = Posterior(log_lik, log_prior, len(H), Transform((None,)), per_row=False)


def batches(n):
    for chosen in itertools.combinations(range(len(H)), n):
        rows = {name: jnp.asarray(column[list(chosen)]) for name, column in DATA.items()}
        yield Batch(rows, jnp.asarray(len(H) / n), jnp.array(chosen))


def logistic_problem():
    rng = np.random.default_rng(5)
    rows = {"x": rng.normal(size=(6, 2)), "y": rng.integers(0, 2, 6).astype(float)}

    def lik(beta, batch):
        z = batch["x"] @ beta
        return (batch["y"] * z - jnp.logaddexp(0.0, z)).sum()

    return Posterior(lik, lambda beta: -jnp.abs(beta).sum(), 6, Transform((None,)), per_row=False), rows


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("estimator", [SVRG(), SVRG(with_variance=True)], ids=["plain", "with its variance"])
def test_unbiased_wherever_the_anchor_is(estimator):
    posterior, rows = logistic_problem()
    here, there = jnp.array([0.3, -0.7]), jnp.array([1.3, 0.4])
    state = estimator.init(posterior, there, FullPasses(rows))
    every = [
        Batch({name: jnp.asarray(column[list(index)]) for name, column in rows.items()}, jnp.asarray(3.0), jnp.array(index))
        for index in itertools.combinations(range(6), 2)
    ]
    estimates, states, stats = zip(*(estimator.estimate(posterior, here, batch, state) for batch in every), strict=True)
    truth = posterior.gradient(here, Batch(rows, jnp.array(1.0), jnp.arange(6)))
    np.testing.assert_allclose(np.mean(estimates, axis=0), truth, atol=1e-12)
    assert np.std(estimates, axis=0).min() > 0.05  # single ones are off
    assert all(one is state for one in states)
    if estimator.with_variance:
        np.testing.assert_allclose(np.mean([one["variance"] for one in stats], axis=0), np.var(estimates, axis=0), atol=1e-12)
    off = replace(state, gradient=1.001 * state.gradient)
    assert np.abs(np.mean([estimator.estimate(posterior, here, batch, off)[0] for batch in every], axis=0) - truth).max() > 1e-4
    for batch in every:  # at its anchor it has no noise
        at = posterior.gradient(there, Batch(rows, jnp.array(1.0), jnp.arange(6)))
        np.testing.assert_allclose(estimator.estimate(posterior, there, batch, state)[0], at, atol=1e-12)


# The law of the chain: a cycle of `epoch` iterations and a pass. For given minibatches all of it is affine in position, gradient
# and anchor, so second moments obey a linear equation.


def cycle_by_hand(n, epoch, eps):
    """From the formula alone; s is position and anchor. The first step of a cycle has the exact gradient."""

    def update(first, chosen, s, z):
        def slope(rows, at):
            return (H[list(rows)] * (Y[list(rows)] - at)).sum()

        theta, anchor = s
        noisy = 0.0 if first else len(H) / n * (slope(chosen, theta) - slope(chosen, anchor))
        gradient = -PRIOR * theta + slope(range(len(H)), anchor) + noisy
        return jnp.stack([theta + eps / 2 * gradient + jnp.sqrt(eps) * z[0], anchor])

    chosen = list(itertools.combinations(range(len(H)), n))
    steps = [[partial(update, k == 0, rows) for rows in chosen] for k in range(epoch)]
    return cycle_moments([[lambda s, z: jnp.stack([s[0], s[0]])], *steps], 2, 1)


@dataclass(frozen=True)
class AllAtOnce:
    """All rows, traced."""

    def sum(self, function, posterior, position):
        return function(posterior, position, {name: jnp.asarray(column) for name, column in DATA.items()})


def cycle_of_kernel(estimator, n, epoch, eps):
    """From `Kernel.step`, and what the estimator makes anew; s is position, gradient, anchor and the gradient there."""
    kernel = Kernel(POSTERIOR, estimator, Langevin(), step_schedule(eps, {"mu": jnp.zeros(())}))
    like = estimator.init(POSTERIOR, {"mu": jnp.zeros(())}, AllAtOnce())

    def state_of(s, batch):
        begun = kernel.start(KEY, KEY, {"mu": s[0]}, batch, like)
        carried = replace(like, position={"mu": s[2]}, gradient={"mu": s[3]})
        return replace(begun, position={"mu": s[0]}, gradient={"mu": s[1]}, estimator=carried)

    def packed(state):
        leaves = state.position, state.gradient, state.estimator.position, state.estimator.gradient
        return jnp.stack([leaf["mu"] for leaf in leaves])

    def step(batch, s, z):
        return packed(kernel.step(state_of(s, batch), lambda _: batch, {"mu": z}))

    def renew(batch, s, z):
        state = state_of(s, batch)
        carried = estimator.renewed(POSTERIOR, state.position, AllAtOnce(), state.estimator)
        return packed(kernel.place(replace(state, estimator=carried), batch))

    every = list(batches(n))
    steps = [[partial(step, batch) for batch in every]] * epoch
    return cycle_moments([[partial(renew, batch) for batch in every], *steps], 4, 1)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("n", "epoch"), [(1, 1), (1, 3), (2, 4)])
def test_the_law_of_the_chain(n, epoch):
    (mean, covariance), by_hand = cycle_of_kernel(SVRG(epoch), n, epoch, 0.1), cycle_by_hand(n, epoch, 0.1)
    np.testing.assert_allclose(covariance[::2, ::2], by_hand[1], atol=EXACT)
    assert mean[0] == pytest.approx(MEAN, abs=EXACT)
    if epoch == 1:  # every gradient is exact
        assert covariance[0, 0] == pytest.approx(1 / (PRECISION * (1 - 0.1 * PRECISION / 4)), rel=EXACT)


@dataclass(frozen=True)
class Misplaced(SVRG):
    """The mistake: an anchor that is not where its gradient was taken."""

    def init(self, posterior, position, passes):
        anchor = super().init(posterior, position, passes)
        return replace(anchor, position=jax.tree.map(lambda x: 1.01 * x, position))


@pytest.mark.usefixtures("x64")
def test_mistakes_change_the_law():
    right = cycle_by_hand(1, 3, 0.1)[1][0, 0]
    assert abs(cycle_of_kernel(Misplaced(3), 1, 3, 0.1)[1][0, 0] / right - 1) > 1e-4
    assert abs(cycle_by_hand(1, 4, 0.1)[1][0, 0] / right - 1) > 1e-3  # nor does another epoch have that law


# Runs.


def setup(gradient=None, data=DATA, stepsize=0.1, n=1, **options):
    return sgmcmc.sampler_setup(
        log_lik, data, {"mu": 0.0}, stepsize, log_prior=log_prior, minibatch_size=n, progress=False,
        gradient=gradient or SVRG(3), **options,
    )  # fmt: skip


def many_rows():
    rng = np.random.default_rng(1)
    return {"h": rng.gamma(2.0, 0.01, 200).astype(np.float32), "y": rng.normal(1.0, 1.0, 200).astype(np.float32)}


def test_runs_have_the_law():
    """At the end of every cycle; plain minibatches, and an anchor that stays where it was, have another."""
    draws, m = {}, 3
    for gradient in (SVRG(m), Minibatch(), ControlVariate()):
        sampler = setup(gradient, start="params")
        draws[type(gradient)] = sampler.run(sampler.init(seed=3, n_chains=2000), 60, burn_in=60, thin=m, progress=False)["mu"]
    with jax.enable_x64(True):
        law = cycle_by_hand(1, m, 0.1)[1][0, 0]
    mean, variance = mean_and_variance(draws[SVRG], MEAN)
    assert abs(mean.z(MEAN)) < 4
    assert abs(variance.z(law)) < 4
    assert min(abs(mean_and_variance(draws[kind], MEAN)[1].z(law)) for kind in (Minibatch, ControlVariate)) > 8


def anchored(data, seed=4, chains=2, **options):
    sampler = setup(SVRG(25), data, 0.02, 10, **options)
    return sampler, sampler.init(seed=seed, n_chains=chains)


def test_all_rows_are_looked_at_where_every_chain_is():
    data = many_rows()
    sampler, state = anchored(data, chains=3)
    result = sampler.run(state, 61, progress=False)
    anchor = result.final_state.estimator
    np.testing.assert_array_equal(anchor.position["mu"], result["mu"][:, 49])
    for chain, at in enumerate(np.asarray(anchor.position["mu"], np.float64)):
        h, y = (data[name].astype(np.float64) for name in ("h", "y"))
        assert anchor.gradient["mu"][chain] == pytest.approx((h * (y - at)).sum(), abs=1e-5)
    assert len(set(np.asarray(anchor.position["mu"]).tolist())) == 3


def test_pieces_of_a_run_are_the_run_bit_for_bit(tmp_path):
    """Chunks of any size, runs that go on from a state, and from a folder, wherever they were cut."""
    sampler, state = anchored(many_rows())
    whole = sampler.run(state, 110, progress=False, chunk_size=64)["mu"]
    np.testing.assert_array_equal(sampler.run(state, 110, progress=False, chunk_size=7)["mu"], whole)
    parts, now = [], state
    for count in (25, 3, 47, 25, 10):
        result = sampler.run(now, count, progress=False, chunk_size=64)
        parts, now = [*parts, result["mu"]], result.final_state
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    for count in (50, 110):
        resumed = anchored(many_rows())[0].run(state, count, checkpoint=tmp_path / "run", progress=False, chunk_size=64)
        np.testing.assert_array_equal(resumed["mu"], whole[:, :count])


def test_single_steps_look_at_all_rows_too():
    sampler, state = anchored(many_rows(), chains=None)
    path = sampler.run(state, 30, progress=False)["mu"]
    for _ in range(30):
        state = sampler.step(state)
    assert state.params["mu"] == pytest.approx(path[-1], rel=1e-4)
    assert state.estimator.position["mu"] == pytest.approx(path[24], rel=1e-4)


def test_from_disk_and_in_strata_it_is_the_same_gradient(tmp_path):
    data = many_rows()
    sgmcmc.data.convert(data, tmp_path / "rows", shuffle=False)
    for rows in (str(tmp_path / "rows"), sgmcmc.hosts.stratum(data)):
        sampler, state = anchored(rows)
        anchor = sampler.run(state, 26, progress=False).final_state.estimator
        at, h, y = (np.asarray(one, np.float64) for one in (anchor.position["mu"], data["h"], data["y"]))
        np.testing.assert_allclose(anchor.gradient["mu"], (h * (y - at[:, None])).sum(axis=1), atol=1e-5)


def test_left_out_an_epoch_looks_at_as_many_rows_as_there_are():
    assert SVRG().renewed_every(205, 10) == 21
    with pytest.raises(sgmcmc.InputError, match="epoch is 0; expected a whole number of at least 1"):
        SVRG(0)


def test_whitened_variables():
    """Passes are taken through the whitening, and compile nothing anew."""
    sampler = setup(SVRG(25), many_rows(), 0.1, 10, precondition="laplace")
    result = sampler.run(sampler.init(seed=4, n_chains=300), 100, burn_in=50, thin=10, progress=False)
    h, y = (many_rows()[name].astype(np.float64) for name in ("h", "y"))
    precision = h.sum() + PRIOR
    mean, variance = mean_and_variance(result["mu"], (h * y).sum() / precision)
    assert abs(mean.z((h * y).sum() / precision)) < 4
    assert 0.98 < variance.value * precision < 1.12
