"""Single values as users give them, refused or made what they stand for: counts, choices, functions, seeds."""

import numbers
import secrets
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.core.errors import InputError, describe

Progress: TypeAlias = bool | Callable[[dict[str, Any]], Any]
"""True shows a bar, False nothing; a function is called with what the bar would show."""


def check_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} is {describe(value)}; expected a whole number of at least {least}")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of a few names."""
    if value not in choices:
        raise InputError(f"{name} is {describe(value)}; expected one of {', '.join(map(repr, choices))}")
    return value


def as_key(seed: Any) -> jax.Array:
    """A typed key from a whole number or a JAX key, old style or new."""
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    if isinstance(seed, jax.Array | np.ndarray) and seed.dtype == np.uint32 and seed.shape == (2,):
        return jax.random.wrap_key_data(jnp.asarray(seed))
    if check_count("seed", seed, least=0) >= 2**32:
        raise InputError(f"seed is {seed}; expected a whole number below 2**32, or a JAX key")
    return jax.random.key(int(seed))


def draw_seed() -> int:
    """A seed from the operating system."""
    return secrets.randbits(31)


def seed_number(seed: jax.Array) -> int | np.ndarray:
    """A root key as the user would give it again: the whole number it was made from, or the key itself."""
    numbers = np.asarray(seed)
    return int(numbers[-1]) if not numbers[:-1].any() else numbers


def check_progress(progress: Any) -> Progress:
    """True, False or a function."""
    if isinstance(progress, bool) or callable(progress):
        return progress
    raise InputError(f"progress is {describe(progress)}; expected True, False or a function such as progress=print")
