"""The mathematics, pure: dynamics, gradient estimators, what one iteration is, and the laws that follow.

Public, for composing (`sgmcmc.sampler_setup`) and for extension: subclass `Dynamics` or `Estimator`, and put what you wrote
through `sgmcmc.testing.check_sampler`.
"""

from sgmcmc.algorithms.dynamics.baoa import BAOA
from sgmcmc.algorithms.dynamics.barker import Barker
from sgmcmc.algorithms.dynamics.hamiltonian import PaperHamiltonian, PersistentHamiltonian, SymmetricHamiltonian
from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.dynamics.metropolis import MetropolisHamiltonian
from sgmcmc.algorithms.dynamics.momentum import momentum, rescale_momentum
from sgmcmc.algorithms.dynamics.nose_hoover import NoseHoover, SymmetricNoseHoover
from sgmcmc.algorithms.dynamics.obabo import OBABO
from sgmcmc.algorithms.dynamics.preconditioned import PreconditionedLangevin, RMSLangevin
from sgmcmc.algorithms.dynamics.replicas import ReplicaExchange
from sgmcmc.algorithms.dynamics.scir import SCIR
from sgmcmc.algorithms.dynamics.sgrld import SGRLD
from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.gradients.saga import SAGA
from sgmcmc.algorithms.gradients.second_order import SecondOrder
from sgmcmc.algorithms.gradients.svrg import SVRG
from sgmcmc.algorithms.kernel import Dynamics, Estimate, Estimator, Kernel, Motion, Passes
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.steps import CosineCycles, PolynomialDecay, Steps, WarmUp
from sgmcmc.rows.importance import Importance

__all__ = [
    "BAOA", "OBABO", "SAGA", "SCIR", "SGRLD", "SVRG", "Barker", "Centre", "ControlVariate", "CosineCycles", "Dynamics",
    "Estimate", "Estimator", "Importance", "Kernel", "Langevin", "MetropolisHamiltonian", "Minibatch", "Motion", "NoseHoover",
    "PaperHamiltonian", "Passes", "PersistentHamiltonian", "PolynomialDecay", "Posterior", "PreconditionedLangevin",
    "RMSLangevin", "ReplicaExchange", "SecondOrder", "Steps", "SymmetricHamiltonian", "SymmetricNoseHoover", "WarmUp",
    "momentum", "rescale_momentum",
]  # fmt: skip
