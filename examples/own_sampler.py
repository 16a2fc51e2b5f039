"""A sampler that the library does not have, in one file: its formula, its exact law with a control, the battery, and at work."""

import argparse
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc
from sgmcmc.algorithms import Dynamics, momentum, rescale_momentum
from sgmcmc.algorithms.laws import Directions, inflation
from sgmcmc.testing import check_sampler


@dataclass(frozen=True)
class PushAndDrift(Dynamics):
    """Underdamped Langevin: ν' = c ν + (1+c)/2 ε ĝ(θ) + N(0, (1-c²) ε);  θ' = θ + ν'."""

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


def off(dynamics, law):
    """How far the variance is, at most, from what the theory says: on N(0, 1/A) with gradients of variance V, at c = 0.7."""
    cases = [(eps, A, V) for eps, A in ((0.5, 1.0), (0.03, 40.0)) for V in (0.0, 5.0)]
    return max(abs(inflation(dynamics, e, Directions(np.array([A]), np.array([V])))[0] / law(e, A, V) - 1) for e, A, V in cases)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="a few contracts of the battery instead of all")
parser.add_argument("--out", default="own_sampler.png", help="where to write the picture")
options = parser.parse_args()
exact = off(PushAndDrift(), lambda eps, A, V: (1 + eps * V * (1 + 0.7) / (4 * (1 - 0.7))) / (1 - eps * A / 4))
control = off(PushAndDrift(), lambda eps, A, _: 1 / (1 - eps * A / 4))  # the gradient noise forgotten: must be caught
print(f"law: off by {exact:.0e}, the control by {control:.0e}")
setup = partial(sgmcmc.sampler_setup, dynamics=PushAndDrift(), name="push and drift")
report = check_sampler(setup, checks=["continuing", "unbiased", "target", "law"] if options.quick else None)
print(report)
X, truth = np.random.default_rng(0).normal(size=(10_000, 3)), np.array([1.0, -0.5, 0.0])
data = {"X": X, "y": X @ truth + np.random.default_rng(1).normal(size=10_000)}
sampler = setup(lambda beta, rows: -0.5 * ((rows["y"] - rows["X"] @ beta) ** 2).sum(), data, np.zeros(3), 1e-5, gradient="saga")
out = sampler.run(sampler.init(seed=1, n_chains=4), 4_000, burn_in=500)
out.plot().savefig(options.out)
print(out.summary(), f"picture: {options.out}", sep="\n")
