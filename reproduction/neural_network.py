"""Section 6.3, figure 5: a two-layer Bayesian network on MNIST, step by step, without storing the chain.

The article samples the precisions λ as they are. Where that leaves the finite numbers, the same model is run with the λ kept
positive (`constraints`), and the report says so.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sgmcmc
from reproduction.figures import PANEL_ORDER, STYLES, along_chains
from reproduction.memory import forget_peak, peak_gigabytes
from reproduction.models import neural_network as model
from reproduction.runs import set_up
from reproduction.settings import METHODS, Method, lengths, setting, stepsize
from reproduction.workbook import Workbook
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import State, size

NAME = "neural-network"
TITLE = "Bayesian neural network on MNIST (section 6.3, figure 5)"
DATASET = "mnist"
FIGURES = {"figure-5": "Test log loss along the chains of eight methods for a Bayesian network on MNIST"}
REMARKS = """
79,510 weights and 4 precisions, one chain each, run step by step (`iterate`) without storing it: every 10 iterations the test
log loss, the test error and a running mean of the predicted probabilities. Where a chain with the precisions λ as the article
has them leaves the finite numbers, it is run with λ kept positive by `constraints`, and labelled so; `sgld` is run both ways.

Adam maximises the penalised likelihood with λ at their prior mean, 1. The joint mode of weights and λ is no use: it has every
weight 0 and λ near half their number. The article's search for the centre climbs towards it.
"""
POSITIVE = Method("sgld, positive λ", "sgld", {}, ours=True)
OTHER_STEPS = (0.5, 1.0, 2.0)
"""Of the article's step sizes: with these the chains go on for a twentieth of their length, to see whether they do better."""


def measure(book: Workbook) -> dict[str, Any]:
    forget_peak()
    mnist = sgmcmc.get_dataset(DATASET, progress=book.progress)
    train, test = ({"X": mnist[part]["images"], "y": mnist[part]["labels"]} for part in ("train", "test"))
    numbers: dict[str, Any] = {
        "looks": setting(NAME, "looks", book.quick),
        "rows": [len(train["y"]), len(test["y"]), train["X"].shape[1]],
        "parameters": size(model.start(1)),
        "log loss from log_lik": _log_loss_both_ways(test),
        "chains": {},
    }
    for method in (*METHODS, POSITIVE):
        part = book.part(method.label, lambda m=method: _chain(m, train, test, book))
        numbers["chains"][method.label] = {name: _plain(value) for name, value in part.items()}
    adam = book.part("Adam", lambda: _adam(train, test, book))
    numbers["Adam"] = {key: _plain(value) for key, value in adam.items()}
    memory = book.part("memory", lambda: {"peak": peak_gigabytes()})
    numbers["peak memory"] = float(memory["peak"])
    return numbers


def _log_loss_both_ways(test: dict[str, np.ndarray]) -> list[float]:
    """The log loss at some parameters as its definition has it, and as minus the mean of `log_lik`."""
    looks, params = Looks(test), model.start(1)
    looks.at(params)
    return [looks.log_losses[0], -float(jnp.sum(model.log_lik(params, test))) / len(test["y"])]


def _plain(value: np.ndarray) -> Any:
    return np.round(value, 5).tolist() if value.dtype.kind == "f" else value.tolist()


class Looks:
    """Test log loss and error of single draws, and the predictive mean so far: all that is kept of a chain."""

    def __init__(self, test: dict[str, np.ndarray]) -> None:
        self._test = {name: jnp.asarray(values) for name, values in test.items()}
        self._total = jnp.zeros_like(self._test["y"])
        self.log_losses: list[float] = []
        self.errors: list[float] = []

    def at(self, params: Any) -> None:
        log_loss, error, self._total = _look(params, self._total, self._test)
        self.log_losses.append(float(log_loss))
        self.errors.append(float(error))

    def figures(self) -> dict[str, Any]:
        predictive = jnp.log(self._total / len(self.errors))
        return {
            "log loss": self.log_losses,
            "error": self.errors,
            "predictive log loss": _log_loss(predictive, self._test["y"]),
            "predictive error": _error(predictive, self._test["y"]),
        }


@jax.jit
def _look(params: Any, total: jax.Array, test: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
    log_p = model.log_probabilities(params, test["X"])
    return _log_loss(log_p, test["y"]), _error(log_p, test["y"]), total + jnp.exp(log_p)


def _log_loss(log_p: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.mean(jnp.sum(y * log_p, axis=1))


def _error(log_p: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean(jnp.argmax(log_p, axis=1) != jnp.argmax(y, axis=1))


def _chain(method: Method, train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    """A chain with the λ as the article has them, or positive: by name, or because it diverged without."""
    constrained = method is POSITIVE
    try:
        figures = _run(method, train, test, book, constrained)
    except sgmcmc.SgmcmcError:
        if constrained:
            raise
        constrained, figures = True, _run(method, train, test, book, True)
    return {**figures, "positive": constrained}


def _run(method: Method, train: Any, test: Any, book: Workbook, constrained: bool) -> dict[str, Any]:
    seed = setting(NAME, "seed", book.quick) if book.seed is None else book.seed
    every = setting(NAME, "looks", book.quick)
    options = {"constraints": model.constraints()} if constrained else {}

    def sampler(step: float) -> sgmcmc.Sampler:
        start = model.start(seed)
        return set_up(NAME, method, model.log_lik, model.log_prior, train, start, book.quick, stepsize=step, **options)

    burn_in, n_iters = lengths(NAME, method, book.quick)
    step = stepsize(NAME, method)
    begun = time.perf_counter()
    own = sampler(step)
    state = own.init(seed, progress=book.progress)
    prepared = time.perf_counter()
    if burn_in:
        *_, state = own.iterate(state, burn_in, every=burn_in, progress=book.progress)
    burnt_in = time.perf_counter()
    looks = Looks(test)
    for now in own.iterate(state, n_iters, every=every, progress=book.progress):
        looks.at(now.params)
        state = now
    ended = time.perf_counter()
    factors = () if method.ours or book.quick else OTHER_STEPS
    continued = [_continued(sampler(step * factor), state, test, n_iters // 20, every) for factor in factors]
    return {
        **looks.figures(),
        "seconds preparing": prepared - begun,
        "seconds of burn-in": burnt_in - prepared,
        "seconds of sampling": ended - burnt_in,
        "other steps": continued,
    }


def _continued(sampler: sgmcmc.Sampler, state: State, test: Any, n_iters: int, every: int) -> float:
    """Mean test log loss of a chain that goes on with another step size; not a number where it diverges."""
    looks = Looks(test)
    try:
        for later in sampler.iterate(state, n_iters, every=every):
            looks.at(later.params)
    except sgmcmc.DivergenceError:
        return float("nan")
    return float(np.mean(looks.log_losses[len(looks.log_losses) // 2 :]))


def _adam(train: Any, test: Any, book: Workbook) -> dict[str, Any]:
    """The optimum of the penalised likelihood at λ = 1, its prior mean, by Adam.

    The λ are held: the joint mode of weights and λ has every weight 0 and λ near half their number, where the density of the
    prior is far larger than any likelihood can make up for.
    """
    import optax

    n_steps, n_rows, batch_size = setting(NAME, "Adam steps", book.quick), len(train["y"]), 500
    data = {name: jnp.asarray(values) for name, values in train.items()}
    ones = {name: jnp.ones(()) for name in model.PRECISIONS}
    weights = {name: jnp.asarray(value) for name, value in model.start(1).items() if name in model.WEIGHTS}
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, n_steps))

    def loss(weights: Any, batch: Any) -> jax.Array:
        return -jnp.mean(model.log_lik(weights, batch)) - model.log_prior({**weights, **ones}) / n_rows

    @jax.jit
    def steps(weights: Any, state: Any, keys: jax.Array, data: Any) -> Any:
        def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
            weights, state = carry
            rows = jax.random.randint(key, (batch_size,), 0, n_rows)
            batch = {name: values[rows] for name, values in data.items()}
            updates, state = optimiser.update(jax.grad(loss)(weights, batch), state)
            return (optax.apply_updates(weights, updates), state), None

        return jax.lax.scan(step, (weights, state), keys)[0]

    state, chunk = optimiser.init(weights), n_steps // 10
    with Bar(book.progress, "Adam", n_steps) as bar:
        for keys in jax.random.split(jax.random.key(1), n_steps).reshape(-1, chunk):
            weights, state = steps(weights, state, keys, data)
            bar.update(chunk)
    looks = Looks(test)
    looks.at(weights)
    return {"log loss": looks.log_losses[0], "error": looks.errors[0]}


def draw(numbers: dict[str, Any]) -> dict[str, Figure]:
    figure, axes = along_chains(
        "Test log loss along the chains, Bayesian network on MNIST",
        "log loss of the test set (nats)",
        "line: single draws; dotted: their predictive mean; dashed black: optimum found by Adam",
    )
    for panel, label in zip(axes.flat, PANEL_ORDER, strict=True):
        chain = numbers["chains"][label]
        losses = np.asarray(chain["log loss"])
        iterations = numbers["looks"] * (1 + np.arange(len(losses)))
        panel.plot(iterations, losses, lw=0.8, color=STYLES[label]["color"])
        panel.axhline(chain["predictive log loss"], color=STYLES[label]["color"], lw=1.4, ls=":")
        panel.axhline(numbers["Adam"]["log loss"], color="black", lw=1, ls="--")
        panel.set_title(label + (" (λ kept positive)" if chain["positive"] else ""), fontsize="medium")
    highest = max(np.quantile(numbers["chains"][label]["log loss"], 0.98) for label in PANEL_ORDER)
    axes[0, 0].set_ylim(0, 1.05 * highest)
    return {"figure-5": figure}


def whole(chain: dict[str, Any]) -> float:
    """Seconds of preparing, burn-in and sampling."""
    return chain["seconds preparing"] + chain["seconds of burn-in"] + chain["seconds of sampling"]


def table(numbers: dict[str, Any]) -> list[list[str]]:
    rows = [["method", "log loss of a draw", "its sd", "error of a draw", "predictive mean: log loss", "error", "λ", "seconds"]]
    for label, chain in numbers["chains"].items():
        rows.append([
            label, f"{np.mean(chain['log loss']):.3f}", f"{np.std(chain['log loss']):.3f}", f"{np.mean(chain['error']):.2%}",
            f"{chain['predictive log loss']:.3f}", f"{chain['predictive error']:.2%}",
            "positive" if chain["positive"] else "as in the article", f"{whole(chain):.0f}",
        ])  # fmt: skip
    adam = numbers["Adam"]
    rows.append(["Adam, λ = 1", f"{adam['log loss']:.3f}", "", f"{adam['error']:.2%}", "", "", "", ""])
    return rows
