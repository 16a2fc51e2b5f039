"""To ArviZ: groups thinned alike, the numbers of the library itself in them, names that trees can hold."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

import sgmcmc
from sgmcmc.results.result import Result

RNG = np.random.default_rng(2)
X = RNG.normal(size=(300, 2)).astype(np.float32)
Y = (X.sum(axis=1) + RNG.normal(size=300)).astype(np.float32)


def log_lik(params, rows):
    return jax.scipy.stats.norm.logpdf(rows["y"], rows["X"] @ params["net/b"]).sum()


def simulate(key, params, rows):
    return {"y": rows["X"] @ params["net/b"] + jax.random.normal(key, rows["X"].shape[:1])}


MODEL = sgmcmc.Model(
    log_lik, {"X": X, "y": Y}, {"net/b": np.zeros(2)}, observed=("y",), simulate=simulate,
    draw_prior=lambda key: {"net/b": jax.random.normal(key, (2,))},
    coords={"term/s": ["left", "right"]}, dims={"net/b": ["term/s"]},
)  # fmt: skip
UNSAID = sgmcmc.Model(log_lik, {"y": Y}, {})
EVERY = ["posterior", "sample_stats", "log_likelihood", "posterior_predictive", "prior", "prior_predictive", "observed_data"]


@pytest.fixture(scope="module")
def fit():
    names = sgmcmc.core.names.Names.of(MODEL.coords, MODEL.dims, MODEL.params)
    draws = {"net/b": (1 + 0.06 * RNG.normal(size=(2, 400, 2))).astype(np.float32)}
    return Result(draws, {}, None, {"sampler": "by hand"}, np.linspace(2, 1, 400), True, None, names=names, model=MODEL)


@pytest.fixture(scope="module")
def tree(fit):
    return fit.to_arviz(EVERY, draws=200, rows=50, seed=4, progress=False)


def test_all_groups_are_there_and_thinned_alike(fit, tree):
    assert list(tree.children) == EVERY
    sizes = {name: dict(group.sizes) for name, group in tree.children.items()}
    assert sizes["posterior"] == {"chain": 2, "draw": 100, "term.s": 2}
    assert sizes["log_likelihood"] == sizes["posterior_predictive"] == {"chain": 2, "draw": 100, "row": 50}
    assert sizes["sample_stats"] == {"chain": 2, "draw": 100}
    assert sizes["observed_data"] == {"row": 50}
    assert sizes["prior"] == {"chain": 1, "draw": 200, "term.s": 2}
    assert sizes["prior_predictive"] == {"chain": 1, "draw": 200, "row": 50}
    kept = fit["net/b"][:, 2::4]
    assert np.array_equal(tree.posterior["net.b"], kept)
    assert list(tree.posterior["term.s"].values) == ["left", "right"]
    rows = tree.observed_data["row"].values
    assert np.array_equal(tree.observed_data["y"], Y[rows])
    eta = np.einsum("rk,cdk->cdr", X[rows], kept)
    assert np.allclose(tree.log_likelihood["y"], -0.5 * (Y[rows] - eta) ** 2 - 0.5 * np.log(2 * np.pi), atol=1e-4)
    noise = tree.posterior_predictive["y"].values - eta
    assert abs(noise.mean()) < 4 / np.sqrt(noise.size)
    assert np.array_equal(tree.sample_stats["weight"][1], np.linspace(2, 1, 400)[2::4])


def test_what_arviz_leaves_out_is_what_the_library_does(fit):
    from arviz_stats.base.array import array_stats

    tree = fit.to_arviz(["posterior", "log_likelihood"], rows=300, progress=False)
    assert tree.posterior.sizes["draw"] == 400
    log_density = tree.log_likelihood["y"].values.reshape(800, 300).T.astype(float)
    weights, k = array_stats.psislw(log_density)
    ours = sgmcmc.loo(fit, 300, draws=800, progress=False)
    assert np.allclose(ours.pointwise, np.log(np.exp(weights + log_density).sum(axis=1)), atol=0.02)  # other weights of draws
    assert np.allclose(ours.pareto_k, k, atol=0.3)


def test_the_call_names_axes_too(fit):
    tree = fit.to_arviz(coords={"side": ["L", "R"]}, dims={"net/b": "side"})
    assert tree.posterior["net.b"].dims == ("chain", "draw", "side")
    assert tree.posterior.sizes["draw"] == 400
    assert tree.posterior.attrs["sampler"] == "by hand"


def test_files_hold_it_or_the_package_is_named(tree, tmp_path):
    import xarray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr, about its own format
        tree.to_zarr(tmp_path / "fit.zarr")
        again = xarray.open_datatree(tmp_path / "fit.zarr", engine="zarr")
        assert np.array_equal(again["posterior"]["net.b"], tree.posterior["net.b"])
    try:
        tree.to_netcdf(tmp_path / "fit.nc")
    except ValueError as error:
        assert "h5netcdf" in str(error)  # noqa: PT017 (it may be installed)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda fit: fit.to_arviz("likelihood"), "groups is 'likelihood'; expected some of 'posterior', 'sample_stats', 'log_l"),
        (lambda fit: fit.to_arviz(draws=0), "draws is 0"),
        (lambda fit: Result(fit.draws, {}, None, {}).to_arviz("prior"), "to_arviz with groups of rows needs the model"),
        (lambda fit: Result({"a/b": X, "a.b": X}, {}, None, {}).to_arviz(), "'a/b' would be 'a.b' for ArviZ, which is another"),
        (
            lambda fit: Result(fit.draws, {}, None, {}, model=sgmcmc.Model(log_lik, {"y": Y}, {})).to_arviz("observed_data"),
            "observed=",
        ),
    ],
)
def test_what_cannot_be_exported_is_said(fit, call, said):
    with pytest.raises(sgmcmc.InputError, match=said):
        call(fit)
