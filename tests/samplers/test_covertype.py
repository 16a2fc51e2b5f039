"""The paper's section 5.1, as written there but for the names, on the real data (where the data folder has them)."""

from __future__ import annotations

import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.data.datasets import FOLDER_SETTING, local
from sgmcmc.data.datasets.catalogue import COVERTYPE_UCI

needs_covertype = pytest.mark.skipif(
    not (Path(os.environ.get(FOLDER_SETTING) or "nowhere") / COVERTYPE_UCI.name).is_file(),
    reason=f"the data folder ({FOLDER_SETTING}) has no {COVERTYPE_UCI.name}; it is too large to ship",
)


@pytest.fixture(scope="module")
def covertype(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # the user's cache folder is not ours to fill
        patch.setattr(local, "user_cache_dir", lambda app: str(tmp_path_factory.mktemp(app)))
        return sgmcmc.get_dataset("covertype", download=False)


def log_lik(params, dataset):
    y_est = 1 / (1 + jnp.exp(-jnp.squeeze(params["bias"] + dataset["X"] @ params["beta"])))
    return jnp.sum(dataset["y"] * jnp.log(y_est) + (1 - dataset["y"]) * jnp.log(1 - y_est))


def log_prior(params):
    return -(jnp.sum(jnp.abs(params["beta"])) + jnp.sum(jnp.abs(params["bias"])))


def log_loss(draw, testset):
    return -float(log_lik(draw, testset)) / len(testset["y"])


@needs_covertype
def test_section_5_1_sgld(covertype):
    dataset = {"X": covertype[:, 1:], "y": covertype[:, 0]}
    d = dataset["X"].shape[1]
    params = {"bias": 0.0, "beta": np.zeros((d, 1))}
    stepsize = {"beta": 2e-5, "bias": 2e-5}
    output = sgmcmc.sgld(
        log_lik, dataset, params, stepsize, log_prior=log_prior, minibatch_size=500, n_iters=10_000, seed=13, progress=False
    )
    assert output["beta"].shape == (10_000, 54, 1)
    assert output["bias"].shape == (10_000,)


@needs_covertype
@pytest.mark.parametrize("opt_stepsize", [5e-6, None])
def test_section_5_1_sgldcv(covertype, opt_stepsize):
    order = np.random.default_rng(13).permutation(len(covertype))
    train, test = covertype[order[10_000:]], covertype[order[:10_000]]
    dataset, testset = ({"X": part[:, 1:], "y": part[:, 0]} for part in (train, test))
    params = {"bias": 0.0, "beta": np.zeros((54, 1))}
    output = sgmcmc.sgldcv(
        log_lik,
        dataset,
        params,
        5e-6,
        opt_stepsize,
        log_prior=log_prior,
        minibatch_size=500,
        n_iters=11_000,
        seed=13,
        progress=False,
    )
    beta, bias = output["beta"][1000:], output["bias"][1000:]
    losses = [log_loss({"beta": beta[j], "bias": bias[j]}, testset) for j in range(0, 10_000, 1000)]
    assert beta.shape == (10_000, 54, 1)
    # A constant guess loses log 2 = 0.693; the optimum of this model is near 0.51.
    assert max(losses) < 0.56
    if opt_stepsize is None:
        assert output.settings["centre_converged"]
