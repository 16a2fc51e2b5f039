"""The benchmarks of data on disk and of devices: what they call exact is, processes take turns, tables have all figures."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ratios
from benchmarks.common.table import reached
from benchmarks.common.workers import PeakOfMemory, Worker, anonymous_bytes
from benchmarks.large import comparison as large
from benchmarks.large import data, exact
from benchmarks.steps import devices, speed


def test_fewer_rows_are_the_first_of_more():
    few = list(data.synthetic_blocks(500))
    more = list(data.synthetic_blocks(data.BLOCK + 500))
    assert [len(block["y"]) for block in more] == [data.BLOCK, 500]
    assert all((few[0][name] == more[0][name][:500]).all() for name in few[0])


def test_a_disk_that_is_too_small_gives_a_smaller_folder_or_none(tmp_path, monkeypatch):
    class Disk:
        free = int(data.MARGIN + data.SHUFFLING * 3e9)

    monkeypatch.setattr(data.shutil, "disk_usage", lambda _: Disk)
    assert data.affordable(10.0, tmp_path / "not" / "there") == pytest.approx(3.0)
    assert data.affordable(2.0, tmp_path) == 2.0
    Disk.free = data.MARGIN // 2
    assert data.affordable(10.0, tmp_path) == 0.0
    skipped = large.measure(10.0, tmp_path / "rows", rounds=1)
    assert "room for 0.0 GB" in large.report(skipped)
    assert ratios.report({"large": skipped}) == ""


def test_the_derivatives_are_those_of_the_model(x64):
    import jax
    import jax.numpy as jnp

    from benchmarks.common.problem import log_lik

    (rows,) = data.synthetic_blocks(400)
    rows = {"X": rows["X"][:, :3].astype(np.float64), "y": rows["y"].astype(np.float64)}
    rng = np.random.default_rng(0)
    position, root = rng.normal(size=4), rng.normal(size=(4, 4)) / 10
    covariance = root @ root.T

    def log_posterior(flat):
        params = {"bias": flat[0], "beta": flat[1:, None]}
        return log_lik(params, rows) + exact.log_prior(params)

    halves = [{name: array[part] for name, array in rows.items()} for part in (slice(0, 150), slice(150, 400))]
    gradient, precision, third = exact.derivatives(halves, position, covariance)
    np.testing.assert_allclose(gradient, jax.grad(log_posterior)(position), rtol=1e-9)
    np.testing.assert_allclose(precision, -jax.hessian(log_posterior)(position), rtol=1e-9, atol=1e-9)
    traced = jax.grad(lambda at: jnp.sum(jax.hessian(log_posterior)(at) * covariance))(position)
    np.testing.assert_allclose(third, traced, rtol=1e-8, atol=1e-8)


def test_the_mean_is_better_than_the_mode():
    """A bias alone, few rows: by quadrature the mean is off the mode, and the third derivatives tell by how much."""
    rows = {"X": np.zeros((12, 0)), "y": np.r_[np.ones(11), 0.0]}
    grid = np.linspace(-6, 12, 20_001)
    density = np.exp(11 * grid - 12 * np.logaddexp(0, grid) - grid**2 / 2)
    mean = float((grid * density).sum() / density.sum())
    mode, covariance, skewness = exact.newton(lambda: [rows], np.zeros(1))
    corrected = float((mode + covariance @ skewness / 2)[0])
    assert abs(corrected - mean) < 0.3 * abs(float(mode[0]) - mean)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "rows"
    return large.measure(0.002, folder, rounds=2, iterations=200, pairs=large.PAIRS[:1]), folder


def test_folder_and_memory_take_turns(measured):
    result, folder = measured
    assert not folder.exists()
    assert result["folder"]["rows"] == data.rows_of(0.002) == result["compared_rows"]
    for pair, found in result["pairs"].items():
        assert found["same_draws"], pair
        assert [len(times) for times in found["us"].values()] == [2, 2]
        assert 0 < found["peak"] < large.MOST_ANONYMOUS
    assert "centre" in result["pairs"]["sgldcv rows=window"]["ready"]["folder"]["seconds_by_stage"]
    text = large.report(result)
    assert "bitwise the same" in text
    assert all(pair in text for pair in result["pairs"])


def test_all_ratios_are_in_one_table(measured):
    pairs = {rows: {"devices": [1, 2], "us": [[32.0, 20.0], [34.0, 20.0], [36.0, 20.0]]} for rows in devices.KINDS}
    on_devices = {"rows": 10, "iterations": 5, "cores": 2, "pairs": pairs}
    times = {speed.LIMIT: [20.0, 20.0], "sgld rows=random": [42.0, 46.0], "sgld rows=window": [24.0, 20.0]}
    steps = {"us_per_iteration": times | {f"sgld rows=window{speed.FOUR}": [12.0, 15.0]}}
    text = ratios.report({"speed": steps, "large": measured[0], "devices": on_devices})
    assert "1.70 (1.60 to 1.80)" in text
    assert "2.20 (2.10 to 2.30)" in text
    assert "at most 1.4: MISSED" in text
    assert "0.62 (0.50 to 0.75)" in text, "four chains beside one"
    assert "long run" not in text, "it was not measured"
    assert "at least 1.6: met" in text
    assert text.count("GB on disk") == 1
    assert "1 and 2" in devices.report(on_devices)


def test_a_bar_that_is_not_reached_is_missed():
    assert (reached(1.6, 1.6), reached(1.59, 1.6)) == ("met", "MISSED")


def test_a_job_that_fails_says_which(capfd):
    with Worker(exact.exact_posterior, folder="nowhere") as worker, pytest.raises(RuntimeError, match="exact_posterior"):
        worker.turn()
    assert "nowhere" in capfd.readouterr().err


@pytest.mark.skipif(anonymous_bytes() == 0, reason="the system does not tell")
def test_the_peak_counts_what_a_process_holds_for_a_moment():
    peak = PeakOfMemory()
    peak.look()
    before, held = peak.bytes, np.ones(10**7)
    peak.look()
    del held
    peak.look()
    assert 0.9 * 8e7 < peak.bytes - before < 1.5 * 8e7
