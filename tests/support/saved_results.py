"""Another process: reads a saved result and says what is in it, to be compared with what this process has."""

import sys
from dataclasses import asdict, is_dataclass

import jax

import sgmcmc
from sgmcmc.core.sameness import digest


def account(fit):
    """Everything about a result in text: arrays by type and checksum."""
    kept = {name: asdict(one) if is_dataclass(one) else one for name, one in fit.kept.items()}
    trees = {"draws": fit.draws, "state": fit.final_state, "kept": kept, "pairs": fit.pairs and asdict(fit.pairs)}
    leaves = jax.tree_util.tree_flatten_with_path(trees)[0]
    lines = [f"{jax.tree_util.keystr(path)} {leaf if isinstance(leaf, str) else digest(leaf)}" for path, leaf in leaves]
    lines += [repr(fit.settings), str(fit.decisions), repr(fit.names), repr(fit.weights), str(fit.chained)]
    return "\n".join([*lines, str(fit.health()) if fit.pairs else "", fit.summary().to_string()])


if __name__ == "__main__":
    sys.stdout.write(account(sgmcmc.load(sys.argv[1])))
