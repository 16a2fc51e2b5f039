"""Wrong inputs of estimators: one line each, which names the culprit. Nothing is compiled for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import sgmcmc
from sgmcmc.models.estimators import rows
from sgmcmc.sklearn import BayesianClassifier, BayesianCountRegressor, BayesianRegressor

N = 20
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
YES, REAL, COUNTS = np.arange(N) % 2, RNG.normal(size=N), RNG.poisson(2.0, N)
MISSING = np.where(np.arange(N)[:, None] == 3, np.nan, X)
LAST = np.arange(N) == N - 1
NORMAL = sgmcmc.distributions.Normal(0, 1)

C, R, K = BayesianClassifier, BayesianRegressor, BayesianCountRegressor

WRONG: list[tuple[Any, Any, Any, Any, str]] = [
    (C(class_weight={2: 1.0}), X, YES, None, r"class_weight names 2, which is no class of y; it has 0, 1"),
    (C(class_weight={0: -1.0}), X, YES, None, r"class_weight\[0\] is -1.0; expected a positive number"),
    (C(class_weight="equal"), X, YES, None, r"class_weight is 'equal'; expected 'balanced', or weights by class"),
    (C(), X, np.full(N, "a"), None, r"y has one class where rows have weight, 'a'; expected two classes or more"),
    (C(), X, YES, 1.0 * YES, r"y has one class where rows have weight, 1; expected two"),
    (C(), X, REAL, None, r"Unknown label type: continuous"),
    (C(), X[:-1], YES, None, r"inconsistent numbers of samples: \[19, 20\]"),
    (C(), MISSING, YES, None, r"Input X contains NaN"),
    (C(), pd.DataFrame({"a": ["x"] * N}), YES, None, r"could not convert string to float: 'x'"),
    (C(draws=3), X, YES, None, r"draws is 3; expected a whole number of at least 20"),
    (C(chains=0), X, YES, None, r"chains is 0; expected a whole number of at least 1"),
    (C(engine="stan"), X, YES, None, r"engine is 'stan'; expected one of 'auto', 'nuts', 'sgmcmc'"),
    (C(random_state="a"), X, YES, None, r"'a' cannot be used to seed"),
    (
        C(priors={"x7": NORMAL}),
        X,
        YES,
        None,
        r"priors names 'x7', which the model does not have; it has 'Intercept'.*'x0', 'x1', 'x2'",
    ),
    (C(priors={"x0": 3}), X, YES, None, r"priors\['x0'\] is 3; expected a distribution of NumPyro"),
    (R(priors=[1]), X, REAL, None, r"priors is \[1\]; expected distributions by name"),
    (R(family="poisson"), X, REAL, None, r"family is 'poisson'; expected one of 'gaussian', 'student'"),
    (R(), X, np.full(N, 3.0), None, r"y is 3 in all rows; expected a target that varies"),
    (R(), X, np.where(LAST, np.inf, REAL), None, r"Input y contains infinity"),
    (R(), X, REAL, np.where(LAST, -1.0, 1.0), r"sample_weight is -1 in row 19; expected how often each row counts"),
    (R(), X, REAL, np.zeros(N), r"sample_weight is zero in all rows; expected a positive weight in some"),
    (R(), X, REAL, np.ones(3), r"sample_weight has shape \(3,\); expected one weight for each of 20 rows"),
    (R(), X, REAL, MISSING[:, 0], r"Input sample_weight contains NaN"),
    (R(), X[:1], REAL[:1], None, r"1 sample"),
    (K(), X, np.where(LAST, -1, COUNTS), None, r"y is -1 in row 19; expected counts, or rates, from 0"),
    (K(family="negative binomial"), X, np.where(LAST, 0.5, COUNTS), None, r"y is 0.5 in row 19; expected whole numbers from 0"),
    (K(family="gaussian"), X, COUNTS, None, r"family is 'gaussian'; expected one of 'poisson', 'negative binomial'"),
]


@pytest.mark.parametrize(("estimator", "features", "y", "weight", "message"), WRONG, ids=[one[-1][:30] for one in WRONG])
def test_wrong_inputs_are_refused_by_name(estimator, features, y, weight, message):
    with pytest.raises(ValueError, match=message) as caught:
        estimator.fit(features, y, sample_weight=weight)
    assert "\n" not in str(caught.value) or "sklearn" in str(caught.traceback[-1].path)
    assert not hasattr(estimator, "result_")


@pytest.mark.parametrize("estimator", [C(), R(), K()], ids=lambda one: type(one).__name__)
def test_predictions_need_a_fit(estimator):
    with pytest.raises(NotFittedError, match=f"This {type(estimator).__name__} instance is not fitted yet"):
        estimator.predict(X)
    with pytest.raises(NotFittedError):
        estimator.predict_interval(X)


@pytest.fixture(scope="module")
def fit() -> BayesianRegressor:
    return R(draws=50, random_state=1).fit(pd.DataFrame(X, columns=["age", "size", "sex"]), REAL)


@pytest.mark.filterwarnings("ignore::sgmcmc.sklearn.ConvergenceWarning")  # the chains are short
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda model: model.predict(pd.DataFrame(np.ones((2, 3)), columns=["age", "size", "more"])),
            r"(?s)Feature names unseen.*more",
        ),
        (
            lambda model: model.predict_interval(scipy.sparse.csr_array(np.ones((2, 2)))),
            r"X has 2 features, but BayesianRegressor is expecting 3 features",
        ),
        (
            lambda model: model.predict(pd.DataFrame({"age": [1.0], "height": [1.0], "sex": [0]})),
            r"(?s)Feature names unseen.*height",
        ),
        (lambda model: model.predict(pd.DataFrame({"age": [np.nan], "size": [1.0], "sex": [0]})), r"Input X contains NaN"),
        (lambda model: model.predict_interval(_frame(), 90), r"level is 90; expected a number between 0 and 1, such as 0.9"),
    ],
)
def test_wrong_predictions_are_refused_by_name(fit, call, message):
    with pytest.raises(ValueError, match=message):
        call(fit)


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"age": [1.0], "size": [1.0], "sex": [0]})


def test_features_that_are_too_many_are_refused(monkeypatch):
    monkeypatch.setattr(rows, "physical_memory", lambda: 500)
    with pytest.raises(sgmcmc.InputError, match=r"X has 20 rows of 3 features, 0.0 GB as dense.*at most 25% of the memory"):
        C().fit(X, YES)
