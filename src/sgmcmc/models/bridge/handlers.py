"""What happens to a NumPyro model so that it takes the rows it is given: any number of them, all of them, each counted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from numpyro.primitives import Messenger, prng_key

from sgmcmc.core.errors import InputError


class AllRows(Messenger):
    """The outermost handler: a plate over rows has the rows given, whatever size it was written with, and scales nothing.

    A plate is one over rows by its name, where the user says it; else by its size, which is that of the whole dataset or of the
    rows given. A scale of the user's own stays.
    """

    def __init__(self, fn: Callable[..., Any], total: int, rows: int, plates: tuple[str, ...]) -> None:
        super().__init__(fn)
        self.total, self.rows, self.plates = total, rows, plates
        self.scaled: dict[str, float] = {}
        self.met: list[str] = []

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        super().__exit__(kind, error, traceback)
        missing = [name for name in self.plates if name not in self.met]
        if missing and not isinstance(error, InputError):
            raise InputError(f"plate names {missing[0]!r}; the model has {', '.join(self.met) or 'no plate'}") from error

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            self._plate(msg)
        elif msg["type"] == "subsample":
            msg["kwargs"]["event_dim"] = None  # what is subsampled has the rows already
        elif msg["type"] == "sample":
            self._unscale(msg)

    def _plate(self, msg: Any) -> None:
        name, (size, subsample) = msg["name"], msg["args"]
        self.met.append(name)
        fits = size in (self.total, self.rows)
        if name in self.plates if self.plates else fits:
            if not fits:
                raise InputError(f"plate {name!r} has size {size:,}, and the data have {self.total:,} rows; {WRITE_SIZE}")
            msg["args"], msg["value"] = (size, self.rows), jnp.arange(self.rows)
            self.scaled[name] = size / self.rows
        elif subsample is not None and subsample != size:
            found = f"plate {name!r} takes {subsample:,} of {size:,}, and the data have {self.total:,} rows"
            raise InputError(f"{found}: only rows are drawn in minibatches; {WRITE_SIZE}, or leave subsample_size out")

    def _unscale(self, msg: Any) -> None:
        for frame in msg["cond_indep_stack"]:
            factor = self.scaled.get(frame.name, 1.0)
            if factor != 1.0:
                msg["scale"] = msg["scale"] / factor
                msg.get("plate_to_scale", {}).pop(frame.name, None)
        if isinstance(msg["scale"], float) and msg["scale"] == 1.0:
            msg["scale"] = None


class Drawn(Messenger):
    """What is observed is drawn instead: as many numbers as there are observations. Factors stay."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or not msg["is_observed"] or msg["infer"].get("is_auxiliary"):
            return
        fn, shape = msg["fn"], jnp.shape(msg["value"])
        msg["fn"] = fn.expand(jnp.broadcast_shapes(fn.batch_shape, shape[: len(shape) - fn.event_dim]))
        msg["value"], msg["is_observed"] = None, False
        msg["kwargs"]["rng_key"] = prng_key()


WRITE_SIZE = "write its size as that of a column, such as y.shape[0]"
