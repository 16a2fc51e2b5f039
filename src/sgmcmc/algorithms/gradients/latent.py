"""Gradients of models whose rows have latent variables: drawn given row and parameters, or carried for each row."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp

from sgmcmc.algorithms.kernel import Estimate, Estimator, Passes
from sgmcmc.core.checks import check_count
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.trees import Batch, PyTree, Rows, pick, tree_map
from sgmcmc.problem.posterior import Posterior, one_row

LATENT = "latent variables"
"""The name of the column that they are for the log likelihood."""


@dataclass(frozen=True, eq=False)
class Latent:
    """Latent variables of the rows, drawn by a function of yours: `latent=draw` or `latent=Latent(draw, draws=4)` of any sampler
    with plain gradients. The log likelihood is then that of rows and latent variables together, `log_lik(params, rows, z)`.

    By Fisher's identity ∇log p(y|θ) = E[∇log p(y, z|θ)], the mean over z given y and θ. So with z drawn from that, at the very
    parameters at which the gradient is wanted, the gradient is unbiased, and chains sample the posterior of the parameters as if
    z had been summed out; the draws only add noise.

    Where z cannot be drawn at once, `kept` has a value of z for each row, for a Markov step `draw(key, params, rows, z)` that
    leaves p(z|y, θ) invariant. A row's z moves when the row is in a minibatch, in O(n), and stays with the chain. It then lags
    behind the parameters: that is a bias, which vanishes with the step size, and at once where `draw` forgets the z it is given.

    Args:
        draw: `draw(key, params, rows)`: z for these rows, an array (or a tree) with the rows on its first axis.
        draws: how many z of each row the gradient is averaged over.
        kept: where the z of all rows start, an array (or a tree) with all rows on its first axis. Each chain has a copy, in
            memory and in its checkpoints.

    A mixture of two normals, whose rows are assigned to one of them:

    >>> import jax, jax.numpy as jnp, numpy as np, sgmcmc
    >>> def draw(key, params, rows):
    ...     odds = params["mu"] @ jnp.stack([-rows["x"], rows["x"]]) - 0.5 * (params["mu"][1] ** 2 - params["mu"][0] ** 2)
    ...     return jax.random.bernoulli(key, jax.nn.sigmoid(odds)).astype(int)
    >>> def log_lik(params, rows, z):
    ...     return -0.5 * ((rows["x"] - params["mu"][z]) ** 2).sum()
    >>> rng = np.random.default_rng(0)
    >>> data = {"x": np.where(rng.random(2000) < 0.5, -2.0, 2.0) + rng.normal(size=2000)}
    >>> out = sgmcmc.sgld(log_lik, data, {"mu": np.array([-1.0, 1.0])}, 1e-4, latent=draw, minibatch_size=100, n_iters=3000,
    ...                   burn_in=500, seed=1, progress=False)
    >>> bool(np.abs(out["mu"].mean(axis=0) - [-2, 2]).max() < 0.15)
    True
    """

    draw: Callable[..., Any]
    draws: int = 1
    kept: Any = None

    def __str__(self) -> str:
        if self.kept is not None:
            return "kept for each row"
        return "drawn for each minibatch" + ("" if self.draws == 1 else f", {self.draws} times for each row")

    def __post_init__(self) -> None:
        if not callable(self.draw):
            raise InputError(f"draw of Latent is {describe(self.draw)}; expected a function draw(key, params, rows)")
        if check_count("draws of Latent", self.draws) > 1 and self.kept is not None:
            raise InputError(f"Latent got draws={self.draws} and kept; a row keeps one z: leave draws out")


@dataclass(frozen=True, eq=False)
class Complete:
    """The log likelihood of rows with their latent variables as a column, averaged over the draws, the second axis, where there
    are several; of rows without it, with some that depend on the row alone: that is for checks of the model, which look at rows
    one by one and together.
    """

    log_lik: Callable[..., Any]
    latent: Latent

    def __call__(self, params: PyTree, rows: Rows) -> Any:
        if LATENT not in rows:
            return self.log_lik(params, rows, self.somehow(params, rows))
        given = partial(self.log_lik, params, {name: column for name, column in rows.items() if name != LATENT})
        return given(rows[LATENT]) if self.latent.draws == 1 else jax.vmap(given, in_axes=1)(rows[LATENT]).mean(axis=0)

    def somehow(self, params: PyTree, rows: Rows) -> PyTree:
        """Latent variables of these rows, drawn with the same key for every one of them."""
        key, fixed = jax.random.key(0), jax.lax.stop_gradient(params)
        given = () if self.latent.kept is None else (tree_map(lambda z: jnp.asarray(z[:1]), self.latent.kept),)
        return jax.vmap(lambda row: pick(self.latent.draw(key, fixed, one_row(row), *given), 0))(rows)


@dataclass(frozen=True)
class Completing(Estimator):
    """Another estimator's ĝ(θ), of rows whose log likelihood is averaged over K draws of z given θ, with the minibatch's key."""

    inner: Estimator
    latent: Latent
    random = True

    @property
    def per_chain(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]: as its estimator says
        return self.inner.per_chain

    @property
    def knows_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.knows_rows

    @property
    def chain_axes(self) -> PyTree:
        return self.inner.chain_axes

    @property
    def follows_posterior(self) -> bool:
        return self.inner.follows_posterior

    def made(self, state: Any) -> bool:
        return self.inner.made(state)

    def measuring_noise(self) -> Self:
        raise noise_unknown()

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> PyTree:
        return self.inner.init(posterior, position, passes)

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: PyTree) -> Estimate:
        params, key = posterior.transform.to_params(position), own_key(posterior, batch)

        def drawn(key: Any) -> PyTree:
            return self.latent.draw(key, params, batch.rows)

        several = self.latent.draws > 1
        z = jax.vmap(drawn, out_axes=1)(jax.random.split(key, self.latent.draws)) if several else drawn(key)
        return self.inner.estimate(posterior, position, with_latent(batch, z), state)


@dataclass(frozen=True)
class Carrying(Estimator):
    """ĝ(θ; z_S), where the z of the rows S of the minibatch have moved by a step that leaves p(z|y, θ) invariant."""

    inner: Estimator
    latent: Latent
    random, carries, per_chain, knows_rows = True, dict, True, True

    @property
    def follows_posterior(self) -> bool:
        return True

    def measuring_noise(self) -> Self:
        raise noise_unknown()

    def init(self, posterior: Posterior, position: PyTree, passes: Passes) -> dict[str, PyTree]:
        return {"z": tree_map(jnp.asarray, self.latent.kept)}

    def estimate(self, posterior: Posterior, position: PyTree, batch: Batch, state: dict[str, PyTree]) -> Estimate:
        params, index = posterior.transform.to_params(position), batch.index
        before = tree_map(lambda z: z.at[index].get(mode="promise_in_bounds"), state["z"])
        moved = self.latent.draw(batch.key, params, batch.rows, before)
        moved = tree_map(lambda new, old: jnp.asarray(new, old.dtype), moved, before)
        gradient, _, stats = self.inner.estimate(posterior, position, with_latent(batch, moved), ())
        table = tree_map(lambda z, m: z.at[index].set(m, mode="promise_in_bounds", unique_indices=True), state["z"], moved)
        return gradient, {"z": table}, stats


def with_latent(batch: Batch, z: PyTree) -> Batch:
    """A minibatch whose rows have latent variables."""
    return replace(batch, rows={**batch.rows, LATENT: z})


def own_key(posterior: Posterior, batch: Batch) -> Any:
    """The key of an estimate; of every stratum its own."""
    return batch.key if posterior.axis is None else jax.random.fold_in(batch.key, jax.lax.axis_index(posterior.axis))


def noise_unknown() -> InputError:
    """Of dynamics that learn from the variance over rows: latent variables have some of it too."""
    found = "noise_estimate='fisher' came with latent, whose draws make noise that rows do not tell"
    return InputError(f"{found}; leave noise_estimate out")
