"""What a run keeps, what it says of it, and what happens when it breaks."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgmcmc
from sgmcmc import constraints

X = np.random.default_rng(0).normal(1.0, 2.0, (500, 2)).astype(np.float32)
DATA, PARAMS = {"x": X}, {"mu": np.zeros(2), "s": 0.0}


def log_lik(params, batch):
    return (-0.5 * ((batch["x"] - params["mu"]) * jnp.exp(-params["s"])) ** 2 - params["s"]).sum()


def square(params):
    return {"square": params["mu"] ** 2, "s": params["s"]}


def run(keep=None, **options):
    arguments = {"minibatch_size": 50, "n_iters": 60, "burn_in": 10, "seed": 1, "progress": False, **options}
    return sgmcmc.sgld(log_lik, DATA, PARAMS, arguments.pop("stepsize", 1e-5), keep=keep, **arguments)


KEEPS = {
    "draws": sgmcmc.Trace(),
    "some": sgmcmc.Trace(thin=7),
    "squares": sgmcmc.Trace(square, thin=3),
    "moments": sgmcmc.Moments(covariance=True),
    "mean": sgmcmc.Expectation(square),
    "some moments": sgmcmc.Moments(thin=7),
    "some mean": sgmcmc.Expectation(square, thin=7),
}


def decreasing(t):
    return 1e-5 / (1 + 0.1 * t)


@pytest.mark.parametrize(
    ("n_chains", "stepsize"),
    [(None, 1e-5), (3, decreasing), *(pytest.param(*rest, marks=pytest.mark.slow) for rest in ((3, 1e-5), (None, decreasing)))],
)
def test_every_keep_object_agrees_with_the_draws(n_chains, stepsize):
    out = run(KEEPS, n_chains=n_chains, stepsize=stepsize, thin=2)
    mu, s = (out[name] if n_chains else out[name][None] for name in ("mu", "s"))
    kept = out.kept if n_chains else _with_chain_axis(out.kept)
    weights = np.ones(30) if out.weights is None else out.weights
    share = weights / weights.sum()
    assert mu.shape == (n_chains or 1, 30, 2)
    np.testing.assert_array_equal(kept["some"]["mu"], mu[:, 6::7])
    np.testing.assert_allclose(kept["squares"]["square"], mu[:, 2::3] ** 2, rtol=1e-5)
    mean = np.einsum("t,cti->ci", share, mu)
    np.testing.assert_allclose(kept["mean"]["square"], np.einsum("t,cti->ci", share, mu**2), rtol=1e-4)
    np.testing.assert_allclose(kept["moments"].mean["mu"], mean, rtol=1e-4)
    np.testing.assert_allclose(kept["moments"].sd["s"], np.sqrt(_weighted_variance(share, s)), rtol=1e-2)
    both = np.concatenate([mu, s[..., None]], axis=-1)
    centred = both - np.einsum("t,cti->ci", share, both)[:, None]
    expected = np.einsum("t,cti,ctj->cij", share, centred, centred)
    np.testing.assert_allclose(kept["moments"].covariance, expected, rtol=2e-2, atol=1e-8)
    share = weights[6::7] / weights[6::7].sum()
    np.testing.assert_allclose(kept["some mean"]["square"], np.einsum("t,cti->ci", share, mu[:, 6::7] ** 2), rtol=1e-4)
    np.testing.assert_allclose(kept["some moments"].mean["mu"], np.einsum("t,cti->ci", share, mu[:, 6::7]), rtol=1e-4)
    np.testing.assert_allclose(kept["some moments"].sd["s"], np.sqrt(_weighted_variance(share, s[:, 6::7])), rtol=1e-2)
    np.testing.assert_allclose(kept["some moments"].weight, weights[6::7].sum(), rtol=1e-5)


def _weighted_variance(share, draws):
    mean = draws @ share
    return ((draws - mean[:, None]) ** 2) @ share


def _with_chain_axis(kept):
    def lift(value):
        if not isinstance(value, sgmcmc.results.keeps.MomentValues):
            return jax.tree.map(lambda x: np.asarray(x)[None], value)
        parts = (jax.tree.map(lambda x: x[None], part) for part in (value.mean, value.sd, value.covariance))
        return sgmcmc.results.keeps.MomentValues(*parts, value.weight)

    return {name: lift(value) for name, value in kept.items()}


def test_a_thinned_function_is_called_for_its_turns_only():
    calls = []

    def dear(params):
        jax.debug.callback(lambda: calls.append(1))
        return params["mu"]

    run(sgmcmc.Expectation(dear, thin=20))
    jax.effects_barrier()
    assert len(calls) == 60 // 20


@pytest.mark.parametrize("name", ["Moments", "Expectation", "Trace"])
def test_thin_must_be_a_whole_number(name):
    first = {"function": square} if name == "Expectation" else {}
    for thin in (0, 1.5, True):
        with pytest.raises(sgmcmc.InputError, match=f"thin of {name} is {thin}"):
            getattr(sgmcmc, name)(**first, thin=thin)


def test_one_object_alone():
    out = run(sgmcmc.Moments())
    assert out.kept.mean["mu"].shape == (2,)
    assert len(out) == 0
    with pytest.raises(sgmcmc.InputError, match="kept no draws"):
        out.summary()
    with pytest.raises(KeyError, match="no draws"):
        out["mu"]


def test_own_keep_objects_need_only_the_protocol():
    class Last:
        def begin(self):
            return jnp.zeros(2)

        def open(self, carry, params, capacity, chained):
            return carry

        def update(self, work, params, weight, hit, chained):
            return jnp.where(hit, params["mu"], work)

        def close(self, work):
            return work, ()

        def store(self, params, total, chained):
            return None

        def finish(self, carry, store):
            return np.asarray(carry)

    out = run({"last": Last(), "draws": sgmcmc.Trace()})
    np.testing.assert_array_equal(out.kept["last"], out["mu"][-1])


def test_summary_and_exports():
    out = run(n_chains=2, n_iters=400)
    table = out.summary()
    assert list(table.index) == ["mu[0]", "mu[1]", "s"]
    np.testing.assert_allclose(table.loc["mu[1]", "mean"], out["mu"][..., 1].mean(dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(table.loc["s", "sd"], out["s"].std(dtype=np.float64), rtol=1e-4)
    np.testing.assert_allclose(
        table.loc["s", ["5%", "50%", "95%"]].to_numpy(float), np.quantile(out["s"], [0.05, 0.5, 0.95]), rtol=1e-5
    )
    with pytest.warns(sgmcmc.SgmcmcWarning, match="2 of 3"):
        assert len(out.summary(max_rows=2)) == 2
    tree = out.to_arviz()
    assert dict(tree.posterior.sizes) == {"chain": 2, "draw": 400, "mu_dim_0": 2}
    assert tree.posterior.attrs["sampler"] == "sgld"
    assert set(out.settings) >= {"stepsize", "minibatch_size", "seed", "n_iters", "burn_in", "versions", "rows"}
    assert "mu: (2, 400, 2)" in repr(out)


def test_summary_of_numbers_that_never_move():
    def model(params, batch):
        return -0.5 * ((batch["x"] @ params["L"]) ** 2).sum() + len(batch["x"]) * jnp.log(jnp.diagonal(params["L"])).sum()

    out = sgmcmc.sgld(
        model, DATA, {"L": np.eye(2)}, 1e-6, minibatch_size=50, n_iters=20, seed=1, n_chains=2, progress=False,
        constraints={"L": constraints.lower_cholesky},
    )  # fmt: skip
    assert np.isnan(out.summary().loc["L[0,1]", "r_hat"])


def test_pictures(tmp_path):
    from sgmcmc.results.pictures import histogram

    out = run(n_chains=2, n_iters=300)
    figure = out.plot()
    assert len(figure.axes) == 6
    assert [axis.get_ylabel() for axis in figure.axes[::2]] == ["mu[0]", "mu[1]", "s"]
    figure.savefig(tmp_path / "traces.png")
    assert (tmp_path / "traces.png").stat().st_size > 10_000
    assert len(out.plot(["s"], max_rows=1).axes) == 2
    with pytest.raises(sgmcmc.InputError, match="sigma"):
        out.plot(["sigma"])
    centres, heights = histogram(np.random.default_rng(0).normal(size=10_000), None)
    assert np.trapezoid(heights, centres) == pytest.approx(1, abs=0.01)


# Divergence loses nothing.


@pytest.mark.parametrize(
    "name", ["sgld", "sghmc", "sgnht", "sgldcv", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sghmccv", "sgnhtcv"))]
)
@pytest.mark.parametrize("n_chains", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_a_step_a_thousand_times_too_large_is_caught_within_100_steps(name, n_chains):
    def gaussian(params, batch):
        return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum()

    reasonable = 1 / len(X)
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        getattr(sgmcmc, name)(
            gaussian, DATA, {"mu": np.ones(2)}, 1000 * reasonable, minibatch_size=50, n_iters=5000, seed=1,
            progress=False, n_chains=n_chains,
        )  # fmt: skip
    error = caught.value
    assert error.step <= 100
    assert error.parameter == "mu"
    assert (error.chain is None) == (n_chains is None)
    draws = error.result["mu"]
    assert draws.shape[-2] == error.step - 1
    assert np.isfinite(draws).all()
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in error.result.final_state.params.values())
    for word in ("'mu'", f"iteration {error.step}", "stepsize=0.2", ".result"):
        assert word in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.step, again.parameter, str(again)) == (error.step, error.parameter, str(error))
    assert np.array_equal(again.result["mu"], draws)
    assert again.result.model is None
    assert error.result.model is not None


def test_divergence_in_the_other_doors():
    sampler = sgmcmc.sgld_setup(
        lambda p, b: -0.5 * ((b["x"] - p["mu"]) ** 2).sum(), DATA, {"mu": np.ones(2)}, 2.0, minibatch_size=50
    )
    state = sampler.init(seed=1)
    with pytest.raises(sgmcmc.DivergenceError):
        list(sampler.iterate(state, 500, every=50))

    def many_steps(state):
        for _ in range(100):
            state = sampler.step(state)

    with pytest.raises(sgmcmc.DivergenceError):
        many_steps(state)


def test_divergence_where_one_whitened_vector_moves():
    with pytest.raises(sgmcmc.DivergenceError, match=r"'params' .*stepsize=5"):
        sgmcmc.sgldcv(
            lambda p, b: -0.5 * ((b["x"] - p["mu"]) ** 2).sum(), DATA, {"mu": np.ones(2)}, 50.0, precondition="laplace",
            minibatch_size=50, n_iters=500, n_chains=2, seed=1, progress=False,
        )  # fmt: skip


def test_divergence_keeps_running_summaries_finite():
    keep = {"moments": sgmcmc.Moments(), "mean": sgmcmc.Expectation(lambda p: p["mu"])}
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run(keep, stepsize=10.0, n_iters=500, burn_in=0)
    assert np.isfinite(caught.value.result.kept["moments"].mean["mu"]).all()
    assert np.isfinite(caught.value.result.kept["mean"]).all()


def test_a_diverging_search_for_the_centre_says_so():
    with pytest.raises(sgmcmc.SgmcmcError, match="opt_stepsize"):
        sgmcmc.sgldcv(log_lik, DATA, PARAMS, 1e-5, 10.0, n_iters_opt=500, minibatch_size=50, n_iters=5, seed=1, progress=False)


def test_interrupts_return_what_there_is():
    calls = []

    def impatient(figures):
        calls.append(figures)
        if figures["done"] > 20:
            raise KeyboardInterrupt

    with pytest.warns(sgmcmc.SgmcmcWarning, match="interrupted"):
        out = run(n_iters=10_000, burn_in=0, progress=impatient)
    assert 20 < len(out["mu"]) == calls[-1]["done"] < 10_000
    assert np.isfinite(out["mu"]).all()


def test_progress_is_told_and_quiet_is_quiet(capfd):
    seen = []
    run(progress=seen.append)
    assert seen[-1]["done"] == seen[-1]["total"] == 70
    assert np.isfinite(seen[-1]["log_posterior"])
    run(progress=False)
    assert capfd.readouterr().err == ""


# SGHMC without resampling learns its noise.


def test_fisher_noise_estimate_is_learnt_and_frozen():
    sampler = sgmcmc.sghmc_setup(
        lambda p, b: -0.5 * ((b["x"] - p["mu"]) ** 2).sum(), DATA, {"mu": np.zeros(2)}, 1e-6, L=None, alpha=0.1,
        minibatch_size=50, noise_estimate="fisher", noise_warmup=200,
    )  # fmt: skip
    out = sampler.run(sampler.init(seed=1), 1, burn_in=300, progress=False)
    learnt = out.final_state.auxiliary["variance"]["mu"]
    np.testing.assert_allclose(learnt, 500 * 450 / 50 * X.var(axis=0, ddof=1), rtol=0.05)
    later = sampler.run(out.final_state, 50, progress=False).final_state.auxiliary["variance"]["mu"]
    np.testing.assert_array_equal(learnt, later)


def test_too_much_noise_for_the_estimate_warns():
    with pytest.warns(sgmcmc.SgmcmcWarning, match="raise alpha or minibatch_size"):
        sgmcmc.sghmc(
            log_lik, DATA, PARAMS, 1e-4, L=None, alpha=0.01, minibatch_size=5, noise_estimate="fisher", noise_warmup=50,
            burn_in=50, n_iters=10, seed=1, progress=False,
        )  # fmt: skip


def test_draws_from_the_warm_up_warn():
    with pytest.warns(sgmcmc.SgmcmcWarning, match="burn_in=100"):
        sgmcmc.sghmc(
            log_lik, DATA, PARAMS, 1e-9, L=None, alpha=0.1, minibatch_size=50, noise_estimate="fisher", noise_warmup=100,
            n_iters=10, seed=1, progress=False,
        )  # fmt: skip


# Found by trying to break it.


def test_running_summaries_do_not_lose_small_draws():
    """Draws whose spread is tiny beside their mean: a running mean in float32 would freeze after a few thousand."""
    data = {"x": np.random.default_rng(0).normal(1000.0, 0.03, 100)}
    out = sgmcmc.sgld(
        lambda p, b: -0.5 * ((b["x"] - p) / 0.03) ** 2, data, 1000.0, 1e-6, minibatch_size=100, n_iters=40_000, seed=1,
        progress=False, keep={"draws": sgmcmc.Trace(), "moments": sgmcmc.Moments(), "mean": sgmcmc.Expectation(lambda p: p)},
    )  # fmt: skip
    draws = out["params"].astype(np.float64)
    for mean in (out.kept["moments"].mean, out.kept["mean"]):
        assert abs(mean - draws.mean()) < 0.01 * draws.std()
    np.testing.assert_allclose(out.kept["moments"].sd, draws.std(), rtol=1e-2)


def test_nothing_kept_is_not_a_zero():
    with pytest.raises(sgmcmc.DivergenceError) as caught:
        run({"mean": sgmcmc.Expectation(lambda p: p["mu"]), "draws": sgmcmc.Trace()}, stepsize=10.0, burn_in=500)
    assert np.isnan(caught.value.result.kept["mean"]).all()
    with pytest.raises(sgmcmc.InputError, match="no draws"):
        caught.value.result.summary()
    with pytest.raises(sgmcmc.InputError, match="stores nothing"):
        run(sgmcmc.Trace(thin=100))
    with pytest.raises(sgmcmc.InputError, match="keep"):
        run(sgmcmc.Expectation(lambda p: p["nu"]))


def test_replace_refuses_other_shapes_and_values_outside():
    sampler = sgmcmc.sgld_setup(
        lambda p, b: -0.5 * ((b["x"] @ p["B"]) ** 2).sum(axis=1) / p["v"] - 1.5 * jnp.log(p["v"]), DATA,
        {"B": np.ones((2, 3)), "v": 1.0}, 1e-6, minibatch_size=50, constraints={"v": constraints.positive},
    )  # fmt: skip
    state = sampler.init(seed=1)
    with pytest.raises(sgmcmc.InputError, match=r"params\['B'\] has shape \(3, 2\)"):
        sampler.replace(state, {"B": np.ones((3, 2)), "v": 1.0})
    with pytest.raises(sgmcmc.InputError, match=r"params\['v'\]"):
        sampler.replace(state, {"B": np.ones((2, 3)), "v": -1.0})


def test_states_of_other_samplers_are_refused():
    setups = [
        f(log_lik, DATA, PARAMS, 1e-6, minibatch_size=50) for f in (sgmcmc.sgld_setup, sgmcmc.sgnht_setup, sgmcmc.sgldcv_setup)
    ]
    for sampler in setups[1:]:
        with pytest.raises(sgmcmc.InputError, match="another sampler"):
            sampler.run(setups[0].init(seed=1), 5)


def test_supports_written_as_minus_infinity_are_noticed():
    data = {"x": np.linspace(0.01, 2.0, 200)}
    with pytest.warns(sgmcmc.SgmcmcWarning, match="not finite"):
        sgmcmc.sgld(
            lambda p, b: jnp.where(b["x"] < p, -jnp.log(p), -jnp.inf), data, 2.5, 1e-3, minibatch_size=100, n_iters=500, seed=1,
            progress=False,
        )  # fmt: skip


def test_pairs_of_many_groups_are_called_by_what_they_are_of():
    """Thousands of effects are kept in the order of their layout, some of them; their names go by the same order."""
    from types import SimpleNamespace

    from sgmcmc.algorithms.gradients.whitened import WhitenedState
    from sgmcmc.core.names import Names
    from sgmcmc.problem.arrow import ArrowWhitening, Layout
    from sgmcmc.results.keeps import MOST_PAIRED, paired_numbers
    from sgmcmc.results.result import paired_names

    groups = MOST_PAIRED
    tree = {"a": np.zeros((2, groups)), "b": np.zeros(3)}
    layout = Layout((1, None), ((2, groups), (3,)))
    whitening = ArrowWhitening(tree, np.eye(3), np.zeros((groups, 2, 3)), np.zeros((groups, 2, 2)), layout)
    every = Names().numbers(tree)
    found = paired_names(every, SimpleNamespace(estimator=WhitenedState(whitening, None)))
    numbered = {"a": np.arange(2.0 * groups).reshape(2, groups), "b": 2 * groups + np.arange(3.0)}
    numbers = np.asarray(layout.vector(numbered)).astype(int)[paired_numbers(len(every))]
    assert found == [every[number] for number in numbers]
    assert found[0] == "b[0]"
    assert paired_names(every, SimpleNamespace(estimator=None)) == every[paired_numbers(len(every))]
