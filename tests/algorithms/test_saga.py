"""SAGA: unbiased whatever its table holds, the exact law of its chain by enumeration, and the table through every kind of run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chains import mean_and_variance
from exact import enumerated_moments

import sgmcmc
from sgmcmc.algorithms import SAGA, Langevin, Minibatch, SymmetricHamiltonian
from sgmcmc.algorithms.kernel import Kernel
from sgmcmc.checkpoints.reading import read
from sgmcmc.core.trees import Batch
from sgmcmc.problem.passes import FullPasses
from sgmcmc.problem.posterior import Posterior, Transform, make_transform
from sgmcmc.problem.schedules import step_schedule
from sgmcmc.rows.table import Stratum

EXACT = 1e-10
KEY = np.zeros(2, np.uint32)

# One estimate, over all minibatches.

N, SIZE = 6, 2
RNG = np.random.default_rng(5)
ROWS = {"x": RNG.normal(size=(N, 2)), "y": RNG.integers(0, 2, N).astype(float)}
POSITION = {"beta": np.array([0.3, -0.7]), "scale": np.array(0.2)}


def logistic(params, rows):
    z = rows["x"] @ params["beta"] / params["scale"]
    return rows["y"] * z - jnp.logaddexp(0.0, z)


def logistic_posterior(per_row):
    transform = make_transform({"scale": sgmcmc.constraints.positive}, {"beta": np.zeros(2), "scale": np.array(1.0)})
    log_lik = logistic if per_row else lambda params, rows: logistic(params, rows).sum()
    return Posterior(log_lik, lambda params: -jnp.abs(params["beta"]).sum() - params["scale"], N, transform, per_row)


def any_state():
    """A table that is nobody's gradients, and its sum."""
    table = {"beta": jnp.asarray(RNG.normal(size=(N, 2))), "scale": jnp.asarray(RNG.normal(size=N))}
    return state_of(SAGA().init(logistic_posterior(True), POSITION, FullPasses(ROWS)), table)


def state_of(like, table):
    """A state of SAGA with this table."""
    total = jax.tree.map(lambda g: jnp.sum(g, axis=0), table)
    return jax.tree.map(jnp.zeros_like, like) | {"table": table, "sum": total}


def all_batches(weight=N / SIZE):
    for index in itertools.combinations(range(N), SIZE):
        yield Batch(
            {name: jnp.asarray(column[list(index)]) for name, column in ROWS.items()}, jnp.asarray(weight), jnp.array(index)
        )


def exact_gradient(posterior):
    everything = Batch({name: jnp.asarray(column) for name, column in ROWS.items()}, jnp.array(1.0), jnp.arange(N))
    return posterior.gradient(POSITION, everything)


def average(trees):
    trees = list(trees)
    return jax.tree.map(lambda *leaves: sum(leaves) / len(trees), *trees)


def assert_equal(left, right, tolerance=1e-12):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance, rtol=0), left, right)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("weight", [N / SIZE, np.full(SIZE, N / SIZE)], ids=["one weight", "a weight for each row"])
def test_unbiased_whatever_the_table_holds(per_row, weight):
    posterior, state = logistic_posterior(per_row), any_state()
    estimates = [SAGA().estimate(posterior, POSITION, batch, state)[0] for batch in all_batches(weight)]
    assert_equal(average(estimates), exact_gradient(posterior))
    assert np.std([estimate["beta"] for estimate in estimates], axis=0).min() > 0.1  # single ones are off


@pytest.mark.usefixtures("x64")
def test_a_sum_that_is_not_the_tables_is_caught():
    posterior, state = logistic_posterior(True), any_state()
    wrong = state | {"sum": jax.tree.map(lambda s: s * 1.001, state["sum"])}
    estimates = [SAGA().estimate(posterior, POSITION, batch, wrong)[0] for batch in all_batches()]
    with pytest.raises(AssertionError):
        assert_equal(average(estimates), exact_gradient(posterior))


@pytest.mark.usefixtures("x64")
def test_the_table_takes_the_rows_it_sees_and_no_other():
    posterior, state = logistic_posterior(True), any_state()
    every = posterior.row_gradients(POSITION, {name: jnp.asarray(column) for name, column in ROWS.items()})
    for batch in all_batches():
        after = SAGA().estimate(posterior, POSITION, batch, state)[1]
        seen = np.isin(np.arange(N), batch.index)
        expected = jax.tree.map(
            lambda new, old, seen=seen: np.where(seen.reshape(-1, *[1] * (old.ndim - 1)), new, old), every, state["table"]
        )
        assert_equal(after["table"], expected)
        assert_equal(after["sum"], jax.tree.map(lambda g: g.sum(axis=0), expected))


@pytest.mark.usefixtures("x64")
def test_where_it_begins_it_has_no_noise():
    posterior = logistic_posterior(False)
    state = SAGA().init(posterior, POSITION, FullPasses(ROWS))
    for batch in all_batches():
        assert_equal(SAGA().estimate(posterior, POSITION, batch, state)[0], exact_gradient(posterior))


# The law of a whole chain: a Gaussian location model whose rows have different curvature, ℓ_i = -h_i (y_i - θ)² / 2. For a
# given minibatch an iteration is affine in position, gradient, table and noise, so second moments obey a linear equation.

CURVATURE, CENTRES, PRIOR = np.array([0.4, 1.0, 2.1, 3.5]), np.array([-1.0, 0.5, 0.2, 1.4]), 0.7


def location_model(rows):
    def log_lik(theta, batch):
        return -0.5 * (batch["h"] * (batch["y"] - theta) ** 2).sum()

    posterior = Posterior(log_lik, lambda theta: -0.5 * PRIOR * theta**2, rows, Transform((None,)), per_row=False)
    return posterior, {"h": CURVATURE[:rows], "y": CENTRES[:rows]}


def law_by_hand(rows, n, eps):
    """From the formula of the paper, in words of the paper: nothing of the library is used."""
    h, y, every = CURVATURE[:rows], CENTRES[:rows], np.arange(rows)

    def update(chosen, s, z):
        theta = s[0] + eps / 2 * s[1] + jnp.sqrt(eps) * z[0]
        table, new = s[2:], h * (y - theta)
        seen = jnp.asarray(np.isin(every, chosen))
        gradient = -PRIOR * theta + table.sum() + rows / n * jnp.where(seen, new - table, 0.0).sum()
        return jnp.concatenate([jnp.stack([theta, gradient]), jnp.where(seen, new, table)])

    updates = [partial(update, chosen) for chosen in itertools.combinations(every, n)]
    return enumerated_moments(updates, rows + 2, 1)


def law_of_kernel(estimator, rows, n, eps, weight=1.0):
    """From `Kernel.step` itself."""
    posterior, data = location_model(rows)
    kernel = Kernel(posterior, estimator, Langevin(), step_schedule(eps, jnp.zeros(())))
    carried = isinstance(estimator, SAGA)
    like = estimator.init(posterior, jnp.zeros(()), FullPasses(data))

    def update(chosen, s, z):
        batch = Batch(
            {name: jnp.asarray(column[list(chosen)]) for name, column in data.items()},
            jnp.asarray(weight * rows / n),
            jnp.array(chosen),
        )
        begun = kernel.start(KEY, KEY, jnp.zeros(()), batch, like)
        before = replace(begun, position=s[0], gradient=s[1], estimator=state_of(like, s[2:]) if carried else like)
        after = kernel.step(before, lambda _: batch, z)
        return jnp.concatenate([jnp.stack([after.position, after.gradient]), after.estimator["table"] if carried else s[2:2]])

    updates = [partial(update, chosen) for chosen in itertools.combinations(range(rows), n)]
    return enumerated_moments(updates, 2 + (rows if carried else 0), 1)


def posterior_moments(rows):
    precision = CURVATURE[:rows].sum() + PRIOR
    return (CURVATURE[:rows] * CENTRES[:rows]).sum() / precision, 1 / precision


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("rows", "n"), [(3, 1), (4, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("eps", [0.01, 0.1])
def test_the_law_of_the_chain(rows, n, eps):
    mean, covariance = law_of_kernel(SAGA(), rows, n, eps)
    by_hand = law_by_hand(rows, n, eps)
    np.testing.assert_allclose(mean, by_hand[0], atol=EXACT)
    np.testing.assert_allclose(covariance, by_hand[1], atol=EXACT)
    assert mean[0] == pytest.approx(posterior_moments(rows)[0], abs=EXACT)


@pytest.mark.usefixtures("x64")
def test_with_all_rows_it_is_the_law_of_the_full_gradient():
    precision, eps = 1 / posterior_moments(3)[1], 0.1
    variance = law_of_kernel(SAGA(), 3, 3, eps)[1][0, 0]
    assert variance == pytest.approx(1 / (precision * (1 - eps * precision / 4)), rel=EXACT)


@pytest.mark.usefixtures("x64")
def test_its_variance_is_nearer_the_posteriors_than_that_of_plain_minibatches():
    truth, eps = posterior_moments(4)[1], 0.02
    excess = {kind: law_of_kernel(kind(), 4, 1, eps)[1][0, 0] / truth - 1 for kind in (SAGA, Minibatch)}
    assert 0 < excess[SAGA] < 0.4 * excess[Minibatch]
    small = law_of_kernel(SAGA(), 4, 1, eps / 100)[1][0, 0] / truth - 1
    assert small < excess[SAGA] / 80  # of the order of the step size


@dataclass(frozen=True)
class Forgetful(SAGA):
    """A table that stays what it was."""

    def estimate(self, posterior, position, batch, state):
        gradient, _, stats = super().estimate(posterior, position, batch, state)
        return gradient, state, stats


@dataclass(frozen=True)
class Early(SAGA):
    """A table with new gradients before they were subtracted."""

    def estimate(self, posterior, position, batch, state):
        _, state, _ = super().estimate(posterior, position, batch, state)
        return super().estimate(posterior, position, batch, state)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("estimator", "weight"), [(Early(), 1.0), (SAGA(), 1.001)], ids=["early", "weights"])
def test_mistakes_change_the_law(estimator, weight):
    by_hand = law_by_hand(3, 1, 0.1)[1][0, 0]
    assert abs(law_of_kernel(estimator, 3, 1, 0.1, weight)[1][0, 0] / by_hand - 1) > 1e-5


@pytest.mark.usefixtures("x64")
def test_a_table_that_is_never_updated_has_no_law_of_its_own():
    """It stays what it was, so that nothing of the table is stationary by itself."""
    with pytest.raises(np.linalg.LinAlgError):
        law_of_kernel(Forgetful(), 3, 1, 0.1)


# Runs.

DATA = {"h": CURVATURE.astype(np.float32), "y": CENTRES.astype(np.float32)}


def setup(gradient=None, dynamics=None, data=DATA, stepsize=0.1, n=1, **options):
    def log_lik(params, batch):
        return -0.5 * (batch["h"] * (batch["y"] - params["mu"]) ** 2).sum()

    def log_prior(params):
        return -0.5 * PRIOR * params["mu"] ** 2

    return sgmcmc.sampler_setup(
        log_lik, data, {"mu": 0.0}, stepsize, log_prior=log_prior, minibatch_size=n, progress=False,
        gradient=gradient or SAGA(), dynamics=dynamics or Langevin(), **options,
    )  # fmt: skip


@cache
def many_rows():
    rng = np.random.default_rng(1)
    return {"h": rng.gamma(2.0, 0.01, 200).astype(np.float32), "y": rng.normal(1.0, 1.0, 200).astype(np.float32)}


@pytest.mark.parametrize("rows", ["random", pytest.param("window", marks=pytest.mark.slow)])
def test_runs_have_the_law(rows):
    """Rows are put where they belong in the table, whoever draws them; with windows of one row the law is the same."""
    sampler = setup(rows=rows)
    result = sampler.run(sampler.init(seed=3, n_chains=2000), 100, burn_in=100, thin=10, progress=False)
    with jax.enable_x64(True):
        law, plain = (law_of_kernel(kind(), 4, 1, 0.1) for kind in (SAGA, Minibatch))
    mean, variance = mean_and_variance(result["mu"], law[0][0])
    assert abs(mean.z(law[0][0])) < 4
    assert abs(variance.z(law[1][0, 0])) < 4
    assert abs(variance.z(plain[1][0, 0])) > 10


def test_every_chain_has_a_table_of_its_own():
    sampler = setup(data=many_rows(), n=10, stepsize=0.02)
    four = sampler.run(sampler.init(seed=4, n_chains=4), 100, progress=False)
    alone = sampler.run(sampler.init(seed=4), 100, progress=False)
    tables = np.asarray(four.final_state.estimator["table"]["mu"])
    assert tables.shape == (4, 200)
    assert all(np.abs(tables[0] - other).max() > 1e-3 for other in tables[1:])
    np.testing.assert_allclose(four["mu"][0], alone["mu"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tables[0], alone.final_state.estimator["table"]["mu"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # the battery has random rows in chunks, and single steps, at every change
@pytest.mark.parametrize("dynamics", [Langevin(), SymmetricHamiltonian(0.1, 3)], ids=["langevin", "hamiltonian"])
@pytest.mark.parametrize("rows", ["random", "window"])
def test_chunk_size_changes_no_bit(dynamics, rows):
    sampler = setup(data=many_rows(), n=10, stepsize=0.02, dynamics=dynamics, rows=rows)
    state = sampler.init(seed=4, n_chains=2)
    long, short = (sampler.run(state, 60, progress=False, chunk_size=size) for size in (60, 7))
    np.testing.assert_array_equal(long["mu"], short["mu"])
    jax.tree.map(np.testing.assert_array_equal, long.final_state.estimator, short.final_state.estimator)


@pytest.mark.slow
def test_steps_one_by_one_give_the_same_to_rounding():
    sampler = setup(data=many_rows(), n=10, stepsize=0.02)
    state = sampler.init(seed=4)
    result = sampler.run(state, 20, progress=False)
    for _ in range(20):
        state = sampler.step(state)
    np.testing.assert_allclose(state.params["mu"], result["mu"][-1], rtol=1e-4)
    np.testing.assert_allclose(state.estimator["table"]["mu"], result.final_state.estimator["table"]["mu"], rtol=1e-4, atol=1e-6)


def test_a_run_that_goes_on_from_its_folder_is_the_uninterrupted_one_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("sgmcmc.run.loop.LARGEST_CHUNK", 64)
    state = setup(data=many_rows(), n=10, stepsize=0.02).init(seed=4, n_chains=2)
    run = partial(Sampled, state, tmp_path / "run")
    half, whole, alone = run(150), run(400), Sampled(state, None, 400)
    np.testing.assert_array_equal(half.draws, alone.draws[:, :150])
    np.testing.assert_array_equal(whole.draws, alone.draws)
    jax.tree.map(np.testing.assert_array_equal, whole.table, alone.table)
    recorded = [leaf for leaf in jax.tree.leaves(read(tmp_path / "run").last.contents["state"]) if np.shape(leaf) == (2, 200)]
    np.testing.assert_array_equal(*recorded, alone.table["table"]["mu"])


class Sampled:
    """A run from a state by a sampler that is set up anew, as another process would."""

    def __init__(self, state, folder, n_iters):
        result = setup(data=many_rows(), n=10, stepsize=0.02).run(state, n_iters, checkpoint=folder, progress=False)
        self.draws, self.table = np.array(result["mu"]), result.final_state.estimator


@dataclass(frozen=True)
class Uncompensated(SAGA):
    """A sum that forgets what rounding took."""

    def estimate(self, posterior, position, batch, state):
        gradient, state, stats = super().estimate(posterior, position, batch, state)
        return gradient, state | {"lost": jax.tree.map(jnp.zeros_like, state["lost"])}, stats


def drift(estimator):
    """How far the sum is from that of the table after 20,000 steps in single precision, and what a unit of rounding is."""
    sampler = setup(estimator, data=many_rows(), n=10, stepsize=0.02)
    state = sampler.run(sampler.init(seed=4, n_chains=16), 20_000, thin=20_000, progress=False).final_state.estimator
    table, total = (np.asarray(state[name]["mu"], np.float64) for name in ("table", "sum"))
    assert table.std() > 1e-3
    return np.sqrt(np.mean((total - table.sum(axis=1)) ** 2)), np.finfo(np.float32).eps * np.abs(table).sum(axis=1).mean()


def test_the_sum_stays_that_of_the_table():
    off, unit = drift(SAGA())
    assert off < 2 * unit
    assert drift(Uncompensated())[0] > 4 * off


def test_a_divergence_leaves_a_finite_table():
    sampler = setup(data=many_rows(), n=10, stepsize=0.02)
    state = sampler.init(seed=4, n_chains=3)
    state = sampler.replace(state, {"mu": jnp.array([0.0, 0.0, 1.0])})
    far = setup(data=many_rows(), n=10, stepsize=4.0)
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        far.run(state, 2000, progress=False)
    error, final = caught.value, caught.value.result.final_state
    assert final.step == error.step - 1 > 5
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(final))
    np.testing.assert_array_equal(final.params["mu"], error.result["mu"][:, -1])
    with pytest.warns(sgmcmc.SgmcmcWarning, match="log posterior was not finite"):  # a square that overflows
        again = far.run(state, int(final.step), progress=False).final_state
    jax.tree.map(np.testing.assert_array_equal, again.estimator, final.estimator)


@pytest.mark.slow
def test_whitened_variables():
    """The table is of gradients in the variables that move."""
    sampler = setup(data=many_rows(), n=10, stepsize=0.1, precondition="laplace")
    result = sampler.run(sampler.init(seed=4, n_chains=500), 200, burn_in=100, thin=20, progress=False)
    h, y = (many_rows()[name].astype(np.float64) for name in ("h", "y"))
    precision = h.sum() + PRIOR
    mean, variance = mean_and_variance(result["mu"], (h * y).sum() / precision)
    assert abs(mean.z((h * y).sum() / precision)) < 4
    assert 1.0 < variance.value * precision < 1.12


# What it cannot do.


def test_rows_by_importance_are_refused():
    with pytest.raises(sgmcmc.InputError, match="rows='importance' came with SAGA, which needs distinct rows"):
        setup(rows="importance")


def test_own_batches_are_refused():
    sampler = setup()
    with pytest.raises(sgmcmc.InputError, match="SAGA must know which rows of the dataset it has; leave batch out"):
        sampler.step(sampler.init(seed=1), DATA)


def test_strata_are_refused():
    with pytest.raises(sgmcmc.InputError, match=r"SAGA\(\) came with rows in strata, and must know every row"):
        setup(data=Stratum(DATA, row_counts=(4, 4)))


def test_states_of_other_samplers_are_refused():
    plain, saga = setup(Minibatch()), setup()
    for one, other in ((plain, saga), (saga, plain)):
        with pytest.raises(sgmcmc.InputError, match="state was made by another sampler"):
            one.run(other.init(seed=1), 10, progress=False)


def test_a_table_of_another_dataset_is_refused():
    other, sampler = setup(), setup(data=many_rows())
    with pytest.raises(sgmcmc.InputError, match="SAGA's table of 4 rows for a dataset of 200"):
        sampler.run(other.init(seed=1), 10, progress=False)


def test_a_learnt_noise_estimate_is_refused():
    dynamics = sgmcmc.algorithms.PersistentHamiltonian(0.1, warmup=10)
    with pytest.raises(sgmcmc.InputError, match="learn the gradient noise in their warmup"):
        setup(dynamics=dynamics, n=2)
