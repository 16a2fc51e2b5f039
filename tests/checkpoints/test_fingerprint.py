"""What a run depends on: the same in every process, different where the draws would be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc.checkpoints.fingerprint
from sgmcmc import Expectation, InputError, Trace, constraints
from sgmcmc.checkpoints.fingerprint import differences, environment, fingerprint, of_data, of_function, of_value

SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np
import sgmcmc
from sgmcmc.checkpoints.fingerprint import fingerprint, of_value
for unrelated in range(int(sys.argv[1])):  # another history of this process
    jax.make_jaxpr(lambda x: jnp.where(x > unrelated, x, jax.nn.relu(x)))(1.0)
table = np.arange(4000.0, dtype=np.float32)

@jax.custom_vjp
def own(x):
    return jnp.sin(x)

own.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))

def log_lik(params, rows):
    d = sgmcmc.distributions.Normal(own(params["mu"]), jax.nn.softplus(params["s"]))
    far = jax.lax.scan(lambda c, x: (c + jax.jit(lambda y: y * table[3])(x), None), 0.0, rows["x"])[0]
    return d.log_prob(rows["x"]).sum() + far + jnp.asarray(table)[rows["k"]].sum()

rows = {"x": np.zeros(5, np.float32), "k": np.zeros(5, np.int32)}
params = {"mu": jnp.float32(0), "s": jnp.float32(1)}
for name, text in fingerprint(rows, {"log_lik": (log_lik, params, rows)}, {"positive": sgmcmc.constraints.positive}).items():
    print(name, text)
print(of_value({"f": sgmcmc.Expectation(lambda p: p["mu"] ** 2)}, params))
print(of_value(lambda t: 0.1 * (t + 1.0) ** -0.3, jnp.int32(1)))
"""


def test_two_processes_agree():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, history], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONHASHSEED": seed}
        )
        for history, seed in (("0", "1"), ("3", "2"))
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second
    assert len(first.splitlines()) == len(environment()) + 6
    assert "0x" not in first


PARAMS = {"mu": jnp.float32(0.0)}


def test_functions_are_told_apart_by_what_they_do():
    text = of_function(lambda p: p["mu"] ** 2, PARAMS)
    assert text == of_function(lambda q: q["mu"] ** 2, PARAMS)
    assert text != of_function(lambda p: p["mu"] ** 3, PARAMS)
    assert text != of_function(lambda p: p["mu"] ** 2, {"mu": jnp.zeros(3)})
    assert len(text) < 100


def capturing(array, inside=lambda f: f):
    return inside(lambda p: (p["mu"] * array).sum())


@pytest.mark.parametrize("inside", [lambda f: f, jax.jit, jax.checkpoint, lambda f: lambda p: jax.lax.cond(True, f, f, p)])
def test_captured_arrays_count_bit_by_bit(inside):
    table = np.linspace(0, 1, 5000, dtype=np.float32)
    other = table.copy()
    other[2500] = np.nextafter(other[2500], 2)  # where printing would leave it out
    one, same, another = (of_function(capturing(x, inside), PARAMS) for x in (table, table.copy(), other))
    assert one == same
    assert differences({"log_lik": one}, {"log_lik": another}) == ["log_lik captures other arrays than when it made the run"]


def test_captured_numbers_count_to_the_last_bit():
    number = np.float32(0.1)
    texts = {
        of_function(lambda p, x=x: p["mu"] * x, PARAMS) for x in (number, np.nextafter(number, np.float32(1)), float(number))
    }
    assert len(texts) == 2


def test_captured_keys_count():
    texts = {of_function(lambda p, k=k: p["mu"] * jax.random.normal(jax.random.key(k)), PARAMS) for k in (1, 2)}
    keys = {of_function(lambda p, k=k: p["mu"] * jax.random.normal(k), PARAMS) for k in map(jax.random.key, (1, 2))}
    assert len(texts) == len(keys) == 2


def test_a_derivative_of_ones_own_counts():
    def with_slope(slope):
        @jax.custom_jvp
        def own(x):
            return jnp.sin(x)

        own.defjvp(lambda x, dx: (jnp.sin(x[0]), slope * dx[0]))
        return lambda p: own(p["mu"])

    assert of_function(with_slope(1.0), PARAMS) == of_function(with_slope(2.0), PARAMS)  # which is why gradient=True
    assert of_function(with_slope(1.0), PARAMS, gradient=True) != of_function(with_slope(2.0), PARAMS, gradient=True)


def test_data_in_memory():
    rows = {"X": np.arange(12.0).reshape(4, 3), "y": np.arange(4)}
    base = of_data(rows)
    assert base == of_data({name: np.asfortranarray(array) for name, array in rows.items()})
    assert base["y"] == of_data({"y": np.arange(8)[::2] // 2})["y"]
    assert base["y"] == of_data({"y": [0, 1, 2, 3]})["y"]
    assert base["X"].startswith("float64 (4, 3), hash ")
    changed = rows["X"].copy()
    changed[3, 2] += 1e-12
    assert of_data({"X": changed})["X"] != base["X"]
    assert of_data({"e": np.zeros((0, 3))})["e"].startswith("float64 (0, 3)")
    with pytest.raises(InputError, match="object"):
        of_data({"names": np.array([None])})


def test_large_data_are_read_in_part(monkeypatch):
    monkeypatch.setattr(sgmcmc.checkpoints.fingerprint, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(sgmcmc.checkpoints.fingerprint, "BLOCK_BYTES", 80)

    class Remote:
        """Rows that can only be sliced, and are counted."""

        def __init__(self, array):
            self.array, self.shape, self.dtype, self.read = array, array.shape, array.dtype, 0

        def __getitem__(self, rows):
            self.read += rows.stop - rows.start
            return self.array[rows]

    array = np.arange(20_000, dtype=np.int64).reshape(10_000, 2)
    remote = Remote(array)
    text = of_data({"x": remote})["x"]
    assert remote.read == 64 * 5
    assert text == of_data({"x": array})["x"]
    for row in (0, 9_999):
        changed = array.copy()
        changed[row] += 1
        assert of_data({"x": changed})["x"] != text


def test_a_folder_of_rows_is_known_by_its_checksum():
    class Folder(dict):
        checksum, n_rows, shuffled = "abc", 10, True

    assert of_data(Folder(X=None, y=None)) == {"": "10 rows of X, y, shuffled: True, checksum abc"}
    other = Folder(X=None, y=None)
    other.checksum = "abd"
    recorded, now = fingerprint(Folder(X=None, y=None), {}, {}), fingerprint(other, {}, {})
    assert differences(recorded, now) == ["the data differ: the folder of rows has other values"]


def test_hashing_is_fast():
    array = np.ones((60_000_000,), np.float32)  # 240 MB
    clocks = []
    for _ in range(3):
        clock = time.perf_counter()
        of_data({"x": array})
        clocks.append(time.perf_counter() - clock)
    assert array.nbytes / min(clocks) > 250e6  # half of what is meant: other work may share the machine


@dataclass(frozen=True)
class Mine:
    level: float
    function: object = None


def test_values():
    assert of_value(1e-4) == of_value(np.float64(1e-4)) == "0.0001"
    assert (of_value(None), of_value(True), of_value("window"), of_value(3)) == ("None", "True", "window", "3")
    assert of_value({"a": 1.0, "b": 2}) == "a: 1.0, b: 2"
    assert of_value({}) == "{}"
    assert re.fullmatch(r"0.0, 1.0, 2.0, 3.0, ... \(54 numbers, hash \w{16}\)", of_value({"beta": np.arange(54.0)}))
    assert of_value(np.arange(54.0)) != of_value(np.arange(54.0).astype(np.float32))
    assert of_value(np.arange(6.0)) != of_value(np.arange(6.0).reshape(2, 3))
    assert of_value(jax.random.key(3)) == of_value(np.array([0, 3], np.uint32))
    assert of_value({"sigma": constraints.positive}) == "sigma: Positive(lower_bound=0.0)"
    assert of_value({"s": constraints.greater_than(0.5)}) != of_value({"s": constraints.less_than(0.5)})
    bounds = [constraints.interval(0.0, np.r_[np.ones(2000), last]) for last in (1.0, 2.0)]
    assert of_value(bounds[0]) != of_value(bounds[1])
    assert of_value(Mine(2.0)) == "Mine(level=2.0, function=None)"
    assert of_value(object()) == "<object object>"
    with pytest.raises(InputError, match="without arguments"):
        of_value(Mine(2.0, lambda x: x))


def test_keep_objects_by_what_they_keep():
    text = of_value({"a": Trace(lambda p: p["mu"], thin=2)}, PARAMS)
    assert text == of_value({"a": Trace(lambda q: q["mu"], thin=2)}, PARAMS)
    for other in (Trace(lambda p: -p["mu"], thin=2), Trace(lambda p: p["mu"]), Expectation(lambda p: p["mu"])):
        assert of_value({"a": other}, PARAMS) != text


def test_differences_in_words():
    rows = {"X": np.zeros((4, 3), np.float32), "y": np.zeros(4)}

    def of(rows, power, stepsize, prior=None, thin=1, **more):
        functions = {"log_lik": (lambda p, r: (p["mu"] ** power * r["X"]).sum(), PARAMS, rows), "log_prior": (prior, PARAMS)}
        keep = of_value(Trace(lambda p: p["mu"], thin=thin), PARAMS)
        return fingerprint(rows, functions, {"stepsize": stepsize, "keep": keep, **more})

    recorded = of(rows, 2, 1e-4)
    assert differences(recorded, of(rows, 2, 1e-4)) == []
    changed = {"X": np.zeros((5, 3), np.float32), "y": np.arange(4.0)}
    now = of(changed, 3, 2e-4, lambda p: p["mu"], thin=2, alpha=0.1) | {"jax": "0.0.1"}
    assert differences(recorded, now) == [
        f"jax was {jax.__version__}, is 0.0.1",
        "the data differ: X was float32 (4, 3), is float32 (5, 3)",
        "the data differ: y has other values",
        "log_lik is another function than the one that made the run",
        "log_prior was None, is a function",
        "stepsize was 0.0001, is 0.0002",
        "keep was Trace(function=a function, thin=1), is Trace(function=a function, thin=2)",
        "alpha was not there, is 0.1",
    ]


def test_precision_counts(x64):
    inside = environment()
    with jax.enable_x64(False):
        assert differences(inside, environment()) == ["jax_enable_x64 was True, is False"]
