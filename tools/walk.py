"""How far a reader walks: the files and functions of the library that a call passes, and how often it changes file.

    python tools/walk.py            # both calls
    python tools/walk.py sgld -v    # one of them, with its files in the order they are entered

Counted are calls of named functions in the caller's thread, as Python's profiler sees them; lambdas and comprehensions belong
to the function they stand in.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgmcmc

ROOT = str(Path(sgmcmc.__file__).parent)
RNG = np.random.default_rng(0)


def sgld() -> None:
    """A hundred iterations of `sgld` on the mean of 10,000 numbers."""

    def log_lik(params: Any, batch: Any) -> jax.Array:
        return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()

    data = {"x": RNG.normal(1.0, 1.0, 10_000).astype(np.float32)}
    sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 1e-5, minibatch_size=100, n_iters=100, seed=1, progress=False)


def sample() -> None:
    """`sample` on a logistic regression of 20,000 rows."""
    X = RNG.standard_normal((20_000, 3), np.float32)
    y = RNG.random(20_000) < 1 / (1 + np.exp(-(X @ np.array([0.5, -1.0, 0.0]))))

    def log_lik(params: Any, batch: Any) -> jax.Array:
        eta = batch["X"] @ params["beta"]
        return jax.nn.log_sigmoid(jnp.where(batch["y"], eta, -eta)).sum()

    def log_prior(params: Any) -> jax.Array:
        return -0.5 * (params["beta"] ** 2).sum()

    sgmcmc.sample(log_lik, {"X": X, "y": y}, {"beta": np.zeros(3)}, log_prior=log_prior, seed=1, progress=False)


def walk(call: Callable[[], None]) -> list[tuple[str, str]]:
    """The file and the name of every function of ours that was called, in order."""
    passed: list[tuple[str, str]] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            passed.append((code.co_filename[len(ROOT) + 1 :], code.co_qualname))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return passed


def main() -> None:
    calls = {"sgld": sgld, "sample": sample}
    for name in [name for name in sys.argv[1:] if name in calls] or calls:
        passed = walk(calls[name])
        files = list(dict.fromkeys(file for file, _ in passed))
        changes = sum(before[0] != after[0] for before, after in itertools.pairwise(passed))
        print(f"{name}: {len(files)} files, {len(set(passed))} functions, {changes} changes of file")
        if "-v" in sys.argv:
            print("".join(f"  {file}\n" for file in files), end="")


if __name__ == "__main__":
    main()
