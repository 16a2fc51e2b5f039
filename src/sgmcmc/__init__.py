"""Stochastic gradient MCMC: Bayesian posteriors for data too big for Stan.

You write a log likelihood and a log prior; `sample` draws from the posterior with nothing to tune. `sgld`, `sghmc`, `sgnht`,
`baoa` and their control variate versions `sgldcv`, `sghmccv`, `sgnhtcv`, `baoacv` are yours to tune, and each has a `*_setup`
twin for working step by step. `sampler_setup` takes dynamics and gradient estimators of `sgmcmc.algorithms`, or your own.
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING
from typing import Any as _Any

from sgmcmc import algorithms, data
from sgmcmc.algorithms.gibbs import Gibbs
from sgmcmc.algorithms.gradients.latent import Latent
from sgmcmc.core.errors import DivergenceError, InputError, SgmcmcError, SgmcmcWarning
from sgmcmc.core.late_modules import name_modules as _name_modules
from sgmcmc.core.trees import Batch, State
from sgmcmc.data.datasets import get_dataset, train_test_split
from sgmcmc.models.bridge import from_numpyro
from sgmcmc.models.loading import load
from sgmcmc.models.regression.glm import glm
from sgmcmc.models.regression.result import Regression
from sgmcmc.problem.model import Model
from sgmcmc.results.after.loo import compare, loo
from sgmcmc.results.keeps import Expectation, Keep, Moments, Trace
from sgmcmc.results.quantiles import Quantiles
from sgmcmc.results.result import Result
from sgmcmc.rows import hosts
from sgmcmc.run.sampler import Sampler
from sgmcmc.samplers.composing import RunOptions, SetupOptions, sampler_setup
from sgmcmc.samplers.named import (
    baoa,
    baoa_setup,
    baoacv,
    baoacv_setup,
    sghmc,
    sghmc_setup,
    sghmccv,
    sghmccv_setup,
    sgld,
    sgld_setup,
    sgldcv,
    sgldcv_setup,
    sgnht,
    sgnht_setup,
    sgnhtcv,
    sgnhtcv_setup,
)
from sgmcmc.samplers.sample import sample

if TYPE_CHECKING:
    from numpyro import distributions
    from numpyro.distributions import constraints

    from sgmcmc import testing
    from sgmcmc.models import estimators as sklearn  # noqa: F401

__version__ = _version("sgmcmc")

__all__ = [
    "Batch", "DivergenceError", "Expectation", "Gibbs", "InputError", "Keep", "Latent", "Model", "Moments", "Quantiles",
    "Regression", "Result", "RunOptions", "Sampler", "SetupOptions", "SgmcmcError", "SgmcmcWarning", "State", "Trace",
    "algorithms", "baoa", "baoa_setup", "baoacv", "baoacv_setup", "compare", "constraints", "data", "distributions",
    "from_numpyro", "get_dataset", "glm", "hosts", "load", "loo", "sample", "sampler_setup", "sghmc", "sghmc_setup",
    "sghmccv", "sghmccv_setup", "sgld", "sgld_setup", "sgldcv", "sgldcv_setup", "sgnht", "sgnht_setup", "sgnhtcv",
    "sgnhtcv_setup", "testing", "train_test_split",
]  # fmt: skip


_NUMPYRO = "numpyro.distributions"
_LATE = {
    "distributions": _NUMPYRO,
    "constraints": f"{_NUMPYRO}.constraints",
    "sklearn": "sgmcmc.models.estimators",
    "testing": "sgmcmc.testing",
}

_name_modules({f"sgmcmc.{name}": original for name, original in _LATE.items() if original != f"sgmcmc.{name}"})


def __getattr__(name: str) -> _Any:
    """What is imported when first asked for: NumPyro takes a second, and few need the battery of tests.

    `sgmcmc.sklearn` is not in `__all__`: it needs scikit-learn, which may not be there.
    """
    if name in _LATE:
        return _import_module(_LATE[name])
    raise AttributeError(f"module 'sgmcmc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
