"""Prior distributions as data and as words: for files, and for the command line."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from sgmcmc.core.errors import InputError

LAWS = (
    "Beta", "Cauchy", "Exponential", "FoldedDistribution", "Gamma", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma",
    "LKJCholesky", "Laplace", "LeftTruncatedDistribution", "LogNormal", "LogUniform", "Logistic", "Normal", "Pareto",
    "RightTruncatedDistribution", "SoftLaplace", "StudentT", "TwoSidedTruncatedDistribution", "Uniform", "Weibull",
)  # fmt: skip
"""NumPyro's distributions that a file may name: nothing else is made from what a file says."""

SAID = (*(name for name in LAWS if not name.endswith("Distribution")), "TruncatedNormal", "TruncatedCauchy")
"""Those that may be told in words."""

EXAMPLE = "'age=Normal(0, 0.1)'"


def written_law(law: Any) -> dict[str, Any] | None:
    """A distribution as numbers and its name; None where it is none of those that files know."""
    from numpyro import distributions

    name = type(law).__name__
    if name not in LAWS or type(law) is not getattr(distributions, name):
        return None
    made: dict[str, Any] = {}
    for argument in arguments_of(type(law)):
        value = getattr(law, argument, None)
        if isinstance(value, distributions.Distribution):
            value = written_law(value)
        elif isinstance(value, jax.Array | np.ndarray | np.generic):
            value = np.asarray(value)
        if value is None or not isinstance(value, bool | int | float | str | dict | np.ndarray):
            return None
        made[argument] = value
    return {"law": name, "values": made}


def arguments_of(kind: Any) -> list[str]:
    """What a distribution is made of."""
    return [name for name in inspect.signature(kind.__init__).parameters if name not in ("self", "validate_args")]


def read_law(written: Mapping[str, Any]) -> Any:
    """The distribution again."""
    from numpyro import distributions

    name, values = written["law"], written["values"]
    if name not in LAWS or not set(values) <= set(arguments_of(getattr(distributions, name))):
        raise InputError(f"the file names {name!r} as a prior; expected one of {', '.join(LAWS)}")
    return getattr(distributions, name)(**{key: read_law(one) if isinstance(one, dict) else one for key, one in values.items()})


def said_law(told: str) -> tuple[str, Any]:
    """`age=Normal(0, 0.1)`: whose prior it is, and the distribution."""
    from numpyro import distributions

    name, equals, text = (part.strip() for part in told.partition("="))
    try:
        call = ast.parse(text, mode="eval").body
        if not (equals and name and isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in SAID):
            raise ValueError
        values = [float(ast.literal_eval(one)) for one in call.args]
        named = {str(one.arg): float(ast.literal_eval(one.value)) for one in call.keywords}
        return name, getattr(distributions, call.func.id)(*values, **named)
    except (SyntaxError, ValueError, TypeError) as error:
        why = f" ({error})" if str(error) and not isinstance(error, SyntaxError) else ""
        raise InputError(f"prior {told!r} is not understood{why}; expected {EXAMPLE}, with one of {', '.join(SAID)}") from error
