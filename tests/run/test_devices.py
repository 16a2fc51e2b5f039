"""Chains over devices and rows in strata: the same draws, the same divergence, and gradients unbiased by enumeration."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.algorithms.gradients.control_variate import Centre, ControlVariate
from sgmcmc.algorithms.gradients.minibatch import Minibatch
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import Batch
from sgmcmc.problem.posterior import Posterior, make_transform
from sgmcmc.rows.sources import STRATA, make_stratum_source, subsample
from sgmcmc.rows.table import Stratum

SCRIPT = Path(__file__).parents[1] / "support" / "two_devices.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a process with two devices finds on both, and on one of them."""
    file = tmp_path_factory.mktemp("devices") / "found.npz"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    # No cache of programs: XLA ends with a segmentation fault in one that sums over two devices and comes from a cache on disk.
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"} | {
        "XLA_FLAGS": flags
    }
    command = [sys.executable, "-X", "faulthandler", SCRIPT, file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.load(file)


@pytest.mark.parametrize("rows", ["random", "window"])
@pytest.mark.parametrize("what", ["draws", "some", "mean", "covariance", "square", "positions", "gradients"])
def test_two_devices_keep_what_one_keeps(found, rows, what):
    two, one = (found[f"{rows} {what} {place}"] for place in ("two", "one"))
    assert two.shape == one.shape
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-4 * np.abs(one).max())


@pytest.mark.parametrize("what", ["draws", "table"])
def test_tables_of_saga_lie_with_their_chains(found, what):
    two, one = (found[f"saga {what} {place}"] for place in ("two", "one"))
    assert two.shape == one.shape == ((4, 100, 2) if what == "draws" else (4, 1000, 2))
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-4 * np.abs(one).max())


def test_a_divergence_is_the_same_on_two_devices(found):
    np.testing.assert_array_equal(found["diverged at two"], found["diverged at one"])
    step, chain, stopped = found["diverged at two"]
    assert chain == 2
    assert stopped == step - 1
    assert found["diverged draws two"].shape == found["diverged draws one"].shape == (4, stopped, 2)
    assert np.isfinite(found["diverged draws two"]).all()
    np.testing.assert_allclose(found["diverged draws two"], found["diverged draws one"], rtol=1e-4)


def test_strata_without_noise_follow_the_chain_of_the_full_gradient(found):
    np.testing.assert_allclose(found["strata draws two"], found["strata draws one"], atol=1e-4)
    np.testing.assert_allclose(found["strata step two"], found["strata draws two"][:, 0], atol=1e-5)


@pytest.mark.parametrize("what", ["rows", "stepsize"])
def test_what_strata_cannot_do_is_refused(found, what):
    assert "in strata" in str(found[f"refusal of {what}"])


def enumerated(estimator, posterior, est_state, position, strata, n):
    """The estimate of every choice of n rows from each stratum, and its own variance, summed as a mesh would."""

    def estimate(rows, weight):
        batch = Batch({"x": rows}, weight, jnp.zeros(n, int))
        gradient, _, stats = estimator.estimate(posterior, position, batch, est_state)
        return gradient["theta"], stats["variance"]["theta"] if stats else jnp.zeros(2)

    over_mesh = jax.jit(jax.vmap(estimate, axis_name=STRATA))
    weights = jnp.asarray([len(rows) / n for rows in strata])
    choices = itertools.product(*(itertools.combinations(range(len(rows)), n) for rows in strata))
    found = [over_mesh(jnp.stack([x[np.asarray(i)] for x, i in zip(strata, choice, strict=True)]), weights) for choice in choices]
    gradients, variances = (np.asarray(jnp.stack(part)) for part in zip(*found, strict=True))
    np.testing.assert_array_equal(gradients[:, 0], gradients[:, 1])  # both strata have the sum
    return gradients[:, 0], variances[:, 0]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["plain", "control variate"])
@pytest.mark.parametrize("with_variance", [False, True])
def test_strata_are_unbiased_over_all_minibatches(kind, with_variance):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 2))
    strata = [jnp.asarray(rows[:3]), jnp.asarray(rows[3:])]

    def log_lik(params, batch):
        return -jnp.sum(jnp.log1p((batch["x"] - params["theta"]) ** 2))

    def log_prior(params):
        return -0.5 * jnp.sum(params["theta"] ** 2)

    position, centre = {"theta": jnp.asarray([0.3, -0.2])}, {"theta": jnp.asarray([0.1, 0.4])}
    posterior = Posterior(log_lik, log_prior, 9, make_transform(None, position), per_row=False)
    whole = Batch({"x": jnp.asarray(rows)}, jnp.ones(()), jnp.arange(9))
    full = jax.grad(posterior.log_likelihood)(centre, whole)
    estimator, est_state = Minibatch(with_variance), ()
    if kind == "control variate":
        estimator, est_state = ControlVariate(with_variance), Centre(centre, full, 0.0, True)
    gradients, variances = enumerated(estimator, replace(posterior, axis=STRATA), est_state, position, strata, 2)
    assert len(gradients) == 3 * 15
    truth = jax.grad(posterior.log_posterior)(position, whole)["theta"]
    np.testing.assert_allclose(gradients.mean(axis=0), truth, rtol=1e-12)
    assert (np.abs(gradients - truth) > 1e-3).any()  # single minibatches are off
    if with_variance:
        np.testing.assert_allclose(variances.mean(axis=0), gradients.var(axis=0), rtol=1e-12)


def test_strata_draw_rows_of_their_own_and_count_them_right():
    columns = {"x": np.arange(10, dtype=np.float32)}
    sources = [make_stratum_source(Stratum(columns, row_counts=(10, 10), process=process), 6, "random") for process in (0, 1)]
    keys = jax.random.split(jax.random.key(0), (50,))
    drawn = [np.asarray(source.prepare(source.draw(keys), 50)[0][1]) for source in sources]
    assert drawn[0].shape == (50, 3)
    assert (drawn[0] != drawn[1]).any(axis=1).mean() > 0.9
    np.testing.assert_allclose(sources[0].data, [10 / 3], rtol=1e-6)


def test_windows_of_strata_are_those_of_the_shuffled_order():
    columns = {"x": np.arange(20, dtype=np.float32)}
    source = make_stratum_source(Stratum(columns, row_counts=(20, 30)), 8, "window")
    ((rows, index),) = source.prepare(source.draw(jax.random.split(jax.random.key(1), (300,))), 300)
    np.testing.assert_array_equal(np.asarray(rows["x"]), np.asarray(index))
    order = source.inner.order.tolist()
    for window in np.asarray(index):
        begin = order.index(window[0])
        assert window.tolist() == order[begin : begin + 4]


def test_a_minibatch_too_large_for_the_smallest_stratum_is_refused():
    with pytest.raises(InputError, match="smallest has 3; expected at most 6"):
        make_stratum_source(Stratum({"x": np.zeros(3)}, row_counts=(3, 97)), 10, "random")


def test_a_sample_of_strata_takes_of_each_in_proportion():
    whole = Stratum({"x": np.arange(3000.0)}, row_counts=(3000, 7000))
    some = subsample(whole, 1000, seed=4)
    assert some.row_counts == (300, 700)
    assert some.total_rows == 1000
    assert len(np.unique(some["x"])) == 300
