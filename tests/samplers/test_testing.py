"""The battery catches samplers with plausible mistakes: one at least for every contract, each by the contract it breaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc.algorithms import BAOA, SAGA, ControlVariate, Dynamics, Langevin, Minibatch, NoseHoover
from sgmcmc.testing import ContractError, Report, check_sampler


def setup_of(**parts):
    return partial(sgmcmc.sampler_setup, name="wrong", **parts)


def broken(setup, *checks, **options):
    """The contracts among `checks` that a sampler breaks, and what is said of them."""
    with pytest.raises(ContractError) as caught:
        check_sampler(setup, checks=checks, progress=False, **options)
    return {one.name for one in caught.value.report.verdicts if one.broken}, str(caught.value)


class Loud(Langevin):
    """Noise 20 % too large."""

    def move(self, motion, eps, noise):
        return super().move(motion, eps, jax.tree.map(lambda z: 1.2 * z, noise))


class Steep(Langevin):
    """The factor ½ of the gradient forgotten."""

    def move(self, motion, eps, noise):
        return super().move(replace(motion, gradient=jax.tree.map(lambda g: 2 * g, motion.gradient)), eps, noise)


class Stale(BAOA):
    """The momentum moves the position, and is not carried."""

    def move(self, motion, eps, noise):
        return replace(super().move(motion, eps, noise), auxiliary=motion.auxiliary)


@pytest.mark.parametrize("dynamics", [Loud(), Steep(), Stale()], ids=lambda one: type(one).__name__)
def test_wrong_update(dynamics):
    names, told = broken(setup_of(dynamics=dynamics), "target")
    assert names == {"target"}
    assert "expected 1" in told
    assert "factor" in told


class LoudThermostat(NoseHoover):
    """The thermostat holds the temperature 20 % too high: a law that cannot be read off."""

    def settle(self, motion, gradient, stats, eps, noise, t):
        after = super().settle(motion, gradient, stats, eps, noise, t)
        hot = jax.tree.map(lambda alpha, e: alpha - 0.2 * e, after.auxiliary["thermostat"], eps)
        return replace(after, auxiliary=after.auxiliary | {"thermostat": hot})


def test_wrong_law_that_cannot_be_read_off():
    names, told = broken(setup_of(dynamics=LoudThermostat()), "law")
    assert names == {"law"}
    assert "within 5%" in told


class Saturating(Langevin):
    """Gradients that a bend keeps below 300: right where they are small, and not linear."""

    def move(self, motion, eps, noise):
        bent = jax.tree.map(lambda g: 300 * jnp.tanh(g / 300), motion.gradient)
        return super().move(replace(motion, gradient=bent), eps, noise)


def test_dynamics_that_are_not_linear_are_not_read_off():
    report = check_sampler(setup_of(dynamics=Saturating()), checks=["target", "law"], progress=False)
    assert [one.note for one in report.verdicts] == ["see law", ""]


def changed(setup, change):
    """A setup whose samplers are changed after they were made."""
    return lambda *args, **options: change(setup(*args, **options))


@dataclass(frozen=True)
class Quiet(Langevin):
    """Dynamics that run with less noise than they are asked about by themselves: as if the machinery lost some."""

    def move(self, motion, eps, noise):
        share = 0.9 if jnp.ndim(motion.position) else 1.0
        return super().move(motion, eps, jax.tree.map(lambda z: share * z, noise))


def test_chains_that_do_not_have_the_law_of_their_update():
    names, told = broken(setup_of(dynamics=Quiet()), "target", "law")
    assert names == {"law"}
    assert "standard" in told or "posterior variances" in told


class Heavy(Minibatch):
    """Every row counts as if the minibatch were all of them."""

    def estimate(self, posterior, position, batch, state):
        return super().estimate(posterior, position, replace(batch, weight=jnp.ones_like(batch.weight)), state)


class OneSided(ControlVariate):
    """The differences to the centre without their weight."""

    def estimate(self, posterior, position, batch, state):
        right = super().estimate(posterior, position, batch, state)[0]
        there = jax.grad(posterior.log_likelihood)(state.position, batch)
        return jax.tree.map(lambda g, t: g + 0.1 * t, right, there), state, {}


class Forgetful(SAGA):
    """The table is written, the sum over it is not."""

    def estimate(self, posterior, position, batch, state):
        gradient, after, stats = super().estimate(posterior, position, batch, state)
        return gradient, after | {"sum": state["sum"]}, stats


@pytest.mark.parametrize(("gradient", "when"), [(Heavy(), "the start"), (OneSided(), "the start"), (Forgetful(), "after 40")])
def test_wrong_gradient(gradient, when):
    """One that does not carry its state is right at the start."""
    names, told = broken(setup_of(gradient=gradient), "unbiased")
    assert names == {"unbiased"}
    assert "full gradient" in told
    assert when in told


class Undeclared(SAGA):
    """What it carries changes, and it does not say so."""

    per_chain = False


def test_a_state_that_changes_undeclared():
    names, told = broken(setup_of(gradient=Undeclared()), "state")
    assert names == {"state"}
    assert "per_chain = True" in told


class Renewed(SAGA):
    """The sum over the table is right at every second step only."""

    def estimate(self, posterior, position, batch, state):
        gradient, after, stats = super().estimate(
            posterior, position, batch, {name: state[name] for name in ("table", "sum", "lost")}
        )
        even = state["steps"] % 2 == 0
        right = jax.tree.map(lambda g: g.sum(axis=0), after["table"])
        wrong = jax.tree.map(lambda total: total + 1.0, right)
        total = jax.tree.map(lambda r, w: jnp.where(even, r, w), right, wrong)
        return gradient, after | {"sum": total, "steps": state["steps"] + 1}, stats

    def init(self, posterior, position, passes):
        return super().init(posterior, position, passes) | {"steps": jnp.int32(0)}


def test_a_state_that_is_right_now_and_then():
    names, told = broken(setup_of(gradient=Renewed()), "unbiased")
    assert names == {"unbiased"}
    assert "after 4" in told


class Assumed(Minibatch):
    """The weight of a minibatch of four, whatever its size."""

    def estimate(self, posterior, position, batch, state):
        return super().estimate(posterior, position, replace(batch, weight=jnp.full_like(batch.weight, 3.0)), state)


def test_a_weight_taken_for_a_constant():
    names, _ = broken(setup_of(gradient=Assumed()), "rows", "unbiased")
    assert names == {"rows"}


class TwiceTheKey(Langevin):
    """Noise of its own, one key for two purposes."""

    def move(self, motion, eps, noise):
        key = jax.random.key(3)
        jitter = jax.random.normal(key) + jax.random.normal(key)
        return super().move(motion, eps, jax.tree.map(lambda z: z + 0 * jitter, noise))


def test_key_used_twice():
    names, told = broken(setup_of(dynamics=TwiceTheKey()), "keys")
    assert names == {"keys"}
    assert "KeyReuse" in told


class OwnNoise(Langevin):
    """Noise from a constant key: the same in all chains and for all seeds."""

    def move(self, motion, eps, noise):
        return super().move(motion, eps, jax.tree.map(lambda z: jax.random.normal(jax.random.key(3), z.shape, z.dtype), noise))


def test_noise_from_a_constant_key():
    names, _ = broken(setup_of(dynamics=OwnNoise(), gradient="control-variates"), "law", "apart")
    assert names == {"law", "apart"}


class Single(Langevin):
    """Computes in float32 whatever is asked for."""

    def move(self, motion, eps, noise):
        after = super().move(motion, eps, noise)
        return replace(after, position=jax.tree.map(lambda x: x.astype(jnp.float32).astype(x.dtype), after.position))


class Cast(Langevin):
    """Hands back float16."""

    def move(self, motion, eps, noise):
        after = super().move(motion, eps, noise)
        return replace(after, position=jax.tree.map(lambda x: x.astype(jnp.float16), after.position))


def test_precision_lost():
    names, told = broken(setup_of(dynamics=Single()), "state", "float64")
    assert names == {"float64"}
    assert "rounded on the way" in told
    names, _ = broken(setup_of(dynamics=Cast()), "state")
    assert names == {"state"}


class Deaf(Langevin):
    """Keeps the step size it began with."""

    def start(self, position, eps, noise):
        return {"eps": eps}

    def move(self, motion, eps, noise):
        return super().move(motion, motion.auxiliary["eps"], noise)


def test_step_size_kept():
    names, told = broken(setup_of(dynamics=Deaf()), "schedule")
    assert names == {"schedule"}
    assert "thousandth" in told


class Chunky(Langevin):
    """Constants that change from one compilation to the next."""

    count = 0

    def move(self, motion, eps, noise):
        Chunky.count += 1
        return super().move(motion, jax.tree.map(lambda e: e * (1 + 0.1 * Chunky.count), eps), noise)


def test_numbers_kept_outside_the_state():
    names, told = broken(setup_of(dynamics=Chunky()), "chunks", "stepping", "checkpoint")
    assert names == {"chunks", "stepping", "checkpoint"}
    assert told.count("Usual cause") == 3


class Drifting(Langevin):
    """A constant that is drawn anew whenever the sampler is set up."""

    def fitted(self, position):
        return Scaled(float(np.random.default_rng().uniform(0.5, 1.5)))


@dataclass(frozen=True)
class Scaled(Langevin):
    factor: float = 1.0

    def move(self, motion, eps, noise):
        return super().move(motion, jax.tree.map(lambda e: e * self.factor, eps), noise)


def test_set_ups_that_differ():
    names, _ = broken(setup_of(dynamics=Drifting()), "checkpoint", "continuing")
    assert names == {"checkpoint"}


class Wrapped(sgmcmc.Sampler):
    """A sampler whose machinery was rewritten, with a mistake in each method."""

    def init(self, seed=None, *, n_chains=None, progress=True):
        state = super().init(4, n_chains=n_chains, progress=progress)
        return state if n_chains is None else replace(state, key=jnp.broadcast_to(state.key[0], state.key.shape))

    def run(self, state, n_iters=10_000, **options):
        fresh = replace(state, step=jnp.int32(0) if options.get("burn_in") is None else jnp.int32(1))
        kernel = replace(self.kernel, posterior=replace(self.kernel.posterior, same=object()))  # like no other: compiled anew
        return replace(self, kernel=kernel, programs=None)._again(fresh, n_iters, options)

    def _again(self, state, n_iters, options):
        return sgmcmc.Sampler.run(self, state, n_iters, **options)


REWRITTEN = ("seeds", "continuing", "chunks", "compiling", "apart")


def rewrapped(sampler):
    return Wrapped(**{name: getattr(sampler, name) for name in sampler.__dataclass_fields__})


def test_machinery_rewritten_with_mistakes():
    """Seeds are ignored, chains share their keys, runs do not continue, burn-in changes the random numbers, every run is
    compiled anew.
    """
    names, _ = broken(changed(sgmcmc.sgld_setup, rewrapped), *REWRITTEN, n_iters=100)
    assert names == set(REWRITTEN)


class SharedRows(sgmcmc.Sampler):
    """Chains have noise of their own, and all the same minibatches."""

    @property
    def loop(self):
        loop = sgmcmc.Sampler.loop.func(self)
        draw = loop.source.draw

        class Shared(type(loop.source)):
            def draw(self, keys):
                return draw(keys if keys.ndim == 2 else jnp.broadcast_to(keys[:, :1], keys.shape))

        source = Shared(loop.source.arrays, loop.source.batch_size)
        return replace(loop, source=source)


def test_minibatches_shared_by_all_chains():
    def share(sampler):
        return SharedRows(**{name: getattr(sampler, name) for name in sampler.__dataclass_fields__})

    names, told = broken(changed(sgmcmc.sgld_setup, share), "stepping", "apart", n_iters=200)
    assert names == {"apart"}
    assert "independent" in told


class Unfinished(Dynamics):
    """Nothing written yet."""


def test_what_is_raised_is_told_once_all_was_looked_at():
    names, told = broken(setup_of(dynamics=Unfinished()), "state", "unbiased")
    assert names == {"state", "unbiased"}
    assert "NotImplementedError" in told
    assert "wrong breaks 2 of 2 contracts" in told


def test_report_is_a_table():
    report = check_sampler(sgmcmc.sgld_setup, checks=["state", "seeds"], progress=False)
    assert isinstance(report, Report)
    assert report.ok
    assert [line.split()[:2] for line in str(report).splitlines()[1:]] == [["state", "ok"], ["seeds", "ok"]]
    assert repr(report) == str(report)


def test_progress_is_told():
    figures = []
    check_sampler(sgmcmc.sgld_setup, checks=["state"], progress=figures.append)
    assert figures == [{"stage": "sgld", "done": 1, "total": 1}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checks": ["laws"]}, "checks is 'laws'; expected one of 'state'"),
        ({"checks": "law"}, "checks=\\['law'\\]"),
        ({"checks": []}, "checks is empty"),
        ({"n_iters": 0}, "n_iters is 0"),
        ({"alpha": 0.1}, "alpha"),
    ],
)
def test_refused_arguments(arguments, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        check_sampler(sgmcmc.sgld_setup, **arguments)


def test_a_setup_that_makes_no_sampler():
    with pytest.raises(sgmcmc.InputError, match="setup returned None; expected a Sampler"):
        check_sampler(lambda *args, **options: None)
    with pytest.raises(sgmcmc.InputError, match="setup is 3; expected a function"):
        check_sampler(3)
