"""Regressions as estimators of scikit-learn: `sgmcmc.sklearn`.

A classifier, a regressor and a regressor of counts, on the core of `sgmcmc.glm`: the same families, default priors and
standardisation, and `sample` behind `fit`. They go wherever estimators of scikit-learn go.
"""

from importlib.util import find_spec as _find_spec

if _find_spec("sklearn") is None:
    raise ModuleNotFoundError("sgmcmc.sklearn needs scikit-learn, which is not installed; pip install 'sgmcmc[sklearn]'")

from sgmcmc.models.estimators.classifier import BayesianClassifier
from sgmcmc.models.estimators.fitting import ConvergenceWarning
from sgmcmc.models.estimators.regressors import BayesianCountRegressor, BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianCountRegressor", "BayesianRegressor", "ConvergenceWarning"]
