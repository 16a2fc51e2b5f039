"""NumPyro models: the same log density, minibatches without bias, and refusals in words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro_models import CASES, N, away_from, classes, log_density_of_all, mixture

import sgmcmc

PARTS = np.random.default_rng(1).permutation(N).reshape(6, 4)
"""A partition of the rows into minibatches."""


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CASES)
def test_log_density_and_minibatches_are_exact(name):
    case = CASES[name]
    model = sgmcmc.from_numpyro(case.model, case.data, static=case.static, plate=case.plate)
    params = away_from(model)
    batches = {column: jnp.asarray(values)[PARTS] for column, values in case.data.items()}

    def of_batch(params, rows):
        return model.log_prior(params) + N / 4 * model.log_lik(params, rows).sum()

    def mine(params):
        of_batches = jax.vmap(of_batch, (None, 0))(params, batches)
        return of_batches.mean(), (of_batches, model.log_prior(params) + model.log_lik(params, case.data).sum())

    both = jax.value_and_grad(mine, has_aux=True), jax.value_and_grad(lambda params: log_density_of_all(case, params))
    ((mean, (of_batches, whole)), slope), (value, gradient) = jax.jit(lambda params: [each(params) for each in both])(params)
    assert abs(whole / value - 1) < 1e-12
    assert abs(mean / value - 1) < 1e-12
    assert abs(of_batches - value).max() > 1e-3  # they differ, as minibatches do
    for one, other in zip(jax.tree.leaves(slope), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_what_follows_from_parameters_has_draws_under_the_users_names():
    case = CASES["LocScaleReparam"]
    regions = {"group": ["North", "South", "East", "West"]}
    model = sgmcmc.from_numpyro(case.model, case.data, static=case.static, coords=regions)
    assert sorted(model.params) == ["b", "mu", "s", "tau", "u_decentered"]
    fit = sgmcmc.sgld(model, 1e-4, minibatch_size=6, n_iters=30, n_chains=2, seed=1, progress=False)
    follows = fit.deterministic()
    assert sorted(follows) == ["spread", "u"]  # "line" is one of rows
    u = fit["mu"][..., None] + fit["tau"][..., None] ** 0.7 * (fit["u_decentered"] - 0.3 * fit["mu"][..., None])
    np.testing.assert_allclose(follows["u"], u, rtol=1e-4)
    np.testing.assert_allclose(follows["spread"], u.max(-1) - u.min(-1), rtol=1e-4)
    assert "u[North]" in follows.summary().index
    assert "u_decentered[South]" in fit.summary().index
    with pytest.raises(sgmcmc.InputError, match=r"give sgmcmc.Model\(...\) a function deterministic"):
        replace(fit, model=None).deterministic()


def test_draws_of_rows_and_of_the_prior_are_those_of_the_model():
    case = CASES["Bayesian network"]
    model = sgmcmc.from_numpyro(case.model, case.data)
    assert model.observed == ("a", "b", "c")
    params = {"s": jnp.array([0.1, 0.2, 0.3]), "w": jnp.array([10.0, -1.0])}
    drawn = model.simulate(jax.random.key(0), params, {"a": np.zeros(20_000)})  # any number of rows; what is drawn may be missing
    spread = {name: float(values.std()) for name, values in drawn.items()}
    b = np.sqrt(1 + 0.2**2)
    assert spread == pytest.approx({"a": 0.1, "b": b, "c": np.sqrt(b**2 + 0.3**2)}, rel=0.03)  # 5 standard errors
    means = model.mean(params, case.data)
    np.testing.assert_allclose(means["c"], -case.data["b"], rtol=1e-5)  # given what was observed of b
    prior = jax.vmap(model.draw_prior)(jax.random.split(jax.random.key(1), 4000))
    assert prior["w"].shape == (4000, 2)
    assert float(prior["w"].std()) == pytest.approx(2, rel=0.04)
    with pytest.raises(sgmcmc.InputError, match="mean came with rows without 'a'; expected the columns a, b"):
        model.mean(params, {"b": case.data["b"]})


def test_new_rows_need_no_observations_and_old_ones_keep_their_type():
    case = CASES["constant size"]
    model = sgmcmc.from_numpyro(case.model, case.data)
    new = {"X": np.zeros((100_000, 2), np.float32)}
    params = {"a": jnp.asarray(1.0), "b": jnp.zeros(2)}
    drawn = model.simulate(jax.random.key(0), params, new)["y"]
    assert drawn.dtype == np.int32
    assert float(drawn.mean()) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.01)
    assert model.mean(params, new).shape == (100_000,)
    ordinal = CASES["ordinal"]
    assert sgmcmc.from_numpyro(ordinal.model, ordinal.data, static=ordinal.static).mean is None  # levels have none


@pytest.mark.usefixtures("x64")
def test_classes_of_rows_are_summed_over_exactly():
    data = CASES["MixtureSameFamily"].data
    summed, by_hand = (sgmcmc.from_numpyro(model, data) for model in (classes, mixture))
    assert sorted(summed.params) == ["centres", "s", "weights"]
    params = away_from(by_hand)

    def of(model, params):
        each = model.log_lik(params, data)
        return each.sum() + model.log_prior(params), each

    def both(params):
        return [jax.value_and_grad(partial(of, model), has_aux=True)(params) for model in (summed, by_hand)]

    ((one, each), slope), ((other, each_other), slope_other) = jax.jit(both)(params)
    assert abs(one / other - 1) < 1e-12
    np.testing.assert_allclose(each, each_other, rtol=1e-12)
    for mine, theirs in zip(jax.tree.leaves(slope), jax.tree.leaves(slope_other), strict=True):
        np.testing.assert_allclose(mine - mine[0], theirs - theirs[0], rtol=1e-10)  # along the simplex, where weights are
    np.testing.assert_allclose(summed.mean(params, data), by_hand.mean(params, data), rtol=1e-12)
    assert not np.allclose(summed.mean(params, data), params["centres"][0])  # the control: one class alone


def test_a_folder_of_rows_serves_as_well_as_arrays(tmp_path):
    case = CASES["plate"]
    folder = sgmcmc.data.convert(case.data, tmp_path / "rows", shuffle=False, progress=False)
    call = {"minibatch_size": 6, "n_iters": 20, "seed": 1, "progress": False, "rows": "random"}
    on_disk, in_memory = (sgmcmc.sgld(sgmcmc.from_numpyro(case.model, data), 1e-3, **call) for data in (folder, case.data))
    assert np.array_equal(on_disk["b"], in_memory["b"])
    assert on_disk.model.observed == ("y",)
