"""A model as one object, and names of numbers: the same draws as from its parts, named wherever numbers are."""

from __future__ import annotations

import numpy as np
import pytest

import sgmcmc
from sgmcmc.core.names import Names

REGIONS = ["North", "South", "East"]
X = np.repeat(np.arange(3.0), 200)
DATA = {"x": X + np.random.default_rng(0).normal(size=600), "region": np.repeat(np.arange(3), 200)}
START = {"u": np.zeros(3), "s": 1.0}


def log_lik(params, rows):
    return sgmcmc.distributions.Normal(params["u"][rows["region"]], params["s"]).log_prob(rows["x"])


def log_prior(params):
    return -0.5 * (params["u"] ** 2).sum() - params["s"]


SUPPORT = {"s": sgmcmc.constraints.positive}
NAMED = {"coords": {"region": REGIONS}, "dims": {"u": ["region"]}}
MODEL = sgmcmc.Model(log_lik, DATA, START, log_prior, SUPPORT, **NAMED)
CALL = {"minibatch_size": 60, "n_iters": 40, "seed": 1, "progress": False}
NUMBERS = ["u[North]", "u[South]", "u[East]"]


@pytest.fixture(scope="module")
def fit():
    return sgmcmc.sample(MODEL, seed=1, draws=500, chains=4, engine="nuts", progress=False)


def test_a_model_stands_for_its_parts():
    whole = sgmcmc.sgld(MODEL, 1e-4, **CALL)
    parts = sgmcmc.sgld(log_lik, DATA, START, 1e-4, log_prior=log_prior, constraints=SUPPORT, **CALL)
    assert np.array_equal(whole["u"], parts["u"])
    assert whole.model is MODEL
    assert parts.model.log_prior is log_prior
    sampler = sgmcmc.sgld_setup(MODEL, 1e-4, minibatch_size=60)
    assert sampler.run(sampler.init(seed=1), 10, progress=False).model is MODEL
    composed = sgmcmc.sampler_setup(MODEL, 1e-4, minibatch_size=60)
    assert composed.posterior.names.dims == {"u": ("region",)}


def test_what_a_model_and_a_call_both_say_is_refused():
    with pytest.raises(sgmcmc.InputError, match=r"sgld got a Model, which has log_prior, and log_prior= as well"):
        sgmcmc.sgld(MODEL, 1e-4, log_prior=log_prior, **CALL)
    with pytest.raises(sgmcmc.InputError, match="sample got a Model, which has a dataset and params"):
        sgmcmc.sample(MODEL, DATA, START)
    renamed = sgmcmc.sgld(MODEL, 1e-4, coords={"region": ["a", "b", "c"]}, **CALL)
    assert list(renamed.summary().index[-3:]) == ["u[a]", "u[b]", "u[c]"]


def test_names_are_everywhere(fit):
    assert [name for name in fit.summary().index if name.startswith("u")] == NUMBERS
    assert set(NUMBERS) < set(fit.pairs.names)
    tree = fit.to_arviz().posterior
    assert tree["u"].dims == ("chain", "draw", "region")
    assert list(tree["region"].values) == REGIONS
    assert "u[South]" in [text.get_text() for axes in fit.plot().axes for text in axes.get_yticklabels()]


def test_findings_speak_the_names():
    far = sgmcmc.sgld(MODEL, {"u": 1e-2, "s": 1e-3}, n_chains=2, diagnose=True, **CALL | {"n_iters": 300})
    assert any(name in finding.seen for finding in far.health().findings for name in NUMBERS)


def test_names_stay_with_a_run_on_disk(tmp_path):
    sgmcmc.sgld(MODEL, 1e-4, checkpoint=tmp_path / "run", **CALL)
    loaded = sgmcmc.load(tmp_path / "run")
    assert list(loaded.summary().index[-3:]) == NUMBERS
    assert loaded.model is None
    assert sgmcmc.load(tmp_path / "run", model=MODEL).model is MODEL


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"dims": {"v": ["region"]}}, "dims names an unknown parameter 'v'; params has s, u"),
        ({"dims": {"u": ["region", "year"]}}, r"dims\['u'\] names 2 axes.*shape \(3,\)"),
        ({"coords": {"region": ["a", "b"]}, "dims": {"u": "region"}}, r"coords\['region'\] has 2 labels.*3 numbers"),
        ({"coords": {"region": ["a", "a", "b"]}}, "has the label 'a' more than once"),
        ({"coords": {"region": "North"}}, "expected the labels along it"),
        ({"coords": ["North"]}, "coords is.*expected a dict"),
        ({"dims": {"u": [1]}}, "expected the names of its axes"),
    ],
)
def test_names_that_do_not_fit_are_refused(names, said):
    with pytest.raises(sgmcmc.InputError, match=said):
        Names.of(names.get("coords"), names.get("dims"), START)


def test_axes_without_labels_are_numbered_and_other_shapes_too():
    names = Names({"region": tuple(REGIONS)}, {"u": ("region", "term")})
    assert names.labels("u", (3, 2))[:3] == ["u[North,0]", "u[North,1]", "u[South,0]"]
    assert names.labels("u", (2,)) == ["u[0]", "u[1]"]
    assert names.labels("s", ()) == ["s"]
    assert Names.unpacked(names.packed()) == names
