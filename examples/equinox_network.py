"""An Equinox network as the parameters: one-dimensional regression with `sghmc`, and how sure it is where there are no data.

`eqx.partition` splits a model into its arrays and the rest. The arrays are a tree like any other, so they are the parameters;
`eqx.combine` makes them a model again. Needs Equinox (pip install equinox).
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sgmcmc

BLUE, SKY, VERMILION = "#0072B2", "#56B4E9", "#D55E00"  # told apart by colour-blind readers too

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="shorter chains: seconds")
parser.add_argument("--out", default="equinox_network.png", help="where to write the picture")
options = parser.parse_args()
n_iters = 3_000 if options.quick else 20_000

# A curve seen on two stretches, with noise of known standard deviation, and nothing in between.
noise, n_rows = 0.2, 200
rng = np.random.default_rng(3)
x = np.concatenate([rng.uniform(-2, -0.5, n_rows // 2), rng.uniform(0.7, 2, n_rows // 2)])
y = np.sin(2 * x) + 0.5 * x + noise * rng.standard_normal(n_rows)
dataset = {"x": x[:, None], "y": y}

model = eqx.nn.MLP(in_size=1, out_size="scalar", width_size=30, depth=1, activation=jnp.tanh, key=jax.random.key(3))
params, rest = eqx.partition(model, eqx.is_inexact_array)


def curve(params, x):
    return jax.vmap(eqx.combine(params, rest))(x)


def log_lik(params, batch):
    return -0.5 * (((batch["y"] - curve(params, batch["x"])) / noise) ** 2).sum()


def log_prior(params):  # every weight and bias N(0, 1)
    return -0.5 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


# The draws themselves have 91 numbers each; the curves on a grid are what we want to see.
grid = np.linspace(-3, 3, 121, dtype=np.float32)[:, None]
keep = sgmcmc.Trace(lambda params: curve(params, grid), thin=10)
# Minibatch noise gathers in the momentum: a step size of 2e-5 and the default alpha of 0.01 make the intervals among the data
# more than twice as wide as they should be. Compare with minibatch_size=n_rows when you choose yours.
out = sgmcmc.sghmc(
    log_lik, dataset, params, 5e-6, alpha=0.1, log_prior=log_prior, minibatch_size=100, rows="window",
    burn_in=n_iters // 2, n_iters=n_iters, n_chains=4, keep=keep, seed=3,
)  # fmt: skip
curves = out.kept.reshape(-1, len(grid))

low, lower, middle, upper, high = np.quantile(curves, [0.025, 0.25, 0.5, 0.75, 0.975], axis=0)
among, between, outside = np.interp([-1.25, 0.1, 3.0], grid[:, 0], high - low)
fitted = np.interp(x, grid[:, 0], middle)
residual_sd = float(np.sqrt(np.mean((y - fitted) ** 2)))
network = eqx.combine(jax.tree.map(lambda leaf: leaf[0], out.final_state.params), rest)  # chain 1's last draw, a model again
print(f"residual sd {residual_sd:.3f} (noise {noise}); the last draw of chain 1 at x = 1: {network(jnp.ones(1)):.2f}")
print(f"width of the 95 % interval: {among:.2f} among the data, {between:.2f} between them, {outside:.2f} outside")
print("outside the data the prior speaks, and it knows nothing of this curve: the interval need not hold it")

figure = Figure(figsize=(8, 4.6), layout="constrained")
axes = figure.subplots()
axes.fill_between(grid[:, 0], low, high, color=SKY, alpha=0.35, lw=0, label="95 % of curves")
axes.fill_between(grid[:, 0], lower, upper, color=BLUE, alpha=0.45, lw=0, label="50 % of curves")
axes.plot(grid[:, 0], middle, color=BLUE, lw=2, label="median")
axes.plot(grid[:, 0], np.sin(2 * grid[:, 0]) + 0.5 * grid[:, 0], color=VERMILION, lw=1.6, ls="--", label="true curve")
axes.plot(x, y, ".", color="black", ms=3, label="data")
axes.set(xlabel="x", ylabel="y", title="An Equinox network sampled by sghmc: least sure where there are no data")
axes.spines[["top", "right"]].set_visible(False)
figure.legend(loc="outside lower center", ncols=5, frameon=False)
figure.savefig(options.out, dpi=110)
print(f"picture: {options.out}")
