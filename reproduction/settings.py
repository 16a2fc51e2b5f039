"""Every number the experiments run with, in one table, and whether it is the article's or ours.

`--quick` runs with the second value of a setting, where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Origin = Literal["paper", "ours"]


@dataclass(frozen=True)
class Given:
    """A setting, who gave it, and what it is for `--quick` where that differs."""

    value: Any
    origin: Origin
    quick: Any = None
    why: str = ""

    def choose(self, quick: bool) -> Any:
        return self.quick if quick and self.quick is not None else self.value


def paper(value: Any, quick: Any = None) -> Given:
    return Given(value, "paper", quick)


def ours(value: Any, why: str, quick: Any = None) -> Given:
    return Given(value, "ours", quick, why)


@dataclass(frozen=True)
class Method:
    """A sampler as an experiment runs it. The six of the article come first, then what we put beside them."""

    label: str
    sampler: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False

    @property
    def control_variates(self) -> bool:
        return self.sampler.endswith("cv")

    @property
    def leaps(self) -> int:
        return 5 if self.sampler.startswith("sghmc") else 1


AS_PRINTED = {"scheme": "paper"}
METHODS = (
    Method("sgld", "sgld"),
    Method("sghmc", "sghmc", AS_PRINTED),
    Method("sgnht", "sgnht"),
    Method("sgldcv", "sgldcv"),
    Method("sghmccv", "sghmccv", AS_PRINTED),
    Method("sgnhtcv", "sgnhtcv"),
    Method("sghmc corrected", "sghmc", ours=True),
    Method("sghmccv corrected", "sghmccv", ours=True),
)
"""`sghmc` and `sghmccv` as the article prints them, and with the corrected order of updates that is the library's default."""

TWINS = (("sgld", "sgldcv"), ("sghmc", "sghmccv"), ("sgnht", "sgnhtcv"))

ITERATIONS = {
    "n_iters": paper(10_000, 1_000),
    "n_iters of sghmc, sghmccv": paper(2_000, 200),
    "burn_in": paper(10_000, 1_000),
    "burn_in of sghmc": paper(10_000, 200),
    "burn_in with control variates": paper(0),
    "n_iters_opt": paper(10_000, 1_000),
}

SETTINGS: dict[str, dict[str, Given]] = {
    "stan": {
        "sizes": ours(
            (1_000, 10_000, 100_000, 1_000_000),
            "the article does not list its sizes",
            (1_000, 100_000),
        ),
        "seeds": ours((1, 2, 3, 4, 5), "not given", (1, 2)),
        "stepsize": ours(1e-6, "not given; one step for every N is what makes small N poor, as in its figure 1"),
        "opt_stepsize": ours(1e-6, "not given; as the step"),
        "n_iters": ours(10_000, "not given; as in section 6", 2_000),
        "burn_in": ours(1_000, "not given; the centre may be far out: its optimiser sees 100 rows a step"),
        "minibatch_size": ours(100, "not given; the package's default of N/100 would make every iteration O(N)"),
        "stan warm-up": ours(1_000, "Stan's default", 500),
        "stan draws": ours(1_000, "Stan's default for one chain", 500),
        "our stepsize x N": ours(0.2, "our rule: a fifth of the posterior variance in the steepest direction"),
        "prior": ours("variance 10", "the article's N(0, 10) may also mean the standard deviation"),
    },
    "gaussian-mixture": {
        "stepsize": paper(
            {"sgld": 5e-3, "sghmc": 5e-4, "sgnht": 3e-4, "sgldcv": 1e-2, "sghmccv": 1.5e-3, "sgnhtcv": 3e-3},
        ),
        "opt_stepsize": paper(5e-5),
        "minibatch_size": paper(100),
        "rows": paper(1_000),
        "seed": paper(2),
        "data seed": paper(2),
        "start": paper("standard normal"),
        **ITERATIONS,
        "repeats": ours(4, "the article runs once; starts and seeds differ between repeats", 2),
        "HMC": ours(
            (4, 1_000, 5_000), "NumPyro's NUTS: chains, warm-up, draws; the article's lengths are not given", (4, 500, 1_000)
        ),
        "test rows": ours(10_000, "for the predictive score of section 6.1's comparison, which the article does not show"),
    },
    "logistic-regression": {
        "stepsize": paper(
            {"sgld": 5e-6, "sghmc": 1e-7, "sgnht": 1e-7, "sgldcv": 1e-5, "sghmccv": 1e-6, "sgnhtcv": 5e-7},
        ),
        "opt_stepsize": paper(1e-6),
        "minibatch_size": paper(500),
        "test rows": paper(10_000),
        "seed": paper(1),
        "data seed": paper(1),
        "start": paper("standard normal"),
        **ITERATIONS,
        "burn_in of sghmc": paper(2_000, 200),
        "looks": paper(10),
        "repeats": ours(5, "the article runs one chain; these start from different points", 2),
        "section 5.1": paper({"stepsize": 5e-6, "opt_stepsize": 5e-6, "seed": 13, "n_iters": 10_000, "burn_in": 1_000}),
    },
    "neural-network": {
        "stepsize": paper(
            {"sgld": 1e-4, "sghmc": 1e-5, "sgnht": 5e-6, "sgldcv": 5e-5, "sghmccv": 1e-5, "sgnhtcv": 5e-7},
        ),
        "opt_stepsize": ours(5e-5, "not given; the step of sgldcv", None),
        "minibatch_size": ours(500, "not given; that of section 6.2"),
        "seed": paper(1),
        "start": paper("standard normal, precisions Gamma(1, 1)"),
        **{name: replace(given, quick=given.quick and given.quick // 5) for name, given in ITERATIONS.items()},
        "looks": paper(10),
        "Adam steps": ours(10_000, "the optimum to compare with; learning rate 0.01, cosine decay", 500),
    },
}


def setting(experiment: str, name: str, quick: bool) -> Any:
    """A number of the table."""
    return SETTINGS[experiment][name].choose(quick)


def stepsize(experiment: str, method: Method) -> float:
    """The article's step size; a corrected method runs with that of the original."""
    return SETTINGS[experiment]["stepsize"].value[method.sampler]


def lengths(experiment: str, method: Method, quick: bool) -> tuple[int, int]:
    """Burn-in and iterations of a method."""
    slow = method.leaps > 1
    n_iters = setting(experiment, "n_iters of sghmc, sghmccv" if slow else "n_iters", quick)
    if method.control_variates:
        return setting(experiment, "burn_in with control variates", quick), n_iters
    return setting(experiment, "burn_in of sghmc" if slow else "burn_in", quick), n_iters


def told(experiment: str) -> list[dict[str, Any]]:
    """The table as the report shows it."""
    return [
        {"setting": name, "value": given.value, "quick": given.quick, "from": given.origin, "why": given.why}
        for name, given in SETTINGS.get(experiment, {}).items()
    ]
