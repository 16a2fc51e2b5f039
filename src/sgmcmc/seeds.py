"""Seeds as users give them, and as keys."""

from __future__ import annotations

import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.checks import check_count
from sgmcmc.errors import InputError


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
