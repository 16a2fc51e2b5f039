"""How programs are compiled on the CPU backend where that takes longer than they run."""

from functools import cache
from typing import Any

import jax

FUSION_EMITTERS = "xla_cpu_use_fusion_emitters"
"""Without these a program takes two thirds of the time to compile; steps take as long, passes over many rows longer."""

LEVEL = "xla_backend_optimization_level"


def options(in_a_hurry: bool = False) -> dict[str, Any] | None:
    """For `jax.jit`; what is compiled in a hurry runs a few times, and slowly."""
    if jax.default_backend() != "cpu":
        return None
    chosen: dict[str, Any] = {FUSION_EMITTERS: False} if known(FUSION_EMITTERS) else {}
    return chosen | ({LEVEL: 0} if in_a_hurry else {})


@cache
def known(name: str) -> bool:
    """Whether this version of XLA has an option."""
    try:
        jax.jit(lambda x: x, compiler_options={name: False}).lower(0.0).compile()
    except Exception:  # what an unknown option raises is not documented
        return False
    return True
