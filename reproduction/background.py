"""The small facts of section 2 about samplers that look at all the data: MALA, Gibbs, and what they need."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import sgmcmc
from reproduction.rivals import nuts, rival
from reproduction.workbook import Figures, Workbook
from sgmcmc.results.diagnostics import mixing

MALA_STEPS = (0.01, 0.1, 1.0, 2.0, 4.0, 16.0)
"""Step sizes in units of the posterior variance."""

CORRELATION = 0.99


def measure(book: Workbook) -> Figures:
    return book.part("background", lambda: _measure(200 if book.quick else 2_000))


def mala(step: float, n_iters: int, chains: int, seed: int, constant: float = 0.0) -> tuple[np.ndarray, float]:
    """MALA on a standard normal whose log density has a constant added: draws (chains first) and the acceptance rate."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(chains)
    draws, accepted = np.empty((chains, n_iters)), 0

    def log_density(x: np.ndarray) -> np.ndarray:
        return constant - 0.5 * x**2

    def log_proposal(new: np.ndarray, old: np.ndarray) -> np.ndarray:
        return -0.5 * (new - old + 0.5 * step * old) ** 2 / step

    for t in range(n_iters):
        new = theta - 0.5 * step * theta + np.sqrt(step) * rng.standard_normal(chains)
        log_ratio = log_density(new) + log_proposal(theta, new) - log_density(theta) - log_proposal(new, theta)
        accept = np.log(rng.random(chains)) < log_ratio
        theta = np.where(accept, new, theta)
        accepted += int(accept.sum())
        draws[:, t] = theta
    return draws, accepted / (chains * n_iters)


def unadjusted(step: float, n_iters: int, chains: int, seed: int) -> np.ndarray:
    """The same Langevin proposals, all of them accepted."""
    rng = np.random.default_rng(seed)
    theta, draws = rng.standard_normal(chains), np.empty((chains, n_iters))
    for t in range(n_iters):
        theta = theta - 0.5 * step * theta + np.sqrt(step) * rng.standard_normal(chains)
        draws[:, t] = theta
    return draws


def random_walk_acceptance(step: float, dimension: int, n_iters: int, seed: int, *, langevin: bool) -> float:
    """Acceptance rate on a standard normal of some dimension: of a random walk, or of MALA."""
    rng = np.random.default_rng(seed)
    theta, total, pull = rng.standard_normal(dimension), 0.0, 0.5 * step * langevin

    def log_proposal(new: np.ndarray, old: np.ndarray) -> float:
        return float(-0.5 * np.sum((new - (1 - pull) * old) ** 2) / step)

    for _ in range(n_iters):
        new = (1 - pull) * theta + np.sqrt(step) * rng.standard_normal(dimension)
        log_ratio = 0.5 * float(np.sum(theta**2) - np.sum(new**2)) + log_proposal(theta, new) - log_proposal(new, theta)
        total += min(1.0, np.exp(log_ratio))
        theta = new if np.log(rng.random()) < log_ratio else theta
    return total / n_iters


def gibbs(correlation: float, n_iters: int, chains: int, seed: int) -> np.ndarray:
    """The Gibbs sampler of two correlated standard normals: draws of the first."""
    rng = np.random.default_rng(seed)
    sd = np.sqrt(1 - correlation**2)
    draws, second = np.empty((chains, n_iters)), rng.standard_normal(chains)
    for t in range(n_iters):
        draws[:, t] = correlation * second + sd * rng.standard_normal(chains)
        second = correlation * draws[:, t] + sd * rng.standard_normal(chains)
    return draws


def efficiency(draws: np.ndarray) -> float:
    """Effective draws per draw."""
    ess, _ = mixing(draws[..., None])
    return float(ess[0]) / draws.size


def _measure(n_iters: int) -> dict[str, np.ndarray | float]:
    runs = [mala(step, n_iters, 4, seed=1) for step in MALA_STEPS]
    shifted, _ = mala(1.0, 100, 4, seed=1, constant=512.0)
    unshifted, _ = mala(1.0, 100, 4, seed=1)
    precision = np.linalg.inv([[1.0, CORRELATION], [CORRELATION, 1.0]])
    start = {"theta": jnp.zeros((4, 2))}
    correlated = nuts(
        lambda params, data: -0.5 * params["theta"] @ data["P"] @ params["theta"],
        {"P": jnp.asarray(precision, jnp.float32)},
        start, lambda _: 0.0, 4, n_iters // 2, n_iters // 2, seed=1,
    )  # fmt: skip
    return {
        "acceptance": np.array([rate for _, rate in runs]),
        "efficiency": np.array([efficiency(draws) for draws, _ in runs]),
        "autocorrelation": float(np.corrcoef(runs[2][0][0, :-1], runs[2][0][0, 1:])[0, 1]),
        "unadjusted variance": float(unadjusted(1.0, n_iters, 4, seed=1).var()),
        "adjusted variance": float(runs[2][0].var()),
        "acceptance in 50 dimensions": np.array(
            [random_walk_acceptance(0.2, 50, n_iters, 1, langevin=langevin) for langevin in (True, False)]
        ),
        "shift": float(np.abs(shifted - unshifted).max()),
        "nuts acceptance": correlated.acceptance,
        "nuts correlated": efficiency(correlated.draws["theta"][..., 0]),
        "gibbs independent": efficiency(gibbs(0.0, n_iters, 4, seed=1)),
        "gibbs correlated": efficiency(gibbs(CORRELATION, n_iters, 4, seed=1)),
        "rival refuses discrete": float(rival().refuses_discrete()),
        "we refuse discrete": float(_we_refuse_discrete()),
    }


def _we_refuse_discrete() -> bool:
    try:
        sgmcmc.sgld_setup(lambda params, batch: batch["x"].sum() * params["z"], {"x": np.ones(10)}, {"z": 1}, 1e-3)
    except sgmcmc.InputError:
        return True
    return False
