"""What the library raises, and how it words it."""

from __future__ import annotations

import os
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgmcmc.results.result import Result

__all__ = ["DivergenceError", "InputError", "SgmcmcError", "SgmcmcWarning"]


class SgmcmcError(Exception):
    """Anything this library raises on purpose.

    Attributes:
        result: the draws made before, where it ended a run.

    >>> import sgmcmc
    >>> issubclass(sgmcmc.InputError, sgmcmc.SgmcmcError)
    True
    """

    result: Result | None = None


class InputError(SgmcmcError, ValueError):
    """An argument was refused before anything was compiled.

    The message says what arrived, what was expected, where, and the call that repairs it.

    >>> import sgmcmc
    >>> sgmcmc.sgld(lambda params, batch: 0.0, {}, {"theta": 0.0}, 1e-4)
    Traceback (most recent call last):
    sgmcmc.core.errors.InputError: dataset has no arrays; expected a dict such as {"X": X, "y": y}, rows on the first axis
    """


class DivergenceError(SgmcmcError, FloatingPointError):
    """A chain left the finite numbers. Nothing is lost: `result` holds every finite draw.

    Attributes:
        parameter: name of the parameter that stopped being finite.
        step: the iteration at which it happened, counted from 1, burn-in included.
        chain: the number of the chain, or None where there is no chain axis.
        result: the draws made before; its `final_state` is the last finite state.

    >>> import numpy as np, sgmcmc
    >>> log_lik = lambda params, batch: -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()
    >>> data = {"x": np.linspace(-1.0, 1.0, 1000, dtype=np.float32)}
    >>> try:
    ...     sgmcmc.sgld(log_lik, data, {"mu": 0.0}, 4.0, minibatch_size=100, n_iters=500, seed=1)
    ... except sgmcmc.DivergenceError as error:
    ...     print(error.parameter, error.step < 100, error.result["mu"].shape == (error.step - 1,))
    mu True True
    """

    def __init__(self, message: str, *, parameter: str, step: int, chain: int | None, result: Result) -> None:
        super().__init__(message)
        self.parameter, self.step, self.chain, self.result = parameter, step, chain, result

    def __reduce__(self) -> Any:
        details = {"parameter": self.parameter, "step": self.step, "chain": self.chain, "result": self.result}
        return partial(DivergenceError, str(self), **details), ()


class SgmcmcWarning(UserWarning):
    """Something that changes what the draws mean, and that the user can mend.

    >>> import warnings, sgmcmc
    >>> warnings.simplefilter("error", sgmcmc.SgmcmcWarning)  # be strict
    >>> warnings.simplefilter("default", sgmcmc.SgmcmcWarning)
    """


PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn(message: str, category: type[SgmcmcWarning] = SgmcmcWarning) -> None:
    """Warn of something at the user's own line: the one from which the library was entered.

    In a thread of our own nobody entered it, and the outermost of our functions counts.
    """
    outermost = above = sys._getframe(1)
    while above is not None:
        if above.f_code.co_filename.startswith(PACKAGE):
            outermost = above
        above = above.f_back
    frame = outermost.f_back or outermost
    names, place = frame.f_globals, (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, category, *place, names.get("__name__"), names.setdefault("__warningregistry__", {}))


def describe(value: Any) -> str:
    """A short account of a value for an error message: type, shape and dtype, or the value itself when it is small."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{type(value).__name__} of shape {tuple(shape)} and dtype {dtype}"
    return shortened(" ".join(repr(value).split()))


def shortened(text: str, most: int = 60) -> str:
    """As much of a text as a message has room for."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shortened_inside(text: str, most: int) -> str:
    """As much of both ends of a text as there is room for."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[len(text) - half :]}"
