"""Options of the compiler: those that this version of XLA has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.core import compiling


def test_an_option_that_is_not_there_is_not_used(monkeypatch):
    assert compiling.known(compiling.FUSION_EMITTERS)
    assert not compiling.known("xla_cpu_no_such_option")
    monkeypatch.setattr(compiling, "FUSION_EMITTERS", "xla_cpu_no_such_option")
    assert compiling.options() == {}


def test_on_other_backends_nothing_is_chosen(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiling.options(in_a_hurry=True) is None


@pytest.mark.parametrize("in_a_hurry", [False, True])
def test_programs_compute_the_same(in_a_hurry):
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)

    def function(x):
        return jnp.tanh(x @ x.T).sum(axis=0)

    quick = jax.jit(function, compiler_options=compiling.options(in_a_hurry))
    np.testing.assert_allclose(quick(x), np.tanh(x @ x.T).sum(axis=0), rtol=1e-4)
