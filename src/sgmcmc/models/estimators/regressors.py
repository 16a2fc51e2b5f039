"""Regressors: of any numbers, and of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import column_or_1d, validate_data

from sgmcmc.core.checks import Progress, check_choice
from sgmcmc.core.errors import InputError
from sgmcmc.models.estimators.base import AVERAGED, KINDS_OF_X, Estimator, tails_of, weights_of
from sgmcmc.models.estimators.fitting import Target
from sgmcmc.models.estimators.rows import standardised
from sgmcmc.models.regression.families import FAMILIES
from sgmcmc.models.regression.families.base import Outcome

REAL = GAUSSIAN, STUDENT = "gaussian", "student"
COUNTS = POISSON, NEGATIVE_BINOMIAL = "poisson", "negative binomial"


class _Regressor(RegressorMixin, Estimator):
    """What both have in common."""

    family: str
    coef_: np.ndarray
    intercept_: float

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, families: tuple[str, ...], least: int = 1
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Features, target and weights."""
        check_choice("family", self.family, families)
        X, y = validate_data(self, X, y, y_numeric=True, ensure_min_samples=least, **KINDS_OF_X)
        return X, column_or_1d(y, warn=True).astype(np.float64), weights_of(sample_weight, X)

    def _drawn(self, target: Target, X: Any, weight: np.ndarray) -> None:
        self._sampled(target, X, weight)
        intercept, slopes = (found.mean(axis=0) for found in self._linear())
        self.coef_, self.intercept_ = slopes, float(intercept)

    def predict_interval(self, X: Any, level: float = 0.9, *, seed: int = 0) -> np.ndarray:
        """Where single targets will be: for each row the ends of an interval that holds so much of 500 that are drawn. It has the
        spread of the posterior and that of targets.

        >>> import numpy as np
        >>> from sgmcmc.sklearn import BayesianRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 3))
        >>> model = BayesianRegressor(draws=500, random_state=1).fit(X, 3 * X[:, 0] + rng.normal(0, 0.5, 60))
        >>> model.predict_interval([[2.0, 0.0, 0.0]]).round(0).tolist()
        [[5.0, 7.0]]
        """
        tails_of(level)
        X, core = self._features(X), self._core
        rows = {"x": standardised(X, core.columns.means, core.columns.scales, X.shape[0])}
        inner = replace(self.result_.inner, model=core.model(rows, core.priors()))
        return np.stack(inner.predict(rows, "interval", level=level, draws=AVERAGED, seed=seed, progress=False), axis=1)


class BayesianRegressor(_Regressor):
    """Linear regression with a posterior, of numbers with Gaussian errors, or Student's where some are far off.

    Features and target are standardised inside and reported as they came. The model is that of `sgmcmc.glm`; only the standard
    deviation of errors is at least a 1,000th of the target's, since features may foresee a target without any error.

    Args:
        family: `"gaussian"`, or `"student"`, which outliers hardly move.
        draws: stored per chain.
        chains: so many, started apart.
        fit_intercept: whether the model has an intercept.
        priors: NumPyro distributions by the name of a feature, `"coefficients"` for all features, `"Intercept"`, `"sigma"` or
            `"nu"`, on the scale of features and target; where left out, those of `sgmcmc.glm`.
        engine: `"auto"`, `"nuts"` or `"sgmcmc"`, as of `sgmcmc.sample`.
        random_state: a whole number as seed, or a generator of NumPy's older kind; None draws a seed.
        progress: True shows bars; estimators are quiet, as scikit-learn is.

    Attributes:
        coef_: posterior means, a number for each feature.
        intercept_: likewise.
        result_: the draws, by feature: `result_.summary()`, `result_.health()`.
        n_features_in_: features seen by `fit`; `feature_names_in_` has their names, where they are text.

    >>> import numpy as np
    >>> from sgmcmc.sklearn import BayesianRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> model = BayesianRegressor(draws=500, random_state=1).fit(X, 1 + 2 * X[:, 0] + rng.normal(0, 1, 60))
    >>> mean, sd = model.predict([[1.0, 0.0, 0.0]], return_std=True)
    >>> mean.round(0).tolist(), sd.round(0).tolist()
    ([3.0], [1.0])
    """

    def __init__(
        self, *, family: str = GAUSSIAN, draws: int = 1000, chains: int = 4, fit_intercept: bool = True,
        priors: Mapping[str, Any] | None = None, engine: str = "auto", random_state: Any = None, progress: Progress = False,
    ) -> None:  # fmt: skip
        self.family = family
        self.draws = draws
        self.chains = chains
        self.fit_intercept = fit_intercept
        self.priors = priors
        self.engine = engine
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianRegressor:
        """Draw from the posterior.

        Args:
            X: features, rows first: dense or sparse, or a frame of numbers. Sparse ones are made dense block by block, and may be
                at most a quarter of the memory then.
            y: a number for every row.
            sample_weight: how often each row counts.
        """
        X, y, weight = self._checked(X, y, sample_weight, REAL, least=2)
        shift = float(np.average(y, weights=weight)) if self.fit_intercept else 0.0
        scale = float(np.sqrt(np.average((y - shift) ** 2, weights=weight)))
        if not scale > 1e-12 * abs(shift):
            raise InputError(f"y is {shift:.6g} in all rows; expected a target that varies")
        self._drawn(Target(FAMILIES[self.family], y, Outcome(0.0, 1.0), (), shift, scale), X, weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected target of every row, averaged over the posterior; with `return_std` the standard deviation of single
        targets beside it, in which that of errors is and that of the posterior.
        """
        X = self._features(X)
        mean = X @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        if self._core.family.name == STUDENT:
            raise InputError("return_std is for the family 'gaussian': Student's errors may have none; use predict_interval(X)")
        sigma = self._own()["sigma"]
        spread = [eta.var(axis=1) for eta in self._etas(X, AVERAGED)]
        return mean, np.sqrt(np.concatenate(spread) + np.mean(sigma**2))


class BayesianCountRegressor(_Regressor):
    """Regression of counts with a posterior: the logarithm of the rate is linear.

    Features are standardised inside and reported as they came. The model is that of `sgmcmc.glm`. Counts over different times,
    or numbers of people, are given as rates with these as `sample_weight`: for a Poisson distribution that is the likelihood of
    the counts themselves, with an offset.

    Args:
        family: `"poisson"`, or `"negative binomial"` for counts that vary more, which must be whole numbers.
        draws: stored per chain.
        chains: so many, started apart.
        fit_intercept: whether the model has an intercept.
        priors: NumPyro distributions by the name of a feature, `"coefficients"` for all features, `"Intercept"` or `"shape"`, on
            the features' own scale; where left out, those of `sgmcmc.glm`.
        engine: `"auto"`, `"nuts"` or `"sgmcmc"`, as of `sgmcmc.sample`.
        random_state: a whole number as seed, or a generator of NumPy's older kind; None draws a seed.
        progress: True shows bars; estimators are quiet, as scikit-learn is.

    Attributes:
        coef_: posterior means, a number for each feature.
        intercept_: likewise.
        result_: the draws, by feature: `result_.summary()`, `result_.health()`.
        n_features_in_: features seen by `fit`; `feature_names_in_` has their names, where they are text.

    >>> import numpy as np
    >>> from sgmcmc.sklearn import BayesianCountRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> model = BayesianCountRegressor(draws=500, random_state=1).fit(X, rng.poisson(np.exp(1 + X[:, 0])))
    >>> float(model.coef_[0].round(0))
    1.0
    """

    def __init__(
        self, *, family: str = POISSON, draws: int = 1000, chains: int = 4, fit_intercept: bool = True,
        priors: Mapping[str, Any] | None = None, engine: str = "auto", random_state: Any = None, progress: Progress = False,
    ) -> None:  # fmt: skip
        self.family = family
        self.draws = draws
        self.chains = chains
        self.fit_intercept = fit_intercept
        self.priors = priors
        self.engine = engine
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianCountRegressor:
        """Draw from the posterior.

        Args:
            X: features, rows first: dense or sparse, or a frame of numbers. Sparse ones are made dense block by block, and may be
                at most a quarter of the memory then.
            y: counts; rates, where `sample_weight` has what they are over.
            sample_weight: how often each row counts, or what its rate is over.
        """
        X, y, weight = self._checked(X, y, sample_weight, COUNTS)
        _check_counts(y, whole=self.family != POISSON)
        mean = max(float(np.average(y, weights=weight)), 0.5 / (weight.sum() + 1))
        self._drawn(Target(FAMILIES[self.family], y, Outcome(mean, 1.0)), X, weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected count of every row, averaged over 500 draws; with `return_std` the standard deviation of single counts
        beside it, in which that of counts at a known rate is and that of the posterior.
        """
        X = self._features(X)
        extra = 1 / self._own(AVERAGED)["shape"] if self._core.family.name == NEGATIVE_BINOMIAL else 0.0
        found = [_moments(np.exp(eta), extra) for eta in self._etas(X, AVERAGED)]
        mean, sd = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return (mean, sd) if return_std else mean

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The part of the Poisson deviance that is explained, as of scikit-learn's `PoissonRegressor`: 1 at best."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _check_counts(y: np.ndarray, whole: bool) -> None:
    bad = (y < 0) | (whole & (y != np.floor(y)))
    if bad.any():
        row = int(np.argmax(bad))
        wanted = "whole numbers from 0, as the family 'negative binomial' has" if whole else "counts, or rates, from 0"
        raise InputError(f"y is {y[row]:.6g} in row {row}; expected {wanted}")


def _moments(rates: np.ndarray, extra: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of counts, over draws of their rate: the variance is rate + extra · rate²."""
    return rates.mean(axis=1), np.sqrt((rates + extra * rates**2).mean(axis=1) + rates.var(axis=1))
