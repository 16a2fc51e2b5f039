"""The job of the network benchmark: SGLD for the two-layer network of the article on MNIST, in minibatches of 500 images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.common.problem import MINIBATCH, Dataset
from reproduction.models import neural_network as model
from sgmcmc.data.datasets import FOLDER_SETTING
from sgmcmc.data.datasets.catalogue import MNIST

REAL, RANDOM = "real MNIST", "random data of MNIST's shape"
ROWS, PIXELS, CLASSES = 55_000, 784, 10
STEPSIZE = 1e-5
START = model.start(2)  # its precisions are large enough for this step size

KEEP = sgmcmc.Trace(lambda params: params["lambdaA"])
"""One object for all runs: another one would compile anew."""


def images() -> tuple[str, Dataset]:
    """What the training data are, and the data."""
    folder = Path(os.environ.get(FOLDER_SETTING) or "nowhere")
    if all((folder / file.name).is_file() for file in MNIST):
        train = sgmcmc.get_dataset("mnist", download=False)["train"]
        return REAL, {"X": train["images"], "y": train["labels"]}
    random = np.random.default_rng(1)
    X = random.random((ROWS, PIXELS), np.float32)
    return RANDOM, {"X": X, "y": np.eye(CLASSES, dtype=np.float32)[random.integers(CLASSES, size=ROWS)]}


def network_sampler(data: Dataset) -> sgmcmc.Sampler:
    return sgmcmc.sgld_setup(model.log_lik, data, START, STEPSIZE, log_prior=model.log_prior, minibatch_size=MINIBATCH)


def log_posterior(params: Any, rows: Any, n_rows: int) -> Any:
    """Its estimate from a minibatch."""
    return model.log_prior(params) + n_rows / MINIBATCH * model.log_lik(params, rows).sum()
