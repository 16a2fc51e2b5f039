"""Samplers composed by `sampler_setup`: parts of a user's own, and what is refused of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.algorithms import BAOA, SAGA, Dynamics, Estimator, Langevin, PersistentHamiltonian

DATA = {"x": np.random.default_rng(3).normal(1.0, 1.0, 400).astype(np.float32)}


def log_lik(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()


def setup(**options):
    return sgmcmc.sampler_setup(log_lik, DATA, {"mu": 0.5}, 1e-5, **{"minibatch_size": 40, "progress": False, **options})


def draws_of(sampler, seed=1):
    return sampler.run(sampler.init(seed=seed, progress=False), 50, burn_in=20, progress=False)["mu"]


@dataclass(frozen=True)
class Noisy(Estimator):
    """The plain estimate, and its variance from the rows, without a switch for it."""

    def measuring_noise(self):
        return self

    def estimate(self, posterior, position, batch, state):
        rows = posterior.row_gradients(position, batch.rows)
        n = len(batch.index)
        variance = jax.tree.map(lambda g: n * (1 - n / posterior.n_rows) * jnp.var(batch.weight * g, axis=0, ddof=1), rows)
        return posterior.gradient(position, batch), state, {"variance": variance}


@dataclass(frozen=True)
class Silent(Noisy):
    """One that says nothing of its noise."""

    def measuring_noise(self):
        return Estimator.measuring_noise(self)


def test_an_estimator_that_knows_its_noise_serves_dynamics_that_learn_it():
    learning = PersistentHamiltonian(alpha=0.1, warmup=20)
    own, ours = (setup(dynamics=learning, gradient=gradient) for gradient in (Noisy(), "minibatch"))
    np.testing.assert_allclose(draws_of(own), draws_of(ours), rtol=1e-4)
    carried = own.run(own.init(seed=1, progress=False), 30, burn_in=20, progress=False).final_state.auxiliary["variance"]["mu"]
    truth = 400 * 360 / 40 * DATA["x"].var(ddof=1)
    assert 0.7 < float(carried) / truth < 1.3


def test_an_estimator_that_does_not_is_refused_there():
    with pytest.raises(sgmcmc.InputError, match=r"Silent\(\) does not estimate it; expected warmup=0"):
        setup(dynamics=PersistentHamiltonian(warmup=20), gradient=Silent())
    setup(dynamics=PersistentHamiltonian(), gradient=Silent())


def test_baoa_may_learn_the_noise_without_correcting_for_it():
    sampler = setup(dynamics=BAOA(alpha=0.3, warmup=20))
    plain = setup(dynamics=BAOA(alpha=0.3))
    np.testing.assert_allclose(draws_of(sampler), draws_of(plain), rtol=1e-4)
    assert "variance" in sampler.init(seed=1, progress=False).auxiliary


@dataclass(frozen=True)
class Elsewhere:
    """A start of a user's own: the given values, moved."""

    position: dict

    def find(self, kernel, source, root, progress):
        return jax.tree.map(lambda x: x + 2.0, self.position), ()


def test_a_start_of_ones_own():
    state = setup(start=Elsewhere).init(seed=1, progress=False)
    assert float(state.params["mu"]) == 2.5
    with pytest.raises(sgmcmc.InputError, match="start is 'centre'; expected one of 'params', 'mode'"):
        setup(start="centre")
    with pytest.raises(sgmcmc.InputError, match="start is 3; expected one of"):
        setup(start=3)


@pytest.mark.parametrize(
    ("one", "other"), [("saga", "minibatch"), ("minibatch", "control-variates"), ("saga", "control-variates")]
)
def test_a_state_of_another_estimator_is_refused(one, other):
    for mine, foreign in ((one, other), (other, one)):
        state = setup(gradient=foreign).init(seed=1, progress=False)
        with pytest.raises(sgmcmc.InputError, match="made by another sampler"):
            setup(gradient=mine).run(state, 5, progress=False)


@pytest.mark.slow
def test_a_state_of_another_estimator_is_refused_behind_a_whitening_too():
    state = setup(gradient="control-variates", precondition="laplace").init(seed=1, progress=False)
    with pytest.raises(sgmcmc.InputError, match="made by another sampler"):
        setup(gradient="control-variates").run(state, 5, progress=False)
    with pytest.raises(sgmcmc.InputError, match="made by another sampler"):
        setup(gradient=SAGA(), precondition="laplace").run(state, 5, progress=False)


def test_messages_name_the_function_that_was_called():
    with pytest.raises(sgmcmc.InputError, match=r"^sampler_setup got an unknown argument 'minibatchsize'"):
        setup(name="my own", minibatchsize=3)
    with pytest.raises(sgmcmc.InputError, match=r"^sampler_setup got checkpoint; it belongs to the run: sampler.run\(state"):
        setup(name="my own", checkpoint="folder")
    with pytest.raises(sgmcmc.InputError, match=r"^sgld_setup got an unknown argument 'minibatchsize'"):
        sgmcmc.sgld_setup(log_lik, DATA, {"mu": 0.5}, 1e-4, minibatchsize=3)


@pytest.mark.parametrize("sampler", [partial(sgmcmc.sghmc, L=None), sgmcmc.baoa])
def test_a_run_depends_on_how_long_it_learnt(sampler, tmp_path):
    run = partial(sampler, log_lik, DATA, {"mu": 0.5}, 1e-5, alpha=0.1, minibatch_size=40, seed=1, burn_in=30, progress=False)
    learning = partial(run, noise_estimate="fisher", checkpoint=tmp_path / "learning")
    learning(n_iters=40, noise_warmup=20)
    with pytest.raises(sgmcmc.InputError, match="noise_warmup was 20, is 30"):
        learning(n_iters=60, noise_warmup=30)
    plain = partial(run, checkpoint=tmp_path / "plain")  # without learning it is nothing to the run
    plain(n_iters=40, noise_warmup=20)
    assert plain(n_iters=60, noise_warmup=30)["mu"].shape == (60,)


@pytest.mark.parametrize("use", ["step", "iterate", "replace", "log_posterior", "run"])
def test_every_method_refuses_a_foreign_state(use):
    sampler, foreign = setup(), setup(dynamics="baoa").init(seed=1, progress=False)
    calls = {
        "step": sampler.step,
        "iterate": lambda state: next(sampler.iterate(state, 5)),
        "replace": lambda state: sampler.replace(state, {"mu": 1.0}),
        "log_posterior": sampler.log_posterior,
        "run": lambda state: sampler.run(state, 5, progress=False),
    }
    with pytest.raises(sgmcmc.InputError, match="state was made by another sampler than this sampler"):
        calls[use](foreign)
    with pytest.raises(sgmcmc.InputError, match="state is None; expected what init, step, run or iterate"):
        calls[use](None)


class Pushed(Langevin):
    """Not a dataclass: its constant is an attribute like any other."""

    def __init__(self, share):
        self.share = share

    def move(self, motion, eps, noise):
        return super().move(motion, jax.tree.map(lambda e: self.share * e, eps), noise)


def test_a_checkpoint_knows_the_constants_of_ones_own_dynamics(tmp_path):
    def run(share, n_iters):
        sampler = setup(dynamics=Pushed(share))
        return sampler.run(sampler.init(seed=1, progress=False), n_iters, checkpoint=tmp_path / "run", progress=False)

    run(1.0, 20)
    assert run(1.0, 30)["mu"].shape == (30,)
    with pytest.raises(sgmcmc.InputError, match=r"dynamics was Pushed\(share=1.0\), is Pushed\(share=0.2\)"):
        run(0.2, 40)


class Counting(Estimator):
    """A state of Python numbers."""

    per_chain = True

    def init(self, posterior, position, passes):
        return {"seen": 0.0}

    def estimate(self, posterior, position, batch, state):
        return posterior.gradient(position, batch), {"seen": state["seen"] + 1.0}, {}


@pytest.mark.parametrize("n_chains", [None, 3])
def test_a_state_of_plain_numbers(n_chains):
    sampler = setup(gradient=Counting())
    state = sampler.run(sampler.init(seed=1, n_chains=n_chains, progress=False), 5, progress=False).final_state
    np.testing.assert_array_equal(state.estimator["seen"], np.full(() if n_chains is None else n_chains, 6.0))


def test_an_argument_of_its_own_is_what_was_meant():
    with pytest.raises(sgmcmc.InputError, match="unknown argument 'gradent'; did you mean 'gradient'"):
        setup(gradent="saga")
    with pytest.raises(sgmcmc.InputError, match="unknown argument 'noise_warmp'; did you mean 'noise_warmup'"):
        sgmcmc.baoa(log_lik, DATA, {"mu": 0.5}, 1e-4, noise_warmp=3)


@pytest.mark.parametrize("dynamics", [BAOA, PersistentHamiltonian])
@pytest.mark.parametrize("warmup", [-1, 2.5, None])
def test_a_warmup_is_a_count(dynamics, warmup):
    with pytest.raises(sgmcmc.InputError, match=r"warmup is .*; expected a whole number of at least 0"):
        setup(dynamics=dynamics(warmup=warmup))


def test_parts_without_their_method_say_which():
    class Nothing(Dynamics):
        pass

    sampler = setup(dynamics=Nothing())
    with pytest.raises(NotImplementedError, match=r"Nothing has no move\(motion, eps, noise\)"):
        sampler.step(sampler.init(seed=1, progress=False))


def test_a_table_larger_than_the_machine_is_refused(monkeypatch):
    monkeypatch.setattr("sgmcmc.problem.passes.physical_memory", lambda: 4000)
    with pytest.raises(sgmcmc.InputError, match=r"something of every row, too much for this machine's memory"):
        setup(gradient="saga").init(seed=1, progress=False)
