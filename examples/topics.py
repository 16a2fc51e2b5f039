"""Topics of documents (latent Dirichlet allocation), learnt from minibatches of documents by SCIR.

The words are the 25 pixels of small images, the topics their five rows and five columns, and a document is 60 pixels of a few
of them. What is sampled is the topics' words, ten simplices at once. Which topics a document has is found inside of the log
likelihood, for the topics as they stand; the gradient is then that of the expected counts of words by topic.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from matplotlib.figure import Figure

import sgmcmc
from sgmcmc import constraints

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--quick", action="store_true", help="shorter chains: seconds")
parser.add_argument("--out", default="topics.png", help="where to write the picture")
options = parser.parse_args()
n_iters = 400 if options.quick else 3_000
SIDE, LENGTH, SPARSE, MIXED = 5, 60, 0.1, 0.3

rng = np.random.default_rng(0)
lines = np.eye(SIDE)[:, :, None] * np.ones(SIDE) / SIDE
truth = np.concatenate([lines, lines.transpose(0, 2, 1)]).reshape(2 * SIDE, SIDE**2)
words = rng.multinomial(LENGTH, rng.dirichlet(np.full(2 * SIDE, MIXED), 2_000) @ truth).astype(np.float32)
train, (seen, unseen) = words[:1_800], (half := rng.binomial(words[1_800:].astype(int), 0.5), words[1_800:] - half)


def topics_of(documents, topics):
    """The shapes of the Dirichlet law of each document's topics, by twenty rounds of mean field."""

    def again(_, shapes):
        weights = jnp.exp(digamma(shapes))
        return MIXED + weights * ((documents / (weights @ topics)) @ topics.T)

    return jax.lax.fori_loop(0, 20, again, jnp.ones((len(documents), len(topics))))


def log_lik(params, batch):
    shapes = topics_of(batch["words"], params["topics"])
    weights = jnp.exp(digamma(shapes) - digamma(shapes.sum(axis=1, keepdims=True)))
    return (batch["words"] * jnp.log(jax.lax.stop_gradient(weights) @ params["topics"])).sum()


def log_prior(params):  # Dirichlet(SPARSE) for each topic
    return (SPARSE - 1) * jnp.log(params["topics"]).sum()


@jax.jit
def predicted(topics):
    """The chances of the words left out of each document, given those that are there."""
    shapes = topics_of(jnp.asarray(seen, float), topics)
    return (shapes / shapes.sum(axis=1, keepdims=True)) @ topics


def perplexity(chances):
    return float(np.exp(-(unseen * np.log(chances)).sum() / unseen.sum()))


start = {"topics": rng.dirichlet(np.full(SIDE**2, 5.0), 2 * SIDE)}
found, averaged = {}, {}
for dynamics in ("scir", "sgrld"):
    sampler = sgmcmc.sampler_setup(
        log_lik, {"words": train}, start, 0.3, dynamics=dynamics, log_prior=log_prior, minibatch_size=50,
        constraints={"topics": constraints.simplex}, name=dynamics,
    )  # fmt: skip
    keep = {"chances": sgmcmc.Expectation(lambda params: predicted(params["topics"]), thin=10)}
    out = sampler.run(sampler.init(seed=1), n_iters // 2, burn_in=n_iters // 2, keep=keep)
    found[dynamics] = out
    averaged[dynamics] = perplexity(np.asarray(out.kept["chances"]))

exact = perplexity(np.asarray(predicted(jnp.asarray(truth + 1e-9, float))))
print(f"perplexity of words left out: SCIR {averaged['scir']:.2f}, SGRLD {averaged['sgrld']:.2f},")
print(f"the topics that made them {exact:.2f}, no topics {perplexity(train.mean(axis=0) / train.mean(axis=0).sum()):.2f}")

topics = np.asarray(found["scir"].final_state.params["topics"])
figure = Figure(figsize=(10, 2.6), layout="constrained")
for title, row, values in zip(("true", "SCIR"), figure.subplots(2, 2 * SIDE), (truth, topics), strict=True):
    for axes, topic in zip(row, values, strict=True):
        axes.imshow(topic.reshape(SIDE, SIDE), vmin=0, vmax=0.3, cmap="Blues")
        axes.set(xticks=[], yticks=[])
    row[0].set_ylabel(title)
figure.suptitle("Topics: the true ones, and a draw of SCIR")
figure.savefig(options.out, dpi=110)
print(f"\npicture: {options.out}")
