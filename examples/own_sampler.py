"""A sampler and a gradient estimator that the library does not have: put through its battery, then put to work."""

import argparse
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc
from sgmcmc.algorithms import Dynamics, Estimator, momentum, rescale_momentum
from sgmcmc.testing import check_sampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="a few contracts of the battery instead of all")
parser.add_argument("--out", default="own_sampler.png", help="where to write the picture")
options = parser.parse_args()


@dataclass(frozen=True)
class PushAndDrift(Dynamics):
    """Underdamped Langevin: ν' = c ν + (1+c)/2 ε ĝ(θ) + N(0, (1-c²) ε);  θ' = θ + ν'. (A gradient times c ε is 21 % off.)"""

    c: float = 0.7

    def start(self, position, eps, noise):
        return {"momentum": momentum(eps, noise)}

    def refresh(self, motion, eps, before, noise):
        return rescale_momentum(motion, eps, before)

    def move(self, motion, eps, noise):
        def pushed(v, g, e, z):
            return self.c * v + (1 + self.c) / 2 * e * g + jnp.sqrt((1 - self.c**2) * e) * z

        nu = jax.tree.map(pushed, motion.auxiliary["momentum"], motion.gradient, eps, noise)
        return replace(motion, position=jax.tree.map(jnp.add, motion.position, nu), auxiliary={"momentum": nu})


def gradient_of_rows(posterior, position, rows):
    return jax.grad(posterior.sum_of_rows)(position, rows)


@dataclass(frozen=True)
class LearntStrength(Estimator):
    """∇log p(θ) + β Σ_all ∇ℓ_i(θ̂) + Σ_S w_i [∇ℓ_i(θ) - β ∇ℓ_i(θ̂)], where θ̂ is where the chain began: unbiased for every β."""

    per_chain = True  # every chain learns its own β, from minibatches gone by

    def init(self, posterior, position, passes):
        return {"centre": position, "sum": passes.sum(gradient_of_rows, posterior, position), "strength": jnp.ones(())}

    def estimate(self, posterior, position, batch, state):
        slope, beta = jax.grad(posterior.log_likelihood), state["strength"]
        here, there = posterior.over_strata((slope(position, batch), slope(state["centre"], batch)))
        constant = posterior.prior_gradient(position)
        gradient = jax.tree.map(lambda p, s, h, t: p + h + beta * (s - t), constant, state["sum"], here, there)
        products = [sum(jax.tree.leaves(jax.tree.map(jnp.vdot, one, there))) for one in (here, there)]
        worth = jnp.clip(products[0] / (products[1] + 1e-6), 0.0, 1.0)
        return gradient, state | {"strength": beta + 0.02 * (worth - beta)}, {}


def log_lik(params, batch):
    return -jnp.logaddexp(0.0, jnp.where(batch["y"], -1, 1) * (batch["X"] @ params["beta"])).sum()


own, reports = {"dynamics": PushAndDrift(), "gradient": LearntStrength()}, {}
for part, thing in own.items():
    setup = partial(sgmcmc.sampler_setup, name=type(thing).__name__, **{part: thing})
    reports[part] = check_sampler(setup, checks=["continuing", "unbiased", "target", "law"] if options.quick else None)
    print(reports[part], end="\n\n")
rng, truth = np.random.default_rng(0), np.array([1.0, -0.5, 0.0])
X = rng.normal(size=(10_000, 3))
data = {"X": X, "y": rng.random(10_000) < 1 / (1 + np.exp(-X @ truth))}
sampler = sgmcmc.sampler_setup(log_lik, data, {"beta": np.zeros(3)}, 1e-4, start="mode", minibatch_size=200, **own)
out = sampler.run(sampler.init(seed=1, n_chains=4), 4_000, burn_in=500)
out.plot().savefig(options.out)
print(out.summary(), f"picture: {options.out}", sep="\n")
