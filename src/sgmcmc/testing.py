"""The battery that every sampler goes through, for samplers of your own: `check_sampler` in a test of yours."""

from __future__ import annotations

import itertools
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sgmcmc.algorithms.kernel import Dynamics, Motion
from sgmcmc.algorithms.laws import STABLE, Directions, added_by_step, inflation
from sgmcmc.core.checks import Progress, check_choice, check_count, check_progress
from sgmcmc.core.errors import InputError, SgmcmcError, SgmcmcWarning, describe
from sgmcmc.core.progress import Bar
from sgmcmc.core.trees import Batch, LogLik, PyTree, Rows, State, flat, shapes, split
from sgmcmc.results.result import Result
from sgmcmc.run.sampler import Sampler

__all__ = ["ContractError", "Report", "check_sampler"]

Z, TOLERANCE = 4.5, 0.05
"""Standard errors that are allowed: by chance one comparison in 150,000 is further off, and seeds are fixed. Beside them, where
the law is not known exactly, that part of the variance."""

SMALL_STEP, LARGE_STEP, ADDED = 0.02, 0.5, 0.3
"""Step sizes in posterior variances: where the law is not known exactly, and the largest where it is; and what that may add to
the variance: enough to be seen."""

CHAINS, LOOKS, N_ROWS = 512, 20, 12
"""Chains that the law is measured on, and how often each is looked at; and the rows of both datasets, few enough for all their
minibatches to be looked at."""


class ContractError(SgmcmcError, AssertionError):
    """A sampler does not keep its contracts. The message lists all that are broken, and what usually breaks them; `report` has
    how every contract came out.

    >>> import sgmcmc
    >>> issubclass(sgmcmc.testing.ContractError, AssertionError)
    True
    """

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        broken = [one for one in self.report.verdicts if one.broken]
        told = [f"{one.name}: expected that {one.promise}; {one.broken}. Usual cause: {one.cause}." for one in broken]
        return "\n\n".join([f"{self.report.sampler} breaks {len(broken)} of {len(self.report.verdicts)} contracts:", *told])


@dataclass(frozen=True)
class Verdict:
    """How one contract came out: `broken` says what came instead, or is empty; `note` says what could not be looked at."""

    name: str
    promise: str
    cause: str
    broken: str = ""
    note: str = ""
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, repr=False)
class Report:
    """How a sampler came out of the battery; it prints as a table.

    Attributes:
        sampler: its name.
        verdicts: one for each contract that was looked at: `name`, `promise`, `broken`, `note`, `seconds`.

    >>> import sgmcmc
    >>> report = sgmcmc.testing.check_sampler(sgmcmc.sgld_setup, checks=["state"])
    >>> report.ok, report.verdicts[0].name
    (True, 'state')
    """

    sampler: str
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Whether all contracts are kept."""
        return not any(one.broken for one in self.verdicts)

    def __repr__(self) -> str:
        width = max(len(one.name) for one in self.verdicts)
        lines = [f"{one.name:{width}}  {'broken' if one.broken else one.note or 'ok':8}  {one.promise}" for one in self.verdicts]
        return "\n".join([self.sampler, *lines])


def check_sampler(
    setup: Callable[..., Sampler],
    *,
    checks: Iterable[str] | None = None,
    variance: float = 1.0,
    stepsize: float | None = None,
    n_iters: int = 1000,
    positive: bool = False,
    progress: Progress = True,
    **options: Any,
) -> Report:
    """Put a sampler through the contracts that every sampler of this library keeps, and raise `ContractError` if it breaks any.

    The contracts are about bits (chunks of any size, `iterate`, continuing and a checkpoint resumed half way all give the very
    same draws), about random numbers (no key twice, chains and seeds apart), about types, about the gradient (its mean over
    *all* minibatches of a tiny dataset is the full gradient), and about the law.

    The law is that on a conjugate Gaussian, whose posterior is known. Where the dynamics are linear in position, gradient,
    momentum and noise, `target` reads off their own update what variance small steps lead to. `law` then runs 512 chains and
    allows 4.5 standard errors: at a step size large enough to matter, against the exact law of that step size and of the
    gradients' noise; or, where the noise depends on where a chain is or was (a thermostat, an estimator that remembers), at a
    small step size, allowing 5 % of the variance beside: have a test of the exact law for that.

    Args:
        setup: called as `setup(log_lik, dataset, params, stepsize, **options)`, with options of `SetupOptions`; returns a
            `Sampler`. A `*_setup` function, or for instance `functools.partial(sgmcmc.sampler_setup, dynamics=MyDynamics())`.
        checks: names of the contracts to look at, all when left out.
        variance: what its variance is in posterior variances as steps become small; 1 for all but schemes known to be biased.
        stepsize: the step size to use, in posterior variances; chosen when left out.
        n_iters: iterations in which the chains of `law` and `apart` are to reach their law; as many follow, and are looked at.
        positive: whether its dynamics move positive numbers, as `SCIR` does: then the posteriors are of counts, in probabilities
            and rates, and `law` is that on a Gamma posterior.
        progress: True shows a bar, False nothing; a function is called with the figures.
        **options: handed on to `setup`. The datasets have 12 rows, and minibatches 4 or 6.

    >>> import functools, sgmcmc
    >>> from sgmcmc.algorithms import BAOA
    >>> setup = functools.partial(sgmcmc.sampler_setup, dynamics=BAOA(alpha=0.3))
    >>> sgmcmc.testing.check_sampler(setup, checks=["state", "unbiased", "target"])
    sampler
    state     ok        the state has the structure, shapes and types of the parameters, and keeps them
    unbiased  ok        the mean of the gradient over all minibatches is the full gradient
    target    ok        as steps become small the variance becomes the posterior's

    A mistake of 20 % in the noise:

    >>> class Loud(BAOA):
    ...     def move(self, motion, eps, noise):
    ...         return super().move(motion, eps, 1.2 * noise)
    >>> setup = functools.partial(sgmcmc.sampler_setup, dynamics=Loud(alpha=0.3))
    >>> sgmcmc.testing.check_sampler(setup, checks=["target"])
    Traceback (most recent call last):
    sgmcmc.testing.ContractError: sampler breaks 1 of 1 contracts ...
    """
    if not callable(setup):
        raise InputError(f"setup is {describe(setup)}; expected a function such as sgmcmc.sgld_setup")
    check_count("n_iters", n_iters)
    check_choice("positive", positive, (True, False))
    chosen = _chosen(checks)
    models = _of_counts() if positive else (_BENT, _GAUSSIAN)
    bench = _Bench(setup, options, variance, stepsize, n_iters, positive, *models)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SgmcmcWarning)  # such as of draws from a warmup, which are not looked at
        name = bench.probe.name
        with Bar(check_progress(progress), name, len(chosen), "contract") as bar:
            report = Report(name, tuple(_looked_at(one, bench, bar) for one in chosen))
    if not report.ok:
        raise ContractError(report)
    return report


class _BrokenError(Exception):
    """What was expected, and what came."""


_Look: TypeAlias = "Callable[[_Bench], str | None]"
_CONTRACTS: dict[str, tuple[str, str, _Look]] = {}
"""What is promised, what usually breaks it, and the look at it: it may return a note."""


def _contract(promise: str, cause: str) -> Callable[[_Look], _Look]:
    def enter(look: _Look) -> _Look:
        _CONTRACTS[look.__name__.removeprefix("_")] = promise, cause, look
        return look

    return enter


def _chosen(checks: Iterable[str] | None) -> list[str]:
    if isinstance(checks, str):
        raise InputError(f"checks is {checks!r}; expected a list of names, such as checks=[{checks!r}]")
    names = [check_choice("checks", name, (*_CONTRACTS,)) for name in (_CONTRACTS if checks is None else checks)]
    if not names:
        raise InputError("checks is empty; expected names of contracts, or None for all")
    return names


def _looked_at(name: str, bench: _Bench, bar: Bar) -> Verdict:
    """What a contract came to; whatever is raised on the way breaks it."""
    promise, cause, look = _CONTRACTS[name]
    begun, broken, note = time.perf_counter(), "", ""
    try:
        note = look(bench) or ""
    except _BrokenError as error:
        broken = str(error)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        broken = f"it raised {type(error).__name__}: {text[0]}"
    bar.update(1)
    return Verdict(name, promise, cause, broken, note, time.perf_counter() - begun)


def _expect(condition: Any, came: str) -> None:
    if not condition:
        raise _BrokenError(came)


# The two posteriors, both tiny: one whose gradient is not linear, on a tree of parameters, for everything that is compared bit
# by bit or minibatch by minibatch; and a conjugate Gaussian for the law. The parameters of the latter are one array, so that
# what a dynamics has for each parameter is a number, as `sgmcmc.algorithms.laws` needs it. For positive numbers there are two of
# counts in their place.


@dataclass(frozen=True)
class _Model:
    log_lik: LogLik
    dataset: Rows
    params: PyTree
    batch_size: int
    options: dict[str, Any]
    """Its prior and constraints."""
    mean: float = np.nan
    variance: float = np.nan
    """Of the posterior, in every number, where they are known."""


def _bent_log_lik(params: PyTree, batch: Rows) -> Any:
    residual = batch["y"] - batch["x"] @ params["slope"] - params["nest"]["level"]
    return -jnp.log(jnp.cosh(residual)).sum()


def _gaussian_log_lik(params: PyTree, batch: Rows) -> Any:
    return -0.5 * ((batch["x"] - params) ** 2).sum()


def _normal_prior(params: PyTree) -> Any:
    return sum(-0.5 * (leaf**2).sum() for leaf in jax.tree.leaves(params))


_RNG = np.random.default_rng(7)
_BENT_ROWS = {"x": _RNG.normal(size=(N_ROWS, 2)), "y": _RNG.normal(size=N_ROWS) + 1}
_BENT = _Model(_bent_log_lik, _BENT_ROWS, {"slope": np.zeros(2), "nest": {"level": 0.5}}, 4, {"log_prior": _normal_prior})


def _gaussian_rows() -> np.ndarray:
    """Rows with mean 1 and covariance I, exactly: the posterior has mean N/(N+1) and precision N + 1 in every direction."""
    deviations = np.random.default_rng(7).normal(size=(N_ROWS, 3))
    directions, _ = np.linalg.qr(deviations - deviations.mean(axis=0))
    return 1 + np.sqrt(N_ROWS - 1) * directions


_GAUSSIAN = _Model(
    _gaussian_log_lik,
    {"x": _gaussian_rows()},
    np.zeros(3),
    6,
    {"log_prior": _normal_prior},
    N_ROWS / (N_ROWS + 1),
    1 / (N_ROWS + 1),
)


def _counted_log_lik(params: PyTree, batch: Rows) -> Any:
    level = params["nest"]["level"]
    return (batch["y"] * jnp.log(level * (batch["x"] @ params["share"])) - level / (2 * N_ROWS)).sum()


def _counted_prior(params: PyTree) -> Any:
    return jnp.log(params["nest"]["level"]) - params["nest"]["level"] / 2 - jnp.log(params["share"]).sum() / 2


def _gamma_log_lik(params: PyTree, batch: Rows) -> Any:
    return (batch["x"] * jnp.log(params) - params / (2 * N_ROWS)).sum()


def _half(params: PyTree) -> Any:
    return -0.5 * params.sum()


def _of_counts() -> tuple[_Model, _Model]:
    """The same for positive numbers: a simplex and a rate, and Gamma(10, 1) posteriors of three rates with nine counts each."""
    from numpyro.distributions import constraints

    within = {"share": constraints.simplex, "nest": {"level": constraints.positive}}
    rows = {"x": np.random.default_rng(7).uniform(0.1, 1.0, (N_ROWS, 3)), "y": 1.0 + np.arange(N_ROWS) % 3}
    start = {"share": np.full(3, 1 / 3), "nest": {"level": 20.0}}
    counted = _Model(_counted_log_lik, rows, start, 4, {"log_prior": _counted_prior, "constraints": within})
    nine = np.stack([np.roll(np.repeat([0.0, 1.0, 2.0], [6, 3, 3]), shift) for shift in (0, 4, 8)], axis=1)
    prior = {"log_prior": _half, "constraints": {"params": constraints.positive}}
    return counted, _Model(_gamma_log_lik, {"x": nine}, np.full(3, 10.0), 6, prior, 10.0, 10.0)


@dataclass(eq=False)
class _Bench:
    """A sampler under test: its set-ups and the runs that several contracts look at, each made when first asked for."""

    setup: Callable[..., Sampler]
    options: dict[str, Any]
    variance: float
    stepsize: float | None
    n_iters: int
    positive: bool
    bent: _Model
    known: _Model
    traces: deque[None] = field(default_factory=deque)
    """As long as log likelihoods were traced often. What is compiled knows a deque as itself, not by what is in it: a function
    that counts stays the same function."""

    def make(self, model: _Model, stepsize: Any, **more: Any) -> Sampler:
        """The sampler for a model; `more` goes before the user's own options."""
        traces, of_model = self.traces, model.log_lik

        def log_lik(params: PyTree, batch: Rows) -> Any:
            traces.append(None)
            return of_model(params, batch)

        usual = {**model.options, "minibatch_size": model.batch_size, "progress": False}
        sampler = self.setup(log_lik, model.dataset, model.params, stepsize, **{**usual, **self.options, **more})
        if not isinstance(sampler, Sampler):
            raise InputError(f"setup returned {describe(sampler)}; expected a Sampler, as sgmcmc.sampler_setup makes them")
        return sampler

    @cached_property
    def probe(self) -> Sampler:
        """The sampler on the posterior that is known, to see what it is made of."""
        return self.make(self.known, 1e-6)

    @cached_property
    def usual_step(self) -> float:
        """The step size of most runs, in the units of what moves."""
        if self.positive:
            return self.stepsize or SMALL_STEP
        sampler = self.make(self.bent, 1e-6)
        curvatures = np.linalg.eigvalsh(_precision(sampler, sampler.init(seed=1, progress=False), self.bent))
        return (self.stepsize or SMALL_STEP) / float(curvatures[-1])

    @cached_property
    def sampler(self) -> Sampler:
        return self.make(self.bent, self.usual_step)

    @cached_property
    def state(self) -> State:
        return self.sampler.init(seed=4, progress=False)

    @cached_property
    def whole(self) -> Result:
        """The run that others are compared with."""
        return _run(self.sampler, self.state, 40)

    @cached_property
    def draws(self) -> np.ndarray:
        return _numbers(self.whole)

    @cached_property
    def scale(self) -> float:
        """How far chains come: what rounding is compared with."""
        return float(np.std(self.draws, axis=0).min())

    @cached_property
    def law(self) -> _Law:
        return _Law.of(self)

    @cached_property
    def many(self) -> np.ndarray:
        """Draws of many chains on the posterior that is known: axes chain, look, number."""
        sampler = self.make(self.known, self.law.step / self.law.curvature)
        burn_in, thin = max(self.n_iters, sampler.kernel.dynamics.warmup), max(1, self.n_iters // LOOKS)
        state = sampler.init(seed=11, n_chains=CHAINS, progress=False)
        return _numbers(_run(sampler, state, thin * LOOKS, burn_in=burn_in, thin=thin)).astype(np.float64)


def _run(sampler: Sampler, state: State, n_iters: int, **more: Any) -> Result:
    return sampler.run(state, n_iters, progress=False, **{"chunk_size": 16, **more})


def _numbers(result: Result) -> np.ndarray:
    """All draws as one array, the parameters' numbers on its last axis."""
    front = 1 + result.chained
    return np.concatenate([np.reshape(leaf, (*leaf.shape[:front], -1)) for leaf in jax.tree.leaves(result.draws)], axis=-1)


def _params(state: State) -> np.ndarray:
    return np.asarray(flat(state.params))


def _same_bits(a: np.ndarray, b: np.ndarray, who: str) -> None:
    _expect(a.shape == b.shape, f"{who} give draws of shapes {a.shape} and {b.shape}")
    where = np.argwhere(a != b)
    _expect(not len(where), f"{who} give other draws: draw {where[:1, 0]} differs by up to {np.max(np.abs(a - b)):.3g}")


def _near(a: np.ndarray, b: np.ndarray, scale: float, who: str) -> None:
    off = np.max(np.abs(a - b)) / scale if a.shape == b.shape else np.inf
    _expect(off < 0.01, f"{who} are {off:.3g} standard deviations apart")


@_contract(
    "the state has the structure, shapes and types of the parameters, and keeps them",
    "a move, settle or estimate that returns another tree than it was given, or casts a number",
)
def _state(bench: _Bench) -> None:
    sampler, state = bench.sampler, bench.state
    wanted = jax.tree.map(lambda x: (np.shape(x), jnp.result_type(float)), bench.bent.params)
    params = jax.tree.map(lambda x: (x.shape, x.dtype), state.params)
    _expect(params == wanted, f"the parameters of the first state are {params}, not {wanted}")
    later = {"step": sampler.step(state), "run": bench.whole.final_state}
    for how, one in later.items():
        same = jax.tree.structure(one) == jax.tree.structure(state) and shapes(one) == shapes(state)
        _expect(same, f"after {how} the state is {shapes(one)}, before it was {shapes(state)}")
    _expect(int(later["step"].step) == 1, f"after one step the state counts {int(later['step'].step)} iterations")
    if not sampler.kernel.estimator.per_chain:
        before, after = (jax.tree.leaves(one.estimator) for one in (state, later["step"]))
        _expect(all(map(np.array_equal, before, after)), "the estimator's state changed, and it does not say per_chain = True")
    finite = all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(later["run"].position))
    _expect(finite, "positions are not finite")


@_contract(
    "chunks of any size, iterate, and burn_in with thin give the same bits",
    "a number kept outside the state, or computed from where a chunk begins; an update that depends on what is stored",
)
def _chunks(bench: _Bench) -> None:
    _same_bits(bench.draws, _numbers(_run(bench.sampler, bench.state, 40, chunk_size=7)), "chunks of 16 and of 7 iterations")
    states = list(bench.sampler.iterate(bench.state, 40, every=15))
    steps = [int(one.step) for one in states]
    _expect(steps == [15, 30, 40], f"iterate(40, every=15) handed out the iterations {steps}, not [15, 30, 40]")
    _same_bits(np.stack([_params(one) for one in states]), bench.draws[[14, 29, 39]], "iterate and run")
    chosen = _numbers(_run(bench.sampler, bench.state, 30, burn_in=10, thin=3))
    _same_bits(chosen, bench.draws[12::3], "burn_in=10, thin=3 and every third draw from the 13th")


@_contract(
    "a run continued from final_state gives the bits of one that went on",
    "something that the next iteration needs and the state does not hold",
)
def _continuing(bench: _Bench) -> None:
    first = _run(bench.sampler, bench.state, 17)
    second = _run(bench.sampler, first.final_state, 23)
    _same_bits(np.concatenate([_numbers(first), _numbers(second)]), bench.draws, "two runs of 17 and 23 iterations and one of 40")
    _same_states(second.final_state, bench.whole.final_state, "a continued run")


def _same_states(a: State, b: State, who: str) -> None:
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        _expect(np.array_equal(x, y), f"{who} ends with another {name}")


@_contract(
    "single steps, and one chain of several, follow the same path but for rounding",
    "random numbers that depend on how the sampler is called, not on key and iteration alone",
)
def _stepping(bench: _Bench) -> None:
    state, path = bench.state, []
    for _ in range(5):
        state = bench.sampler.step(state)
        path.append(_params(state))
    _near(np.stack(path), bench.draws[:5], bench.scale, "five single steps and the first five of a run")
    three = _numbers(_run(bench.sampler, bench.sampler.init(seed=4, n_chains=3, progress=False), 40))
    _near(three[0], bench.draws, bench.scale, "the first of three chains and a chain alone")
    for a, b in itertools.combinations(range(3), 2):
        _expect(not np.allclose(three[a], three[b], atol=0.01 * bench.scale), f"chains {a} and {b} follow the same path")


@_contract(
    "another seed gives other draws, the same seed the same", "a random key of its own, made from a constant or from the clock"
)
def _seeds(bench: _Bench) -> None:
    other, again = (_numbers(_run(bench.sampler, bench.sampler.init(seed=seed, progress=False), 40)) for seed in (5, 4))
    _expect(not np.allclose(other, bench.draws, atol=0.01 * bench.scale), "seeds 4 and 5 give the same draws")
    _same_bits(again, bench.draws, "two runs with seed 4")


@_contract(
    "a run resumed from its checkpoint half way, by a sampler set up anew, gives the bits of one that was not interrupted",
    "constants that differ from set-up to set-up, or something carried that is not an array of the state",
)
def _checkpoint(bench: _Bench) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        _run(bench.sampler, bench.state, 17, checkpoint=place)
        resumed = _run(bench.make(bench.bent, bench.usual_step), bench.state, 40, checkpoint=place)
        _same_bits(_numbers(resumed), bench.draws, "a resumed run and one that was not interrupted")
        _same_states(resumed.final_state, bench.whole.final_state, "a resumed run")


@_contract("float64 is kept when JAX has it on", "a constant array or a cast with a dtype of its own; take that of the position")
def _float64(bench: _Bench) -> None:
    with jax.enable_x64(True):
        sampler = bench.make(bench.bent, bench.usual_step)
        result = _run(sampler, sampler.init(seed=4, progress=False), 5)
        state = result.final_state
        leaves = jax.tree.leaves((state.params, state.position, state.gradient, state.auxiliary, state.estimator))
        kinds = {leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)}
        draws = _numbers(result)
    _expect(kinds == {np.dtype(np.float64)}, f"the state has {', '.join(sorted(map(str, kinds)))}")
    rounded = np.mean(draws == draws.astype(np.float32))
    _expect(rounded < 0.5, f"{rounded:.0%} of the numbers drawn are float32 numbers: they were rounded on the way")


@_contract(
    "a step size that is a function of the iteration works, and draws count by it",
    "a step size kept from the beginning; take the eps that move and settle are given",
)
def _schedule(bench: _Bench) -> None:
    eps = bench.usual_step

    def falling(t: Any) -> Any:
        return eps * jnp.where(t <= 20, 1.0, 1e-3)

    sampler = bench.make(bench.bent, falling)
    result = _run(sampler, sampler.init(seed=4, progress=False), 40)
    draws, weights = _numbers(result), result.weights
    _near(draws[:20], bench.draws[:20], bench.scale, "chains with a step size of ε and with a function that is ε so far")
    expected = np.asarray(falling(np.arange(1, 41))) / eps
    came = None if weights is None else np.asarray(weights) / weights[0]
    _expect(came is not None and np.allclose(came, expected, rtol=1e-4), "draws do not count by their step size")
    moved = [np.mean(np.diff(draws[part], axis=0) ** 2) for part in (slice(0, 20), slice(20, 40))]
    _expect(moved[1] < 0.1 * moved[0], "chains go on as before where the step size falls to a thousandth")


@_contract(
    "runs of different lengths are compiled once",
    "an object that is made anew for every run, or Python numbers where arrays should be",
)
def _compiling(bench: _Bench) -> None:
    _run(bench.sampler, bench.state, 40)
    before = len(bench.traces)
    _run(bench.sampler, bench.state, 25)
    _run(bench.sampler, bench.state, 33, burn_in=4, thin=5)
    more = len(bench.traces) - before
    _expect(more == 0, f"log_lik was traced {more} times more for other numbers of iterations")


@_contract(
    "every source of rows serves: random rows, windows, and all rows, with which the gradient is exact",
    "an estimate that takes the weight or the number of rows for constants; they come with the batch",
)
def _rows(bench: _Bench) -> str | None:
    sources = {"window": {"rows": "window"}, "all rows": {"minibatch_size": N_ROWS}}
    refused = []
    for name, more in sources.items():
        try:
            sampler = bench.make(bench.bent, bench.usual_step, **more)
        except InputError:
            refused.append(name)
            continue
        result = _run(sampler, sampler.init(seed=4, progress=False), 20)
        moved = np.ptp(_numbers(result), axis=0)
        _expect(np.isfinite(moved).all() and (moved > 0).all(), f"with {name} the chain does not move")
        if sampler.source.kind == "all":
            gradient, truth = flat(result.final_state.gradient), _full_gradient(sampler, result.final_state, bench.bent)
            off = float(np.max(np.abs(gradient - truth)))
            _expect(off < 1e-3, f"with all rows in every minibatch the gradient is {off:.3g} off the exact one")
    return f"ok, refuses {', '.join(refused)}" if refused else None


@_contract(
    "no random key is used twice",
    "a key given to two functions of jax.random; split it, or use the noise that move and settle are given",
)
def _keys(bench: _Bench) -> None:
    with jax.debug_key_reuse(True):
        sampler = bench.make(bench.bent, bench.usual_step)
        sampler.step(sampler.init(seed=4, n_chains=2, progress=False))


@_contract(
    "the mean of the gradient over all minibatches is the full gradient",
    "a weight forgotten or counted twice, or two parts of the estimator's state that do not fit each other",
)
def _unbiased(bench: _Bench) -> None:
    states = {"at the start": bench.state, "after 40 iterations": bench.whole.final_state}
    states["after 41 iterations"] = bench.sampler.step(bench.whole.final_state)  # what is renewed now and then was not, at one
    for when, state in states.items():
        away = _moved_away(state)
        every = _every_estimate(bench.sampler, away, bench.bent)
        truth = np.asarray(_full_gradient(bench.sampler, away, bench.bent))
        off = np.abs(every.mean(axis=0) - truth)
        worst = int(np.argmax(off))
        scale = 1 + np.abs(truth).max() + np.abs(every).max()
        told = f"{when} number {worst} has mean {every.mean(axis=0)[worst]:.5g} over {len(every)} minibatches"
        _expect(off[worst] < 1e-4 * scale, f"{told}, and full gradient {truth[worst]:.5g}")


def _moved_away(state: State) -> State:
    """The state somewhere else, with what its estimator carries: near a centre every estimate is right."""
    like = state.position
    away = split(flat(like) + jnp.linspace(0.3, 0.7, len(flat(like)), dtype=flat(like).dtype), like)
    return replace(state, position=away)


def _every_estimate(sampler: Sampler, state: State, model: _Model) -> np.ndarray:
    """The gradient estimated from every minibatch there is, one row each."""
    kernel, n = sampler.kernel, sampler.source.batch_size
    dataset = {name: jnp.asarray(column) for name, column in model.dataset.items()}
    weight = jnp.asarray(N_ROWS / n, jnp.result_type(float))

    def estimate(index: jax.Array) -> jax.Array:
        batch = Batch({name: column[index] for name, column in dataset.items()}, weight, index)
        return flat(kernel.estimator.estimate(kernel.posterior, state.position, batch, state.estimator)[0])

    every = jnp.asarray(list(itertools.combinations(range(N_ROWS), n)), jnp.int32)
    return np.asarray(jax.jit(jax.vmap(estimate))(every), np.float64)


def _log_posterior(sampler: Sampler, state: State, model: _Model) -> Callable[[jax.Array], jax.Array]:
    """The log posterior of all rows as a function of the numbers that move."""
    posterior = sampler.kernel.posterior_at(state)
    rows = {name: jnp.asarray(column) for name, column in model.dataset.items()}

    def log_posterior(numbers: jax.Array) -> jax.Array:
        position = split(numbers, state.position)
        return posterior.sum_of_rows(position, rows) + posterior.log_density_prior(position)

    return log_posterior


def _full_gradient(sampler: Sampler, state: State, model: _Model) -> jax.Array:
    return jax.jit(jax.grad(_log_posterior(sampler, state, model)))(flat(state.position))


def _precision(sampler: Sampler, state: State, model: _Model) -> np.ndarray:
    """Minus the curvature of the log posterior in the variables that move."""
    return -np.asarray(jax.jit(jax.hessian(_log_posterior(sampler, state, model)))(flat(state.position)), np.float64)


@_contract(
    "as steps become small the variance becomes the posterior's", "a wrong factor of the gradient or of the noise in the update"
)
def _target(bench: _Bench) -> str | None:
    law = bench.law
    if not law.readable:
        return "see law"
    came = _inflation(law.dynamics, 1e-6 * STABLE, law.curvature, 0.0)
    wanted = f"expected {bench.variance:.4g}" if bench.variance != 1 else "expected 1"
    told = f"the update's own law has {came:.4g} posterior variances, {wanted}"
    _expect(abs(came / bench.variance - 1) < 0.01, told)
    return None


@_contract(
    "on a Gaussian, chains have the mean and the variance that their update, step size and gradient noise imply",
    "noise, momentum or an estimator's state that is not carried from step to step as it should, or minibatches not fresh",
)
def _law(bench: _Bench) -> str | None:
    law, draws, truth = bench.law, bench.many, bench.known.mean
    mean, error = _over_chains(draws.mean(axis=1))
    z = float(np.max(np.abs(mean - truth) / error))
    told = f"the chains' mean is {mean.mean():.4g}, the posterior's {truth:.4g}"
    _expect(z < Z, f"{told}: {z:.1f} standard errors off")
    came, error = _over_chains(((draws - truth) ** 2).mean(axis=(1, 2)) / bench.known.variance)
    allowed = Z * error + (0 if law.exact else TOLERANCE * law.expected)
    told = f"their variance is {came:.4g} ± {error:.2g} posterior variances at a step size of {law.step:.2g} of these"
    expected = f"expected {law.expected:.4g}{'' if law.exact else f' within {TOLERANCE:.0%}'}"
    _expect(abs(came - law.expected) < allowed, f"{told}, {expected}")
    return "of Gamma" if bench.positive else None


def _over_chains(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error; chains are independent, so their spread gives it whatever happens within each."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


@_contract("chains are independent: their minibatches and their noise are their own", "random numbers that all chains share")
def _apart(bench: _Bench) -> None:
    draws = bench.many
    together = draws.mean(axis=0) - draws.mean(axis=(0, 1))
    ratio = float(CHAINS * np.mean(together**2) / np.mean(draws.var(axis=0, ddof=1)))
    _expect(ratio < 3, f"the mean of {CHAINS} chains varies {ratio:.3g} times as much as that of independent ones")


@dataclass(frozen=True)
class _Law:
    """What chains on the Gaussian should be like: whether that can be read off the `dynamics`, and is `exact` since the noise of
    the gradient is known too; the step size and the variance, in posterior variances.
    """

    dynamics: Dynamics
    curvature: float
    """Of the posterior, in the units of what moves."""
    readable: bool
    exact: bool
    step: float
    expected: float

    @classmethod
    def of(cls, bench: _Bench) -> _Law:
        probe = bench.probe
        if bench.positive:
            return cls(probe.kernel.dynamics, 1.0, False, False, bench.stepsize or SMALL_STEP, bench.variance)
        state = probe.init(seed=1, progress=False)
        dynamics, curvature = probe.kernel.dynamics, float(_precision(probe, state, bench.known)[0, 0])
        readable = _is_linear(dynamics, state)
        noise = _constant_noise(probe, state, bench.known) if readable else None
        step = bench.stepsize or (_step(dynamics, curvature, noise, probe) if readable else SMALL_STEP)
        expected = _inflation(dynamics, step, curvature, noise or 0.0) if readable else bench.variance
        return cls(dynamics, curvature, readable, noise is not None, step, expected)


def _step(dynamics: Dynamics, curvature: float, noise: float | None, probe: Sampler) -> float:
    """A step size, in posterior variances: with noise that is known, one that adds enough to be seen; else one at which even the
    noise of plain minibatches would add little.
    """
    step, allowed = (LARGE_STEP, ADDED) if noise is not None else (SMALL_STEP, TOLERANCE / 2)
    plain = curvature * (N_ROWS / probe.source.batch_size - 1)
    posterior = Directions(np.array([curvature]), np.array([plain if noise is None else noise]))
    while added_by_step(dynamics, step / curvature, posterior) > allowed and step > 1e-6:
        step /= 2
    return step


def _inflation(dynamics: Dynamics, step: float, curvature: float, noise: float) -> float:
    """The variance that the update leads to, in posterior variances, as the step size is."""
    return float(inflation(dynamics, step / curvature, Directions(np.array([curvature]), np.array([noise])))[0])


def _constant_noise(sampler: Sampler, state: State, model: _Model) -> float | None:
    """The variance of the gradient over all minibatches, if it is the same wherever a chain is, and wherever it was."""
    if sampler.kernel.estimator.per_chain or sampler.source.kind != "random":
        return None
    here, away = (_every_estimate(sampler, one, model).var(axis=0) for one in (state, _moved_away(state)))
    return float(here[0]) if np.ptp([here, away]) < 1e-3 * (1 + here[0]) else None


def _is_linear(dynamics: Dynamics, state: State) -> bool:
    """Whether a leap of a single number is linear in position, gradients, momentum and noise, and carries nothing else."""
    several = any(np.ndim(constant) for constant in jax.tree.leaves(getattr(dynamics, "__dict__", {})))
    if several or not set(state.auxiliary) <= {"momentum"} or dynamics.warmup:
        return False

    def leap(numbers: jax.Array) -> jax.Array:
        position, gradient, nu, z, following = numbers
        motion = dynamics.move(Motion(position, gradient, {"momentum": nu} if state.auxiliary else {}), eps, z)
        motion = dynamics.settle(motion, following, {}, eps, z, 10**9)
        return jnp.stack([motion.position, motion.gradient, motion.auxiliary.get("momentum", nu)])

    with jax.enable_x64(True):
        eps = jnp.asarray(0.1)
        a, b = np.random.default_rng(3).normal(size=(2, 5))
        still = leap(jnp.zeros(5))
        parts = leap(jnp.asarray(a)) + leap(jnp.asarray(b)) - leap(jnp.asarray(a + b)) - still
        return bool(np.max(np.abs(parts)) < 1e-6)
