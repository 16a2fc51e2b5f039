"""The exact law of every affine dynamics with every estimator, from the library's own steps and again from the formulas.

On a Gaussian an iteration of such a pair is affine in all that it carries, for each choice of minibatches. So its stationary law
follows from all of these: once with the coefficients of the library's kernel, once with those of the formulas as they are written
below, in NumPy, on other variables. `python -m tools.family` prints the variance over the truth, and to how many digits the two
agree; `--write` puts it into docs/methods/family.md.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import sgmcmc
from sgmcmc.algorithms import (
    BAOA,
    OBABO,
    SAGA,
    SVRG,
    ControlVariate,
    Importance,
    Langevin,
    Minibatch,
    PaperHamiltonian,
    PersistentHamiltonian,
    SecondOrder,
    SymmetricHamiltonian,
)
from sgmcmc.core.trees import Batch, PyTree, split

PAGE = Path(__file__).parents[1] / "docs" / "methods" / "family.md"
ROWS = np.array([-1.1, 0.2, 0.6, 1.7])
N, n, EPS, ALPHA, L = len(ROWS), 2, 0.1, 0.3, 2
Q = np.array([0.4, 0.1, 0.2, 0.3])
"""Chances of rows by importance."""

Choice = tuple[float, np.ndarray, np.ndarray]
"""Of a minibatch: its probability, its rows, what each counts for."""

ALIKE: list[Choice] = [(1 / 6, np.array(pair), np.full(n, N / n)) for pair in itertools.combinations(range(N), n)]
BY_Q: list[Choice] = [(Q[i] * Q[j], np.array([i, j]), 1 / (n * Q[[i, j]])) for i in range(N) for j in range(N)]

DYNAMICS = {
    "`Langevin`": Langevin(), "`SymmetricHamiltonian`": SymmetricHamiltonian(ALPHA, L),
    "`PaperHamiltonian`": PaperHamiltonian(ALPHA, L), "`PersistentHamiltonian`": PersistentHamiltonian(ALPHA),
    "`BAOA`": BAOA(ALPHA), "`OBABO`": OBABO(ALPHA),
}  # fmt: skip
ESTIMATORS: dict[str, dict[str, Any]] = {
    "plain": {"gradient": Minibatch()}, "`ControlVariate`": {"gradient": ControlVariate()},
    "`SecondOrder`": {"gradient": SecondOrder()},
    "`SVRG`": {"gradient": SVRG()}, "`SAGA`": {"gradient": SAGA()}, "`Importance`": {"rows": Importance(Q, uniform_share=0.0)},
}  # fmt: skip


def stationary(iterations: list[tuple[float, np.ndarray, np.ndarray]]) -> float:
    """The variance of the first number under s' = M s + B z, where (p, M, B) are drawn with probability p and s ends with a 1."""
    size = iterations[0][1].shape[0]
    step, injected = np.zeros((size**2, size**2)), np.zeros((size, size))
    for p, M, B in iterations:
        step += p * np.kron(M, M)
        injected += p * B @ B.T
    a, b = np.eye(size**2 - 1) - step[:-1, :-1], injected.ravel()[:-1] + step[:-1, -1]
    S = np.append(np.linalg.solve(a, b), 1.0).reshape(size, size)
    return float(S[0, 0] - S[0, -1] ** 2)


def affine(f: Callable[[np.ndarray, np.ndarray], np.ndarray], size: int, noises: int) -> tuple[np.ndarray, np.ndarray]:
    """M and B of an affine function, from what it does with unit vectors."""
    zero, quiet = np.zeros(size), np.zeros(noises)
    still = f(zero, quiet)
    M = np.zeros((size + 1, size + 1))
    M[:size, :size] = np.stack([f(unit, quiet) - still for unit in np.eye(size)], axis=1)
    M[:size, size], M[size, size] = still, 1.0
    B = np.zeros((size + 1, noises))
    B[:size] = np.stack([f(zero, unit) - still for unit in np.eye(noises)], axis=1)
    return M, B


def of_library(dynamics: Any, parts: dict[str, Any]) -> float:
    """From the library's kernel, row by row and minibatch by minibatch."""

    def log_lik(theta: Any, batch: Any) -> Any:
        return -0.5 * ((batch["x"] - theta) ** 2).sum()

    sampler = sgmcmc.sampler_setup(
        log_lik, {"x": ROWS}, 0.0, EPS, dynamics=dynamics, minibatch_size=n, start="params", progress=False, **parts
    )
    kernel, begun = sampler.kernel, sampler.init(seed=1, progress=False)
    carried = begun.estimator["table"] if isinstance(kernel.estimator, SAGA) else ()  # the sum is the table's
    numbers, restore = ravel_pytree((begun.position, begun.gradient, begun.auxiliary, carried))
    like = jax.ShapeDtypeStruct(begun.position.shape, begun.position.dtype)

    def iteration(s: Any, z: Any, index: Any, weight: Any) -> Any:
        position, gradient, auxiliary, table = restore(s)
        state = replace(begun, position=position, gradient=gradient, auxiliary=auxiliary)
        if isinstance(kernel.estimator, SAGA):
            state = replace(state, estimator={"table": table, "sum": table.sum(), "lost": jnp.zeros(())})

        def batch_of(leap: Any) -> Batch:
            counts = weight[leap] if "rows" in parts else weight[leap, 0]
            return Batch({"x": jnp.asarray(ROWS)[index[leap]]}, counts, index[leap])

        after = kernel.step(state, batch_of, split(z[:, None], like))
        kept: PyTree = after.estimator["table"] if isinstance(kernel.estimator, SAGA) else ()
        return ravel_pytree((after.position, after.gradient, after.auxiliary, kept))[0]

    moved = jax.jit(iteration)
    minibatches = list(itertools.product(BY_Q if "rows" in parts else ALIKE, repeat=dynamics.leaps))
    found = []
    for chosen in minibatches:
        p, index, weight = np.prod([one[0] for one in chosen]), *(np.stack([one[k] for one in chosen]) for k in (1, 2))
        step = affine(lambda s, z, i=index, w=weight: np.asarray(moved(s, z, i, w)), len(numbers), kernel.noises)
        found.append((float(p), *step))
    return stationary(found)


# The formulas. What is carried: θ, ĝ, ν, and where each row was last looked at.


def gradient_of(name: str, theta: float, visited: np.ndarray, index: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    if name == "`SAGA`":
        seen, now = visited.copy(), (ROWS - visited).sum() + weight @ (visited[index] - theta)
        seen[index] = theta
        return now, seen
    if name in ("plain", "`Importance`"):
        return float(weight @ (ROWS[index] - theta)), visited
    return float((ROWS - theta).sum()), visited  # differences to any centre are the same for all rows here


def formula(move: str, look: str, s: np.ndarray, z: np.ndarray, chosen: tuple[Choice, ...]) -> np.ndarray:
    theta, g, v, visited = s[0], s[1], s[2], s[3:]
    keep, root = 1 - ALPHA, np.sqrt(EPS)
    loud = np.sqrt(1 - keep**2) * root
    if move in ("`SymmetricHamiltonian`", "`PaperHamiltonian`"):
        v = root * z[L]
    for leap, (_, index, weight) in enumerate(chosen):
        if move == "`Langevin`":
            theta = theta + EPS / 2 * g + root * z[leap]
        elif move == "`BAOA`":
            kicked = v + EPS * g
            v = keep * kicked + loud * z[leap]
            theta = theta + (kicked + v) / 2
        elif move == "`PersistentHamiltonian`":
            v = keep * v + EPS * g + np.sqrt(2 * ALPHA) * root * z[leap]
            theta = theta + v
        elif move == "`PaperHamiltonian`":
            theta = theta + v
        else:
            v = v + EPS / 2 * g
            theta = theta + v
        g, visited = gradient_of(look, theta, visited, index, weight)
        if move == "`PaperHamiltonian`":
            v = keep * v + EPS * g + np.sqrt(2 * ALPHA) * root * z[leap]
        elif move in ("`SymmetricHamiltonian`", "`OBABO`"):
            v = keep * (v + EPS / 2 * g) + loud * z[leap]
    return np.array([theta, g, v, *visited])


def of_formulas(move: str, look: str) -> float:
    leaps = DYNAMICS[move].leaps
    minibatches = itertools.product(BY_Q if look == "`Importance`" else ALIKE, repeat=leaps)
    found = []
    for chosen in minibatches:
        step = affine(lambda s, z, c=chosen: formula(move, look, s, z, c), 3 + N, leaps + 1)
        found.append((float(np.prod([one[0] for one in chosen])), *step))
    return stationary(found)


def lines() -> list[list[str]]:
    """A line for each dynamics: the variance over the truth, and the digits of agreement."""
    with jax.enable_x64(True):
        return [[move, *(pair(move, look) for look in ESTIMATORS)] for move in DYNAMICS]


def pair(move: str, look: str) -> str:
    found, expected = of_library(DYNAMICS[move], ESTIMATORS[look]), of_formulas(move, look)
    digits = min(15, -np.log10(abs(found / expected - 1) + 1e-16))
    return f"{found * N:.4f} ({int(digits)})"


def report() -> str:
    header = ["dynamics", *ESTIMATORS]
    rows = [header, ["---", *["--:"] * len(ESTIMATORS)], *lines()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


BEGIN, END = "<!-- python -m tools.family --write -->\n", "<!-- end -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/methods/family.md")
    made = report()
    print(made)
    if parser.parse_args().write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + made + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
