"""The small facts of section 2 about samplers that look at all the data: MALA, Gibbs, and what they need."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import sgmcmc
from sgmcmc.diagnostics import mixing
from sgmcmc.experiments.claims import Claim, judge
from sgmcmc.experiments.rivals import nuts, rival
from sgmcmc.experiments.workbook import Figures, Workbook

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
        start, lambda params: 0.0, 4, n_iters // 2, n_iters // 2, seed=1,
    )  # fmt: skip
    return {
        "acceptance": np.array([rate for _, rate in runs]),
        "efficiency": np.array([efficiency(draws) for draws, _ in runs]),
        "autocorrelation": float(np.corrcoef(runs[2][0][0, :-1], runs[2][0][0, 1:])[0, 1]),
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


def claims(found: Figures, rival_label: str) -> list[Claim]:
    acceptance, ess = found["acceptance"], found["efficiency"]
    best = int(np.argmax(ess))
    steps = [f"{step:g}" for step in MALA_STEPS]
    return [
        judge(
            "2", "MCMC draws are not independent", "lag-1 autocorrelation of MALA at a step of one posterior variance",
            f"{float(found['autocorrelation']):.2f}", float(found["autocorrelation"]) > 0.1,
        ),
        judge(
            "2", "the normalising constant cancels in the Metropolis-Hastings ratio",
            "largest difference between MALA chains with and without e^512 multiplied to the density",
            f"{float(found['shift']):g}", float(found["shift"]) == 0,
        ),
        judge(
            "2", "the efficiency of Metropolis-Hastings depends on its proposal",
            "effective draws per draw of MALA, best and worst of six step sizes", f"{ess.max():.2f} and {ess.min():.4f}",
            ess.max() > 10 * ess.min(),
        ),
        judge(
            "2", "MALA and HMC can have very high acceptance rates",
            f"MALA at a step of {steps[1]} posterior variances; NUTS on a correlated normal",
            f"{acceptance[1]:.3f}; {float(found['nuts acceptance']):.2f}",
            acceptance[1] > 0.95 and float(found["nuts acceptance"]) > 0.75,
        ),
        judge(
            "2", "as the step goes to 0 MALA accepts everything and the chain stops moving",
            f"acceptance and effective draws per draw at a step of {steps[0]} posterior variances",
            f"{acceptance[0]:.4f}; {ess[0]:.4f}", acceptance[0] > 0.99 and ess[0] < 0.02,
        ),
        judge(
            "2", "the step balances acceptance against mixing",
            f"MALA's best step of {', '.join(steps)} (posterior variances) is neither the first nor the last",
            f"best at {steps[best]}: acceptance {acceptance[best]:.2f}, {ess[best]:.2f} effective draws per draw",
            0 < best < len(steps) - 1,
        ),
        judge(
            "2", "Gibbs samplers can be highly efficient", "effective draws per draw, two independent normals",
            f"{float(found['gibbs independent']):.2f}", float(found["gibbs independent"]) > 0.8,
        ),
        judge(
            "2", "Gibbs samplers are inefficient under high correlation", f"the same with correlation {CORRELATION}",
            f"{float(found['gibbs correlated']):.4f}", float(found["gibbs correlated"]) < 0.1 * float(found["gibbs independent"]),
        ),
        judge(
            "2", "Stan's HMC is more robust to correlation", f"effective draws per draw of NUTS with correlation {CORRELATION}, and of Gibbs",
            f"{float(found['nuts correlated']):.3f} and {float(found['gibbs correlated']):.4f}",
            float(found["nuts correlated"]) > 5 * float(found["gibbs correlated"]),
        ),
        judge(
            "2", "Stan cannot sample discrete parameters", f"whether {rival_label} refuses a model with one",
            "refused" if found["rival refuses discrete"] else "accepted", bool(found["rival refuses discrete"]),
        ),
        judge(
            "2", "neither can stochastic gradient MCMC", "whether `sgld` refuses a whole-number parameter",
            "refused" if found["we refuse discrete"] else "accepted", bool(found["we refuse discrete"]),
        ),
    ]  # fmt: skip
