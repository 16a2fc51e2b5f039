"""Importance rows: the table's exact law, unbiased estimates and their variance by enumeration, the same on host and device."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sgmcmc import InputError
from sgmcmc.algorithms.dynamics.langevin import Langevin
from sgmcmc.algorithms.gradients.control_variate import ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.core.progress import Bar
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.posterior import Posterior, Transform
from sgmcmc.problem.schedules import step_schedule
from sgmcmc.results.result import ALONE
from sgmcmc.rows.importance import (
    TICKS,
    DeviceImportanceRows,
    HostImportanceRows,
    RowLaw,
    coins,
    make_alias_table,
    make_importance_rows,
    mixed,
)
from sgmcmc.run.loop import Loop
from sgmcmc.run.request import Request

FALSE_ALARM = 1e-4
RNG = np.random.default_rng(8)
BOTH = pytest.mark.parametrize("version", [HostImportanceRows, DeviceImportanceRows])


def keys(*shape, seed=0):
    return jax.random.split(jax.random.key(seed), shape)


# The table.

ASKED = {
    "one row": [1.0],
    "two rows": [0.3, 0.7],
    "equal": np.ones(1000),
    "random": RNG.random(1001),
    "heavy tails": RNG.pareto(1.1, 100_000),
    "a million": mixed(RNG.lognormal(0, 2, 1_000_000)),
    "half in the first": [0.5, *[0.5 / 999] * 999],
    "half in the last": [*[0.5 / 999] * 999, 0.5],
    "rows of exactly the mean first": [1, 1, 0.5, 1.5, 1, 0.5, 1.5, 1],
    "rows of exactly the mean between": [1.5, 1, 1, 0.25, 1.25, 1, 1, 1],
    "several heavy rows serve one light": [0, 1.1, 1.1, 1.1, 1.7, 1],
    "zeros": [0, 0, 3, 0, 1, 0, 0, 4, 0],
    "proportional numbers": 1e6 * RNG.random(100),
    "minute": [1e-300, 1, 1e-12, 1, 1e-7],
}


def drawn_ticks(table):
    """N `TICKS` times the probability of each row, from the columns: whole numbers, exact in double precision."""
    kept = table.keep.astype(np.float64) * TICKS
    return kept + np.bincount(table.alias, weights=TICKS - kept, minlength=len(kept))


@pytest.mark.parametrize("name", ASKED)
def test_the_law_of_the_table_is_the_one_it_states_and_the_one_asked_for(name):
    asked = np.asarray(ASKED[name]) / np.sum(ASKED[name])
    table = make_alias_table(ASKED[name])
    N = len(asked)
    ticks = np.rint(table.probabilities * (N * TICKS))
    np.testing.assert_array_equal(drawn_ticks(table), ticks)
    assert ticks.sum() == N * TICKS
    assert N * np.abs(table.probabilities - asked).max() < 1.01 / TICKS
    assert not table.probabilities[asked == 0].any()
    assert (table.keep.dtype, table.alias.dtype) == (np.float32, np.int32)


def test_a_coin_falls_below_a_whole_number_of_ticks_with_exactly_that_probability():
    """JAX's uniform numbers are whole ticks, 0 is one of them and 1 is not."""
    ticks = np.asarray(coins(keys(1000), 1000), np.float64) * TICKS
    np.testing.assert_array_equal(ticks, np.rint(ticks))
    assert ticks.min() >= 0
    assert ticks.max() < TICKS
    assert (ticks % 2 == 1).any()


def test_mixed():
    np.testing.assert_allclose(mixed([0.0, 1.0, 3.0], 0.1), 0.9 * np.array([0.0, 0.25, 0.75]) + 0.1 / 3, rtol=1e-15)
    np.testing.assert_allclose(mixed(np.zeros(4)), 0.25, rtol=1e-15)
    np.testing.assert_allclose(mixed([1e308, 1e308, 0.0], 0.0), [0.5, 0.5, 0.0], rtol=1e-15)
    np.testing.assert_allclose(mixed([5e-324, 0.0], 0.5), [0.75, 0.25], rtol=1e-15)
    assert mixed(RNG.lognormal(size=10_000)).sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("make", [mixed, make_alias_table])
@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([0.1, np.nan, 0.2], r"\[1\] is nan"),
        ([0.1, 0.2, -0.1], r"\[2\] is -0.1"),
        ([np.inf, 0.2], r"\[0\] is inf"),
        (np.ones((2, 2)), "one number per row"),
        ([], "one number per row"),
        (["a", "b"], "one number per row"),
    ],
)
def test_bad_numbers_are_refused(make, values, complaint):
    with pytest.raises(InputError, match=complaint):
        make(values)


def test_bad_sources_are_refused():
    arrays = {"x": np.zeros(3, np.float32)}
    with pytest.raises(InputError, match="expected one for each of the 3 rows"):
        make_importance_rows(arrays, 2, np.ones(4))
    for unlikely in (0.0, 1e-9):
        with pytest.raises(InputError, match="row 1 would never be drawn"):
            make_importance_rows(arrays, 2, [1.0, unlikely, 1.0])
    with pytest.raises(InputError, match="all zero"):
        make_importance_rows(arrays, 2, np.zeros(3))
    for share in (-0.1, 1.1, np.nan, "some"):
        with pytest.raises(InputError, match="uniform_share"):
            mixed(np.ones(3), share)


# Estimates, by enumerating every column and both sides of its coin, through the source itself.

N = 6
ROWS = {"x": RNG.normal(size=(N, 2)), "y": RNG.integers(0, 2, N).astype(float)}
TABLE = make_alias_table(mixed(np.array([5.0, 0.1, 1.0, 0.0, 2.0, 1.0]), 0.2))
THETA, CENTRE = np.array([0.3, -0.7]), np.array([0.5, -0.1])


def rowwise(theta, rows):
    z = rows["x"] @ theta
    return rows["y"] * z - jnp.logaddexp(0.0, z)


def posterior(per_row, n_rows=N):
    log_lik = rowwise if per_row else lambda theta, rows: rowwise(theta, rows).sum()
    return Posterior(log_lik, lambda theta: -jnp.abs(theta).sum(), n_rows, Transform((None,)), per_row)


def estimate(kind, per_row):
    estimator, model = kind(), posterior(per_row)
    state = estimator.init(model, CENTRE, FullPasses(ROWS))
    return lambda theta, batch: estimator.estimate(model, theta, batch, state)[0]


def enumerated_estimates(source, kind, per_row):
    """The estimate from every minibatch that can be drawn, and the minibatch's probability."""
    keep = source.law.keep
    outcomes = [(i, coin, p / N) for i, k in enumerate(keep) for coin, p in ((0.0, float(k)), (float(k), 1 - float(k)))]
    columns, numbers, chances = np.moveaxis(np.array(list(itertools.product(outcomes, repeat=source.drawn))), -1, 0)
    drawn = (jnp.asarray(columns, jnp.int32), jnp.asarray(numbers, jnp.float32))
    plan = source.prepare(drawn, len(columns))
    gradient = estimate(kind, per_row)

    def one(data, entry):
        return gradient(THETA, source.take(data, entry))

    estimates = jax.jit(jax.vmap(one, (None, 0)))(source.data, plan)
    return np.asarray(estimates), chances.prod(axis=1)


@jax.jit
def row_gradients(theta):
    return posterior(per_row=False).row_gradients(theta, {name: jnp.asarray(array) for name, array in ROWS.items()})


def exact_gradient():
    return np.asarray(row_gradients(THETA)).sum(axis=0) - np.sign(THETA)


def row_terms(kind):
    """Each row's term in the sum that is estimated."""
    return np.asarray(row_gradients(THETA)) - (np.asarray(row_gradients(CENTRE)) if kind is ControlVariate else 0)


@BOTH
@pytest.mark.parametrize("kind", [Minibatch, ControlVariate])
@pytest.mark.parametrize(("per_row", "n"), [(False, 1), (True, 1), (True, 2)])
def test_estimates_are_unbiased_with_the_stated_variance(x64, version, kind, per_row, n):
    """Var = V1/n with V1 = Σ D_i D_iᵀ/q_i - (Σ D_i)(Σ D_i)ᵀ."""
    estimates, chances = enumerated_estimates(version(ROWS, n, TABLE), kind, per_row)
    truth = exact_gradient()
    assert chances.sum() == pytest.approx(1, rel=1e-14)
    np.testing.assert_allclose(chances @ estimates, truth, atol=1e-12, rtol=0)
    D, apart = row_terms(kind), estimates - truth
    V1 = (D / TABLE.probabilities[:, None]).T @ D - np.outer(D.sum(0), D.sum(0))
    np.testing.assert_allclose((apart * chances[:, None]).T @ apart, V1 / n, atol=1e-12, rtol=0)


@BOTH
@pytest.mark.parametrize("kind", [Minibatch, ControlVariate])
@pytest.mark.parametrize("drawn", [1, 2])
def test_rows_that_are_always_in_make_no_noise(x64, version, kind, drawn):
    """Var = V1/drawn with the V1 of the rows that are not."""
    certain = np.array([1, 4])
    q = np.where(np.isin(np.arange(N), certain), 0.0, TABLE.probabilities)
    table = make_alias_table(q)
    estimates, chances = enumerated_estimates(version(ROWS, drawn + 2, table, certain), kind, True)
    truth = exact_gradient()
    np.testing.assert_allclose(chances @ estimates, truth, atol=1e-12, rtol=0)
    rest = table.probabilities > 0
    D, apart = row_terms(kind)[rest], estimates - truth
    V1 = (D / table.probabilities[rest, None]).T @ D - np.outer(D.sum(0), D.sum(0))
    np.testing.assert_allclose((apart * chances[:, None]).T @ apart, V1 / drawn, atol=1e-12, rtol=0)


def test_a_minibatch_of_certain_rows_alone_is_refused():
    certain = np.array([1, 4])
    q = np.where(np.isin(np.arange(N), certain), 0.0, TABLE.probabilities)
    with pytest.raises(InputError, match="more than the 2 rows that are always in"):
        make_importance_rows(ROWS, 2, q, certain)


def test_rows_are_certain_that_would_come_once_or_more():
    scores = np.array([100.0, 80.0, *np.ones(998)])
    choice = RowLaw(rows_with_ids(1000), mixed(scores, 0.0))
    found = choice.with_certain(30)
    np.testing.assert_array_equal(found.certain, [0, 1])
    assert found.probabilities[:2].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found.probabilities[2:], 1 / 998)
    assert not len(choice.with_certain(5).certain), "100/1178 of 5 rows is less than one"
    assert not len(RowLaw(rows_with_ids(4), np.full(4, 0.25)).with_certain(4).certain), "all of a minibatch"
    heavy = RowLaw(rows_with_ids(10_000), mixed([*[1000.0] * 3000, *[1.0] * 7000], 0.0))
    assert not len(heavy.with_certain(9_000).certain), "more than may be"
    rows, weights = found.sketch(200, np.random.default_rng(0))
    np.testing.assert_allclose(weights, [1.0, 1.0, *[998 / 198] * 198])
    np.testing.assert_array_equal(rows["k"][:2], [0, 1])


@BOTH
def test_rows_that_nobody_takes_are_refused(version):
    table = make_alias_table([0.0, 1.0, 0.0])
    version(rows_with_ids(3), 3, table, np.array([0, 2]))
    with pytest.raises(InputError, match="row 2 would never be drawn"):
        version(rows_with_ids(3), 3, table, np.array([0]))


def test_control_weights_for_other_probabilities_are_caught(x64):
    source = HostImportanceRows(ROWS, 1, TABLE)
    source.weights[2] *= 1 + 1e-9
    estimates, chances = enumerated_estimates(source, Minibatch, True)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(chances @ estimates, exact_gradient(), atol=1e-12, rtol=0)


# Minibatches.


def rows_with_ids(n_rows):
    return {"x": RNG.normal(size=(n_rows, 3)).astype(np.float32), "k": np.arange(n_rows, dtype=np.int32)}


def every_batch(source, plan, count):
    entries = jax.tree.map(lambda x: np.asarray(x)[:count].reshape(-1, *x.shape[-x.ndim + 3 :]), plan)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(source.take, (None, 0)))(source.data, entries))


@pytest.mark.parametrize("count", [4, 2])
def test_host_and_device_give_the_same_batches(count):
    arrays, table = rows_with_ids(100), make_alias_table(mixed(RNG.lognormal(size=100)))
    host, device = HostImportanceRows(arrays, 7, table), DeviceImportanceRows(arrays, 7, table)
    plans = [source.prepare(source.draw(keys(4, 3, 2)), count) for source in (host, device)]
    assert all(leaf.shape[:4] == (4, 3, 2, 7) for plan in plans for leaf in jax.tree.leaves(plan))
    left, right = (every_batch(source, plan, count) for source, plan in zip((host, device), plans, strict=True))
    jax.tree.map(np.testing.assert_array_equal, left, right)
    np.testing.assert_array_equal(left.rows["k"], left.index)
    np.testing.assert_array_equal(left.rows["x"], arrays["x"][left.index])
    np.testing.assert_allclose(left.weight, 1 / (7 * table.probabilities[left.index]), rtol=1e-6)
    for batch in (left, right):
        assert (batch.weight.dtype, batch.index.dtype) == (np.float32, np.int32)


@BOTH
def test_a_plan_is_as_large_as_it_says(version):
    source = version(rows_with_ids(50), 8, make_alias_table(np.ones(50)))
    plan = source.prepare(source.draw(keys(10)), 10)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(plan)) == 10 * source.bytes_per_batch


def test_the_backend_decides():
    source = make_importance_rows(rows_with_ids(5), 2, np.ones(5))
    assert isinstance(source, HostImportanceRows if jax.default_backend() == "cpu" else DeviceImportanceRows)
    assert source.kind == "importance"


@BOTH
def test_another_table_needs_no_other_program(version):
    arrays = rows_with_ids(40)
    sources = [version(arrays, 6, make_alias_table(mixed(RNG.random(40)))) for _ in range(2)]
    program = jax.jit(sources[0].take)
    for source in sources:
        entry = jax.tree.map(lambda x: np.asarray(x)[0], source.prepare(source.draw(keys(1)), 1))
        jax.tree.map(np.testing.assert_array_equal, program(source.data, entry), source.take(source.data, entry))
    assert program._cache_size() == 1


def frequency_p_value(counts, q):
    return scipy.stats.chisquare(counts, counts.sum() * q).pvalue


@BOTH
def test_rows_come_as_often_as_they_should(version):
    q = mixed(RNG.lognormal(0, 1.5, 60))
    source = version(rows_with_ids(60), 500, make_alias_table(q))
    plan = source.prepare(source.draw(keys(2000, seed=3)), 2000)
    index = np.asarray(jax.jit(jax.vmap(source.take, (None, 0)))(source.data, plan).index)
    counts = np.bincount(index.ravel(), minlength=60)
    assert frequency_p_value(counts, q) > FALSE_ALARM
    wrong = q * (1 + 0.03 * (-1.0) ** np.arange(60))
    assert frequency_p_value(counts, wrong / wrong.sum()) < FALSE_ALARM
    pairs = np.bincount((index[:, ::2] % 8 * 8 + index[:, 1::2] % 8).ravel(), minlength=64)
    classes = np.bincount(np.arange(60) % 8, weights=q)
    assert frequency_p_value(pairs, np.outer(classes, classes).ravel()) > FALSE_ALARM


# In the loop.


def start(loop, arrays, centre, chains):
    """A state at the centre, as a sampler makes it."""
    anchor, seed = loop.kernel.estimator.init(loop.kernel.posterior, centre, FullPasses(arrays)), jax.random.key(4)
    key, root = (jax.random.key_data(k) for k in (seed if chains is None else jax.random.split(seed, chains), seed))
    position = centre if chains is None else jnp.tile(centre, (chains, 1))
    return loop.call(loop.programs.start, (key, position, anchor, root), key, -1)


@pytest.mark.parametrize(("version", "chains"), [(HostImportanceRows, 2), (DeviceImportanceRows, None)])
def test_chunk_size_changes_no_bit_of_a_run(version, chains):
    arrays = {"x": RNG.normal(size=(300, 2)).astype(np.float32), "y": RNG.integers(0, 2, 300).astype(np.float32)}
    centre = jnp.array([0.1, 0.2])
    kernel = Kernel(posterior(False, 300), ControlVariate(), Langevin(), step_schedule(1e-2, centre))
    loop = Loop.of(kernel, version(arrays, 30, make_alias_table(mixed(np.abs(arrays["x"]).sum(1)))))
    state = start(loop, arrays, centre, chains)
    draws = []
    for chunk_size in (100, 7):
        with Bar(False, "test", 100) as bar:
            draws.append(loop.trial(state, Request(100, chunk_size=chunk_size), bar).values[ALONE])
    np.testing.assert_array_equal(*draws)
    assert draws[0].shape == (*(() if chains is None else (chains,)), 100, 2)
    assert np.isfinite(draws[0]).all()
    assert draws[0].std() > 0.01
