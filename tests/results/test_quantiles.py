"""Quantile sketches: exact while draws are few, then within their bound for every order of the draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.results import quantiles
from sgmcmc.results.quantiles import BUFFERS, Quantiles, Sketch, sketch_quantiles

LEVELS = np.linspace(0, 1, 201)
SIZE = Quantiles().size


def orders(n):
    """Numbers (draw, number) in orders that a sketch may find hard."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal(n))
    chain = walk - 0.99 * np.concatenate([np.zeros(min(50, n)), walk[:-50]])
    ramp = np.arange(n, dtype=float)
    outside_in = np.where(ramp % 2 == 0, ramp, -ramp)
    columns = {
        "sorted": ramp,
        "reversed": ramp[::-1],
        "outside in": outside_in,
        "inside out": outside_in[::-1],
        "sawtooth as long as a buffer": ramp % SIZE,
        "sawtooth as long as all buffers": ramp % (BUFFERS * SIZE),
        "autocorrelated": chain,
        "random walk": walk,
        "independent": rng.standard_normal(n),
        "heavy tails": rng.standard_cauchy(n),
        "constant": np.full(n, 3.0),
        "ties": np.floor(3 * rng.standard_normal(n)),
        "mostly zero": (rng.random(n) < 0.04) * rng.standard_normal(n),
    }
    return np.stack(list(columns.values()), axis=1)


def sketch_of(draws, weights=None, size=SIZE, chunk=1000):
    sketch = Sketch(draws.shape[1], size, draws.dtype)
    weights = np.ones(len(draws)) if weights is None else weights
    for start in range(0, len(draws), chunk):
        sketch.add(draws[start : start + chunk], weights[start : start + chunk])
    return sketch


def rank_errors(sketch, draws, weights=None):
    """For every number the largest distance of a quantile's exact rank from its level."""
    weights = np.ones(len(draws)) if weights is None else weights
    found = sketch_quantiles(*sketch.items(), LEVELS)
    errors = []
    for column, values in zip(draws.T, found, strict=True):
        order = np.argsort(column, kind="stable")
        below = np.concatenate([[0.0], np.cumsum(weights[order])]) / weights.sum()
        strictly, at_most = (below[np.searchsorted(column[order], values, side)] for side in ("left", "right"))
        errors.append(np.maximum(strictly - LEVELS, LEVELS - at_most).max())
    return np.array(errors)


@pytest.mark.parametrize("n", [3, 1000, (BUFFERS + 1) * SIZE, 30_001, 10**5, 10**6])
def test_rank_errors_stay_within_the_bound_in_every_order(n):
    draws = orders(n)
    sketch = sketch_of(draws)
    assert sketch.weight == n
    assert (rank_errors(sketch, draws) <= sketch.rank_error + 1e-12).all()
    if n == 10**6:
        assert 0.1 < rank_errors(sketch, draws).max() / sketch.rank_error < 0.25, "the documentation says a quarter"


@pytest.mark.parametrize("decay", [1e-4, 1e-2, -1e-5])
def test_unequal_weights_stay_within_the_bound_too(decay):
    draws = orders(100_000)
    weights = (1 + abs(decay) * np.arange(len(draws))) ** -np.sign(decay)
    sketch = sketch_of(draws, weights)
    np.testing.assert_allclose(sketch.weight, weights.sum())
    assert (rank_errors(sketch, draws, weights) <= sketch.rank_error + 1e-12).all()
    assert (rank_errors(sketch, draws) > sketch.rank_error).any(), "the control: without the weights the ranks are others"


def test_too_small_a_sketch_breaks_the_bound_of_a_larger_one():
    draws = orders(10**5)
    assert (rank_errors(sketch_of(draws, size=SIZE // 20), draws) > sketch_of(draws[:, :1]).rank_error).any()


def test_forgetting_what_a_buffer_weighs_breaks_the_bound(monkeypatch):
    """The control: a collapse that takes all its buffers for equal is seen."""
    right = quantiles.collapsed
    monkeypatch.setattr(quantiles, "collapsed", lambda values, weights, size: right(values, np.ones_like(weights), size))
    draws = orders(10**5)
    sketch = sketch_of(draws)
    assert (rank_errors(sketch, draws) > sketch.rank_error).any()


def test_the_bounds_in_the_documentation():
    """The bound depends on the number of buffers filled, in proportion to 1 / size: a sketch of small buffers shows it fast."""
    small, worst, stated = Sketch(1, 16, np.float32), 0.0, {10**5: 0.0042, 10**6: 0.0057, 10**7: 0.0088}
    for filled in range(1, 10**7 // SIZE + 1):
        small.add(np.zeros((16, 1)), np.ones(16))
        if filled > BUFFERS:
            worst = max(worst, small.rank_error * 16 / SIZE)
        for n, bound in stated.items():
            assert filled > n // SIZE or worst < bound
    assert worst > 0.98 * stated[10**7], "not stated too generously either"
    text = Quantiles.__doc__ or ""
    assert all(str(bound) in text for bound in stated.values())
    assert f"`{BUFFERS + 1} * size`" in text


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 1000, (BUFFERS + 1) * SIZE - 1])
def test_few_draws_are_exact(n, dtype):
    draws = np.random.default_rng(n).standard_normal((n, 4)).astype(dtype)
    found = sketch_quantiles(*sketch_of(draws).items(), LEVELS)
    np.testing.assert_allclose(found, np.quantile(draws.astype(np.float64), LEVELS, axis=0).T, rtol=1e-9, atol=1e-12)


def test_infinite_values_stay_what_they_are():
    draws = np.array([-np.inf, -np.inf, 0.0, 1.0, np.inf, np.inf])[:, None]
    np.testing.assert_array_equal(
        sketch_quantiles(*sketch_of(draws).items(), [0.0, 0.1, 0.5, 1.0])[0], [-np.inf, -np.inf, 0.5, np.inf]
    )


def test_chunks_and_blocks_leave_no_trace(monkeypatch):
    draws, weights = orders(20_000), np.linspace(1, 3, 20_000)
    reference = sketch_of(draws, weights, size=50)
    monkeypatch.setattr(quantiles, "SORTED_AT_ONCE", 1000)
    for chunk in (1, 49, 20_000):
        jax.tree.map(np.testing.assert_array_equal, sketch_of(draws, weights, 50, chunk).state(), reference.state())


def test_memory_is_that_of_the_buffers():
    held = [sum(part.size for part in sketch_of(np.zeros((n, 2), np.float32), size=20).items()[0]) for n in (10**4, 10**5)]
    assert max(held) < (BUFFERS + 1) * 20 * 2


# In a run.

X = np.random.default_rng(0).normal(1.0, 2.0, (500, 2)).astype(np.float32)


def square(params):
    return {"square": params["mu"] ** 2, "s": params["s"]}


def run(keep, n_chains=None, stepsize=1e-4, **options):
    def log_lik(params, batch):
        return (-0.5 * ((batch["x"] - params["mu"]) * jnp.exp(-params["s"])) ** 2 - params["s"]).sum()

    arguments = {"minibatch_size": 50, "n_iters": 400, "burn_in": 30, "thin": 2, "seed": 1, "progress": False, **options}
    return sgmcmc.sgld(
        log_lik, {"x": X}, {"mu": np.zeros(2), "s": 0.0}, stepsize, keep=keep, n_chains=n_chains, **arguments
    )  # fmt: skip


def decreasing(t):
    return 1e-4 / (1 + 0.1 * t)


@pytest.mark.parametrize(("n_chains", "stepsize"), [(None, decreasing), (3, 1e-4)])
def test_quantiles_of_a_run_agree_with_its_draws(n_chains, stepsize):
    keep = {"draws": sgmcmc.Trace(), "all": Quantiles(), "some": Quantiles([0.1, 0.9], square, thin=3)}
    out = run(keep, n_chains, stepsize)
    draws = {name: out[name] if n_chains else out[name][None] for name in ("mu", "s")}
    weights = np.ones(200) if out.weights is None else out.weights.astype(np.float64)
    every, some = out.kept["all"], out.kept["some"]
    assert every.levels == (0.05, 0.5, 0.95)
    assert every.values["mu"].shape == (*((n_chains,) if n_chains else ()), 2, 3)
    assert every.pooled["mu"].shape == (2, 3)
    np.testing.assert_allclose([every.weight, every.rank_error], [weights.sum(), weights.max() / weights.sum()])

    def expected(chains, weights, levels):
        """(chain, draw) to levels."""
        return sketch_quantiles([chains.reshape(1, -1)], np.tile(weights, len(chains)), levels)[0]

    for c in range(n_chains or 1):
        mine = (lambda x, c=c: x[c]) if n_chains else (lambda x: x)
        np.testing.assert_allclose(mine(every.values["s"]), expected(draws["s"][[c]], weights, every.levels))
        squares = draws["mu"][[c], 2::3, 1] ** 2
        np.testing.assert_allclose(mine(some.values["square"])[1], expected(squares, weights[2::3], (0.1, 0.9)), rtol=1e-6)
    np.testing.assert_allclose(every.pooled["mu"][1], expected(draws["mu"][..., 1], weights, every.levels))
    if out.weights is None:
        np.testing.assert_allclose(every.pooled["s"], np.quantile(draws["s"], every.levels), rtol=1e-5)


def test_a_long_run_stays_within_its_bound():
    out = run({"draws": sgmcmc.Trace(), "q": Quantiles(LEVELS, size=20)}, n_iters=20_000, thin=1)
    bound = out.kept["q"].rank_error
    assert 0.01 < bound < 0.2
    for draws, found in zip(out["mu"].T, out.kept["q"].values["mu"], strict=True):
        ranks = [np.searchsorted(np.sort(draws), found, side) / len(draws) for side in ("left", "right")]
        assert max((ranks[0] - LEVELS).max(), (LEVELS - ranks[1]).max()) <= bound


def test_nothing_looked_at_is_not_a_number():
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run({"q": Quantiles((0.5,))}, n_chains=2, stepsize=10.0, burn_in=500)
    found = caught.value.result.kept["q"]
    assert found.weight == 0
    assert found.values["mu"].shape == (2, 2, 1)
    assert np.isnan(found.values["mu"]).all()
    assert np.isnan(found.pooled["s"]).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"levels": 0.5}, "levels of Quantiles is 0.5"),
        ({"levels": ()}, "levels of Quantiles"),
        ({"levels": (5, 95)}, "between 0 and 1"),
        ({"function": "mu"}, "Quantiles got 'mu'"),
        ({"thin": 0}, "thin of Quantiles is 0"),
        ({"size": 1}, "size of Quantiles is 1; expected a whole number of at least 2"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(sgmcmc.InputError, match=words):
        Quantiles(**arguments)
