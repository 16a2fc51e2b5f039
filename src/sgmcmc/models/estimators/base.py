"""What the estimators have in common: checks, seeds, what a fit leaves behind, predictions from draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from sgmcmc.core.checks import Progress
from sgmcmc.core.errors import InputError, describe
from sgmcmc.models.estimators.fitting import Fit, Target, Task, fitted, linear, own
from sgmcmc.models.estimators.rows import blocks
from sgmcmc.models.regression.core import Core

AVERAGED = 500
"""Draws over which predictions are averaged, where these are not linear in the parameters."""

KINDS_OF_X = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}


class Estimator(BaseEstimator):
    """Behind `fit` of all: features and target checked, then sampled."""

    draws: int
    chains: int
    fit_intercept: bool
    priors: Any
    engine: str
    random_state: Any
    progress: Progress
    n_features_in_: int
    result_: Fit
    _core: Core

    def _features(self, X: Any) -> Any:
        """Features to predict from."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, **KINDS_OF_X)

    def _sampled(self, target: Target, X: Any, weight: np.ndarray) -> None:
        """Draw, and keep what users of the estimator look at."""
        X, target = _of_weight(X, target, weight)
        names = [str(name) for name in getattr(self, "feature_names_in_", (f"x{i}" for i in range(X.shape[1])))]
        task = Task.of(target, X, names, weight[weight > 0], bool(self.fit_intercept), self.priors)
        self._core = task.core
        self.result_ = fitted(
            task, draws=self.draws, chains=self.chains, engine=self.engine, seed=_seed(self.random_state), progress=self.progress
        )

    def _linear(self, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Intercepts and slopes, draws first."""
        return linear(self._core, self.result_.inner.draws, most)

    def _own(self, most: int | None = None) -> dict[str, np.ndarray]:
        return own(self._core, self.result_.inner.draws, most)

    def _etas(self, X: Any, most: int | None) -> Iterator[np.ndarray]:
        """Linear predictors of blocks of rows: rows first, then draws, then classes but the first."""
        intercepts, slopes = self._linear(most)
        for _, part in blocks(X, _size(slopes)):
            yield np.tensordot(part, slopes, axes=(1, 1)) + intercepts

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _size(slopes: np.ndarray) -> int:
    """Numbers of features in a block whose predictors are a few million numbers."""
    return max(1, (1 << 22) // (slopes.size // slopes.shape[1])) * slopes.shape[1]


def _seed(random_state: Any) -> int | None:
    """A whole number as it is; one drawn from a generator; None leaves it to `sample`."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return random_state if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _of_weight(X: Any, target: Target, weight: np.ndarray) -> tuple[Any, Target]:
    """The rows that have any weight."""
    kept = weight > 0
    return (X, target) if kept.all() else (X[kept], replace(target, y=target.y[kept]))


def weights_of(sample_weight: Any, X: Any) -> np.ndarray:
    """A weight for every row, 1 where none are given."""
    if sample_weight is None:
        return np.ones(X.shape[0])
    weight = np.asarray(check_array(sample_weight, ensure_2d=False, dtype="numeric", input_name="sample_weight"), np.float64)
    weight = np.full(X.shape[0], weight) if weight.ndim == 0 else weight
    if weight.shape != (X.shape[0],):
        raise InputError(f"sample_weight has shape {weight.shape}; expected one weight for each of {X.shape[0]:,} rows")
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise InputError(f"sample_weight is {weight[row]:.6g} in row {row}; expected how often each row counts, 0 or more")
    if not weight.any():
        raise InputError("sample_weight is zero in all rows; expected a positive weight in some")
    return weight


def tails_of(level: Any) -> tuple[float, float]:
    """The quantiles at the ends of an interval."""
    if not isinstance(level, float) or not 0 < level < 1:
        raise InputError(f"level is {describe(level)}; expected a number between 0 and 1, such as 0.9")
    return (1 - level) / 2, (1 + level) / 2
