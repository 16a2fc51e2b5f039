"""A sampler and a gradient estimator that the library does not have, put through its battery, then put to work.

Nothing but public names is used: subclass `Dynamics` or `Estimator`, pass the object to `sampler_setup`.
"""

import argparse
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc
from sgmcmc.algorithms import Dynamics, Estimator, momentum, rescale_momentum
from sgmcmc.testing import check_sampler


@dataclass(frozen=True)
class KickRubDrift(Dynamics):
    """Underdamped Langevin in the plainest order: ν' = c (ν + ε ĝ(θ)) + N(0, (1-c²) ε);  θ' = θ + ν'."""

    c: float = 0.7

    def start(self, position, eps, noise):
        return {"momentum": momentum(eps, noise)}

    def refresh(self, motion, eps, before, noise):
        return rescale_momentum(motion, eps, before)

    def move(self, motion, eps, noise):
        def kick_and_rub(v, g, e, z):
            return self.c * (v + e * g) + jnp.sqrt((1 - self.c**2) * e) * z

        nu = jax.tree.map(kick_and_rub, motion.auxiliary["momentum"], motion.gradient, eps, noise)
        return replace(motion, position=jax.tree.map(jnp.add, motion.position, nu), auxiliary={"momentum": nu})


def gradient_of_rows(posterior, position, rows):
    return jax.grad(posterior.sum_of_rows)(position, rows)


@dataclass(frozen=True)
class LearntStrength(Estimator):
    """∇log p(θ) + β G + Σ_S w_i [∇ℓ_i(θ) - β ∇ℓ_i(θ̂)]: control variates that count as much as they are worth.

    θ̂ is where the chain began, G = Σ_all ∇ℓ_i(θ̂). Unbiased for every β; each chain learns its own from minibatches gone by.
    """

    rate: float = 0.02
    per_chain = True  # β changes as a chain goes on

    def init(self, posterior, position, passes):
        total = passes.sum(gradient_of_rows, posterior, position)
        total = jax.tree.map(lambda g, like: jnp.asarray(g, like.dtype), total, position)
        return {"centre": position, "total": total, "strength": jnp.ones(())}

    def estimate(self, posterior, position, batch, state):
        slope, beta = jax.grad(posterior.log_likelihood), state["strength"]
        here, there = posterior.over_strata((slope(position, batch), slope(state["centre"], batch)))
        terms = (posterior.prior_gradient(position), state["total"], here, there)
        gradient = jax.tree.map(lambda p, total, h, t: p + beta * total + h - beta * t, *terms)
        products = [sum(jax.tree.leaves(jax.tree.map(jnp.vdot, one, there))) for one in (here, there)]
        worth = jnp.clip(products[0] / (products[1] + 1e-6), 0.0, 1.0)
        return gradient, state | {"strength": beta + self.rate * (worth - beta)}, {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few contracts of the battery instead of all")
    parser.add_argument("--out", default="own_sampler.png", help="where to write the picture")
    options = parser.parse_args()
    own = {"dynamics": KickRubDrift(), "gradient": LearntStrength()}
    reports = {}
    for part, thing in own.items():
        checks = ["state", "continuing", "unbiased", "target", "law"] if options.quick else None
        reports[part] = check_sampler(partial(sgmcmc.sampler_setup, name=type(thing).__name__, **{part: thing}), checks=checks)
        print(reports[part], end="\n\n")

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    y = rng.random(10_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))

    def log_lik(params, batch):
        return -jnp.logaddexp(0.0, jnp.where(batch["y"], -1, 1) * (batch["X"] @ params["beta"])).sum()

    data = {"X": X, "y": y}
    sampler = sgmcmc.sampler_setup(log_lik, data, {"beta": np.zeros(3)}, 1e-4, start="mode", minibatch_size=200, **own)
    out = sampler.run(sampler.init(seed=1, n_chains=4), 4_000, burn_in=500)
    print(out.summary())
    out.plot().savefig(options.out)
    print(f"picture: {options.out}")
