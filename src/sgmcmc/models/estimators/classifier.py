"""A classifier: logistic regression, of two classes or more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.models.estimators.base import AVERAGED, KINDS_OF_X, Estimator, tails_of, weights_of
from sgmcmc.models.estimators.fitting import Target
from sgmcmc.models.regression.families import FAMILIES
from sgmcmc.models.regression.families.base import Outcome


class BayesianClassifier(ClassifierMixin, Estimator):
    """Logistic regression with a posterior, of two classes or more: probabilities are averaged over it.

    Features are standardised inside and reported as they came. The model is that of `sgmcmc.glm` with the family
    `"bernoulli"`, or `"categorical"` where there are more classes than two.

    Args:
        draws: stored per chain.
        chains: so many, started apart.
        fit_intercept: whether the model has an intercept.
        class_weight: a weight by class, or `"balanced"`: as often as makes all classes count the same. It multiplies
            `sample_weight`.
        priors: NumPyro distributions by the name of a feature, `"coefficients"` for all features, or `"Intercept"`, on the
            features' own scale; where left out, Normal(0, 2.5) for a change of one standard deviation, or from 0 to 1.
        engine: `"auto"`, `"nuts"` or `"sgmcmc"`, as of `sgmcmc.sample`.
        random_state: a whole number as seed, or a generator of NumPy's older kind; None draws a seed.
        progress: True shows bars; estimators are quiet, as scikit-learn is.

    Attributes:
        classes_: the labels.
        coef_: posterior means, a line for each class, of which the first is 0; of two classes one line, for the second.
        intercept_: likewise.
        result_: the draws, by feature: `result_.summary()`, `result_.health()`.
        n_features_in_: features seen by `fit`; `feature_names_in_` has their names, where they are text.

    >>> import numpy as np
    >>> from sgmcmc.sklearn import BayesianClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> y = np.where(rng.random(60) < 1 / (1 + np.exp(-2 * X[:, 0])), "yes", "no")
    >>> model = BayesianClassifier(draws=500, random_state=1).fit(X, y)
    >>> model.predict([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]).tolist()
    ['yes', 'no']
    >>> model.result_.health().ok
    True
    """

    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray

    def __init__(
        self, *, draws: int = 1000, chains: int = 4, fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None, priors: Mapping[str, Any] | None = None, engine: str = "auto",
        random_state: Any = None, progress: Progress = False,
    ) -> None:  # fmt: skip
        self.draws = draws
        self.chains = chains
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.priors = priors
        self.engine = engine
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianClassifier:
        """Draw from the posterior.

        Args:
            X: features, rows first: dense or sparse, or a frame of numbers. Sparse ones are made dense block by block, and may be
                at most a quarter of the memory then.
            y: the class of every row, numbers or text.
            sample_weight: how often each row counts.
        """
        X, y = validate_data(self, X, y, **KINDS_OF_X)
        check_classification_targets(y)
        weight = weights_of(sample_weight, X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(counted := np.unique(codes[weight > 0])) < 2:
            shown = describe(self.classes_.tolist()[counted[0]])
            raise InputError(f"y has one class where rows have weight, {shown}; expected two classes or more")
        weight = weight * _of_classes(self.class_weight, self.classes_, codes, weight)[codes]
        shares = np.bincount(codes, weight, len(self.classes_)) / weight.sum()
        rarest = 0.5 / (len(codes) + 1)  # half a row, as of glm
        self._sampled(_target(codes, np.maximum(shares, rarest), self.classes_), X, weight)
        intercept, slopes = (found.mean(axis=0) for found in self._linear())
        if len(self.classes_) > 2:
            self.coef_ = np.vstack([np.zeros(X.shape[1]), slopes.T])
            self.intercept_ = np.concatenate([[0.0], intercept])
        else:
            self.coef_, self.intercept_ = slopes[None, :], np.atleast_1d(intercept)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class in every row, averaged over 500 draws."""
        X = self._features(X)
        return np.concatenate([_probabilities(eta).mean(axis=1) for eta in self._etas(X, AVERAGED)])

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of these probabilities."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The class that is most probable in each row."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """What the posterior knows of the probabilities: rows, then classes, then the ends of an interval that holds so much.

        >>> import numpy as np
        >>> from sgmcmc.sklearn import BayesianClassifier
        >>> X = np.random.default_rng(0).normal(size=(60, 3))
        >>> model = BayesianClassifier(draws=500, random_state=1).fit(X, X[:, 0] + X[:, 1] ** 2 > 1)
        >>> lower, upper = model.predict_interval(X[:1])[0, 1]
        >>> bool(lower < model.predict_proba(X[:1])[0, 1] < upper)
        True
        """
        tails = tails_of(level)
        X = self._features(X)
        found = [np.quantile(_probabilities(eta), tails, axis=1) for eta in self._etas(X, AVERAGED)]
        return np.moveaxis(np.concatenate(found, axis=1), 0, -1)


def _target(codes: np.ndarray, shares: np.ndarray, classes: np.ndarray) -> Target:
    if len(classes) > 2:
        return Target(FAMILIES["categorical"], codes, Outcome(0.0, 1.0, tuple(shares.tolist())), tuple(map(str, classes)))
    return Target(FAMILIES["bernoulli"], codes, Outcome(float(shares[1] / shares.sum()), 1.0))


def _of_classes(class_weight: Any, classes: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A weight for every class."""
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, Mapping):
        known = classes.tolist()
        unknown = next((label for label in class_weight if label not in known), None)
        if unknown is not None:
            shown = ", ".join(map(repr, known[:15])) + (", ..." if len(known) > 15 else "")
            raise InputError(f"class_weight names {unknown!r}, which is no class of y; it has {shown}")
        return np.array([_positive(class_weight.get(label, 1.0), label) for label in known])
    if class_weight != "balanced":
        raise InputError(f"class_weight is {describe(class_weight)}; expected 'balanced', or weights by class such as {{1: 2.0}}")
    counts = np.bincount(codes, weight, len(classes))
    return weight.sum() / (len(classes) * np.where(counts > 0, counts, 1.0))


def _positive(weight: Any, label: Any) -> float:
    if not isinstance(weight, int | float | np.number) or not 0 < weight < np.inf:
        raise InputError(f"class_weight[{label!r}] is {describe(weight)}; expected a positive number")
    return float(weight)


def _probabilities(eta: np.ndarray) -> np.ndarray:
    """Of all classes, which come last: the linear predictor of the first is 0."""
    eta = eta[..., None] if eta.ndim == 2 else eta
    whole = np.concatenate([np.zeros_like(eta[..., :1]), eta], axis=-1)
    shares = np.exp(whole - whole.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
