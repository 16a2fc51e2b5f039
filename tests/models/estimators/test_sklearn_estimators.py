"""The estimators of scikit-learn: the posteriors they draw from, what they leave behind, and where they go."""

from __future__ import annotations

import importlib.util
import pickle
import sys
import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
from compilations import compilations
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sgmcmc
from sgmcmc.core.errors import warn
from sgmcmc.models.estimators import fitting
from sgmcmc.models.estimators.classifier import _target
from sgmcmc.models.estimators.fitting import Target, Task
from sgmcmc.models.estimators.rows import filled, unique
from sgmcmc.models.regression.families import FAMILIES, find_family
from sgmcmc.models.regression.families.base import Outcome
from sgmcmc.models.regression.glm import build_design, core_of
from sgmcmc.models.regression.storing import in_memory
from sgmcmc.sklearn import BayesianClassifier, BayesianCountRegressor, BayesianRegressor, ConvergenceWarning

SHORT = pytest.mark.filterwarnings("ignore::sgmcmc.sklearn.ConvergenceWarning")
"""Of a test whose chains are too short to be trusted, and need not be."""

N = 60
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(50, 10, N), RNG.normal(0, 0.01, N), RNG.integers(0, 2, N)])
ETA = (X[:, 0] - 50) / 10 - 0.3
YES = np.where(RNG.random(N) < scipy.special.expit(ETA), "yes", "no")
THREE = RNG.choice(["a", "b", "c"], N)
REAL = 1000 + 20 * ETA + RNG.normal(0, 5, N)
COUNTS = RNG.poisson(np.exp(0.3 * ETA))


def target(family: str, y: Any) -> Target:
    """As the estimators make it, all weights 1."""
    if family in ("bernoulli", "categorical"):
        classes, codes = np.unique(y, return_inverse=True)
        return _target(codes, np.bincount(codes) / len(codes), classes)
    y = np.asarray(y, float)
    if family in ("gaussian", "student"):
        return Target(FAMILIES[family], y, Outcome(0.0, 1.0), (), y.mean(), y.std())
    return Target(FAMILIES[family], y, Outcome(y.mean(), 1.0))


def log_posterior(model: sgmcmc.Model, params: Any) -> float:
    rows = {name: jax.numpy.asarray(column) for name, column in model.dataset.items()}  # pyright: ignore
    return float(model.log_lik(params, rows).sum() + model.log_prior(params))  # pyright: ignore


def positions(start: Any, count: int = 3) -> list[Any]:
    """Places about a start, in the support of all families' parameters."""
    rng = np.random.default_rng(1)
    return [jax.tree.map(lambda leaf: leaf + rng.uniform(0.1, 0.5, np.shape(leaf)), start) for _ in range(count)]


def differences(model: sgmcmc.Model, places: list[Any]) -> np.ndarray:
    return np.diff([log_posterior(model, place) for place in places])


# The posterior is the right one.

OF_GLM = [
    ("bernoulli", YES), ("categorical", THREE), ("gaussian", REAL), ("student", REAL), ("poisson", COUNTS),
    ("negative binomial", COUNTS),
]  # fmt: skip


@pytest.mark.parametrize(("family", "y"), OF_GLM, ids=[family for family, _ in OF_GLM])
@pytest.mark.parametrize(
    "told", [None, {"x1": sgmcmc.distributions.Normal(3, 0.1), "Intercept": sgmcmc.distributions.Cauchy(1, 2)}]
)
def test_the_posterior_is_that_of_glm(family, y, told, x64):
    task = Task.of(target(family, y), X, ["x0", "x1", "x2"], np.ones(N), True, told)
    chosen, link = find_family(family)
    frame = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2], "y": y})
    design, source = build_design("y ~ x0 + x1 + x2", frame, chosen, link)
    core = core_of(design, chosen, link)
    theirs = core.model(in_memory(design, source), core.priors(told))
    places = positions(task.model().params)
    moved = [place | {"Intercept": place["Intercept"] + task.middle} for place in places]
    np.testing.assert_allclose(differences(task.model(), places), differences(theirs, moved), rtol=1e-9)
    assert not np.allclose(differences(task.model(), places), differences(theirs, places)) or not np.any(
        task.middle
    )  # the control


@pytest.mark.parametrize(("family", "y"), OF_GLM, ids=[family for family, _ in OF_GLM])
def test_a_weight_is_so_many_rows(family, y, x64):
    """What `check_sample_weight_equivalence` asks for, without the draws."""
    weight = np.random.default_rng(2).integers(1, 5, N).astype(float)
    again = np.repeat(np.arange(N), weight.astype(int))
    repeated = target(family, np.asarray(y)[again])
    one = Task.of(repeated, X[again], list("abc"), np.ones(len(again)), True, None)
    weighted = Target(repeated.family, target(family, y).y, repeated.outcome, repeated.classes, repeated.shift, repeated.scale)
    two = Task.of(weighted, X, list("abc"), weight, True, None)
    assert len(one.rows["x"]) != len(two.rows["x"])
    places = positions(one.model().params)
    np.testing.assert_allclose(differences(two.model(), places), differences(one.model(), places), rtol=1e-9)


def test_rates_weighted_by_exposure_have_the_likelihood_of_the_counts(x64):
    exposure = np.random.default_rng(3).uniform(0.1, 3.0, N)
    rates = COUNTS / exposure
    outcome = Outcome(float(np.average(rates, weights=exposure)), 1.0)
    task = Task.of(Target(FAMILIES["poisson"], rates, outcome), X, list("abc"), exposure, True, None)
    model, rows = task.model(), jax.tree.map(jax.numpy.asarray, task.model().dataset)

    def log_lik(params: Any) -> float:
        eta = task.middle + params["Intercept"] + task.rows["x"][:N] @ params["coefficients"]
        return scipy.stats.poisson(np.exp(eta) * exposure).logpmf(COUNTS).sum()

    places = positions(model.params)
    ours = [float(model.log_lik(place, rows).sum()) for place in places]  # pyright: ignore
    np.testing.assert_allclose(np.diff(ours), np.diff(list(map(log_lik, places))), rtol=1e-9)


@pytest.fixture(scope="module")
def classifier() -> BayesianClassifier:
    return BayesianClassifier(random_state=1, draws=500).fit(X, YES)


@pytest.fixture(scope="module")
def regressor() -> BayesianRegressor:
    return BayesianRegressor(random_state=1, draws=500).fit(X, REAL)


@pytest.fixture(scope="module")
def counter() -> BayesianCountRegressor:
    return BayesianCountRegressor(random_state=1, draws=500).fit(X, COUNTS)


def test_logistic_regression_beside_quadrature():
    """One feature, on its own scale: means of coefficients and probabilities over a grid of intercepts and slopes."""
    x, yes = X[:, 0], YES == "yes"
    model = BayesianClassifier(random_state=1).fit(x[:, None], yes)
    centre, sd = x.mean(), x.std()
    b, a = np.meshgrid(np.linspace(-2, 4, 400), np.linspace(-3, 3, 400))
    eta = a[..., None] + b[..., None] * (x - centre) / sd
    middle = scipy.special.logit(yes.mean())
    prior = scipy.stats.norm(0, 2.5).logpdf(b) + scipy.stats.norm(middle, 2.5).logpdf(a)
    log_density = scipy.special.log_expit(np.where(yes, eta, -eta)).sum(-1) + prior
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    summary = model.result_.summary()
    for name, values in {"x0": b / sd, "Intercept": a - b * centre / sd}.items():
        mean = (weight * values).sum()
        assert abs(summary.loc[name, "mean"] - mean) / summary.loc[name, "mcse"] < 4
        assert abs(summary.loc[name, "mean"] - 1.1 * mean) / summary.loc[name, "mcse"] > 4  # the control
    assert model.coef_[0, 0] == pytest.approx(summary.loc["x0", "mean"], rel=1e-3)
    probability = scipy.special.expit(a + b * (60 - centre) / sd)
    exact = (weight * probability).sum()
    error = np.sqrt((weight * (probability - exact) ** 2).sum() / 300)  # of 500 draws a little alike
    found = model.predict_proba([[60.0]])[0, 1]
    assert abs(found - exact) / error < 4
    lower, upper = model.predict_interval([[60.0]])[0, 1]
    within = weight[(probability > lower) & (probability < upper)].sum()
    assert abs(within - 0.9) / np.sqrt(0.9 * 0.1 / 300) < 4


@pytest.fixture(scope="module")
def overdispersed() -> BayesianCountRegressor:
    return BayesianCountRegressor(random_state=1, draws=500, family="negative binomial").fit(X, COUNTS)


@pytest.mark.parametrize("name", ["regressor", "counter", pytest.param("overdispersed", marks=pytest.mark.slow)])
def test_standard_deviations_are_those_of_simulated_outcomes(name, request):
    model = request.getfixturevalue(name)
    inner = model.result_.inner
    mean, sd = model.predict(X[:5], return_std=True)
    simulated = inner.predict(
        {column: values[:5] for column, values in inner.model.dataset.items()}, "draws", draws=2000, progress=False
    )
    centred = simulated - simulated.mean(axis=0)
    error = np.sqrt((centred**4).mean(axis=0) - simulated.var(axis=0) ** 2) / np.sqrt(len(simulated)) / (2 * sd)
    assert (np.abs(simulated.std(axis=0) - sd) / error < 4).all()
    assert (np.abs(simulated.std(axis=0) - 1.3 * sd) / error > 4).all()  # the control
    assert (np.abs(simulated.mean(axis=0) - mean) / (sd / np.sqrt(len(simulated))) < 4).all()
    lower, upper = model.predict_interval(X[:5]).T
    assert (lower <= mean).all()
    assert (mean <= upper).all()


# What a fit leaves behind.


def test_what_a_fit_leaves_behind(classifier, regressor, counter):
    assert (classifier.coef_.shape, classifier.intercept_.shape, classifier.classes_.tolist()) == ((1, 3), (1,), ["no", "yes"])
    assert (regressor.coef_.shape, type(regressor.intercept_), regressor.n_features_in_) == ((3,), float, 3)
    assert list(classifier.result_.summary().index) == ["Intercept", "x0", "x1", "x2"]
    assert list(counter.result_.summary().index) == ["Intercept", "x0", "x1", "x2"]
    assert all(model.result_.health().ok for model in (classifier, regressor, counter))
    assert "rows of weight 0 fill up the 60" in str(classifier.result_.decisions)
    np.testing.assert_allclose(regressor.coef_, [regressor.result_[f"x{i}"].mean() for i in range(3)], rtol=1e-5)
    assert regressor.score(X, REAL) > 0.9
    assert classifier.score(X, YES) == (classifier.predict(X) == YES).mean() > 0.6
    unexplained = [mean_poisson_deviance(COUNTS, found) for found in (counter.predict(X), np.full(N, COUNTS.mean()))]
    assert counter.score(X, COUNTS) == pytest.approx(1 - unexplained[0] / unexplained[1])
    assert sgmcmc.loo(regressor.result_).elpd < 0


def test_three_classes_and_probabilities():
    model = BayesianClassifier(random_state=1, draws=200).fit(X, THREE)
    found = model.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(np.log(found), model.predict_log_proba(X))
    assert model.coef_.shape == (3, 3)
    assert not model.coef_[0].any()
    assert set(model.predict(X)) <= {"a", "b", "c"}
    assert model.predict_interval(X[:2]).shape == (2, 3, 2)
    assert list(model.result_.summary().index)[:2] == ["Intercept[b]", "Intercept[c]"]


def test_pickled_and_cloned(classifier, regressor):
    for model in (classifier, regressor):
        back = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(back.predict(X), model.predict(X))
        np.testing.assert_array_equal(back.predict_interval(X[:5]), model.predict_interval(X[:5]))
        assert back.result_.health().ok
        assert not hasattr(clone(model), "result_")
        assert clone(model).get_params() == model.get_params()


@SHORT
def test_seeds():
    def fit(seed: Any) -> np.ndarray:
        return BayesianRegressor(draws=50, random_state=seed).fit(X, REAL).coef_

    first = fit(3)
    np.testing.assert_array_equal(fit(3), first)
    np.testing.assert_array_equal(fit(np.random.RandomState(5)), fit(np.random.RandomState(5)))
    assert (fit(4) != first).any()
    assert (fit(None) != fit(None)).any()


def test_sparse_features_are_the_same_as_dense_ones(classifier):
    sparse = scipy.sparse.csr_array(X)
    model = clone(classifier).fit(sparse, YES)
    np.testing.assert_array_equal(model.coef_, classifier.coef_)
    np.testing.assert_allclose(model.predict_proba(sparse), classifier.predict_proba(X), rtol=1e-12)


def test_class_weights_multiply_sample_weights(classifier):
    weight = np.where(YES == "yes", 2.0, 0.5)
    told = clone(classifier).set_params(class_weight={"yes": 2.0, "no": 0.5}).fit(X, YES)
    np.testing.assert_array_equal(told.coef_, clone(classifier).fit(X, YES, sample_weight=weight).coef_)
    assert (told.coef_ != classifier.coef_).any()
    few = YES.copy()
    few[5:] = "no"
    few[:5] = "yes"
    balanced = clone(classifier).set_params(class_weight="balanced").fit(X, few)
    own = np.where(few == "yes", N / 2 / 5, N / 2 / (N - 5))
    np.testing.assert_array_equal(balanced.coef_, clone(classifier).fit(X, few, sample_weight=own).coef_)


def test_rows_without_weight_are_no_rows(regressor):
    weight = np.ones(N + 3)
    weight[[0, 7, N]] = 0.0
    y = np.insert(REAL, [0, 6, N - 2], 1e6)
    wide = np.insert(X, [0, 6, N - 2], -1e6, axis=0)
    np.testing.assert_array_equal(clone(regressor).fit(wide, y, sample_weight=weight).coef_, regressor.coef_)


def test_without_an_intercept(regressor):
    model = clone(regressor).set_params(fit_intercept=False).fit(X, REAL)
    assert model.intercept_ == 0.0
    exact, *_ = np.linalg.lstsq(X, REAL, rcond=None)
    summary = model.result_.summary()
    assert "Intercept" not in summary.index
    assert (np.abs(model.coef_[[0, 2]] - exact[[0, 2]]) < summary.loc[["x0", "x2"], "sd"]).all()


def test_a_target_without_error_has_a_posterior():
    model = BayesianRegressor(random_state=1, draws=200).fit(X, 3 + 2 * X[:, 0])
    np.testing.assert_allclose(model.predict(X), 3 + 2 * X[:, 0], rtol=1e-3)
    assert model.result_["sigma"].min() >= fitting.LEAST_SIGMA * 20 * 0.5


@pytest.mark.slow  # one more family to compile
def test_outliers_move_the_mean_of_gaussians_and_hardly_that_of_students():
    y = REAL.copy()
    y[np.argsort(X[:, 0])[-3:]] -= 300
    model = BayesianRegressor(random_state=1, draws=200, family="student").fit(X, y)
    assert abs(model.coef_[0] - 2.0) < 0.5
    with pytest.raises(sgmcmc.InputError, match=r"return_std is for the family 'gaussian'.*predict_interval\(X\)"):
        model.predict(X, return_std=True)
    assert abs(np.linalg.lstsq(np.column_stack([np.ones(N), X]), y, rcond=None)[0][1] - 2.0) > 0.5  # the control


# Programs, warnings, imports.


def test_other_rows_and_targets_compile_nothing(classifier):
    """Neither as many rows, nor what is in them: the parts of a cross-validation have the same programs."""
    with compilations() as names:
        clone(classifier).fit(3 * X[:51] + 7, np.roll(YES, 5)[:51])
    assert names == []
    with compilations() as names:
        jax.jit(lambda x: x + 1.25)(1.0)
    assert names  # the control


def test_rows_are_filled_up_to_numbers_that_repeat():
    assert [filled(n) for n in (1, 64, 65, 128, 1000, 1024, 1025, 1088, 1089)] == [64, 64, 128, 128, 1024, 1024, 1088, 1088, 1152]
    assert all(n <= filled(n) <= 1.0625 * n for n in (1025, 5000, 66_666, 66_667, 1_000_000))
    assert filled(66_666) == filled(66_667)


@SHORT
def test_names_of_features_are_no_two_the_same():
    assert unique(["a", "sigma", "a"], ("Intercept", "sigma")) == ("a", "sigma (feature 1)", "a (feature 2)")
    frame = pd.DataFrame(X, columns=["sigma", "b", "Intercept"])
    model = BayesianRegressor(random_state=1, draws=50).fit(frame, REAL)
    assert list(model.result_) == ["Intercept", "sigma (feature 0)", "b", "Intercept (feature 2)", "sigma"]


def test_draws_that_are_not_to_be_trusted_give_a_convergence_warning(monkeypatch):
    real = fitting.sample

    def complaining(*args: Any, **kwargs: Any) -> Any:
        warn("Chains disagree. See health() for all checks.")
        warnings.warn("something else", DeprecationWarning, stacklevel=1)
        return real(*args, **kwargs)

    monkeypatch.setattr(fitting, "sample", complaining)
    with pytest.warns() as caught:
        BayesianRegressor(random_state=1, draws=50).fit(X, REAL)
    assert [(one.category, str(one.message)) for one in caught][:2] == [
        (ConvergenceWarning, "Chains disagree. See result_.health() for all checks."),
        (DeprecationWarning, "something else"),
    ]
    assert caught[0].filename == __file__


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    spec = importlib.util.find_spec("sgmcmc.models.estimators")
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sgmcmc\[sklearn\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_it_has_a_short_name():
    from sgmcmc import sklearn
    from sgmcmc.models import estimators

    assert sklearn is estimators
    assert BayesianClassifier is estimators.BayesianClassifier


# Where they go.


def frame() -> pd.DataFrame:
    return pd.DataFrame({"age": X[:, 0], "region": np.where(X[:, 2] > 0, "North", "South")})


def pipeline(*, sparse: bool = False) -> Any:
    columns = make_column_transformer(
        (StandardScaler(), ["age"]),
        (OneHotEncoder(drop="first", sparse_output=sparse), ["region"]),
        sparse_threshold=float(sparse),
    )
    return make_pipeline(columns, BayesianClassifier(random_state=1, draws=100))


def test_in_a_pipeline_of_frames():
    model = pipeline().set_output(transform="pandas").fit(frame(), YES)
    names = ["standardscaler__age", "onehotencoder__region_South"]
    assert model[-1].feature_names_in_.tolist() == names
    assert list(model[-1].result_) == ["Intercept", *names]
    sparse = pipeline(sparse=True).fit(frame(), YES)
    assert scipy.sparse.issparse(sparse[:-1].transform(frame()))
    np.testing.assert_array_equal(sparse[-1].coef_, model[-1].coef_)


@pytest.mark.slow  # two processes begin, and each imports everything
def test_in_a_search_over_two_processes():
    search = GridSearchCV(
        pipeline(), {"bayesianclassifier__fit_intercept": [True, False]}, cv=2, n_jobs=2, scoring="neg_log_loss"
    )
    search.fit(frame(), YES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict_proba(frame()).shape == (N, 2)
