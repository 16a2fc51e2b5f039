"""Which rows: the host's row numbers are those of JAX, whoever makes them."""

from __future__ import annotations

import shutil

import jax
import numpy as np
import pytest

from sgmcmc.rows import drawing, native
from sgmcmc.rows.drawing import distinct, draw_distinct, streams, take_first_distinct

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
compiles = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return native.compiled(COMPILER, tmp_path_factory.mktemp("native"))


@pytest.fixture
def by_host(library, monkeypatch):
    monkeypatch.setattr(native, "library", lambda: library)


def firsts(keys, attempt, N, n):
    """The first n distinct numbers of JAX's streams, one list after the other."""
    found = np.asarray(streams(keys.ravel(), attempt, N, drawing.stream_length(N, n)))
    return [list(dict.fromkeys(stream))[:n] for stream in found.tolist()]


@compiles
@pytest.mark.parametrize(("N", "n"), [(2, 1), (3, 1), (1000, 400), (2**16, 70), (2**16 + 1, 70), (581_012, 500), (2**31 - 1, 65)])
def test_streams_of_the_host_are_those_of_jax(by_host, N, n):
    keys = jax.random.split(jax.random.key(4), (3, 2, 5))
    drawn = draw_distinct(keys, N, n)
    assert drawn.dtype == np.uint32, "keys as they are, nothing drawn on the device"
    capacity, rows = distinct(drawn, 2, N, n)
    assert capacity == 3
    assert rows.shape == (2, 2, 5, n)
    assert rows.reshape(-1, n).tolist() == firsts(keys[:2], 0, N, n)


@compiles
def test_a_stream_with_too_few_rows_is_drawn_again_by_the_host(by_host, monkeypatch):
    """With streams so short that many have too few: the host's attempts are those of JAX."""
    monkeypatch.setattr(drawing, "stream_length", lambda N, n: n + 4)
    N, n, keys = 300, 40, jax.random.split(jax.random.key(5), 12)
    attempts = [firsts(keys, attempt, N, n) for attempt in range(6)]
    expected = [next(rows for rows in tries if len(rows) == n) for tries in zip(*attempts, strict=True)]
    assert expected != attempts[0], "some have too few at first"
    assert distinct(draw_distinct(keys, N, n), 12, N, n)[1].tolist() == expected
    monkeypatch.setattr(native, "library", lambda: None)
    assert distinct(draw_distinct(keys, N, n), 12, N, n)[1].tolist() == expected


@compiles
@pytest.mark.parametrize("settings", [{"jax_default_prng_impl": "rbg"}, {"jax_threefry_partitionable": False}])
def test_other_generators_draw_on_the_device(by_host, settings):
    (name, value), before = next(iter(settings.items())), {name: getattr(jax.config, name) for name in settings}
    jax.config.update(name, value)
    try:
        keys = jax.random.split(jax.random.key(6), 4)
        drawn = draw_distinct(keys, 1000, 30)
        assert isinstance(drawn, tuple)
        assert distinct(drawn, 4, 1000, 30)[1].tolist() == firsts(keys, 0, 1000, 30)
    finally:
        jax.config.update(name, before[name])


@pytest.mark.parametrize(
    ("N", "n", "length"), [(5, 1, 1), (6, 3, 9), (50, 40, 90), (10**6, 500, 512), (2**31 - 1, 5, 40), (3, 4, 9)]
)
def test_first_distinct_numbers(N, n, length):
    found = RNG.integers(0, N, (300, length)).astype(np.int32)
    out = np.empty((300, n), np.int32)
    poor = take_first_distinct(found, out)
    first = [list(dict.fromkeys(stream))[:n] for stream in found.tolist()]
    assert poor.tolist() == [k for k, numbers in enumerate(first) if len(numbers) < n]
    for k in set(range(300)) - set(poor.tolist()):
        assert out[k].tolist() == first[k]
