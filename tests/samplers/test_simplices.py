"""Probabilities and positive numbers as parameters of SCIR and SGRLD: what is moved, what is shown, what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints
from sgmcmc.algorithms import SCIR, SVRG
from sgmcmc.problem.simplices import Numbers, Shares

ROWS = {"z": np.arange(40) % 3, "y": np.arange(40.0) % 4}
START = {"rate": 2.0, "theta": np.full((2, 3), 1 / 3)}
WITHIN = {"rate": constraints.positive, "theta": constraints.simplex}


def log_lik(params, batch):
    mixed = 0.3 * params["theta"][0] + 0.7 * params["theta"][1]
    return jnp.log(mixed)[batch["z"]].sum() + (batch["y"] * jnp.log(params["rate"]) - params["rate"]).sum()


def log_prior(params):
    return -0.5 * jnp.log(params["theta"]).sum()


def setup(likelihood=log_lik, params=START, within=WITHIN, dynamics="scir", **options):
    usual = {"log_prior": log_prior, "minibatch_size": 10, "progress": False}
    return sgmcmc.sampler_setup(likelihood, ROWS, params, 0.1, dynamics=dynamics, constraints=within, **{**usual, **options})


@pytest.mark.usefixtures("x64")
def test_derivatives_in_what_moves_are_counts():
    """Those of the user's functions times the numbers: of a likelihood of counts, the counts; whatever ω sum to."""
    rng = np.random.default_rng(1)
    counts, x = jnp.asarray(rng.integers(0, 5, (4, 6))), jnp.asarray(rng.normal(size=(4, 6)))

    def value(x):
        return (counts * jnp.log(Shares()(x))).sum() + Shares().log_abs_det_jacobian(x, None).sum()

    shapes = jax.grad(value)(x) + jnp.exp(x)
    np.testing.assert_allclose(shapes, counts + 1, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(value)(x + 3) + jnp.exp(x + 3), counts + 1, rtol=1e-12)
    np.testing.assert_allclose(Shares()(x).sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(Shares()(Shares().inv(Shares()(x))), Shares()(x), rtol=1e-12)


@pytest.mark.parametrize("bijection", [Shares(), Numbers()], ids=["shares", "numbers"])
def test_numbers_too_small_to_be_shown_have_derivatives_all_the_same(bijection):
    x = jnp.array([0.0, -1e5])
    assert 0 < float(bijection(x)[1]) < 1e-29
    np.testing.assert_allclose(jax.grad(lambda x: (jnp.array([2.0, 3.0]) * jnp.log(bijection(x))).sum())(x), [2, 3], rtol=1e-5)


def test_several_simplices_and_a_rate_at_once():
    sampler = setup(dynamics=SCIR(rate={"rate": 40.0, "theta": 1.0}), minibatch_size=40)
    result = sampler.run(sampler.init(seed=1, n_chains=200), 200, burn_in=100, thin=10, progress=False)
    np.testing.assert_allclose(result["theta"].sum(axis=-1), 1.0, rtol=1e-5)
    rate = np.asarray(result["rate"], np.float64).mean(axis=1)  # flat prior: Gamma(Σy + 1, 40)
    assert abs(rate.mean() - 61 / 40) < 4 * rate.std(ddof=1) / np.sqrt(200)
    mixed = np.asarray(0.3 * result["theta"][..., 0, :] + 0.7 * result["theta"][..., 1, :]).mean(axis=(0, 1))
    assert np.abs(mixed - 1 / 3).max() < 0.05


def test_a_rate_too_small_has_no_law_and_says_so():
    sampler = setup(dynamics=SCIR(rate={"rate": 1.0, "theta": 1.0}))
    with pytest.raises(sgmcmc.DivergenceError, match="expected a larger rate"):
        sampler.run(sampler.init(seed=1), 200, progress=False)


def squares(params, batch):
    return -((batch["y"] - params["theta"][0, 0]) ** 2).sum()


def entropy(params):
    return (params["theta"] * jnp.log(params["theta"])).sum()


REFUSED = {
    "free": ({"within": {"theta": constraints.simplex}}, r"SCIR moves probabilities .* params\['rate'\]"),
    "interval": ({"within": {**WITHIN, "rate": constraints.interval(0, 9)}}, r"params\['rate'\] is constrained to neither"),
    "no counts": ({"likelihood": squares}, r"log_lik is not that of counts in params\['theta'\]"),
    "no counts in the prior": ({"log_prior": entropy}, r"log_prior is not that of counts in params\['theta'\]"),
    "preconditioned": ({"precondition": "diagonal"}, "precondition came with SCIR"),
    "mode": ({"gradient": "control-variates"}, "start='mode' came with SCIR"),
    "auto": ({"minibatch_size": "auto"}, "minibatch_size is 'auto'"),
    "rate": ({"dynamics": SCIR(rate=-1.0)}, "rate for parameter 'rate' is -1"),
    "rates": ({"dynamics": SCIR(rate={"theta": 1.0})}, "rate is missing for parameter 'rate'"),
    "importance": ({"rows": "importance"}, "rows='importance' came with"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_such_law_is_refused(name):
    given, message = REFUSED[name]
    with pytest.raises(sgmcmc.InputError, match=message):
        setup(**given)


def test_sgrld_is_refused_by_its_name_and_others_take_simplices_as_before():
    with pytest.raises(sgmcmc.InputError, match="SGRLD moves probabilities"):
        setup(dynamics="sgrld", within={"theta": constraints.simplex})
    assert setup(squares, dynamics="langevin").init(seed=1).position["theta"].shape == (2, 2)


def test_control_variates_from_where_chains_start():
    """Of counts alone differences to a centre are nothing: every minibatch has the full gradient."""

    def counts(params, batch):
        return jnp.log(params["theta"])[batch["z"]].sum()

    within, params = {"theta": constraints.simplex}, {"theta": np.full(3, 1 / 3)}
    for gradient in ("control-variates", SVRG(epoch=5)):
        sampler = setup(counts, params, within, gradient=gradient, start="params")
        state = sampler.step(sampler.init(seed=1, progress=False))
        shapes = state.gradient["theta"] + np.exp(state.position["theta"])
        np.testing.assert_allclose(shapes, 0.5 + np.bincount(ROWS["z"]), rtol=1e-4)
