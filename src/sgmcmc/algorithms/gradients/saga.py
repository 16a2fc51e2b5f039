"""SAGA: control variates whose centre is, for every row, the chain's own last visit to it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.kernel import Estimate, Estimator, Passes
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Batch, PyTree, tree_map
from sgmcmc.problem.posterior import Posterior


@dataclass(frozen=True)
class SAGA(Estimator):
    """∇log p(θ) + Σ_all g_i + Σ_S w_i [∇ℓ_i(θ) - g_i], then g_i = ∇ℓ_i(θ) for the rows i of the minibatch S.

    g_i is the gradient of row i where the chain was when it last looked at that row; at first, where it started. Given these the
    estimate is unbiased, and as the chain stays near where it has been, its noise is small without a mode to search for. A step
    costs O(n), however many rows there are. The table of all g_i is rows × parameters, for each chain.

    Reference: Dubey, Reddi, Póczos, Smola, Xing and Williamson (2016), Variance reduction in stochastic gradient Langevin
    dynamics; Defazio, Bach and Lacoste-Julien (2014).

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.random.default_rng(0).normal(size=1000)}
    >>> sampler = sgmcmc.sampler_setup(log_lik, data, {"mu": 0.0}, 1e-4, gradient=sgmcmc.algorithms.SAGA(), minibatch_size=10)
    >>> state = sampler.init(seed=1, n_chains=2)
    >>> state.estimator["table"]["mu"].shape
    (2, 1000)
    """

    carries, per_chain, knows_rows = dict, True, True

    @property
    def follows_posterior(self) -> bool:  # whatever the table has, the estimate is unbiased
        return True

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> dict[str, PyTree]:
        table = passes.each(Posterior.row_gradients, posterior, position)
        total = tree_map(lambda g: jnp.asarray(np.sum(g, axis=0, dtype=np.float64), g.dtype), table)
        return {"table": tree_map(jnp.asarray, table), "sum": total, "lost": tree_map(jnp.zeros_like, total)}

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: dict[str, PyTree]) -> Estimate:
        table, index = state["table"], batch.index
        known = len(jax.tree.leaves(table)[0])
        if known != posterior.n_rows:  # places in the table are not checked as the chain goes on
            raise InputError(f"state has SAGA's table of {known} rows for a dataset of {posterior.n_rows}; make one with init")
        rows = posterior.row_gradients(position, batch.rows)
        before = tree_map(lambda g: g.at[index].get(mode="promise_in_bounds"), table)
        change = tree_map(jnp.subtract, rows, before)
        weights = jnp.broadcast_to(batch.weight, index.shape)
        noisy = tree_map(lambda c: jnp.tensordot(weights, c, axes=1), change)
        gradient = tree_map(lambda *terms: sum(terms), posterior.prior_gradient(position), state["sum"], noisy)
        table = tree_map(lambda g, r: g.at[index].set(r, mode="promise_in_bounds", unique_indices=True), table, rows)
        # What rounding takes from the sum is given back a step later, or in a long run it would no longer be the table's.
        added = tree_map(lambda c, lost: jnp.sum(c, axis=0) - lost, change, state["lost"])
        total = tree_map(jnp.add, state["sum"], added)
        lost = tree_map(lambda new, old, a: (new - old) - a, total, state["sum"], added)
        return gradient, {"table": table, "sum": total, "lost": lost}, {}
