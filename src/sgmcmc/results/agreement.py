"""Whether chains agree in what they say of rows: no two chains of a network share their parameters, and need not."""

from __future__ import annotations

import jax
import numpy as np

from sgmcmc.core.trees import PyTree, Rows, tree_map
from sgmcmc.problem.passes import compiled
from sgmcmc.problem.posterior import Posterior, make_transform
from sgmcmc.results.diagnostics import mixing
from sgmcmc.results.words import AGREEING, APART, Decisions
from sgmcmc.rows.gathering import gather_all
from sgmcmc.rows.table import Table

ROWS, DRAWS, TOGETHER = 200, 100, 16
"""Rows that are looked at, draws of each chain, and how many of these at once."""

FEW = 0.02
"""Of the rows, on which chains may differ and agree all the same: of so many R-hats some are large by chance."""


def agreement(posterior: Posterior, table: Table, draws: PyTree, seed: int) -> Decisions:
    """In a sentence, from the log likelihood of some rows along the chains; nothing of draws too few to tell."""
    chains, made = jax.tree.leaves(draws)[0].shape[:2]
    if made < 4:
        return Decisions()
    kept = np.unique(np.linspace(0, made - 1, min(DRAWS, made)).astype(int))
    some = tree_map(lambda x: x[:, kept].reshape(-1, *x.shape[2:]), draws)
    index = np.sort(np.random.default_rng(seed).choice(table.n_rows, min(ROWS, table.n_rows), replace=False))
    of_params = posterior.behind(make_transform(None, some))
    values = np.asarray(compiled(_of_rows, of_params)(some, gather_all(table, index)), np.float64)
    found = mixing(values.reshape(chains, len(kept), -1))[1]
    middle, share = float(np.nanmedian(found)), float(np.mean(~(found <= APART)))
    verdict = "they agree in what they predict, whatever their parameters" if share <= FEW else "they do not predict alike"
    sentence = (
        f"Of the log likelihoods of {len(index)} rows along the chains R-hat is {middle:.3g} in the middle, and above {APART} in "
        f"{share:.0%}: {verdict}."
    )
    return Decisions().and_then(AGREEING, middle, sentence)


def _of_rows(posterior: Posterior, draws: PyTree, rows: Rows) -> jax.Array:
    return jax.lax.map(lambda params: posterior.each_row(params, rows), draws, batch_size=TOGETHER)
