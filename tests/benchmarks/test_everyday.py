"""The check on everyday models: its references are right, its targets are the users' posteriors, and its words are true."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from posteriors import in_doubles, log_posterior

from benchmarks.common.freshly import NotEndedError, freshly
from benchmarks.everyday import fitting, gibbs, judge, models, reference, report, targets
from benchmarks.everyday.__main__ import PAGE, all_of, picked
from benchmarks.everyday.cases import Case
from benchmarks.everyday.everything import QUICK, build, names
from benchmarks.everyday.random_regressions import COLUMNS, HOW_MANY, RANDOM_SEEDS, ROWS

ALWAYS = ("20 rows, normal", "Weibull, censored")
LATER = (
    "from zeros, BernoulliLogits, N = 3,000", "from zeros, Bernoulli(probs), N = 3,000", "from zeros, log_sigmoid, N = 3,000",
    "from zeros, logaddexp, N = 3,000", "rare levels, one-hot", "rare column, N = 50,000", "exposures, Poisson",
    "exposures, y*eta - exp(eta)", "large z, log(p) and log(1 - p)", "large z, log(1/(1 + exp(-z)))",
    "separable, with a prior, N = 200", "correlated, scales 1e-4 to 1e5", "spline", "20 rows, logistic", "300 rows", "horseshoe",
    "rare levels, codes", "ordinal", "spline, smoothness unknown",
)  # fmt: skip
RANDOM = (("random logistic", 0), ("random logistic", 2), ("random poisson", 3), ("random poisson", 5))
WRITTEN_TWICE = [(name, 1) for name in ALWAYS]
AND_THE_OTHERS = [pytest.param(*case, marks=pytest.mark.slow) for case in (*((name, 1) for name in LATER), *RANDOM)]


def intercept_alone(prior: float = 2.0) -> Case:
    """Twelve rows, one event: a skewed posterior of one number."""
    x, y = np.zeros(12, np.float32), np.eye(12, dtype=np.float32)[0]
    target = targets.regression_target(np.ones((12, 1)), y, prior, {"a": ()})

    def log_lik(params, batch):
        return models.logaddexp(params["a"] + batch["x"], batch["y"])

    return Case(log_lik, {"x": x, "y": y}, {"a": 0.0}, models.normal_prior(prior), target=target)


def by_quadrature(prior: float) -> tuple[float, float]:
    grid = np.linspace(-20, 10, 60_001)
    density = np.exp(grid - 12 * np.logaddexp(0, grid) - (grid / prior) ** 2 / 2)
    mean = (grid * density).sum() / density.sum()
    return mean, np.sqrt(((grid - mean) ** 2 * density).sum() / density.sum())


def test_gibbs_draws_are_those_of_the_horseshoe():
    """One coefficient: given its scales the rows are normal, and those are integrated on a grid of three logarithms."""
    rng, scale, width = np.random.default_rng(0), 0.5, 2.0
    x = rng.normal(size=(12, 1))
    rows = targets.sums(x, 0.7 * x[:, 0] + rng.normal(size=12))
    local, total, noise = np.meshgrid(*(np.linspace(-low, high, 161) for low, high in ((9, 9), (9, 9), (1.5, 2))), indexing="ij")
    cauchy = local - np.log1p(np.exp(2 * local)) + total - np.log1p(np.exp(2 * total) / scale**2)
    half_normal = noise - np.exp(2 * noise) / (2 * width**2)
    precision = rows["XX"].item() * np.exp(-2 * noise) + np.exp(-2 * (local + total))
    mean = rows["Xy"].item() * np.exp(-2 * noise) / precision
    rest = (
        mean**2 * precision / 2
        - np.log(precision) / 2
        - (local + total)
        - rows["n"] * noise
        - rows["yy"] * np.exp(-2 * noise) / 2
    )
    weight = np.exp((log := cauchy + half_normal + rest) - log.max())
    weight /= weight.sum()
    blocks = gibbs.horseshoe(rows, width, scale)
    draws = [next(blocks) for _ in range(8)]
    seen = models.shrunk_seen({name: np.concatenate([block[name] for block in draws], axis=1) for name in draws[0]})
    found = reference.moments(
        np.stack([seen["beta"][..., 0], *(np.squeeze(seen[f"log {n}"]) for n in ("lam", "tau", "sigma"))], -1)
    )
    truth = [(weight * value).sum() for value in (mean, local, total, noise)]
    error = np.subtract(found["mean"], truth) / found["sd"] * np.sqrt(found["ess"])
    assert np.abs(error).max() < 4
    wrong = [(weight * value).sum() for value in (mean * 0.9, local + 0.1, total + 0.1, noise + 0.02)]
    assert (np.abs(np.subtract(found["mean"], wrong) / found["sd"] * np.sqrt(found["ess"])) > 4).all()


@pytest.fixture(scope="module")
def found():
    with jax.enable_x64(True):
        return reference.sampled(intercept_alone(), enough=1_000)


def errors_of(found, mean, sd):
    """Errors of a reference's mean and sd, in its own standard errors."""
    of_mean = (found["mean"][0] - mean) / sd * np.sqrt(found["ess"][0])
    of_sd = (found["sd"][0] / sd - 1) * 2 * np.sqrt(found["ess_of_squares"][0] / (found["kurtosis"][0] - 1))
    return of_mean, of_sd


def test_the_reference_is_the_posterior_by_quadrature(found):
    assert reference.good(found, enough=1_000)
    assert found["names"] == ["a"]
    assert np.abs(errors_of(found, *by_quadrature(2.0))).max() < 4
    assert np.abs(errors_of(found, *by_quadrature(2.5))).max() > 6  # the control: another prior is noticed


def test_a_case_from_end_to_end(found):
    fit = fitting.outcome(intercept_alone(), seed=1)
    line = report.Line("one number", 1, intercept_alone(), fit, judge.judge(intercept_alone(), fit, found))
    assert fit["outcome"] == "draws"
    assert line.judgement.word in (judge.RIGHT, judge.ALARM)
    assert line.judgement.means.whose == "a"
    assert "one number" in report.page([line], 1)
    assert [axes.get_xscale() for axes in report.figure([line]).axes] == ["log", "log"]


def points(target):
    """Two of them, where no predictor is large."""
    columns = target.rows["X"] if "trials" in target.rows else np.ones((1, target.size))
    scale = np.minimum(0.3, 0.3 / np.sqrt(np.mean(columns**2, axis=0)))
    return [jnp.asarray(scale * np.random.default_rng(i).normal(size=target.size)) for i in (1, 2)]


@pytest.mark.parametrize(("name", "seed"), [*WRITTEN_TWICE, *AND_THE_OTHERS])
def test_the_target_is_the_posterior_of_the_model(name, seed, x64):
    case = in_doubles(build(name, seed))
    one, other = points(case.target)
    theirs = log_posterior(case, one) - log_posterior(case, other)
    ours = case.target.density(one, case.target.rows) - case.target.density(other, case.target.rows)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def moments(mean=(0.0,), sd=(1.0,), ess=1e4):
    counts = {name: [ess] * len(mean) for name in ("ess", "ess_of_squares")}
    shape = {"kurtosis": [3.0] * len(mean), "r_hat": [1.0] * len(mean), "names": [f"p{i}" for i in range(len(mean))]}
    return {"outcome": "draws", "kinds": [], "seconds": 1.0, "mean": list(mean), "sd": list(sd), **counts, **shape}


@pytest.mark.parametrize(
    ("mean", "sd", "ess", "kinds", "word"),
    [
        (0.1, 1.05, 1e4, [], judge.RIGHT),
        (0.1, 1.05, 1e4, ["short"], judge.ALARM),
        (0.3, 1.0, 1e4, [], judge.WRONG),
        (0.0, 1.2, 1e4, [], judge.WRONG),
        (0.0, 0.8, 1e4, ["narrow"], judge.FLAGGED),
        (0.3, 1.0, 100, [], judge.RIGHT),  # within three standard errors of the bound
        (0.6, 1.0, 100, [], judge.WRONG),
        (0.0, 1.0, 20, ["short"], judge.FLAGGED),  # right by chance, if it is
        (float("nan"), 1.0, 1e4, [], judge.WRONG),
    ],
)
def test_a_word_for_every_fit(mean, sd, ess, kinds, word):
    fit = moments([0.0, mean], [1.0, sd], ess) | {"kinds": kinds}
    found = judge.judge(intercept_alone(), fit, moments([0.0, 0.0], [1.0, 1.0]))
    assert found.word == word
    assert mean != 0.6 or (found.means.whose, str(found.means)) == ("p1", "0.60 ± 0.10")


def test_refusals_are_right_where_they_name_what_is_wrong():
    case, said = intercept_alone(), {"outcome": "refused", "message": "row 1,234 has exposure 0", "seconds": 1.0}
    assert judge.judge(case, said, None).word == judge.FALSELY
    assert judge.judge(replace(case, naming=r"\b1,234\b", proper=False), said, None).word == judge.REFUSED
    assert judge.judge(replace(case, naming=r"\b123\b", proper=False), said, None).word == judge.UNNAMED
    assert judge.judge(replace(case, proper=False), moments(), None).word == judge.WRONG
    assert judge.judge(case, said | {"outcome": "crashed"}, None).word == judge.CRASHED
    assert judge.judge(case, moments(), None).word == judge.UNKNOWN


def test_networks_are_judged_by_their_predictions():
    case = models.network(1)
    draws = {name: np.broadcast_to(np.asarray(value), (2, 10, *np.shape(value))) for name, value in case.start.items()}
    untrained = fitting.prediction_error(case.predictions, draws)
    assert untrained > judge.PREDICTIONS
    fit = {"outcome": "draws", "kinds": [], "rmse": untrained}
    assert judge.judge(case, fit, None).word == judge.WRONG
    assert judge.judge(case, fit | {"rmse": 1.02}, None).word == judge.RIGHT


def test_the_random_regressions_are_as_many_and_as_wide_as_said():
    cases = [(name, seed) for name, seed in names() if name in RANDOM_SEEDS]
    assert len(cases) == HOW_MANY == len({seed for _, seed in cases})
    few = [build(name, seed) for name, seed in cases[::7]]
    assert all(ROWS[0] <= case.rows <= ROWS[1] and COLUMNS[0] <= case.numbers - 1 <= COLUMNS[1] for case in few)
    assert all(not np.any(value) for case in few for value in case.start.values())
    again = build(*cases[0])
    assert all((again.data[name] == array).all() for name, array in few[0].data.items())
    assert again.target.key() == few[0].target.key() != few[1].target.key()


def test_variants_of_a_model_share_their_reference():
    one, other = (build(f"from zeros, {way}, N = 3,000", 1) for way in ("BernoulliLogits", "logaddexp"))
    assert one.target.key() == other.target.key() != build("from zeros, logaddexp, N = 3,000", 2).target.key()
    assert 0.05 < one.data["y"].mean() < 0.09
    assert len(one.target.rows["X"]) < one.rows / 2


def test_cases_are_picked_by_name_and_seed():
    assert picked(names(), "rare*", [2]) == [(name, 2) for name in models.MODELS if name.startswith("rare")]
    assert [name for name, _ in names(quick=True)] == list(QUICK)
    assert ("horseshoe", 1) in names(slow=True)
    assert ("horseshoe", 1) not in names()


def test_cases_with_a_bar_for_their_time_are_run_alone_and_first():
    cases, running, most = [("20 rows, normal", 1), ("300 rows", 1), ("20 rows, normal", 2), ("300 rows", 2)], set(), {}
    together = Barrier(2)

    def line_of(name, seed):
        running.add((name, seed))
        if "normal" in name:
            together.wait(timeout=60)  # both are here at once
        most[name, seed] = set(running)
        running.discard((name, seed))
        return SimpleNamespace(cells=lambda: [name, str(seed)])

    lines = all_of(cases, line_of, jobs=2)
    assert [line.cells() for line in lines] == [[name, str(seed)] for name, seed in cases]
    assert most["300 rows", 1] == {("300 rows", 1)}
    assert most["300 rows", 2] == {("300 rows", 2)}


def test_a_fit_that_does_not_end_is_left():
    with pytest.raises(NotEndedError, match=r"within 0\.01 s"):
        freshly(fitting.fitted, name="20 rows, normal", seed=1, patience=0.01)


def test_the_page_says_what_the_command_says():
    assert PAGE.read_text().startswith(report.page([], 0).split("| verdict")[0])


def test_a_row_without_exposure_has_its_number_in_the_pattern():
    case = models.no_exposure(models.poisson_formula, True, 1)
    (row,) = np.flatnonzero(case.data["exposure"] == 0)
    words = {number: judge.ended(case, {"outcome": "refused", "message": f"row {number:,} is -inf"}) for number in (row, row + 1)}
    assert words == {row: judge.REFUSED, row + 1: judge.UNNAMED}
