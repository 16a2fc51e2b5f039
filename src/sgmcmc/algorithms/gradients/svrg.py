"""SVRG: control variates whose centre is where the chain was when it last looked at all rows."""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.gradients.control_variate import ControlVariate, gradient_of_rows
from sgmcmc.algorithms.kernel import Estimate, Estimator, Passes
from sgmcmc.core.checks import check_count
from sgmcmc.core.trees import Batch, PyTree, tree_map
from sgmcmc.problem.posterior import Posterior


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Anchor:
    """Where a chain last looked at all rows, and the gradient of the full log likelihood there."""

    position: PyTree
    gradient: PyTree


@dataclass(frozen=True)
class SVRG(Estimator):
    """∇log p(θ) + Σ_all ∇ℓ_i(θ̃) + Σ_S w_i [∇ℓ_i(θ) - ∇ℓ_i(θ̃)], where θ̃ = θ before every `epoch`-th iteration.

    Each time the gradients of all rows are summed anew, in one pass for all chains, wherever the rows are: in memory, on disk,
    over processes. At θ̃ the estimate is exact. No mode is looked for, and a chain carries no more than two vectors.

    Args:
        epoch: iterations from one pass to the next; left out, as many as look at N rows: N/n, rounded up.
        with_variance: also estimate its variance, from the differences of every row.

    Reference: Dubey, Reddi, Póczos, Smola, Xing and Williamson (2016), Variance reduction in stochastic gradient Langevin
    dynamics; Johnson and Zhang (2013).

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.random.default_rng(0).normal(size=1000)}
    >>> sampler = sgmcmc.sampler_setup(log_lik, data, {"mu": 0.5}, 1e-4, gradient=sgmcmc.algorithms.SVRG(50), minibatch_size=10)
    >>> out = sampler.run(sampler.init(seed=1, n_chains=2), 120)
    >>> bool((out.final_state.estimator.position["mu"] == out["mu"][:, 99]).all())
    True
    """

    epoch: int | None = None
    with_variance: bool = False
    carries, per_chain = Anchor, True

    def __post_init__(self) -> None:
        if self.epoch is not None:
            check_count("epoch", self.epoch)

    def renewed_every(self, n_rows: int, batch_size: int) -> int:
        return -(-n_rows // batch_size) if self.epoch is None else self.epoch

    def measuring_noise(self) -> Self:
        return replace(self, with_variance=True)

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> Any:
        gradient = passes.sum(gradient_of_rows, posterior, position)
        return Anchor(position, tree_map(lambda g, like: jnp.asarray(g, like.dtype), gradient, position))

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: Any) -> Estimate:
        return ControlVariate(self.with_variance).estimate(posterior, position, batch, state)
