"""What follows from the parameters by the model's own words, as draws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np

from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import tree_map

if TYPE_CHECKING:
    from sgmcmc.results.result import Result

AT_ONCE = 256
"""Draws that are worked on together."""


def deterministic(result: Result) -> Result:
    """As `Result.deterministic` says."""
    function = None if result.model is None else result.model.deterministic
    if function is None:
        how = "a function deterministic(params) of what follows from them, a dict by name"
        raise InputError(f"this result's model says of nothing that it follows from the parameters; give sgmcmc.Model(...) {how}")
    if result.draws is None:
        raise InputError("this result kept no draws; leave keep out, or keep=Expectation(model.deterministic)")
    leading = np.shape(jax.tree.leaves(result.draws)[0])[: 1 + result.chained]
    one_axis = tree_map(lambda x: np.reshape(x, (-1, *x.shape[len(leading) :])), result.draws)
    found = jax.jit(lambda draws: jax.lax.map(function, draws, batch_size=AT_ONCE))(one_axis)
    draws = {name: np.asarray(values).reshape(*leading, *values.shape[1:]) for name, values in found.items()}
    return replace(result, draws=draws, pairs=None)
