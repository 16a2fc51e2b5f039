"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision, for tests at 1e-10."""
    with jax.enable_x64(True):
        yield
