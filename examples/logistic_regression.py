"""Logistic regression on covertype: whole chains of `sgld` and `sgldcv`, and the log loss of a test set along them.

The settings are those of section 5.1 of the article on the R package. Where covertype cannot
be had, and with --quick, made-up rows of the same shape stand in.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sgmcmc

BLUE, ORANGE, VERMILION = "#0072B2", "#E69F00", "#D55E00"  # told apart by colour-blind readers too

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="made-up data and short chains: seconds")
parser.add_argument("--out", default="logistic_regression.png", help="where to write the picture")
options = parser.parse_args()


# The data: a matrix with the label (0 or 1) first, then 54 columns in [0, 1].
def made_up(n_rows, seed):
    """Ten measurements, a one-hot column of 4 kinds and one of 40, as in covertype; labels from known coefficients."""
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

everything = {"X": matrix[:, 1:], "y": matrix[:, 0]}
dataset, testset = sgmcmc.train_test_split(everything, 10_000, seed=13)
print(f"{source} data: {len(dataset['y']):,} rows to learn from, {len(testset['y']):,} to test on")


# The model: P(y = 1) = 1 / (1 + exp(-bias - x beta)), a Laplace(0, 1) prior on every coefficient.
def log_lik(params, batch):
    eta = params["bias"] + batch["X"] @ params["beta"]
    return (batch["y"] * jax.nn.log_sigmoid(eta) + (1 - batch["y"]) * jax.nn.log_sigmoid(-eta)).sum()


def log_prior(params):
    return -(jnp.abs(params["beta"]).sum() + jnp.abs(params["bias"]))


def log_loss(params):
    return -log_lik(params, testset) / len(testset["y"])


# The chains. Section 5.1 gives sgld 2e-5; section 6.2 gives it 5e-6, which is also what sgldcv has here. The posterior
# variance goes like 1/N, and the step size with it: on fewer rows than covertype's it may be larger.
unit = 571_012 / len(dataset["y"])
params = {"bias": 0.0, "beta": np.zeros(54)}
n_iters = 1_000 if options.quick else 10_000
common = {"log_prior": log_prior, "minibatch_size": 500, "n_iters": n_iters, "seed": 13}

chains = {
    f"sgld, step size {2e-5 * unit:.2g}": sgmcmc.sgld(log_lik, dataset, params, 2e-5 * unit, **common),
    f"sgld, step size {5e-6 * unit:.2g}": sgmcmc.sgld(log_lik, dataset, params, 5e-6 * unit, **common),
    f"sgldcv, step size {5e-6 * unit:.2g}": sgmcmc.sgldcv(log_lik, dataset, params, 5e-6 * unit, burn_in=n_iters // 10, **common),
}

# The log loss of every tenth draw: the same function, mapped over draws.
log_losses = jax.jit(lambda draws: jax.lax.map(log_loss, draws))
losses = {name: log_losses(jax.tree.map(lambda x: x[9::10], out.draws)) for name, out in chains.items()}
iterations = np.arange(10, n_iters + 1, 10)
guess = float(np.log(2))  # the log loss of saying one half to everything

print("log loss over the second half of the chain")
for name, loss in losses.items():
    mean, sd = loss[len(loss) // 2 :].mean(), loss[len(loss) // 2 :].std()
    verdict = "worse than guessing one half: the step size is too large for these rows" if mean > guess else ""
    print(f"  {name:24s} {mean:.4f}  sd {sd:.4f}  {verdict}".rstrip())

figure = Figure(figsize=(10, 4.2), layout="constrained")
left, right = figure.subplots(1, 2)
for (name, loss), colour, width in zip(losses.items(), (ORANGE, BLUE, "black"), (0.9, 0.9, 1.6), strict=True):
    left.plot(iterations, loss, lw=width, color=colour, label=name)
    if name != f"sgld, step size {2e-5 * unit:.2g}":
        right.plot(iterations, loss, lw=width, color=colour)
left.axhline(guess, color=VERMILION, lw=1.4, ls="--", label="guessing one half (log 2)")
left.set(yscale="log", title="All three", ylabel="log loss of the test set (nats per row)")
ticks = [tick for tick in (0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5) if tick < 1.3 * max(loss.max() for loss in losses.values())]
left.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
left.set_yticks([], minor=True)
right.set(title="The smaller step size only, closer", ylabel="log loss (nats per row)")
for axes in (left, right):
    axes.set_xlabel("stored iteration")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
for line in figure.legend(loc="outside lower center", ncols=4, frameon=False).get_lines():
    line.set_linewidth(2)
figure.suptitle(f"Logistic regression, {source} data, {len(dataset['y']):,} rows, minibatches of 500")
figure.savefig(options.out, dpi=110)
print(f"picture: {options.out}")
