"""Which values are the same for a compiled program, and above all which are not."""

from __future__ import annotations

import functools
import signal
import sys
import types
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgmcmc.algorithms import BAOA
from sgmcmc.core.sameness import itself, sameness, sameness_of_traced

SCALE = 1.0


def closure(value):
    return lambda x: x * value


def defaulted(value):
    def function(x, *, by=value):
        return x * by

    return function


def reading_a_global(value):
    space = {"VALUE": value}
    exec("def function(x):\n    def inner():\n        return VALUE\n    return x * inner()", space)
    return space["function"]


def calling_a_global(value):
    space = {"helper": closure(value)}
    exec("def function(x):\n    return helper(x)", space)
    return space["function"]


def reading_a_module(value):
    module = types.ModuleType("a_model_of_the_users")
    module.VALUE = value
    sys.modules[module.__name__] = module
    space = {"module": module}
    exec("def function(x):\n    return x * module.VALUE", space)
    return space["function"]


def reading_a_package(value):
    package, module = types.ModuleType("a_package_of_the_users"), types.ModuleType("a_package_of_the_users.models")
    package.models, module.VALUE = module, value
    sys.modules |= {one.__name__: one for one in (package, module)}
    space = {"package": package}
    exec("def helper(x):\n    return x + package.OTHER\ndef function(x):\n    return helper(x) * package.models.VALUE", space)
    return space["function"]


class Named(dict):
    pass


def beside(value):
    named = Named(a=1)
    named.inside = value
    return closure(named)


class Model:
    def __init__(self, value):
        self.value = value

    def log_lik(self, x):
        return x * self.value

    def __call__(self, x):
        return self.log_lik(x)


@dataclass(frozen=True)
class Settings:
    value: object

    def __call__(self, x):
        return x * self.value


MAKERS = {
    "closure": closure,
    "default": defaulted,
    "global": reading_a_global,
    "function behind a global": calling_a_global,
    "attribute of a module": reading_a_module,
    "attribute of a module in a package": reading_a_package,
    "attribute of a dict": beside,
    "method": lambda value: Model(value).log_lik,
    "object": Model,
    "dataclass": Settings,
    "partial": lambda value: functools.partial(jnp.add, value),
    "partial by name": lambda value: functools.partial(closure, value=value),
    "compiled": lambda value: jax.jit(closure(value)),
    "namespace": lambda value: closure(types.SimpleNamespace(inside=value)),
    "dict": lambda value: closure({"a": [value, (1, None)]}),
    "dynamics": lambda value: BAOA(alpha=value),
}

PAIRS = {
    "numbers": (1.0, 2.0),
    "types": (1, 1.0),
    "truth": (1, True),
    "zeros": (0.0, -0.0),
    "arrays": (np.arange(3.0), np.array([0.0, 1.0, 3.0])),
    "types of arrays": (np.arange(3.0), np.arange(3)),
    "shapes": (np.arange(4.0), np.arange(4.0).reshape(2, 2)),
    "kinds of arrays": (np.arange(3, dtype=np.float32), jnp.arange(3, dtype=np.float32)),
    "functions": (jnp.sin, jnp.cos),
    "own functions": (closure(1.0), closure(2.0)),
    "masks": (np.ma.masked_array([1.0, 2.0], [True, False]), np.ma.masked_array([1.0, 2.0], [False, True])),
    "members": (signal.SIGINT, signal.SIGTERM),
    "keys": (jax.random.key(1), jax.random.key(2)),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("pair", PAIRS)
def test_what_decides_is_what_a_function_is_made_of(maker, pair):
    (one, other), make = PAIRS[pair], MAKERS[maker]
    first = sameness(make(one))
    if pair == "masks":  # not to be looked into
        assert first != sameness(make(other))
        return
    assert first == sameness(make(one))
    assert hash(first) == hash(sameness(make(one)))
    assert first != sameness(make(other))


def test_other_code_is_another_function():
    assert sameness(lambda x: x + 1) != sameness(lambda x: x - 1)
    assert sameness(lambda x: x + 1) != sameness(lambda x: x + 2)
    assert sameness(lambda x: jnp.sin(x)) != sameness(lambda x: jnp.cos(x))


def test_a_global_of_this_module_counts(monkeypatch):
    def function(x):
        return x * SCALE

    before = sameness(function)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    assert sameness(function) != before


def test_a_method_of_a_class_counts(monkeypatch):
    before = sameness(Model(1.0))
    monkeypatch.setattr(Model, "log_lik", lambda self, x: x - self.value)
    assert sameness(Model(1.0)) != before


def test_a_function_that_calls_itself_ends():
    def make():
        def factorial(n):
            return n * factorial(n - 1) if n else 1

        return factorial

    assert sameness(make()) == sameness(make())


def test_what_cannot_be_looked_into_is_the_same_as_nothing():
    generator = np.random.default_rng(0)
    assert sameness(closure(generator)) != sameness(closure(generator))


def test_of_what_was_traced_it_is_the_same_as_itself():
    class Closed:
        __slots__ = ("__weakref__", "inside")

    one, other = Closed(), Closed()
    assert sameness(closure(one)) != sameness(closure(one))
    assert sameness_of_traced(closure(one), "a") == sameness_of_traced(closure(one), "a")
    assert sameness_of_traced(closure(one), "a") != sameness_of_traced(closure(one), "b")
    assert sameness_of_traced(closure(one), "a") != sameness_of_traced(closure(other), "a")


def test_an_object_that_is_gone_is_no_other():
    first = itself(Model(1.0))
    assert first != itself(Model(1.0))
    same = first
    assert first == same


def test_an_object_that_raises_is_the_same_as_nothing():
    class Broken:
        @property
        def __dict__(self):
            raise RuntimeError("no")

    broken = Broken()
    assert sameness(broken) != sameness(broken)


def test_what_calls_back_is_the_same_as_itself_alone():
    def make():
        return lambda x: jax.debug.print("{}", x)

    one = make()
    assert sameness_of_traced(one, "") == sameness_of_traced(one, "")
    assert sameness_of_traced(one, "") != sameness_of_traced(make(), "")
