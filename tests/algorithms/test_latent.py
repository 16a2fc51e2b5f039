"""Latent variables of rows: gradients unbiased over minibatches and draws, the law where a row keeps its own, and refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import Latent
from sgmcmc.algorithms import MetropolisHamiltonian
from sgmcmc.core.trees import Batch
from sgmcmc.results.convergence import effective_size
from sgmcmc.testing import check_sampler

# A mixture of three normals of known weights, and means that are to be found.

WEIGHTS = (0.5, 0.3, 0.2)
ROWS = {"x": np.array([-1.2, 0.4, 2.0, 0.1])}
MEANS = {"mu": np.array([-1.0, 0.3, 1.1])}


def log_joint(params, x):
    """log p(x, z) for each z, on a new last axis."""
    return jnp.log(jnp.array(WEIGHTS)) - 0.5 * (x[..., None] - params["mu"]) ** 2


def log_lik(params, rows, z):
    return jnp.take_along_axis(log_joint(params, rows["x"]), z[:, None], axis=1).sum()


def marginal(params, rows):
    return jax.nn.logsumexp(log_joint(params, rows["x"]), axis=-1).sum()


def assign(key, params, rows):
    return jax.random.categorical(key, log_joint(params, rows["x"]))


def log_prior(params):
    return -0.5 * (params["mu"] ** 2).sum()


def setup(latent, data=ROWS, **options):
    asked = {"log_prior": log_prior, "minibatch_size": 2, "progress": False}
    return sgmcmc.sampler_setup(log_lik, data, MEANS, 1e-3, latent=latent, **asked | options)


def mean_over_minibatches_and_draws(sampler, est_state, at=None):
    """E[ĝ] over all minibatches of two rows and all z of these, of weights that are those given `at`."""
    kernel, params = sampler.kernel, {"mu": jnp.asarray(MEANS["mu"])}
    p = np.asarray(jax.nn.softmax(log_joint(at or params, jnp.asarray(ROWS["x"]))), np.float64)
    total = 0.0
    for pair in itertools.combinations(range(4), 2):
        rows, index = {"x": jnp.asarray(ROWS["x"][[*pair]])}, jnp.asarray(pair)
        for z in itertools.product(range(3), repeat=2):
            batch = Batch(rows, jnp.asarray(2.0), index, jnp.asarray(z))
            gradient, _, _ = kernel.estimator.estimate(kernel.posterior, params, batch, est_state)
            total = total + p[pair[0], z[0]] * p[pair[1], z[1]] * np.asarray(gradient["mu"]) / 6
    return total


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("gradient", ["minibatch", "saga"])
def test_the_gradient_is_unbiased_over_minibatches_and_draws(gradient):
    sampler = setup(told, gradient=gradient)
    est_state = () if gradient == "minibatch" else sampler.init(seed=1).estimator
    params, rows = {"mu": jnp.asarray(MEANS["mu"])}, {"x": jnp.asarray(ROWS["x"])}
    truth = jax.grad(lambda p: marginal(p, rows) + log_prior(p))(params)["mu"]
    np.testing.assert_allclose(mean_over_minibatches_and_draws(sampler, est_state), truth, rtol=0, atol=1e-12)
    elsewhere = {"mu": params["mu"] + 0.1}  # the mistake: z given other parameters, as where a row keeps an old one
    assert np.abs(mean_over_minibatches_and_draws(sampler, est_state, elsewhere) - truth).max() > 1e-2


def told(key, params, rows):
    """z as the test has put them in place of the key; at set-up, where there is one, some z."""
    return key if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else assign(key, params, rows)


def test_several_draws_are_averaged_each_with_a_key_of_its_own():
    one, three = (setup(Latent(assign, draws=k)).kernel for k in (1, 3))
    batch = Batch(
        {name: jnp.asarray(x[:2], float) for name, x in ROWS.items()}, jnp.asarray(2.0), jnp.arange(2), jax.random.key(3)
    )
    position = jax.tree.map(lambda x: jnp.asarray(x, float), MEANS)
    each = [
        one.estimator.estimate(one.posterior, position, replace(batch, key=key), ())[0]["mu"]
        for key in jax.random.split(jax.random.key(3), 3)
    ]
    came = three.estimator.estimate(three.posterior, position, batch, ())[0]["mu"]
    np.testing.assert_allclose(came, np.mean(each, axis=0), rtol=1e-5)
    assert np.ptp(each, axis=0).max() > 0.1


def test_a_table_of_gradients_has_the_mean_over_the_draws():
    sampler = setup(Latent(assign, draws=3), gradient="saga")
    before, kernel = sampler.init(seed=1).estimator, sampler.kernel
    batch = Batch({"x": jnp.asarray(ROWS["x"][:2], float)}, jnp.asarray(2.0), jnp.arange(2), jax.random.key(3))
    position = jax.tree.map(lambda x: jnp.asarray(x, float), MEANS)
    after = kernel.estimator.estimate(kernel.posterior, position, batch, before)[1]["table"]["mu"]
    z = jnp.stack([assign(key, position, batch.rows) for key in jax.random.split(batch.key, 3)])
    off = batch.rows["x"] - position["mu"][z]
    wanted = (jax.nn.one_hot(z, 3) * off[..., None]).mean(axis=0)
    np.testing.assert_allclose(after[:2], wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(after[2:], before["table"]["mu"][2:])


# The law of chains: two means ±m of a mixture of weights 9 to 1, against quadrature. Signs are told apart, so there is one mode.

SPREAD = {"x": np.random.default_rng(1).normal(size=30) + np.where(np.arange(30) % 10 == 0, -1.0, 1.0)}


def log_lik_of_two(params, rows, z):
    return -0.5 * ((rows["x"] - params["m"] * (2 * z - 1)) ** 2).sum() + (z * np.log(9)).sum()


def which(key, params, rows, odds=2.1972246):
    return jax.random.bernoulli(key, jax.nn.sigmoid(2 * params["m"] * rows["x"] + odds)).astype(int)


def mean_of_m():
    m = np.linspace(-4, 4, 4001)
    x = SPREAD["x"]
    terms = np.logaddexp(np.log(9) - 0.5 * (x[:, None] - m) ** 2, -0.5 * (x[:, None] + m) ** 2)
    log_p = terms.sum(axis=0) - 0.5 * m**2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert p[m < 0].sum() < 1e-4
    return np.array([p @ m, p @ m**2])


def test_chains_have_the_law_of_the_marginal_posterior_and_a_wrong_draw_is_caught():
    def scores(draw):
        out = sgmcmc.baoa(
            log_lik_of_two, SPREAD, {"m": 1.0}, 0.002, log_prior=lambda p: -0.5 * p["m"] ** 2, latent=draw, minibatch_size=30,
            n_iters=20_000, burn_in=500, n_chains=4, seed=3, keep=sgmcmc.Trace(thin=4), progress=False,
        )  # fmt: skip
        seen = np.stack([out["m"], out["m"] ** 2], axis=-1)
        sizes = np.array([effective_size(seen[..., k]) for k in range(2)])
        return np.abs(seen.mean(axis=(0, 1)) - mean_of_m()) / (seen.std(axis=(0, 1)) / np.sqrt(sizes))

    assert scores(which).max() < 4
    assert scores(partial(which, odds=0.0)).max() > 6


# Rows that keep their z. Here all is Gaussian, so that the law is exact: y_i ~ N(z_i, 1), z_i ~ N(θ, 1), θ ~ N(0, 1), and a step
# z' = m + a (z - m) + noise about the conditional mean m = (θ + y)/2, whose noise is put into the data.

THREE = {"y": np.zeros(3), "normal": np.zeros(3)}


def remembering(a, key, params, rows, z):
    mean = (params["t"] + rows["y"]) / 2
    return mean + a * (z - mean) + np.sqrt((1 - a**2) / 2) * rows["normal"]


def log_lik_of_kept(params, rows, z):
    return -0.5 * ((z - params["t"]) ** 2).sum()


def variance_of_kept(a, eps):
    """Of θ under the code's own iteration, which is affine for each of the three minibatches: second moments obey a linear
    equation, the mean of M P Mᵀ + B Bᵀ over these.
    """
    latent = Latent(partial(remembering, a), kept=np.zeros(3))
    sampler = sgmcmc.sgld_setup(
        log_lik_of_kept,
        THREE,
        {"t": 0.0},
        eps,
        log_prior=lambda p: -0.5 * p["t"] ** 2,
        latent=latent,
        minibatch_size=1,
        progress=False,
    )
    kernel, state = sampler.kernel, sampler.init(seed=1)

    def iteration(row, numbers):
        t, gradient, z, noise, normal = numbers[0], numbers[1], numbers[2:5], numbers[5], numbers[6]
        rows = {"y": jnp.zeros(1), "normal": normal[None]}
        there = replace(state, position={"t": t}, gradient={"t": gradient}, estimator={"z": z})
        new = kernel.step(there, lambda _: Batch(rows, jnp.asarray(3.0), jnp.asarray([row])), {"t": noise[None]})
        return jnp.concatenate([jnp.stack([new.position["t"], new.gradient["t"]]), new.estimator["z"]])

    steps = [np.asarray(jax.jacobian(partial(iteration, row))(jnp.zeros(7))) for row in range(3)]
    second = sum(np.kron(J[:, :5], J[:, :5]) for J in steps) / 3
    added = sum(J[:, 5:] @ J[:, 5:].T for J in steps) / 3
    return steps, np.linalg.solve(np.eye(25) - second, added.ravel()).reshape(5, 5)[0, 0]


@pytest.mark.usefixtures("x64")
def test_the_bias_of_kept_latents_is_known_and_vanishes_with_the_step():
    steps, _ = variance_of_kept(0.8, 0.1)
    a, eps = 0.8, 0.1
    t = np.array([1, eps / 2, 0, 0, 0, np.sqrt(eps), 0])  # by hand, for the minibatch that is row 0
    z = a * np.eye(7)[2] + (1 - a) / 2 * t + np.sqrt((1 - a**2) / 2) * np.eye(7)[6]
    by_hand = np.stack([t, -t + 3 * (z - t), z, np.eye(7)[3], np.eye(7)[4]])
    np.testing.assert_allclose(steps[0], by_hand, atol=1e-12)
    posterior = 1 / (1 + 3 / 2)
    fresh, kept = ({eps: variance_of_kept(a, eps)[1] / posterior for eps in (0.1, 1e-5)} for a in (0.0, 0.8))
    assert abs(kept[0.1] / fresh[0.1] - 1) > 0.03  # what keeping z costs at a large step
    assert abs(kept[1e-5] - 1) < 2e-4
    assert abs(fresh[1e-5] - 1) < 2e-4
    again = variance_of_kept(0.8, 1e-6)[1] / posterior
    assert 5 < (kept[1e-5] - 1) / (again - 1) < 20  # in proportion to the step


@pytest.mark.usefixtures("x64")
def test_a_row_that_forgets_its_z_has_the_law_of_fresh_draws():
    """With a = 0 the next iterations do not depend on the z that are kept."""
    steps, _ = variance_of_kept(0.0, 0.1)
    for J in steps:
        np.testing.assert_array_equal(J[:2, 2:5], 0)


# What every sampler promises.


def complete(setup, latent, log_lik, dataset, params, stepsize, **options):
    def with_z(params, rows, z):
        return log_lik(params, rows) + 0.3 * (z * sum(leaf.sum() for leaf in jax.tree.leaves(params))).sum()

    return setup(with_z, dataset, params, stepsize, latent=latent, **options)


def normals(key, params, rows, *before):
    return jax.random.normal(key, rows[next(iter(rows))].shape[:1]) + sum(0.5 * z for z in before)


WHOLE = ["state", "chunks", "continuing", "stepping", "seeds", "checkpoint", "float64", "compiling", "keys"]


@pytest.mark.parametrize(
    ("latent", "checks"),
    [
        (Latent(normals, draws=2), ["continuing", "stepping", "checkpoint"]),
        pytest.param(Latent(normals, draws=2), WHOLE, marks=pytest.mark.slow),  # half a minute: contracts that need many programs
        (Latent(normals, kept=np.zeros(12)), ["state", "continuing", "checkpoint"]),
    ],
    ids=["drawn", "whole", "kept"],
)
def test_the_battery(latent, checks):
    assert check_sampler(partial(complete, sgmcmc.sgld_setup, latent), checks=checks, progress=False).ok


def test_only_the_rows_of_a_minibatch_move_and_each_chain_keeps_its_own():
    sampler = setup(Latent(lambda key, params, rows, z: z + 1, kept=np.zeros(4, int)))
    state = sampler.init(seed=1, n_chains=2)
    before = np.asarray(state.estimator["z"])
    after = np.asarray(sampler.step(state).estimator["z"])
    assert before.shape == (2, 4)
    assert before.sum(axis=1).tolist() == [2, 2]  # the first gradient is that of a minibatch too
    assert (after - before).sum(axis=1).tolist() == [2, 2]


def test_blocks_and_latent_variables_go_together():
    def weigh(key, params, batch):
        return params["k"] + 1

    def log_lik(params, rows, z):
        return -0.5 * ((rows["x"] - params["mu"] - z - params["k"]) ** 2).sum()

    def draw(key, params, rows):
        return 0 * rows["x"] - params["k"]  # takes away what the block owns: the chain sees none of it

    asked = {"minibatch_size": 2, "seed": 1, "n_iters": 20, "progress": False}
    out = sgmcmc.sgld(
        log_lik, ROWS, {"mu": 0.0, "k": 0}, 1e-3, latent=draw, gibbs={"k": sgmcmc.Gibbs(weigh, rows="minibatch")}, **asked
    )
    assert out["k"].tolist() == list(range(1, 21))
    assert np.abs(out["mu"]).max() < 1


# What is refused.


def test_what_cannot_be_done_right_is_refused_with_the_repair():
    asked = {"log_prior": log_prior, "minibatch_size": 2, "progress": False}
    refused = [
        ({"latent": 3}, r"latent is 3; expected a function or a sgmcmc.Latent"),
        ({"latent": lambda key: 0}, r"latent failed when called with key, params and a few rows: TypeError"),
        ({"latent": lambda key, params, rows: 0.0 * rows["x"].sum()}, r"expected an array with 3 rows first"),
        ({"latent": Latent(assign, kept=np.zeros(3))}, r"expected arrays with 4 rows first"),
        ({"latent": Latent(assign, kept=np.zeros(4))}, r"latent failed when called with .* and their z"),
        (
            {"latent": assign, "gradient": "control-variates"},
            r"ControlVariate, which needs gradients of all rows with z summed out",
        ),
        ({"latent": assign, "gradient": "svrg"}, r"expected gradient='minibatch' or 'saga'"),
        ({"latent": Latent(lambda k, p, r, z: z, kept=np.zeros(4, int)), "gradient": "saga"}, r"latent with kept came with SAGA"),
        ({"latent": assign, "dynamics": MetropolisHamiltonian()}, r"latent came with MetropolisHamiltonian, whose tests need"),
        ({"latent": assign, "precondition": "laplace"}, r"precondition='laplace' came with latent"),
    ]
    for options, message in refused:
        with pytest.raises(sgmcmc.InputError, match=message):
            sgmcmc.sampler_setup(log_lik, ROWS, MEANS, 1e-3, **asked | options)
    with pytest.raises(sgmcmc.InputError, match="stepsize='auto' came with latent"):
        sgmcmc.sgld(log_lik, ROWS, MEANS, "auto", latent=assign, **asked)
    with pytest.raises(sgmcmc.InputError, match="a row keeps one z"):
        Latent(assign, draws=2, kept=np.zeros(4))
    with pytest.raises(sgmcmc.InputError, match="draw of Latent is None"):
        Latent(None)


def test_what_needs_z_summed_out_is_refused_after_the_fit():
    sampler = setup(assign)
    state = sampler.init(seed=1)
    with pytest.raises(sgmcmc.InputError, match=r"full=True.*latent variables"):
        sampler.log_posterior(state, full=True)
    assert np.isfinite(sampler.log_posterior(state))
    out = sgmcmc.sgld(log_lik, ROWS, MEANS, 1e-3, latent=assign, minibatch_size=2, n_iters=50, seed=1, progress=False)
    assert out.settings["latent"] == "drawn for each minibatch"
    with pytest.raises(sgmcmc.InputError, match="rows and their latent variables together"):
        out.log_score(ROWS)
