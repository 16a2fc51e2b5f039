"""Exact chains: NUTS on all rows, where these are few or minibatches would need most of them; and what that will cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from sgmcmc.algorithms.gradients.whitened import WhitenedState
from sgmcmc.algorithms.nuts import Nuts
from sgmcmc.core.checks import seed_number
from sgmcmc.core.errors import InputError
from sgmcmc.core.trees import PyTree, Rows, shapes, size, tree_map
from sgmcmc.problem.passes import compiled, full_sum
from sgmcmc.problem.posterior import Posterior
from sgmcmc.problem.schedules import Schedule
from sgmcmc.problem.whitening import AnyWhitening, Whitening
from sgmcmc.results.packing import packable
from sgmcmc.results.words import Decisions
from sgmcmc.rows.sources import AllRows
from sgmcmc.run.request import Problem
from sgmcmc.run.sampler import Given, Sampler
from sgmcmc.tune.mode import LARGEST_DENSE, as_tree, fisher_information, prior_curvature
from sgmcmc.tune.survey import Survey

AUTO, NUTS, MINIBATCHES = ENGINES = "auto", "nuts", "sgmcmc"

WARM_UP, LONG_WARM_UP = 500, 1000
ACCEPTANCE, HIGH_ACCEPTANCE = 0.9, 0.95
SCATTER, NEAR_SCATTER = 1.5, 0.5
"""From the curvature at a mode; and where there is none, such as for hierarchies, so that less is known of the variables."""

LEAPFROGS, MOST_LEAPFROGS = 8, 128
"""Gradients per draw to reckon with: the same."""

PRICE = 20.0
"""Seconds of work that chains on minibatches take, however few the rows: for what is compiled and tried before they run."""

PATIENCE, ANCHORED_PATIENCE = 300.0, 60.0
"""Seconds that exact chains may take where there is no mode: chains on minibatches are of little use there; and for parameters of
groups about another anchor, where they are of some."""

PER_LEAPFROG, PER_FLOP, PER_TRANSCENDENTAL = 25e-6, 5e-11, 3e-9
"""Seconds on two cores of a common processor. They are constants so that the same call takes the same engine everywhere."""


@dataclass(frozen=True)
class Prediction:
    """What NUTS will cost with a mode or without: gradients of each chain, and seconds by the operations that these count."""

    gradients: int
    seconds: float
    mode: bool
    anchored: bool = False

    @classmethod
    def of(cls, problem: Problem, chains: int, draws: int, mode: bool, anchored: bool = False) -> "Prediction":
        gradients = (LEAPFROGS if mode else MOST_LEAPFROGS) * ((WARM_UP if mode else LONG_WARM_UP) + draws)
        flops, transcendentals = operations(problem)
        work = chains * (flops * PER_FLOP + transcendentals * PER_TRANSCENDENTAL)
        return cls(gradients, gradients * (PER_LEAPFROG + work), mode, anchored)

    @property
    def affordable(self) -> bool:
        return self.seconds < (PRICE if self.mode else ANCHORED_PATIENCE if self.anchored else PATIENCE)

    @property
    def beside(self) -> str:
        """Itself, and what minibatches have to offer."""
        if self.mode or self.anchored:
            return f"{self}, where minibatches take about {PRICE:.0f} to be set up"
        return f"{self}, and minibatches are of little use without a mode whose curvature is known in all directions"

    def __str__(self) -> str:
        return f"about {self.gradients:,} gradients per chain, {self.seconds:.2g} seconds by the operations that these count"


def operations(problem: Problem) -> tuple[float, float]:
    """Arithmetic operations and transcendental functions in one gradient of the log posterior from all rows."""
    rows = {name: jax.ShapeDtypeStruct(column.shape, column.dtype) for name, column in problem.table.items()}
    return counted(jax.make_jaxpr(partial(_gradient, problem.posterior))(shapes(problem.position), rows))


def counted(program: ClosedJaxpr) -> tuple[float, float]:
    """Of a program, as often as its loops repeat them: XLA counts the body of a loop once."""
    found = jax.jit(jaxpr_as_fun(program)).lower(*program.in_avals).cost_analysis() or {}  # pyright: ignore
    flops, transcendentals = (found.get(name, 0.0 if found else np.inf) for name in ("flops", "transcendentals"))
    for body, times in loops(program.jaxpr):
        more = counted(body)
        flops, transcendentals = flops + (times - 1) * more[0], transcendentals + (times - 1) * more[1]
    return flops, transcendentals


def loops(jaxpr: Any) -> Iterator[tuple[ClosedJaxpr, int]]:
    """The bodies of the loops of a program whose length is known, and how often they run; not those inside of these."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
        else:
            for inside in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
                inside = getattr(inside, "jaxpr", inside)
                yield from loops(inside) if hasattr(inside, "eqns") else ()


def _gradient(posterior: Posterior, position: PyTree, rows: Rows) -> PyTree:
    return jax.grad(lambda x: posterior.sum_of_rows(x, rows) + posterior.log_density_prior(x))(position)


def check_engine(engine: str, problem: Problem, beside_blocks: bool = False) -> None:
    """Refuse NUTS on rows that do not fit into memory, and minibatches beside Gibbs steps."""
    if beside_blocks:
        found = "engine='sgmcmc' came with gibbs, whose draws move the centre that chains on minibatches are tuned about"
        raise InputError(f"{found}; expected engine='nuts', or a sampler with plain gradients, such as sgld(..., gibbs=...)")
    if engine == NUTS and problem.table.large:
        found = f"engine is 'nuts', for {problem.table.nbytes / 2**30:.1f} GB of rows that do not fit into memory"
        raise InputError(f"{found}; expected engine='sgmcmc', or fewer rows")


@packable
@dataclass(frozen=True)
class Exact:
    """How NUTS is to run: its variables, how wide about their origin it starts, how long and to what it adapts; and why."""

    whitening: AnyWhitening
    scatter: float
    warm_up: int
    acceptance: float
    decisions: Decisions

    def sampler(self, problem: Problem, root: jax.Array) -> Sampler:
        """The sampler that it describes."""
        zero, table = self.whitening.zero(), problem.table
        schedule = Schedule(tree_map(jnp.ones_like, zero))
        told = {"schedule": schedule, "warm_up": self.warm_up, "acceptance": self.acceptance, "scatter": self.scatter}
        kernel = Nuts(problem.posterior, **told)
        settings = {"engine": NUTS, "minibatch_size": table.n_rows, "n_rows": table.n_rows, "rows": AllRows.kind}
        settings |= {"precondition": "laplace" if self.whitening.dense else "diagonal"}
        settings |= {"seed": seed_number(jax.random.key_data(root))}
        source, begin = AllRows(table, table.n_rows), Given(zero, WhitenedState(self.whitening, ()))
        model, decisions = problem.model, self.decisions
        return Sampler("sample", kernel, source, problem.position, begin, settings, decisions, model=model)


def exact_chains(problem: Problem, survey: Survey | None, why: str) -> Exact:
    """NUTS about the mode, in variables from the curvature there; or where there is none about the starting values."""
    n_rows = problem.posterior.n_rows
    told = Decisions().and_then(
        "engine", NUTS, f"NUTS on all {n_rows:,} rows, whose draws have no bias from steps or noise: {why}."
    )
    told = told.and_then("minibatch_size", n_rows, f"Each gradient uses all {n_rows:,} rows.")
    if survey is None:
        return _adapting(_scales(problem), False, told)
    if bool(survey.centre.converged):
        told = told.and_then("mode", survey.passes, f"{survey.sentence} The chains start about it.")
        return _adapting(survey.whitening, survey.peaked, told)
    sentence = f"The search for the mode ended without one ({survey.work}): the chains start about the starting values."
    return _adapting(_scales(problem), False, told.and_then("mode", survey.passes, sentence))


def _adapting(whitening: AnyWhitening, sure: bool, told: Decisions) -> Exact:
    warm_up, acceptance = (WARM_UP, ACCEPTANCE) if sure else (LONG_WARM_UP, HIGH_ACCEPTANCE)
    sentence = f"Steps for an acceptance of {acceptance:.0%} and a mass matrix are learnt in {warm_up:,} iterations, not stored."
    told = told.and_then("warm_up", warm_up, sentence)
    return Exact(whitening, SCATTER if sure else NEAR_SCATTER, warm_up, acceptance, told)


def _scales(problem: Problem) -> Whitening:
    """Each number's scale by what rows and prior say of it at the starting values; 1 where they say nothing."""
    posterior, start = problem.posterior, problem.position
    dense = size(start) <= LARGEST_DENSE
    prior = prior_curvature(posterior, dense, start)
    information = full_sum(partial(compiled(fisher_information, posterior, False), start), problem.table, extra=4 * size(start))
    total = information + (np.diag(prior) if dense else prior)
    known = np.isfinite(total) & (total > 0)
    return Whitening(start, as_tree(1 / np.sqrt(np.where(known, total, 1.0)), start), dense=False)
