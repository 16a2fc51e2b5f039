"""A chain too long to store: logistic regression step by step, a test function and the posterior mean on the fly.

The settings are those of section 5.2 of the article on the R package. First a loop of single steps, then the same numbers from
two objects given to `run`. Where covertype cannot be had, and with --quick, made-up rows stand in.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sgmcmc

BLUE, VERMILION = "#0072B2", "#D55E00"  # told apart by colour-blind readers too

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="made-up data and short chains: seconds")
parser.add_argument("--out", default="storage_constraints.png", help="where to write the picture")
options = parser.parse_args()


def made_up(n_rows, seed):
    """A label and 54 columns in [0, 1], like covertype's: ten measurements, a one-hot column of 4 kinds and one of 40."""
    rng = np.random.default_rng(seed)
    kinds = [np.eye(k, dtype=np.float32)[rng.integers(0, k, n_rows)] for k in (4, 40)]
    X = np.hstack([rng.beta(4, 4, (n_rows, 10)), *kinds])
    eta = (X - X.mean(0)) @ rng.normal(0, 2, 54)
    return np.column_stack([rng.random(n_rows) < 1 / (1 + np.exp(-eta)), X]).astype(np.float32)


try:
    matrix, source = (made_up(30_000, seed=13), "made-up") if options.quick else (sgmcmc.get_dataset("covertype"), "covertype")
except sgmcmc.SgmcmcError as error:
    print(f"covertype is not to be had: {error}")
    matrix, source = made_up(200_000, seed=13), "made-up"
dataset, testset = sgmcmc.train_test_split({"X": matrix[:, 1:], "y": matrix[:, 0]}, 10_000, seed=13)


def log_lik(params, batch):
    eta = params["bias"] + batch["X"] @ params["beta"]
    return (batch["y"] * jax.nn.log_sigmoid(eta) + (1 - batch["y"]) * jax.nn.log_sigmoid(-eta)).sum()


def log_prior(params):
    return -(jnp.abs(params["beta"]).sum() + jnp.abs(params["bias"]))


@jax.jit
def log_loss(params):  # the test function: one number instead of 55
    return -log_lik(params, testset) / len(testset["y"])


# Section 5.2 has the step size 2e-5; on covertype that is too large (see logistic_regression.py), so this is section 6.2's.
# The posterior variance goes like 1/N, and the step size with it: on fewer rows than covertype's it may be larger.
params = {"bias": 0.0, "beta": np.zeros(54)}
stepsize = 5e-6 * 571_012 / len(dataset["y"])
sampler = sgmcmc.sgld_setup(log_lik, dataset, params, stepsize, log_prior=log_prior, minibatch_size=500)
n_iters, every = (500, 50) if options.quick else (10_000, 100)

print(f"{source} data: burn-in\niteration  log loss")
state = sampler.init(seed=13)
burn_in_losses = []
for i in range(1, n_iters + 1):
    state = sampler.step(state)
    if i % every == 0:
        burn_in_losses.append(float(log_loss(state.params)))
    if i % (10 * every) == 0:
        print(f"{i:9,d}  {burn_in_losses[-1]:.4f}")
burnt_in = state

# The chain itself: what is stored is the log loss now and then, and a mean that moves a little with every draw.
clock = time.perf_counter()
mean = jax.tree.map(lambda x: np.zeros(x.shape), burnt_in.params)
losses = []
for i in range(1, n_iters + 1):
    state = sampler.step(state)
    mean = jax.tree.map(lambda m, x, i=i: m + (np.asarray(x) - m) / i, mean, state.params)
    if i % every == 0:
        losses.append(float(log_loss(state.params)))
seconds_of_steps = time.perf_counter() - clock

# The same in the compiled loop.
clock = time.perf_counter()
keep = {"log_loss": sgmcmc.Trace(log_loss, thin=every), "mean": sgmcmc.Moments()}
out = sampler.run(burnt_in, n_iters, keep=keep)
seconds_of_run = time.perf_counter() - clock

apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), mean, out.kept["mean"].mean)
worst_mean, worst_loss = max(jax.tree.leaves(apart)), np.abs(losses - out.kept["log_loss"]).max()
print(f"log loss of the test set, mean of {len(losses)} draws: {np.mean(losses):.4f}")
print(f"log loss at the posterior mean:            {log_loss(mean):.4f}")
print(f"single steps {seconds_of_steps:.1f} s, run with keep {seconds_of_run:.1f} s (compiling included)")
print(f"largest difference between the two: posterior mean {worst_mean:.1e}, log loss {worst_loss:.1e}")
assert worst_mean < 1e-5, "the two ways must agree to rounding"
assert worst_loss < 1e-5, "the two ways must agree to rounding"

figure = Figure(figsize=(8, 4.2), layout="constrained")
axes = figure.subplots()
iterations = every * np.arange(1, 2 * len(losses) + 1)
axes.axvspan(0, n_iters, color="0.92", lw=0, label="burn-in")
axes.plot(iterations, burn_in_losses + losses, lw=1.4, color=BLUE, label="single steps")
axes.plot(iterations[len(losses) :], out.kept["log_loss"], "o", ms=4, mfc="none", color=VERMILION, label="run with keep")
axes.axhline(log_loss(mean), color="black", lw=1.2, ls="--", label="at the posterior mean")
axes.set(xlabel="iteration", ylabel="log loss of the test set (nats per row)", xlim=(0, 2 * n_iters))
axes.set_title(f"sgld, {source} data, {len(dataset['y']):,} rows: two loops, one chain")
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.savefig(options.out, dpi=110)
print(f"picture: {options.out}")
