"""Every dynamics with every estimator: chains, constraints and checkpoints together, and the contracts of the battery."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.algorithms import (
    SVRG,
    Importance,
    MetropolisHamiltonian,
    PaperHamiltonian,
    PersistentHamiltonian,
    PreconditionedLangevin,
    ReplicaExchange,
    RMSLangevin,
    SecondOrder,
    SymmetricHamiltonian,
)
from sgmcmc.testing import check_sampler

CONTRACTS = "state chunks continuing stepping seeds checkpoint float64 schedule compiling rows keys unbiased target law apart"
N = 12
RNG = np.random.default_rng(2)
DATA = {"x": RNG.normal(1.0, 2.0, N).astype(np.float32)}


def metric(params):
    return jax.tree.map(lambda x: 1 + 0.1 * jnp.tanh(x) ** 2, params)


DYNAMICS = {
    "langevin": {"dynamics": "langevin"},
    "metric": {"dynamics": PreconditionedLangevin(metric)},
    "rms-langevin": {"dynamics": RMSLangevin(freeze=500), "stepsize": 0.2},
    "barker": {"dynamics": "barker"},
    "hamiltonian": {"dynamics": SymmetricHamiltonian(L=3)},
    "paper": {"dynamics": PaperHamiltonian(L=3), "variance": 1.5},
    "persistent": {"dynamics": PersistentHamiltonian(alpha=0.1)},
    "metropolis": {"dynamics": MetropolisHamiltonian(L=2), "minibatch_size": N},
    "baoa": {"dynamics": "baoa"},
    "obabo": {"dynamics": "obabo"},
    "nose-hoover": {"dynamics": "nose-hoover"},
    "symmetric-nose-hoover": {"dynamics": "symmetric-nose-hoover"},
    "replicas": {"dynamics": ReplicaExchange((1, 2), every=2), "minibatch_size": N, "but": "schedule"},
}
GRADIENTS = {
    "plain": {},
    "control-variates": {"gradient": "control-variates"},
    "second-order": {"gradient": SecondOrder()},
    "saga": {"gradient": "saga"},
    "svrg": {"gradient": SVRG(epoch=40)},
    "importance": {"rows": Importance(np.arange(1.0, N + 1))},
}
REFUSED = {("replicas", "saga"), ("replicas", "svrg")}
PAIRS = [(move, look) for move in DYNAMICS for look in GRADIENTS if (move, look) not in REFUSED]
COVERING = dict(zip(DYNAMICS, 3 * ["svrg", "saga", "importance", "second-order", "control-variates", "plain"], strict=False))
COVERING |= {"replicas": "control-variates"}
"""An estimator for each dynamics, so that each of both is there; all other pairs with the slow tests."""


def pairs(quick):
    return [pytest.param(*pair, marks=() if quick and COVERING[pair[0]] == pair[1] else pytest.mark.slow) for pair in PAIRS]


def log_lik(params, batch):
    return (-0.5 * ((batch["x"] - params["mu"]) / params["s"]) ** 2 - jnp.log(params["s"])).sum()


def log_prior(params):
    return -0.5 * params["mu"] ** 2 - params["s"]


def sampler_of(move, look):
    parts = DYNAMICS[move] | GRADIENTS[look]
    options = {"minibatch_size": 5} | {k: v for k, v in parts.items() if k not in ("stepsize", "variance", "but")}
    return sgmcmc.sampler_setup(
        log_lik, DATA, {"mu": 1.0, "s": 2.0}, 0.002, log_prior=log_prior, progress=False,
        constraints={"s": sgmcmc.constraints.positive}, **options,
    )  # fmt: skip


@pytest.mark.parametrize(("move", "look"), pairs(quick=True))
def test_chains_under_constraints_go_on_from_a_checkpoint_bit_for_bit(move, look, tmp_path):
    sampler = sampler_of(move, look)
    state = sampler.init(seed=1, n_chains=2, progress=False)
    whole = sampler.run(state, 60, chunk_size=16, progress=False)
    sampler.run(state, 45, chunk_size=16, progress=False, checkpoint=tmp_path / "run")
    resumed = sampler_of(move, look).run(state, 60, chunk_size=16, progress=False, checkpoint=tmp_path / "run")
    for name in ("mu", "s"):
        np.testing.assert_array_equal(resumed[name], whole[name])
        assert whole[name].shape == (2, 60)
        assert np.ptp(whole[name], axis=1).min() > 0
    assert whole["s"].min() > 0
    assert not np.array_equal(whole["mu"][0], whole["mu"][1])


@pytest.mark.parametrize(("move", "look"), pairs(quick=False))
def test_every_pair_keeps_the_contracts(move, look):
    options = DYNAMICS[move] | GRADIENTS[look]
    looked_at = [one for one in CONTRACTS.split() if one != options.get("but")]
    asked = {name: options[name] for name in ("variance", "stepsize", "minibatch_size") if name in options}
    parts = {name: part for name, part in options.items() if name in ("dynamics", "gradient", "rows")}
    report = check_sampler(partial(sgmcmc.sampler_setup, **parts), checks=looked_at, progress=False, **asked)
    assert report.ok


@pytest.mark.parametrize(("move", "look"), sorted(REFUSED))
def test_copies_at_several_temperatures_refuse_what_remembers_a_chain(move, look):
    with pytest.raises(sgmcmc.InputError, match="ReplicaExchange came with"):
        sampler_of(move, look)


def test_every_part_is_in_the_covering_pairs():
    assert set(COVERING) == set(DYNAMICS)
    assert set(COVERING.values()) == set(GRADIENTS)
