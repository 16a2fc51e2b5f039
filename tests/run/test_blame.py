"""Not finite: the row is named, with its values, the term and the repair; what is finite is left alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.problem.posterior import Posterior, check_params, log_lik_shape, make_transform
from sgmcmc.rows.table import check_dataset
from sgmcmc.run.blame import blame, blame_later, raise_if_not_finite
from sgmcmc.run.terms import term_at_fault

RNG = np.random.default_rng(0)
N = 300
DATA = {
    "X": RNG.standard_normal((N, 3)).astype(np.float32),
    "y": RNG.integers(0, 2, N),
    "exposure": RNG.uniform(1.0, 2.0, N).astype(np.float32),
}
BETA = {"beta": np.zeros(3)}
QUICK = {"minibatch_size": 30, "progress": False}


def with_zeros(*rows):
    exposure = DATA["exposure"].copy()
    exposure[list(rows)] = 0.0
    return DATA | {"exposure": exposure}


def with_rows(scale):
    """The data with one row, 41, whose linear predictor at beta = (1, 0, 0) is `scale`; all others are within 4."""
    X, y = np.clip(DATA["X"], -4, 4), DATA["y"].copy()
    X[41], y[41] = (scale, 0, 0), scale < 0
    return DATA | {"X": X, "y": y}


def problem(log_lik, dataset, params, log_prior=None, constraints=None):
    table, start = check_dataset(dataset), check_params(params)
    transform = make_transform(constraints, start)
    per_row = log_lik_shape(log_lik, start, table.columns)
    return Posterior(log_lik, log_prior, table.n_rows, transform, per_row), transform.to_position(start), table


def found(*arguments, **options):
    """What is said of a problem at its start."""
    return blame(*problem(*arguments, **options)).told("here")


def counts(params, batch):
    z = batch["X"] @ params["beta"] + jnp.log(batch["exposure"])
    return batch["y"] * z - jnp.exp(z)


def counts_summed(params, batch):
    return counts(params, batch).sum()


def article(params, batch):
    z = batch["X"] @ params["beta"]
    return batch["y"] * jnp.log(1 / (1 + jnp.exp(-z))) + (1 - batch["y"]) * jnp.log(1 - 1 / (1 + jnp.exp(-z)))


def ones_only(params, batch):
    return batch["y"] * jnp.log(1 / (1 + jnp.exp(-(batch["X"] @ params["beta"]))))


def stable(params, batch):
    z = batch["X"] @ params["beta"]
    return batch["y"] * jax.nn.log_sigmoid(z) + (1 - batch["y"]) * jax.nn.log_sigmoid(-z)


@pytest.mark.parametrize("log_lik", [counts, counts_summed])
def test_a_row_with_exposure_zero(log_lik):
    said = found(log_lik, with_zeros(17, 200), BETA)
    for part in ("for row 17 (exposure=0.0,", "1 other row:", "log of 0.0", "jnp.log(batch[", "leave such rows out"):
        assert part in said
    assert "exposure is 0.0 there" in said


@pytest.mark.parametrize("log_lik", [counts, counts_summed, stable])
def test_nothing_is_said_of_what_is_finite(log_lik):
    assert blame(*problem(log_lik, DATA, BETA)) is None
    raise_if_not_finite(*problem(log_lik, DATA, BETA), "here")


@pytest.mark.parametrize(("log_lik", "scale"), [(article, 20.0), (ones_only, -90.0), (article, -90.0), (article, 50.0)])
def test_digits_that_run_out(log_lik, scale):
    said = found(log_lik, with_rows(scale), {"beta": np.float32([1, 0, 0])})
    for part in (f"row 41 (X=[{scale}, 0.0, 0.0]", "log of 0.0", "log_sigmoid", "Bernoulli(logits=z)"):
        assert part in said
    assert ("jax_enable_x64" in said) == (scale != 50)  # where float64 has no digits left either
    assert blame(*problem(stable, with_rows(scale), {"beta": np.float32([1, 0, 0])})) is None


def test_float64_is_not_suggested_in_float64(x64):
    said = found(article, with_rows(50.0), {"beta": np.array([1.0, 0, 0])})
    assert "log_sigmoid" in said
    assert "jax_enable_x64" not in said


def test_a_zero_among_the_columns_of_a_logistic_term_is_not_blamed():
    said = found(article, with_rows(20.0), {"beta": np.float32([1, 0, 0])})
    assert "leave such rows out" not in said


def test_division_by_zero():
    def log_lik(params, batch):
        return -batch["y"] / batch["exposure"] * params["a"] ** 2

    said = found(log_lik, with_zeros(299), {"a": 1.0})
    for part in ("row 299 (exposure=0.0", "division by 0.0", "exposure is 0.0 there"):
        assert part in said


def test_an_exponential_that_overflows():
    def log_lik(params, batch):
        return -jnp.exp(params["a"] + batch["exposure"])

    said = found(log_lik, DATA | {"exposure": np.where(np.arange(N) == 5, 10.0, 1.0)}, {"a": 80.0})
    for part in ("is -inf here for row 5 (exposure=10.0", "exp of 90.0 overflows", "scales near 1", "jax_enable_x64"):
        assert part in said


def test_a_rate_that_underflows_is_not_called_logistic():
    def log_lik(params, batch):
        rate = jnp.exp(params["a"] * batch["exposure"])
        return batch["y"] * jnp.log(rate) - rate

    said = found(log_lik, DATA, {"a": -110.0})
    assert "log of 0.0" in said
    assert "y * z - exp(z)" in said
    assert "log_sigmoid" not in said


def test_a_limit_written_as_minus_infinity():
    def log_lik(params, batch):
        return jnp.where(batch["exposure"] > params["a"], -(params["a"] ** 2), -jnp.inf)

    said = found(log_lik, with_zeros(8), {"a": 0.5})
    for part in ("log_lik is -inf here for row 8 (exposure=0.0", "-inf is written there", "exposure is 0.0"):
        assert part in said


def test_a_parameter_outside_its_support():
    def log_lik(params, batch):
        return -0.5 * (batch["exposure"] / params["s"]) ** 2 - jnp.log(params["s"])

    said = found(log_lik, DATA, {"s": -1.5})
    for part in ("row 0", "299 other rows", "log of -1.5", "constraints={'s': sgmcmc.constraints.positive}"):
        assert part in said
    assert blame(*problem(log_lik, DATA, {"s": 1.5}, constraints={"s": sgmcmc.constraints.positive})) is None


@pytest.mark.parametrize("start", [0.0, -1.0])
def test_a_prior_that_is_not_finite(start):
    said = found(counts, DATA, {"beta": np.zeros(3), "tau": start}, log_prior=lambda params: jnp.sqrt(params["tau"]))
    assert "'tau'" in said
    assert f"sqrt of {start}" in said
    assert ("log_prior has a gradient that is not finite" in said) == (start == 0)
    assert "row" not in said


def test_a_gradient_that_is_not_finite_where_the_value_is():
    said = found(lambda params, batch: -jnp.sqrt(params["a"] * batch["exposure"]), with_zeros(3), {"a": 1.0})
    for part in ("log_lik has a gradient that is not finite", "row 3 (exposure=0.0", "slope of sqrt of 0.0", "exposure is 0.0"):
        assert part in said


def test_a_value_left_out_by_where_still_spoils_the_gradient():
    def log_lik(params, batch):
        return jnp.where(batch["exposure"] > 0, jnp.log(params["a"] * batch["exposure"]), 0.0)

    said = found(log_lik, with_zeros(3), {"a": 1.0})
    for part in ("gradient", "row 3", "log of 0.0", "jnp.where(x > 0, x, 1.0)"):
        assert part in said


def test_functions_with_a_derivative_of_their_own_are_not_blamed():
    def log_lik(params, batch):
        entropy = jax.scipy.special.xlogy(batch["exposure"], batch["exposure"])
        return entropy * params["a"] - jnp.sqrt(params["a"] - 1.0)

    said = found(log_lik, with_zeros(0), {"a": 1.0})
    assert "slope of sqrt of 0.0" in said


def test_functions_that_are_compiled_or_loop_are_looked_into_as_far_as_can_be():
    def loop(params, batch):
        return jax.lax.fori_loop(0, 3, lambda i, total: total + jnp.log(batch["exposure"]), params["a"] * batch["exposure"])

    assert "log of 0.0 (line" in found(jax.jit(counts), with_zeros(17), BETA)
    assert "something inside a loop" in found(loop, with_zeros(17), {"a": 1.0})


def test_a_row_of_a_later_block_of_wide_data():
    n = 40_000
    X = np.random.default_rng(1).standard_normal((n, 60)).astype(np.float32)
    X[31_234, 7:] = 0.0
    X[31_234, 5] = 1e6

    def log_lik(params, batch):
        return -jnp.log(jnp.prod(batch["X"][:, 7:10] ** 2, axis=1)) * params["a"]

    said = found(log_lik, {"X": X} | {f"c{i}": X[:, i] for i in range(6)}, {"a": 1.0})
    for part in ("row 31234 (X with 60 numbers, 53 of them 0, from X[", "to X[5]=1000000.0", "2 more columns", "log of 0.0"):
        assert part in said
    assert len(said) < 600


def test_integer_columns():
    def log_lik(params, batch):
        return jnp.log(batch["count"]) * params["a"]

    said = found(log_lik, {"count": np.where(np.arange(50) == 30, 0, 4)}, {"a": 1.0})
    for part in ("row 30 (count=0)", "log of 0.0", "count is 0 there"):
        assert part in said


def test_data_on_disk(tmp_path):
    folder = sgmcmc.data.convert(with_zeros(17), tmp_path / "rows", shuffle=False, progress=False)
    said = found(counts, folder, BETA)
    assert "row 17 (exposure=0.0" in said
    with pytest.raises(sgmcmc.InputError, match=r"row 0 \(exposure=0\.0.*log of 0\.0"):
        sgmcmc.sgld_setup(counts, np_maps(tmp_path, with_zeros(0)), BETA, 1e-4, **QUICK)


def np_maps(folder, data):
    """The data as memory maps, of which only a handful of rows are looked at before a run."""
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in data}


@pytest.mark.parametrize("row", [0, 17])
def test_a_sampler_refuses_to_start(row):
    with pytest.raises(sgmcmc.InputError, match=rf"at the starting values for row {row} \(exposure=0\.0.*log of 0\.0"):
        sgmcmc.sgld_setup(counts, with_zeros(row), BETA, 1e-4, **QUICK)


def test_a_gradient_at_the_start_is_explained():
    with pytest.raises(sgmcmc.InputError, match=r"'tau' is not finite at the start.*slope of sqrt of 0\.0"):
        sgmcmc.sgld_setup(
            counts, DATA, {"beta": np.zeros(3), "tau": 0.0}, 1e-4, log_prior=lambda params: jnp.sqrt(params["tau"]), **QUICK
        ).init(seed=1)


@pytest.mark.parametrize("n_chains", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_a_chain_that_meets_such_a_row_says_so(n_chains):
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        sgmcmc.sgld(article, DATA, {"beta": np.float32([5, 0, 0])}, 0.5, n_iters=500, seed=1, n_chains=n_chains, **QUICK)
    for part in ("where it went for row", "log of 0.0", "log_sigmoid", "Or its step size", ".result"):
        assert part in str(caught.value)


def test_a_step_that_is_too_large_is_still_the_step():
    def log_lik(params, batch):
        return -0.5 * ((batch["exposure"] - params["a"]) ** 2).sum()

    with pytest.raises(sgmcmc.DivergenceError, match="Its step size, 2, is probably too large") as caught:
        sgmcmc.sgld(log_lik, DATA, {"a": 1.0}, 2.0, n_iters=500, seed=1, **QUICK)
    assert "row" not in str(caught.value)


def test_positions_at_which_the_log_posterior_is_not_finite_have_their_row_named():
    def log_lik(params, batch):
        return jnp.where(batch["exposure"] > params["a"], -0.5 * params["a"] ** 2, -jnp.inf).sum()

    with pytest.warns(sgmcmc.SgmcmcWarning, match=r"not finite at some.*at the last of them for row \d+ .*-inf is written there"):
        sgmcmc.sgld(log_lik, DATA, {"a": 0.9}, 1.0, minibatch_size=300, n_iters=50, seed=3, progress=False, diagnose=True)


def test_nothing_is_said_later_of_data_too_large_or_of_parameters_that_are_not_finite(monkeypatch):
    posterior, position, table = problem(counts, with_zeros(17), BETA)
    assert "row 17" in blame_later(posterior, position, table, "there")
    assert blame_later(posterior, {"beta": np.full(3, np.nan)}, table, "there") == ""
    monkeypatch.setattr("sgmcmc.run.blame.LOOKED_AT", table.nbytes - 1)
    assert blame_later(posterior, position, table, "there") == ""
    assert "other" not in blame(posterior, position, table).told("there")  # not counted


def test_what_cannot_be_explained_never_hides_the_error(monkeypatch):
    def broken(*arguments):
        raise RuntimeError

    problem_here = problem(counts, with_zeros(17), BETA)
    monkeypatch.setattr("sgmcmc.run.blame.term_at_fault", broken)
    assert "row 17" in blame(*problem_here).told("there")
    monkeypatch.setattr("sgmcmc.run.blame.blame", broken)
    assert blame_later(*problem_here, "there") == ""


def test_a_term_knows_what_it_was_made_from():
    given = {"parameter": {"a": jnp.ones(())}, "column": {"x": jnp.zeros(1), "y": jnp.ones(1)}}
    term = term_at_fault(lambda params, row: row["y"] + jnp.log(jnp.exp(params["a"]) * row["x"]), given)
    assert (term.kind, term.parameters, term.columns, term.direct) == ("edge", ("a",), ("x",), ("x",))
    assert term.operations >= {"log", "exp", "mul"}
    assert "test_blame.py" in term.line
