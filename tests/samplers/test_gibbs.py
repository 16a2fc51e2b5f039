"""Gibbs steps beside the dynamics: their laws against enumeration and quadrature, and that they keep what samplers promise."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import gibbs_models as models
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import sgmcmc
from sgmcmc import Gibbs
from sgmcmc.algorithms import SAGA, MetropolisHamiltonian, ReplicaExchange
from sgmcmc.algorithms.gradients.held import HeldState
from sgmcmc.core.trees import Batch
from sgmcmc.results.convergence import effective_size
from sgmcmc.testing import check_sampler

# The law of the whole iteration.

RHO = 0.8


def linear_kernel(**options):
    """x, moved by Langevin steps given w, and w ~ N(ρx, 1 - ρ²), whose normal is a number of the data."""

    def log_lik(params, rows):
        return -0.5 * ((params["x"] - RHO * params["w"]) ** 2 / (1 - RHO**2)) * rows["one"].sum()

    def draw(key, params, sums):
        return RHO * params["x"] + np.sqrt(1 - RHO**2) * sums["normal"]

    def setup(eps):
        block = Gibbs(draw, statistics=lambda rows: {"normal": rows["one"].sum()})
        return sgmcmc.sgld_setup(
            log_lik,
            {"one": np.ones(1)},
            {"x": 0.0, "w": 0.0},
            eps,
            minibatch_size=1,
            gibbs={"w": block},
            progress=False,
            **options,
        )

    return setup


def stationary(kernel, state, batch):
    """The covariance of (x, w) under the iteration, which is affine: read off it by differentiating."""
    of_dynamics, steps = kernel.constants

    def iteration(numbers):
        x, gradient, w, z, normal = numbers
        held = HeldState({"w": w}, state.estimator.inner)
        there = replace(state, position={"x": x}, gradient={"x": gradient}, estimator=held)
        given = kernel.given(({**of_dynamics, "blocks": {"w": {"normal": normal}}}, steps))
        new = given.step(there, lambda _: batch, {"x": z[None]})
        return jnp.stack([new.position["x"], new.gradient["x"], new.estimator.held["w"]])

    jacobian = np.asarray(jax.jacobian(iteration)(jnp.zeros(5)))
    M, B = jacobian[:, :3], jacobian[:, 3:]
    return solve_discrete_lyapunov(M, B @ B.T)[np.ix_([0, 2], [0, 2])]


@pytest.mark.usefixtures("x64")
def test_the_law_of_an_iteration_is_the_closed_form_with_the_gradient_at_the_draw():
    for eps in (1e-3, 0.1, 0.3):
        sampler = linear_kernel()(eps)
        state = sampler.init(seed=1)
        batch = Batch({"one": jnp.ones(1)}, jnp.asarray(1.0), jnp.arange(1))
        came = stationary(sampler.kernel, state, batch)
        s2 = 1 - RHO**2
        variance = (1 + eps * RHO**2 / (4 * s2)) / (1 - eps / 4)  # of x' = (1 - ε/2) x + ερ/(2s) n + √ε z
        expected = [[variance, RHO * variance], [RHO * variance, RHO**2 * variance + s2]]
        np.testing.assert_allclose(came, expected, rtol=1e-10)
        wrong = stationary(stale(sampler.kernel), state, batch)
        assert abs(wrong[0, 0] / variance - 1) > 0.02 * eps


def stale(kernel):
    """The mistake: the gradient is that before the draw."""

    class Stale(type(kernel)):
        def place(self, state, batch):
            return state

    return Stale(**{name: getattr(kernel, name) for name in kernel.__dataclass_fields__})


# Three posteriors that are known.


def z_scores(case, draws, chained=True):
    seen = np.asarray(case.seen(draws), float)
    seen = seen if chained else seen[None]
    sizes = np.array([effective_size(seen[..., k]) for k in range(seen.shape[-1])])
    return (seen.mean(axis=(0, 1)) - case.truth) / (seen.std(axis=(0, 1)) / np.sqrt(sizes))


def drawn(case, **options):
    """Chains with exact gradients and small steps: what is off is the Gibbs step's."""
    asked = {"minibatch_size": len(case.data["y"]), "n_chains": 4, "burn_in": 1000, "n_iters": 20_000, "seed": 2}
    asked |= {"log_prior": case.log_prior, "gibbs": case.gibbs, "progress": False, "keep": sgmcmc.Trace(thin=5)}
    return sgmcmc.baoa(case.log_lik, case.data, case.params, 0.003, **asked | options)


def leaning(key, params, sums):
    return models.indicators(key, params, sums, lean=0.5)


def too_large(key, params):
    return models.draw_tau(key, params, shape=2.5)


def one_too_far(key, params, rows):
    return models.location(key, params, rows, shift=1)


CASES = {
    "indicators, all 1024 models": (models.spike_and_slab, leaning),
    "a scale, by quadrature": (models.scale, too_large),
    "a change point, all places": (models.change_point, one_too_far),
}


@pytest.mark.parametrize("name", CASES)
def test_posteriors_are_the_exact_ones_and_a_wrong_conditional_is_caught(name):
    make, mistake = CASES[name]
    assert np.abs(z_scores(make(), drawn(make()))).max() < 4
    assert np.abs(z_scores(make(), drawn(make(update=mistake)))).max() > 6


def test_sample_has_the_inclusion_probabilities_of_all_1024_models():
    case = models.narrow_and_wide()
    out = sgmcmc.sample(
        case.log_lik, case.data, case.params, log_prior=case.log_prior, gibbs=case.gibbs, seed=2, draws=800, progress=False
    )
    assert np.abs(z_scores(case, out)).max() < 4
    assert out["z"].dtype == np.int32
    assert out.health().ok
    assert out.settings["engine"] == "nuts"
    assert out.settings["gibbs"] == {"z": "z"}


def test_control_variates_and_a_preconditioner_where_rows_do_not_see_what_is_drawn():
    case = models.scale()
    asked = {"log_prior": case.log_prior, "gibbs": case.gibbs, "progress": False, "minibatch_size": 20, "n_chains": 4, "seed": 3}
    out = sgmcmc.baoacv(case.log_lik, case.data, case.params, 0.05, precondition="laplace", n_iters=20_000, **asked)
    assert np.abs(z_scores(case, out)).max() < 4


def test_moves_that_are_tested_go_with_blocks():
    case = models.change_point()
    asked = {"log_prior": case.log_prior, "gibbs": case.gibbs, "progress": False, "minibatch_size": models.LENGTH}
    sampler = sgmcmc.sampler_setup(case.log_lik, case.data, case.params, 0.02, dynamics=MetropolisHamiltonian(), **asked)
    out = sampler.run(sampler.init(seed=4, n_chains=4), 8000, burn_in=500, progress=False)
    assert np.abs(z_scores(case, out)).max() < 4


# What every sampler promises.


def draw_level(key, params, rows):
    residual = rows["y"] - rows["x"] @ params["slope"]
    return residual.mean() + 0.3 * jax.random.normal(key)


def owning(setup, block, log_lik, dataset, params, stepsize, **options):
    """A sampler of the battery whose level is drawn; its Gaussian has but one parameter, and is left as it is."""
    gibbs = {"nest.level": block} if isinstance(params, dict) else None
    return setup(log_lik, dataset, params, stepsize, gibbs=gibbs, **options)


BITS = ["state", "chunks", "continuing", "stepping", "seeds", "checkpoint", "float64", "compiling", "rows", "keys", "unbiased"]
WHOLE = pytest.mark.slow  # half a minute: the contracts that need most programs


@pytest.mark.parametrize(
    ("setup", "block", "checks"),
    [
        pytest.param(sgmcmc.sgld_setup, Gibbs(draw_level, every=3), BITS, marks=WHOLE),
        (sgmcmc.sgld_setup, Gibbs(draw_level, every=3), ["state", "chunks", "checkpoint"]),
        (partial(sgmcmc.sghmc_setup, L=2), draw_level, ["continuing", "unbiased"]),
        (partial(sgmcmc.sampler_setup, gradient=SAGA()), draw_level, ["continuing", "unbiased"]),
    ],
    ids=["whole", "sgld", "sghmc", "saga"],
)
def test_the_battery(setup, block, checks):
    assert check_sampler(partial(owning, setup, block), checks=checks, progress=False).ok


def test_a_checkpoint_goes_on_bit_for_bit_and_knows_its_updates(tmp_path):
    case = models.scale()
    asked = {"log_prior": case.log_prior, "minibatch_size": 10, "n_chains": 2, "seed": 1, "progress": False}
    whole = sgmcmc.sgld(case.log_lik, case.data, case.params, 1e-3, gibbs=case.gibbs, n_iters=60, **asked)
    for n_iters in (25, 60):
        cut = sgmcmc.sgld(
            case.log_lik, case.data, case.params, 1e-3, gibbs=case.gibbs, n_iters=n_iters, checkpoint=tmp_path / "run", **asked
        )
    for name in ("beta", "tau"):
        np.testing.assert_array_equal(cut[name], whole[name])
    np.testing.assert_array_equal(sgmcmc.load(tmp_path / "run")["tau"], whole["tau"])
    other = {"tau": Gibbs(too_large, rows="none")}
    with pytest.raises(sgmcmc.InputError, match=r"gibbs\['tau'\] is another function"):
        sgmcmc.sgld(case.log_lik, case.data, case.params, 1e-3, gibbs=other, n_iters=60, checkpoint=tmp_path / "run", **asked)


# What updates are given, and when.


def log_lik(params, rows):
    return -0.5 * ((rows["x"] - params["mu"]) ** 2).sum()


DATA = {"x": np.random.default_rng(0).normal(size=40)}


def run(gibbs, params, n_iters=30, data=DATA, **options):
    asked = {"minibatch_size": 8, "seed": 1, "progress": False, "n_iters": n_iters}
    return sgmcmc.sgld(log_lik, data, {"mu": 0.0, **params}, 1e-3, gibbs=gibbs, **asked | options)


def count(key, params):
    return params["k"] + 1


def test_blocks_are_called_when_they_are_due_one_after_the_other():
    blocks = {"k": Gibbs(count, every=4, rows="none"), "j": Gibbs(lambda key, params: 10 * params["k"], every=6, rows="none")}
    out = run(blocks, {"k": 0, "j": 0}, n_iters=24)
    t = np.arange(1, 25)
    np.testing.assert_array_equal(out["k"], t // 4)
    np.testing.assert_array_equal(out["j"], 10 * ((t // 6 * 6) // 4))  # the value of k at that very iteration
    assert out["k"].dtype == out["j"].dtype == np.int32


def test_one_block_owns_several():
    def both(key, params):
        return {"k": params["k"] + 1, "on": params["k"] % 2 == 0}

    out = run({"pair": Gibbs(both, owns=("k", "on"), rows="none")}, {"k": 0, "on": False}, n_iters=4)
    assert out["k"].tolist() == [1, 2, 3, 4]
    assert out["on"].tolist() == [1, 0, 1, 0]


def test_the_data_are_all_rows_their_sums_or_a_fresh_minibatch(tmp_path):
    folder = sgmcmc.data.convert(DATA, tmp_path / "rows", shuffle=False, progress=False)
    total = {"all": lambda key, params, rows: rows["x"].sum(), "sums": lambda key, params, sums: sums["x"]}
    params = {"all": 0.0, "sums": 0.0}
    sums = Gibbs(total["sums"], statistics=lambda rows: {"x": rows["x"].sum()})
    out = run({"all": total["all"], "sums": sums}, params, n_iters=2)
    expected = np.full(2, DATA["x"].sum(), np.float32)
    np.testing.assert_allclose(out["all"], expected, rtol=1e-5)
    np.testing.assert_allclose(out["sums"], expected, rtol=1e-5)
    on_disk = run({"sums": sums}, {"sums": 0.0}, n_iters=2, data=folder)
    np.testing.assert_allclose(on_disk["sums"], expected, rtol=1e-5)
    with pytest.raises(sgmcmc.InputError, match="not in memory; expected Gibbs\\(statistics"):
        run({"all": total["all"]}, {"all": 0.0}, data=folder)
    seen = run({"i": Gibbs(lambda key, params, batch: batch.index, rows="minibatch")}, {"i": np.zeros(8, int)}, n_iters=500)["i"]
    assert all(len(set(one)) == 8 for one in seen.tolist())
    often = np.bincount(seen.ravel(), minlength=40)
    assert np.abs(often - 100).max() < 4.5 * np.sqrt(500 * 0.2 * 0.8)


def test_chains_have_keys_of_their_own_addressed_by_iteration():
    def normal(key, params):
        return jax.random.normal(key)

    three = run({"w": Gibbs(normal, rows="none")}, {"w": 0.0}, n_chains=3, n_iters=400)["w"]
    alone = run({"w": Gibbs(normal, rows="none")}, {"w": 0.0}, n_iters=400)["w"]
    np.testing.assert_array_equal(three[0], alone)
    numbers = np.concatenate([three, three[:, 1:2]], axis=1)
    assert len(np.unique(three)) == three.size
    assert np.abs(np.corrcoef(numbers)[np.triu_indices(3, 1)]).max() < 4.5 / np.sqrt(400)


# What comes out of it.


def test_whole_numbers_stay_whole_and_their_summaries_are_sensible():
    def flip(key, params):
        return {"z": jax.random.bernoulli(key, 0.3), "stuck": 1}

    block = {"flip": Gibbs(flip, owns=("z", "stuck"), rows="none")}
    keep = {"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments(covariance=True)}
    out = run(block, {"z": 0, "stuck": 1}, n_iters=2000, n_chains=2, keep=keep, diagnose=True)
    assert out["z"].dtype == np.int32
    assert set(np.unique(out["z"])) == {0, 1}
    moments = out.kept["moments"]
    np.testing.assert_allclose(moments.mean["z"], out["z"].mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(moments.sd["z"], out["z"].std(axis=1), rtol=1e-4)
    table = out.summary()
    assert abs(table.loc["z", "mean"] - 0.3) < 4 * table.loc["z", "mcse"]
    assert table.loc["z", "r_hat"] < 1.01
    assert table.loc["stuck", "mean"] == 1
    assert table.loc["stuck", "sd"] == 0
    assert list(out.pairs.names) == ["mu"]


def test_health_looks_at_how_drawn_parameters_mix():
    def rarely(key, params):
        return params["z"] ^ jax.random.bernoulli(key, 0.003)

    out = run({"z": Gibbs(rarely, rows="none")}, {"z": 0}, n_iters=2000, n_chains=2, diagnose=True)
    assert any("z" in finding.about for finding in out.health().findings)


def test_replace_and_the_full_log_posterior_see_what_is_held():
    def log_lik(params, rows):
        return -0.5 * ((rows["x"] - params["mu"] - params["k"]) ** 2).sum()

    block = {"k": Gibbs(lambda key, params: params["k"], rows="none")}
    sampler = sgmcmc.sgld_setup(log_lik, DATA, {"mu": 0.0, "k": 0}, 1e-3, minibatch_size=40, gibbs=block, progress=False)
    state = sampler.init(seed=1, n_chains=2)
    moved = sampler.replace(state, {"mu": np.array([0.0, 0.5]), "k": np.array([0, 2])})
    x = DATA["x"]
    expected = [-0.5 * (x**2).sum(), -0.5 * ((x - 2.5) ** 2).sum()]
    np.testing.assert_allclose(sampler.log_posterior(moved, full=True), expected, rtol=1e-5)
    np.testing.assert_allclose(sampler.log_posterior(moved), expected, rtol=1e-5)
    np.testing.assert_allclose(moved.gradient["mu"], [x.sum(), (x - 2.5).sum()], rtol=1e-4)
    assert sampler.step(moved).params["k"].tolist() == [0, 2]


def test_a_chain_that_leaves_says_so():
    with pytest.raises(sgmcmc.DivergenceError, match="mu"):
        run({"k": Gibbs(count, rows="none")}, {"k": 0}, log_prior=lambda p: 1e3 * p["mu"] ** 4, n_iters=500)


def test_a_draw_that_is_not_finite_ends_the_run_though_no_row_looks_at_it():
    def once(key, params):
        return jnp.where(params["k"] < 9, params["k"] + 1, jnp.nan)

    with pytest.raises(sgmcmc.DivergenceError, match="an update of 'k' returned what is not finite") as error:
        run({"k": Gibbs(once, rows="none")}, {"k": 0.0})
    assert error.value.step == 10
    np.testing.assert_array_equal(error.value.result["k"], np.arange(1, 10))


# What is refused, and how it is repaired.

UPDATE = Gibbs(count, rows="none")


@pytest.mark.parametrize(
    ("gibbs", "params", "message"),
    [
        (None, {"k": 0}, "expected floats, such as jnp.asarray\\(params\\['k'\\], float\\), or gibbs=\\{'k': update\\}"),
        ([UPDATE], {"k": 0}, "gibbs is .*expected a dict by parameter name"),
        ({"k": 3}, {"k": 0}, "gibbs\\['k'\\] is 3; expected a function or a sgmcmc.Gibbs"),
        ({"q": UPDATE}, {"k": 0}, "owns 'q', which params does not have; expected one of k, mu"),
        ({"k": UPDATE, "other": Gibbs(count, owns=("k",))}, {"k": 0}, "both own 'k'; expected one owner"),
        ({"k": UPDATE, "mu": UPDATE}, {"k": 0}, "owns all parameters, k, mu, so that nothing is left"),
        ({"k": count}, {"k": 0}, "gibbs\\['k'\\] failed when called with key, params and rows: TypeError"),
        ({"k": Gibbs(lambda key, params: 0.5, rows="none")}, {"k": 0}, "returned .* for 'k'"),
        (
            {"k": Gibbs(lambda key, params: jnp.ones(()), rows="none")},
            {"k": 0},
            "float32 for 'k'.*whole numbers, such as .astype",
        ),
        ({"k": Gibbs(lambda key, params: jnp.ones(3, int), rows="none")}, {"k": 0}, "for 'k'; expected an array of shape \\(\\)"),
        (
            {"k": Gibbs(lambda key, params: {"j": 1}, owns=("k", "j"), rows="none")},
            {"k": 0, "j": 0},
            "expected a dict \\{'k': ...,",
        ),
    ],
)
def test_bad_blocks_are_refused(gibbs, params, message):
    with pytest.raises(sgmcmc.InputError, match=message):
        run(gibbs, params)


def test_bad_arguments_of_gibbs_are_refused():
    for wrong, message in (
        ({"update": 1}, "update of Gibbs is 1"),
        ({"update": count, "owns": 3}, "owns of Gibbs is 3; expected names of parameters"),
        ({"update": count, "every": 0}, "every of Gibbs is 0"),
        ({"update": count, "rows": "some"}, "rows of Gibbs is 'some'"),
        ({"update": count, "statistics": 3}, "statistics of Gibbs is 3"),
        ({"update": count, "statistics": count, "rows": "none"}, "statistics are of all rows: leave rows out"),
    ):
        with pytest.raises(sgmcmc.InputError, match=message):
            Gibbs(**wrong)
    assert Gibbs(count, owns="tau").owns == Gibbs(count, owns=["tau"]).owns == ("tau",)


def test_what_cannot_be_done_right_is_refused_with_the_repair():
    case = models.change_point()
    asked = {"log_prior": case.log_prior, "gibbs": case.gibbs, "progress": False, "minibatch_size": 10}
    with pytest.raises(sgmcmc.InputError, match=r"ControlVariate keeps gradients .* other values of c.*sgld for sgldcv"):
        sgmcmc.sgldcv(case.log_lik, case.data, case.params, 1e-3, **asked)
    with pytest.raises(sgmcmc.InputError, match="SVRG keeps gradients"):
        sgmcmc.sampler_setup(case.log_lik, case.data, case.params, 1e-3, gradient="svrg", **asked)
    exchange = ReplicaExchange(temperatures=(1, 2))
    with pytest.raises(sgmcmc.InputError, match="ReplicaExchange came with gibbs"):
        sgmcmc.sampler_setup(case.log_lik, case.data, case.params, 1e-3, dynamics=exchange, **asked)
    with pytest.raises(sgmcmc.InputError, match="stepsize='auto' came with gibbs"):
        sgmcmc.sgld(case.log_lik, case.data, case.params, "auto", **asked)
    with pytest.raises(sgmcmc.InputError, match=r"engine='sgmcmc' came with gibbs.*expected engine='nuts'"):
        sgmcmc.sample(case.log_lik, case.data, case.params, log_prior=case.log_prior, gibbs=case.gibbs, engine="sgmcmc")
