"""A Bayesian neural network for handwritten digits: `sgld`, precisions kept positive, predictions averaged on the fly.

The network, the priors and the settings are those of section 6.3 of the article on the R package, with fewer iterations. A chain
of its 79,510 weights is not stored; the mean of its predictions is. Where MNIST cannot be had,
and with --quick, made-up images stand in.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sgmcmc
from sgmcmc import constraints, distributions

BLUE, VERMILION = "#0072B2", "#D55E00"  # told apart by colour-blind readers too

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="made-up images, a small network, a short chain: seconds")
parser.add_argument("--out", default="neural_network.png", help="where to write the picture")
options = parser.parse_args()


def made_up(n_train, n_test, n_pixels, seed):
    """Images of ten classes, each a random template under heavy noise, in the form of `get_dataset("mnist")`."""
    rng = np.random.default_rng(seed)
    templates = rng.random((10, n_pixels)) < 0.3
    parts = {}
    for part, n in (("train", n_train), ("test", n_test)):
        digit = rng.integers(0, 10, n)
        images = np.clip(templates[digit] + rng.normal(0, 0.8, (n, n_pixels)), 0, 1)
        parts[part] = {"images": images.astype(np.float32), "labels": np.eye(10, dtype=np.float32)[digit]}
    return parts


try:
    images = made_up(5_000, 1_000, 64, seed=1) if options.quick else sgmcmc.get_dataset("mnist")
    source = "made-up" if options.quick else "MNIST"
except sgmcmc.SgmcmcError as error:
    print(f"MNIST is not to be had: {error}")
    images, source = made_up(20_000, 5_000, 784, seed=1), "made-up"
dataset, testset = ({"X": images[part]["images"], "y": images[part]["labels"]} for part in ("train", "test"))
digits = testset["y"].argmax(axis=1)


# P(digit) = softmax(softmax(x B + b) A + a).
def log_probabilities(params, X):
    hidden = jax.nn.softmax(X @ params["B"] + params["b"])
    return jax.nn.log_softmax(hidden @ params["A"] + params["a"])


def log_lik(params, batch):
    return (batch["y"] * log_probabilities(params, batch["X"])).sum()


# The weights of each block are N(0, 1/lambda), lambda ~ Gamma(1, 1).
def log_prior(params):
    total = 0.0
    for weights in ("A", "B", "a", "b"):
        precision = params[f"lambda_{weights}"]
        total += distributions.Normal(0, 1 / jnp.sqrt(precision)).log_prob(params[weights]).sum()
        total += distributions.Gamma(1, 1).log_prob(precision)
    return total


n_hidden, n_iters = (20, 1_500) if options.quick else (100, 5_000)
rng = np.random.default_rng(1)
shapes = {"A": (n_hidden, 10), "B": (dataset["X"].shape[1], n_hidden), "a": (10,), "b": (n_hidden,)}
params = {name: rng.standard_normal(shape) for name, shape in shapes.items()} | {f"lambda_{name}": 1.0 for name in shapes}
positive = {f"lambda_{name}": constraints.positive for name in shapes}  # sampled as logarithms; you see the precisions


def error_and_loss(log_probability):  # share of digits taken for another, and log loss
    wrong = (log_probability.argmax(axis=1) != digits).mean()
    return jnp.stack([wrong, -(testset["y"] * log_probability).sum(axis=1).mean()])


# Half of the chain is burn-in. Of the rest every tenth draw is looked at (predicting the test set costs more than a step), of
# those every fifth for the single draws. The step size is the article's for 55,000 images; the
# posterior variance goes like 1/N, and the step size with it, so on fewer it may be larger.
keep = {
    "single draws": sgmcmc.Trace(lambda params: error_and_loss(log_probabilities(params, testset["X"])), thin=5),
    "precisions": sgmcmc.Trace(lambda params: {name: params[name] for name in positive}, thin=5),
    "probability": sgmcmc.Expectation(lambda params: jnp.exp(log_probabilities(params, testset["X"]))),
}
out = sgmcmc.sgld(
    log_lik, dataset, params, 1e-4 * 55_000 / len(dataset["y"]), log_prior=log_prior, constraints=positive,
    minibatch_size=500, burn_in=n_iters, n_iters=n_iters, thin=10, keep=keep, seed=1,
)  # fmt: skip
single = out.kept["single draws"]
averaged = np.asarray(error_and_loss(jnp.log(out.kept["probability"])))

print(f"{source} images: {len(dataset['y']):,} to learn from, {len(digits):,} to test on; {n_iters:,} iterations after burn-in")
for column, name in enumerate(("test error", "log loss")):
    values = single[:, column]
    print(f"{name}: single draws {values.mean():.4f} ({values.min():.4f} to {values.max():.4f})  averaged {averaged[column]:.4f}")
early, late = single[: len(single) // 2, 1].mean(), single[len(single) // 2 :, 1].mean()
if early - late > 0.01:
    print(f"the chain has not settled: log loss {early:.3f} in the first half of the stored draws, {late:.3f} in the second")
for name, values in out.kept["precisions"].items():
    print(f"{name}: {values.min():.3g} to {values.max():.3g}")

figure = Figure(figsize=(10, 4), layout="constrained")
iterations = n_iters + 50 * np.arange(1, len(single) + 1)
panels = zip(figure.subplots(1, 2), (100 * single.T[0], single.T[1]), (100 * averaged[0], averaged[1]), strict=True)
for (axes, draws, mean), label in zip(panels, ("test error (% of images)", "log loss (nats per image)"), strict=True):
    axes.plot(iterations, draws, "o-", ms=3, lw=1, color=BLUE, label="single draws")
    axes.axhline(mean, color=VERMILION, lw=2, label="predictions averaged over draws")
    axes.set(xlabel="iteration", ylabel=label)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.2)
    axes.spines[["top", "right"]].set_visible(False)
figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
figure.suptitle(f"Bayesian network of {n_hidden} hidden units, {source} test images")
figure.savefig(options.out, dpi=110)
print(f"picture: {options.out}")
