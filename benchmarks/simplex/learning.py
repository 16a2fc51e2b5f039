"""How well topics are learnt, by SCIR, SGRLD and variational Bayes: the perplexity of words left out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.simplex.topics import MIXED, SPARSE, TOPICS, Corpus, chances, log_lik, log_prior, perplexity, start
from sgmcmc import constraints

BATCH, STEPS, EVERY = 50, 2000, 50


def by_chain(dynamics: str, stepsize: float, corpus: Corpus, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """Of the average of the predictions of the second half of a chain, and along the way."""
    begun = time.perf_counter()
    sampler = sgmcmc.sampler_setup(
        log_lik, {"words": corpus.train}, start(seed), stepsize, dynamics=dynamics, log_prior=log_prior,
        constraints={"topics": constraints.simplex}, minibatch_size=BATCH, progress=False,
    )  # fmt: skip
    path, late = [], []
    for state in sampler.iterate(sampler.init(seed=seed, progress=False), steps, every=EVERY, progress=False):
        predicted = np.asarray(chances(state.params["topics"], corpus.seen), np.float64)
        path.append(perplexity(predicted, corpus.unseen))
        if 2 * int(state.step) > steps:
            late.append(predicted)
    average = perplexity(np.mean(late, axis=0), corpus.unseen)
    return {"average": average, "last": path[-1], "path": path, "seconds": time.perf_counter() - begun}


def by_variational_bayes(corpus: Corpus, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """scikit-learn's, online, on as many minibatches."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        TOPICS, doc_topic_prior=MIXED, topic_word_prior=SPARSE, total_samples=len(corpus.train), random_state=seed
    )
    rng, path, seconds = np.random.default_rng(seed), [], 0.0
    for number in range(1, steps + 1):
        begun = time.perf_counter()
        model.partial_fit(corpus.train[rng.choice(len(corpus.train), BATCH, replace=False)])
        seconds += time.perf_counter() - begun
        if number % EVERY == 0:
            topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
            path.append(perplexity(chances(topics.astype(np.float32), corpus.seen), corpus.unseen))
    return {"average": path[-1], "last": path[-1], "path": path, "seconds": seconds}
