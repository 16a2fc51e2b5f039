"""Health: what is wrong is said, by its name, with a remedy; what is right is not flagged."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import sgmcmc
from sgmcmc.results.diagnostics import Inflation, Pairs, parameter_inflation
from sgmcmc.results.words import (
    FALSE_ALARMS,
    OFF,
    REMEDIES,
    Decisions,
    Finding,
    Health,
    centre,
    digits,
    mixing,
    sure,
    undetermined,
    variances,
)

N, D = 1000, 2
X = np.random.default_rng(0).normal([1.0, -2.0], [1.0, 1.0], (N, D))


def location(params, batch):
    return -0.5 * ((batch["x"] - params["mu"]) ** 2).sum(axis=1)


def run(function, stepsize, n_iters=4000, **options):
    options = {"precondition": "laplace", "minibatch_size": 100, "diagnose": True} | options
    return function(
        location, {"x": X}, {"mu": np.zeros(D)}, stepsize, n_iters=n_iters, n_chains=4, seed=1, progress=False, **options
    )


@pytest.fixture(scope="module")
def langevin():
    return run(sgmcmc.sgldcv, "auto")


@pytest.fixture(scope="module")
def underdamped():
    return run(sgmcmc.baoacv, 0.49)


@pytest.fixture(scope="module")
def hasty(langevin):
    return run(sgmcmc.sgldcv, 4 * langevin.decisions["stepsize"])


def test_good_chains_are_not_flagged(langevin, underdamped):
    for result in (langevin, underdamped):
        health = result.health()
        assert health.ok, str(health)
        assert health.kinds == ()
        assert "All checks passed" in str(health)
        assert "never bias" in str(health)
        assert "several modes" in str(health)


def test_a_step_four_times_too_large_is_flagged_as_one(hasty):
    health = hasty.health()
    assert health.kinds == ("step",)
    assert "lower stepsize" in str(health)
    assert "mu[" in str(health)
    truth = 1 / (1 - hasty.settings["stepsize"] / 4)
    assert np.max(np.abs(hasty.inflation().value - truth) / hasty.inflation().error) < 4


def test_a_noisy_chain_is_flagged_for_its_noise():
    """V is N/n = 50 times the curvature: 1 + εV/4 = 1.6 of the variance."""
    health = run(sgmcmc.sgld, 0.05, 12_000, minibatch_size=20).health()
    assert health.kinds[0] == "noise"
    assert "minibatch_size" in str(health)


def test_the_papers_order_is_named():
    health = run(sgmcmc.sghmc, 0.05, L=3, scheme="paper", minibatch_size=N).health()
    assert health.kinds[-1] == "scheme"
    assert "L/(L-1) = 1.50" in str(health)
    assert "scheme='symmetric'" in str(health)


def mixture(params, batch):
    return jnp.logaddexp(-0.5 * (batch["x"] - params["mu"]) ** 2, -0.5 * (batch["x"] + params["mu"]) ** 2)


def test_chains_in_different_modes_are_apart():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(3, 1, 50), rng.normal(-3, 1, 50)])
    sampler = sgmcmc.baoa_setup(mixture, {"x": x}, {"mu": 1.0}, 0.005, minibatch_size=100)
    state = sampler.replace(sampler.init(seed=1, n_chains=4), {"mu": np.array([3.0, -3.0, 3.0, -3.0])})
    health = sampler.run(state, 2000, burn_in=100, diagnose=True, progress=False).health()
    assert "apart" in health.kinds
    assert "R-hat" in str(health)
    alone = sampler.replace(state, {"mu": np.full(4, 3.0)})
    assert sampler.run(alone, 2000, burn_in=100, diagnose=True, progress=False).health().ok


def test_without_diagnose_the_repair_is_named():
    result = run(sgmcmc.sgldcv, 0.3, 40, diagnose=False)
    for ask in (result.health, result.inflation, result.zero_variance_means, result.stein_discrepancy):
        with pytest.raises(sgmcmc.InputError, match="diagnose=True"):
            ask()
    assert isinstance(result.plot(), Figure)
    assert "inflation" not in result.summary()
    with pytest.raises(sgmcmc.InputError, match="at least 20 draws"):
        run(sgmcmc.sgldcv, 0.3, 19).health()
    with pytest.raises(sgmcmc.InputError, match="fix it"):
        run(sgmcmc.sgldcv, lambda t: 0.3 / t, 40)


# Findings one by one.


def test_variances_that_are_surely_off():
    names = ["a", "b", "c"]
    one = Inflation(np.array([1.5, 1.05, 0.6]), np.full(3, 0.05), joint=True)
    wide, narrow = variances(one, names, np.array([0.0, 0.0, 0.0]))
    assert (wide.kind, narrow.kind) == ("step", "narrow")
    assert "variance of a is 1.50 times" in wide.seen
    assert variances(one, names, np.full(3, 2.0))[0].kind == "noise"
    assert not variances(Inflation(one.value, np.full(3, 0.2), joint=True), names, np.zeros(3))
    assert not variances(Inflation(one.value, np.full(3, np.nan), joint=True), names, np.zeros(3))
    both = variances(Inflation(np.array([1.5, 2.5, 1.0]), np.full(3, 0.05), joint=True), names, np.zeros(3))
    assert "b and 1 more" in both[0].seen


def test_mixing_and_centre():
    apart, short = mixing(np.array([50.0, np.nan]), np.array([1.0, 1.3]), ["a", "b"])
    assert (apart.kind, short.kind) == ("apart", "short")
    assert "b: R-hat is 1.30" in apart.seen
    assert "a are worth only 50" in short.seen
    assert centre(np.array([0.1, 4.0]), ["a", "b"])[0].kind == "centre"
    assert not centre(np.array([0.1, 2.0]), ["a", "b"])


def test_every_kind_has_a_remedy():
    for kind in REMEDIES:
        by_hand, automatic = Finding(kind, "Seen."), Finding(kind, "Seen.", automatic=True)
        assert str(by_hand).startswith("Seen. ")
        assert "stepsize" not in str(automatic) or kind == "short"
    health = Health((Finding("apart", "Chains disagree."),), ("A note.",))
    assert not health.ok
    assert str(health).splitlines()[0].startswith("- Chains disagree. ")


@pytest.mark.parametrize(
    ("d", "width", "flagged"),
    [
        (5, 1.0, False),
        pytest.param(50, 1.0, False, marks=pytest.mark.slow),
        (5, 1 + OFF, False),
        pytest.param(50, 1 + OFF, False, marks=pytest.mark.slow),
        (5, 1.5, True),
    ],
)
def test_false_alarms_are_as_rare_as_promised(d, width, flagged):
    """Independent draws with `width` times the right variance in every direction: at 1 + `OFF`, still good, at the very edge."""
    rng, names, replicates = np.random.default_rng(d), [str(i) for i in range(d)], 200
    alarms = []
    for _ in range(replicates):
        z = np.sqrt(width) * rng.standard_normal((4, 150, d))
        gradients = -z + 0.3 * rng.standard_normal(z.shape)
        alarms.append(bool(variances(parameter_inflation(z, gradients), names, np.zeros(d))))
    rate, limit = np.mean(alarms), FALSE_ALARMS + 3 * np.sqrt(FALSE_ALARMS * (1 - FALSE_ALARMS) / replicates)
    assert rate > 0.9 if flagged else rate <= limit


def chains(*phis, seed=1, draws=1000):
    """Four autoregressions for every φ, started in their stationary law N(0, 1)."""
    rng, phi = np.random.default_rng(seed), np.array(phis)
    z = np.empty((4, draws, len(phi)))
    z[:, 0] = rng.standard_normal((4, len(phi)))
    for k in range(1, draws):
        z[:, k] = phi * z[:, k - 1] + np.sqrt(1 - phi**2) * rng.standard_normal((4, len(phi)))
    return z


def judged(numbers, draws=None, names=("a", "b"), **settings):
    """The health of draws whose gradients are those of a standard normal."""
    pairs = Pairs(numbers, -numbers, list(names), None, None)
    tree = {name: (numbers if draws is None else draws)[..., i] for i, name in enumerate(names)}
    return sgmcmc.Result(tree, {}, None, {"sampler": "hand", **settings}, chained=True, pairs=pairs).health()


def remedy(health, kind):
    return health.findings[health.kinds.index(kind)].remedy


def test_the_remedy_goes_by_the_cause():
    slow = chains(0.999, 0.0)
    tau = np.log(np.abs(slow[..., :1]) + 1e-9) + 0.0 * slow
    numbers = np.concatenate([tau[..., :1], slow[..., 1:]], axis=2)
    collapsed = judged(numbers, np.concatenate([np.exp(tau[..., :1]), slow[..., 1:]], axis=2), names=("tau", "u"))
    assert remedy(collapsed, "short").startswith("tau runs to 0")
    tied = np.concatenate([slow[..., :1], slow[..., :1] + 0.01 * slow[..., 1:]], axis=2)
    assert remedy(judged(tied), "short").startswith("a and b trade off")
    assert remedy(judged(slow), "short") == REMEDIES["short"]
    assert remedy(judged(slow, sampler="sample"), "short") == "Ask for target_ess=400."
    assert "400 would take" in str(judged(slow))
    assert judged(chains(0.0, 0.0)).ok


def test_directions_have_the_names_of_their_numbers():
    """What a and b leave open between them mixes badly, which neither shows."""
    z, factor = chains(0.0, 0.999), np.array([[1.0, 0.0], [0.9999, 0.014]])
    pairs = Pairs(z, -z, ["a", "b"], factor, None)
    health = sgmcmc.Result(None, {}, None, {}, pairs=pairs).health()
    assert "The draws of a direction that is mostly b are worth" in str(health)
    assert pairs.directions == ["a direction that is mostly a and b", "a direction that is mostly b"]
    quick = sgmcmc.Result(None, {}, None, {}, pairs=Pairs(chains(0.0, 0.0), -chains(0.0, 0.0), ["a", "b"], factor, None))
    assert quick.health().ok


def test_rounds_that_did_not_settle():
    z = chains(0.0, 0.0)
    result = sgmcmc.Result(None, {}, None, {"sampler": "sample"}, pairs=Pairs(z, -z, ["a", "b"], None, None))
    assert result.health().ok
    told = replace(result, decisions=Decisions().and_then("unsettled", "the noise is too high", "It did not settle."))
    assert told.health().kinds == ("rounds",)
    assert "did not settle: the noise is too high. Treat the draws as approximate" in str(told.health())


def test_few_digits():
    z = np.random.default_rng(1).standard_normal((4, 500, 2))
    large = 1e4 + 0.003 * z
    finding, *others = digits(large, ["a", "b"], np.dtype(np.float32))
    assert not others
    assert finding.seen == "The sd of a and 1 more is only 3.1 steps of float32 at 10000."
    assert "jax_enable_x64" in finding.remedy
    assert not digits(large, ["a", "b"], np.dtype(np.float64))
    assert not digits(1e4 + z, ["a", "b"], np.dtype(np.float32))
    assert not digits(np.ones((4, 500, 1)), ["still"], np.dtype(np.float32))
    assert "x64" not in digits(1e15 + z, ["a", "b"], np.dtype(np.float64))[0].remedy


@pytest.mark.parametrize(("middle", "kinds"), [(1e4, ("digits",)), (1.0, ())])
def test_digits_of_a_run(middle, kinds):
    """A whitened number's own spacing counts, not that of the direction that moves."""
    z = np.random.default_rng(2).standard_normal((4, 500, 2)).astype(np.float32)
    pairs, state = Pairs(z, -z, ["a", "b"], np.full(2, 0.003), np.array([0.0, middle])), SimpleNamespace(estimator=None)
    health = sgmcmc.Result(None, {}, state, {}, pairs=pairs).health()
    assert health.kinds == kinds
    assert ("sd of b is" in str(health)) == bool(kinds)


def test_inflations_that_are_not_determined():
    value = np.array([1.1, 1e35, -0.3, np.nan, 2.0, 2.0, 90.0])
    found = Inflation(value, np.array([0.1, 1e30, 0.1, 0.1, np.inf, 1.5, 10.0]), joint=True)
    np.testing.assert_array_equal(found.determined, [True, False, False, False, False, False, True])
    np.testing.assert_array_equal(found.where_determined().value, [1.1, np.nan, np.nan, np.nan, np.nan, np.nan, 90.0])
    assert np.isnan(found.where_determined().error[1:6]).all()
    names = list("abcdefg")
    assert "not determined for 5 of 7 numbers, b first" in undetermined(found, names)[0]
    assert undetermined(Inflation(value[:1], np.ones(1), joint=True), names[:1]) == []
    assert "more than 10,000 times" in variances(found, names, np.zeros(7))[0].seen


def test_summaries_say_nothing_of_what_is_not_determined():
    """Flat gradients: the posterior's variance could be anything."""
    z = np.random.default_rng(3).standard_normal((4, 100, 2))
    g = -z.copy()
    g[..., 1] = 1e-18 * z[..., 0]
    for scale in (1.0, 1e150):
        result = by_hand(scale * z, g / scale)
        summary = result.summary()
        assert np.isfinite(summary["inflation"].iloc[0])
        assert summary[["inflation", "inflation_se"]].iloc[1].isna().all()
        assert "not determined for 1 of 2 numbers, z[1] first" in str(result.health())
        assert isinstance(result.plot(), Figure)


def nuts(z, gradients=True, steps=None, **counts):
    counted = {name: np.array(value) for name, value in counts.items()}
    state = SimpleNamespace(auxiliary=counted, estimator=None, step=np.array(z.shape[1] if steps is None else steps))
    pairs = Pairs(z, -z, ["z[0]", "z[1]"], None, None) if gradients else None
    return sgmcmc.Result({"z": z}, {}, state, {"sampler": "sample", "engine": "nuts"}, chained=True, pairs=pairs).health()


@pytest.mark.parametrize("gradients", [True, False])
def test_nuts_has_no_bias_to_be_judged(gradients):
    """Draws twice as wide as the gradients say pass, since they are exact by construction."""
    z = chains(0.2, 0.2)
    for health in (nuts(z, gradients), nuts(2.0 * z, gradients, divergences=[0, 1, 0, 0], deepest=[0, 0, 0, 2])):
        assert health.ok
        assert health.notes[0] == "NUTS on all rows: no bias from steps or minibatches."
    told = nuts(z, gradients, divergences=[9, 0, 0, 3], deepest=[0, 0, 400, 0])
    assert told.kinds == ("divergences",)
    assert "12 of 4,000 transitions diverged. Part of the posterior is too narrow" in str(told)
    assert "400 of 4,000 transitions ended at the largest tree" in str(told)
    longer = nuts(z, gradients, steps=32 * z.shape[1], divergences=[9, 0, 0, 3])  # of which these are the first draws
    assert longer.ok
    assert nuts(chains(0.2, 0.999), gradients).kinds[-1] == "short"
    assert "digits" in nuts((1e5 + 0.01 * z).astype(np.float32), gradients).kinds


def test_more_numbers_need_surer_signs():
    assert sure(1) == pytest.approx(2.576, abs=1e-3)
    assert sure(1) < sure(50) < sure(2000)


# Summaries.


def by_hand(draws, gradients, **settings):
    pairs = Pairs(draws, gradients, [f"z[{i}]" for i in range(draws.shape[2])], None, None)
    return sgmcmc.Result({"z": draws}, {}, None, {"sampler": "hand", **settings}, chained=True, pairs=pairs)


def test_mcse_of_an_autoregression():
    """φ = 0.8: an effective draw takes (1 + φ)/(1 - φ) = 9 of them."""
    rng, phi = np.random.default_rng(2), 0.8
    z = np.empty((4, 5000, 2))
    z[:, 0] = rng.standard_normal((4, 2))
    for k in range(1, 5000):
        z[:, k] = phi * z[:, k - 1] + np.sqrt(1 - phi**2) * rng.standard_normal((4, 2))
    summary = by_hand(3.0 * z, -z / 3.0).summary()
    np.testing.assert_allclose(summary["mcse"], 3.0 * np.sqrt(9 / 20_000), rtol=0.1)
    np.testing.assert_allclose(summary["inflation"], 1.0, atol=4 * summary["inflation_se"].max())
    assert np.all(np.abs(summary["mean"]) < 4 * summary["mcse"])
    assert list(summary.columns) == ["mean", "sd", "mcse", "5%", "50%", "95%", "ess", "r_hat", "inflation", "inflation_se"]


def test_summaries_of_a_run(hasty):
    summary = hasty.summary()
    assert list(summary.index) == ["mu[0]", "mu[1]"]
    assert np.all(summary["inflation"] > 1.2)
    np.testing.assert_allclose(summary["mcse"], summary["sd"] / np.sqrt(summary["ess"]), rtol=0.1)


def test_zero_variance_means(underdamped):
    """Gradients of a location model with control variates are exact, so nothing is left of the Monte Carlo error."""
    found = underdamped.zero_variance_means()
    np.testing.assert_allclose(found["mean"], X.mean(axis=0), atol=1e-5)
    assert list(found.index) == ["mu[0]", "mu[1]"]
    assert np.all(found["gain"] > 100)


def test_stein_discrepancy(underdamped, hasty):
    assert abs(underdamped.stein_discrepancy().z_score) < 4
    assert hasty.stein_discrepancy().z_score > 4


@pytest.mark.parametrize("names", [None, ["mu"]])
def test_plots(langevin, names):
    figure = langevin.plot(names)
    assert isinstance(figure, Figure)
    assert "all checks passed" in figure.get_suptitle()
    with pytest.raises(sgmcmc.InputError, match="nu"):
        langevin.plot(["nu"])


def test_plots_of_flagged_results_say_so(hasty):
    assert "health()" in hasty.plot(max_rows=1).get_suptitle()


def test_decisions_print_sentences(langevin):
    told = str(langevin.decisions)
    assert all(line.startswith("- ") and line.endswith(".") for line in told.splitlines())
    assert "step size" in told
    more = langevin.decisions.and_then("stepsize", 7, "Now it is 7.")
    assert more["stepsize"] == 7
    assert len(more) == len(langevin.decisions) == len(list(more))
    assert str(more).endswith("Now it is 7.")
    with pytest.raises(KeyError, match="decided were"):
        more["colour"]
    assert len(Decisions()) == 0
