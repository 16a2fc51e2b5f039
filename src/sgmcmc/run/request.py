"""What a run is asked for, refused before anything is compiled, and known again in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from sgmcmc.checkpoints.fingerprint import of_value
from sgmcmc.core.checks import check_choice, check_count
from sgmcmc.core.errors import InputError, describe
from sgmcmc.core.progress import check_progress
from sgmcmc.core.types import PyTree
from sgmcmc.results.keeps import Keep, Trace
from sgmcmc.results.result import ALONE


def check_run(
    params: PyTree, varies: bool, n_iters: Any = 1, burn_in: Any = 0, thin: Any = 1, keep: Any = None, diagnose: Any = False,
    progress: Any = False, chunk_size: Any = None,
) -> None:  # fmt: skip
    """Refuse what a run would refuse; `params` gives shapes, `varies` says whether the step size changes."""
    check_run_numbers(n_iters, burn_in, thin, diagnose, progress)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    if diagnose and varies:
        raise InputError("diagnose=True came with a stepsize that changes; the diagnostics need a chain with one law, so fix it")
    for name, one in named_keeps(keep).items():
        every = getattr(one, "thin", 1)
        if every > n_iters // thin:
            raise InputError(
                f"keep[{name!r}] has thin={every} for {n_iters // thin} looks, which stores nothing; make it smaller"
            )
        try:
            jax.eval_shape(lambda p, one=one: one.open(one.begin(p, False), p, 1, False), params)
        except Exception as error:
            raise InputError(f"keep[{name!r}] failed on params: {type(error).__name__}: {error}") from error


def check_run_numbers(
    n_iters: Any = 1, burn_in: Any = 0, thin: Any = 1, diagnose: Any = False, progress: Any = False, n_chains: Any = None
) -> None:
    """Refuse arguments of a run that are wrong for every sampler."""
    check_count("n_iters", n_iters)
    check_count("burn_in", burn_in, least=0)
    if check_count("thin", thin) > n_iters:
        raise InputError(f"thin is {thin} for {n_iters} iterations, which stores nothing; expected at most n_iters")
    check_progress(progress)
    check_choice("diagnose", diagnose, (True, False))
    if n_chains is not None:
        check_count("n_chains", n_chains)


def named_keeps(keep: Any) -> dict[str, Keep]:
    """Keep objects by name; the default is a trace of the parameters."""
    if keep is None:
        return {ALONE: Trace()}
    keeps = dict(keep) if isinstance(keep, Mapping) else {ALONE: keep}
    for name, one in keeps.items():
        if not isinstance(one, Keep):
            raise InputError(
                f"keep[{name!r}] is {describe(one)}; expected an object such as Trace(), Moments() or Expectation(function)"
            )
    return keeps


def keep_texts(keeps: Mapping[str, Keep], params: PyTree) -> dict[str, str]:
    """What is kept, for the fingerprint of a run."""
    return {f"keep[{name!r}]": of_value(keep, params) for name, keep in keeps.items()}
