"""A topic model of documents made on the spot: the log likelihood of its topics, and the perplexity of words left out."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma

TOPICS, WORDS, LENGTH = 10, 300, 80
"""Topics, words in the dictionary, and words in a document."""

SPARSE, MIXED = 0.05, 0.3
"""Dirichlet priors of the words of a topic and of the topics of a document."""

ROUNDS = 20
"""Of finding a document's topics; they settle in fewer."""


class Corpus(NamedTuple):
    """Counts of words, documents first: to learn from, and of documents left out the one half of the words and the other."""

    train: np.ndarray
    seen: np.ndarray
    unseen: np.ndarray
    topics: np.ndarray


def corpus(documents: int, left_out: int = 300, seed: int = 0) -> Corpus:
    """Documents of a topic model."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(WORDS, SPARSE), TOPICS)
    chances = rng.dirichlet(np.full(TOPICS, MIXED), documents + left_out) @ topics
    train = rng.multinomial(LENGTH, chances[:documents])
    seen, unseen = (rng.multinomial(LENGTH // 2, chances[documents:]) for _ in range(2))
    return Corpus(*(part.astype(np.float32) for part in (train, seen, unseen)), topics)


def topics_of(documents: Any, topics: Any) -> Any:
    """The shapes of the Dirichlet law of each document's topics, mean field, as variational Bayes has them."""

    def again(_: int, shapes: Any) -> Any:
        weights = jnp.exp(digamma(shapes))
        return MIXED + weights * ((documents / (weights @ topics)) @ topics.T)

    return jax.lax.fori_loop(0, ROUNDS, again, jnp.ones((len(documents), TOPICS)))


def log_lik(params: Any, batch: Any) -> Any:
    """Of the words, where the topics of documents are found for the topics as they stand."""
    topics, documents = params["topics"], batch["words"]
    shapes = topics_of(documents, topics)
    weights = jnp.exp(digamma(shapes) - digamma(shapes.sum(axis=1, keepdims=True)))
    return (documents * jnp.log(jax.lax.stop_gradient(weights) @ topics)).sum()


def log_prior(params: Any) -> Any:
    """Sparse topics."""
    return (SPARSE - 1) * jnp.log(params["topics"]).sum()


def start(seed: int) -> dict[str, np.ndarray]:
    """Topics that differ a little."""
    return {"topics": np.random.default_rng(seed).dirichlet(np.full(WORDS, 10.0), TOPICS)}


@jax.jit
def chances(topics: Any, seen: Any) -> Any:
    """Of every word in the other half of each document."""
    shapes = topics_of(seen, topics)
    return (shapes / shapes.sum(axis=1, keepdims=True)) @ topics


def perplexity(chances: Any, unseen: Any) -> float:
    """Of words with such chances."""
    return float(np.exp(-(unseen * np.log(np.asarray(chances, np.float64))).sum() / unseen.sum()))
